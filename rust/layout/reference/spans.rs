//! The members of the family that go by span, each made from the one before.
//!
//! From one member to the next the shortest chosen spans are given up. That changes only what
//! lies between such a decision and the next chosen ones below it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bits::Keys;
use crate::cancel;
use crate::error::Result;
use crate::layout::{Forest, Measures};

/// One member: every decision whose span from its nearest chosen ancestor is at least `least`.
pub(super) struct Spans<'a> {
    forest: &'a Forest,
    keys: &'a Keys,
    least: i64,
    pub(super) words: Vec<u64>,
    pub(super) hash: u128,
    chosen: Vec<bool>,
    /// End of the nearest chosen decision above each.
    from: Vec<i64>,
    /// Sums; the depth is in `levels`.
    sums: Measures,
    /// Segments on the longest path of each subtree, from the nearest chosen ancestor on.
    levels: Vec<u32>,
    children: Children,
    /// Chosen spans, shortest first; one that has changed since is passed over.
    heap: BinaryHeap<Reverse<(i64, u32)>>,
    /// Decisions whose own part changed in this step, parents first.
    changed: Vec<u32>,
}

/// Children of each decision; those without parent at the end.
struct Children {
    offsets: Vec<u32>,
    list: Vec<u32>,
}

impl Children {
    fn new(forest: &Forest) -> Self {
        let n = forest.len();
        let slot = |i: usize| forest.above(i).unwrap_or(n);
        let mut offsets = vec![0_u32; n + 2];
        for i in 0..n {
            offsets[slot(i) + 1] += 1;
        }
        for i in 0..=n {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut list = vec![0; n];
        for i in 0..n {
            let at = &mut next[slot(i)];
            list[*at as usize] = i as u32;
            *at += 1;
        }
        Self { offsets, list }
    }

    fn of(&self, i: usize) -> &[u32] {
        &self.list[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
}

impl<'a> Spans<'a> {
    /// The member for a span of 1: full sharing.
    pub(super) fn new(forest: &'a Forest, keys: &'a Keys) -> Self {
        let n = forest.len();
        let mut spans = Self {
            forest,
            keys,
            least: 1,
            words: vec![0; n.div_ceil(64)],
            hash: 0,
            chosen: vec![false; n],
            from: vec![0; n],
            sums: forest.lone_measures(),
            levels: vec![0; n],
            children: Children::new(forest),
            heap: BinaryHeap::with_capacity(2 * n),
            changed: Vec::with_capacity(n),
        };
        for i in 0..n {
            let own = spans.own(i);
            spans.add(own, 1);
        }
        let mut at = 0;
        while at < n {
            at = spans.decide(at, n);
        }
        spans.settle_levels();
        spans
    }

    /// Measures of the member.
    pub(super) fn measures(&self) -> Measures {
        let roots = self.children.of(self.forest.len()).iter();
        let deepest = roots.map(|&i| self.levels[i as usize]).max().unwrap_or(0);
        Measures {
            depth: i64::from(deepest.max(u32::from(self.forest.lone > 0))),
            ..self.sums
        }
    }

    /// Goes on to the next member; false after the one without decisions.
    pub(super) fn next(&mut self) -> Result<bool> {
        let Some(shortest) = self.shortest() else {
            return Ok(false);
        };
        self.least = shortest + 1;
        while let Some(span) = self.shortest().filter(|&span| span <= shortest) {
            let Some(Reverse((_, i))) = self.heap.pop() else {
                break;
            };
            cancel::check()?;
            let i = i as usize;
            debug_assert_eq!(span, self.forest.end[i] - self.from[i]);
            let last = self.forest.last[i] as usize;
            let mut at = i;
            while at < last {
                at = self.decide(at, last);
            }
            self.settle_levels();
        }
        Ok(true)
    }

    /// The shortest chosen span.
    fn shortest(&mut self) -> Option<i64> {
        while let Some(&Reverse((span, i))) = self.heap.peek() {
            let i = i as usize;
            if self.chosen[i] && self.forest.end[i] - self.from[i] == span {
                return Some(span);
            }
            self.heap.pop();
        }
        None
    }

    /// Decides anew about `i`, whose parent is settled; returns the next decision that this can
    /// concern, below `last`.
    fn decide(&mut self, i: usize, last: usize) -> usize {
        let above = self.forest.above(i);
        let from = above.map_or(0, |p| {
            if self.chosen[p] {
                self.forest.end[p]
            } else {
                self.from[p]
            }
        });
        let span = self.forest.end[i] - from;
        let (was, is) = (self.chosen[i], span >= self.least);
        let own = self.own(i);
        self.add(own, -1);
        self.from[i] = from;
        self.chosen[i] = is;
        if was != is {
            self.words[i / 64] ^= 1 << (i % 64);
            self.hash ^= self.keys.key(i);
        }
        let own = self.own(i);
        self.add(own, 1);
        self.changed.push(i as u32);
        if is {
            self.heap.push(Reverse((span, i as u32)));
        }
        if was && is {
            (self.forest.last[i] as usize).min(last)
        } else {
            i + 1
        }
    }

    /// The measures that a decision and its tails add to the current layout.
    fn own(&self, i: usize) -> Measures {
        let mut m = Measures::default();
        self.forest
            .contribute(i, self.chosen[i], self.from[i], 0, &mut m);
        m
    }

    fn add(&mut self, own: Measures, sign: i64) {
        self.sums.tokens += sign * own.tokens;
        self.sums.segments += sign * own.segments;
        self.sums.chosen += sign * own.chosen;
        self.sums.tiny += sign * own.tiny;
    }

    /// Levels of the subtrees that changed, then of the ancestors that this reaches.
    fn settle_levels(&mut self) {
        let Some(&top) = self.changed.first() else {
            return;
        };
        while let Some(i) = self.changed.pop() {
            self.levels[i as usize] = self.levels_of(i as usize);
        }
        let mut at = self.forest.above(top as usize);
        while let Some(i) = at {
            let levels = self.levels_of(i);
            if std::mem::replace(&mut self.levels[i], levels) == levels {
                break;
            }
            at = self.forest.above(i);
        }
    }

    fn levels_of(&self, i: usize) -> u32 {
        let inner = self.children.of(i).iter().map(|&c| self.levels[c as usize]);
        let inner = inner
            .max()
            .unwrap_or(0)
            .max(u32::from(self.forest.leaves[i] > 0));
        if self.chosen[i] {
            inner + 1
        } else {
            inner.max(u32::from(self.forest.own[i] > 0))
        }
    }
}
