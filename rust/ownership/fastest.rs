//! The fastest contiguous ownership with at most so many tokens a rank, and a bound below all.
//!
//! What a rank needs depends on its own range of chunks, but for what it sends to later ranks and
//! how a fetched range is split over its sources; both only add. Without what is sent, and with no
//! more sources than every better answer has, the time of a range is a lower bound, and a dynamic
//! programme over cuts finds the least bound of the slowest rank. Its cuts, priced truly, are the
//! answer; where both are equal it is proven.

use super::pairs::ChunkPairs;
use super::reference::{self, TIE_MS, stage_limit};
use super::settings::OwnershipSettings;
use super::time::{Local, Plan, Remote, attend, rank_times};
use super::{Asked, Ownership, Workspace, even_cuts, part_of_each};
use crate::cancel;
use crate::error::{Error, Result};

/// Halvings of the search for the start's limit.
const HALVINGS: usize = 20;
/// Cells of a programme's tables at most; beyond, nothing is proven.
const MOST_CELLS: usize = 1 << 20;
/// Ranges that a programme prices at most.
const MOST_STEPS: usize = 1 << 22;
/// Bounds are lowered by this part, whatever the order of additions.
const ROUNDING: f64 = 1e-12;

/// The method `fastest`: the reference's answer where it has no more tokens and is as fast.
pub(super) fn own(asked: &Asked<'_>, work: &mut Workspace) -> Result<Ownership> {
    let most = most_tokens(asked, &work.pairs)?;
    let today = work.today(asked)?.clone();
    let fits = today.most_tokens <= most;
    let settings = asked.settings;
    if settings.profile.is_some() && !fits {
        return Err(Error::input(format!(
            "most_tokens is {most}: with a workload profile a rank owns {} tokens, whatever the \
             limit",
            today.most_tokens
        )));
    }
    if fits && !solvable(asked, &work.pairs) {
        return Ok(today);
    }
    let mut best = Plan::default();
    let mut stages = 0;
    if fits {
        best.cuts.clone_from(&work.search.best.cuts);
        best.score = today.score;
    }
    let mut start = Vec::new();
    if solvable(asked, &work.pairs) {
        fill_start(
            &work.pairs,
            asked.ranks,
            settings,
            most,
            &mut work.sums,
            &mut start,
        );
    } else {
        even_cuts(work.pairs.len(), asked.ranks, &mut start);
    }
    let limit = stage_limit(settings, work.pairs.len());
    for count in 1..=limit {
        cancel::check()?;
        work.consider(&start, count, settings, &mut best, &mut stages);
    }
    let mut bound = None;
    if asked.prove && solvable(asked, &work.pairs) {
        bound = prove(asked, work, most, &mut best, &mut stages)?;
    }
    if stages == 0 {
        return Ok(Ownership {
            bound: bound.or(today.bound),
            optimal: bound.is_some_and(|bound| proven(today.score, bound)),
            method: "fastest".to_owned(),
            ..today
        });
    }
    work.search.evaluator.set_stages(stages, work.pairs.len());
    let made = work.made("fastest", asked, &best);
    Ok(match bound {
        Some(bound) => Ownership {
            bound: Some(bound),
            optimal: proven(made.score, bound),
            ..made
        },
        None => made,
    })
}

/// [`Asked::even`], timed.
pub(super) fn even(asked: &Asked<'_>, work: &mut Workspace) -> Result<Ownership> {
    cancel::check()?;
    let (mut plan, mut stages, mut cuts) = (Plan::default(), 0, Vec::new());
    even_cuts(work.pairs.len(), asked.ranks, &mut cuts);
    let count = stage_limit(asked.settings, work.pairs.len());
    work.consider(&cuts, count, asked.settings, &mut plan, &mut stages);
    let owners = part_of_each(&cuts);
    let made = work.made_of("even".to_owned(), asked, owners.clone(), &plan);
    Ok(Ownership {
        contiguous: owners,
        ..made
    })
}

