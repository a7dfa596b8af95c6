//! The decisions of a tree, without its sequences: what the searches walk.

use crate::error::{Error, Result};
use crate::segments::NONE;
use crate::tree::Tree;

/// Packed sequences longer than this are refused: scores stay inside 128 bits.
const MOST_TOKENS: i64 = 1 << 48;

/// The numbers of a layout that scores read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measures {
    /// Packed tokens.
    pub tokens: i64,
    /// Packed segments.
    pub segments: i64,
    /// Chosen decisions.
    pub chosen: i64,
    /// Segments on the longest path.
    pub depth: i64,
    /// Segments shorter than the length the forest was built for.
    pub tiny: i64,
}

/// Decisions in tree order (parents first, subtrees contiguous). A sequence that runs through no
/// further decision is a *tail*: it leaves the decision (a leaf of the tree), or ends with it.
#[derive(Debug, Clone, Default)]
pub struct Forest {
    /// Tree segment of each decision.
    pub tree_segment: Vec<u32>,
    /// Parent decision, [`NONE`] for a root.
    pub parent: Vec<u32>,
    /// One past the last position.
    pub end: Vec<i64>,
    /// 1 at a root.
    pub depth: Vec<u32>,
    /// One past the last decision of the subtree.
    pub last: Vec<u32>,
    /// Sequences that end with the decision.
    pub own: Vec<i64>,
    /// Sequences that leave the decision for a leaf.
    pub leaves: Vec<i64>,
    /// Sum of those sequences' lengths.
    pub leaf_tokens: Vec<i64>,
    /// Segments shorter than this are tiny; 0: none is.
    pub tiny_below: i64,
    /// Lengths of the leaves that can be tiny: `near[near_offsets[i]..near_offsets[i + 1]]`, ascending.
    pub near_offsets: Vec<u32>,
    /// See `near_offsets`.
    pub near: Vec<i64>,
    /// Sequences that share nothing.
    pub lone: i64,
    /// Their tokens.
    pub lone_tokens: i64,
    /// The number of tiny ones.
    pub lone_tiny: i64,
    /// Tokens without any sharing.
    pub unshared_tokens: i64,
    /// Sequences.
    pub sequences: i64,
}

impl Forest {
    /// The decisions of `tree`.
    pub fn new(tree: &Tree, tiny_below: i64) -> Result<Self> {
        let mut forest = Self::default();
        forest.rebuild(tree, tiny_below)?;
        Ok(forest)
    }

    /// Like [`Forest::new`], in the memory of an earlier forest.
    pub fn rebuild(&mut self, tree: &Tree, tiny_below: i64) -> Result<()> {
        self.clear();
        self.tiny_below = tiny_below;
        let segments = tree.parent.len();
        // The decision that each tree segment is, or that its parent is.
        let mut decision = vec![NONE; segments];
        for s in 0..segments {
            let parent = tree.parent[s];
            let above = if parent == NONE {
                NONE
            } else {
                decision[parent as usize]
            };
            let end = tree.end[s];
            if tree.count[s] >= 2 {
                let index = self.len() as u32;
                decision[s] = index;
                self.open(
                    s as u32,
                    above,
                    end,
                    tree.depth[s],
                    i64::from(tree.count[s]),
                );
                if above != NONE {
                    self.own[above as usize] -= i64::from(tree.count[s]);
                }
            } else if above == NONE {
                self.lone += 1;
                self.lone_tokens = add(self.lone_tokens, end)?;
                self.lone_tiny += i64::from(end < tiny_below);
            } else {
                let above = above as usize;
                self.own[above] -= 1;
                self.leaves[above] += 1;
                self.leaf_tokens[above] = add(self.leaf_tokens[above], end)?;
            }
        }
        self.close(tree, &decision);
        self.count()
    }

    fn open(&mut self, segment: u32, parent: u32, end: i64, depth: u32, sequences: i64) {
        self.tree_segment.push(segment);
        self.parent.push(parent);
        self.end.push(end);
        self.depth.push(depth);
        self.own.push(sequences);
        self.leaves.push(0);
        self.leaf_tokens.push(0);
        self.last.push(0);
    }

    /// Subtrees and near leaves, once all decisions are known.
    fn close(&mut self, tree: &Tree, decision: &[u32]) {
        for i in (0..self.len()).rev() {
            let last = self.last[i].max(i as u32 + 1);
            self.last[i] = last;
            if let Some(parent) = self.above(i) {
                self.last[parent] = self.last[parent].max(last);
            }
        }
        self.near_offsets.resize(self.len() + 1, 0);
        if self.tiny_below == 0 {
            return;
        }
        let mut pairs = Vec::new();
        for (s, &parent) in tree.parent.iter().enumerate() {
            if tree.count[s] >= 2 || parent == NONE {
                continue;
            }
            let above = decision[parent as usize] as usize;
            if tree.end[s] - self.end[above] < self.tiny_below {
                pairs.push((above as u32, tree.end[s]));
            }
        }
        pairs.sort_unstable();
        for &(above, length) in &pairs {
            self.near_offsets[above as usize + 1] += 1;
            self.near.push(length);
        }
        for i in 0..self.len() {
            self.near_offsets[i + 1] += self.near_offsets[i];
        }
    }

