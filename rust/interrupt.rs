//! Lets a long loop stop when the caller asks to (Ctrl-C), without knowing Python.

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// Answers whether the caller wants to stop. Set once, by the Python border.
static HOOK: OnceLock<fn() -> bool> = OnceLock::new();

/// Work units between two looks at the hook: well under 50 ms of the cheapest unit.
const UNITS_PER_LOOK: u64 = 1 << 20;

/// Installs the hook; later calls change nothing.
pub fn set_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// Counts work and looks for an interrupt now and then. One per call into the core.
#[derive(Debug, Default)]
pub struct Ticker {
    units: u64,
}

impl Ticker {
    /// A fresh counter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `units` of work (about a nanosecond to some tens each).
    #[inline]
    pub fn work(&mut self, units: u64) -> Result<()> {
        self.units += units;
        if self.units < UNITS_PER_LOOK {
            return Ok(());
        }
        self.units = 0;
        match HOOK.get() {
            Some(hook) if hook() => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A hook for tests: each thread says for itself whether it wants to stop.

    use std::cell::Cell;

    thread_local! {
        static STOP: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `work` as if Ctrl-C had been pressed on this thread.
    pub(crate) fn interrupted<T>(work: impl FnOnce() -> T) -> T {
        super::set_hook(|| STOP.get());
        STOP.set(true);
        let answer = work();
        STOP.set(false);
        answer
    }
}
