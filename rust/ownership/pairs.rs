//! Query-key pairs between the chunks of a pack, without a chunk-by-chunk matrix.
//!
//! A chunk attends itself and, before it, only segments that began before it. Those are few,
//! and each covers a run of chunks, so a chunk's pairs are a short step function over the
//! chunks before it. One sweep over the segments builds all of them.

use std::collections::BinaryHeap;

use crate::cancel;
use crate::error::{Error, Result};
use crate::segments::{NONE, Segments};

use super::settings::ceil_div;

/// Chunks that an ownership may have.
const MOST_CHUNKS: i64 = 1 << 20;

/// Consecutive key chunks with equally many pairs, all before the query chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// First key chunk.
    pub low: u32,
    /// One past the last.
    pub high: u32,
    /// Pairs with each of these chunks, more than 0.
    pub pairs: i64,
}

/// Pairs of each chunk of one pack.
#[derive(Debug, Default)]
pub(super) struct ChunkPairs {
    /// Tokens of a chunk; the last may be shorter.
    pub chunk: i64,
    /// Tokens of the pack.
    pub tokens: i64,
    /// Pairs of each chunk with all keys, its own included.
    pub weights: Vec<i64>,
    /// Sums of `weights`: K + 1 entries.
    pub weight_sums: Vec<i64>,
    /// Runs of chunk `i`, the highest first: `runs[offsets[i]..offsets[i + 1]]`.
    pub runs: Vec<Run>,
    /// K + 1 entries.
    pub offsets: Vec<u32>,
    /// The lowest chunk that chunk `i` or any after it attends: K entries.
    pub lowest_after: Vec<u32>,
    sweep: Sweep,
}

/// State of the sweep: numbers of each segment, and the current chunk.
#[derive(Debug, Default)]
struct Sweep {
    /// First and last chunk of each segment.
    span: Vec<(u32, u32)>,
    /// Tokens of the segment and its ancestors.
    depth: Vec<i64>,
    /// Nearest ancestor that began in an earlier chunk than the segment.
    anchor: Vec<u32>,
    /// Queries of the current chunk by the segment begun before it that they descend from.
    queries: BinaryHeap<(u32, i64)>,
    /// The entry of `queries` that still grows.
    open: (u32, i64),
}

impl ChunkPairs {
    /// Number of chunks.
    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Tokens of chunk `i`.
    pub(super) fn length(&self, i: usize) -> i64 {
        self.chunk.min(self.tokens - i as i64 * self.chunk)
    }

    /// Tokens of the chunks `low..high`.
    pub(super) fn span_tokens(&self, low: u32, high: u32) -> i64 {
        (i64::from(high) * self.chunk).min(self.tokens) - i64::from(low) * self.chunk
    }

    /// The runs of chunk `i`, ascending.
    pub(super) fn pack(&self, i: usize) -> impl Iterator<Item = &Run> {
        self.runs[self.offsets[i] as usize..self.offsets[i + 1] as usize]
            .iter()
            .rev()
    }

    /// Fills the tables for one pack cut into chunks of `chunk` tokens.
    pub(super) fn build(&mut self, segments: &Segments, chunk: i64) -> Result<()> {
        let tokens = segments.tokens();
        if tokens.checked_mul(tokens).is_none() {
            return Err(Error::Overflow("the number of query-key pairs"));
        }
        let chunks = ceil_div(tokens, chunk);
        if chunks > MOST_CHUNKS {
            return Err(Error::input(format!(
                "the pack of {tokens} tokens has {chunks} chunks of {chunk}: at most {MOST_CHUNKS}; raise chunk, set a chunk budget or use fewer ranks"
            )));
        }
        self.chunk = chunk;
        self.tokens = tokens;
        self.reset(segments.len(), chunks as usize);
        self.sweep(segments)?;
        self.finish();
        Ok(())
    }

    fn reset(&mut self, segments: usize, chunks: usize) {
        self.weights.clear();
        self.weights.resize(chunks, 0);
        self.weight_sums.clear();
        self.runs.clear();
        self.offsets.clear();
        self.offsets.push(0);
        self.lowest_after.clear();
        self.sweep.span.clear();
        self.sweep.depth.clear();
        self.sweep.anchor.clear();
        self.sweep.span.reserve(segments);
        self.sweep.depth.reserve(segments);
        self.sweep.anchor.reserve(segments);
        self.sweep.queries.clear();
        self.sweep.open = (NONE, 0);
    }