/// Whether a score is the least by a bound that is lowered against rounding.
pub(crate) fn proven(score: f64, bound: f64) -> bool {
    bound >= score * (1.0 - ROUNDING)
}

/// The cap that was given, or all tokens; refuses one below the even share.
fn most_tokens(asked: &Asked<'_>, pairs: &ChunkPairs) -> Result<i64> {
    let least = asked.even_tokens();
    let most = asked.most_tokens.unwrap_or(pairs.tokens);
    if most < least {
        return Err(Error::input(format!(
            "most_tokens is {most}: it must be at least {least}, the even share of {} tokens in \
             chunks of {} over {} ranks",
            pairs.tokens, pairs.chunk, asked.ranks
        )));
    }
    Ok(most)
}

/// The bound holds where more work never costs less and every rank has a chunk; a workload
/// profile has another score.
fn solvable(asked: &Asked<'_>, pairs: &ChunkPairs) -> bool {
    asked.settings.monotone() && asked.settings.profile.is_none() && pairs.len() >= asked.ranks
}

/// Cuts that fill each rank up to the least limit of its own work at which all chunks find a
/// place within `most` tokens a rank.
fn fill_start(
    pairs: &ChunkPairs,
    ranks: usize,
    settings: &OwnershipSettings,
    most: i64,
    sums: &mut Vec<f64>,
    cuts: &mut Vec<u32>,
) {
    let pair_ms = settings.local_pair_ms + settings.local_backward_pair_ms;
    let token_ms = settings.owned_token_ms + 2.0 * settings.merge_token_ms;
    sums.clear();
    sums.push(0.0);
    let mut sum = 0.0;
    for (i, &weight) in pairs.weights.iter().enumerate() {
        sum += weight as f64 * pair_ms + pairs.length(i) as f64 * token_ms;
        sums.push(sum);
    }
    let fill = |limit: f64, cuts: &mut Vec<u32>| {
        cuts.clear();
        cuts.push(0);
        let mut low = 0;
        for rank in 0..ranks {
            let last = pairs.len() - (ranks - 1 - rank);
            let holds = |high: usize| {
                sums[high] - sums[low] <= limit
                    && pairs.span_tokens(low as u32, high as u32) <= most
            };
            let high = farthest(low, last, holds);
            if high == low {
                return false;
            }
            cuts.push(high as u32);
            low = high;
        }
        low == pairs.len()
    };
    let (mut least, mut enough) = (sum / ranks as f64, sum);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (least + enough);
        if fill(middle, cuts) {
            enough = middle;
        } else {
            least = middle;
        }
    }
    if !fill(enough, cuts) {
        even_cuts(pairs.len(), ranks, cuts);
    }
}

/// The last place from `low` to `last` that holds; `low` itself is not asked.
fn farthest(mut low: usize, mut last: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < last {
        let middle = (low + last).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            last = middle - 1;
        }
    }
    low
}

/// Runs the programme for every number of stages; the bound, lowered against rounding. It holds
/// within every tighter limit too, whose owners are all among those that it is below.
fn prove(
    asked: &Asked<'_>,
    work: &mut Workspace,
    most: i64,
    best: &mut Plan,
    stages: &mut usize,
) -> Result<Option<f64>> {
    let mut bound = f64::INFINITY;
    let mut cuts = Vec::new();
    for count in 1..=stage_limit(asked.settings, work.pairs.len()) {
        work.search.evaluator.set_stages(count, work.pairs.len());
        let mut programme = Programme {
            pairs: &work.pairs,
            bounds: &work.search.evaluator.bounds,
            settings: asked.settings,
            ranks: asked.ranks,
            most,
            limit: best.score,
            tables: &mut work.tables,
        };
        match programme.solve(&mut cuts)? {
            Answer::None => {}
            Answer::TooLarge => return Ok(None),
            Answer::Cuts(least) => {
                bound = bound.min(least);
                work.consider(&cuts, count, asked.settings, best, stages);
            }
        }
    }
    Ok(Some(bound.min(best.score) * (1.0 - ROUNDING)))
}

