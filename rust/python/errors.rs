//! Core errors become the exceptions of `waveplan.errors`; signals reach long loops.

use std::cell::RefCell;

use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;

use crate::cancel;
use crate::error::{Error, Result};

thread_local! {
    /// The exception that a signal handler raised while the core ran; re-raised at the border.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Asked whether this thread's work is still wanted.
    static ASKED: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// Makes Ctrl-C stop the core's long loops, and [`stop_if`] those of a thread.
pub(super) fn install_interrupt_hook() {
    cancel::set_hook(|| {
        Python::attach(|py| {
            let asked = ASKED.with_borrow(|slot| slot.as_ref().map(|asked| asked.clone_ref(py)));
            let stop = py.check_signals().and_then(|()| match asked {
                Some(asked) => asked.bind(py).call0()?.is_truthy(),
                None => Ok(false),
            });
            stop.unwrap_or_else(|raised| {
                RAISED.with(|slot| *slot.borrow_mut() = Some(raised));
                true
            })
        })
    });
}

/// From now on long calls of this thread end once `asked()` is true; None: as before.
#[pyfunction]
#[pyo3(signature = (asked))]
pub(super) fn stop_if(asked: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    if asked.as_ref().is_some_and(|asked| !asked.is_callable()) {
        return Err(PyTypeError::new_err("give a function without arguments"));
    }
    let before = ASKED.replace(asked.map(Bound::unbind));
    drop(before); // its destructor may call back
    Ok(())
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
