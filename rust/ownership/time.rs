//! The time model: what an ownership costs each rank, forward and backward.
//!
//! Chunks attend only chunks before them, so with one range a rank fetches from lower ranks alone. Counts are
//! exact integers; times are float64 in one fixed order of operations, because every rank of a
//! job must come to the same answer.

use super::pairs::ChunkPairs;
use super::settings::OwnershipSettings;

/// One contiguous ownership and its times.
#[derive(Debug, Default, Clone)]
pub(super) struct Plan {
    /// Rank `r` owns the chunks `cuts[r]..cuts[r + 1]`.
    pub cuts: Vec<u32>,
    /// Milliseconds per rank.
    pub forward: Vec<f64>,
    /// Milliseconds per rank.
    pub backward: Vec<f64>,
    /// Forward + backward of the slowest rank.
    pub score: f64,
    /// The slowest rank, the first on ties.
    pub slowest: usize,
    /// Most tokens that a rank fetches in one stage.
    pub fetched: i64,
}

/// The work of one rank in one fetch stage.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Remote {
    pub pairs: i64,
    pub query_tokens: i64,
    pub query_runs: i64,
    pub fetched_tokens: i64,
    pub fetched_runs: i64,
    sent_tokens: i64,
    sent_runs: i64,
}

/// Chunks of one rank in one fetch stage, and what other ranks take of them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cell {
    pub low: u32,
    pub high: u32,
    /// Index into `remotes`.
    pub remote: u32,
    /// Change in the number of peers that take the whole cell.
    takers: i64,
}

/// Scratch memory of the evaluation, and the stage bounds.
#[derive(Debug, Default)]
pub(super) struct Evaluator {
    pub stages: usize,
    /// Stage `w` fetches the chunks `bounds[w]..bounds[w + 1]`.
    pub bounds: Vec<u32>,
    /// Ranks with chunks, ascending.
    holders: Vec<u32>,
    /// Per holder and stage.
    pub remotes: Vec<Remote>,
    pub cells: Vec<Cell>,
    pub cell_of: Vec<u32>,
    /// Chunk ranges fetched by the rank at hand.
    fetched: Vec<(u32, u32)>,
    /// Chunk ranges fetched by any rank.
    pub fetched_by_any: Vec<(u32, u32)>,
}

impl Evaluator {
    /// Sets the number of fetch stages: chunk `i` belongs to `i * stages / chunks`.
    pub(super) fn set_stages(&mut self, stages: usize, chunks: usize) {
        self.stages = stages;
        self.bounds.clear();
        self.bounds
            .extend((0..=stages).map(|w| (w * chunks).div_ceil(stages) as u32));
    }

    /// Prices `plan.cuts`; fills the other fields.
    pub(super) fn evaluate(
        &mut self,
        plan: &mut Plan,
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) {
        self.count(&plan.cuts, pairs);
        let ranks = plan.cuts.len() - 1;
        plan.forward.clear();
        plan.forward.resize(ranks, 0.0);
        plan.backward.clear();
        plan.backward.resize(ranks, 0.0);
        for (h, &rank) in self.holders.iter().enumerate() {
            let r = rank as usize;
            let (low, high) = (plan.cuts[r], plan.cuts[r + 1]);
            let remotes = &self.remotes[h * self.stages..(h + 1) * self.stages];
            let all = pairs.weight_sums[high as usize] - pairs.weight_sums[low as usize];
            let local = Local {
                pairs: all - remotes.iter().map(|remote| remote.pairs).sum::<i64>(),
                tokens: pairs.span_tokens(low, high),
                ranges: 1,
            };
            (plan.forward[r], plan.backward[r]) = rank_times(local, remotes, settings);
        }
        (plan.slowest, plan.score) = slowest(&plan.forward, &plan.backward);
        plan.fetched = self.most_fetched();
    }

    pub(super) fn most_fetched(&self) -> i64 {
        let fetched = self.remotes.iter().map(|remote| remote.fetched_tokens);
        fetched.max().unwrap_or(0)
    }

    /// Counts what every rank computes, fetches and sends per stage.
    fn count(&mut self, cuts: &[u32], pairs: &ChunkPairs) {
        self.holders.clear();
        let held = |r: &u32| cuts[*r as usize] < cuts[*r as usize + 1];
        self.holders.extend((0..cuts.len() as u32 - 1).filter(held));
        self.remotes.clear();
        self.remotes
            .resize(self.holders.len() * self.stages, Remote::default());
        self.cells.clear();
        self.cell_of.clear();
        for h in 0..self.holders.len() {
            let r = self.holders[h] as usize;
            self.lay_cells(cuts[r], cuts[r + 1], h);
        }
        self.fetched_by_any.clear();
        for h in 0..self.holders.len() {
            let r = self.holders[h] as usize;
            self.count_rank(h, cuts[r], cuts[r + 1], pairs);
            let fetched = std::mem::take(&mut self.fetched);
            self.exchange(h, &fetched, pairs);
            self.fetched = fetched;
        }
        self.send_all(pairs);
    }