impl Workspace {
    /// Prices cuts at a number of stages, and keeps them if they are faster.
    pub(super) fn consider(
        &mut self,
        cuts: &[u32],
        count: usize,
        settings: &OwnershipSettings,
        best: &mut Plan,
        stages: &mut usize,
    ) {
        let evaluator = &mut self.search.evaluator;
        evaluator.set_stages(count, self.pairs.len());
        self.trial.cuts.clear();
        self.trial.cuts.extend_from_slice(cuts);
        evaluator.evaluate(&mut self.trial, &self.pairs, settings);
        if best.cuts.is_empty() || self.trial.score + TIE_MS < best.score {
            std::mem::swap(&mut self.trial, best);
            *stages = count;
        }
    }

    /// The reference's answer for this pack, computed once.
    pub(super) fn today(&mut self, asked: &Asked<'_>) -> Result<&Ownership> {
        let made = match self.today.take() {
            Some(made) => made,
            None => reference::own(asked, self)?,
        };
        Ok(self.today.insert(made))
    }
}

/// Tables of the programme, kept from call to call.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Cut `r` lies from `low[r]` to `high[r]` in any answer better than the limit.
    low: Vec<usize>,
    high: Vec<usize>,
    /// Where the cells of cut `r` begin, less `low[r]`.
    rows: Vec<usize>,
    /// Least bound of the ranks before cut `r` at a chunk.
    best: Vec<f64>,
    /// The cut before it.
    from: Vec<u32>,
    /// Cuts within one stage in any such answer: the chunk before their first place, the chunk
    /// after their last, the stage.
    sure: Vec<(u32, u32, usize)>,
    /// Chunks fetched by the range at hand, a bit each.
    fetched: Vec<u64>,
    remotes: Vec<Remote>,
}

enum Answer {
    /// Nothing is better than the limit.
    None,
    /// The bound of the best cuts.
    Cuts(f64),
    /// Too many cells or steps.
    TooLarge,
}

/// The programme for one number of fetch stages.
struct Programme<'a> {
    pairs: &'a ChunkPairs,
    bounds: &'a [u32],
    settings: &'a OwnershipSettings,
    ranks: usize,
    most: i64,
    /// Only answers at most as slow are looked for.
    limit: f64,
    tables: &'a mut Tables,
}

