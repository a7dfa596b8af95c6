//! The cheapest layout under a limit on tokens: a price on tokens closes in on it, and what the
//! price cannot tell apart is compared one by one.

use super::near::Goal;
use super::{Best, Tables};
use crate::error::Result;
use crate::layout::scoring::Weights;
use crate::layout::{Forest, Measures, Score};

/// A layout that a price found.
struct SearchResult {
    chosen: Vec<bool>,
    measures: Measures,
}

/// The cheapest layout with at most `most_tokens` tokens, given the cheapest of all, which has
/// more. Full sharing is known to fit.
pub(in crate::layout) fn fits(
    forest: &Forest,
    weights: &Weights,
    tables: &mut Tables,
    cheapest: &[bool],
    most_tokens: i64,
) -> Result<Best> {
    let measured = |chosen: Vec<bool>| SearchResult {
        measures: forest.measure(&chosen),
        chosen,
    };
    let mut over = measured(cheapest.to_vec());
    let mut under = measured(vec![true; forest.len()]);
    let mut best = scored(weights, &under);
    let (least, most) = weights.rounding_range();
    loop {
        // The price at which both cost the same.
        let times = i128::from(over.measures.tokens - under.measures.tokens);
        let price = weights.sum(&under.measures) - weights.sum(&over.measures);
        let price = price.max(0);
        let Some(priced) = weights.priced(times, price) else {
            return Ok(best);
        };
        let Some(sum) = tables.sum(forest, &priced, false, 0)? else {
            return Ok(best);
        };
        // What the price gives back for the tokens allowed bounds every layout that fits.
        let floor = sum.floor - price * i128::from(most_tokens);
        let bound = (floor.div_euclid(times) + least).div_euclid(i128::from(weights.modulus));
        best.bound = best.bound.max(bound);
        let found = measured(sum.chosen);
        let here = priced.sum(&found.measures);
        if sum.proven && here < priced.sum(&under.measures).min(priced.sum(&over.measures)) {
            if found.measures.tokens > most_tokens {
                over = found;
            } else {
                keep_better(&mut best, scored(weights, &found));
                under = found;
            }
            continue;
        }
        keep_better(&mut best, scored(weights, &under));
        if sum.proven {
            let leader = weights.sum(&forest.measure(&best.chosen)) + most - least;
            let slack = leader * times + price * i128::from(most_tokens) - sum.floor;
            let again = tables.sum(forest, &priced, true, slack)?;
            if again.is_some_and(|again| again.proven) {
                let goal = Goal {
                    exact: weights,
                    weights: &priced,
                    price,
                    most_tokens: Some(most_tokens),
                    slack,
                };
                tables.settle(forest, &goal, &mut best)?;
            }
        }
        best.bound = if best.optimal {
            best.score.work
        } else {
            best.bound.min(best.score.work)
        };
        return Ok(best);
    }
}

/// The layout that a price on tokens finds between two others, the first of more work and fewer
/// tokens: at the price at which both cost the same it costs less. None where no layout does.
pub(in crate::layout) fn between(
    forest: &Forest,
    weights: &Weights,
    tables: &mut Tables,
    (under, over): (&[bool], &[bool]),
) -> Result<Option<Vec<bool>>> {
    let (under, over) = (forest.measure(under), forest.measure(over));
    let times = i128::from(over.tokens - under.tokens);
    let price = weights.sum(&under) - weights.sum(&over);
    if times <= 0 || price <= 0 {
        return Ok(None);
    }
    let Some(priced) = weights.priced(times, price) else {
        return Ok(None);
    };
    let found = tables.sum(forest, &priced, false, 0)?.map(|sum| sum.chosen);
    let ends = priced.sum(&under).min(priced.sum(&over));
    Ok(found.filter(|chosen| priced.sum(&forest.measure(chosen)) < ends))
}

fn scored(weights: &Weights, found: &SearchResult) -> Best {
    Best {
        chosen: found.chosen.clone(),
        score: weights.score(&found.measures),
        bound: 0,
        optimal: false,
    }
}

fn keep_better(best: &mut Best, other: Best) {
    let list = |best: &Best| -> Vec<usize> {
        (0..best.chosen.len()).filter(|&i| best.chosen[i]).collect()
    };
    let key = |best: &Best| -> (Score, Vec<usize>) { (best.score, list(best)) };
    if key(&other) < key(best) {
        *best = Best {
            bound: best.bound,
            ..other
        };
    }
}
