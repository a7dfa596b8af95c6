//! Items dealt into parts.

use pyo3::prelude::*;

use super::convert::{ints, slice};
use super::errors::{FEW_SEQUENCES, detached_unless};
use super::fields::Take;
use crate::balance::{self as core, Balance, Items, Rules};
use crate::fields::{Setting, at_least};

/// Deals items into parts.
#[pyfunction]
#[pyo3(signature = (lengths, work=None, cap=None, parts=None, multiple_of=None, equal_size=None))]
pub(super) fn balance(
    lengths: &Bound<'_, PyAny>,
    work: Option<&Bound<'_, PyAny>>,
    cap: Option<&Bound<'_, PyAny>>,
    parts: Option<&Bound<'_, PyAny>>,
    multiple_of: Option<&Bound<'_, PyAny>>,
    equal_size: Option<&Bound<'_, PyAny>>,
) -> PyResult<Balance> {
    let rules = Rules {
        cap: cap.map(|cap| i64::take("cap", cap)).transpose()?,
        parts: parts.map(|parts| usize::take("parts", parts)).transpose()?,
        multiple_of: multiple_of.map_or(Ok(1), |multiple| usize::take("multiple_of", multiple))?,
        equal_size: equal_size.map_or(Ok(false), |equal| bool::take("equal_size", equal))?,
    };
    rules.cap.check("cap", at_least(1))?;
    rules.multiple_of.check("multiple_of", at_least(1))?;
    let given = ints("lengths", lengths)?;
    // Copied, so that what is checked stays true while other threads run.
    let lengths = slice("lengths", &given)?.to_vec();
    let work = match work {
        None => lengths.clone(),
        Some(work) => slice("work", &ints("work", work)?)?.to_vec(),
    };
    let items = Items {
        lengths: &lengths,
        work: &work,
    };
    let short = lengths.len() <= FEW_SEQUENCES;
    detached_unless(given.py(), short, || core::balance(items, rules))
}
