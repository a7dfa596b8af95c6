//! Declares what crosses the language border, once: a struct with its docs, defaults and ranges,
//! and with the feature `python` the frozen class whose attributes are its fields.

use crate::error::{Error, Result};

/// A table: its entries row by row, and its rows and columns.
pub type Table<T> = (Vec<T>, [usize; 2]);

/// The range of a number; floats are finite besides.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    least: i64,
    most: i64,
    positive: bool,
}

/// Any number.
pub const ANY: Range = between(i64::MIN, i64::MAX);

/// Most tokens and bytes of an observation.
pub const MOST: i64 = (1 << 62) - 1;

/// Numbers from `least` on.
#[must_use]
pub const fn at_least(least: i64) -> Range {
    between(least, i64::MAX)
}

/// Numbers from `least` to `most`.
#[must_use]
pub const fn between(least: i64, most: i64) -> Range {
    Range {
        least,
        most,
        positive: false,
    }
}

/// Numbers above 0.
#[must_use]
pub const fn positive() -> Range {
    Range {
        positive: true,
        ..at_least(0)
    }
}

/// A value that a setting can have.
pub trait Setting {
    /// Refuses a value out of range, in one line that names it.
    fn check(&self, name: &str, range: Range) -> Result<()>;
}

fn refuse(name: &str, value: impl std::fmt::Display, right: impl std::fmt::Display) -> Result<()> {
    Err(Error::input(format!(
        "{name} is {value}: it must be {right}"
    )))
}

impl Setting for i64 {
    fn check(&self, name: &str, range: Range) -> Result<()> {
        if *self < range.least {
            return refuse(name, self, format_args!("at least {}", range.least));
        }
        if *self > range.most {
            return refuse(name, self, format_args!("at most {}", range.most));
        }
        Ok(())
    }
}

impl Setting for usize {
    fn check(&self, name: &str, range: Range) -> Result<()> {
        i64::try_from(*self).unwrap_or(i64::MAX).check(name, range)
    }
}

impl Setting for f64 {
    fn check(&self, name: &str, range: Range) -> Result<()> {
        if !self.is_finite() {
            return refuse(name, self, "a finite number");
        }
        if range.positive && *self <= 0.0 {
            return refuse(name, self, "positive");
        }
        if *self < range.least as f64 {
            return refuse(name, self, format_args!("at least {}", range.least));
        }
        Ok(())
    }
}

/// A point of a curve: tokens and bytes.
impl Setting for (i64, i64) {
    fn check(&self, name: &str, _: Range) -> Result<()> {
        self.0.check(&format!("{name}[0]"), between(1, MOST))?;
        self.1.check(&format!("{name}[1]"), between(0, MOST))
    }
}

/// The mode and the rank of an adapter.
impl Setting for (bool, i64) {
    fn check(&self, name: &str, _: Range) -> Result<()> {
        self.1.check(&format!("{name}[1]"), at_least(0))
    }
}

impl Setting for Box<[bool]> {
    fn check(&self, _: &str, _: Range) -> Result<()> {
        Ok(())
    }
}

impl Setting for String {
    fn check(&self, _: &str, _: Range) -> Result<()> {
        Ok(())
    }
}

impl Setting for bool {
    fn check(&self, _: &str, _: Range) -> Result<()> {
        Ok(())
    }
}

impl<T: Setting> Setting for Option<T> {
    fn check(&self, name: &str, range: Range) -> Result<()> {
        self.as_ref()
            .map_or(Ok(()), |value| value.check(name, range))
    }
}

/// The range of a list is that of its length.
impl<T: Setting> Setting for Vec<T> {
    fn check(&self, name: &str, range: Range) -> Result<()> {
        if (self.len() as i64) < range.least {
            let long = format!("{} entries long", self.len());
            return refuse(name, long, format_args!("at least {}", range.least));
        }
        let check = |(i, value): (usize, &T)| value.check(&format!("{name}[{i}]"), ANY);
        self.iter().enumerate().try_for_each(check)
    }
}

impl<const N: usize> Setting for [i64; N] {
    fn check(&self, name: &str, range: Range) -> Result<()> {
        let outside = |value: &i64| !(range.least..=range.most).contains(value);
        match self.iter().position(outside) {
            Some(i) => self[i].check(&format!("{name}[{i}]"), range),
            None => Ok(()),
        }
    }
}

