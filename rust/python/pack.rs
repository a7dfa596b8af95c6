//! Python classes and functions of the stage `pack`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use numpy::PyArray1;
use pyo3::prelude::*;

use super::convert::{Ints, column, indices, row_indices, slice};
use super::errors::detached;
use crate::error::{Error, Result};
use crate::pack::{self, PackOptions, Packing};
use crate::rows::Rows;
use crate::segments::Segments;

type Column<'py> = Bound<'py, PyArray1<i64>>;

/// One packed row: segments, and the rows they belong to.
#[pyclass(frozen, name = "Packing", module = "waveplan._core")]
pub(super) struct PyPacking {
    pub(super) packing: Packing,
}

impl From<Packing> for PyPacking {
    fn from(packing: Packing) -> Self {
        Self { packing }
    }
}

#[pymethods]
impl PyPacking {
    #[staticmethod]
    fn from_segments(py: Python<'_>, lengths: Ints<'_>, parents: Ints<'_>) -> PyResult<Self> {
        let lengths = slice(py, "lengths", &lengths)?;
        let parents = slice(py, "parents", &parents)?;
        let packing = detached(py, || {
            Ok(Packing::from_segments(Segments::new(lengths, parents)?))
        })?;
        Ok(packing.into())
    }

    fn __len__(&self) -> usize {
        self.packing.segments.len()
    }

    #[getter]
    fn rows(&self) -> usize {
        self.packing.last.len()
    }

    #[getter]
    fn packed_tokens(&self) -> i64 {
        self.packing.segments.tokens()
    }

    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> Column<'py> {
        let segments = &self.packing.segments;
        column(
            py,
            (0..segments.len()).map(|s| segments.length(s)).collect(),
        )
    }

    #[getter]
    fn parents<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.packing.segments.parents)
    }

    #[getter]
    fn packed_starts<'py>(&self, py: Python<'py>) -> Column<'py> {
        let segments = &self.packing.segments;
        column(py, segments.starts[..segments.len()].to_vec())
    }

    #[getter]
    fn row_starts<'py>(&self, py: Python<'py>) -> Column<'py> {
        column(py, self.packing.row_start.clone())
    }

    #[getter]
    fn members<'py>(&self, py: Python<'py>) -> (Column<'py>, Column<'py>) {
        (
            indices(py, &self.packing.member_offsets),
            indices(py, &self.packing.members),
        )
    }

    #[getter]
    fn last<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.packing.last)
    }

    fn path<'py>(&self, py: Python<'py>, row: i64) -> PyResult<Column<'py>> {
        let row = row_indices(py, "row", &[row], self.packing.last.len())?[0];
        Ok(indices(py, &self.packing.path(row as usize)))
    }

    fn positions<'py>(&self, py: Python<'py>, row: i64) -> PyResult<Column<'py>> {
        let row = row_indices(py, "row", &[row], self.packing.last.len())?[0];
        let positions = py.detach(|| self.packing.positions(row as usize));
        Ok(column(py, positions))
    }
}

/// A limit from Python: not negative, and no larger than this machine counts.
pub(super) fn limit(name: &str, value: i64) -> Result<usize> {
    if value < 0 {
        return Err(Error::input(format!(
            "{name} is {value}: it must be at least 0"
        )));
    }
    Ok(usize::try_from(value).unwrap_or(usize::MAX))
}

/// Packs `tokens[offsets[i]..offsets[i + 1]]`.
#[pyfunction]
#[pyo3(signature = (tokens, offsets, max_depth=None, min_shared=1, shareable=None))]
fn pack_rows(
    py: Python<'_>,
    tokens: Ints<'_>,
    offsets: Ints<'_>,
    max_depth: Option<i64>,
    min_shared: i64,
    shareable: Option<Ints<'_>>,
) -> PyResult<PyPacking> {
    let tokens = slice(py, "tokens", &tokens)?;
    // Copied, so that what was checked stays true while other threads run.
    let offsets = slice(py, "offsets", &offsets)?.to_vec();
    let shareable = match &shareable {
        None => None,
        Some(limits) => Some(slice(py, "shareable", limits)?.to_vec()),
    };
    let packing = detached(py, || {
        let options = PackOptions {
            max_depth: max_depth.map(|d| limit("max_depth", d)).transpose()?,
            min_shared: limit("min_shared", min_shared)? as i64,
            shareable: shareable.as_deref(),
        };
        pack::pack(&Rows::new(tokens, &offsets)?, &options)
    })?;
    Ok(packing.into())
}

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPacking>()?;
    module.add_function(wrap_pyfunction!(pack_rows, module)?)
}
