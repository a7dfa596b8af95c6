//! The best of all layouts, proven.
//!
//! First without a price on levels: a lower bound, and the answer when levels are free. Then
//! with 1, 2, ... levels, as far as the bound leaves room for a better layout. Where rounding
//! can turn the order of near equal layouts, those within reach are compared exactly.

use super::costs::{Cost, Costs, Unit};
use super::dense::{Dense, Shape, heights, states};
use super::near::{self, Goal, Near};
use super::scoring::Weights;
use super::window::windows;
use super::{Forest, Score, family};
use crate::error::Result;

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

/// Tables of both number widths.
#[derive(Debug)]
pub(super) struct Tables {
    narrow: Dense<i64>,
    wide: Dense<i128>,
    /// Sums below this go into the narrow ones.
    pub(super) narrow_below: i128,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            narrow: Dense::default(),
            wide: Dense::default(),
            narrow_below: i128::from(i64::FAR),
        }
    }
}

/// The best layout found.
#[derive(Debug, Clone)]
pub(super) struct Best {
    pub(super) chosen: Vec<bool>,
    pub(super) score: Score,
    /// No layout has less work.
    pub(super) bound: i128,
    pub(super) optimal: bool,
}

/// Searches all layouts; `None` if even the bound takes too many states.
pub(super) fn exact(
    forest: &Forest,
    weights: &Weights,
    tables: &mut Tables,
) -> Result<Option<Best>> {
    let keep = !weights.is_linear();
    let (least, most) = weights.rounding_range();
    let found = tables.sum(forest, weights, keep, most - least)?;
    let Some(Sum {
        chosen,
        floor,
        proven,
        ..
    }) = found
    else {
        return Ok(None);
    };
    let measures = forest.measure(&chosen);
    let score = weights.score(&measures);
    let bound = (floor + least).div_euclid(i128::from(weights.modulus));
    let mut best = Best {
        chosen,
        score,
        bound: bound.min(score.work),
        optimal: proven && !keep,
    };
    if proven && keep {
        let goal = Goal {
            exact: weights,
            weights,
            price: 0,
            most_tokens: None,
            slack: weights.rounding(measures.tokens) - least,
        };
        tables.settle(forest, &goal, &mut best)?;
    }
    if best.optimal {
        best.bound = best.score.work;
    }
    Ok(Some(best))
}

/// The layout with the least sum.
pub(super) struct Sum {
    pub(super) chosen: Vec<bool>,
    /// No layout has a smaller sum.
    pub(super) floor: i128,
    /// The layout has this sum, and is the first of those that have.
    pub(super) proven: bool,
    /// Its levels, none when they are free.
    levels: Option<u32>,
    tie: Tie,
}

/// Whether another layout has the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    No,
    /// With as many levels.
    Inside,
    /// With another number of levels.
    Levels,
}

impl Tables {
    /// The least sum of `weights`, as they stand. With `keep`, the tables are ready to
    /// [`Tables::settle`] what is up to `reach` above it.
    pub(super) fn sum(
        &mut self,
        forest: &Forest,
        weights: &Weights,
        keep: bool,
        reach: i128,
    ) -> Result<Option<Sum>> {
        let unit = Unit::new(forest, weights)?;
        let (narrow, wide) = (&mut self.narrow, &mut self.wide);
        if unit.most < self.narrow_below {
            return match unit.costs(weights) {
                Some(costs) => {
                    Run::new(forest, weights, unit, costs, reach)?.sum(narrow, keep, reach)
                }
                None => Ok(None),
            };
        }
        // The work alone decides, but for ties.
        let of_work = unit.of_work();
        let mut level = None;
        if !keep
            && of_work.most < self.narrow_below
            && let Some(costs) = of_work.costs(weights)
        {
            let run = Run::new(forest, weights, of_work, costs, reach)?;
            let found = run.sum(narrow, keep, reach)?;
            match found {
                Some(sum) if sum.tie == Tie::Inside => level = Some(sum),
                Some(sum) if sum.tie == Tie::Levels => {}
                found => return Ok(found),
            }
        }
        let Some(costs) = unit.costs(weights) else {
            return Ok(None);
        };
        let run = Run::new(forest, weights, unit, costs, reach)?;
        match level {
            // The number of levels is known: only the layout is to be found again.
            Some(sum) => Ok(Some(Sum {
                chosen: run.again(wide, sum.levels)?,
                ..sum
            })),
            None => run.sum(wide, keep, reach),
        }
    }

    /// Finds the exact best among the layouts within reach of the least sum.
    pub(super) fn settle(&self, forest: &Forest, goal: &Goal<'_>, best: &mut Best) -> Result<()> {
        let unit = Unit::new(forest, goal.weights)?;
        if unit.most < self.narrow_below {
            if let Some(costs) = unit.costs(goal.weights) {
                near::settle(&Near::new(forest, goal, unit, &costs, &self.narrow), best)?;
            }
        } else if let Some(costs) = unit.costs(goal.weights) {
            near::settle(&Near::new(forest, goal, unit, &costs, &self.wide), best)?;
        }
        Ok(())
    }
}

/// One search.
struct Run<'a, T> {
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

impl<'a, T: Cost> Run<'a, T> {
    fn new(
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

    fn sum(&self, dense: &mut Dense<T>, keep: bool, reach: i128) -> Result<Option<Sum>> {
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
    fn again(&self, dense: &mut Dense<T>, levels: Option<u32>) -> Result<Vec<bool>> {
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
            let chosen = family::by_span(self.forest, 1 << shift);
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
