//! Sparse-indexer models: the generic answer against two others with few ranges per rank.
//!
//! All queries of a rank in one chunk of one segment form a *piece*. A piece reads its
//! segment's tokens up to the end of its chunk and all its ancestors' tokens; each key token is
//! local or belongs to a fetch stage.

use std::cmp::Ordering;

use super::settings::{StageWork, WorkloadProfile, ceil_div};
use super::{contiguous, part_of_each};
use crate::cancel;
use crate::error::{Error, Result};
use crate::fields::result;
use crate::segments::{NONE, Segments};

result! {
/// Work of an ownership for a sparse-indexer model: maxima over ranks and pipeline stages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfiledWork as "ProfiledWork" {
    /// Flops that follow query tokens.
    pub query_flops: i128,
    /// The larger of sent and received, at the fetch and at the reduce rate.
    pub network_bytes: i128,
    /// Key bytes read from device memory.
    pub hbm_bytes: i128,
    /// Flops of the indexer's tiles.
    pub indexer_flops: i128,
    /// Bytes held.
    pub memory_bytes: i128,
    /// Most peers that a rank exchanges with.
    pub peers: u32,
    /// Most contiguous ranges on a rank.
    pub ranges: u32,
    /// Query-key pairs of the indexer's tiles on each rank.
    pub tile_pairs: Vec<i128>,
    /// Key tokens on each rank, fetched ones included.
    pub key_tokens: Vec<i64>,
    /// Key tokens each rank sends.
    pub sent_tokens: Vec<i64>,
    /// Key tokens each rank receives.
    pub received_tokens: Vec<i64>,
}
}

/// Consecutive chunks of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub low: u32,
    pub high: u32,
    pub rank: u32,
}

/// Tokens of one owner in one fetch stage.
#[derive(Debug, Clone, Copy)]
struct Cell {
    start: i64,
    end: i64,
    rank: u32,
    stage: u32,
}

/// The pack, its chunks and the generic answer.
pub(super) struct Problem<'a> {
    pub segments: &'a Segments,
    pub chunk: i64,
    pub chunks: usize,
    pub ranks: usize,
    /// Fetch stages of the generic answer, kept by its challengers.
    pub stages: usize,
    pub profile: &'a WorkloadProfile,
}

impl Problem<'_> {
    /// The best of the generic answer and its challengers.
    pub(super) fn choose(&self, cuts: &[u32]) -> Result<(Vec<Span>, ProfiledWork)> {
        let generic = spans_of(cuts, |slab| slab);
        let baseline = self.measure(&generic)?;
        let mut best = (generic.clone(), baseline.clone());
        for challenger in self.challengers(&generic) {
            let work = self.measure(&challenger)?;
            if work.memory_bytes <= baseline.memory_bytes
                && compare((&work, &challenger), (&baseline, &generic)).is_lt()
                && compare((&work, &challenger), (&best.1, &best.0)).is_lt()
            {
                best = (challenger, work);
            }
        }
        Ok(best)
    }

    /// Contiguous and folded by chunk length, without repeats, empty ranks or many ranges.
    fn challengers(&self, generic: &[Span]) -> Vec<Vec<Span>> {
        let tokens = self.segments.tokens();
        let sums: Vec<f64> = (0..=self.chunks as i64)
            .map(|i| tokens.min(i * self.chunk) as f64)
            .collect();
        let mut cuts = Vec::new();
        contiguous::cut(&sums, true, self.ranks, &mut cuts);
        let mut found = vec![spans_of(&cuts, |slab| slab)];
        if self.chunks >= 2 * self.ranks {
            contiguous::cut(&sums, true, 2 * self.ranks, &mut cuts);
            let last = 2 * self.ranks as u32 - 1;
            found.push(spans_of(&cuts, |slab| slab.min(last - slab)));
        }
        if found.len() == 2 && found[0] == found[1] {
            found.pop();
        }
        found.retain(|spans| {
            let ranges = count_ranges(spans, self.ranks);
            spans != generic
                && ranges
                    .iter()
                    .all(|&n| n > 0 && i64::from(n) <= self.profile.max_ranges)
        });
        found
    }

    /// Counts the work of one ownership.
    fn measure(&self, spans: &[Span]) -> Result<ProfiledWork> {
        let mut counter = Counter::new(self, spans);
        let mut by_rank = spans.to_vec();
        by_rank.sort_by_key(|span| span.rank);
        for own in by_rank.chunk_by(|a, b| a.rank == b.rank) {
            counter.count_rank(own)?;
        }
        let mut work = counter.work;
        work.ranges = count_ranges(spans, self.ranks)
            .into_iter()
            .max()
            .unwrap_or(0);
        work.peers = most_peers(counter.exchanges, self.ranks);
        for own in by_rank.chunk_by(|a, b| a.rank == b.rank) {
            let queries = own.iter().map(|&span| self.span_tokens(span)).sum();
            for stage in &self.profile.stages {
                work.raise(own[0].rank as usize, queries, stage)?;
            }
        }
        Ok(work)
    }

    fn span_tokens(&self, span: Span) -> i64 {
        let tokens = self.segments.tokens();
        tokens.min(i64::from(span.high) * self.chunk) - i64::from(span.low) * self.chunk
    }

    /// Flops of tiles are paid per pair: `queries` by `keys` cut into steps, each rounded up.
    fn tile_pairs(&self, queries: i64, keys: i64) -> Option<i128> {
        let key_step = keys.min(self.profile.max_key_tokens);
        let query_step = (self.profile.workspace_elements / key_step).max(1);
        let rounded = |length: i64, step: i64, tile: i64| {
            let up = |size: i64| i128::from(ceil_div(size, tile)) * i128::from(tile);
            i128::from(length / step) * up(step) + up(length % step)
        };
        let queries = rounded(queries, query_step, self.profile.query_tile);
        queries.checked_mul(rounded(keys, key_step, self.profile.key_tile))
    }
}

