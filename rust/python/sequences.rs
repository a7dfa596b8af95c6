//! Python functions over sequences: flat with offsets, or in arrays of their own.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::convert::{Ints, List, slice};
use super::errors::{detached, refused};
use super::fields::Take;
use crate::error::Result;
use crate::pack::{self, PackOptions, Packing};
use crate::scattered::{self, HeadTokens};
use crate::segments::NONE;
use crate::sequences::Sequences;
use crate::tree::Tree;

type Column<'py> = Bound<'py, PyArray1<i64>>;
pub(crate) type Arrays<'py> = List<Ints<'py>>;

pub(crate) fn slices<'a>(sequences: &'a Arrays<'_>) -> PyResult<Vec<&'a [i64]>> {
    let one = |sequence| slice("sequences", sequence);
    sequences.0.iter().map(one).collect()
}

pub(crate) fn optional<'a>(
    name: &str,
    given: &'a List<Option<Ints<'_>>>,
) -> PyResult<Vec<Option<&'a [i64]>>> {
    let one = |entry: &'a Option<Ints<'_>>| entry.as_ref().map(|entry| slice(name, entry));
    given.0.iter().map(|entry| one(entry).transpose()).collect()
}

/// Works on the sequences `tokens[offsets[i]..offsets[i + 1]]`, or without offsets on the arrays
/// that `tokens` lists.
fn with_sequences<T: Send>(
    tokens: &Bound<'_, PyAny>,
    offsets: Option<Ints<'_>>,
    work: impl Send + FnOnce(&[&[i64]]) -> Result<T>,
) -> PyResult<T> {
    let py = tokens.py();
    let Some(offsets) = offsets else {
        let arrays: Arrays<'_> = tokens.extract()?;
        let sequences = slices(&arrays)?;
        return detached(py, || work(&sequences));
    };
    let tokens: Ints<'_> = tokens.extract()?;
    // Copied, so that what was checked stays true while other threads run.
    let offsets = slice("offsets", &offsets)?.to_vec();
    let sequences = Sequences::new(slice("tokens", &tokens)?, &offsets)?;
    let all: Vec<_> = (0..sequences.len())
        .map(|i| sequences.sequence(i))
        .collect();
    detached(py, || work(&all))
}

/// A tree that Python sees has sequences, and none of them is empty.
pub(crate) fn refuse_empty(tree: Tree) -> PyResult<Tree> {
    let needs = "a tree needs at least one";
    if tree.sequences() == 0 {
        return Err(refused(format!("sequences is empty: {needs} sequence")));
    }
    match tree.terminal.iter().position(|&s| s == NONE) {
        Some(i) => Err(refused(format!(
            "sequence {i} is empty: {needs} token in each sequence"
        ))),
        None => Ok(tree),
    }
}

/// Builds the tree of sequences.
#[pyfunction]
#[pyo3(signature = (tokens, offsets=None))]
pub(super) fn build_tree(tokens: &Bound<'_, PyAny>, offsets: Option<Ints<'_>>) -> PyResult<Tree> {
    let build = |sequences: &[&[i64]]| Tree::build_scattered(sequences, None);
    refuse_empty(with_sequences(tokens, offsets, build)?)
}

/// Packs sequences.
#[pyfunction]
#[pyo3(signature = (tokens, offsets=None, max_depth=None, min_shared=None, shareable=None))]
pub(super) fn pack_sequences(
    tokens: &Bound<'_, PyAny>,
    offsets: Option<Ints<'_>>,
    max_depth: Option<&Bound<'_, PyAny>>,
    min_shared: Option<&Bound<'_, PyAny>>,
    shareable: Option<Ints<'_>>,
) -> PyResult<Packing> {
    let whole = |name, given: Option<&Bound<'_, PyAny>>| {
        given.map(|given| usize::take(name, given)).transpose()
    };
    // Copied, so that what was checked stays true while other threads run.
    let limits = shareable.map(|limits| slice("shareable", &limits).map(<[i64]>::to_vec));
    let limits = limits.transpose()?;
    let options = PackOptions {
        max_depth: whole("max_depth", max_depth)?,
        min_shared: whole("min_shared", min_shared)?.map_or(1, |least| least as i64),
        shareable: limits.as_deref(),
    };
    let pack = |sequences: &[&[i64]]| pack::pack_scattered(sequences, &options);
    with_sequences(tokens, offsets, pack)
}

