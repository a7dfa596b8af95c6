//! The layout with the least sum, over all numbers of levels.
//!
//! First without a price on levels: a lower bound, and the answer when levels are free. Then
//! with 1, 2, ... levels, as far as the bound leaves room for a better layout.

use super::costs::{Cost, Costs, Unit};
use super::dense::{Dense, Shape, heights, states};
use super::window::windows;
use crate::error::Result;
use crate::layout::Forest;
use crate::layout::scoring::Weights;

/// States of the programme that a proof may take, without and with levels.
const MOST_FREE: u64 = 1 << 27;
const MOST_LEVELS: u64 = 1 << 25;

/// Charges along paths that are tried for a proof.
const ROUNDS: i128 = 6;

/// So many states are cheaper than a look for a better bound; tests look on small trees.
const FEW_STATES: u64 = if cfg!(any(test, feature = "small-limits")) {
    1
} else {
    1 << 17
};

/// The layout with the least sum.
pub(super) struct Sum {
    pub(super) chosen: Vec<bool>,
    /// No layout has a smaller sum.
    pub(super) floor: i128,
    /// The layout has this sum, and is the first of those that have.
    pub(super) proven: bool,
    /// Its levels, none when they are free.
    pub(super) levels: Option<u32>,
    pub(super) tie: Tie,
}

/// Whether another layout has the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    No,
    /// With as many levels.
    Inside,
    /// With another number of levels.
    Levels,
}

/// One search.
pub(super) struct Search<'a, T> {
    forest: &'a Forest,
    weights: &'a Weights,
    unit: Unit,
    costs: Costs<T>,
    shape: Shape,
    /// Levels that matter at all.
    deepest: u32,
}

/// The best sum found: its key, levels and layout.
struct Leader {
    key: i128,
    levels: u32,
    chosen: Vec<bool>,
    tie: Tie,
}

impl<'a, T: Cost> Search<'a, T> {
    pub(super) fn new(
        forest: &'a Forest,
        weights: &'a Weights,
        unit: Unit,
        costs: Costs<T>,
        reach: i128,
    ) -> Result<Self> {
        let heights = heights(forest);
        let roots = (0..forest.len()).filter(|&i| forest.above(i).is_none());
        let deepest = roots.map(|i| heights[i]).max().unwrap_or(1);
        Ok(Self {
            forest,
            weights,
            unit,
            costs,
            shape: Shape {
                heights,
                below: windows(forest, weights, reach)?,
            },
            deepest,
        })
    }

    pub(super) fn sum(&self, dense: &mut Dense<T>, keep: bool, reach: i128) -> Result<Option<Sum>> {
        if states(self.forest, &self.shape, 1) > MOST_FREE {
            return Ok(None);
        }
        let free = self.weights.levels_are_free();
        let forest = self.forest;
        dense.solve(forest, &self.costs, &self.shape, None, &[], keep && free)?;
        let floor: i128 = dense.root[0].into();
        let (chosen, tied) = dense.layout(forest, dense.root_depth, true)?;
        let leader = Leader {
            key: floor,
            levels: dense.root_depth,
            chosen,
            tie: if tied { Tie::Inside } else { Tie::No },
        };
        let (leader, floor) = if free {
            (leader, floor)
        } else {
            let reach = if keep { self.unit.slack(reach) } else { 0 };
            self.by_levels(dense, leader, floor, keep, reach)?
        };
        Ok(Some(Sum {
            chosen: leader.chosen,
            floor: self.unit.work(floor),
            proven: floor >= leader.key,
            levels: (!free).then_some(leader.levels),
            tie: leader.tie,
        }))
    }

    /// The layout with so many levels, known to be the best number; of equal ones, the first.
    pub(super) fn again(&self, dense: &mut Dense<T>, levels: Option<u32>) -> Result<Vec<bool>> {
        let forest = self.forest;
        dense.solve(forest, &self.costs, &self.shape, levels, &[], false)?;
        let (most, free) = match levels {
            Some(levels) => (levels, false),
            None => (dense.root_depth, true),
        };
        Ok(dense.layout(forest, most, free)?.0)
    }

    /// The most levels of a range that a proof has states for.
    fn allowed(&self, least: u32, most: u32) -> Option<u32> {
        let fits = |levels: u32| states(self.forest, &self.shape, levels) <= MOST_LEVELS;
        let (mut low, mut high) = (least, most + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low > least).then(|| low - 1)
    }

    /// Key of the cost of `levels` levels.
    fn level_key(&self, levels: u32) -> i128 {
        self.unit.key(self.weights.levels(i64::from(levels)), 0, 0)
    }

    /// Improves `best` by layouts that share every span of at least some length.
    fn by_spans(&self, best: &mut Leader) {
        for shift in 0..16 {
            let chosen = self.forest.by_span(1 << shift);
            let measures = self.forest.measure(&chosen);
            let work = self.weights.sum(&measures);
            let key = self.unit.key(work, measures.tokens, measures.segments);
            if key < best.key {
                *best = Leader {
                    key,
                    levels: measures.depth as u32,
                    chosen,
                    tie: Tie::No,
                };
            }
            if measures.chosen == 0 {
                break;
            }
        }
    }