/// Declares settings: fields with a default, or without one where they must be given, and their
/// ranges. In Python one argument each, by keyword or in order.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident as $text:literal {
            $($(#[$doc:meta])* $field:ident: $type:ty $(= $default:expr)? $(, $range:expr)?;)*
        }
        $(python { $($methods:tt)* })?
    ) => {
        #[cfg_attr(feature = "python", pyo3::pyclass(frozen, eq))]
        #[cfg_attr(feature = "python", pyo3(name = $text, module = "waveplan._core"))]
        #[derive(Debug, Clone, PartialEq)]
        $(#[$meta])*
        pub struct $Name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($field: $crate::fields::or_default!($($default)?),)* }
            }
        }

        impl $Name {
            /// Refuses a field out of range, in one line that names it.
            pub fn check(&self) -> $crate::Result<()> {
                $($crate::fields::Setting::check(
                    &self.$field,
                    stringify!($field),
                    $crate::fields::or_any!($($range)?),
                )?;)*
                Ok(())
            }
        }

        impl $crate::fields::Setting for $Name {
            fn check(&self, name: &str, _: $crate::fields::Range) -> $crate::Result<()> {
                self.check().map_err(|error| match error {
                    $crate::Error::Input(message) => $crate::Error::Input(format!("{name}.{message}")),
                    other => other,
                })
            }
        }

        #[cfg(feature = "python")]
        impl $crate::python::fields::Settings for $Name {
            const FIELDS: &'static [(&'static str, bool)] =
                &[$((stringify!($field), $crate::fields::or_required!($($default)?)),)*];

            fn set(&mut self, name: &str, value: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::PyResult<()> {
                use $crate::python::fields::Take;
                match name {
                    $(stringify!($field) => self.$field = Take::take(name, value)?,)*
                    _ => {}
                }
                Ok(())
            }

            fn values<'py>(
                &self,
                py: pyo3::Python<'py>,
            ) -> pyo3::PyResult<Vec<pyo3::Bound<'py, pyo3::PyAny>>> {
                use $crate::python::fields::Give;
                Ok(vec![$(self.$field.give(py)?,)*])
            }

            fn verify(&self) -> $crate::Result<()> {
                self.check()
            }
        }

        #[cfg(feature = "python")]
        const _: () = {
            use pyo3::types::{PyDict, PyTuple};
            use $crate::python::fields::Settings as _;
            use $crate::python::prelude::*;

            #[pymethods]
            impl $Name {
                #[new]
                #[pyo3(signature = (*values, **given))]
                fn py_new(
                    values: &Bound<'_, PyTuple>,
                    given: Option<&Bound<'_, PyDict>>,
                ) -> PyResult<Self> {
                    Self::made(values, given)
                }

                #[pyo3(signature = (**changes))]
                fn replace(&self, py: Python<'_>, changes: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
                    self.changed(py, changes)
                }

                #[classattr]
                fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
                    PyTuple::new(py, Self::FIELDS.iter().map(|(name, _)| name))
                }

                fn __getnewargs_ex__<'py>(
                    &self,
                    py: Python<'py>,
                ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                    Ok((PyTuple::empty(py), self.dict(py)?))
                }

                fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
                    pyo3::types::PyString::new(py, &self.text(py)?).hash()
                }

                fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                    self.text(py)
                }

                $(
                    #[getter]
                    fn $field<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                        self.$field.give(py)
                    }
                )*

                $($($methods)*)?
            }
        };
    };
}

/// Declares a result: its fields are the attributes of the Python class, columns as new arrays.
/// Attributes under `get` are computed when they are read. What is `given to` a class is shared by
/// that class, which may be derived from, and its fields are settable by name.
macro_rules! result {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident as $text:literal, given to $Held:ident {
            $($(#[$doc:meta])* pub $field:ident: $type:ty,)*
            @core $($(#[$inner_doc:meta])* pub $inner:ident: $inner_type:ty,)*
        }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub struct $Name {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$inner_doc])* pub $inner: $inner_type,)*
        }

        #[cfg(feature = "python")]
        #[pyo3::pyclass(frozen, subclass, name = $text, module = "waveplan._core")]
        $(#[$meta])*
        pub struct $Held(pub(crate) std::sync::Arc<$Name>);

        #[cfg(feature = "python")]
        impl std::ops::Deref for $Held {
            type Target = $Name;

            fn deref(&self) -> &$Name {
                &self.0
            }
        }

        #[cfg(feature = "python")]
        impl $Name {
            fn set(&mut self, name: &str, value: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::PyResult<()> {
                use $crate::python::fields::Take;
                match name {
                    $(stringify!($field) => self.$field = Take::take(name, value)?,)*
                    _ => return Err($crate::python::errors::refused(format!("{} has no column {name}", $text))),
                }
                Ok(())
            }
        }

        $crate::fields::result! { @class $Held { $($(#[$doc])* $field,)* } $($rest)* }
    };
    (
        $(#[$meta:meta])*
        pub struct $Name:ident as $text:literal {
            $($(#[$doc:meta])* pub $field:ident: $type:ty,)*
            $(@core $($(#[$inner_doc:meta])* pub $inner:ident: $inner_type:ty,)*)?
        }
        $($rest:tt)*
    ) => {
        #[cfg_attr(feature = "python", pyo3::pyclass(frozen))]
        #[cfg_attr(feature = "python", pyo3(name = $text, module = "waveplan._core"))]
        $(#[$meta])*
        pub struct $Name {
            $($(#[$doc])* pub $field: $type,)*
            $($($(#[$inner_doc])* pub $inner: $inner_type,)*)?
        }

        $crate::fields::result! { @class $Name { $($(#[$doc])* $field,)* } $($rest)* }
    };
    (
        @class $Class:ident { $($(#[$doc:meta])* $field:ident,)* }
        $(get { $($(#[$made_doc:meta])* $made:ident($me:ident) = $value:expr;)* })?
        $(python { $($methods:tt)* })?
    ) => {
        #[cfg(feature = "python")]
        const _: () = {
            #[allow(unused_imports)]
            use $crate::python::prelude::*;

            #[pymethods]
            impl $Class {
                $(
                    $(#[$doc])*
                    #[getter($field)]
                    fn $field<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                        self.$field.give(py)
                    }
                )*

                $($(
                    $(#[$made_doc])*
                    #[getter($made)]
                    fn $made<'py>(&$me, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                        ($value).give(py)
                    }
                )*)?

                #[classattr]
                fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyTuple>> {
                    pyo3::types::PyTuple::new(py, [$(stringify!($field)),*] as [&str; _])
                }

                $($($methods)*)?
            }
        };
    };
}

macro_rules! or_default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

macro_rules! or_any {
    () => {
        $crate::fields::ANY
    };
    ($range:expr) => {
        $range
    };
}

#[cfg(feature = "python")]
macro_rules! or_required {
    () => {
        true
    };
    ($default:expr) => {
        false
    };
}

#[cfg(feature = "python")]
pub(crate) use or_required;
pub(crate) use {or_any, or_default, result, settings};
