//! The packed row as a forest in walk order, with what placement asks of it.
//!
//! Everything is indexed by *position*: roots in order, depth first, children in order. Packed
//! rows made by this crate are in that order already; others are permuted once.

use super::{KERNEL_CHUNK, RecurrentSettings};
use crate::assign::Assignment;
use crate::error::Result;
use crate::interrupt::Ticker;
use crate::segments::{NONE, Segments};

/// A segment that may be chained, and how it would be cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Legal {
    /// Position of the segment.
    pub(super) at: u32,
    /// Tokens of its longest shard.
    pub(super) longest: i64,
    /// Tokens that change rank if it is chained.
    pub(super) cross: i64,
}

/// Segments of one depth inside a subtree: the longest, and how many.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    pub(super) depth: u32,
    pub(super) count: i64,
    pub(super) longest: i64,
}

/// See the module. Reused from call to call.
#[derive(Debug, Default)]
pub(super) struct Forest {
    pub(super) ranks: usize,
    /// One more than the largest depth.
    pub(super) levels: usize,
    /// The largest subtree, in tokens, that one owner takes whole.
    pub(super) limit: i64,
    /// Packed start of each position, for the keys of a tie.
    pub(super) start: Vec<i64>,
    pub(super) length: Vec<i64>,
    pub(super) depth: Vec<u32>,
    /// Position of the parent, `NONE` at a root.
    pub(super) parent: Vec<u32>,
    /// One past the last position of the subtree.
    pub(super) end: Vec<u32>,
    /// Tokens of the subtree.
    pub(super) subtree: Vec<i64>,
    /// Attention tokens of the segment per rank, C per position.
    pub(super) counts: Vec<i64>,
    /// The same of the whole subtree.
    pub(super) subtree_counts: Vec<i64>,
    /// Segments that may be chained, in segment order.
    pub(super) legal: Vec<Legal>,
    /// Index into `legal` of each position, `NONE` where it may not be chained.
    pub(super) legal_at: Vec<u32>,
    /// C shard lengths per entry of `legal`.
    shards: Vec<i64>,
    /// Per position: index of the largest taken-whole subtree that begins there, or `NONE`.
    pub(super) unit: Vec<u32>,
    /// Levels of unit `u`: `unit_levels[unit_first[u]..unit_first[u + 1]]`.
    unit_first: Vec<u32>,
    unit_levels: Vec<Level>,
    /// Exchange milliseconds of unit `u` on each rank.
    unit_exchange: Vec<f64>,
    /// Segment of each position and back; empty when they are the same.
    segment_of: Vec<u32>,
    position_of: Vec<u32>,
    scratch: Vec<u32>,
}

impl Forest {
    /// Takes in a packed row and its attention assignment, both already checked.
    pub(super) fn fill(
        &mut self,
        segments: &Segments,
        assignment: &Assignment,
        settings: &RecurrentSettings,
        ticker: &mut Ticker,
    ) -> Result<()> {
        let tokens = segments.tokens();
        self.ranks = assignment.ranks;
        // A float quotient, truncated: it rounds beyond 2^53 tokens as the contract does.
        self.limit = ((tokens as f64 / self.ranks as f64) as i64).max(1);
        self.order(segments);
        ticker.work(segments.len() as u64)?;
        self.shape(segments);
        ticker.work((segments.len() * self.ranks) as u64)?;
        self.count(assignment);
        self.cut(assignment, ticker)?;
        ticker.work(segments.len() as u64)?;
        self.collect_units(settings);
        Ok(())
    }

    /// Number of positions.
    pub(super) fn len(&self) -> usize {
        self.length.len()
    }

    /// The segment at a position.
    pub(super) fn segment(&self, position: usize) -> usize {
        (self.segment_of.get(position)).map_or(position, |&segment| segment as usize)
    }

    /// The position of a segment.
    pub(super) fn position(&self, segment: usize) -> usize {
        (self.position_of.get(segment)).map_or(segment, |&position| position as usize)
    }

    /// True when positions and segments are the same numbers.
    pub(super) fn in_order(&self) -> bool {
        self.segment_of.is_empty()
    }

    /// Shard lengths of a position that may be chained.
    pub(super) fn shards(&self, position: usize) -> &[i64] {
        let first = self.legal_at[position] as usize * self.ranks;
        &self.shards[first..first + self.ranks]
    }

    /// Attention tokens of a segment per rank.
    pub(super) fn on_ranks(&self, position: usize) -> &[i64] {
        &self.counts[position * self.ranks..][..self.ranks]
    }

