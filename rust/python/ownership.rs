//! Ownership of chunks, and the attention slices of a pack.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert::one_of;
use super::errors::{detached, refused};
use super::fields::{Take, give_class};
use crate::attention;
use crate::ownership::{
    self as core, Asked, Ownership, OwnershipSettings, ProfiledWork, StageTimes, StageWork,
};
use crate::ownership::{WorkloadProfile, Workspace};
use crate::pack::Packing;

type Column<'py> = Bound<'py, PyArray1<i64>>;

give_class!(
    OwnershipSettings,
    Ownership,
    ProfiledWork,
    StageWork,
    WorkloadProfile
);

/// A number of context-parallel ranks.
pub(crate) fn ranks(cp: &Bound<'_, PyAny>) -> PyResult<usize> {
    let ranks = usize::take("cp", cp)?;
    core::check_ranks(ranks)?;
    Ok(ranks)
}

/// Assigns the chunks of a pack to `cp` ranks.
#[pyfunction]
#[pyo3(signature = (packing, cp, settings=None, method=None, *, most_tokens=None))]
pub(super) fn own(
    py: Python<'_>,
    packing: &Packing,
    cp: &Bound<'_, PyAny>,
    settings: Option<&OwnershipSettings>,
    method: Option<&Bound<'_, PyString>>,
    most_tokens: Option<&Bound<'_, PyAny>>,
) -> PyResult<Ownership> {
    let capped = method.is_some_and(|name| name == "fastest");
    let method = one_of("method", method, &core::METHODS)?;
    let ranks = ranks(cp)?;
    let settings = settings.cloned().unwrap_or_default();
    let most = most_tokens
        .map(|most| i64::take("most_tokens", most))
        .transpose()?;
    if most.is_some() && !capped {
        return Err(refused(
            "most_tokens is given: only the method \"fastest\" takes it",
        ));
    }
    detached(py, || {
        let asked = Asked {
            most_tokens: most,
            ..Asked::new(&packing.segments, ranks, &settings)
        };
        core::own_by(method, &asked, &mut Workspace::default())
    })
}

/// Forward milliseconds of an ownership, taken apart.
#[pyfunction]
#[pyo3(signature = (packing, ownership, settings=None))]
pub(super) fn stage_times(
    py: Python<'_>,
    packing: &Packing,
    ownership: &Ownership,
    settings: Option<&OwnershipSettings>,
) -> PyResult<StageTimes> {
    let settings = settings.cloned().unwrap_or_default();
    detached(py, || {
        core::stage_times(&packing.segments, ownership, &settings)
    })
}

/// Attention slices of a pack: query and key segment of each.
#[pyfunction]
pub(super) fn attention_slices<'py>(
    py: Python<'py>,
    packing: &Packing,
) -> PyResult<(Column<'py>, Column<'py>)> {
    let (queries, keys) = detached(py, || attention::slices(&packing.segments))?;
    Ok((queries.into_pyarray(py), keys.into_pyarray(py)))
}
