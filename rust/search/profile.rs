//! Prices from the observed peaks of one signature: learned bytes, retained bytes, trust.

use super::observed::{Observed, Rates};

/// A profile covers plans up to so many times its own tokens and sharing.
pub const TRUST_GROWTH: i64 = 8;

/// The numbers of a plan that a profile's price depends on; bytes are results of the rules.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scale {
    /// Packed tokens.
    pub packed: i64,
    /// Tokens of the active requests.
    pub logical: i64,
    /// Packed and logical tokens are priced apart.
    pub packed_priced: bool,
    /// Bytes of the logical tokens, kept apart.
    pub logical_bytes: i64,
    /// All bytes kept apart: of logical tokens and of gdn states.
    pub apart_bytes: i64,
    /// Bytes of all requested outputs.
    pub output: i64,
    /// The safety factor.
    pub safety: f64,
}

impl Scale {
    /// Packed tokens, or more where the sharing is deeper than `sharing`.
    fn tokens(&self, sharing: f64) -> f64 {
        let window = if self.packed_priced { 8.0 } else { 1.0 };
        (self.packed as f64).max(self.logical as f64 / sharing / window)
    }

    fn ratio(&self) -> f64 {
        self.logical as f64 / self.packed.max(1) as f64
    }
}

/// Bytes by tokens, from observations: nondecreasing, linear between them and to the origin,
/// proportional beyond the largest up to the trust window, level from there on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curve {
    /// (tokens, bytes), both ascending.
    pub points: Vec<(i64, i64)>,
}

impl Curve {
    /// Bytes at `tokens`, which need not be whole.
    #[must_use]
    pub fn at(&self, tokens: f64) -> f64 {
        let Some(&(last, top)) = self.points.last() else {
            return 0.0;
        };
        if tokens >= last as f64 {
            let window = (last.saturating_mul(TRUST_GROWTH)) as f64;
            return top as f64 * tokens.min(window) / last as f64;
        }
        let i = self.points.partition_point(|&(n, _)| (n as f64) <= tokens);
        let (low, base) = if i == 0 { (0, 0) } else { self.points[i - 1] };
        let (high, peak) = self.points[i];
        let part = (tokens - low as f64) / (high - low) as f64;
        base as f64 + (peak - base) as f64 * part
    }

    fn largest(&self) -> i64 {
        self.points.last().map_or(0, |&(tokens, _)| tokens)
    }
}

/// The curves that our profile prices by, computed once a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    peak: Curve,
    /// One-time bytes still to be paid by the next call.
    fixed: i64,
    sharing: f64,
    retained: Curve,
    retained_sharing: f64,
}

impl From<&Observed> for Curves {
    fn from(seen: &Observed) -> Self {
        Self {
            peak: seen.peak(),
            fixed: if seen.here { 0 } else { seen.fixed() },
            sharing: seen.sharing,
            retained: seen.kept(),
            retained_sharing: seen.retained_sharing,
        }
    }
}

/// A profile of one signature.
#[derive(Debug, Clone, PartialEq)]
pub enum Profile {
    /// Reference mode.
    Rates(Rates),
    /// The default.
    Observed(Curves),
}

impl Profile {
    /// Largest packed tokens seen.
    #[must_use]
    pub fn packed_tokens(&self) -> i64 {
        match self {
            Self::Rates(rates) => rates.packed_tokens,
            Self::Observed(seen) => seen.peak.largest(),
        }
    }

    /// Largest packed tokens the profile covers.
    #[must_use]
    pub fn window(&self) -> i64 {
        self.packed_tokens().saturating_mul(TRUST_GROWTH)
    }

    /// Largest sharing seen.
    fn sharing(&self) -> f64 {
        match self {
            Self::Rates(rates) => rates.logical_per_packed,
            Self::Observed(seen) => seen.retained_sharing.max(1.0),
        }
    }

    /// Compute bytes that the profile predicts, truncated.
    #[must_use]
    pub fn learned(&self, plan: &Scale) -> i64 {
        let bytes = match self {
            Self::Rates(rates) => {
                let all = rates.bytes_per_token * plan.tokens(rates.logical_per_packed);
                match rates.warm() {
                    Some((rate, tokens, sharing)) => {
                        all.min(rate * (tokens as f64).max(plan.tokens(sharing)))
                    }
                    None => all,
                }
            }
            Self::Observed(seen) => {
                seen.peak.at(plan.tokens(seen.sharing.max(1.0))) + seen.fixed as f64
            }
        };
        (bytes + plan.apart_bytes as f64) as i64
    }

    /// The outputs and what stays retained, times the safety factor and truncated, if the profile
    /// knows plans of this size and sharing.
    #[must_use]
    pub fn retained(&self, plan: &Scale) -> Option<i64> {
        let rate = match self {
            Self::Rates(rates) => rates.retained?,
            Self::Observed(seen) if seen.retained.points.is_empty() => return None,
            Self::Observed(_) => 0.0,
        };
        let sharing = self.sharing();
        if plan.packed > self.retained_window() || plan.ratio() > sharing * TRUST_GROWTH as f64 {
            return None;
        }
        let tokens = if plan.packed_priced {
            plan.packed as f64
        } else {
            (plan.packed as f64).max(plan.logical as f64 / sharing)
        };
        let grown = match self {
            Self::Rates(_) => rate * tokens,
            Self::Observed(seen) => seen.retained.at(tokens),
        };
        let retained = grown + plan.logical_bytes as f64;
        Some(((plan.output as f64 + retained) * plan.safety) as i64)
    }

    fn retained_window(&self) -> i64 {
        match self {
            Self::Rates(_) => self.window(),
            Self::Observed(seen) => seen.retained.largest().saturating_mul(TRUST_GROWTH),
        }
    }

    /// Whether full sharing is outside the retained window for its sharing ratio while a
    /// layout of up to `unshared` tokens would be inside: then the fully shared plan's retained
    /// bytes are no lower bound.
    #[must_use]
    pub fn bound_is_loose(&self, plan: &Scale, unshared: i64) -> bool {
        let known = match self {
            Self::Rates(rates) => rates.retained.is_some(),
            Self::Observed(seen) => !seen.retained.points.is_empty(),
        };
        let most = self.sharing() * TRUST_GROWTH as f64;
        let widest = unshared.min(self.retained_window()).max(1);
        known && plan.ratio() > most && plan.logical as f64 / widest as f64 <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_merged_curve_covers_what_was_seen(
            points in prop::collection::vec((1..1_000_000_i64, 0..1_i64 << 40), 0..40)
        ) {
            let seen = Observed { partial: points.clone(), ..Observed::default() };
            for (tokens, bytes) in points {
                prop_assert!(seen.peak().at(tokens as f64) >= bytes as f64 * (1.0 - 1e-12));
            }
        }
    }

    #[test]
    fn a_curve_never_falls_and_levels_off() {
        let curve = Curve {
            points: vec![(10, 1000), (100, 2000)],
        };
        let mut last = 0.0;
        for tokens in 0..2000 {
            let bytes = curve.at(f64::from(tokens));
            assert!(bytes >= last, "{tokens}");
            last = bytes;
        }
        assert_eq!((curve.at(5.0) as i64, curve.at(10.0) as i64), (500, 1000));
        assert_eq!(
            (curve.at(55.0) as i64, curve.at(200.0) as i64),
            (1500, 4000)
        );
        assert_eq!(curve.at(801.0) as i64, 16_000);
    }
}
