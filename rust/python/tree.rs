//! Trees of token rows.

use pyo3::prelude::*;

use super::convert::{Ints, slice};
use super::errors::{detached, refused};
use crate::rows::Rows;
use crate::segments::NONE;
use crate::tree::Tree;

/// A tree that Python sees has rows, and none of them is empty.
pub(crate) fn refuse_empty(py: Python<'_>, tree: &Tree) -> PyResult<()> {
    if tree.rows() == 0 {
        return Err(refused(py, "rows is empty: a tree needs at least one row"));
    }
    match tree.terminal.iter().position(|&s| s == NONE) {
        Some(row) => Err(refused(
            py,
            format!("row {row} is empty: a tree needs at least one token in each row"),
        )),
        None => Ok(()),
    }
}

/// Builds the tree of `tokens[offsets[i]..offsets[i + 1]]`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
pub(super) fn build_tree(py: Python<'_>, tokens: Ints<'_>, offsets: Ints<'_>) -> PyResult<Tree> {
    let tokens = slice(py, "tokens", &tokens)?;
    // Copied, so that what was checked stays true while other threads run.
    let offsets = slice(py, "offsets", &offsets)?.to_vec();
    let tree = detached(py, || Tree::build(&Rows::new(tokens, &offsets)?))?;
    refuse_empty(py, &tree)?;
    Ok(tree)
}