    /// Attention tokens of a subtree per rank.
    pub(super) fn subtree_on_ranks(&self, position: usize) -> &[i64] {
        &self.subtree_counts[position * self.ranks..][..self.ranks]
    }

    /// Levels and exchange milliseconds of a unit.
    pub(super) fn unit_at(&self, unit: usize) -> (&[Level], &[f64]) {
        let (first, last) = (self.unit_first[unit], self.unit_first[unit + 1]);
        (
            &self.unit_levels[first as usize..last as usize],
            &self.unit_exchange[unit * self.ranks..][..self.ranks],
        )
    }

    /// Finds the walk order; leaves the permutations empty when it is the segments' own.
    fn order(&mut self, segments: &Segments) {
        let n = segments.len();
        self.segment_of.clear();
        self.position_of.clear();
        // Depth first means: each parent is on the path of ancestors of the segment before.
        let mut open = NONE;
        let depth_first = (0..n).all(|s| {
            let parent = segments.parents[s];
            while open != parent && open != NONE {
                open = segments.parents[open as usize];
            }
            let on_path = open == parent;
            open = s as u32;
            on_path
        });
        if depth_first {
            return;
        }
        // Subtree sizes bottom up, then each child starts where its parent's cursor stands.
        let size = &mut self.scratch;
        size.clear();
        size.resize(n, 1);
        for s in (0..n).rev() {
            if let Some(parent) = segments.parent(s) {
                size[parent] += size[s];
            }
        }
        self.position_of.resize(n, 0);
        self.segment_of.resize(n, 0);
        let mut root = 0;
        for s in 0..n {
            let own = size[s];
            // `size` of a placed segment becomes the cursor of its next child.
            let cursor = match segments.parent(s) {
                Some(parent) => &mut size[parent],
                None => &mut root,
            };
            let at = *cursor;
            *cursor += own;
            self.position_of[s] = at;
            self.segment_of[at as usize] = s as u32;
            size[s] = at + 1;
        }
    }

    /// Lengths, depths, parents and subtrees.
    fn shape(&mut self, segments: &Segments) {
        let n = segments.len();
        self.start.clear();
        self.length.clear();
        self.parent.clear();
        for at in 0..n {
            let s = self.segment(at);
            self.start.push(segments.starts[s]);
            self.length.push(segments.length(s));
            let parent = segments.parents[s];
            self.parent.push(if parent == NONE {
                NONE
            } else {
                self.position(parent as usize) as u32
            });
        }
        self.depth.clear();
        let mut deepest = 0;
        for &parent in &self.parent {
            let depth = if parent == NONE {
                0
            } else {
                self.depth[parent as usize] + 1
            };
            deepest = deepest.max(depth);
            self.depth.push(depth);
        }
        self.levels = deepest as usize + 1;
        self.subtree.clear();
        self.subtree.extend_from_slice(&self.length);
        self.end.clear();
        self.end.extend(1..=n as u32);
        for at in (0..n).rev() {
            let parent = self.parent[at] as usize;
            if parent != NONE as usize {
                self.subtree[parent] += self.subtree[at];
                self.end[parent] = self.end[parent].max(self.end[at]);
            }
        }
    }

    /// Attention tokens per position and rank.
    fn count(&mut self, assignment: &Assignment) {
        let (n, ranks) = (self.len(), self.ranks);
        self.counts.clear();
        self.counts.resize(n * ranks, 0);
        for (at, on_ranks) in self.counts.chunks_exact_mut(ranks).enumerate() {
            let start = self.start[at];
            for_pieces(
                assignment,
                start,
                start + self.length[at],
                |owner, tokens| {
                    on_ranks[owner] += tokens;
                },
            );
        }
        self.subtree_counts.clear();
        self.subtree_counts.extend_from_slice(&self.counts);
        for at in (0..n).rev() {
            let parent = self.parent[at] as usize;
            if parent != NONE as usize {
                let (before, from) = self.subtree_counts.split_at_mut(at * ranks);
                let into = &mut before[parent * ranks..][..ranks];
                for (sum, &tokens) in into.iter_mut().zip(&*from) {
                    *sum += tokens;
                }
            }
        }
    }

