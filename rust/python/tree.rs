//! Python classes and functions of the stage `tree`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use numpy::PyArray1;
use pyo3::prelude::*;

use super::convert::{Ints, column, indices, row_indices, slice};
use super::errors::{detached, to_python};
use crate::error::Error;
use crate::pack::members;
use crate::rows::Rows;
use crate::segments::NONE;
use crate::tree::{Tree, TreeWorkspace};

type Column<'py> = Bound<'py, PyArray1<i64>>;

/// The canonical radix tree of some rows.
#[pyclass(frozen, name = "Tree", module = "waveplan._core")]
pub(super) struct PyTree {
    pub(super) tree: Tree,
}

#[pymethods]
impl PyTree {
    fn __len__(&self) -> usize {
        self.tree.len()
    }

    #[getter]
    fn rows(&self) -> usize {
        self.tree.rows()
    }

    #[getter]
    fn parent<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.tree.parent)
    }

    #[getter]
    fn start<'py>(&self, py: Python<'py>) -> Column<'py> {
        column(py, self.tree.start.clone())
    }

    #[getter]
    fn end<'py>(&self, py: Python<'py>) -> Column<'py> {
        column(py, self.tree.end.clone())
    }

    #[getter]
    fn depth<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.tree.depth)
    }

    #[getter]
    fn subtree<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.tree.subtree)
    }

    #[getter]
    fn count<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.tree.count)
    }

    #[getter]
    fn first_row<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.tree.first_row)
    }

    #[getter]
    fn terminal<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.tree.terminal)
    }

    fn members<'py>(&self, py: Python<'py>) -> PyResult<(Column<'py>, Column<'py>)> {
        let (offsets, rows) = detached(py, || members(&self.tree.parent, &self.tree.terminal))?;
        Ok((indices(py, &offsets), indices(py, &rows)))
    }

    fn prefixes<'py>(&self, py: Python<'py>) -> (Column<'py>, Column<'py>) {
        let prefixes = py.detach(|| self.tree.packed_prefixes());
        (column(py, prefixes.packed), column(py, prefixes.shared))
    }

    fn restrict(&self, py: Python<'_>, rows: Ints<'_>) -> PyResult<Self> {
        let rows = row_indices(py, "rows", slice(py, "rows", &rows)?, self.tree.rows())?;
        let mut tree = Tree::default();
        detached(py, || {
            self.tree
                .restrict_into(&rows, &mut TreeWorkspace::default(), &mut tree)
        })?;
        refuse_empty(py, &tree)?;
        Ok(Self { tree })
    }
}

/// A tree that Python sees has rows, and none of them is empty.
pub(super) fn refuse_empty(py: Python<'_>, tree: &Tree) -> PyResult<()> {
    let refused = if tree.rows() == 0 {
        "rows is empty: a tree needs at least one row".to_owned()
    } else if let Some(row) = tree.terminal.iter().position(|&s| s == NONE) {
        format!("row {row} is empty: a tree needs at least one token in each row")
    } else {
        return Ok(());
    };
    Err(to_python(py, &Error::Input(refused)))
}

/// Builds the tree of `tokens[offsets[i]..offsets[i + 1]]`.
#[pyfunction]
fn build_tree(py: Python<'_>, tokens: Ints<'_>, offsets: Ints<'_>) -> PyResult<PyTree> {
    let tokens = slice(py, "tokens", &tokens)?;
    // Copied, so that what was checked stays true while other threads run.
    let offsets = slice(py, "offsets", &offsets)?.to_vec();
    let tree = detached(py, || Tree::build(&Rows::new(tokens, &offsets)?))?;
    refuse_empty(py, &tree)?;
    Ok(PyTree { tree })
}

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTree>()?;
    module.add_function(wrap_pyfunction!(build_tree, module)?)
}
