//! Views of numpy arrays. The Python side has already made them contiguous int64.

use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::errors::to_python;
use crate::error::Error;

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
