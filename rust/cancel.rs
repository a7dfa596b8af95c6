//! Cancels a long call when the caller asks to (Ctrl-C), without knowing Python.
//!
//! Loops that can run long call [`check`]: between probes, per round of a search, per block of a
//! pass over the sequences. Nothing is handed from function to function for it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Answers whether the caller wants to stop. Set once, by the Python border.
static HOOK: OnceLock<fn() -> bool> = OnceLock::new();

/// Time between two calls of the hook, which may have to wait for the interpreter.
const BETWEEN_CALLS: Duration = Duration::from_millis(20);

/// Steps of a long loop between two checks.
const BLOCK: usize = 1 << 6;

thread_local! {
    /// When this thread last called the hook. No result depends on it.
    static CALLED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Installs the hook; later calls change nothing.
pub fn set_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// Returns [`Error::Interrupted`] if the caller wants to stop. Cheap: it reads the clock, and
/// calls the hook every 20 milliseconds at most.
pub fn check() -> Result<()> {
    let Some(hook) = HOOK.get() else {
        return Ok(());
    };
    let now = Instant::now();
    if (CALLED.get()).is_some_and(|last| now.duration_since(last) < BETWEEN_CALLS) {
        return Ok(());
    }
    CALLED.set(Some(now));
    if hook() {
        return Err(Error::Interrupted);
    }
    Ok(())
}

/// [`check`] at every 64th step of a long loop.
#[inline]
pub fn check_at(step: usize) -> Result<()> {
    if step % BLOCK == 0 { check() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static STOP: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_loop_is_cancelled_at_a_block() {
        set_hook(|| STOP.get());
        assert_eq!(check(), Ok(()));
        STOP.set(true);
        CALLED.set(None);
        assert_eq!((1..BLOCK).find(|&step| check_at(step).is_err()), None);
        assert_eq!(check_at(BLOCK), Err(Error::Interrupted));
    }
}
