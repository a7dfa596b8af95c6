//! Work, tokens and segments as one number, and what a decision costs in it.

use std::ops::{Add, AddAssign, Mul, Sub};

use crate::error::{Error, Result};
use crate::layout::Forest;
use crate::layout::scoring::{Weights, gcd};

/// A number that costs are summed in.
pub(super) trait Cost:
    Copy
    + Ord
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + AddAssign
    + Mul<Output = Self>
    + From<i64>
    + Into<i128>
    + TryFrom<i128>
{
    /// More than any sum; twice as much fits too.
    const FAR: Self;
}

impl Cost for i64 {
    const FAR: Self = 1 << 61;
}

impl Cost for i128 {
    const FAR: Self = 1 << 125;
}

/// Work, tokens and segments as one number that compares as the three do in turn.
#[derive(Debug, Clone, Copy)]
pub(in crate::layout) struct Unit {
    /// Common divisor of all weights.
    divisor: i128,
    /// Factor of the work.
    work: i128,
    /// Factor of the tokens.
    tokens: i128,
    /// Factor of the segments.
    segments: i128,
    /// A bound on every sum.
    pub(in crate::layout) most: i128,
}

/// Costs in one [`Unit`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs<T> {
    pub(super) token: T,
    tiny: T,
    segment: T,
    chosen: T,
}

impl Unit {
    /// The unit for a forest.
    pub(in crate::layout) fn new(forest: &Forest, weights: &Weights) -> Result<Self> {
        let all = [
            weights.token,
            weights.tiny,
            weights.segment,
            weights.chosen,
            weights.first_level,
            weights.more_levels,
        ];
        let divisor = all.into_iter().fold(0, gcd).max(1);
        let depth = 1 + forest.depth.iter().copied().max().unwrap_or(0);
        let most = weights.most(forest.rows, forest.unshared_tokens, i64::from(depth))?;
        let tokens = 2 * i128::from(forest.rows) + 1;
        let work = tokens * (i128::from(forest.unshared_tokens) + 1);
        let most = (most / divisor + 1)
            .checked_mul(work)
            .filter(|&most| most < 1 << 124)
            .ok_or(Error::Overflow("the predicted work"))?;
        Ok(Self {
            divisor,
            work,
            tokens,
            segments: 1,
            most,
        })
    }

    /// The same for the work alone, in smaller numbers.
    pub(super) fn of_work(&self) -> Self {
        Self {
            divisor: self.divisor,
            work: 1,
            tokens: 0,
            segments: 0,
            most: self.most / self.work + 1,
        }
    }

    /// Whether tokens and segments count too.
    pub(super) fn is_full(&self) -> bool {
        self.segments > 0
    }

    /// One key for an amount of work (a multiple of the divisor), tokens and segments.
    pub(super) fn key(&self, work: i128, tokens: i64, segments: i64) -> i128 {
        work / self.divisor * self.work
            + i128::from(tokens) * self.tokens
            + i128::from(segments) * self.segments
    }

    /// The key of an amount of work, rounded down.
    pub(super) fn key_below(&self, work: i128) -> i128 {
        work.div_euclid(self.divisor) * self.work
    }

    /// The work in a key.
    pub(super) fn work(&self, key: i128) -> i128 {
        key.div_euclid(self.work) * self.divisor
    }

    /// Work, tokens and segments of a key.
    pub(super) fn parts(&self, key: i128) -> (i128, i64, i64) {
        let rest = key.rem_euclid(self.work);
        (
            self.work(key),
            (rest / self.tokens) as i64,
            (rest % self.tokens) as i64,
        )
    }

    /// The key of the work that a difference of keys can hold, rounded up.
    pub(super) fn slack(&self, work: i128) -> i128 {
        (work / self.divisor + 1) * self.work
    }

