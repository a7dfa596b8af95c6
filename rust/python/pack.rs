//! Python classes and functions of the stage `pack`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use pyo3::prelude::*;

use super::convert::{Ints, slice};
use super::errors::{detached, refused};
use crate::pack::{self, PackOptions, Packing};
use crate::sequences::Sequences;

/// Options from Python, none of them negative. Limits of sequences are copied, so that what was
/// checked stays true while other threads run.
pub(super) fn options<'a>(
    py: Python<'_>,
    max_depth: Option<i64>,
    min_shared: i64,
    shareable: Option<&Ints<'_>>,
    copy: &'a mut Vec<i64>,
) -> PyResult<PackOptions<'a>> {
    for (name, value) in [
        ("max_depth", max_depth.unwrap_or(0)),
        ("min_shared", min_shared),
    ] {
        if value < 0 {
            return Err(refused(
                py,
                format!("{name} is {value}: it must be at least 0"),
            ));
        }
    }
    if let Some(limits) = shareable {
        copy.extend_from_slice(slice(py, "shareable", limits)?);
    }
    Ok(PackOptions {
        max_depth: max_depth.map(|depth| depth as usize),
        min_shared,
        shareable: shareable.map(|_| copy.as_slice()),
    })
}

/// Packs `tokens[offsets[i]..offsets[i + 1]]`.
#[pyfunction]
#[pyo3(signature = (tokens, offsets, max_depth=None, min_shared=1, shareable=None))]
pub(super) fn pack_sequences(
    py: Python<'_>,
    tokens: Ints<'_>,
    offsets: Ints<'_>,
    max_depth: Option<i64>,
    min_shared: i64,
    shareable: Option<Ints<'_>>,
) -> PyResult<Packing> {
    let tokens = slice(py, "tokens", &tokens)?;
    // Copied, so that what was checked stays true while other threads run.
    let offsets = slice(py, "offsets", &offsets)?.to_vec();
    let mut copy = Vec::new();
    let options = options(py, max_depth, min_shared, shareable.as_ref(), &mut copy)?;
    detached(py, || {
        pack::pack(&Sequences::new(tokens, &offsets)?, &options)
    })
}
