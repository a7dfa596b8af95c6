//! The two reference scores: exact integers, and the additive weights the solvers work with.

use super::Measures;
use crate::error::{Error, Result};
use crate::fields::{Range, Setting, between, result, settings};

/// Work units per microsecond.
/// Largest tensor- and context-parallel sizes.
pub const MOST_RANKS: i64 = 1 << 12;
const UNITS: i128 = 1024;
/// Segment lengths whose histogram the calibration kept.
const THRESHOLDS: [i64; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// A segment shorter than this on each rank runs inefficient kernels.
const TINY: i64 = 128;
/// Microseconds a layer of the first shared level and of each further one (version 1).
const LEVELS: (i128, i128) = (768, 256);

/// A version of the score.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// Hand-set constants: outside the calibrated classes.
    #[default]
    One = 1,
    /// Ten fitted terms.
    Two = 2,
}

impl Setting for Version {
    fn check(&self, _: &str, _: Range) -> Result<()> {
        Ok(())
    }
}

settings! {
    /// A score for layouts with the facts it scales by. Version 2 sums ten fitted terms in
    /// thousandths of 1/1024 us; version 1 is the older hand-set score in 1/1024 us. Scores
    /// compare only within one `Scoring`.
    #[derive(Eq)]
    pub struct Scoring as "Scoring" {
        /// Its version: 1 or 2.
        version: Version;
        /// Decoder layers of this rank.
        layers: i64, between(1, 1 << 16);
        /// Tensor-parallel ranks.
        tp: i64 = 1, between(1, MOST_RANKS);
        /// Context-parallel ranks.
        cp: i64 = 1, between(1, MOST_RANKS);
        /// Layers with a gated delta net among them (version 2 reads this alone).
        gdn_layers: i64 = 0, between(0, 1 << 16);
        /// The model has such layers (version 1 reads this alone); `None`: where `gdn_layers`.
        uses_gdn: Option<bool> = None;
        /// Version 2: milli-microseconds for each term, in the order of planning section 2.
        coefficients: [i64; 10] = [0; 10], between(0, 1 << 36);
    }
}

result! {
    /// Predicted work and its tie-breaks, in the order in which they decide; less is better.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Score as "Score" {
        /// Predicted work: 1/1024 us (version 1), a thousandth of that (version 2).
        pub work: i128,
        /// Packed tokens.
        pub tokens: i64,
        /// Packed segments.
        pub segments: i64,
        /// Segments on the longest path.
        pub depth: i64,
    }
    python {
        fn __richcmp__(&self, other: &Self, op: pyo3::basic::CompareOp) -> bool {
            op.matches(self.cmp(other))
        }
    }
}

/// One rounded token term: `scale * (tokens * step mod den)` is what rounding adds, times the
/// modulus of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rounding {
    scale: i128,
    step: i64,
    den: i64,
}

/// The score as a sum over tokens, segments and levels, times `modulus`, but for a rounding
/// term that depends on the tokens modulo `modulus` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Weights {
    /// Each packed token.
    pub(super) token: i128,
    /// Each segment shorter than `tiny_below`.
    pub(super) tiny: i128,
    /// Zero when no segment counts as tiny.
    pub(super) tiny_below: i64,
    /// Each segment.
    pub(super) segment: i128,
    /// Each chosen decision.
    pub(super) chosen: i128,
    /// The first shared level.
    pub(super) first_level: i128,
    /// Each further level.
    pub(super) more_levels: i128,
    /// Common denominator of the token terms.
    pub(super) modulus: i64,
    rounding: Vec<Rounding>,
}

impl Weights {
    /// Cost of a layout `depth` segments deep.
    pub(super) fn levels(&self, depth: i64) -> i128 {
        match depth - 1 {
            extra if extra <= 0 => 0,
            extra => self.first_level + i128::from(extra - 1) * self.more_levels,
        }
    }

    /// True if depth costs nothing.
    pub(super) fn levels_are_free(&self) -> bool {
        self.first_level == 0 && self.more_levels == 0
    }