impl ProfiledWork {
    /// Raises the maxima by one rank's work at one pipeline stage.
    fn raise(&mut self, rank: usize, queries: i64, stage: &StageWork) -> Result<()> {
        let times = |count: i64, rate: i64| i128::from(count) * i128::from(rate);
        let (keys, sent, received) = (
            self.key_tokens[rank],
            self.sent_tokens[rank],
            self.received_tokens[rank],
        );
        let tiles = self.tile_pairs[rank]
            .checked_mul(i128::from(stage.tile_pair_flops))
            .ok_or(Error::Overflow("the indexer's work"))?;
        let exchanged = sent.max(received);
        let memory = times(queries, stage.query_memory_bytes) + times(keys, stage.key_memory_bytes);
        self.query_flops = self.query_flops.max(times(queries, stage.query_flops));
        self.indexer_flops = self.indexer_flops.max(tiles);
        self.hbm_bytes = self.hbm_bytes.max(times(keys, stage.key_hbm_bytes));
        self.memory_bytes = self.memory_bytes.max(memory);
        self.network_bytes = self
            .network_bytes
            .max(times(exchanged, stage.fetch_bytes))
            .max(times(exchanged, stage.reduce_bytes));
        Ok(())
    }
}

/// Less is better: the work in order of importance, then the owners.
fn compare(a: (&ProfiledWork, &[Span]), b: (&ProfiledWork, &[Span])) -> Ordering {
    let key = |work: &ProfiledWork| {
        (
            work.query_flops,
            work.network_bytes,
            work.hbm_bytes,
            work.indexer_flops,
            work.peers,
            work.ranges,
        )
    };
    key(a.0)
        .cmp(&key(b.0))
        .then_with(|| owners(a.1).cmp(owners(b.1)))
}

/// The owner of each chunk.
pub(super) fn owners(spans: &[Span]) -> impl Iterator<Item = u32> + '_ {
    spans
        .iter()
        .flat_map(|span| std::iter::repeat_n(span.rank, (span.high - span.low) as usize))
}

/// Spans from cuts, neighbours of one owner joined.
fn spans_of(cuts: &[u32], rank_of: impl Fn(u32) -> u32) -> Vec<Span> {
    let owners: Vec<u32> = part_of_each(cuts).into_iter().map(rank_of).collect();
    super::spans_of(&owners)
}

fn count_ranges(spans: &[Span], ranks: usize) -> Vec<u32> {
    let mut ranges = vec![0; ranks];
    for span in spans {
        ranges[span.rank as usize] += 1;
    }
    ranges
}

/// Most partners of a rank over pairs of ranks that exchange something.
fn most_peers(mut exchanges: Vec<(u32, u32)>, ranks: usize) -> u32 {
    exchanges.sort_unstable();
    exchanges.dedup();
    let mut peers = vec![0; ranks];
    for (a, b) in exchanges {
        peers[a as usize] += 1;
        peers[b as usize] += 1;
    }
    peers.into_iter().max().unwrap_or(0)
}

/// Counts rank by rank what queries read.
struct Counter<'a> {
    problem: &'a Problem<'a>,
    cells: Vec<Cell>,
    work: ProfiledWork,
    /// Pairs (lower, higher) of ranks that exchange something.
    exchanges: Vec<(u32, u32)>,
    /// How far the rank at hand reads each segment; valid where `reader` names the rank.
    read_to: Vec<i64>,
    reader: Vec<u32>,
    touched: Vec<u32>,
    /// The last rank that received from each rank.
    partner: Vec<u32>,
}

