//! The pack as a forest in walk order, with all that placement reads.
//!
//! Everything is indexed by *position*: roots in order, depth first, children in order. Packs
//! made by this crate are in that order already; others are permuted once.

use super::{GdnSettings, KERNEL_CHUNK};
use crate::ownership::Ownership;
use crate::segments::{NONE, Segments};

/// A segment that may be chained, and how it would be cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Legal {
    /// Position of the segment.
    pub(super) at: u32,
    /// Tokens of its longest shard.
    pub(super) longest: i64,
    /// No shard is shorter.
    pub(super) shortest: i64,
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
    /// Tokens that a rank should not exceed.
    pub(super) most: i64,
    /// Tokens of the pack.
    pub(super) tokens: i64,
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
    /// Takes in a pack and its attention ownership, both already checked.
    pub(super) fn fill(
        &mut self,
        segments: &Segments,
        ownership: &Ownership,
        settings: &GdnSettings,
    ) {
        let tokens = segments.tokens();
        self.ranks = ownership.ranks;
        self.tokens = tokens;
        // A float quotient, truncated: it rounds beyond 2^53 tokens as the contract does.
        self.limit = ((tokens as f64 / self.ranks as f64) as i64).max(1);
        self.order(segments);
        self.shape(segments);
        self.spread(segments, ownership);
        self.collect_units(settings);
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
        let mut depth_first = true;
        for s in 0..n {
            let parent = segments.parents[s];
            while open != parent && open != NONE {
                open = segments.parents[open as usize];
            }
            if open != parent {
                depth_first = false;
                break;
            }
            open = s as u32;
        }
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
        if self.in_order() {
            let starts = &segments.starts;
            self.start.extend_from_slice(&starts[..n]);
            self.length.extend(starts.windows(2).map(|w| w[1] - w[0]));
            self.parent.extend_from_slice(&segments.parents);
        } else {
            for &segment in &self.segment_of {
                let segment = segment as usize;
                self.start.push(segments.starts[segment]);
                self.length.push(segments.length(segment));
                let parent = segments.parent(segment);
                self.parent
                    .push(parent.map_or(NONE, |parent| self.position_of[parent]));
            }
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

    /// Attention tokens per position and rank; shards of the segments that may be chained.
    fn spread(&mut self, segments: &Segments, ownership: &Ownership) {
        let (n, ranks) = (self.len(), self.ranks);
        let chained_from = if ranks == 1 {
            i64::MAX
        } else {
            (ranks as i64).saturating_mul(KERNEL_CHUNK)
        };
        self.legal.clear();
        self.shards.clear();
        refill(&mut self.legal_at, n, NONE);
        refill(&mut self.counts, n * ranks, 0);
        // Segments and chunks both tile the pack: one walk over the chunk borders.
        let (mut chunk, mut border) = (0, ownership.chunk);
        for (segment, ends) in segments.starts.windows(2).enumerate() {
            let (start, end) = (ends[0], ends[1]);
            while border <= start {
                chunk += 1;
                border = border.saturating_add(ownership.chunk);
            }
            let at = self.position(segment);
            let run = Run {
                ownership,
                chunk,
                border,
            };
            let on_ranks = &mut self.counts[at * ranks..][..ranks];
            run.pieces(start, end, |owner, tokens| on_ranks[owner] += tokens);
            if end - start >= chained_from {
                self.legal_at[at] = self.legal.len() as u32;
                self.cut(at, &run, start, end);
            }
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

    /// Appends the segment at a position to `legal`, and its shards.
    fn cut(&mut self, at: usize, run: &Run<'_>, start: i64, end: i64) {
        let ranks = self.ranks;
        if run.splits_evenly(start, end, ranks) {
            let first = self.shards.len();
            run.pieces(start, end, |_, tokens| self.shards.push(tokens));
            let shards = &self.shards[first..];
            self.legal.push(Legal {
                at: at as u32,
                longest: shards.iter().copied().max().unwrap_or(0),
                shortest: shards.iter().copied().min().unwrap_or(0),
                cross: 0,
            });
            return;
        }
        let length = end - start;
        let (chunks, rest) = (length / KERNEL_CHUNK, length % KERNEL_CHUNK);
        let (each, extra) = quotient(chunks, ranks as i64);
        let shortest = each * KERNEL_CHUNK;
        let longer = shortest + KERNEL_CHUNK;
        let here = self.shards.len();
        for rank in 0..ranks as i64 {
            self.shards
                .push(if rank < extra { longer } else { shortest });
        }
        self.shards[here + ranks - 1] += rest;
        let mut cross = 0;
        if end <= run.border {
            cross = length - self.shards[here + run.owner()];
        } else {
            let (mut rank, mut left) = (0, self.shards[here]);
            run.pieces(start, end, |owner, mut tokens| {
                // A piece may end one shard and begin the next.
                while tokens > 0 {
                    let part = tokens.min(left);
                    cross += if owner == rank { 0 } else { part };
                    tokens -= part;
                    left -= part;
                    if left == 0 && rank + 1 < ranks {
                        rank += 1;
                        left = self.shards[here + rank];
                    }
                }
            });
        }
        self.legal.push(Legal {
            at: at as u32,
            longest: if extra > 0 { longer } else { shortest + rest },
            shortest,
            cross,
        });
    }

    /// Finds the subtrees that one owner takes whole when nothing inside is chained.
    fn collect_units(&mut self, settings: &GdnSettings) {
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

/// The chunks from one chunk on: where a segment begins.
struct Run<'a> {
    ownership: &'a Ownership,
    chunk: usize,
    /// End of that chunk.
    border: i64,
}

impl Run<'_> {
    /// Owner of the first chunk.
    fn owner(&self) -> usize {
        self.ownership.owners[self.chunk] as usize
    }

    /// Calls `piece(owner, tokens)` for the part of `start..end` in each chunk, in order; the
    /// first chunk holds `start`.
    #[inline]
    fn pieces(&self, start: i64, end: i64, mut piece: impl FnMut(usize, i64)) {
        let (mut from, mut border) = (start, self.border);
        for &owner in &self.ownership.owners[self.chunk..] {
            let to = end.min(border);
            piece(owner as usize, to - from);
            if to == end {
                return;
            }
            from = to;
            border = border.saturating_add(self.ownership.chunk);
        }
    }

    /// Whether the chunks' own pieces of `start..end` can serve as shards: one on each rank, in
    /// rank order, whole kernel chunks but for the last.
    fn splits_evenly(&self, start: i64, end: i64, ranks: usize) -> bool {
        let size = self.ownership.chunk;
        let middle = end - self.border;
        // The last piece begins `ranks - 2` chunks after the first border.
        let last = (ranks as i64 - 2).saturating_mul(size);
        if middle <= last || middle - last > size || (self.border - start) % KERNEL_CHUNK != 0 {
            return false;
        }
        (ranks == 2 || size % KERNEL_CHUNK == 0)
            && (self.ownership.owners[self.chunk..][..ranks].iter())
                .enumerate()
                .all(|(rank, &owner)| owner as usize == rank)
    }
}

/// Quotient and remainder of numbers of at least 0; short ones divide faster.
fn quotient(a: i64, b: i64) -> (i64, i64) {
    match (u32::try_from(a), u32::try_from(b)) {
        (Ok(a), Ok(b)) => (i64::from(a / b), i64::from(a % b)),
        _ => (a / b, a % b),
    }
}

/// `length` copies of `value`, in the buffer already there.
pub(super) fn refill<T: Copy>(buffer: &mut Vec<T>, length: usize, value: T) {
    buffer.clear();
    buffer.resize(length, value);
}
