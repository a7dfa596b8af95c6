//! The border to Python: array views in, columns out, errors mapped once.

mod assign;
mod convert;
mod engine;
pub(crate) mod errors;
pub(crate) mod fields;
mod layout;
mod measures;
mod pack;
mod price;
mod recurrent;
mod scattered;
mod tree;

use pyo3::prelude::*;

/// What pymethods beside the core's types use.
pub(crate) mod prelude {
    pub(crate) use super::convert::{Flags, ints, ragged, row_indices, slice};
    pub(crate) use super::errors::{detached, refused, to_python};
    pub(crate) use super::fields::Give;
    pub(crate) use super::tree::refuse_empty;
    pub(crate) use pyo3::prelude::*;

    pub(crate) type Object<'py> = Bound<'py, PyAny>;
}

/// The extension module `waveplan._core`: registers classes and functions, nothing else.
#[pymodule(gil_used = false)]
mod _core {
    use super::{PyModule, PyResult};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::errors::install_interrupt_hook();
        super::errors::register(module)?;
        super::tree::register(module)?;
        super::pack::register(module)?;
        super::layout::register(module)?;
        super::assign::register(module)?;
        super::recurrent::register(module)?;
        super::measures::register(module)?;
        super::price::register(module)?;
        super::engine::register(module)?;
        super::scattered::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
