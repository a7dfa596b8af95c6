//! Python functions over sequences in arrays of their own.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::convert::{Ints, List, slice};
use super::errors::{detached, to_python};
use super::pack::limit;
use super::tree::refuse_empty;
use crate::error::Error;
use crate::pack::{self, PackOptions, Packing};
use crate::scattered::{self, HeadTokens};
use crate::tree::Tree;

type Column<'py> = Bound<'py, PyArray1<i64>>;
type Arrays<'py> = List<Ints<'py>>;

fn slices<'a>(py: Python<'_>, name: &str, sequences: &'a Arrays<'_>) -> PyResult<Vec<&'a [i64]>> {
    (sequences.0.iter())
        .map(|sequence| slice(py, name, sequence))
        .collect()
}

/// Builds the tree of sequences in arrays of their own.
#[pyfunction]
pub(super) fn tree_of(py: Python<'_>, sequences: Arrays<'_>) -> PyResult<Tree> {
    let sequences = slices(py, "sequences", &sequences)?;
    let tree = detached(py, || Tree::build_scattered(&sequences, None))?;
    refuse_empty(py, &tree)?;
    Ok(tree)
}

/// Packs sequences in arrays of their own.
#[pyfunction]
#[pyo3(signature = (sequences, max_depth=None, min_shared=1, shareable=None))]
pub(super) fn pack_of(
    py: Python<'_>,
    sequences: Arrays<'_>,
    max_depth: Option<i64>,
    min_shared: i64,
    shareable: Option<Ints<'_>>,
) -> PyResult<Packing> {
    let sequences = slices(py, "sequences", &sequences)?;
    // Copied, so that what was checked stays true while other threads run.
    let shareable = match &shareable {
        None => None,
        Some(limits) => Some(slice(py, "shareable", limits)?.to_vec()),
    };
    detached(py, || {
        let options = PackOptions {
            max_depth: max_depth.map(|d| limit("max_depth", d)).transpose()?,
            min_shared: limit("min_shared", min_shared)? as i64,
            shareable: shareable.as_deref(),
        };
        pack::pack_scattered(&sequences, &options)
    })
}

/// Keyed hashes, 16 bytes a sequence.
#[pyfunction]
pub(super) fn hash_sequences<'py>(
    py: Python<'py>,
    sequences: Arrays<'py>,
    key: [u64; 2],
) -> PyResult<Bound<'py, PyBytes>> {
    let sequences = slices(py, "sequences", &sequences)?;
    let hashes = py.detach(|| {
        let mut hashes = Vec::with_capacity(16 * sequences.len());
        for sequence in sequences {
            hashes.extend_from_slice(&scattered::hash_sequence(sequence, key).to_le_bytes());
        }
        hashes
    });
    Ok(PyBytes::new(py, &hashes))
}

/// Tokens of a pack.
#[pyfunction]
pub(super) fn gather_tokens<'py>(
    py: Python<'py>,
    packing: &Packing,
    sequences: Arrays<'py>,
) -> PyResult<Column<'py>> {
    let sequences = slices(py, "sequences", &sequences)?;
    let tokens = detached(py, || scattered::gather(packing, &sequences))?;
    Ok(tokens.into_pyarray(py))
}

/// Pack ids from 1, parent ids and positions of each packed token.
#[pyfunction]
pub(super) fn packed_ids<'py>(
    py: Python<'py>,
    packing: &Packing,
) -> PyResult<(Column<'py>, Column<'py>, Column<'py>)> {
    let [packs, parents, positions] = detached(py, || scattered::ids(packing))?;
    Ok((
        packs.into_pyarray(py),
        parents.into_pyarray(py),
        positions.into_pyarray(py),
    ))
}

/// Packed positions of all sequences, flat, and offsets.
#[pyfunction]
pub(super) fn packed_positions<'py>(
    py: Python<'py>,
    packing: &Packing,
) -> PyResult<(Column<'py>, Column<'py>)> {
    let (flat, offsets) = detached(py, || scattered::positions(packing))?;
    Ok((flat.into_pyarray(py), offsets.into_pyarray(py)))
}

/// Tokens that have a label.
#[pyfunction]
pub(super) fn labelled_tokens(py: Python<'_>, labels: Ints<'_>, tokens: usize) -> PyResult<usize> {
    let labels = slice(py, "labels", &labels)?;
    if tokens == 0 || labels.len() % tokens != 0 {
        let message = format!("there are {} labels for {tokens} tokens", labels.len());
        return Err(to_python(py, &Error::Input(message)));
    }
    Ok(py.detach(|| scattered::labelled(labels, tokens)))
}

/// Runs `count` over the requests.
fn over_requests(
    py: Python<'_>,
    positions: &[Ints<'_>],
    labels: &[Option<Ints<'_>>],
    every: &[bool],
    count: impl Send + FnOnce(&[HeadTokens<'_>]) -> crate::Result<usize>,
) -> PyResult<usize> {
    if labels.len() != positions.len() || every.len() != positions.len() {
        let message = "positions, labels and every must have one entry per request".to_owned();
        return Err(to_python(py, &Error::Input(message)));
    }
    let mut requests = Vec::with_capacity(positions.len());
    for ((positions, labels), &every) in positions.iter().zip(labels).zip(every) {
        requests.push(HeadTokens {
            positions: slice(py, "positions", positions)?,
            labels: (labels.as_ref())
                .map(|labels| slice(py, "labels", labels))
                .transpose()?,
            every,
        });
    }
    detached(py, || count(&requests))
}

/// Distinct positions that the head projects, counted up to `most`.
#[pyfunction]
pub(super) fn projected_tokens(
    py: Python<'_>,
    positions: Arrays<'_>,
    labels: List<Option<Ints<'_>>>,
    every: List<bool>,
    most: usize,
) -> PyResult<usize> {
    over_requests(py, &positions.0, &labels.0, &every.0, |requests| {
        scattered::projected_tokens(requests, most)
    })
}

/// Tokens of the first head chunk with a position of a request that has labels.
#[pyfunction]
pub(super) fn target_chunk_tokens(
    py: Python<'_>,
    positions: Arrays<'_>,
    labels: List<Option<Ints<'_>>>,
    every: List<bool>,
    chunk: usize,
) -> PyResult<usize> {
    if chunk == 0 {
        return Err(to_python(
            py,
            &Error::input("chunk is 0: it must be at least 1"),
        ));
    }
    over_requests(py, &positions.0, &labels.0, &every.0, |requests| {
        scattered::target_chunk(requests, chunk)
    })
}
