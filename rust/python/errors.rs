//! Core errors become the exceptions of `waveplan.errors`; signals reach long loops.

use std::cell::RefCell;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::cancel;
use crate::error::{Error, Result};

thread_local! {
    /// The exception that a signal handler raised while the core ran; re-raised at the border.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Makes Ctrl-C stop the core's long loops.
pub(super) fn install_interrupt_hook() {
    cancel::set_hook(|| {
        Python::attach(|py| {
            let raised = py.check_signals().err();
            let stop = raised.is_some();
            RAISED.with(|slot| *slot.borrow_mut() = raised);
            stop
        })
    });
}

/// The one place where a core error becomes a Python exception.
impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let class = match error {
            Error::Input(_) | Error::Overflow(_) => "InputError",
            Error::Internal(_) => "InternalError",
            Error::Interrupted => {
                let raised = RAISED.with(|slot| slot.borrow_mut().take());
                return raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(()));
            }
        };
        let made = Python::attach(|py| {
            let class = py.import("waveplan.errors")?.getattr(class)?;
            class.call1((error.to_string(),)).map(Self::from_value)
        });
        made.unwrap_or_else(|failed| failed)
    }
}

/// An input error from anything printable.
pub(crate) fn refused(message: impl Into<String>) -> PyErr {
    Error::Input(message.into()).into()
}

/// Runs `work` with the interpreter released and maps its error.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl Send + FnOnce() -> Result<T>,
) -> PyResult<T> {
    Ok(py.detach(work)?)
}

/// Sequences up to which a tree and a pass over columns take microseconds.
pub(crate) const FEW_SEQUENCES: usize = 1 << 7;

/// Tokens up to which reading them takes microseconds.
pub(crate) const FEW_TOKENS: usize = 1 << 15;

/// [`detached`], unless the work takes microseconds: to give the interpreter away and get it back
/// costs more, and wakes a thread that then waits again.
pub(crate) fn detached_unless<T: Send>(
    py: Python<'_>,
    short: bool,
    work: impl Send + FnOnce() -> Result<T>,
) -> PyResult<T> {
    Ok(if short { work() } else { py.detach(work) }?)
}
