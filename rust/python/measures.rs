//! Python classes and functions of the stage `measures`.

use pyo3::prelude::*;

use crate::measures;

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let table = |names: &[&'static str], meanings: &[&'static str]| {
        names
            .iter()
            .copied()
            .zip(meanings.iter().copied())
            .collect::<Vec<_>>()
    };
    module.add(
        "PLAN_MEASURES",
        table(&measures::plan::NAMES, &measures::plan::MEANINGS),
    )?;
    module.add(
        "GROUP_MEASURES",
        table(&measures::group::NAMES, &measures::group::MEANINGS),
    )
}
