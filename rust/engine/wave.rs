//! One wave's search, alone or in step with other ranks.
//!
//! Alone, quotes are live and lazy. With other ranks the quotes that can be asked are a small
//! set known beforehand: every rank prices its own share for all of them, the ranks take the
//! conjunction, and the same search then runs over the table on every rank. Two tables settle
//! a wave: the widths of growth, then the widths between the last usable and the first failed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ladder::{Climbed, Refusal, Rung};
use super::plan::{FlatPlan, Mode, Pricer, Share};
use super::probe::{Probe, Prober};
use super::{Engine, Profiles};
use crate::error::{Error, Result};
use crate::split::Cost;
use crate::width::{
    self, Geometry, Judge, Machine, Next, Outcome, QUOTES, Quote, Quoted, Quotes, Stop,
};

/// Kinds of quotes by number.
const KINDS: [Quote; QUOTES] = [
    Quote::Unshared,
    Quote::Shared,
    Quote::Optimal,
    Quote::Full,
    Quote::PlanOptimal,
    Quote::PlanFull,
    Quote::PlanBest,
];

/// What runs in a wave on this rank.
#[derive(Debug, Clone)]
pub enum Planned {
    /// One forward.
    Whole(Box<FlatPlan>),
    /// Several, their graphs alive together.
    Split(Rung),
}

/// An admitted wave, as this rank sees it.
#[derive(Debug, Clone)]
pub struct Wave {
    /// Items over all data-parallel ranks.
    pub width: usize,
    /// This rank's items.
    pub items: Vec<usize>,
    /// What runs.
    pub planned: Planned,
    /// Bytes needed on this rank.
    pub required: i64,
    /// No profile covers it.
    pub cold: bool,
    /// Why it is not wider.
    pub stop: Stop,
    /// The plan that did not fit or was not trusted at the width where the search stopped.
    pub stopped: Option<Box<FlatPlan>>,
}

/// The end of a search.
#[derive(Debug, Clone)]
pub enum Found {
    /// A wave.
    Wave(Wave),
    /// Not even the minimum wave can run: width, items, why.
    Refused(usize, Vec<usize>, Box<Refusal>),
}

/// One search from `start` on.
pub struct Session {
    geometry: Geometry,
    hint: Option<usize>,
    judge: Judge,
    prober: Prober,
    agreed: Table,
    interval: Option<(usize, usize)>,
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
        let geometry = Geometry::new(engine.pool().items(), start, settings.dp)?;
        let judge = Judge::new(!settings.compatible);
        Ok(Self {
            geometry,
            hint,
            judge,
            prober: Prober::new(engine, profiles, start, available),
            agreed: Table::default(),
            interval: None,
        })
    }

    /// Everything priced, in order.
    #[must_use]
    pub fn probes(&self) -> &[Probe] {
        &self.prober.probes
    }

    /// Distinct widths after the minimum wave that did not fit.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.judge.rejected()
    }

    /// The whole search with live quotes: for one data-parallel rank.
    pub fn alone(&mut self) -> Result<Found> {
        let outcome = width::search(self.geometry, self.hint, &mut self.judge, &mut self.prober)?;
        if let Outcome::Wave(width, _) = outcome {
            self.judge.choose(width, &mut self.prober)?;
        }
        self.end(outcome)
    }

    /// First table: this rank's quotes, as bits, of every width that growth can ask. A chain
    /// of growth ends here at the first width that nothing makes fit.
    pub fn growth(&mut self) -> Result<Vec<i64>> {
        let chains = self.geometry.growth_widths(self.hint);
        let mut bits = Vec::new();
        for chain in &chains {
            let mut open = true;
            for &width in chain {
                let row = self.row(width, open)?;
                open = open && fits(&row);
                bits.extend_from_slice(&row);
            }
        }
        Ok(bits)
    }

    /// Takes the first agreed table; entries of the second one, known before it is priced.
    pub fn agree_growth(&mut self, agreed: &[i64]) -> Result<usize> {
        let widths = self.geometry.growth_widths(self.hint).concat();
        self.agreed.fill(&widths, agreed)?;
        self.interval = self.interval()?;
        Ok(self.bisection_widths().len() * QUOTES)
    }

    /// Second table: the widths that bisection can ask. Below a width that nothing makes fit
    /// here, no wider one is asked.
    pub fn bisection(&mut self) -> Result<Vec<i64>> {
        let mut rows: BTreeMap<usize, [i64; QUOTES]> = BTreeMap::new();
        let mut open: Vec<(usize, usize)> = self.interval.into_iter().collect();
        while let Some((low, high)) = open.pop() {
            let Some(width) = self.geometry.middle(low, high) else {
                continue;
            };
            let row = self.row(width, true)?;
            if fits(&row) {
                open.push((width, high));
            }
            open.push((low, width));
            rows.insert(width, row);
        }
        let widths = self.bisection_widths();
        let row = |width| rows.get(width).copied().unwrap_or([0; QUOTES]);
        Ok(widths.iter().flat_map(row).collect())
    }

    fn bisection_widths(&self) -> Vec<usize> {
        let widths = |(best, failed)| self.geometry.bisection_widths(best, failed);
        self.interval.map(widths).unwrap_or_default()
    }

    /// One quote of this rank, as bits, for tests of the tables.
    pub fn quote(&mut self, width: usize, kind: usize) -> Result<i64> {
        match KINDS.get(kind) {
            Some(&kind) => Ok(i64::from(self.prober.quote(width, kind)?.bits())),
            None => Err(Error::input(format!("kind is {kind}: there are {QUOTES}"))),
        }
    }

    /// Takes the second agreed table and ends the search.
    pub fn finish(&mut self, agreed: &[i64]) -> Result<Found> {
        let widths = self.bisection_widths();
        self.agreed.fill(&widths, agreed)?;
        let outcome = width::search(self.geometry, self.hint, &mut self.judge, &mut self.agreed)?;
        self.end(outcome)
    }

    /// Where bisection starts under the first agreed table, if it comes to that.
    fn interval(&mut self) -> Result<Option<(usize, usize)>> {
        let mut judge = self.judge.clone();
        let mut machine = Machine::new(self.geometry, self.hint);
        loop {
            match machine.next() {
                Next::Ask(_, width::Step::Bisect) => return Ok(machine.interval()),
                Next::Ask(width, step) => {
                    machine.tell(judge.verdict(width, step, &mut self.agreed)?);
                }
                Next::Done(_) => return Ok(None),
            }
        }
    }

    /// All quotes of a width; zeros where it is not worth asking.
    fn row(&mut self, width: usize, open: bool) -> Result<[i64; QUOTES]> {
        let mut row = [0; QUOTES];
        if !open {
            return Ok(row);
        }
        let composite = !self.prober.pricer.engine.settings().compatible;
        for (kind, bits) in KINDS.into_iter().zip(&mut row) {
            if (kind == Quote::PlanBest) == composite {
                *bits = i64::from(self.prober.quote(width, kind)?.bits());
            }
        }
        Ok(row)
    }

    fn end(&mut self, outcome: Outcome) -> Result<Found> {
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
                Some(Box::new(self.prober.take(at, executed)?))
            }
            _ => None,
        };
        Ok(Found::Wave(Wave {
            width,
            items: self.prober.items(width).collect(),
            required,
            cold: !planned.covered,
            planned: Planned::Whole(Box::new(planned)),
            stop,
            stopped,
        }))
    }

    fn ladder(&mut self) -> Result<Found> {
        let width = self.geometry.min_width;
        let items = self.prober.items(width).collect();
        Ok(found(width, items, self.prober.climb(width)?))
    }
}