    /// The weights in this unit. `None`: a sum may leave the number.
    pub(super) fn costs<T: Cost>(&self, weights: &Weights) -> Option<Costs<T>> {
        let fit = |value: i128| T::try_from(value).ok();
        Some(Costs {
            token: fit(self.key(weights.token, 1, 0))?,
            tiny: fit(self.key(weights.tiny, 0, 0))?,
            segment: fit(self.key(weights.segment, 0, 1))?,
            chosen: fit(self.key(weights.chosen, 0, 0))?,
        })
    }
}

/// The two options of one decision as lines in the end of its nearest chosen ancestor.
pub(super) struct Lines<T> {
    replay: T,
    /// Tails, each of which the ancestor's tokens shorten.
    tails: T,
    share: T,
    /// From this depth of the ancestor on, a segment may be tiny.
    pub(super) tiny_from: usize,
}

impl<T: Cost> Costs<T> {
    /// The lines of a decision; `ends` of its ancestors, none first; `below` is what a shared
    /// one has below it. The ancestor's own part is left out, see [`Costs::at`].
    pub(super) fn lines(&self, forest: &Forest, i: usize, ends: &[i64], below: T) -> Lines<T> {
        let end = forest.end[i];
        let (own, leaves) = (forest.own[i], forest.leaves[i]);
        let tails = T::from(own + leaves);
        let nearest = match forest.near_leaves(i).first() {
            Some(&first) => first.min(end),
            None => end,
        };
        let tiny = |&&from: &&i64| nearest - from < forest.tiny_below;
        Lines {
            replay: self.token * T::from(own * end + forest.leaf_tokens[i]) + self.segment * tails,
            tails,
            share: self.token * T::from(end) + self.segment + self.chosen + below,
            tiny_from: ends.len() - ends.iter().rev().take_while(tiny).count(),
        }
    }

    /// Both options below an ancestor at `from`, whose tokens cost `apart`.
    #[inline]
    pub(super) fn at(
        &self,
        forest: &Forest,
        i: usize,
        lines: &Lines<T>,
        from: i64,
        apart: T,
        tiny: bool,
    ) -> (T, T) {
        let mut replay = lines.replay - lines.tails * apart;
        let mut share = lines.share - apart;
        if tiny {
            let gap = i64::from(forest.end[i] - from < forest.tiny_below);
            let count = forest.own[i] * gap + forest.tiny_leaves(i, from);
            replay += self.tiny * T::from(count);
            share += self.tiny * T::from(gap);
        }
        (replay, share)
    }

    /// A decision's own tails when it is not chosen, replayed from `from`.
    pub(super) fn unchosen(&self, forest: &Forest, i: usize, from: i64) -> T {
        let gap = forest.end[i] - from;
        let (own, leaves) = (forest.own[i], forest.leaves[i]);
        let tokens = own * gap + forest.leaf_tokens[i] - leaves * from;
        let tiny = own * i64::from(gap < forest.tiny_below) + forest.tiny_leaves(i, from);
        self.token * T::from(tokens)
            + self.segment * T::from(own + leaves)
            + self.tiny * T::from(tiny)
    }

    /// A chosen decision's own segment, stored from `from`.
    pub(super) fn stored(&self, forest: &Forest, i: usize, from: i64) -> T {
        let gap = forest.end[i] - from;
        let tiny = i64::from(gap < forest.tiny_below);
        self.token * T::from(gap) + self.segment + self.chosen + self.tiny * T::from(tiny)
    }

    /// The tails that leave a chosen decision.
    pub(super) fn leaves(&self, forest: &Forest, i: usize) -> T {
        let (end, leaves) = (forest.end[i], forest.leaves[i]);
        let tokens = forest.leaf_tokens[i] - leaves * end;
        self.token * T::from(tokens)
            + self.segment * T::from(leaves)
            + self.tiny * T::from(forest.tiny_leaves(i, end))
    }

    /// Rows without any decision.
    pub(super) fn lone(&self, forest: &Forest) -> T {
        self.token * T::from(forest.lone_tokens)
            + self.segment * T::from(forest.lone)
            + self.tiny * T::from(forest.lone_tiny)
    }
}
