//! Trees of token sequences.

use pyo3::prelude::*;

use super::convert::{Ints, slice};
use super::errors::{detached, refused};
use crate::segments::NONE;
use crate::sequences::Sequences;
use crate::tree::Tree;

/// A tree that Python sees has sequences, and none of them is empty.
pub(crate) fn refuse_empty(py: Python<'_>, tree: &Tree) -> PyResult<()> {
    if tree.sequences() == 0 {
        return Err(refused(
            py,
            "sequences is empty: a tree needs at least one sequence",
        ));
    }
    match tree.terminal.iter().position(|&s| s == NONE) {
        Some(sequence) => Err(refused(
            py,
            format!(
                "sequence {sequence} is empty: a tree needs at least one token in each sequence"
            ),
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
    let tree = detached(py, || Tree::build(&Sequences::new(tokens, &offsets)?))?;
    refuse_empty(py, &tree)?;
    Ok(tree)
}
