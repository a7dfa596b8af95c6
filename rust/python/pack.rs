//! Python classes and functions of the stage `pack`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use pyo3::prelude::*;

use super::convert::{Ints, slice};
use super::errors::detached;
use crate::error::{Error, Result};
use crate::pack::{self, PackOptions, Packing};
use crate::sequences::Sequences;

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
        pack::pack(&Sequences::new(tokens, &offsets)?, &options)
    })
}
