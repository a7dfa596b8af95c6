//! The dynamic programme over (decision, nearest chosen ancestor, levels left).
//!
//! The additive cost of a subtree depends on what is chosen above it only through the nearest
//! chosen ancestor and, when levels cost, through the levels left. Decisions are visited in
//! reverse tree order, so only the ancestors of the current one hold a table.

use super::costs::{Cost, Costs};
use crate::cancel;
use crate::error::Result;
use crate::layout::Forest;

/// The decision of the programme in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    Replay,
    Share,
    /// Both cost the same.
    Either,
}

/// The programme's tables. State (i, x, k): decision `i`, nearest chosen ancestor at decision
/// depth `x` (0: none), `k` levels left (1..=width; a single one without levels).
#[derive(Debug, Default)]
pub(super) struct Dense<T> {
    /// First state of each decision.
    first: Vec<usize>,
    /// The least `x` of each decision: no layout that matters has a lesser one.
    least: Vec<u32>,
    /// Levels that matter in each subtree.
    width: Vec<u32>,
    share: Vec<u64>,
    tie: Vec<u64>,
    /// Levels that each of two equal options needs: (state, replay, share), falling.
    tie_depths: Vec<(usize, u32, u32)>,
    /// Cost of each state, when asked for.
    pub(super) values: Vec<T>,
    /// Least cost of the whole forest with 1, 2, ... levels (one entry without levels).
    pub(super) root: Vec<T>,
    /// Fewest levels of a cheapest layout, without levels.
    pub(super) root_depth: u32,
    /// Decision at each depth of the current path, and its end; entry 0 stands for no ancestor.
    path: Vec<usize>,
    ends: Vec<i64>,
    /// The cost of the tokens up to each end.
    apart: Vec<T>,
    tables: Vec<Table<T>>,
    /// Tables that are not in use, kept for their memory.
    spare: Vec<Table<T>>,
}

/// Sums over the children of one decision: a sequence for each nearest chosen ancestor, the decision
/// itself last.
#[derive(Debug, Default, Clone)]
struct Table<T> {
    /// 0: no child yet.
    width: usize,
    /// Depth of the first sequence's ancestor; nearer to the root none can be the nearest.
    base: usize,
    values: Vec<T>,
    depths: Vec<u32>,
}

/// Levels that matter below and including each decision: its own and those of its subtree.
pub(super) fn heights(forest: &Forest) -> Vec<u32> {
    let mut heights = vec![0_u32; forest.len()];
    for i in (0..forest.len()).rev() {
        heights[i] = 1 + heights[i].max(u32::from(forest.leaves[i] > 0));
        if let Some(parent) = forest.above(i) {
            heights[parent] = heights[parent].max(heights[i]);
        }
    }
    heights
}

/// States of the programme with at most `levels` levels.
pub(super) fn states(forest: &Forest, shape: &Shape, levels: u32) -> u64 {
    let of = |i: usize| shape.sequences(forest, i) as u64 * u64::from(shape.heights[i].min(levels));
    (0..forest.len()).map(of).sum()
}

/// The states of a forest that matter.
pub(super) struct Shape {
    /// See [`heights`].
    pub(super) heights: Vec<u32>,
    /// See [`windows`](super::window::windows).
    pub(super) below: Vec<u32>,
}

impl Shape {
    /// The least depth of the nearest chosen ancestor of a decision.
    fn least(&self, forest: &Forest, i: usize) -> usize {
        forest
            .above(i)
            .map_or(0, |parent| self.below[parent] as usize)
    }

    /// How many nearest chosen ancestors a decision can have, none included.
    fn sequences(&self, forest: &Forest, i: usize) -> usize {
        forest.depth[i] as usize - self.least(forest, i)
    }
}