    /// Finds the segments that may be chained and cuts them.
    fn cut(&mut self, assignment: &Assignment, ticker: &mut Ticker) -> Result<()> {
        let ranks = self.ranks as i64;
        self.legal.clear();
        self.shards.clear();
        self.legal_at.clear();
        self.legal_at.resize(self.len(), NONE);
        if ranks == 1 {
            return Ok(());
        }
        for segment in 0..self.len() {
            let at = self.position(segment);
            if self.length[at] / KERNEL_CHUNK < ranks {
                continue;
            }
            ticker.work(self.ranks as u64)?;
            let cross = self.cut_one(assignment, self.start[at], self.length[at]);
            let shards = &self.shards[self.shards.len() - self.ranks..];
            self.legal_at[at] = self.legal.len() as u32;
            self.legal.push(Legal {
                at: at as u32,
                longest: shards.iter().copied().max().unwrap_or(0),
                cross,
            });
        }
        Ok(())
    }

    /// Appends the shards of one segment; returns the tokens that change rank.
    fn cut_one(&mut self, assignment: &Assignment, start: i64, length: i64) -> i64 {
        let ranks = self.ranks;
        if self.attention_split(assignment, start, length) {
            return 0;
        }
        let chunks = length / KERNEL_CHUNK;
        let (each, extra) = (chunks / ranks as i64, chunks % ranks as i64);
        let (mut from, mut cross) = (start, 0);
        for rank in 0..ranks {
            let mut shard = (each + i64::from((rank as i64) < extra)) * KERNEL_CHUNK;
            if rank + 1 == ranks {
                shard += length % KERNEL_CHUNK;
            }
            for_pieces(assignment, from, from + shard, |owner, tokens| {
                if owner != rank {
                    cross += tokens;
                }
            });
            self.shards.push(shard);
            from += shard;
        }
        cross
    }

    /// Appends the attention layout's own pieces if they can serve as shards: one chunk on each
    /// rank, in rank order, whole kernel chunks but for the last.
    fn attention_split(&mut self, assignment: &Assignment, start: i64, length: i64) -> bool {
        let (chunk, ranks) = (assignment.chunk, self.ranks);
        let (first, last) = (start / chunk, (start + length - 1) / chunk);
        if last - first + 1 != ranks as i64 {
            return false;
        }
        let owners = &assignment.owners[first as usize..=last as usize];
        let head = (first + 1) * chunk - start;
        // With two ranks there is no middle piece.
        let aligned = head % KERNEL_CHUNK == 0 && (ranks == 2 || chunk % KERNEL_CHUNK == 0);
        if !aligned
            || owners
                .iter()
                .enumerate()
                .any(|(rank, &o)| o as usize != rank)
        {
            return false;
        }
        self.shards.push(head);
        self.shards.resize(self.shards.len() + ranks - 2, chunk);
        self.shards.push(start + length - last * chunk);
        true
    }

    /// Finds the subtrees that one owner takes whole when nothing inside is chained.
    fn collect_units(&mut self, settings: &RecurrentSettings) {
        self.unit.clear();
        self.unit.resize(self.len(), NONE);
        self.unit_first.clear();
        self.unit_levels.clear();
        self.unit_exchange.clear();
        let mut at = 0;
        while at < self.len() {
            if self.subtree[at] > self.limit {
                at += 1;
                continue;
            }
            self.unit[at] = self.unit_first.len() as u32;
            let first = self.unit_levels.len();
            self.unit_first.push(first as u32);
            let (base, end) = (self.depth[at], self.end[at] as usize);
            for inside in at..end {
                let index = first + (self.depth[inside] - base) as usize;
                if index == self.unit_levels.len() {
                    self.unit_levels.push(Level {
                        depth: self.depth[inside],
                        ..Level::default()
                    });
                }
                let level = &mut self.unit_levels[index];
                level.count += 1;
                level.longest = level.longest.max(self.length[inside]);
            }
            for &tokens in &self.subtree_counts[at * self.ranks..][..self.ranks] {
                self.unit_exchange
                    .push(settings.exchange_ms(self.subtree[at] - tokens));
            }
            at = end;
        }
        self.unit_first.push(self.unit_levels.len() as u32);
    }
}

/// Calls `piece(owner, tokens)` for the part of `start..end` in each attention chunk, in order.
fn for_pieces(assignment: &Assignment, start: i64, end: i64, mut piece: impl FnMut(usize, i64)) {
    let mut chunk = start / assignment.chunk;
    let mut from = start;
    let mut border = (chunk + 1).saturating_mul(assignment.chunk);
    while from < end {
        let to = end.min(border);
        piece(assignment.owners[chunk as usize] as usize, to - from);
        from = to;
        chunk += 1;
        border = border.saturating_add(assignment.chunk);
    }
}
