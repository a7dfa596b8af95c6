//! Views of numpy arrays. The Python side has already made them contiguous int64.

use std::fmt::Debug;
use std::ops::Deref;

use numpy::{
    Element, IntoPyArray, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1,
    PyUntypedArray, PyUntypedArrayMethods, dtype,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::errors::refused;
use super::fields::Take;
use crate::segments::NONE;

/// A one-dimensional int64 array that Python holds.
pub(crate) type Ints<'py> = Array<'py, i64>;
/// A one-dimensional array of flags that Python holds.
pub(crate) type Flags<'py> = Array<'py, bool>;

/// A one-dimensional array of exactly this type; anything else is refused in one line.
pub(crate) struct Array<'py, T: Element>(PyReadonlyArray1<'py, T>);

impl<'py, T: Element> Deref for Array<'py, T> {
    type Target = PyReadonlyArray1<'py, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'py, T: Element> FromPyObject<'_, 'py> for Array<'py, T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let wanted = dtype::<T>(py);
        let given = match object.cast::<PyUntypedArray>() {
            Err(_) => object.get_type().name()?.to_string(),
            Ok(array) if array.ndim() != 1 => format!("one of {} dimensions", array.ndim()),
            Ok(array) if !array.dtype().is_equiv_to(&wanted) => format!("of {}", array.dtype()),
            Ok(array) => {
                return (array.cast::<PyArray1<T>>().map_err(PyErr::from))
                    .and_then(|array| array.try_readonly().map_err(PyErr::from))
                    .map(Self);
            }
        };
        Err(PyTypeError::new_err(format!(
            "give a one-dimensional array of {wanted}, not {given}"
        )))
    }
}

/// A list or tuple. Other sequences may claim any length, and memory is taken for it.
pub(crate) struct List<T>(pub(super) Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for List<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let one = |item: Bound<'py, PyAny>| item.extract::<T>().map_err(Into::into);
        let made: PyResult<Vec<T>> = if let Ok(list) = object.cast::<PyList>() {
            list.iter().map(one).collect()
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            tuple.iter().map(one).collect()
        } else {
            let given = object.get_type().name()?;
            let message = format!("give a list or a tuple, not {given}");
            return Err(PyTypeError::new_err(message));
        };
        made.map(Self)
    }
}

/// The entry of a table that a caller names, the first by default.
pub(super) fn one_of<T: Copy>(
    name: &str,
    given: Option<&Bound<'_, PyString>>,
    table: &[(&str, T)],
) -> PyResult<T> {
    let found = given.map_or(table.first(), |given| {
        table.iter().find(|one| *given == one.0)
    });
    found.map(|one| one.1).ok_or_else(|| {
        let known: Vec<_> = table.iter().map(|one| one.0).collect();
        let given = short(given.map(ToString::to_string).unwrap_or_default());
        refused(format!(
            "{name} is {given}: it must be one of {}",
            known.join(", ")
        ))
    })
}

/// A value as a message shows it, however long it is.
pub(super) fn short(value: impl Debug) -> String {
    cut(&format!("{value:?}"))
}

/// A text as a message shows it, however long it is.
pub(super) fn cut(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// The slice under a one-dimensional array, without a copy.
pub(crate) fn slice<'a, T: Element>(name: &str, array: &'a Array<'_, T>) -> PyResult<&'a [T]> {
    (array.as_slice()).map_err(|_| scattered(name, array.len()))
}

/// The refusal of an array that is no slice.
pub(super) fn scattered(name: &str, length: usize) -> PyErr {
    refused(format!(
        "{name} (length {length}) is not contiguous and aligned: pass numpy.ascontiguousarray of it"
    ))
}

/// A column of integers from whatever Python calls one: an int64 array as it is, anything else as
/// `waveplan.checks.integers` reads or refuses it.
pub(crate) fn ints<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Ints<'py>> {
    if let Ok(array) = given.extract::<Ints<'py>>() {
        if array.as_slice().is_ok() {
            return Ok(array);
        }
    }
    let checks = given.py().import("waveplan.checks")?;
    checks.call_method1("integers", (name, given))?.extract()
}

/// Lists of numbers as `waveplan.sequences.sequences.Ragged`.
pub(crate) fn ragged<'py>(
    py: Python<'py>,
    values: &[u32],
    offsets: &[u32],
) -> PyResult<Bound<'py, PyAny>> {
    let home = py.import("waveplan.sequences.sequences")?;
    home.call_method1("Ragged", (indices(py, values), indices(py, offsets)))
}

/// Indices as a new int64 array, -1 for `NONE`.
pub(crate) fn indices<'py>(py: Python<'py>, values: &[u32]) -> Bound<'py, PyArray1<i64>> {
    let wide: Vec<i64> = values
        .iter()
        .map(|&v| if v == NONE { -1 } else { i64::from(v) })
        .collect();
    wide.into_pyarray(py)
}

/// Numbers from Python of sequences, requests or ranks, each below `count`.
pub(crate) fn picked(name: &str, given: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<u32>> {
    let values = ints(name, given)?;
    let outside = |(i, value): (usize, &i64)| match usize::try_from(*value) {
        Ok(index) if index < count => Ok(index as u32),
        _ => Err(below(&format!("{name}[{i}]"), *value, count)),
    };
    let values = slice(name, &values)?;
    values.iter().enumerate().map(outside).collect()
}

/// One such number.
pub(crate) fn index(name: &str, given: &Bound<'_, PyAny>, count: usize) -> PyResult<usize> {
    let value = i64::take(name, given)?;
    let index = usize::try_from(value).ok().filter(|&index| index < count);
    index.ok_or_else(|| below(name, value, count))
}

fn below(name: &str, value: i64, count: usize) -> PyErr {
    let message = format!("{name} is {value}: it must be at least 0 and below {count}");
    refused(message)
}
