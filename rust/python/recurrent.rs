//! Placement of segments for gated-delta-net layers.

use pyo3::prelude::*;

use super::convert::short;
use super::errors::{detached, refused};
use super::fields::give_class;
use crate::assign::{Assignment, MOST_RANKS};
use crate::error::{Error, Result};
use crate::pack::Packing;
use crate::recurrent::{
    MOST_CELLS, Recurrent, RecurrentSettings, Schedule, Workspace, gdn_schedule,
    gdn_schedule_per_rank, recurrent,
};
use crate::segments::{NONE, Segments};

give_class!(Recurrent, RecurrentSettings);

/// Which rank runs which segment of a packed row under its ownership.
#[pyfunction]
#[pyo3(signature = (packing, ownership, settings=None))]
fn gdn(
    py: Python<'_>,
    packing: &Packing,
    ownership: &Assignment,
    settings: Option<&RecurrentSettings>,
) -> PyResult<Recurrent> {
    let settings = settings.cloned().unwrap_or_default();
    let mut workspace = Workspace::default();
    detached(py, || {
        recurrent(&packing.segments, ownership, &settings, &mut workspace)
    })
}

/// The bucket schedule of a whole packed row on one rank.
#[pyfunction(name = "gdn_schedule")]
fn schedule(py: Python<'_>, packing: &Packing) -> PyResult<Schedule> {
    detached(py, || Ok(gdn_schedule(&packing.segments)))
}

/// The bucket schedule of each rank, over the segments and shards that it holds.
#[pyfunction(name = "gdn_schedule_per_rank")]
fn schedule_per_rank(
    py: Python<'_>,
    packing: &Packing,
    placement: &Recurrent,
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
        return Err(refused(
            py,
            "placement is of another packed row: give its own",
        ));
    }
    detached(py, || Ok(gdn_schedule_per_rank(segments, placement)))
}

/// A placement from its columns, checked; `owner` is -1 where a segment is chained.
pub(super) fn placed(
    segments: &Segments,
    ranks: usize,
    owner: &[i64],
    shards: &[i64],
) -> Result<Recurrent> {
    if owner.len() != segments.len() {
        return Err(Error::input(format!(
            "owner has {} entries for {} segments: give one each",
            owner.len(),
            segments.len()
        )));
    }
    if ranks > MOST_RANKS || ranks.saturating_mul(owner.len()) > MOST_CELLS {
        return Err(Error::input(format!(
            "ranks is {ranks} for {} segments: at most {MOST_RANKS}, and {MOST_CELLS} pairs of both",
            owner.len()
        )));
    }
    let chained: Vec<bool> = owner.iter().map(|&owner| owner == -1).collect();
    let wanted = chained.iter().filter(|c| **c).count().checked_mul(ranks);
    if ranks == 0 || wanted != Some(shards.len()) {
        return Err(Error::input(format!(
            "shards has {} entries: give one per chained segment and rank, of {ranks} ranks",
            shards.len()
        )));
    }
    let mut rank_tokens = vec![0; ranks];
    let mut cuts = shards.chunks_exact(ranks);
    for (s, &owner) in owner.iter().enumerate() {
        let length = segments.length(s);
        if chained[s] {
            let cut = cuts.next().unwrap_or_default();
            let total = (cut.iter()).try_fold(0_i64, |sum, &shard| sum.checked_add(shard));
            if total != Some(length) || cut.iter().any(|&shard| shard < 1) {
                return Err(Error::input(format!(
                    "shards of segment {s} are {}: they must be positive and sum to {length}",
                    short(cut)
                )));
            }
            for (tokens, &shard) in rank_tokens.iter_mut().zip(cut) {
                *tokens += shard;
            }
        } else {
            let tokens = usize::try_from(owner)
                .ok()
                .and_then(|rank| rank_tokens.get_mut(rank));
            let Some(tokens) = tokens else {
                return Err(Error::input(format!(
                    "owner[{s}] is {owner}: it must be -1 or below {ranks}, the number of ranks"
                )));
            };
            *tokens += length;
        }
    }
    let owner = (owner.iter())
        .map(|&owner| u32::try_from(owner).unwrap_or(NONE))
        .collect();
    Ok(Recurrent {
        rank_tokens,
        owner,
        chained,
        shards: shards.to_vec(),
        ..Recurrent::default()
    })
}

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Recurrent>()?;
    module.add_class::<RecurrentSettings>()?;
    module.add_class::<Schedule>()?;
    module.add_function(wrap_pyfunction!(gdn, module)?)?;
    module.add_function(wrap_pyfunction!(schedule, module)?)?;
    module.add_function(wrap_pyfunction!(schedule_per_rank, module)?)
}
