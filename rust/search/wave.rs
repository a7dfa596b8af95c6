//! One wave's search, alone or in step with other ranks.
//!
//! Alone, probes are live and lazy. With other ranks they are agreed in tables, see
//! [`Exchange`].

use std::sync::Arc;

use super::agreed::Exchange;
use super::attempts::{Attempt, Fallback};
use super::plan::{ForwardPlan, Pricer, Share};
use super::probe::{Probe, Prober};
use super::{Engine, Profiles, Signature};
use crate::error::{Error, Result};
use crate::fields::result;
use crate::measures::Measures;
use crate::search::width::{self, Decisions, Geometry, Outcome, Probes, Stop};

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With one forward.
    Wave,
    /// With several, their graphs alive together.
    Split,
    /// Not even the minimum wave can run.
    Refused,
}

impl Ending {
    /// The name in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wave => "wave",
            Self::Split => "split",
            Self::Refused => "refused",
        }
    }
}

result! {
    /// The result of a search on this rank.
    #[derive(Debug, Clone)]
    pub struct SearchResult as "SearchResult" {
        /// "wave", "split" or "refused".
        pub kind: Ending,
        /// Groups of requests over all data-parallel ranks.
        pub width: usize,
        /// This rank's groups.
        pub groups: Vec<usize>,
        /// Bytes needed on this rank.
        pub required: i64,
        /// Bytes needed where each pack is shared evenly over the context-parallel ranks.
        pub least: i64,
        /// Beyond what its profile has seen.
        pub cold: bool,
        /// The forwards in order; of a refusal the fully shared plan.
        pub plans: Vec<ForwardPlan>,
        /// Per part of a split, its requests, numbered within the wave's share.
        pub part_requests: Vec<Vec<u32>>,
        /// The plan that did not fit or was not trusted at the width where the search stopped.
        pub stopped: Option<ForwardPlan>,
        /// Of a refusal: all attempts, in order.
        pub attempts: Vec<Attempt>,
        /// Splitting is switched off (expert parallelism).
        pub unsplittable: bool,
        /// Everything priced, in order.
        pub probes: Vec<Probe>,
        /// Distinct widths after the minimum wave that did not fit.
        pub rejected: usize,
        @core
        /// The reason why it is not wider.
        pub stop: Stop,
    }
    get {
        /// The reason why it is not wider: "memory", "time", "trust" or "end".
        stop(self) = match self.stop {
            Stop::Memory(_) => "memory",
            Stop::Time(_) => "time",
            Stop::Trust(_) => "trust",
            Stop::End => "end",
        };
        /// The width that gave it; 0 at the end of the pool.
        stop_width(self) = match self.stop {
            Stop::Memory(width) | Stop::Time(width) | Stop::Trust(width) => width,
            Stop::End => 0,
        };
    }
}

/// Widths whose rate at a first look is at least so much of the best are timed as they would run: a
/// first look tries few limits of tokens, and proves nothing.
const NEAR: f64 = 0.995;

/// Less the modelled nanoseconds of a plan.
fn nanoseconds(plan: &ForwardPlan) -> i64 {
    -(plan.milliseconds().unwrap_or(0.0) * 1e6).round() as i64
}

/// One search from `start` on.
pub struct Session {
    geometry: Geometry,
    hint: Option<usize>,
    decisions: Decisions,
    prober: Prober,
    exchange: Exchange,
    /// How the search ended, before times were compared.
    ended: Option<Outcome>,
    /// Widths whose times are compared, ascending.
    widths: Vec<usize>,
}

impl Session {
    /// Starts a search with `available` bytes for this rank's share; `hint` is the largest width
    /// used so far.
    pub fn new(
        engine: Arc<Engine>,
        profiles: Arc<Profiles>,
        start: usize,
        available: i64,
        hint: Option<usize>,
    ) -> Result<Self> {
        let settings = engine.settings();
        let geometry = Geometry::new(engine.pool().groups(), start, settings.dp)?;
        let strategy = engine.strategy();
        Ok(Self {
            geometry,
            hint,
            decisions: Decisions::new(strategy),
            prober: Prober::new(engine, profiles, start, available),
            exchange: Exchange::new(geometry, hint, strategy),
            ended: None,
            widths: Vec::new(),
        })
    }

    /// The whole search with live probes: for one data-parallel rank.
    pub fn alone(&mut self) -> Result<SearchResult> {
        let outcome = width::search(
            self.geometry,
            self.hint,
            &mut self.decisions,
            &mut self.prober,
        )?;
        if let Outcome::Wave(width, _) = outcome {
            self.decisions.choose(width, &mut self.prober)?;
        }
        self.ends(outcome);
        let times = self.times()?;
        self.fastest(&times)
    }

