//! Python classes and functions of the stage `measures`.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::convert::slice;
use super::errors::{detached, to_python};
use crate::error::{Error, Result};
use crate::measures::{self, Columns, Groups, Labels, Pool};

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let table = |names: &[&'static str], meanings: &[&'static str]| {
        names
            .iter()
            .copied()
            .zip(meanings.iter().copied())
            .collect::<Vec<_>>()
    };
    module.add(
        "PLAN_MEASURES",
        table(&measures::plan::NAMES, &measures::plan::MEANINGS),
    )?;
    module.add(
        "GROUP_MEASURES",
        table(&measures::group::NAMES, &measures::group::MEANINGS),
    )?;
    module.add_class::<PyPool>()
}

/// The requests of a pool, checked; shared with the engine.
#[pyclass(name = "Pool", module = "waveplan._core", frozen)]
#[derive(Clone)]
pub(crate) struct PyPool {
    pub(crate) pool: Arc<Pool>,
}

type Ints<'py> = PyReadonlyArray1<'py, i64>;
type Flags<'py> = PyReadonlyArray1<'py, bool>;
/// Slot, gradient, routed and the requests of one group.
type GroupColumns<'py> = (u32, bool, bool, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl PyPool {
    #[new]
    #[pyo3(signature = (lengths, targets, first_target, label_mask, target_width, top_k, logits,
        hidden, gradient, slot, routed, mix, item_sizes))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // columns, by keyword
    fn new(
        py: Python<'_>,
        lengths: Ints<'_>,
        targets: Flags<'_>,
        first_target: Option<Ints<'_>>,
        label_mask: Option<Flags<'_>>,
        target_width: Ints<'_>,
        top_k: Ints<'_>,
        logits: Flags<'_>,
        hidden: Flags<'_>,
        gradient: Flags<'_>,
        slot: Ints<'_>,
        routed: Ints<'_>,
        mix: Ints<'_>,
        item_sizes: Ints<'_>,
    ) -> PyResult<Self> {
        let labels = match (&first_target, &label_mask) {
            (Some(from), None) => Labels::From(slice(py, "first_target", from)?),
            (None, Some(mask)) => Labels::Mask(flags(py, "label_mask", mask)?),
            _ => {
                return Err(to_python(
                    py,
                    &Error::input("give either first_target or label_mask, and None for the other"),
                ));
            }
        };
        let small = |name, array| indices(py, name, slice(py, name, array)?);
        let (slot, mix) = (small("slot", &slot)?, small("mix", &mix)?);
        let columns = Columns {
            lengths: slice(py, "lengths", &lengths)?,
            targets: flags(py, "targets", &targets)?,
            labels,
            target_width: slice(py, "target_width", &target_width)?,
            top_k: slice(py, "top_k", &top_k)?,
            logits: flags(py, "logits", &logits)?,
            hidden: flags(py, "hidden", &hidden)?,
            gradient: flags(py, "gradient", &gradient)?,
            slot: &slot,
            routed: slice(py, "routed", &routed)?,
            mix: &mix,
            item_sizes: slice(py, "item_sizes", &item_sizes)?,
        };
        let pool = detached(py, || Pool::new(&columns))?;
        Ok(Self {
            pool: Arc::new(pool),
        })
    }

    fn __len__(&self) -> usize {
        self.pool.requests()
    }

    /// Labelled tokens of each request.
    fn labelled<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_slice(py, &self.pool.labelled)
    }

    /// The groups of some requests: slot, gradient, routed and indices of each.
    #[allow(clippy::needless_pass_by_value)]
    fn groups<'py>(&self, py: Python<'py>, requests: Ints<'_>) -> PyResult<Vec<GroupColumns<'py>>> {
        let picked = self.requests(py, &requests)?;
        let mut groups = Groups::default();
        groups.form(&self.pool, &picked);
        Ok((0..groups.len())
            .map(|g| {
                let key = groups.key(g);
                let members: Vec<i64> = groups.requests(g).iter().map(|&r| i64::from(r)).collect();
                (key.slot, key.gradient, key.routed, members.into_pyarray(py))
            })
            .collect())
    }
}

impl PyPool {
    /// Indices of requests, checked against the pool.
    fn requests(&self, py: Python<'_>, requests: &Ints<'_>) -> PyResult<Vec<u32>> {
        let count = self.pool.requests();
        let checked = slice(py, "requests", requests)?
            .iter()
            .enumerate()
            .map(|(i, &r)| match u32::try_from(r) {
                Ok(index) if (index as usize) < count => Ok(index),
                _ => Err(Error::input(format!(
                    "requests[{i}] is {r}: the pool holds 0..{count}"
                ))),
            })
            .collect::<Result<Vec<u32>>>();
        checked.map_err(|error| to_python(py, &error))
    }
}

fn flags<'a>(py: Python<'_>, name: &str, array: &'a Flags<'_>) -> PyResult<&'a [bool]> {
    array.as_slice().map_err(|_| {
        let message = format!(
            "{name} (length {}) is not contiguous: pass numpy.ascontiguousarray of it",
            array.len()
        );
        to_python(py, &Error::input(message))
    })
}

fn indices(py: Python<'_>, name: &str, values: &[i64]) -> PyResult<Vec<u32>> {
    let made = values
        .iter()
        .enumerate()
        .map(|(i, &value)| {
            u32::try_from(value).map_err(|_| {
                Error::input(format!("{name}[{i}] is {value}: it must be a small index"))
            })
        })
        .collect::<Result<Vec<u32>>>();
    made.map_err(|error| to_python(py, &error))
}