impl<T: Cost> Dense<T> {
    /// Fills the tables. `levels`: how many levels there may be; `None`: they are free, and the
    /// tables then hold the fewest levels instead, and `extra` (one number a decision, or none
    /// at all) is added where a decision is chosen.
    #[allow(clippy::too_many_arguments)] // what the programme is of, and which one
    pub(super) fn solve(
        &mut self,
        forest: &Forest,
        costs: &Costs<T>,
        shape: &Shape,
        levels: Option<u32>,
        extra: &[T],
        keep: bool,
    ) -> Result<()> {
        let n = forest.len();
        let width = |i: usize| levels.map_or(1, |levels| shape.heights[i].min(levels));
        self.width.clear();
        self.width.extend((0..n).map(width));
        self.first.clear();
        self.least.clear();
        let mut at = 0;
        for i in 0..n {
            self.first.push(at);
            self.least.push(shape.least(forest, i) as u32);
            at += shape.sequences(forest, i) * self.width[i] as usize;
        }
        for bits in [&mut self.share, &mut self.tie] {
            bits.clear();
            bits.resize(at.div_ceil(64), 0);
        }
        self.values.clear();
        if keep {
            self.values.resize(at, T::default());
        }
        self.tie_depths.clear();
        let deepest = forest.depth.iter().copied().max().unwrap_or(0) as usize;
        self.path.clear();
        self.path.resize(deepest + 1, usize::MAX);
        self.ends.clear();
        self.ends.resize(deepest + 1, 0);
        self.apart.clear();
        self.apart.resize(deepest + 1, T::default());
        self.tables.resize_with(deepest + 1, Table::default);
        for table in &mut self.tables {
            table.release(&mut self.spare);
        }
        let stride = levels.unwrap_or(1) as usize;
        let extra = |i: usize| extra.get(i).copied().unwrap_or_default();
        for i in (0..n).rev() {
            cancel::check_at(i)?;
            self.enter(forest, costs, i);
            if levels.is_some() {
                self.visit_levels(forest, costs, i, stride);
            } else {
                self.visit_free(forest, costs, i, extra(i));
            }
        }
        self.tie_depths
            .sort_unstable_by_key(|tie| std::cmp::Reverse(tie.0));
        self.finish(forest, costs);
        Ok(())
    }

    /// Puts `i` and those of its ancestors that are not there yet on the path.
    fn enter(&mut self, forest: &Forest, costs: &Costs<T>, i: usize) {
        let mut at = Some(i);
        while let Some(j) = at {
            let depth = forest.depth[j] as usize;
            if self.path[depth] == j {
                break;
            }
            self.path[depth] = j;
            self.ends[depth] = forest.end[j];
            self.apart[depth] = costs.token * T::from(forest.end[j]);
            at = forest.above(j);
        }
    }

    /// One decision when levels are free.
    fn visit_free(&mut self, forest: &Forest, costs: &Costs<T>, i: usize, extra: T) {
        let depth = forest.depth[i] as usize;
        let least = self.least[i] as usize;
        let (upper, lower) = self.tables.split_at_mut(depth);
        let (up, own) = (&mut upper[depth - 1], &mut lower[0]);
        up.renew(&mut self.spare);
        let has_children = own.width > 0;
        let leaves = u32::from(forest.leaves[i] > 0);
        let tails = u32::from(forest.leaves[i] + forest.own[i] > 0);
        let below = costs.leaves(forest, i);
        let (stored_below, stored_depth) = if has_children {
            let itself = depth - own.base;
            (
                below + own.values[itself],
                1 + leaves.max(own.depths[itself]),
            )
        } else {
            (below, 1 + leaves)
        };
        if up.width == 0 {
            up.width = 1;
            up.base = least;
            up.values.clear();
            up.values.resize(depth - least, T::default());
            up.depths.clear();
            up.depths.resize(depth - least, 0);
        }
        let first = self.first[i];
        let lines = costs.lines(forest, i, &self.ends[..depth], stored_below + extra);
        for x in least..depth {
            let (from, apart) = (self.ends[x], self.apart[x]);
            let (mut replay, share) =
                costs.at(forest, i, &lines, from, apart, x >= lines.tiny_from);
            let mut replay_depth = tails;
            if has_children && x < own.base {
                replay = T::FAR;
            } else if has_children {
                replay += own.values[x - own.base];
                replay_depth = replay_depth.max(own.depths[x - own.base]);
            }
            let state = first + x - least;
            let (value, levels) = match share.cmp(&replay) {
                std::cmp::Ordering::Less => {
                    self.share[state / 64] |= 1 << (state % 64);
                    (share, stored_depth)
                }
                std::cmp::Ordering::Greater => (replay, replay_depth),
                std::cmp::Ordering::Equal => {
                    self.tie[state / 64] |= 1 << (state % 64);
                    self.tie_depths.push((state, replay_depth, stored_depth));
                    (replay, replay_depth.min(stored_depth))
                }
            };
            if let Some(slot) = self.values.get_mut(state) {
                *slot = value;
            }
            up.values[x - least] += value;
            up.depths[x - least] = up.depths[x - least].max(levels);
        }
        own.release(&mut self.spare);
    }

