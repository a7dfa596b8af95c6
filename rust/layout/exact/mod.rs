//! The best of all layouts, proven.
//!
//! The layout with the least sum is found by a dynamic programme. Where rounding can turn the
//! order of near equal layouts, those within reach are compared by the exact score.

mod costs;
mod dense;
mod fits;
mod near;
mod search;
mod window;

pub(super) use costs::Unit;
pub(super) use fits::{between, fits};

use super::scoring::Weights;
use super::{Forest, Score};
use crate::error::Result;
use costs::Cost;
use dense::Dense;
use near::Goal;
use search::{Search, Sum, Tie};

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

impl Tables {
    /// The least sum of `weights`, as they stand. With `keep`, the tables are ready to
    /// [`Tables::settle`] what is up to `reach` above it.
    fn sum(
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
                    Search::new(forest, weights, unit, costs, reach)?.sum(narrow, keep, reach)
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
            let run = Search::new(forest, weights, of_work, costs, reach)?;
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
        let run = Search::new(forest, weights, unit, costs, reach)?;
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
    fn settle(&self, forest: &Forest, goal: &Goal<'_>, best: &mut Best) -> Result<()> {
        let unit = Unit::new(forest, goal.weights)?;
        if unit.most < self.narrow_below {
            near::settle(forest, goal, unit, &self.narrow, best)
        } else {
            near::settle(forest, goal, unit, &self.wide, best)
        }
    }
}