    /// Sets the bytes available for this rank's share, before anything is priced.
    pub fn set_available(&mut self, available: i64) {
        self.prober.available = available;
    }

    /// Entries of the first table.
    #[must_use]
    pub fn growth_len(&self) -> usize {
        self.exchange.growth_len()
    }

    /// Computes the first table: this rank's probes of every width of growth.
    pub fn growth(&mut self) -> Result<Vec<i64>> {
        self.exchange.growth(&mut self.prober)
    }

    /// Takes the first agreed table; entries of the second.
    pub fn agree_growth(&mut self, agreed: &[i64]) -> Result<usize> {
        self.exchange.settle_growth(&self.decisions, agreed)
    }

    /// Computes the second table: this rank's probes of the widths of bisection.
    pub fn bisection(&mut self) -> Result<Vec<i64>> {
        self.exchange.bisection(&mut self.prober)
    }

    /// Takes the second agreed table; entries of the third, which is empty in reference mode.
    pub fn agree_bisection(&mut self, agreed: &[i64]) -> Result<usize> {
        self.exchange.settle_bisection(&self.decisions, agreed)
    }

    /// Computes the third table: this rank's probes of the widths between two granules.
    pub fn refinement(&mut self) -> Result<Vec<i64>> {
        self.exchange.refinement(&mut self.prober)
    }

    /// Takes the third agreed table; entries of the fourth, which is empty where no times are
    /// compared.
    pub fn agree_refinement(&mut self, agreed: &[i64]) -> Result<usize> {
        let outcome = self.exchange.settle(&mut self.decisions, agreed)?;
        self.ends(outcome);
        Ok(self.widths.len())
    }

    /// Computes the fourth table: less this rank's modelled nanoseconds of each width that may run,
    /// the least number where it does not. Those near the best are timed as they would run.
    pub fn times(&mut self) -> Result<Vec<i64>> {
        let mut times = Vec::with_capacity(self.widths.len());
        for &width in &self.widths {
            let kind = self.decisions.executed(width);
            times.push(if self.prober.probe(width, kind)?.usable() {
                nanoseconds(self.prober.timed(width, kind)?)
            } else {
                -i64::MAX
            });
        }
        let rates = self.rates(&times);
        let best = rates.iter().copied().fold(0.0, f64::max);
        for (at, rate) in rates.into_iter().enumerate() {
            if rate >= NEAR * best {
                let width = self.widths[at];
                let kind = self.decisions.executed(width);
                times[at] = nanoseconds(&self.prober.run(width, kind)?.0);
            }
        }
        Ok(times)
    }

    /// Takes the fourth agreed table and ends the search.
    pub fn finish(&mut self, agreed: &[i64]) -> Result<SearchResult> {
        let entries = self.widths.len();
        if self.ended.is_none() || agreed.len() != entries {
            return Err(Error::input(format!(
                "the agreed table of times has {} entries: agree_refinement asks for {entries}",
                agreed.len()
            )));
        }
        self.fastest(agreed)
    }

    /// Keeps how the search ended, and the widths whose times are compared: if there are several,
    /// those from half of what it took on, and where the pool is best cut.
    fn ends(&mut self, outcome: Outcome) {
        self.ended = Some(outcome);
        self.widths.clear();
        let engine = &self.prober.pricer.engine;
        if let (Outcome::Wave(width, _), true) = (outcome, engine.settings().times_decide()) {
            self.widths = self.decisions.usable(width);
            self.widths.retain(|&one| 2 * one >= width);
            self.widths.extend(engine.cut(self.prober.start, width));
            self.widths.sort_unstable();
            self.widths.dedup();
        }
        if self.widths.len() < 2 {
            self.widths.clear();
        }
    }

    /// Work per modelled time of each width.
    fn rates(&self, times: &[i64]) -> Vec<f64> {
        let (engine, start) = (&self.prober.pricer.engine, self.prober.start);
        let work = |&width: &usize| engine.work(start, width) as f64;
        let widths = self.widths.iter().map(work);
        (widths
            .zip(times)
            .map(|(work, &time)| work / (-time).max(1) as f64))
        .collect()
    }

