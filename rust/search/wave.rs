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
use crate::search::width::{self, Decisions, Geometry, Outcome, Stop};

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

/// One search from `start` on.
pub struct Session {
    geometry: Geometry,
    hint: Option<usize>,
    decisions: Decisions,
    prober: Prober,
    exchange: Exchange,
    /// How the search ended, before times were compared.
    ended: Option<Outcome>,
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
        self.ended = Some(outcome);
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
        self.ended = Some(self.exchange.settle(&mut self.decisions, agreed)?);
        Ok(self.timed().len())
    }

    /// Computes the fourth table: less this rank's modelled nanoseconds of each width that may run.
    pub fn times(&mut self) -> Result<Vec<i64>> {
        let mut times = Vec::new();
        for width in self.timed() {
            let kind = self.decisions.executed(width);
            let plan = self.prober.timed(width, kind)?;
            times.push(-(plan.milliseconds().unwrap_or(0.0) * 1e6).round() as i64);
        }
        Ok(times)
    }

    /// Takes the fourth agreed table and ends the search.
    pub fn finish(&mut self, agreed: &[i64]) -> Result<SearchResult> {
        let entries = self.timed().len();
        if self.ended.is_none() || agreed.len() != entries {
            return Err(Error::input(format!(
                "the agreed table of times has {} entries: agree_refinement asks for {entries}",
                agreed.len()
            )));
        }
        self.fastest(agreed)
    }

    /// Widths whose times are compared: from half of what the search took on, if there are several.
    fn timed(&self) -> Vec<usize> {
        match self.ended {
            Some(Outcome::Wave(width, _))
                if self.prober.pricer.engine.settings().times_decide() =>
            {
                let mut widths = self.decisions.usable(width);
                widths.retain(|&one| 2 * one >= width);
                if widths.len() < 2 { Vec::new() } else { widths }
            }
            _ => Vec::new(),
        }
    }

    /// Ends the search with the width of most work per modelled time, the widest of equals.
    fn fastest(&mut self, table: &[i64]) -> Result<SearchResult> {
        let Some(outcome) = self.ended else {
            return Err(Error::Internal("a search has not ended"));
        };
        let widths = self.timed();
        let (engine, start) = (&self.prober.pricer.engine, self.prober.start);
        let rate = |at: usize| engine.work(start, widths[at]) as f64 / (-table[at]).max(1) as f64;
        let best = (0..widths.len()).max_by(|&a, &b| rate(a).total_cmp(&rate(b)));
        match best.and_then(|at| Some((widths[at], *widths.get(at + 1)?))) {
            Some((width, wider)) => self.end(Outcome::Wave(width, Stop::Time(wider))),
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
        let (planned, least) = self.prober.run(width, executed)?;
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
            required,
            least,
            cold: !planned.covered,
            stop,
            stopped,
            ..SearchResult::whole(width, self.prober.groups(width), planned)
        })
    }

    fn split(&mut self) -> Result<SearchResult> {
        let width = self.geometry.min_width;
        let groups = self.prober.groups(width);
        Ok(after_attempts(width, groups, self.prober.split(width)?))
    }
}

impl SearchResult {
    /// One forward, after attempts to split it.
    fn whole(width: usize, groups: Vec<usize>, plan: ForwardPlan) -> Self {
        Self {
            kind: Ending::Wave,
            width,
            groups,
            required: plan.required(),
            least: plan.required(),
            cold: true,
            plans: vec![plan],
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
            ..SearchResult::whole(width, groups, *plan)
        },
        Fallback::Split(split) => SearchResult {
            kind: Ending::Split,
            width,
            groups,
            required: split.required,
            least: split.least,
            cold: true,
            plans: split.parts,
            part_requests: split.requests,
            stopped: None,
            attempts: Vec::new(),
            unsplittable: false,
            probes: Vec::new(),
            rejected: 0,
            stop: Stop::Memory(width),
        },
        Fallback::Refused(refusal) => SearchResult {
            kind: Ending::Refused,
            required: refusal.required,
            least: refusal.required,
            attempts: refusal.attempts,
            unsplittable: refusal.unsplittable,
            ..SearchResult::whole(width, groups, refusal.plan)
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
