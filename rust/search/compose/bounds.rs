//! Bounds of any way of putting atoms into bins of at most so many packed tokens.

use super::super::forest::Forest;
use crate::balance::fewest_parts;
use crate::segments::NONE;

/// What no order beats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Bins.
    pub(super) bins: usize,
    /// Packed tokens of all bins.
    pub(super) tokens: i64,
    /// Picoseconds of all bins.
    pub(super) time: i64,
}

/// From the leaves up: a segment stands in as many bins as what is below it needs beside it.
/// `alive` are the requests to be placed.
pub(super) fn bounds(forest: &Forest, alive: &[u32], most: i64) -> Bounds {
    let count = forest.len();
    let mut live = vec![false; count];
    let mut ends = vec![false; count];
    for &request in alive {
        for (i, s) in forest.path(request).enumerate() {
            ends[s as usize] |= i == 0;
            if live[s as usize] && i > 0 {
                break;
            }
            live[s as usize] = true;
        }
    }
    let mut below = vec![Below::default(); count + 1];
    let mut total = Bounds::default();
    for s in (0..count).rev().filter(|&s| live[s]) {
        let own = std::mem::take(&mut below[s]);
        let bins = own.bins(most - forest.end[s]).max(1);
        let (tokens, parent) = (forest.tokens[s], forest.parent[s]);
        let start = forest.end[s] - tokens;
        let shortest = own.shortest.filter(|_| !ends[s]).unwrap_or(forest.end[s]);
        total.time += bins as i64 * forest.time[s];
        let above = &mut below[if parent == NONE {
            count
        } else {
            parent as usize
        }];
        above.children += 1;
        above.most = above.most.max(bins);
        above.tokens += own.tokens + bins as i64 * tokens;
        above.shortest = Some(above.shortest.map_or(shortest, |other| other.min(shortest)));
        if own.children == 0 {
            above.leaves.push(tokens);
        }
        // All its requests take more than half of what the bins have left below the parent.
        if 2 * (shortest - start) > most - start {
            above.apart += bins;
        }
    }
    let roots = &mut below[count];
    total.tokens = roots.tokens;
    total.bins = roots.bins(most).max(usize::from(!alive.is_empty()));
    total
}

/// What stands below one segment.
#[derive(Debug, Clone, Default)]
struct Below {
    /// Children.
    children: usize,
    /// The most bins that a child needs.
    most: usize,
    /// Tokens over all bins.
    tokens: i64,
    /// Lengths of the children without any below.
    leaves: Vec<i64>,
    /// Bins of the children of which no two share one.
    apart: usize,
    /// The nearest end of a request.
    shortest: Option<i64>,
}

impl Below {
    fn bins(&self, room: i64) -> usize {
        if self.children == 0 {
            return 1;
        }
        let mut bins = self.most.max(self.apart);
        if room > 0 {
            bins = bins
                .max(self.tokens.div_euclid(room) as usize + usize::from(self.tokens % room > 0));
            if self.leaves.iter().all(|&length| length <= room) {
                let mut leaves = self.leaves.clone();
                leaves.sort_unstable_by(|a, b| b.cmp(a));
                bins = bins.max(fewest_parts(&leaves, room));
            }
        }
        bins
    }
}