    /// Ends the search with the width of most work per modelled time, the widest of equals.
    fn fastest(&mut self, table: &[i64]) -> Result<SearchResult> {
        let Some(outcome) = self.ended else {
            return Err(Error::Internal("a search has not ended"));
        };
        let rates = self.rates(table);
        let runs: Vec<usize> = (0..table.len())
            .filter(|&at| table[at] > -i64::MAX)
            .collect();
        let best = (0..runs.len()).max_by(|&a, &b| rates[runs[a]].total_cmp(&rates[runs[b]]));
        match best.and_then(|at| Some((runs[at], *runs.get(at + 1)?))) {
            Some((at, wider)) => self.end(Outcome::Wave(
                self.widths[at],
                Stop::Time(self.widths[wider]),
            )),
            None => self.end(outcome),
        }
    }

    fn end(&mut self, outcome: Outcome) -> Result<SearchResult> {
        let found = self.found(outcome)?;
        Ok(SearchResult {
            probes: self.prober.probes.clone(),
            rejected: self.decisions.rejected(),
            ..found
        })
    }

    fn found(&mut self, outcome: Outcome) -> Result<SearchResult> {
        let (width, stop) = match outcome {
            Outcome::Cold(width, stop) | Outcome::Wave(width, stop) => (width, stop),
            Outcome::Split => return self.split(),
        };
        let executed = self.decisions.executed(width);
        let (planned, least) = self.prober.run(width, executed)?.clone();
        let decided = self.decisions.decided(width);
        let required = match decided {
            Some(kind) => self.prober.required(width, kind)?,
            None => planned.required(),
        };
        let stopped = match stop {
            Stop::Time(at) => {
                let executed = self.decisions.executed(at);
                Some(self.prober.timed(at, executed)?.clone())
            }
            Stop::Memory(at) | Stop::Trust(at) if at != width => {
                let executed = self.decisions.executed(at);
                Some(self.prober.take_even(at, executed)?)
            }
            _ => None,
        };
        Ok(SearchResult {
            least,
            cold: !planned.covered,
            stop,
            stopped,
            ..SearchResult::made(width, self.prober.groups(width), required, vec![planned])
        })
    }

    fn split(&mut self) -> Result<SearchResult> {
        let width = self.geometry.min_width;
        let groups = self.prober.groups(width);
        Ok(after_attempts(width, groups, self.prober.split(width)?))
    }
}

impl SearchResult {
    /// One forward or several, after attempts to split it.
    fn made(width: usize, groups: Vec<usize>, required: i64, plans: Vec<ForwardPlan>) -> Self {
        Self {
            kind: Ending::Wave,
            width,
            groups,
            required,
            least: required,
            cold: true,
            plans,
            part_requests: Vec::new(),
            stopped: None,
            attempts: Vec::new(),
            unsplittable: false,
            probes: Vec::new(),
            rejected: 0,
            stop: Stop::Memory(width),
        }
    }
}

/// The result of attempts, as that of a search.
fn after_attempts(width: usize, groups: Vec<usize>, fallback: Fallback) -> SearchResult {
    match fallback {
        Fallback::Whole(plan, least) => SearchResult {
            least,
            ..SearchResult::made(width, groups, plan.required(), vec![*plan])
        },
        Fallback::Split(split) => SearchResult {
            kind: Ending::Split,
            least: split.least,
            part_requests: split.requests,
            ..SearchResult::made(width, groups, split.required, split.parts)
        },
        Fallback::Refused(refusal) => SearchResult {
            kind: Ending::Refused,
            attempts: refusal.attempts,
            unsplittable: refusal.unsplittable,
            ..SearchResult::made(width, groups, refusal.required, vec![refusal.plan])
        },
    }
}

/// Computes the signature by which a profile of these requests is kept.
pub fn sign(engine: Arc<Engine>, requests: &[u32]) -> Result<Signature> {
    let mut share = Share::default();
    let mut pricer = Pricer::new(engine, Arc::default());
    pricer.load(requests, &mut share)?;
    Ok(pricer.sign(&share))
}

/// Measures a whole pool as one forward that shares nothing, so that every rule which charges for
/// some of its requests charges there.
pub fn unshared(engine: Arc<Engine>) -> Result<Measures> {
    let requests: Vec<u32> = (0..engine.pool().len() as u32).collect();
    let mut share = Share::default();
    let mut pricer = Pricer::new(engine, Arc::default());
    pricer.load(&requests, &mut share)?;
    pricer.unshared(&share)
}

/// Plans these requests as one forward, split where it must be; with everything priced.
pub fn plan(
    engine: Arc<Engine>,
    profiles: Arc<Profiles>,
    requests: &[u32],
    available: i64,
) -> Result<SearchResult> {
    let mut prober = Prober::new(engine, profiles, 0, available);
    prober.load(requests)?;
    let found = prober.split(0)?;
    Ok(SearchResult {
        probes: prober.probes,
        ..after_attempts(0, Vec::new(), found)
    })
}