impl Programme<'_> {
    /// Least time that the chunks of a range add to the fixed part of their rank's.
    fn added(&self, low: usize, high: usize) -> f64 {
        let s = self.settings;
        let local = s.local_pair_ms + s.local_backward_pair_ms;
        let remote = s.remote_pair_ms + s.remote_backward_pair_ms;
        let weight = self.pairs.weight_sums[high] - self.pairs.weight_sums[low];
        let tokens = self.pairs.span_tokens(low as u32, high as u32);
        weight as f64 * local.min(remote)
            + tokens as f64 * (2.0 * s.merge_token_ms + s.owned_token_ms)
    }

    /// What a range may add in an answer no slower than the limit.
    fn room(&self) -> f64 {
        let s = self.settings;
        let fixed = 2.0 * s.stage_overhead_ms + 4.0 * s.interval_ms;
        (self.limit - fixed) * (1.0 + 1e-9)
    }

    fn holds(&self, low: usize, high: usize, room: f64) -> bool {
        self.pairs.span_tokens(low as u32, high as u32) <= self.most
            && self.added(low, high) <= room
    }

    /// Fills the windows of all cuts; false where some cut has none.
    fn windows(&mut self) -> bool {
        let (chunks, ranks, room) = (self.pairs.len(), self.ranks, self.room());
        let mut high = vec![0; ranks + 1];
        let mut low = vec![chunks; ranks + 1];
        for r in 0..ranks {
            high[r + 1] = farthest(high[r], chunks, |at| self.holds(high[r], at, room));
        }
        for r in (0..ranks).rev() {
            let to = low[r + 1];
            low[r] = to - farthest(0, to, |count| self.holds(to - count, to, room));
        }
        if high[ranks] < chunks || low[0] > 0 {
            return false;
        }
        for r in 0..=ranks {
            low[r] = low[r].max(r);
            high[r] = high[r].min(chunks - (ranks - r));
        }
        (high[0], low[ranks]) = (0, chunks);
        let open = low.iter().zip(&high).all(|(low, high)| low <= high);
        self.tables.sure.clear();
        for r in 1..ranks {
            let (first, last) = (low[r] as u32 - 1, high[r] as u32);
            let stage = self.bounds.partition_point(|&bound| bound <= first) - 1;
            if open && last < self.bounds[stage + 1] {
                self.tables.sure.push((first, last, stage));
            }
        }
        (self.tables.low, self.tables.high) = (low, high);
        open
    }

    /// Finds the cuts of the least bound.
    fn solve(&mut self, cuts: &mut Vec<u32>) -> Result<Answer> {
        if !self.windows() {
            return Ok(Answer::None);
        }
        let ranks = self.ranks;
        let mut cells = 0;
        let Tables {
            low,
            high,
            rows,
            best,
            from,
            ..
        } = &mut *self.tables;
        rows.clear();
        for (low, high) in low.iter().zip(&*high) {
            rows.push(cells);
            cells += high - low + 1;
        }
        if cells > MOST_CELLS {
            return Ok(Answer::TooLarge);
        }
        best.clear();
        best.resize(cells, f64::INFINITY);
        from.clear();
        from.resize(cells, 0);
        best[0] = 0.0;
        if !self.fill()? {
            return Ok(Answer::TooLarge);
        }
        let Tables {
            low,
            rows,
            best,
            from,
            ..
        } = &*self.tables;
        let least = best[cells - 1];
        if least > self.limit {
            return Ok(Answer::None);
        }
        cuts.clear();
        cuts.resize(ranks + 1, self.pairs.len() as u32);
        for r in (0..ranks).rev() {
            let at = cuts[r + 1] as usize;
            cuts[r] = from[rows[r + 1] + at - low[r + 1]];
        }
        Ok(Answer::Cuts(least))
    }

    /// Prices every range that a window allows, from its first chunk on; false where they are too
    /// many. Of equal bounds the latest cut stays.
    fn fill(&mut self) -> Result<bool> {
        let (room, mut steps) = (self.room(), 0);
        let (mut first, mut last) = (0, 0);
        for start in 0..self.pairs.len() {
            cancel::check_at(start)?;
            let Tables {
                low,
                high,
                rows,
                best,
                ..
            } = &*self.tables;
            while high[first] < start {
                first += 1;
            }
            while last + 1 < self.ranks && low[last + 1] <= start {
                last += 1;
            }
            let reached = |r: usize| best[rows[r] + start - low[r]] <= self.limit;
            if first > last || !(first..=last).any(reached) {
                continue;
            }
            let (near, far) = (low[first + 1], high[last + 1]);
            let mut range = Range::new(self, start);
            for end in start + 1..=far {
                if !self.holds(start, end, room) {
                    break;
                }
                steps += 1;
                range.extend(self, end - 1);
                if end < near {
                    continue;
                }
                let time = range.time(self, end);
                if time > self.limit {
                    continue;
                }
                let Tables {
                    low,
                    high,
                    rows,
                    best,
                    from,
                    ..
                } = &mut *self.tables;
                for r in first..=last {
                    if low[r + 1] <= end && end <= high[r + 1] {
                        let before = best[rows[r] + start - low[r]];
                        let cell = rows[r + 1] + end - low[r + 1];
                        let slowest = if time > before { time } else { before };
                        if before <= self.limit && slowest <= best[cell] {
                            (best[cell], from[cell]) = (slowest, start as u32);
                        }
                    }
                }
            }
            range.give_back(self);
            if steps > MOST_STEPS {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The work of one rank from its first chunk on, chunk by chunk.
struct Range {
    start: u32,
    fetched: Vec<u64>,
    remotes: Vec<Remote>,
    /// Stages that the chunk before attends.
    before: u64,
}

impl Range {
    fn new(programme: &mut Programme<'_>, start: usize) -> Self {
        let tables = &mut *programme.tables;
        let mut fetched = std::mem::take(&mut tables.fetched);
        let mut remotes = std::mem::take(&mut tables.remotes);
        fetched.clear();
        fetched.resize(programme.pairs.len().div_ceil(64), 0);
        remotes.clear();
        remotes.resize(programme.bounds.len() - 1, Remote::default());
        Self {
            start: start as u32,
            fetched,
            remotes,
            before: 0,
        }
    }

    fn give_back(self, programme: &mut Programme<'_>) {
        programme.tables.fetched = self.fetched;
        programme.tables.remotes = self.remotes;
    }

    /// Adds chunk `i`, the next one.
    fn extend(&mut self, programme: &Programme<'_>, i: usize) {
        let (pairs, bounds) = (programme.pairs, programme.bounds);
        if pairs.lowest_after[i] >= self.start {
            return;
        }
        let (mut attended, mut more, mut stage) = (0_u64, false, 0);
        for run in pairs.pack(i) {
            if run.low >= self.start {
                break;
            }
            let end = run.high.min(self.start);
            let mut at = run.low;
            while at < end {
                while bounds[stage + 1] <= at {
                    stage += 1;
                }
                let next = end.min(bounds[stage + 1]);
                self.remotes[stage].pairs += i64::from(next - at) * run.pairs;
                attended |= 1 << stage;
                at = next;
            }
            more |= set(&mut self.fetched, run.low, end);
        }
        attend(&mut self.remotes, attended, self.before, pairs.length(i));
        if more {
            for (remote, bound) in self.remotes.iter_mut().zip(bounds.windows(2)) {
                let (chunks, runs) = count(&self.fetched, bound[0], bound[1]);
                remote.fetched_tokens = chunks * pairs.chunk;
                remote.fetched_runs = runs;
            }
            // A run with a cut inside has two sources.
            for &(first, last, stage) in &programme.tables.sure {
                if last >= self.start {
                    break;
                }
                self.remotes[stage].fetched_runs += i64::from(all(&self.fetched, first, last + 1));
            }
        }
        self.before = attended;
    }

    /// Forward + backward of the chunks up to `end`, nothing sent.
    fn time(&self, programme: &Programme<'_>, end: usize) -> f64 {
        let pairs = programme.pairs;
        let all = pairs.weight_sums[end] - pairs.weight_sums[self.start as usize];
        let local = Local {
            pairs: all - self.remotes.iter().map(|remote| remote.pairs).sum::<i64>(),
            tokens: pairs.span_tokens(self.start, end as u32),
            ranges: 1,
        };
        let (forward, backward) = rank_times(local, &self.remotes, programme.settings);
        forward + backward
    }
}

/// The words that hold the bits `low..high` (not empty), each with its mask.
fn masks(low: u32, high: u32) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (low / 64, (high - 1) / 64);
    (first..=last).map(move |word| {
        let from = if word == first {
            u64::MAX << (low % 64)
        } else {
            u64::MAX
        };
        let to = if word == last {
            u64::MAX >> (63 - (high - 1) % 64)
        } else {
            u64::MAX
        };
        (word as usize, from & to)
    })
}

/// Sets the bits `low..high`; whether one was not set before.
fn set(bits: &mut [u64], low: u32, high: u32) -> bool {
    let mut new = false;
    for (word, mask) in masks(low, high) {
        new |= bits[word] & mask != mask;
        bits[word] |= mask;
    }
    new
}

/// Whether the bits `low..high` are all set.
fn all(bits: &[u64], low: u32, high: u32) -> bool {
    masks(low, high).all(|(word, mask)| bits[word] & mask == mask)
}

/// Bits set in `low..high`, and the runs that they form.
fn count(bits: &[u64], low: u32, high: u32) -> (i64, i64) {
    let (mut ones, mut runs, mut carry) = (0, 0, 0);
    for (word, mask) in masks(low, high) {
        let here = bits[word] & mask;
        ones += i64::from(here.count_ones());
        runs += i64::from((here & !(here << 1 | carry)).count_ones());
        carry = here >> 63;
    }
    (ones, runs)
}
