//! Python classes and functions of the stage `tree`.

use pyo3::prelude::*;

/// Adds this stage's classes and functions to the module.
pub(super) fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
