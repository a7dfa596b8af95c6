//! Views of numpy arrays. The Python side has already made them contiguous int64.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::errors::to_python;
use crate::error::Error;
use crate::segments::NONE;

/// The slice under a one-dimensional int64 array, without a copy.
pub(super) fn slice<'a>(
    py: Python<'_>,
    name: &str,
    array: &'a PyReadonlyArray1<'_, i64>,
) -> PyResult<&'a [i64]> {
    array.as_slice().map_err(|_| {
        to_python(
            py,
            &Error::input(format!(
                "{name} (length {}) is not contiguous and aligned: pass numpy.ascontiguousarray of it",
                array.len()
            )),
        )
    })
}

/// A new int64 array that takes over `values`.
pub(super) fn column(py: Python<'_>, values: Vec<i64>) -> Bound<'_, PyArray1<i64>> {
    values.into_pyarray(py)
}

/// Indices as a new int64 array, -1 for `NONE`.
pub(super) fn indices<'py>(py: Python<'py>, values: &[u32]) -> Bound<'py, PyArray1<i64>> {
    let wide: Vec<i64> = values
        .iter()
        .map(|&v| if v == NONE { -1 } else { i64::from(v) })
        .collect();
    wide.into_pyarray(py)
}

/// Row numbers from Python, each below `rows`.
pub(super) fn row_indices(
    py: Python<'_>,
    name: &str,
    values: &[i64],
    rows: usize,
) -> PyResult<Vec<u32>> {
    values
        .iter()
        .enumerate()
        .map(|(i, &row)| match usize::try_from(row) {
            Ok(r) if r < rows => Ok(r as u32),
            _ => Err(to_python(
                py,
                &Error::input(format!(
                    "{name}[{i}] is {row}: it must be a row, 0 to {rows} exclusive"
                )),
            )),
        })
        .collect()
}
