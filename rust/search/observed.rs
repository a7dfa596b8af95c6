//! Profiles from readings of plans that ran: the reference rates, and our curves.

use super::profile::Curve;
use crate::fields::{MOST, at_least, between, positive, settings};

/// Observations kept per curve; beyond that, neighbours merge upwards.
const MOST_POINTS: usize = 16;

type Points = Vec<(i64, i64)>;

settings! {
    /// One reading of a plan that ran, in tokens and bytes.
    #[derive(Copy, Eq)]
    pub struct Observation as "Observation" {
        /// Packed tokens.
        packed: i64, between(1, MOST);
        /// Tokens of its active requests.
        logical: i64, between(0, MOST);
        /// Bytes of its requested outputs, which prices count themselves.
        output: i64, between(0, MOST);
        /// Most bytes above what was allocated before it.
        peak: i64, between(0, MOST);
        /// Bytes above that after its forward.
        retained: Option<i64> = None, between(0, MOST);
        /// The reading covers forward, loss and backward of the whole wave.
        whole: bool = true;
    }
}

impl Observation {
    /// Peak bytes without the outputs.
    fn compute(&self) -> i64 {
        (self.peak - self.output).max(0)
    }

    /// Retained bytes without the outputs.
    fn kept(&self) -> Option<i64> {
        let retained = self.retained?;
        Some((retained.min(self.peak) - self.output).max(0))
    }

    /// Logical per packed tokens.
    fn sharing(&self) -> f64 {
        self.logical as f64 / self.packed as f64
    }
}

settings! {
    /// The reference profile: largest rates per packed token.
    pub struct Rates as "Rates" {
        /// Largest compute bytes per packed token.
        bytes_per_token: f64, at_least(0);
        /// Largest packed tokens.
        packed_tokens: i64, between(0, MOST);
        /// Largest logical per packed tokens.
        logical_per_packed: f64 = 1.0, positive();
        /// Largest retained bytes per packed token, if ever read.
        retained: Option<f64> = None, at_least(0);
        /// Whole waves after the first: largest bytes per token.
        warm_bytes_per_token: Option<f64> = None, at_least(0);
        /// Their smallest tokens.
        warm_packed_tokens: Option<i64> = None, between(1, MOST);
        /// Their largest sharing.
        warm_logical_per_packed: Option<f64> = None, positive();
        /// Whole waves seen.
        whole_waves: i64 = 0, between(0, MOST);
    }
    python {
        /// With one more reading.
        #[pyo3(name = "after")]
        fn py_after(&self, seen: &Observation) -> Self {
            self.after(seen)
        }
    }
}

impl Rates {
    /// With one more reading.
    #[must_use]
    pub fn after(&self, seen: &Observation) -> Self {
        let tokens = seen.packed as f64;
        let (rate, sharing) = (seen.compute() as f64 / tokens, seen.sharing());
        let mut made = self.clone();
        if self.whole_waves > 0 {
            let known = self.warm_bytes_per_token.unwrap_or(0.0);
            made.warm_bytes_per_token = Some(rate.max(known));
            if seen.whole {
                let fewest = self.warm_packed_tokens.unwrap_or(seen.packed);
                made.warm_packed_tokens = Some(seen.packed.min(fewest));
                let most = self.warm_logical_per_packed.unwrap_or(1.0);
                made.warm_logical_per_packed = Some(sharing.max(most));
            }
        }
        if let Some(kept) = seen.kept() {
            made.retained = Some((kept as f64 / tokens).max(self.retained.unwrap_or(0.0)));
        }
        made.bytes_per_token = rate.max(self.bytes_per_token);
        made.packed_tokens = seen.packed.max(self.packed_tokens);
        made.logical_per_packed = sharing.max(self.logical_per_packed);
        made.whole_waves += i64::from(seen.whole);
        made
    }

    /// Whole waves after the first: bytes per token, smallest tokens, largest sharing.
    pub(super) fn warm(&self) -> Option<(f64, i64, f64)> {
        let rate = self.warm_bytes_per_token?;
        Some((
            rate,
            self.warm_packed_tokens?,
            self.warm_logical_per_packed?,
        ))
    }
}