    /// The same sum `times` so much, and `price` more for each token; `None`: out of range.
    pub(super) fn priced(&self, times: i128, price: i128) -> Option<Self> {
        let scaled = |weight: i128| weight.checked_mul(times);
        Some(Self {
            token: scaled(self.token)?.checked_add(price)?,
            tiny: scaled(self.tiny)?,
            segment: scaled(self.segment)?,
            chosen: scaled(self.chosen)?,
            first_level: scaled(self.first_level)?,
            more_levels: scaled(self.more_levels)?,
            ..self.clone()
        })
    }

    /// The sum, without rounding.
    pub(super) fn sum(&self, m: &Measures) -> i128 {
        i128::from(m.tokens) * self.token
            + i128::from(m.tiny) * self.tiny
            + i128::from(m.segments) * self.segment
            + i128::from(m.chosen) * self.chosen
            + self.levels(m.depth)
    }

    /// True if the score is the sum, without rounding.
    pub(super) fn is_linear(&self) -> bool {
        self.rounding.is_empty()
    }

    /// Exact work times `modulus`, less the sum, for so many tokens.
    pub(super) fn rounding(&self, tokens: i64) -> i128 {
        let part = |r: &Rounding| r.scale * i128::from(tokens % r.den * r.step % r.den);
        self.rounding.iter().map(part).sum()
    }

    /// Least and greatest value of [`Weights::rounding`], or beyond.
    pub(super) fn rounding_range(&self) -> (i128, i128) {
        let reach = |r: &Rounding| r.scale * i128::from(r.den - 1);
        let all = self.rounding.iter().map(reach);
        (
            all.clone().map(|v| v.min(0)).sum(),
            all.map(|v| v.max(0)).sum(),
        )
    }

    /// The exact score, as [`Scoring::score`] gives it.
    pub(super) fn score(&self, m: &Measures) -> Score {
        let mut work = self.sum(m);
        if self.modulus != 1 {
            work = (work + self.rounding(m.tokens)) / i128::from(self.modulus);
        }
        Score {
            work,
            tokens: m.tokens,
            segments: m.segments,
            depth: m.depth,
        }
    }

    /// A bound on every sum these weights make for a tree of `sequences` sequences, `tokens` tokens
    /// unshared and `depth` levels; an error when it leaves 124 bits.
    pub(super) fn most(&self, sequences: i64, tokens: i64, depth: i64) -> Result<i128> {
        let parts = [
            (self.token, tokens),
            (self.tiny + self.segment + self.chosen, 2 * sequences),
            (self.first_level.max(self.more_levels), depth),
        ];
        let mut sum = self.rounding_range().1 - self.rounding_range().0;
        for (weight, times) in parts {
            sum = weight
                .checked_mul(i128::from(times))
                .and_then(|part| sum.checked_add(part))
                .filter(|&sum| sum < 1 << 124)
                .ok_or(Error::Overflow("the predicted work"))?;
        }
        Ok(sum)
    }
}

impl Scoring {
    /// Whether version 1 counts levels.
    #[must_use]
    pub fn has_gdn(&self) -> bool {
        self.uses_gdn.unwrap_or(self.gdn_layers > 0)
    }

    /// Segments shorter than this count as tiny: the listed length that covers 128 a rank.
    #[must_use]
    pub fn tiny_below(&self) -> i64 {
        let wanted = TINY * self.cp;
        let listed = THRESHOLDS.iter().find(|&&t| t >= wanted);
        *listed.unwrap_or(&THRESHOLDS[THRESHOLDS.len() - 1])
    }

    /// The five terms of version 2 that divide a multiple of the tokens:
    /// (coefficient, numerator, denominator).
    fn token_terms(&self) -> [(i128, i128, i128); 5] {
        let (tp, cp) = (i128::from(self.tp), i128::from(self.cp));
        let (layers, gdn) = (i128::from(self.layers), i128::from(self.gdn_layers));
        let c = self.coefficients.map(i128::from);
        [
            (c[0], layers * UNITS, tp * cp),
            (c[1], layers * (cp - 1) * UNITS, cp),
            (c[2], layers * (tp - 1) * UNITS, tp),
            (c[3], gdn * UNITS, tp * cp),
            (c[4], (layers - gdn).max(0) * (cp - 1) * UNITS, cp),
        ]
    }