    fn sweep(&mut self, segments: &Segments) -> Result<()> {
        let chunk = self.chunk;
        let mut at = 0_u32;
        for s in 0..segments.len() {
            let (start, end) = (segments.starts[s], segments.starts[s + 1]);
            let parent = segments.parents[s];
            let first = at + u32::from(start == i64::from(at + 1) * chunk);
            if first != at {
                self.close(at, segments)?;
                at = first;
            }
            let (above, anchor) = if parent == NONE {
                (0, NONE)
            } else {
                let p = parent as usize;
                let begun = self.sweep.span[p].0 < first;
                let anchor = if begun { parent } else { self.sweep.anchor[p] };
                (self.sweep.depth[p], anchor)
            };
            let mut x = start;
            loop {
                let y = end.min(i64::from(at + 1) * chunk);
                let n = y - x;
                // Each query attends all ancestors, and its own segment up to itself.
                self.weights[at as usize] += n * (above + x - start) + n * (n + 1) / 2;
                let from = if at == first { anchor } else { s as u32 };
                if from != NONE {
                    self.add_queries(from, n);
                }
                x = y;
                if x == end {
                    break;
                }
                if at == first {
                    // The chunks after the first need the segment's own entry to close.
                    self.sweep.span.push((first, ((end - 1) / chunk) as u32));
                }
                self.close(at, segments)?;
                at += 1;
            }
            if at == first {
                self.sweep.span.push((first, at));
            }
            self.sweep.depth.push(above + end - start);
            self.sweep.anchor.push(anchor);
        }
        if !segments.is_empty() {
            self.close(at, segments)?;
        }
        Ok(())
    }

    /// Counts `n` queries of the current chunk below segment `from`.
    fn add_queries(&mut self, from: u32, n: i64) {
        let open = &mut self.sweep.open;
        if open.0 == from {
            open.1 += n;
            return;
        }
        let filled = std::mem::replace(open, (from, n));
        if filled.0 != NONE {
            self.sweep.queries.push(filled);
        }
    }

    /// Turns the queries of chunk `at` into its runs: from the latest segment up to the roots,
    /// each segment hands its queries on to its parent.
    fn close(&mut self, at: u32, segments: &Segments) -> Result<()> {
        cancel::check_at(at as usize)?;
        let mut pack = RowWriter {
            runs: &mut self.runs,
            first: self.offsets[at as usize] as usize,
            open: Run {
                low: at,
                high: at,
                pairs: 0,
            },
        };
        let limit = i64::from(at) * self.chunk;
        let filled = std::mem::replace(&mut self.sweep.open, (NONE, 0));
        if filled.0 != NONE {
            self.sweep.queries.push(filled);
        }
        while let Some((s, mut n)) = self.sweep.queries.pop() {
            while let Some(&(same, more)) = self.sweep.queries.peek() {
                if same != s {
                    break;
                }
                n += more;
                self.sweep.queries.pop();
            }
            let (first, last) = self.sweep.span[s as usize];
            let start = segments.starts[s as usize];
            let end = segments.starts[s as usize + 1].min(limit);
            let last = last.min(at - 1);
            if first == last {
                pack.add(first, n * (end - start));
            } else {
                pack.add(last, n * (end - i64::from(last) * self.chunk));
                pack.add_full(first + 1, last, n * self.chunk);
                pack.add(first, n * (i64::from(first + 1) * self.chunk - start));
            }
            let parent = segments.parents[s as usize];
            if parent != NONE {
                self.sweep.queries.push((parent, n));
            }
        }
        pack.flush();
        let offset =
            u32::try_from(self.runs.len()).map_err(|_| Error::Overflow("the chunk pair table"))?;
        self.offsets.push(offset);
        Ok(())
    }

    fn finish(&mut self) {
        let chunks = self.len();
        let mut sum = 0;
        self.weight_sums.push(0);
        for &weight in &self.weights {
            sum += weight;
            self.weight_sums.push(sum);
        }
        self.lowest_after.resize(chunks, 0);
        let mut lowest = chunks as u32;
        for i in (0..chunks).rev() {
            let own = self.pack(i).next().map_or(i as u32, |run| run.low);
            lowest = lowest.min(own);
            self.lowest_after[i] = lowest;
        }
    }
}

/// Collects one chunk's runs from the highest key chunk down, merging equal neighbours.
struct RowWriter<'a> {
    runs: &'a mut Vec<Run>,
    first: usize,
    /// The chunk being summed: several segments may end or begin in it.
    open: Run,
}

impl RowWriter<'_> {
    fn add(&mut self, chunk: u32, pairs: i64) {
        if chunk == self.open.low && self.open.pairs > 0 {
            self.open.pairs += pairs;
            return;
        }
        self.flush();
        self.open = Run {
            low: chunk,
            high: chunk + 1,
            pairs,
        };
    }

    fn add_full(&mut self, low: u32, high: u32, pairs: i64) {
        if low < high {
            self.flush();
            self.open.pairs = 0;
            self.push(Run { low, high, pairs });
        }
    }

    fn flush(&mut self) {
        if self.open.pairs > 0 {
            self.push(self.open);
        }
    }

    fn push(&mut self, run: Run) {
        if self.runs.len() > self.first {
            let last = self.runs.len() - 1;
            let above = &mut self.runs[last];
            if above.low == run.high && above.pairs == run.pairs {
                above.low = run.low;
                return;
            }
        }
        self.runs.push(run);
    }
}