settings! {
    /// Our profile: points of (tokens, bytes), with the one-time cost of a first call apart.
    pub struct Observed as "Observed" {
        /// The first whole wave, which also pays for compilation and first-use buffers.
        first: Option<(i64, i64)> = None;
        /// Whole waves after it.
        later: Vec<(i64, i64)> = Vec::new();
        /// Readings that cover less than a whole wave; they only ever raise.
        partial: Vec<(i64, i64)> = Vec::new();
        /// Largest logical per packed tokens.
        sharing: f64 = 1.0, at_least(1);
        /// Bytes retained after a forward, outputs apart.
        retained: Vec<(i64, i64)> = Vec::new();
        /// Largest logical per packed tokens of those.
        retained_sharing: f64 = 1.0, at_least(1);
        /// This process has run the first call already, so its one-time cost is paid.
        here: bool = false;
    }
    python {
        /// With one more reading.
        #[pyo3(name = "after")]
        fn py_after(&self, seen: &Observation) -> Self {
            self.after(seen)
        }

        /// The recurring curve.
        #[getter(peak)]
        fn py_peak<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.peak().points.give(py)
        }

        /// One-time bytes of a first call.
        #[getter(fixed)]
        fn py_fixed(&self) -> i64 {
            self.fixed()
        }
    }
}

impl Observed {
    /// With one more reading.
    #[must_use]
    pub fn after(&self, seen: &Observation) -> Self {
        let point = (seen.packed, seen.compute());
        let with = |points: &Points, point| envelope(points.iter().copied().chain([point]));
        let mut made = self.clone();
        if !seen.whole {
            made.partial = with(&self.partial, point);
        } else if self.here && self.first.is_some() {
            made.later = with(&self.later, point);
        } else {
            // A first call, or one again in a new process.
            made.first = self
                .first
                .filter(|first| first.1 >= point.1)
                .or(Some(point));
        }
        made.sharing = self.sharing.max(seen.sharing());
        if let Some(kept) = seen.kept() {
            made.retained = with(&self.retained, (seen.packed, kept));
            made.retained_sharing = self.retained_sharing.max(seen.sharing());
        }
        made.here = self.here || seen.whole;
        made
    }

    /// The recurring curve: later whole waves, or the first while it is the only one.
    pub(super) fn peak(&self) -> Curve {
        let first = self.first.filter(|_| self.later.is_empty());
        let all = self.later.iter().chain(&self.partial).copied().chain(first);
        Curve {
            points: envelope(all),
        }
    }

    /// One-time bytes of a first call: what the first wave cost beyond the curve.
    pub(super) fn fixed(&self) -> i64 {
        match self.first {
            Some((tokens, peak)) if !self.later.is_empty() => {
                let recurs = self.peak().at(tokens as f64).ceil() as i64;
                peak.saturating_sub(recurs).max(0)
            }
            _ => 0,
        }
    }

    /// The curve of bytes retained after a forward.
    pub(super) fn kept(&self) -> Curve {
        Curve {
            points: envelope(self.retained.iter().copied()),
        }
    }
}

/// Points by tokens, bytes never falling, at most `MOST_POINTS` of them. Merging keeps the fewer
/// tokens and the more bytes of two neighbours, so it only raises.
fn envelope(points: impl Iterator<Item = (i64, i64)>) -> Points {
    let mut sorted: Points = points.collect();
    sorted.sort_unstable();
    let mut kept: Points = Vec::with_capacity(sorted.len());
    for (tokens, bytes) in sorted {
        let most = kept.last().map_or(bytes, |&(_, most)| bytes.max(most));
        match kept.last_mut() {
            Some(last) if last.0 == tokens => last.1 = most,
            _ => kept.push((tokens, most)),
        }
    }
    while kept.len() > MOST_POINTS {
        let gap = |i: usize| i128::from(kept[i + 1].0) * 1000 / i128::from(kept[i].0);
        // The ends stay: they say how far the curve reaches.
        let Some(i) = (1..kept.len() - 2).min_by_key(|&i| gap(i)) else {
            break;
        };
        kept[i].1 = kept[i + 1].1;
        kept.remove(i + 1);
    }
    kept
}