    /// One decision when levels cost.
    fn visit_levels(&mut self, forest: &Forest, costs: &Costs<T>, i: usize, stride: usize) {
        let depth = forest.depth[i] as usize;
        let (upper, lower) = self.tables.split_at_mut(depth);
        let (up, own) = (&mut upper[depth - 1], &mut lower[0]);
        let width = self.width[i] as usize;
        let least = self.least[i] as usize;
        up.renew(&mut self.spare);
        up.base = least;
        up.widen(depth - least, width, stride);
        let below = costs.leaves(forest, i);
        let ends_here = own.width == 0 && forest.leaves[i] == 0;
        // Without children nothing is below, at any number of levels.
        let nothing = [T::default()];
        let (sequences, last, step) = if own.width == 0 {
            (&nothing[..], &nothing[..], 0)
        } else {
            let (sequences, last) = own.values.split_at((depth - own.base) * stride);
            (sequences, last, stride)
        };
        // Sums that no layout has stay as they are.
        let near = if own.width == 0 { least } else { own.base };
        let far = if near > least {
            vec![T::FAR; own.width]
        } else {
            Vec::new()
        };
        let inner = own.width.max(1);
        let mut state = self.first[i];
        let lines = costs.lines(forest, i, &self.ends[..depth], below);
        for x in least..depth {
            let (from, apart) = (self.ends[x], self.apart[x]);
            let (tails, share) = costs.at(forest, i, &lines, from, apart, x >= lines.tiny_from);
            let (sequence, tails) = if x < near {
                (&far[..], T::default())
            } else {
                let at = (x - near) * step;
                (&sequences[at..at + inner], tails)
            };
            let at = (x - least) * stride;
            let (sums, beyond) = up.values[at..at + up.width].split_at_mut(width);
            let mut bits = Bits::default();
            // With one level left, only a decision that every sequence ends with can be stored.
            let mut value = T::FAR.min(sequence[0] + tails);
            if ends_here {
                value = bits.choose(0, value, share);
            }
            sums[0] = T::FAR.min(sums[0] + value);
            let kept = self.values.get_mut(state..state + width);
            let kept = kept.unwrap_or_default();
            if let Some(slot) = kept.first_mut() {
                *slot = value;
            }
            for k in 1..width {
                let replay = sequence[k.min(inner - 1)] + tails;
                value = bits.choose(k % 64, replay, share + last[k - 1]).min(T::FAR);
                sums[k] = T::FAR.min(sums[k] + value);
                if let Some(slot) = kept.get_mut(k) {
                    *slot = value;
                }
                if k % 64 == 63 {
                    let done = std::mem::take(&mut bits);
                    done.store(&mut self.share, &mut self.tie, state + k - 63);
                }
            }
            bits.store(&mut self.share, &mut self.tie, state + width / 64 * 64);
            for sum in beyond {
                *sum = T::FAR.min(*sum + value);
            }
            state += width;
        }
        own.release(&mut self.spare);
    }

    fn finish(&mut self, forest: &Forest, costs: &Costs<T>) {
        let lone = costs.lone(forest);
        let table = &self.tables[0];
        self.root.clear();
        if table.width == 0 {
            self.root.push(lone);
            self.root_depth = 0;
        } else {
            self.root.extend(
                table.values[..table.width]
                    .iter()
                    .map(|&value| value + lone),
            );
            self.root_depth = table.depths.first().copied().unwrap_or(0);
        }
        self.root_depth = self.root_depth.max(u32::from(forest.lone > 0));
    }

    /// The state of a decision; more levels than matter count as those that matter.
    pub(super) fn state(&self, i: usize, x: usize, k: u32) -> usize {
        let width = self.width[i];
        let sequence = x - self.least[i] as usize;
        self.first[i] + sequence * width as usize + (k.min(width) - 1) as usize
    }

    /// Whether the ancestor at depth `x` can be the nearest chosen one of a decision.
    pub(super) fn admits(&self, i: usize, x: usize) -> bool {
        x >= self.least[i] as usize
    }

    /// Levels that matter in a decision's subtree.
    pub(super) fn levels_at(&self, i: usize) -> u32 {
        self.width[i]
    }

    fn pick(&self, state: usize) -> Pick {
        let bit = 1_u64 << (state % 64);
        if self.share[state / 64] & bit != 0 {
            Pick::Share
        } else if self.tie[state / 64] & bit != 0 {
            Pick::Either
        } else {
            Pick::Replay
        }
    }

