//! One wave's search, alone or in step with other ranks.
//!
//! Alone, quotes are live and lazy. With other ranks they are agreed in tables, see
//! [`Exchange`].

use std::sync::Arc;

use super::agreed::Exchange;
use super::attempts::{Attempt, Climbed};
use super::plan::{ForwardPlan, Mode, Pricer, Share};
use super::probe::{Probed, Prober};
use super::{Engine, Profiles, Signature};
use crate::error::{Error, Result};
use crate::fields::result;
use crate::search::split::Cost;
use crate::search::width::{self, Geometry, Judge, Outcome, QUOTES, Quote, Quotes, Stop};

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
    /// What a search ended with, as this rank sees it.
    #[derive(Debug, Clone)]
    pub struct SearchResult as "SearchResult" {
        /// "wave", "split" or "refused".
        pub kind: Ending,
        /// Items over all data-parallel ranks.
        pub width: usize,
        /// This rank's groups.
        pub groups: Vec<usize>,
        /// Bytes needed on this rank.
        pub required: i64,
        /// No profile covers it.
        pub cold: bool,
        /// What runs, in order; of a refusal the fully shared plan.
        pub plans: Vec<ForwardPlan>,
        /// Per part of a split, its requests, numbered within the wave's share.
        pub part_requests: Vec<Vec<u32>>,
        /// The plan that did not fit or was not trusted at the width where the search stopped.
        pub stopped: Option<ForwardPlan>,
        /// Of a refusal: everything attempts, in order.
        pub attempts: Vec<Attempt>,
        /// Splitting is switched off (expert parallelism).
        pub unsplittable: bool,
        @core
        /// Why it is not wider.
        pub stop: Stop,
    }
    python {
        /// Why it is not wider: "memory", "trust" or "end".
        #[getter]
        fn stop(&self) -> &'static str {
            match self.stop {
                Stop::Memory(_) => "memory",
                Stop::Trust(_) => "trust",
                Stop::End => "end",
            }
        }

        /// The width at which that was seen; 0 at the end of the pool.
        #[getter]
        fn stop_width(&self) -> usize {
            match self.stop {
                Stop::Memory(width) | Stop::Trust(width) => width,
                Stop::End => 0,
            }
        }
    }
}

/// One search from `start` on.
pub struct Session {
    geometry: Geometry,
    hint: Option<usize>,
    judge: Judge,
    prober: Prober,
    exchange: Exchange,
}

impl Session {
    /// `available` bytes for this rank's share; `hint` is the largest width used so far.
    pub fn new(
        engine: Arc<Engine>,
        profiles: Arc<Profiles>,
        start: usize,
        available: i64,
        hint: Option<usize>,
    ) -> Result<Self> {
        let settings = engine.settings();
        let geometry = Geometry::new(engine.pool().groups(), start, settings.dp)?;
        let composite = !settings.reference;
        let judge = Judge::new(composite);
        Ok(Self {
            geometry,
            hint,
            judge,
            prober: Prober::new(engine, profiles, start, available),
            exchange: Exchange::new(geometry, hint, composite),
        })
    }

    /// Everything priced, in order.
    #[must_use]
    pub fn probes(&self) -> &[Probed] {
        &self.prober.probes
    }