    /// Counts what is sent: per peer, and once more for all peers together.
    pub(super) fn send_all(&mut self, pairs: &ChunkPairs) {
        merge(&mut self.fetched_by_any);
        for i in 0..self.fetched_by_any.len() {
            let (low, high) = self.fetched_by_any[i];
            self.send(low, high, pairs);
        }
        let mut takers = 0;
        for cell in &self.cells {
            takers += cell.takers;
            let remote = &mut self.remotes[cell.remote as usize];
            remote.sent_tokens += takers * pairs.span_tokens(cell.low, cell.high);
            remote.sent_runs += takers;
        }
    }

    /// Cuts the chunks `low..high` of the holder `h`, the next ones, where a stage begins.
    pub(super) fn lay_cells(&mut self, mut low: u32, end: u32, h: usize) {
        let mut stage = self.bounds.partition_point(|&bound| bound <= low) - 1;
        while low < end {
            while self.bounds[stage + 1] <= low {
                stage += 1;
            }
            let high = end.min(self.bounds[stage + 1]);
            self.cell_of.resize(high as usize, self.cells.len() as u32);
            self.cells.push(Cell {
                low,
                high,
                remote: (h * self.stages + stage) as u32,
                takers: 0,
            });
            low = high;
        }
    }

    /// Counts the holder `h`, which owns the chunks `low..high`.
    fn count_rank(&mut self, h: usize, low: u32, high: u32, pairs: &ChunkPairs) {
        let mut before = 0_u64;
        self.fetched.clear();
        let remotes = &mut self.remotes[h * self.stages..(h + 1) * self.stages];
        for i in low as usize..high as usize {
            if pairs.lowest_after[i] >= low {
                break;
            }
            let mut attended = 0_u64;
            let mut stage = 0;
            for run in pairs.pack(i) {
                if run.low >= low {
                    break;
                }
                let end = run.high.min(low);
                match self.fetched.last_mut() {
                    Some(last) if last.0 <= run.low && run.low <= last.1 => {
                        last.1 = last.1.max(end);
                    }
                    _ => self.fetched.push((run.low, end)),
                }
                let mut at = run.low;
                while at < end {
                    while self.bounds[stage + 1] <= at {
                        stage += 1;
                    }
                    let next = end.min(self.bounds[stage + 1]);
                    remotes[stage].pairs += i64::from(next - at) * run.pairs;
                    attended |= 1 << stage;
                    at = next;
                }
            }
            attend(remotes, attended, before, pairs.length(i));
            before = attended;
        }
        merge(&mut self.fetched);
    }

    /// Counts what the holder `h` fetches, and its sources send.
    pub(super) fn exchange(&mut self, h: usize, fetched: &[(u32, u32)], pairs: &ChunkPairs) {
        for &(from, to) in fetched {
            self.fetched_by_any.push((from, to));
            self.receive(h, from, to, pairs);
            self.send(from, to, pairs);
        }
    }

    /// The holder `h` fetches the chunks `low..high`: tokens per stage, runs per source.
    fn receive(&mut self, h: usize, low: u32, high: u32, pairs: &ChunkPairs) {
        let mut at = low;
        while at < high {
            let first = self.cells[self.cell_of[at as usize] as usize];
            let stage = first.remote as usize % self.stages;
            let end = high.min(self.bounds[stage + 1]);
            let runs = self.cell_of[end as usize - 1] - self.cell_of[at as usize] + 1;
            let remote = &mut self.remotes[h * self.stages + stage];
            remote.fetched_tokens += pairs.span_tokens(at, end);
            remote.fetched_runs += i64::from(runs);
            at = end;
        }
    }

    /// The owners of the chunks `low..high` send them: parts of cells at once, whole cells as
    /// one more taker.
    fn send(&mut self, low: u32, high: u32, pairs: &ChunkPairs) {
        let first = self.cell_of[low as usize] as usize;
        let last = self.cell_of[high as usize - 1] as usize;
        let part = |cell: Cell, remotes: &mut [Remote]| {
            let (from, to) = (low.max(cell.low), high.min(cell.high));
            let remote = &mut remotes[cell.remote as usize];
            remote.sent_tokens += pairs.span_tokens(from, to);
            remote.sent_runs += 1;
        };
        part(self.cells[first], &mut self.remotes);
        if first < last {
            part(self.cells[last], &mut self.remotes);
            self.cells[first + 1].takers += 1;
            self.cells[last].takers -= 1;
        }
    }
}

/// Counts a chunk of `length` tokens in the stages that it attends; `before` are those of the
/// chunk before it.
pub(super) fn attend(remotes: &mut [Remote], attended: u64, before: u64, length: i64) {
    let mut new = attended & !before;
    let mut left = attended;
    while left != 0 {
        remotes[left.trailing_zeros() as usize].query_tokens += length;
        left &= left - 1;
    }
    while new != 0 {
        remotes[new.trailing_zeros() as usize].query_runs += 1;
        new &= new - 1;
    }
}

