//! Python classes and functions of the stage `width`.

use pyo3::prelude::*;

use super::convert::{Ints, slice};
use super::errors::{detached, to_python};
use crate::error::{Error, Result};
use crate::split;
use crate::width::{self, Geometry, Judge, Outcome, QUOTES, Quote, Quoted, Quotes, Stop};

/// Quotes of every width, looked up; what was asked is kept.
struct Table<'a> {
    bits: &'a [i64],
    asked: Vec<(usize, usize)>,
}

impl Table<'_> {
    fn look(&self, width: usize, kind: Quote) -> Result<Quoted> {
        let bits = self.bits.get(width * QUOTES + kind as usize);
        let bits = bits.ok_or_else(|| Error::input(format!("bits has no width {width}")))?;
        Ok(Quoted::from_bits(*bits as u8))
    }
}

impl Quotes for Table<'_> {
    fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted> {
        self.asked.push((width, kind as usize));
        self.look(width, kind)
    }

    fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool> {
        Ok(self.look(width, kind)?.verdict.trusted)
    }
}

/// The reason to stop as Python sees it, with the width it speaks of (0: none).
pub(super) fn stop_name(stop: Stop) -> (&'static str, usize) {
    match stop {
        Stop::Memory(width) => ("memory", width),
        Stop::Trust(width) => ("trust", width),
        Stop::End => ("end", 0),
    }
}

type Searched = (usize, &'static str, usize, usize, Vec<(usize, usize)>);

/// The width search over a table of quotes: the chosen width (0: the ladder), the reason to stop
/// and its width, how many widths were rejected, and every (width, kind) asked.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
#[pyo3(signature = (items, start, dp, hint, composite, bits))]
fn width_search(
    py: Python<'_>,
    items: usize,
    start: usize,
    dp: usize,
    hint: Option<usize>,
    composite: bool,
    bits: Ints<'_>,
) -> PyResult<Searched> {
    let bits = slice(py, "bits", &bits)?;
    detached(py, || {
        let geometry = Geometry::new(items, start, dp)?;
        let mut table = Table {
            bits,
            asked: Vec::new(),
        };
        let mut judge = Judge::new(composite);
        Ok(
            match width::search(geometry, hint, &mut judge, &mut table)? {
                Outcome::Ladder => (0, "ladder", 0, judge.rejected(), table.asked),
                Outcome::Cold(width, stop) => {
                    let (name, at) = stop_name(stop);
                    (width, name, at, judge.rejected(), table.asked)
                }
                Outcome::Wave(width, stop) => {
                    judge.choose(width, &mut table)?;
                    let (name, at) = stop_name(stop);
                    (width, name, at, judge.rejected(), table.asked)
                }
            },
        )
    })
}

/// Remaining items, minimum width and granularity of the widths from `start` on.
#[pyfunction]
fn width_geometry(
    py: Python<'_>,
    items: usize,
    start: usize,
    dp: usize,
) -> PyResult<(usize, usize, usize)> {
    let g = Geometry::new(items, start, dp).map_err(|error| to_python(py, &error))?;
    Ok((g.remaining, g.min_width, g.granule))
}

/// `width` clamped to what is left and floored to the granularity.
#[pyfunction]
fn width_normalize(
    py: Python<'_>,
    items: usize,
    start: usize,
    dp: usize,
    width: usize,
) -> PyResult<usize> {
    let g = Geometry::new(items, start, dp).map_err(|error| to_python(py, &error))?;
    Ok(g.normalize(width))
}

/// Ends of the runs into which the ladder cuts requests of these token counts.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
fn split_cut(py: Python<'_>, tokens: Ints<'_>, count: usize) -> PyResult<Vec<usize>> {
    let tokens = slice(py, "tokens", &tokens)?;
    detached(py, || split::cut(tokens, count))
}

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(width_search, module)?)?;
    module.add_function(wrap_pyfunction!(width_geometry, module)?)?;
    module.add_function(wrap_pyfunction!(width_normalize, module)?)?;
    module.add_function(wrap_pyfunction!(split_cut, module)?)
}
