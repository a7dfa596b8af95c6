//! The border to Python: array views in, columns out, errors mapped once.

// Stages without classes yet register nothing.
#![allow(clippy::unnecessary_wraps, dead_code)]

mod assign;
mod convert;
mod engine;
mod errors;
mod layout;
mod measures;
mod pack;
mod price;
mod recurrent;
mod scattered;
mod tree;
mod width;

use pyo3::prelude::*;

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
        super::width::register(module)?;
        super::engine::register(module)?;
        super::scattered::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