impl<'a> Counter<'a> {
    fn new(problem: &'a Problem<'a>, spans: &[Span]) -> Self {
        let mut cells = Vec::new();
        let bound = |stage: usize| (stage * problem.chunks).div_ceil(problem.stages) as u32;
        let mut stage = 0;
        for span in spans {
            let mut low = span.low;
            while low < span.high {
                while bound(stage + 1) <= low {
                    stage += 1;
                }
                let start = i64::from(low) * problem.chunk;
                low = span.high.min(bound(stage + 1));
                cells.push(Cell {
                    start,
                    end: i64::from(low) * problem.chunk,
                    rank: span.rank,
                    stage: stage as u32,
                });
            }
        }
        let (ranks, segments) = (problem.ranks, problem.segments.len());
        Self {
            problem,
            cells,
            work: ProfiledWork {
                tile_pairs: vec![0; ranks],
                key_tokens: vec![0; ranks],
                sent_tokens: vec![0; ranks],
                received_tokens: vec![0; ranks],
                ..ProfiledWork::default()
            },
            exchanges: Vec::new(),
            read_to: vec![0; segments],
            reader: vec![NONE; segments],
            touched: Vec::new(),
            partner: vec![NONE; ranks],
        }
    }

    /// Counts the rank that owns the spans.
    fn count_rank(&mut self, spans: &[Span]) -> Result<()> {
        let rank = spans[0].rank;
        self.touched.clear();
        let mut keys = vec![0_i64; self.problem.stages + 1];
        for span in spans {
            for chunk in span.low..span.high {
                cancel::check()?;
                self.count_chunk(rank, chunk, &mut keys)?;
            }
        }
        self.count_exchange(rank);
        Ok(())
    }

    /// The pieces of one chunk.
    fn count_chunk(&mut self, rank: u32, chunk: u32, keys: &mut [i64]) -> Result<()> {
        let segments = self.problem.segments;
        let low = i64::from(chunk) * self.problem.chunk;
        let high = segments.tokens().min(low + self.problem.chunk);
        let mut s = segments.starts.partition_point(|&start| start <= low) - 1;
        while s < segments.len() && segments.starts[s] < high {
            let (from, to) = (
                segments.starts[s].max(low),
                segments.starts[s + 1].min(high),
            );
            keys.fill(0);
            self.read(rank, s, to, keys);
            let mut above = segments.parents[s];
            while above != NONE {
                let u = above as usize;
                self.read(rank, u, segments.starts[u + 1], keys);
                above = segments.parents[u];
            }
            for &count in keys.iter().filter(|&&count| count > 0) {
                let pairs = self.problem.tile_pairs(to - from, count);
                let sum = &mut self.work.tile_pairs[rank as usize];
                *sum = pairs
                    .and_then(|pairs| sum.checked_add(pairs))
                    .ok_or(Error::Overflow("the indexer's work"))?;
            }
            s += 1;
        }
        Ok(())
    }

    /// A piece of `rank` reads segment `s` up to `end`: tokens by local (0) or stage + 1.
    fn read(&mut self, rank: u32, s: usize, end: i64, keys: &mut [i64]) {
        if self.reader[s] != rank {
            self.reader[s] = rank;
            self.read_to[s] = end;
            self.touched.push(s as u32);
        } else if self.read_to[s] < end {
            self.read_to[s] = end;
        }
        for (cell, tokens) in overlaps(&self.cells, self.problem.segments.starts[s], end) {
            let pack = if cell.rank == rank {
                0
            } else {
                cell.stage as usize + 1
            };
            keys[pack] += tokens;
        }
    }

    /// The tokens that the rank's queries read in all, by their owner.
    fn count_exchange(&mut self, rank: u32) {
        let r = rank as usize;
        for &s in &self.touched {
            let (start, end) = (
                self.problem.segments.starts[s as usize],
                self.read_to[s as usize],
            );
            for (cell, tokens) in overlaps(&self.cells, start, end) {
                self.work.key_tokens[r] += tokens;
                if cell.rank == rank {
                    continue;
                }
                self.work.received_tokens[r] += tokens;
                self.work.sent_tokens[cell.rank as usize] += tokens;
                if self.partner[cell.rank as usize] != rank {
                    self.partner[cell.rank as usize] = rank;
                    self.exchanges
                        .push((rank.min(cell.rank), rank.max(cell.rank)));
                }
            }
        }
    }
}

/// Cells that overlap the tokens `start..end`, with how many tokens.
fn overlaps(cells: &[Cell], start: i64, end: i64) -> impl Iterator<Item = (Cell, i64)> + '_ {
    let first = cells.partition_point(|cell| cell.end <= start);
    cells[first..]
        .iter()
        .take_while(move |cell| cell.start < end)
        .map(move |&cell| (cell, cell.end.min(end) - cell.start.max(start)))
}
