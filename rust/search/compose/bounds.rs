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
        let shortest = if ends[s] || own.shortest == i64::MAX {
            forest.end[s]
        } else {
            own.shortest
        };
        let (tokens, time) = (forest.tokens[s], forest.time[s]);
        total.time += bins as i64 * time;
        let parent = forest.parent[s];
        let at = if parent == NONE {
            count
        } else {
            parent as usize
        };
        let start = forest.end[s] - tokens;
        let leaf = own.least == 0;
        below[at].take(
            bins,
            own.tokens + bins as i64 * tokens,
            leaf,
            tokens,
            (start, shortest),
            most,
        );
    }
    let roots = &mut below[count];
    total.tokens = roots.tokens;
    total.bins = roots.bins(most).max(usize::from(!alive.is_empty()));
    total
}

/// What stands below one segment.
#[derive(Debug, Clone)]
struct Below {
    /// Children.
    least: usize,
    /// The most bins that a child needs.
    most: usize,
    /// Tokens over all bins.
    tokens: i64,
    /// Lengths of the children without any below.
    leaves: Vec<i64>,
    /// Bins of the children of which no two share one.
    apart: usize,
    /// The nearest end of a request.
    shortest: i64,
}

impl Default for Below {
    fn default() -> Self {
        Self {
            least: 0,
            most: 0,
            tokens: 0,
            leaves: Vec::new(),
            apart: 0,
            shortest: i64::MAX,
        }
    }
}

impl Below {
    fn take(
        &mut self,
        bins: usize,
        tokens: i64,
        leaf: bool,
        length: i64,
        (start, shortest): (i64, i64),
        most: i64,
    ) {
        self.least += 1;
        self.most = self.most.max(bins);
        self.tokens += tokens;
        self.shortest = self.shortest.min(shortest);
        if leaf {
            self.leaves.push(length);
        }
        // All its requests take more than half of what the bins have left below the parent.
        if 2 * (shortest - start) > most - start {
            self.apart += bins;
        }
    }

    fn bins(&self, room: i64) -> usize {
        if self.least == 0 {
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