    /// What to do in a state with `k` levels left, when a tie that cannot be resolved by the
    /// levels left stays open.
    fn resolve(&self, state: usize, k: u32, free: bool) -> Pick {
        let pick = self.pick(state);
        if !free || pick != Pick::Either {
            return pick;
        }
        let found = self.tie_depths.binary_search_by(|tie| state.cmp(&tie.0));
        match found.map(|at| self.tie_depths[at]) {
            Ok((_, _, share)) if share > k => Pick::Replay,
            Ok((_, replay, _)) if replay > k => Pick::Share,
            _ => Pick::Either,
        }
    }

    /// The cheapest layout with at most `levels` levels; of equal ones the first by sorted
    /// decisions. `free`: levels are free and `levels` is the fewest possible.
    ///
    /// At a tie, sharing comes first in that order unless nothing at all need follow. Also says
    /// whether there was a tie.
    pub(super) fn layout(
        &self,
        forest: &Forest,
        levels: u32,
        free: bool,
    ) -> Result<(Vec<bool>, bool)> {
        let n = forest.len();
        let mut chosen = vec![false; n];
        let mut tied = false;
        // Nearest chosen ancestor and levels left, below each decision.
        let mut below: Vec<(usize, u32)> = Vec::with_capacity(n);
        for i in 0..n {
            let (x, k) = forest.above(i).map_or((0, levels), |p| below[p]);
            let state = self.state_of(i, x, k, free);
            tied |= self.pick(state) == Pick::Either;
            let share = match self.resolve(state, k, free) {
                Pick::Replay => false,
                Pick::Share => true,
                Pick::Either => {
                    cancel::check()?;
                    if self.can_stop(forest, i, levels, free, &below) {
                        return Ok((chosen, true));
                    }
                    true
                }
            };
            chosen[i] = share;
            below.push(if share {
                (forest.depth[i] as usize, k.saturating_sub(1))
            } else {
                (x, k)
            });
        }
        Ok((chosen, tied))
    }

    fn state_of(&self, i: usize, x: usize, k: u32, free: bool) -> usize {
        self.state(i, x, if free { 1 } else { k.max(1) })
    }

    /// Whether sharing nothing from decision `from` on is among the cheapest.
    fn can_stop(
        &self,
        forest: &Forest,
        from: usize,
        levels: u32,
        free: bool,
        below: &[(usize, u32)],
    ) -> bool {
        let mut rest: Vec<(usize, u32)> = Vec::new();
        for i in from..forest.len() {
            let (x, k) = match forest.above(i) {
                None => (0, levels),
                Some(p) if p < from => below[p],
                Some(p) => rest[p - from],
            };
            if self.pick(self.state_of(i, x, k, free)) == Pick::Share {
                return false;
            }
            rest.push((x, k));
        }
        true
    }
}

/// The decisions in up to 64 consecutive states.
#[derive(Debug, Default)]
struct Bits {
    share: u64,
    tie: u64,
}

impl Bits {
    /// Notes the lesser of two costs and returns it.
    #[inline]
    fn choose<T: Cost>(&mut self, at: usize, replay: T, share: T) -> T {
        self.share |= u64::from(share < replay) << at;
        self.tie |= u64::from(share == replay) << at;
        replay.min(share)
    }

    /// Writes the bits from state `at` on.
    fn store(self, share: &mut [u64], tie: &mut [u64], at: usize) {
        for (words, bits) in [(share, self.share), (tie, self.tie)] {
            if bits != 0 {
                words[at / 64] |= bits << (at % 64);
                let high = bits.checked_shr(64 - (at % 64) as u32).unwrap_or(0);
                if high != 0 {
                    words[at / 64 + 1] |= high;
                }
            }
        }
    }
}

impl<T: Cost> Table<T> {
    /// Gives an unused table the memory of a spare one.
    fn renew(&mut self, spare: &mut Vec<Self>) {
        if self.width == 0
            && let Some(table) = spare.pop()
        {
            *self = table;
        }
    }

    /// Forgets the sums and hands the memory on.
    fn release(&mut self, spare: &mut Vec<Self>) {
        self.width = 0;
        if self.values.capacity() > 0 {
            spare.push(std::mem::take(self));
        }
    }

    /// Makes `sequences` sequences at least `width` wide; further levels cost what the last one does.
    fn widen(&mut self, sequences: usize, width: usize, stride: usize) {
        if self.width == 0 {
            self.values.clear();
            self.values.resize(sequences * stride, T::default());
        } else if self.width < width {
            for sequence in self.values.chunks_exact_mut(stride) {
                let last = sequence[self.width - 1];
                sequence[self.width..width].fill(last);
            }
        }
        self.width = self.width.max(width);
    }
}
