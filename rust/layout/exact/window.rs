//! How far the nearest chosen ancestor of a decision can be: states beyond need no look.
//!
//! Where a chosen decision is followed by a path of decisions passed over, choosing one of
//! these as well saves its span in all that hangs below it but once. As soon as that is worth
//! more than it can cost (a segment, a level, segments that become tiny), no layout that is best,
//! or within reach of the best, passes all of them over.

use crate::cancel;
use crate::error::Result;
use crate::layout::Forest;
use crate::layout::scoring::Weights;

/// With fewer states than this, a window is not worth its search; tests look at small trees.
const FEW_STATES: u64 = if cfg!(any(test, feature = "small-limits")) {
    1
} else {
    1 << 16
};

/// Per decision, the least depth of the nearest chosen ancestor of what lies below it (its own
/// depth: itself). `reach` is how much worse than the best a layout that counts may be.
pub(super) fn windows(forest: &Forest, weights: &Weights, reach: i128) -> Result<Vec<u32>> {
    let mut below = vec![0; forest.len()];
    let states: u64 = forest.depth.iter().map(|&depth| u64::from(depth)).sum();
    if states < FEW_STATES || weights.token == 0 {
        return Ok(below);
    }
    // What hangs on each decision beside one child: every tail, and every other child's subtree.
    let mut beside: Vec<i64> = (0..forest.len())
        .map(|i| forest.own[i] + forest.leaves[i] - 1)
        .collect();
    for i in 0..forest.len() {
        if let Some(parent) = forest.above(i) {
            beside[parent] += 1;
        }
    }
    let level = weights.first_level.max(weights.more_levels);
    let cost = weights.segment + weights.chosen + level + reach + 2 * weights.token;
    let deepest = forest.depth.iter().copied().max().unwrap_or(0) as usize;
    // Along the path to the decision at hand, by depth; entry 0 stands for no ancestor.
    let (mut ends, mut hanging) = (vec![0; deepest + 1], vec![0; deepest + 1]);
    for i in 0..forest.len() {
        cancel::check_at(i)?;
        let depth = forest.depth[i] as usize;
        ends[depth] = forest.end[i];
        hanging[depth] = hanging[depth - 1] + beside[i];
        let mut least = forest.above(i).map_or(0, |parent| below[parent]);
        // Whether some decision from depth `x + 1` down to here is worth choosing for sure.
        let dominated = |x: usize| {
            (x + 1..=depth).any(|j| {
                let saved = weights.token * i128::from(ends[j] - ends[x]);
                let others = i128::from(hanging[depth] - hanging[j - 1]);
                saved >= weights.tiny && others * saved > (others + 2) * weights.tiny + cost
            })
        };
        while (least as usize) < depth && dominated(least as usize) {
            least += 1;
        }
        below[i] = least;
    }
    Ok(below)
}
