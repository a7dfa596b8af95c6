//! Lets a long loop stop when the caller asks to (Ctrl-C), without knowing Python.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Answers whether the caller wants to stop. Set once, by the Python border.
static HOOK: OnceLock<fn() -> bool> = OnceLock::new();

/// Work units between two looks at the clock: a few milliseconds of the dearest unit.
const UNITS_PER_CLOCK: u64 = 1 << 16;

/// Time between two looks at the hook, which may have to wait for the interpreter.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

thread_local! {
    /// Units of tickers that are gone: many short calls one after another come to a look too.
    static CARRIED: Cell<u64> = const { Cell::new(0) };
    /// When this thread last looked at the hook. No result depends on it.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Installs the hook; later calls change nothing.
pub fn set_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// Counts work and looks for an interrupt now and then. One per call into the core.
#[derive(Debug)]
pub struct Ticker {
    units: u64,
}

impl Default for Ticker {
    fn default() -> Self {
        Self {
            units: CARRIED.replace(0),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        CARRIED.set(CARRIED.get() + self.units);
    }
}

impl Ticker {
    /// A counter that goes on where the last one of this thread ended.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `units` of work (about a nanosecond to some tens each).
    #[inline]
    pub fn work(&mut self, units: u64) -> Result<()> {
        self.units += units;
        if self.units < UNITS_PER_CLOCK {
            return Ok(());
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        self.units = 0;
        let Some(hook) = HOOK.get() else {
            return Ok(());
        };
        let now = Instant::now();
        if (LOOKED.get()).is_some_and(|last| now.duration_since(last) < BETWEEN_LOOKS) {
            return Ok(());
        }
        LOOKED.set(Some(now));
        if hook() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Takes `step` with each item, `units` of work each, in order.
    #[inline]
    pub fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        units: u64,
        mut step: impl FnMut(T),
    ) -> Result<()> {
        for item in items {
            self.work(units)?;
            step(item);
        }
        Ok(())
    }

    /// Lengthens `items` to `len` with copies of `value`.
    pub fn fill<T: Clone>(&mut self, items: &mut Vec<T>, len: usize, value: T) -> Result<()> {
        while items.len() < len {
            let more = (len - items.len()).min(UNITS_PER_CLOCK as usize);
            self.work(more as u64)?;
            items.resize(items.len() + more, value.clone());
        }
        Ok(())
    }

    /// A copy of `items`.
    pub fn copy<T: Clone>(&mut self, items: &[T]) -> Result<Vec<T>> {
        let mut made = Vec::with_capacity(items.len());
        for part in items.chunks(UNITS_PER_CLOCK as usize) {
            self.work(part.len() as u64)?;
            made.extend_from_slice(part);
        }
        Ok(made)
    }

    /// A stable sort that an interrupt can stop half way.
    pub fn sort_by_key<T: Copy, K: Ord>(
        &mut self,
        items: &mut [T],
        key: impl Fn(&T) -> K,
    ) -> Result<()> {
        for run in items.chunks_mut(SORTED_AT_ONCE) {
            self.work(16 * run.len() as u64)?;
            run.sort_by_key(&key);
        }
        let mut merged = Vec::new();
        let mut width = SORTED_AT_ONCE;
        while width < items.len() {
            for pair in items.chunks_mut(2 * width) {
                let (left, right) = pair.split_at(width.min(pair.len()));
                merged.clear();
                merged.reserve(pair.len());
                let (mut l, mut r) = (0, 0);
                while l < left.len() && r < right.len() {
                    self.work(1)?;
                    let first = key(&right[r]) < key(&left[l]);
                    merged.push(if first { right[r] } else { left[l] });
                    r += usize::from(first);
                    l += usize::from(!first);
                }
                merged.extend_from_slice(&left[l..]);
                merged.extend_from_slice(&right[r..]);
                pair.copy_from_slice(&merged);
            }
            width *= 2;
        }
        Ok(())
    }
}

/// Items that [`Ticker::sort_by_key`] sorts without a look: some milliseconds.
const SORTED_AT_ONCE: usize = 1 << 16;

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
        super::LOOKED.set(None);
        STOP.set(true);
        let answer = work();
        STOP.set(false);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::testing::interrupted;
    use super::*;

    #[test]
    fn many_short_calls_come_to_a_look() {
        let stopped = interrupted(|| {
            (0..2 * UNITS_PER_CLOCK).find(|_| Ticker::new().work(1) == Err(Error::Interrupted))
        });
        assert!(stopped.is_some());
        assert_eq!(Ticker::new().work(UNITS_PER_CLOCK), Ok(()));
    }

    #[test]
    fn sorting_is_stable_and_can_be_stopped() {
        let count = 5 * SORTED_AT_ONCE as u64 / 2;
        let mixed: Vec<(u64, u64)> = (0..count).map(|i| (i * 7919 % 1000, i)).collect();
        let mut items = mixed.clone();
        Ticker::new()
            .sort_by_key(&mut items, |item| item.0)
            .unwrap();
        let mut expected = mixed.clone();
        expected.sort_by_key(|item| item.0);
        assert_eq!(items, expected);
        let mut items = mixed;
        let stopped = interrupted(|| Ticker::new().sort_by_key(&mut items, |item| item.0));
        assert_eq!(stopped, Err(Error::Interrupted));
    }
}
