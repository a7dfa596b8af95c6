//! A layout with running sums, so that a changed subtree costs only its own walk.

use super::bits::has;
use super::{Forest, Measures};

/// Running measures of one layout over the decisions in tree order.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// End of the nearest chosen decision above each decision, and how many are chosen above.
    from: Vec<(i64, i64)>,
    /// Sums over the decisions before each (and over all, at the end); `depth` is the deepest
    /// segment among them. Rows without decisions are counted at the start.
    before: Vec<Measures>,
    /// Deepest segment from each decision on.
    depth_after: Vec<i64>,
    /// What a walk needs: the same as `from`, at or above each decision.
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

    /// Measures of the layout that differs inside the subtree of `decision` only.
    pub(super) fn with_subtree(&self, forest: &Forest, decision: usize, words: &[u64]) -> Measures {
        let to = forest.last[decision] as usize;
        let mut m = self.before[decision];
        walk(forest, self.from[decision], decision..to, words, &mut m);
        self.append(&mut m, to, self.before.len() - 1);
        m.depth = m.depth.max(self.depth_after[to]);
        m
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
            walk(forest, self.from[flip], flip..to, words, &mut m);
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

/// Adds what a subtree adds, given what is chosen above it.
fn walk(
    forest: &Forest,
    above: (i64, i64),
    range: std::ops::Range<usize>,
    words: &[u64],
    m: &mut Measures,
) {
    if range.len() == 1 {
        let i = range.start;
        forest.contribute(i, has(words, i), above.0, above.1, m);
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
        forest.contribute(i, chosen, from, depth, m);
        below.push(if chosen {
            (forest.end[i], depth + 1)
        } else {
            (from, depth)
        });
    }
}
