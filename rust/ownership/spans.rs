//! The time model for any owners: ranks with several ranges of chunks.

use super::pairs::ChunkPairs;
use super::profiled::Span;
use super::settings::OwnershipSettings;
use super::time::{Evaluator, Local, Plan, Remote, active, attend, merge, rank_times, slowest};

impl Evaluator {
    /// Times of the owners of `spans`, which cover the chunks in order, neighbours joined.
    pub(super) fn spans(
        &mut self,
        spans: &[Span],
        ranks: usize,
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> Plan {
        self.count_all(spans, ranks, pairs);
        let mut plan = Plan {
            fetched: self.most_fetched(),
            ..Plan::default()
        };
        for rank in 0..ranks {
            let (forward, backward) = self.rank_of_spans(rank, spans, pairs, settings);
            plan.forward.push(forward);
            plan.backward.push(backward);
        }
        (plan.slowest, plan.score) = slowest(&plan.forward, &plan.backward);
        plan
    }

    fn count_all(&mut self, spans: &[Span], ranks: usize, pairs: &ChunkPairs) {
        self.lay_spans(spans, ranks);
        for rank in 0..ranks {
            let fetched = self.count_spans(rank, spans, pairs);
            self.exchange(rank, &fetched, pairs);
        }
        self.send_all(pairs);
    }

    /// Forward milliseconds of each rank: the local stage, then per fetch stage its compute and its
    /// exchange. Zeros where there is nothing to do.
    pub(super) fn stage_times(
        &mut self,
        spans: &[Span],
        ranks: usize,
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> Vec<f64> {
        self.count_all(spans, ranks, pairs);
        let mut times = Vec::with_capacity(ranks * (1 + 2 * self.stages));
        for rank in 0..ranks {
            let local = self.local_of_spans(rank, spans, pairs);
            times.push(local.stage_ms(settings.local_pair_ms, settings));
            for remote in &self.remotes[rank * self.stages..(rank + 1) * self.stages] {
                if active(std::slice::from_ref(remote)).next().is_some() {
                    times.push(remote.stage_ms(settings.remote_pair_ms, settings));
                    times.push(remote.comm_ms(settings.fetch_token_ms, settings));
                } else {
                    times.extend([0.0, 0.0]);
                }
            }
        }
        times
    }

    /// The slowest of the ranks `low..high`. What they attend belongs to no rank from `high` on;
    /// those fetch `later`, whoever owns it.
    pub(super) fn slowest_of(
        &mut self,
        (low, high): (usize, usize),
        spans: &[Span],
        later: &[Vec<(u32, u32)>],
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> f64 {
        self.lay_spans(spans, later.len());
        for rank in low..high {
            let fetched = self.count_spans(rank, spans, pairs);
            self.exchange(rank, &fetched, pairs);
        }
        for (rank, fetched) in later.iter().enumerate().skip(high) {
            self.exchange(rank, fetched, pairs);
        }
        self.send_all(pairs);
        let time = |rank| {
            let (forward, backward) = self.rank_of_spans(rank, spans, pairs, settings);
            forward + backward
        };
        (low..high).map(time).fold(0.0, f64::max)
    }

    /// Every rank is a holder, so that a holder's number is its rank.
    pub(super) fn lay_spans(&mut self, spans: &[Span], ranks: usize) {
        self.remotes.clear();
        self.remotes.resize(ranks * self.stages, Remote::default());
        self.cells.clear();
        self.cell_of.clear();
        self.fetched_by_any.clear();
        for span in spans {
            self.lay_cells(span.low, span.high, span.rank as usize);
        }
    }

    /// Counts what the queries of a rank attend elsewhere; returns the chunks that it fetches.
    pub(super) fn count_spans(
        &mut self,
        rank: usize,
        spans: &[Span],
        pairs: &ChunkPairs,
    ) -> Vec<(u32, u32)> {
        let stages = self.stages;
        let remotes = &mut self.remotes[rank * stages..(rank + 1) * stages];
        let mut fetched: Vec<(u32, u32)> = Vec::new();
        let mut known = vec![false; self.cells.len()];
        for span in spans.iter().filter(|span| span.rank as usize == rank) {
            let mut before = 0;
            for i in span.low as usize..span.high as usize {
                let mut attended = 0;
                for run in pairs.pack(i) {
                    let mut at = run.low;
                    while at < run.high {
                        let number = self.cell_of[at as usize] as usize;
                        let cell = self.cells[number];
                        let end = run.high.min(cell.high);
                        if cell.remote as usize / stages != rank {
                            let stage = cell.remote as usize % stages;
                            remotes[stage].pairs += i64::from(end - at) * run.pairs;
                            attended |= 1 << stage;
                            if !known[number] {
                                known[number] = (at, end) == (cell.low, cell.high);
                                fetched.push((at, end));
                            }
                        }
                        at = end;
                    }
                }
                attend(remotes, attended, before, pairs.length(i));
                before = attended;
            }
        }
        merge(&mut fetched);
        fetched
    }

    /// Forward and backward milliseconds of a rank that was counted.
    fn rank_of_spans(
        &self,
        rank: usize,
        spans: &[Span],
        pairs: &ChunkPairs,
        settings: &OwnershipSettings,
    ) -> (f64, f64) {
        let local = self.local_of_spans(rank, spans, pairs);
        if local.ranges == 0 {
            return (0.0, 0.0);
        }
        let remotes = &self.remotes[rank * self.stages..(rank + 1) * self.stages];
        rank_times(local, remotes, settings)
    }

    /// What a rank that was counted computes on its own keys.
    fn local_of_spans(&self, rank: usize, spans: &[Span], pairs: &ChunkPairs) -> Local {
        let mut local = Local {
            pairs: 0,
            tokens: 0,
            ranges: 0,
        };
        for span in spans.iter().filter(|span| span.rank as usize == rank) {
            let (low, high) = (span.low as usize, span.high as usize);
            local.pairs += pairs.weight_sums[high] - pairs.weight_sums[low];
            local.tokens += pairs.span_tokens(span.low, span.high);
            local.ranges += 1;
        }
        let remotes = &self.remotes[rank * self.stages..(rank + 1) * self.stages];
        local.pairs -= remotes.iter().map(|remote| remote.pairs).sum::<i64>();
        local
    }
}
