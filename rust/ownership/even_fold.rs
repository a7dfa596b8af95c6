//! An even share of chunks in at most two ranges a rank.
//!
//! Later chunks attend more keys, so a rank with an even share in one range is slow where it is
//! late. Ranks are put in blocks: those of a block fold its chunks, each with an early and a late
//! slab. A dynamic programme chooses the blocks by the true times of their ranks.

use super::bounds::time_bound;
use super::fastest::proven;
use super::profiled::Span;
use super::{Asked, Ownership, Workspace, even_cuts, part_of_each, spans_of};
use crate::cancel;
use crate::error::Result;

/// Ranks of a block at most.
const BLOCK: usize = 16;
/// Beyond so many ranks no block is tried, and each rank keeps one range.
const MOST_RANKS: usize = 256;

/// The method `even_fold`; the reference's answer for a workload profile, or where some rank has
/// no chunk.
pub(super) fn own(asked: &Asked<'_>, work: &mut Workspace) -> Result<Ownership> {
    let (chunks, ranks) = (work.pairs.len(), asked.ranks);
    if asked.settings.profile.is_some() || chunks < ranks {
        return Ok(work.today(asked)?.clone());
    }
    let mut cuts = Vec::new();
    even_cuts(chunks, ranks, &mut cuts);
    let (plan, owners) = work.best_stages(asked, |work| fold_blocks(asked, work, &cuts))?;
    let made = work.made_of("even_fold".to_owned(), asked, owners, &plan);
    let bound = time_bound(asked.settings, &work.pairs, ranks, made.most_tokens);
    Ok(Ownership {
        contiguous: part_of_each(&cuts),
        bound,
        optimal: bound.is_some_and(|bound| proven(made.score, bound)),
        ..made
    })
}

/// The owners under the best blocks, for the number of stages at hand.
fn fold_blocks(asked: &Asked<'_>, work: &mut Workspace, cuts: &[u32]) -> Result<Vec<u32>> {
    let ranks = asked.ranks;
    let base = part_of_each(cuts);
    if ranks > MOST_RANKS {
        return Ok(base);
    }
    let Workspace { pairs, search, .. } = work;
    let evaluator = &mut search.evaluator;
    let spans = spans_of(&base);
    evaluator.lay_spans(&spans, ranks);
    let fetches: Vec<Vec<(u32, u32)>> = (0..ranks)
        .map(|rank| evaluator.count_spans(rank, &spans, pairs))
        .collect();
    let mut least = vec![f64::INFINITY; ranks + 1];
    let mut from = vec![0; ranks + 1];
    least[0] = 0.0;
    for last in 1..=ranks {
        cancel::check()?;
        for first in (last.saturating_sub(BLOCK)..last).rev() {
            let Some(spans) = folded(cuts, first, last) else {
                continue;
            };
            let block = (first, last);
            let time = evaluator.slowest_of(block, &spans, &fetches, pairs, asked.settings);
            let slowest = if time > least[first] {
                time
            } else {
                least[first]
            };
            if slowest < least[last] {
                (least[last], from[last]) = (slowest, first);
            }
        }
    }
    let mut owners = base;
    let mut last = ranks;
    while last > 0 {
        let first = from[last];
        for span in folded(cuts, first, last).unwrap_or_default() {
            if cuts[first] <= span.low && span.high <= cuts[last] {
                owners[span.low as usize..span.high as usize].fill(span.rank);
            }
        }
        last = first;
    }
    Ok(owners)
}

/// Spans of all chunks with the ranks `first..last` folded; none where they have too few chunks.
fn folded(cuts: &[u32], first: usize, last: usize) -> Option<Vec<Span>> {
    let ranks = cuts.len() - 1;
    let block = last - first;
    let mut spans: Vec<Span> = Vec::with_capacity(ranks + block);
    let mut push = |low: u32, high: u32, rank: usize| match spans.last_mut() {
        Some(previous) if previous.rank as usize == rank => previous.high = high,
        _ => spans.push(Span {
            low,
            high,
            rank: rank as u32,
        }),
    };
    for rank in 0..first {
        push(cuts[rank], cuts[rank + 1], rank);
    }
    let chunks = (cuts[last] - cuts[first]) as usize;
    if block == 1 {
        push(cuts[first], cuts[last], first);
    } else if chunks < 2 * block {
        return None;
    } else {
        let (share, more) = (chunks / (2 * block), chunks % (2 * block));
        let mut low = cuts[first];
        for slab in 0..2 * block {
            // The order in which slabs take one more: the early ones, then the late ones from the
            // end, so that no rank has two more before all have one.
            let turn = if slab < block {
                slab
            } else {
                3 * block - 1 - slab
            };
            let high = low + (share + usize::from(turn < more)) as u32;
            push(low, high, first + slab.min(2 * block - 1 - slab));
            low = high;
        }
    }
    for rank in last..ranks {
        push(cuts[rank], cuts[rank + 1], rank);
    }
    Some(spans)
}