    /// Version 2: work of one more level.
    fn level(&self) -> i128 {
        let (tp, cp) = (i128::from(self.tp), i128::from(self.cp));
        let (layers, gdn) = (i128::from(self.layers), i128::from(self.gdn_layers));
        let c = self.coefficients.map(i128::from);
        let layer = c[6] * (cp - 1) + c[7] * (tp - 1);
        let gdn_layer = c[8] + c[9] * (tp - 1);
        (layer * layers + gdn_layer * gdn) * UNITS
    }

    /// The exact score.
    #[must_use]
    pub fn score(&self, m: &Measures) -> Score {
        let tokens = i128::from(m.tokens);
        let extra = i128::from((m.depth - 1).max(0));
        let layers = i128::from(self.layers);
        let work = match self.version {
            Version::Two => {
                let terms = self.token_terms();
                let token: i128 = terms.iter().map(|(c, n, d)| c * (tokens * n / d)).sum();
                let tiny = i128::from(self.coefficients[5]) * layers * UNITS;
                token + i128::from(m.tiny) * tiny + extra * self.level()
            }
            Version::One => {
                let cp = i128::from(self.cp);
                let launch = 96 + 32 * cp;
                let gdn = if self.has_gdn() {
                    (extra.min(1) * LEVELS.0 + (extra - 1).max(0) * LEVELS.1) * layers * UNITS
                } else {
                    0
                };
                layers * tokens * UNITS
                    + (tokens + cp - 1) / cp * launch
                    + i128::from(m.segments) * launch * UNITS
                    + i128::from(m.chosen) * (64 + 32 * cp) * UNITS
                    + gdn
            }
        };
        Score {
            work,
            tokens: m.tokens,
            segments: m.segments,
            depth: m.depth,
        }
    }

    /// The additive form of the score.
    pub(super) fn weights(&self) -> Weights {
        debug_assert_eq!(self.check(), Ok(()));
        match self.version {
            Version::One => self.weights_one(),
            Version::Two => self.weights_two(),
        }
    }

    fn weights_one(&self) -> Weights {
        let (cp, layers) = (i128::from(self.cp), i128::from(self.layers));
        let launch = 96 + 32 * cp;
        let gdn = i128::from(self.has_gdn()) * layers * UNITS * cp;
        // Rounding up: the missing part of the last share of tokens, -tokens mod cp.
        let up = Rounding {
            scale: launch,
            step: self.cp - 1,
            den: self.cp,
        };
        let rounding = if cp == 1 { Vec::new() } else { vec![up] };
        Weights {
            token: layers * UNITS * cp + launch,
            tiny: 0,
            tiny_below: 0,
            segment: launch * UNITS * cp,
            chosen: (64 + 32 * cp) * UNITS * cp,
            first_level: LEVELS.0 * gdn,
            more_levels: LEVELS.1 * gdn,
            modulus: self.cp,
            rounding,
        }
    }

    fn weights_two(&self) -> Weights {
        let terms = self.token_terms().map(|(c, n, d)| {
            let common = if c == 0 { d } else { gcd(n, d) };
            (c, n / common, d / common)
        });
        let modulus = terms.iter().fold(1, |m, &(_, _, d)| m / gcd(m, d) * d);
        let token = terms.iter().map(|(c, n, d)| c * n * (modulus / d)).sum();
        let rounding = terms
            .iter()
            .filter(|term| term.2 > 1)
            .map(|&(c, n, d)| Rounding {
                scale: -c * (modulus / d),
                step: (n % d) as i64,
                den: d as i64,
            })
            .collect();
        let tiny = i128::from(self.coefficients[5]) * i128::from(self.layers) * UNITS;
        let level = self.level() * modulus;
        Weights {
            token,
            tiny: tiny * modulus,
            tiny_below: if tiny == 0 { 0 } else { self.tiny_below() },
            segment: 0,
            chosen: 0,
            first_level: level,
            more_levels: level,
            modulus: modulus as i64,
            rounding,
        }
    }
}

/// Greatest common divisor of non-negative numbers; the other when one is zero.
pub(super) fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