    fn count(&mut self) -> Result<()> {
        let (mut tokens, mut sequences) = (self.lone_tokens, self.lone);
        for i in 0..self.len() {
            let own = self.own[i]
                .checked_mul(self.end[i])
                .ok_or(Error::Overflow("the number of tokens"))?;
            tokens = add(add(tokens, own)?, self.leaf_tokens[i])?;
            sequences += self.own[i] + self.leaves[i];
        }
        if tokens > MOST_TOKENS {
            return Err(Error::Overflow("the number of tokens"));
        }
        self.unshared_tokens = tokens;
        self.sequences = sequences;
        Ok(())
    }

    fn clear(&mut self) {
        for column in [&mut self.tree_segment, &mut self.parent, &mut self.depth] {
            column.clear();
        }
        for column in [&mut self.last, &mut self.near_offsets] {
            column.clear();
        }
        for column in [&mut self.end, &mut self.own, &mut self.leaves] {
            column.clear();
        }
        for column in [&mut self.leaf_tokens, &mut self.near] {
            column.clear();
        }
        (self.lone, self.lone_tokens, self.lone_tiny) = (0, 0, 0);
    }

    /// Number of decisions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.len()
    }

    /// True without decisions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.is_empty()
    }

    /// The parent decision.
    #[must_use]
    pub fn above(&self, i: usize) -> Option<usize> {
        let parent = self.parent[i];
        (parent != NONE).then_some(parent as usize)
    }

    /// Lengths of the leaves of decision `i` that can be tiny, ascending.
    #[must_use]
    pub fn near_leaves(&self, i: usize) -> &[i64] {
        &self.near[self.near_offsets[i] as usize..self.near_offsets[i + 1] as usize]
    }

    /// Leaves of decision `i` that are tiny when they are replayed from `from`.
    #[must_use]
    pub fn tiny_leaves(&self, i: usize, from: i64) -> i64 {
        let near = self.near_leaves(i);
        match near.first() {
            Some(&first) if first - from < self.tiny_below => {
                near.partition_point(|&length| length - from < self.tiny_below) as i64
            }
            _ => 0,
        }
    }

    /// The measures that decision `i` itself and its tails add, below a chosen end `from` at `depth`
    /// chosen segments.
    #[inline]
    pub(super) fn contribute(
        &self,
        i: usize,
        chosen: bool,
        from: i64,
        depth: i64,
        m: &mut Measures,
    ) {
        let end = self.end[i];
        let (start, leaf_depth) = if chosen {
            m.tokens += end - from;
            m.segments += 1;
            m.chosen += 1;
            m.tiny += i64::from(end - from < self.tiny_below);
            m.depth = m.depth.max(depth + 1);
            (end, depth + 2)
        } else {
            let own = self.own[i];
            if own > 0 {
                m.tokens += own * (end - from);
                m.segments += own;
                m.tiny += own * i64::from(end - from < self.tiny_below);
                m.depth = m.depth.max(depth + 1);
            }
            (from, depth + 1)
        };
        let leaves = self.leaves[i];
        if leaves > 0 {
            m.tokens += self.leaf_tokens[i] - leaves * start;
            m.segments += leaves;
            m.tiny += self.tiny_leaves(i, start);
            m.depth = m.depth.max(leaf_depth);
        }
    }

    /// The measures that sequences without any decision add.
    pub(super) fn lone_measures(&self) -> Measures {
        Measures {
            tokens: self.lone_tokens,
            segments: self.lone,
            chosen: 0,
            depth: i64::from(self.lone > 0),
            tiny: self.lone_tiny,
        }
    }

    /// The layout that shares every span of at least `least` tokens.
    pub(super) fn by_span(&self, least: i64) -> Vec<bool> {
        let mut below = vec![0; self.len()];
        let mut choose = |i: usize| {
            let from = self.above(i).map_or(0, |p| below[p]);
            let chosen = self.end[i] - from >= least;
            below[i] = if chosen { self.end[i] } else { from };
            chosen
        };
        (0..self.len()).map(&mut choose).collect()
    }

    /// Measures of the layout that chooses `chosen` (one flag a decision).
    #[must_use]
    pub fn measure(&self, chosen: &[bool]) -> Measures {
        let mut m = self.lone_measures();
        // End of the nearest chosen segment at or above each decision, and how many are chosen.
        let mut below: Vec<(i64, i64)> = Vec::with_capacity(self.len());
        for (i, &chosen) in chosen.iter().enumerate() {
            let (from, depth) = self.above(i).map_or((0, 0), |p| below[p]);
            self.contribute(i, chosen, from, depth, &mut m);
            below.push(if chosen {
                (self.end[i], depth + 1)
            } else {
                (from, depth)
            });
        }
        m
    }
}

fn add(a: i64, b: i64) -> Result<i64> {
    a.checked_add(b)
        .ok_or(Error::Overflow("the number of tokens"))
}