    /// Distinct widths after the minimum wave that did not fit.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.judge.rejected()
    }

    /// The whole search with live quotes: for one data-parallel rank.
    pub fn alone(&mut self) -> Result<SearchResult> {
        let outcome = width::search(self.geometry, self.hint, &mut self.judge, &mut self.prober)?;
        if let Outcome::Wave(width, _) = outcome {
            self.judge.choose(width, &mut self.prober)?;
        }
        self.end(outcome)
    }

    /// Bytes free for this rank's share, before anything is priced.
    pub fn set_available(&mut self, available: i64) {
        self.prober.available = available;
    }

    /// One quote of this rank, as bits, for tests of the tables.
    pub fn quote(&mut self, width: usize, kind: usize) -> Result<u8> {
        if width == 0 || width > self.geometry.remaining {
            return Err(Error::input(format!(
                "width is {width}: it must be from 1 to {}, the groups left",
                self.geometry.remaining
            )));
        }
        match Quote::ALL.get(kind) {
            Some(&kind) => Ok(self.prober.quote(width, kind)?.bits()),
            None => Err(Error::input(format!("kind is {kind}: there are {QUOTES}"))),
        }
    }

    /// Entries of the first table.
    #[must_use]
    pub fn growth_len(&self) -> usize {
        self.exchange.growth_len()
    }

    /// First table: this rank's quotes of every width that growth can ask.
    pub fn growth(&mut self) -> Result<Vec<i64>> {
        self.exchange.growth(&mut self.prober)
    }

    /// Takes the first agreed table; entries of the second.
    pub fn agree_growth(&mut self, agreed: &[i64]) -> Result<usize> {
        self.exchange.settle_growth(&self.judge, agreed)
    }

    /// Second table: this rank's quotes of the widths that bisection can ask.
    pub fn bisection(&mut self) -> Result<Vec<i64>> {
        self.exchange.bisection(&mut self.prober)
    }

    /// Takes the second agreed table; entries of the third, which is empty in reference mode.
    pub fn agree_bisection(&mut self, agreed: &[i64]) -> Result<usize> {
        self.exchange.settle_bisection(&self.judge, agreed)
    }

    /// Third table: this rank's quotes of the widths between two granules.
    pub fn refinement(&mut self) -> Result<Vec<i64>> {
        self.exchange.refinement(&mut self.prober)
    }

    /// Takes the third agreed table and ends the search.
    pub fn finish(&mut self, agreed: &[i64]) -> Result<SearchResult> {
        let outcome = self.exchange.settle(&mut self.judge, agreed)?;
        self.end(outcome)
    }

    fn end(&mut self, outcome: Outcome) -> Result<SearchResult> {
        let (width, stop) = match outcome {
            Outcome::Cold(width, stop) | Outcome::Wave(width, stop) => (width, stop),
            Outcome::Ladder => return self.ladder(),
        };
        let executed = self.judge.executed(width);
        if executed == Quote::PlanBest {
            self.prober.refine(width)?;
        }
        let planned = self.prober.take(width, executed)?;
        let decided = self.judge.decided(width);
        let required = match decided {
            Some(quote) => self.prober.required(width, quote)?,
            None => planned.required(),
        };
        let stopped = match stop {
            Stop::Memory(at) | Stop::Trust(at) if at != width => {
                let executed = self.judge.executed(at);
                Some(self.prober.take(at, executed)?)
            }
            _ => None,
        };
        Ok(SearchResult {
            required,
            cold: !planned.covered,
            stop,
            stopped,
            ..SearchResult::whole(width, self.prober.groups(width).collect(), planned)
        })
    }

    fn ladder(&mut self) -> Result<SearchResult> {
        let width = self.geometry.min_width;
        let groups = self.prober.groups(width).collect();
        Ok(found(width, groups, self.prober.climb(width)?))
    }
}

impl SearchResult {
    /// One forward, after the ladder.
    fn whole(width: usize, groups: Vec<usize>, plan: ForwardPlan) -> Self {
        Self {
            kind: Ending::Wave,
            width,
            groups,
            required: plan.required(),
            cold: true,
            plans: vec![plan],
            part_requests: Vec::new(),
            stopped: None,
            attempts: Vec::new(),
            unsplittable: false,
            stop: Stop::Memory(width),
        }
    }
}

/// What the ladder found, as the end of a search.
fn found(width: usize, groups: Vec<usize>, climbed: Climbed) -> SearchResult {
    match climbed {
        Climbed::Whole(plan) => SearchResult::whole(width, groups, *plan),
        Climbed::Split(rung) => SearchResult {
            kind: Ending::Split,
            width,
            groups,
            required: rung.required,
            cold: true,
            plans: rung.parts,
            part_requests: rung.requests,
            stopped: None,
            attempts: Vec::new(),
            unsplittable: false,
            stop: Stop::Memory(width),
        },
        Climbed::Refused(refusal) => SearchResult {
            kind: Ending::Refused,
            required: refusal.required,
            attempts: refusal.attempts,
            unsplittable: refusal.unsplittable,
            ..SearchResult::whole(width, groups, refusal.plan)
        },
    }
}

/// What a profile of these requests is kept by.
pub fn sign(engine: Arc<Engine>, requests: &[u32]) -> Result<Signature> {
    let mut share = Share::default();
    Pricer::new(engine, Arc::default()).load(requests, &mut share)?;
    Ok(share.signature)
}

/// The ladder's lower bound on the price of these requests as one part of a split, and their
/// price with cost-optimal and with full-sharing layouts.
pub fn part_costs(
    engine: Arc<Engine>,
    profiles: Arc<Profiles>,
    requests: &[u32],
) -> Result<[Cost; 3]> {
    let mut pricer = Pricer::new(engine, profiles);
    let mut share = Share::default();
    pricer.load(requests, &mut share)?;
    let lower = pricer.lower_cost(&share)?;
    let optimal = pricer.plan(&share, Mode::Optimal, 0)?.cost;
    let full = pricer.plan(&share, Mode::Full, 0)?.cost;
    Ok([lower, optimal, full])
}

/// Plans these requests as one forward, split if it must be; with everything priced.
pub fn plan(
    engine: Arc<Engine>,
    profiles: Arc<Profiles>,
    requests: &[u32],
    available: i64,
) -> Result<(SearchResult, Vec<Probed>)> {
    let mut pricer = Pricer::new(engine, profiles);
    let mut share = Share::default();
    let mut probes = Vec::new();
    pricer.load(requests, &mut share)?;
    let climbed = pricer.climb(&share, available, &mut probes)?;
    Ok((found(0, Vec::new(), climbed), probes))
}
