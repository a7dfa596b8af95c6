//! Moves chunks at the cuts away from the slowest rank, for each number of fetch stages.

use super::bounds::profiled_bound;
use super::pairs::ChunkPairs;
use super::settings::OwnershipSettings;
use super::time::{Evaluator, Plan};
use super::{Asked, Ownership, Workspace, contiguous, fastest, profiled};
use crate::cancel;
use crate::error::Result;

/// The least gain that counts as better, in milliseconds.
pub(super) const TIE_MS: f64 = 1e-9;
/// Ranks from which the contiguous start is kept.
const RANKS_WITHOUT_STEPS: usize = 8;
/// With this many ranks a probe decides whether to search.
const PROBED_RANKS: usize = 4;
/// Chunks that the probe offers.
const PROBE_CANDIDATES: i64 = 2;
/// The least gain with which the search goes on, in milliseconds.
const PROBE_GAIN_MS: f64 = 1.0;

/// The method `reference`, exactly the reference planner's: a contiguous start, fetch stages, a
/// local search. Each rank has a contiguous range, but for a challenger of a workload profile.
pub(super) fn own(asked: &Asked<'_>, work: &mut Workspace) -> Result<Ownership> {
    let Asked {
        segments,
        ranks,
        settings,
        ..
    } = *asked;
    contiguous::balance(work, ranks, settings);
    let Workspace {
        pairs,
        start,
        search,
        ..
    } = &mut *work;
    let (chunks, chunk) = (pairs.len(), pairs.chunk);
    let stages = search.run(start, pairs, settings)?;
    search.evaluator.set_stages(stages, chunks);
    let mut made = work.made("reference", asked, &work.search.best);
    let Some(profile) = &settings.profile else {
        return Ok(made);
    };
    let problem = profiled::Problem {
        segments,
        chunk,
        chunks,
        ranks,
        stages,
        profile,
    };
    let (spans, done) = problem.choose(&work.search.best.cuts)?;
    let owners = profiled::owners(&spans).collect();
    made = Ownership {
        contiguous: made.contiguous,
        stages: made.stages,
        fetched_tokens: done.received_tokens.iter().copied().max().unwrap_or(0),
        score: done.query_flops as f64,
        bound: Some(profiled_bound(profile, &work.pairs, ranks)),
        work: Some(done),
        ..super::counted(made.method, ranks, made.tokens, chunk, owners)
    };
    made.optimal = made
        .bound
        .is_some_and(|bound| fastest::proven(made.score, bound));
    Ok(made)
}

/// Fetch stages that are tried.
pub(super) fn stage_limit(settings: &OwnershipSettings, chunks: usize) -> usize {
    Limits::new(settings, chunks).stages
}

/// Plans kept from call to call.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub(super) evaluator: Evaluator,
    current: Plan,
    candidate: Plan,
    moved: Plan,
    /// The answer of the last search.
    pub(super) best: Plan,
}

/// Caps on the search that fall as the chunks grow in number.
struct Limits {
    stages: usize,
    steps: i64,
    candidates: i64,
}

impl Limits {
    fn new(settings: &OwnershipSettings, chunks: usize) -> Self {
        let (stages, steps, candidates) = match chunks {
            128.. => (2, 2, 4),
            64.. => (3, 4, 6),
            _ => (i64::MAX, i64::MAX, i64::MAX),
        };
        Self {
            stages: settings.max_stages.min(stages).min(chunks as i64) as usize,
            steps: settings.steps.min(steps),
            candidates: settings.candidates.min(candidates),
        }
    }
}

impl Search {
    /// Finds the best plan from `start`; returns its number of fetch stages.
    pub(super) fn run(
        &mut self,
        start: &[u32],
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> Result<usize> {
        let limits = Limits::new(settings, pairs.len());
        let mut chosen = 0;
        for stages in 1..=limits.stages {
            self.evaluator.set_stages(stages, pairs.len());
            self.current.cuts.clear();
            self.current.cuts.extend_from_slice(start);
            cancel::check()?;
            self.evaluator.evaluate(&mut self.current, pairs, settings);
            self.improve(&limits, pairs, settings)?;
            if chosen == 0 || self.current.score + TIE_MS < self.best.score {
                std::mem::swap(&mut self.current, &mut self.best);
                chosen = stages;
            }
        }
        Ok(chosen)
    }

    /// Improves `current` step by step.
    fn improve(
        &mut self,
        limits: &Limits,
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> Result<()> {
        let ranks = self.current.cuts.len() - 1;
        let mut steps = limits.steps;
        if ranks >= RANKS_WITHOUT_STEPS || ranks == 1 || steps <= 0 {
            return Ok(());
        }
        if ranks == PROBED_RANKS {
            let offered = limits.candidates.min(PROBE_CANDIDATES);
            if !self.best_move(offered, pairs, settings)?
                || self.current.score - self.moved.score < PROBE_GAIN_MS
            {
                return Ok(());
            }
            std::mem::swap(&mut self.current, &mut self.moved);
            steps -= 1;
        }
        for _ in 0..steps {
            if !self.best_move(limits.candidates, pairs, settings)? {
                break;
            }
            std::mem::swap(&mut self.current, &mut self.moved);
        }
        Ok(())
    }

    /// Looks for the best move of one chunk of the slowest rank to the owner next to it.
    ///
    /// Ranks own contiguous chunks, so only the rank's first chunk (to the owner before) and
    /// its last (to the owner after) can move, whatever else the rank may offer. Both are
    /// offered unless the limit is a single one of several chunks.
    fn best_move(
        &mut self,
        offered: i64,
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> Result<bool> {
        let cuts = &self.current.cuts;
        let rank = self.current.slowest;
        let (low, high) = (cuts[rank], cuts[rank + 1]);
        let held = high - low;
        let may_empty = pairs.len() < cuts.len() - 1;
        if held == 0 || (held == 1 && !may_empty) {
            return Ok(false);
        }
        let mut found = false;
        if low > 0 {
            let before = owner(cuts, low - 1);
            self.copy_cuts();
            self.candidate.cuts[before + 1..=rank].fill(low + 1);
            found |= self.consider(found, pairs, settings)?;
        }
        if (high as usize) < pairs.len() && (offered != 1 || held == 1) {
            let after = owner(&self.current.cuts, high);
            self.copy_cuts();
            self.candidate.cuts[rank + 1..=after].fill(high - 1);
            found |= self.consider(found, pairs, settings)?;
        }
        Ok(found)
    }

    fn copy_cuts(&mut self) {
        self.candidate.cuts.clone_from(&self.current.cuts);
    }

    /// Prices the candidate and keeps it as the move if it is the better one.
    fn consider(
        &mut self,
        found: bool,
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> Result<bool> {
        cancel::check()?;
        self.evaluator
            .evaluate(&mut self.candidate, pairs, settings);
        let to_beat = if found { &self.moved } else { &self.current };
        let improves = self.candidate.score + TIE_MS < self.current.score
            && self.candidate.score + TIE_MS < to_beat.score;
        if improves {
            std::mem::swap(&mut self.candidate, &mut self.moved);
        }
        Ok(improves)
    }
}

/// The rank that owns a chunk.
fn owner(cuts: &[u32], chunk: u32) -> usize {
    cuts.partition_point(|&cut| cut <= chunk) - 1
}
