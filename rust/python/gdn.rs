//! Placement of segments for gated-delta-net layers.

use pyo3::prelude::*;

use super::errors::{detached, refused};
use super::fields::{Take, give_class};
use crate::gdn::{
    self as core, Gdn, GdnSettings, Schedule, Workspace, gdn_schedule, gdn_schedule_per_rank,
};
use crate::ownership::Ownership;
use crate::pack::Packing;

give_class!(Gdn, GdnSettings);

/// Places the segments of a pack on the ranks of its ownership.
#[pyfunction]
#[pyo3(signature = (packing, ownership, settings=None, *, most_tokens=None))]
pub(super) fn gdn(
    py: Python<'_>,
    packing: &Packing,
    ownership: &Ownership,
    settings: Option<&GdnSettings>,
    most_tokens: Option<&Bound<'_, PyAny>>,
) -> PyResult<Gdn> {
    let most = most_tokens
        .map(|most| i64::take("most_tokens", most))
        .transpose()?;
    let settings = settings.cloned().unwrap_or_default();
    let mut workspace = Workspace::default();
    detached(py, || {
        core::gdn(
            &packing.segments,
            ownership,
            &settings,
            most,
            &mut workspace,
        )
    })
}

/// The bucket schedule of a whole pack on one rank.
#[pyfunction(name = "gdn_schedule")]
pub(super) fn schedule(py: Python<'_>, packing: &Packing) -> PyResult<Schedule> {
    detached(py, || Ok(gdn_schedule(&packing.segments)))
}

/// The bucket schedule of each rank, over the segments and shards that it holds.
#[pyfunction(name = "gdn_schedule_per_rank")]
pub(super) fn schedule_per_rank(
    py: Python<'_>,
    packing: &Packing,
    placement: &Gdn,
) -> PyResult<Vec<Schedule>> {
    let segments = &packing.segments;
    let cuts = placement.shards.chunks_exact(placement.rank_tokens.len());
    let chained = (0..segments.len()).filter(|&s| placement.chained.get(s) == Some(&true));
    let same = placement.owner.len() == segments.len()
        && placement.rank_tokens.iter().sum::<i64>() == segments.tokens()
        && chained
            .zip(cuts)
            .all(|(s, cut)| cut.iter().sum::<i64>() == segments.length(s));
    if !same {
        return Err(refused("placement is of another pack: give its own"));
    }
    detached(py, || Ok(gdn_schedule_per_rank(segments, placement)))
}
