//! Updates the measures of a layout by a changed subtree, without a walk over the rest.

use super::bits::has;
use crate::layout::{Forest, Measures};

/// Numbers of segments of a layout at each depth.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    counts: Vec<i64>,
}

impl Levels {
    /// Counts the segments of a layout.
    pub(super) fn fill(&mut self, forest: &Forest, words: &[u64]) {
        let deepest = forest.depth.iter().copied().max().unwrap_or(0) as usize;
        self.counts.clear();
        self.counts.resize(deepest + 2, 0);
        self.counts[1] += forest.lone;
        let mut root = 0;
        while root < forest.len() {
            self.apply(forest, words, root, 1);
            root = forest.last[root] as usize;
        }
    }

    /// Adds (or takes away) the segments of one subtree, `times` each.
    pub(super) fn apply(&mut self, forest: &Forest, words: &[u64], decision: usize, times: i64) {
        let range = decision..forest.last[decision] as usize;
        let above = above(forest, words, decision);
        walk(forest, above, range, words, |i, chosen, _, depth| {
            let at = depth as usize + 1;
            let (own, leaves) = (forest.own[i], forest.leaves[i]);
            if chosen {
                self.counts[at] += times;
                if leaves > 0 {
                    self.counts[at + 1] += times * leaves;
                }
            } else {
                self.counts[at] += times * (own + leaves);
            }
        });
    }

    /// The deepest segment.
    pub(super) fn deepest(&self) -> i64 {
        self.counts
            .iter()
            .rposition(|&count| count > 0)
            .unwrap_or(0) as i64
    }
}

/// The measures that the subtree of a decision adds.
pub(super) fn subtree(forest: &Forest, words: &[u64], decision: usize) -> Measures {
    let mut m = Measures::default();
    let range = decision..forest.last[decision] as usize;
    let above = above(forest, words, decision);
    walk(forest, above, range, words, |i, chosen, from, depth| {
        forest.contribute(i, chosen, from, depth, &mut m);
    });
    m
}

/// End of the nearest chosen decision above one, and how many are chosen above.
fn above(forest: &Forest, words: &[u64], decision: usize) -> (i64, i64) {
    let (mut from, mut depth) = (0, 0);
    let mut at = forest.above(decision);
    while let Some(i) = at {
        if has(words, i) {
            from = from.max(forest.end[i]);
            depth += 1;
        }
        at = forest.above(i);
    }
    (from, depth)
}

/// Running measures of one layout over the decisions in tree order.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// End of the nearest chosen decision above each decision, and how many are chosen above.
    from: Vec<(i64, i64)>,
    /// Sums over the decisions before each (and over all, at the end); `depth` is the deepest
    /// segment among them. Sequences without decisions are counted at the start.
    before: Vec<Measures>,
    /// Deepest segment from each decision on.
    depth_after: Vec<i64>,
    /// Input of a walk: the same as `from`, at or above each decision.
    below: Vec<(i64, i64)>,
}

impl View {
    /// Sets the view to a layout.
    pub(super) fn fill(&mut self, forest: &Forest, words: &[u64]) {
        let n = forest.len();
        self.from.clear();
        self.before.clear();
        self.below.clear();
        self.depth_after.clear();
        self.depth_after.resize(n + 1, 0);
        let mut m = forest.lone_measures();
        for i in 0..n {
            let (from, depth) = forest.above(i).map_or((0, 0), |p| self.below[p]);
            self.from.push((from, depth));
            self.before.push(m);
            let deepest = std::mem::take(&mut m.depth);
            let chosen = has(words, i);
            forest.contribute(i, chosen, from, depth, &mut m);
            self.depth_after[i] = m.depth;
            m.depth = m.depth.max(deepest);
            self.below.push(if chosen {
                (forest.end[i], depth + 1)
            } else {
                (from, depth)
            });
        }
        self.before.push(m);
        for i in (0..n).rev() {
            self.depth_after[i] = self.depth_after[i].max(self.depth_after[i + 1]);
        }
    }

    /// Measures of the layout that differs in `flips` (ascending) only.
    pub(super) fn with_flips(&self, forest: &Forest, flips: &[usize], words: &[u64]) -> Measures {
        let mut m = self.before[flips[0]];
        let mut at = flips[0];
        for &flip in flips {
            if flip < at {
                continue; // inside a subtree that was walked already
            }
            if at < flip {
                self.append(&mut m, at, flip);
                m.depth = m.depth.max(self.deepest(forest, at, flip));
            }
            let to = forest.last[flip] as usize;
            walk(
                forest,
                self.from[flip],
                flip..to,
                words,
                |i, chosen, from, depth| {
                    forest.contribute(i, chosen, from, depth, &mut m);
                },
            );
            at = to;
        }
        self.append(&mut m, at, self.before.len() - 1);
        m.depth = m.depth.max(self.depth_after[at]);
        m
    }

    /// Adds what the decisions of a range add in this layout, but for the depth.
    fn append(&self, m: &mut Measures, from: usize, to: usize) {
        let (a, b) = (&self.before[from], &self.before[to]);
        m.tokens += b.tokens - a.tokens;
        m.segments += b.segments - a.segments;
        m.chosen += b.chosen - a.chosen;
        m.tiny += b.tiny - a.tiny;
    }

    /// Deepest segment of a range of decisions.
    fn deepest(&self, forest: &Forest, from: usize, to: usize) -> i64 {
        let of = |i: usize| {
            let mut m = Measures::default();
            let (end, depth) = self.from[i];
            let chosen = self.below[i].1 > depth;
            forest.contribute(i, chosen, end, depth, &mut m);
            m.depth
        };
        (from..to).map(of).max().unwrap_or(0)
    }
}

/// Visits a subtree: (decision, chosen, end of the nearest chosen decision above it, how many
/// are chosen above).
fn walk(
    forest: &Forest,
    above: (i64, i64),
    range: std::ops::Range<usize>,
    words: &[u64],
    mut visit: impl FnMut(usize, bool, i64, i64),
) {
    if range.len() == 1 {
        let i = range.start;
        visit(i, has(words, i), above.0, above.1);
        return;
    }
    let first = range.start;
    let mut below: Vec<(i64, i64)> = Vec::with_capacity(range.len());
    for i in range {
        let (from, depth) = if i == first {
            above
        } else {
            below[forest.parent[i] as usize - first]
        };
        let chosen = has(words, i);
        visit(i, chosen, from, depth);
        below.push(if chosen {
            (forest.end[i], depth + 1)
        } else {
            (from, depth)
        });
    }
}