/// What the ladder found, as the end of a search.
fn found(width: usize, items: Vec<usize>, climbed: Climbed) -> Found {
    let (planned, required) = match climbed {
        Climbed::Refused(refusal) => return Found::Refused(width, items, refusal),
        Climbed::Split(rung) => {
            let required = rung.required;
            (Planned::Split(rung), required)
        }
        Climbed::Whole(plan) => {
            let required = plan.required();
            (Planned::Whole(plan), required)
        }
    };
    Found::Wave(Wave {
        width,
        items,
        planned,
        required,
        cold: true,
        stop: Stop::Memory(width),
        stopped: None,
    })
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
) -> Result<(Found, Vec<Probe>)> {
    let mut pricer = Pricer::new(engine, profiles);
    let mut share = Share::default();
    let mut probes = Vec::new();
    pricer.load(requests, &mut share)?;
    let climbed = pricer.climb(&share, available, &mut probes)?;
    Ok((found(0, Vec::new(), climbed), probes))
}

/// Whether any kind of quote in a row fits: only then can the agreed verdict.
fn fits(row: &[i64; QUOTES]) -> bool {
    row.iter()
        .any(|&bits| Quoted::from_bits(bits as u8).verdict.fits)
}

/// Quotes agreed by all ranks.
#[derive(Debug, Clone, Default)]
struct Table {
    rows: BTreeMap<usize, [i64; QUOTES]>,
}

impl Table {
    fn fill(&mut self, widths: &[usize], bits: &[i64]) -> Result<()> {
        if bits.len() != widths.len() * QUOTES {
            return Err(Error::input(format!(
                "the agreed table has {} entries for {} widths: give {QUOTES} each",
                bits.len(),
                widths.len()
            )));
        }
        for (&width, row) in widths.iter().zip(bits.chunks_exact(QUOTES)) {
            // Two chains of growth can meet; a chain that had ended holds zeros there.
            let kept = self.rows.entry(width).or_insert([0; QUOTES]);
            for (old, &new) in kept.iter_mut().zip(row) {
                *old |= new;
            }
        }
        Ok(())
    }
}

impl Quotes for Table {
    fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted> {
        match self.rows.get(&width) {
            Some(row) => Ok(Quoted::from_bits(row[kind as usize] as u8)),
            None => Err(Error::Internal(
                "the search asked a width outside its table",
            )),
        }
    }

    fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool> {
        Ok(self.quote(width, kind)?.verdict.trusted)
    }
}
