//! Fields of settings and results as Python values, in both directions.

use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};

use super::convert::{Flags, Ints, index, indices, picked, scattered, short, slice};
use super::errors::{detached_unless, refused};
use crate::error::Result;
use crate::fields::Table;

/// A field as Python sees it: columns are new arrays.
pub(crate) trait Give {
    fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

macro_rules! give {
    ($($type:ty => |$py:ident, $value:ident| $made:expr;)*) => {
        $(impl Give for $type {
            fn give<'py>(&self, $py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let $value = self;
                $made.into_bound_py_any($py)
            }
        })*
    };
}

give! {
    i64 => |py, value| *value;
    i128 => |py, value| *value;
    u32 => |py, value| *value;
    usize => |py, value| *value;
    f64 => |py, value| *value;
    bool => |py, value| *value;
    &'static str => |py, value| *value;
    String => |py, value| value;
    Vec<i64> => |py, value| PyArray1::from_slice(py, value);
    Vec<usize> => |py, value| PyArray1::from_vec(py, value.iter().map(|&v| v as i64).collect());
    Vec<Vec<u32>> => |py, value| PyTuple::new(py, value.iter().map(|v| indices(py, v)))?;
    Vec<f64> => |py, value| PyArray1::from_slice(py, value);
    Vec<u32> => |py, value| indices(py, value);
    Vec<bool> => |py, value| value.clone().into_pyarray(py);
    Vec<i128> => |py, value| PyTuple::new(py, value)?;
    (i64, i64) => |py, value| *value;
    Vec<(bool, i64)> => |py, value| PyTuple::new(py, value)?;
    Box<[bool]> => |py, value| PyTuple::new(py, value)?;
    Vec<(i64, i64)> => |py, value| PyTuple::new(py, value)?;
    Vec<String> => |py, value| PyTuple::new(py, value)?;
}

impl<T: numpy::Element> Give for Table<T> {
    fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyArray1::from_slice(py, &self.0)
            .reshape(self.1)?
            .into_any())
    }
}

impl<const N: usize> Give for [i64; N] {
    fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, self)?.into_any())
    }
}

impl<T: Give> Give for Option<T> {
    fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Some(value) => value.give(py),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

/// Classes give a copy of themselves, lists of them a tuple.
macro_rules! give_class {
    ($($class:ty),* $(,)?) => {
        $(
            impl $crate::python::fields::Give for $class {
                fn give<'py>(&self, py: pyo3::Python<'py>) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::PyAny>> {
                    Ok(pyo3::Bound::new(py, self.clone())?.into_any())
                }
            }

            impl $crate::python::fields::Give for Vec<$class> {
                fn give<'py>(&self, py: pyo3::Python<'py>) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::PyAny>> {
                    Ok(pyo3::types::PyTuple::new(py, self.iter().cloned())?.into_any())
                }
            }
        )*
    };
}
pub(crate) use give_class;

/// A setting from what a caller gives.
pub(crate) trait Take: Sized {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self>;

    /// A list of them.
    fn list(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        each(name, value)
    }
}

pub(super) fn wrong(value: &Bound<'_, PyAny>, name: &str, right: &str) -> PyErr {
    let message = format!("{name} must be {right}, not {}", shown(value));
    refused(message)
}

/// The refusal of a name among those known.
pub(super) fn unknown<'a>(
    place: &str,
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> PyErr {
    let (name, known) = (short(name), known.collect::<Vec<_>>().join(", "));
    refused(format!("{place} has no {kind} {name}: known are {known}"))
}

/// A value as a message shows it, on one line.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let kind = || value.get_type().name().map(|name| format!("a {name}"));
    let text = match value.repr() {
        Ok(text) => text.to_string(),
        Err(_) => kind().unwrap_or_default(),
    };
    super::convert::cut(&text.replace('\n', " "))
}

impl Take for i64 {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyBool>() {
            return Err(wrong(value, name, "an integer"));
        }
        value.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(value.py()) {
                let wrong = format!("{name} is {}: it must fit in 64 bits", shown(value));
                return refused(wrong);
            }
            wrong(value, name, "an integer")
        })
    }

    fn list(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        match value.extract::<Ints<'_>>() {
            Ok(column) => Ok(slice(name, &column)?.to_vec()),
            Err(_) => each(name, value),
        }
    }
}

impl Take for u32 {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        index(name, value, Self::MAX as usize).map(|index| index as Self)
    }

    fn list(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        picked(name, value, Self::MAX as usize)
    }
}

impl Take for usize {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let whole = i64::take(name, value)?;
        usize::try_from(whole).map_err(|_| {
            let wrong = format!("{name} is {whole}: it must be at least 0");
            refused(wrong)
        })
    }
}

impl Take for f64 {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyBool>() {
            return Err(wrong(value, name, "a number"));
        }
        value.extract().or_else(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(value.py()) {
                return Ok(f64::INFINITY); // refused as such
            }
            Err(wrong(value, name, "a number"))
        })
    }
}