/// Sorts ranges and joins those that touch or overlap.
pub(super) fn merge(ranges: &mut Vec<(u32, u32)>) {
    if ranges.len() < 2 {
        return;
    }
    ranges.sort_unstable();
    let mut last = 0;
    for i in 1..ranges.len() {
        let (low, high) = ranges[i];
        if low <= ranges[last].1 {
            ranges[last].1 = ranges[last].1.max(high);
        } else {
            last += 1;
            ranges[last] = (low, high);
        }
    }
    ranges.truncate(last + 1);
}

/// The slowest rank, the first on ties, and its time.
pub(super) fn slowest(forward: &[f64], backward: &[f64]) -> (usize, f64) {
    let mut best = (0, f64::NEG_INFINITY);
    for (rank, (&f, &b)) in forward.iter().zip(backward).enumerate() {
        if f + b > best.1 {
            best = (rank, f + b);
        }
    }
    best
}

/// The rank's own chunks and their ranges: all queries attend at least themselves.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub pairs: i64,
    pub tokens: i64,
    pub ranges: i64,
}

impl Local {
    pub(super) fn stage_ms(self, pair_ms: f64, s: &OwnershipSettings) -> f64 {
        let (pairs, tokens) = (self.pairs as f64, self.tokens as f64);
        if self.pairs > 0 {
            let runs = (2 * self.ranges) as f64; // of queries and of keys
            s.stage_overhead_ms + pairs * pair_ms + tokens * s.merge_token_ms + runs * s.interval_ms
        } else {
            0.0
        }
    }
}

/// Forward and backward milliseconds of a rank with chunks.
pub(super) fn rank_times(local: Local, remotes: &[Remote], s: &OwnershipSettings) -> (f64, f64) {
    let local_forward = local.stage_ms(s.local_pair_ms, s);
    let local_backward = local.stage_ms(s.local_backward_pair_ms, s);
    let owned = local.tokens as f64 * s.owned_token_ms;
    (
        forward_ms(local_forward, remotes, s) + owned / 3.0,
        backward_ms(local_backward, remotes, s) + owned * (2.0 / 3.0),
    )
}

/// Stages with something to do, in order.
pub(super) fn active(remotes: &[Remote]) -> impl Iterator<Item = &Remote> {
    remotes
        .iter()
        .filter(|r| r.pairs > 0 || r.fetched_tokens > 0 || r.fetched_runs > 0)
}

/// Each fetch starts when the stage before it starts computing; the first is ready after its
/// own time.
fn forward_ms(local: f64, remotes: &[Remote], s: &OwnershipSettings) -> f64 {
    let mut end = local;
    let mut fetch_starts = 0.0;
    for remote in active(remotes) {
        let ready = fetch_starts + remote.comm_ms(s.fetch_token_ms, s);
        let start = larger(end, ready);
        end = start + remote.stage_ms(s.remote_pair_ms, s);
        fetch_starts = start;
    }
    end
}

/// Remote stages first, each reduced while the next computes, then the local stage.
fn backward_ms(local: f64, remotes: &[Remote], s: &OwnershipSettings) -> f64 {
    let (mut end, mut reduced, mut any) = (0.0, 0.0, false);
    for remote in active(remotes) {
        any = true;
        end += remote.stage_ms(s.remote_backward_pair_ms, s);
        reduced = larger(reduced, end + remote.comm_ms(s.reduce_token_ms, s));
    }
    if any {
        larger(end + local, reduced)
    } else {
        local
    }
}

impl Remote {
    pub(super) fn stage_ms(&self, pair_ms: f64, s: &OwnershipSettings) -> f64 {
        s.stage_overhead_ms
            + self.pairs as f64 * pair_ms
            + self.query_tokens as f64 * s.merge_token_ms
            + (self.query_runs + self.fetched_runs) as f64 * s.interval_ms
            + self.underfill_ms(s)
            + s.remote_host_ms
    }

    /// Grows as the stage has too few tokens or pairs to fill the device.
    fn underfill_ms(&self, s: &OwnershipSettings) -> f64 {
        if self.pairs <= 0 && self.query_tokens <= 0 && self.fetched_tokens <= 0 {
            return 0.0;
        }
        let missing = |floor: i64, have: i64| {
            if floor > 0 {
                larger(floor as f64 - have as f64, 0.0) / floor as f64
            } else {
                0.0
            }
        };
        let tokens = missing(
            s.underfill_tokens,
            self.query_tokens.min(self.fetched_tokens),
        );
        let pairs = missing(s.underfill_pairs, self.pairs);
        s.underfill_ms * larger(tokens, pairs)
    }

    /// A fetch or a reduce moves the larger of what the rank sends and what it receives.
    pub(super) fn comm_ms(&self, token_ms: f64, s: &OwnershipSettings) -> f64 {
        let tokens = self.sent_tokens.max(self.fetched_tokens);
        let runs = self.sent_runs.max(self.fetched_runs);
        if tokens <= 0 && runs <= 0 {
            return 0.0;
        }
        s.comm_overhead_ms + tokens as f64 * token_ms + runs as f64 * s.interval_ms
    }
}

/// The larger of two times; the first when they are equal.
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}