    /// Looks for a proof with levels charged along paths: each chosen decision of a path is one
    /// level of some row, so with the price of a level for each the cost of no layout is
    /// overstated. The answer is the best of all where the charge is right; otherwise `best` may
    /// have been improved. Several paths share the price.
    fn by_paths(&self, dense: &mut Dense<T>, best: &mut Leader) -> Result<Option<Leader>> {
        let (forest, weights) = (self.forest, self.weights);
        let price = weights.first_level.min(weights.more_levels);
        // The first level may cost more, which every layout pays that has more than one.
        let bonus = self.unit.key_below(weights.first_level - price);
        // Rows end with such a decision, and one that is chosen has nothing below it.
        let ends_here = |i: usize| forest.leaves[i] == 0 && forest.last[i] as usize == i + 1;
        let mut passes = vec![0_i128; forest.len()];
        let mut chosen = best.chosen.clone();
        for rounds in 1..=ROUNDS {
            let mut at = Some(self.deepest_path(&chosen));
            while let Some(i) = at {
                passes[i] += 1;
                at = forest.above(i);
            }
            let charge = |i: usize| {
                let share = if ends_here(i) { 0 } else { price * passes[i] };
                T::try_from(self.unit.key_below(share / rounds)).unwrap_or_default()
            };
            let extra: Vec<T> = (0..forest.len()).map(charge).collect();
            dense.solve(forest, &self.costs, &self.shape, None, &extra, false)?;
            let floor: i128 = dense.root[0].into();
            let (found, tied) = dense.layout(forest, dense.root_depth, true)?;
            let measures = forest.measure(&found);
            let work = weights.sum(&measures);
            let key = self.unit.key(work, measures.tokens, measures.segments);
            let leader = Leader {
                key,
                levels: measures.depth as u32,
                chosen: found,
                tie: Tie::No,
            };
            if key == floor + bonus {
                if bonus > 0 && self.single_level(dense)? <= key {
                    return Ok(None);
                }
                // Of all that cost as much by this charge, it has the fewest levels and comes
                // first; those that really cost as much are among them.
                let first = !tied || self.unit.is_full();
                let tie = if first { Tie::No } else { Tie::Levels };
                return Ok(Some(Leader { tie, ..leader }));
            }
            chosen.clone_from(&leader.chosen);
            if key < best.key {
                *best = leader;
            }
        }
        Ok(None)
    }

    /// The least key with a single level.
    fn single_level(&self, dense: &mut Dense<T>) -> Result<i128> {
        let one = Some(1);
        dense.solve(self.forest, &self.costs, &self.shape, one, &[], false)?;
        Ok(dense.root[0].into())
    }

    /// The last decision of a path that has most levels in a layout.
    fn deepest_path(&self, chosen: &[bool]) -> usize {
        let forest = self.forest;
        let mut above: Vec<u32> = Vec::with_capacity(forest.len());
        let mut deepest = (0, None);
        for (i, &chosen) in chosen.iter().enumerate() {
            let depth = forest.above(i).map_or(0, |p| above[p]) + u32::from(chosen);
            above.push(depth);
            if depth > deepest.0 {
                deepest = (depth, Some(i));
            }
        }
        // Beyond it, on to where most decisions follow one another.
        let mut at = deepest.1.unwrap_or(0);
        loop {
            let mut longest = None;
            let mut child = at + 1;
            while child < forest.last[at] as usize {
                let height = self.shape.heights[child];
                if longest.is_none_or(|(most, _)| height > most) {
                    longest = Some((height, child));
                }
                child = forest.last[child] as usize;
            }
            match longest {
                Some((_, child)) => at = child,
                None => return at,
            }
        }
    }

    /// The best over all numbers of levels, and a key that no layout is below: its own, unless
    /// a proof takes too many states. The tables are left as they are for the most levels that
    /// were tried.
    fn by_levels(
        &self,
        dense: &mut Dense<T>,
        free: Leader,
        floor: i128,
        keep: bool,
        reach: i128,
    ) -> Result<(Leader, i128)> {
        let forest = self.forest;
        let mut best = free;
        let depth = forest.measure(&best.chosen).depth as u32;
        best.levels = depth;
        best.key = floor + self.level_key(depth);
        // With more levels than this the bound alone is beaten.
        let useful = |best: &Leader| {
            let fits = |&levels: &u32| floor + self.level_key(levels) <= best.key + reach;
            (1..=self.deepest).rev().find(fits).unwrap_or(1)
        };
        if states(forest, &self.shape, useful(&best)) > FEW_STATES {
            self.by_spans(&mut best);
            if !keep && let Some(proven) = self.by_paths(dense, &mut best)? {
                let key = proven.key;
                return Ok((proven, key));
            }
        }
        let mut tried = 0;
        loop {
            let wanted = useful(&best);
            if wanted <= tried {
                let key = best.key;
                return Ok((best, key));
            }
            // What the states allow, if they do not allow a proof.
            let next = self.allowed(tried + 1, wanted);
            let Some(next) = next.filter(|&next| next == wanted || tried == 0) else {
                let beyond = floor + self.level_key(tried + 1);
                let lowest = beyond.min(best.key);
                return Ok((best, lowest));
            };
            dense.solve(forest, &self.costs, &self.shape, Some(next), &[], keep)?;
            for (k, &value) in dense.root.iter().enumerate() {
                let levels = k as u32 + 1;
                let key = value.into() + self.level_key(levels);
                let fewer = key == best.key && levels < best.levels;
                if key < best.key || fewer || (key == best.key && levels == best.levels) {
                    let (chosen, tied) = dense.layout(forest, levels, false)?;
                    best = Leader {
                        key,
                        levels,
                        chosen,
                        tie: match (fewer, tied) {
                            (true, _) => Tie::Levels,
                            (false, true) => Tie::Inside,
                            (false, false) => Tie::No,
                        },
                    };
                } else if key == best.key {
                    best.tie = Tie::Levels;
                }
            }
            tried = next;
        }
    }
}