/// Keyed hashes, 16 bytes a sequence.
#[pyfunction]
pub(super) fn hash_sequences<'py>(
    py: Python<'py>,
    sequences: Arrays<'py>,
    key: [u64; 2],
) -> PyResult<Bound<'py, PyBytes>> {
    let sequences = slices(&sequences)?;
    let hash = |sequence: &&[i64]| crate::hash::hash(sequence, key).to_le_bytes();
    let hashes: Vec<u8> = py.detach(|| sequences.iter().flat_map(hash).collect());
    Ok(PyBytes::new(py, &hashes))
}

/// Tokens of a pack.
#[pyfunction]
pub(super) fn gather_tokens<'py>(
    py: Python<'py>,
    packing: &Packing,
    sequences: Arrays<'py>,
) -> PyResult<Column<'py>> {
    let sequences = slices(&sequences)?;
    let tokens = detached(py, || scattered::gather(packing, &sequences))?;
    Ok(tokens.into_pyarray(py))
}

/// Packed positions of all sequences, flat, and offsets.
#[pyfunction]
pub(super) fn packed_positions<'py>(
    py: Python<'py>,
    packing: &Packing,
) -> PyResult<[Column<'py>; 2]> {
    let (flat, offsets) = detached(py, || scattered::positions(packing))?;
    Ok([flat.into_pyarray(py), offsets.into_pyarray(py)])
}

/// Tokens that have a label.
#[pyfunction]
pub(super) fn labelled_tokens(py: Python<'_>, labels: Ints<'_>, tokens: usize) -> PyResult<usize> {
    let labels = slice("labels", &labels)?;
    if tokens == 0 || labels.len() % tokens != 0 {
        let message = format!("there are {} labels for {tokens} tokens", labels.len());
        return Err(refused(message));
    }
    Ok(py.detach(|| scattered::labelled(labels, tokens)))
}

/// What the head projects of requests, of which one entry each is given.
fn heads<'a>(
    labels: &'a List<Option<Ints<'_>>>,
    every: &List<bool>,
) -> PyResult<Vec<HeadTokens<'a>>> {
    if labels.0.len() != every.0.len() {
        let (labels, every) = (labels.0.len(), every.0.len());
        return Err(refused(format!(
            "labels has {labels} entries, every has {every}: give one each for each request"
        )));
    }
    let labels = optional("labels", labels)?;
    let both = labels.into_iter().zip(&every.0);
    Ok(both
        .map(|(labels, &every)| HeadTokens { labels, every })
        .collect())
}

/// Distinct packed positions that the head projects.
#[pyfunction]
pub(super) fn projected_tokens(
    py: Python<'_>,
    packing: &Packing,
    labels: List<Option<Ints<'_>>>,
    every: List<bool>,
) -> PyResult<usize> {
    let requests = heads(&labels, &every)?;
    detached(py, || scattered::projected_tokens(packing, &requests))
}

/// Tokens of the first head chunk with a position of a request that has labels.
#[pyfunction]
pub(super) fn target_chunk_tokens(
    py: Python<'_>,
    packing: &Packing,
    labels: List<Option<Ints<'_>>>,
    every: List<bool>,
    chunk: usize,
) -> PyResult<usize> {
    if chunk == 0 {
        return Err(refused("chunk is 0: it must be at least 1"));
    }
    let requests = heads(&labels, &every)?;
    detached(py, || scattered::target_chunk(packing, &requests, chunk))
}