impl Take for String {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        (value.extract()).map_err(|_| wrong(value, name, "text"))
    }
}

impl Take for bool {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        (value.extract()).map_err(|_| wrong(value, name, "True or False"))
    }

    fn list(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        match value.extract::<Flags<'_>>() {
            Ok(column) => Ok(slice(name, &column)?.to_vec()),
            Err(_) => each(name, value),
        }
    }
}

/// A list of values, one by one.
fn each<T: Take>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    let one = |(i, entry)| T::take(&format!("{name}[{i}]"), entry);
    entries(name, value)?.iter().enumerate().map(one).collect()
}

/// The entries of a list, tuple or contiguous array; others may claim any length.
pub(crate) fn entries<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = value.cast::<PyList>() {
        Ok(list.iter().collect())
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        Ok(tuple.iter().collect())
    } else if let Ok(array) = value.cast::<PyUntypedArray>() {
        if !array.is_contiguous() {
            return Err(scattered(name, array.len()));
        }
        entries(name, &value.call_method0("tolist")?)
    } else {
        Err(wrong(value, name, "a list or a tuple"))
    }
}

impl<const N: usize> Take for [i64; N] {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let given = entries(name, value)?;
        if given.len() != N {
            let wrong = format!("{name} has {} entries: give {N}", given.len());
            return Err(refused(wrong));
        }
        let mut made = [0; N];
        for (i, entry) in given.iter().enumerate() {
            made[i] = i64::take(&format!("{name}[{i}]"), entry)?;
        }
        Ok(made)
    }
}

impl Take for (i64, i64) {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        <[i64; 2]>::take(name, value).map(Into::into)
    }
}

impl Take for (bool, i64) {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        match entries(name, value)?.as_slice() {
            [mode, rank] => Ok((
                bool::take(&format!("{name}[0]"), mode)?,
                i64::take(&format!("{name}[1]"), rank)?,
            )),
            given => Err(refused(format!(
                "{name} has {} entries: give 2",
                given.len()
            ))),
        }
    }
}

impl Take for Box<[bool]> {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        Vec::take(name, value).map(Into::into)
    }
}

impl<T: Take> Take for Option<T> {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        (!value.is_none()).then(|| T::take(name, value)).transpose()
    }
}

impl<T: Take> Take for Vec<T> {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        T::list(name, value)
    }
}

impl<T: Settings> Take for T {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        match value.cast::<T>() {
            Ok(held) => Ok(held.get().clone()),
            Err(_) => Err(wrong(value, name, &format!("of class {}", T::NAME))),
        }
    }
}

/// A struct declared by `settings!`.
pub(crate) trait Settings:
    Clone + Default + Sync + pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True>
{
    /// Names in order, and which must be given.
    const FIELDS: &'static [(&'static str, bool)];

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()>;
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>>;
    fn verify(&self) -> Result<()>;

    /// From arguments.
    fn made(values: &Bound<'_, PyTuple>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let py = values.py();
        let all = given.map_or_else(|| Ok(PyDict::new(py)), PyDictMethods::copy)?;
        for (i, value) in values.iter().enumerate() {
            match Self::FIELDS.get(i) {
                Some((name, _)) if !all.contains(name)? => all.set_item(name, value)?,
                Some((name, _)) => {
                    return Err(refused(format!("{} has {name} twice", Self::NAME)));
                }
                None => {
                    let most = Self::FIELDS.len();
                    return Err(refused(format!("{} has {most} settings", Self::NAME)));
                }
            }
        }
        for (name, required) in Self::FIELDS {
            if *required && !all.contains(name)? {
                return Err(refused(format!("{} needs {name}", Self::NAME)));
            }
        }
        Self::default().changed(py, Some(&all))
    }

    /// A copy with other values.
    fn changed(&self, py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut made = self.clone();
        for (key, value) in given.into_iter().flatten() {
            let name: String = key.extract()?;
            if !Self::FIELDS.iter().any(|(known, _)| *known == name) {
                let known = Self::FIELDS.iter().map(|(known, _)| *known);
                return Err(unknown(Self::NAME, "setting", &name, known));
            }
            made.set(&name, &value)?;
        }
        detached_unless(py, true, || made.verify())?;
        Ok(made)
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        for ((name, _), value) in Self::FIELDS.iter().zip(self.values(py)?) {
            made.set_item(name, value)?;
        }
        Ok(made)
    }

    fn text(&self, py: Python<'_>) -> PyResult<String> {
        let mut parts = Vec::new();
        for ((name, _), value) in Self::FIELDS.iter().zip(self.values(py)?) {
            parts.push(format!("{name}={}", value.repr()?));
        }
        Ok(format!("{}({})", Self::NAME, parts.join(", ")))
    }
}
