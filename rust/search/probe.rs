//! Live probes: prices of this rank's share at the widths of the search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attempts::{Attempt, Fallback};
use super::owned::Fastest;
use super::plan::{Estimate, ForwardPlan, Mode, Pricer, ROOM, Share};
use super::{Engine, Profiles};
use crate::error::Result;
use crate::fields::settings;
use crate::measures::Bound;
use crate::search::width::{Fit, Kind, Probes, Strategy};

settings! {
    /// One priced width, on this rank.
    #[derive(Eq)]
    pub struct Probe as "Probe" {
        /// Width in groups over all ranks; 0 for attempts at a split.
        width: usize;
        /// Requests of this rank's share.
        requests: usize;
        /// How the layouts of a plan were chosen, or in reference mode a bound or an estimate
        /// without a plan ("bound:unshared", ...).
        kind: String;
        /// Packed tokens priced.
        packed_tokens: i64;
        /// Bytes needed.
        required: i64;
        /// Fits on this rank.
        fits: bool;
        /// Trusted on this rank.
        trusted: bool;
    }
}

/// The name of a bound or an estimate.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unshared => "bound:unshared",
        Kind::Shared => "bound:shared",
        Kind::Full | Kind::PlanFull => "estimate:full",
        _ => "estimate:optimal",
    }
}

impl Probe {
    pub(super) fn of_plan(width: usize, plan: &ForwardPlan, fits: bool) -> Self {
        Self {
            width,
            requests: plan.requests.len(),
            kind: plan.mode.name().to_owned(),
            packed_tokens: plan.packed(),
            required: plan.required(),
            fits,
            trusted: plan.trusted,
        }
    }
}

/// Probes widths by live prices of one rank, and keeps them.
pub(super) struct Prober {
    pub(super) pricer: Pricer,
    pub(super) available: i64,
    pub(super) probes: Vec<Probe>,
    pub(super) start: usize,
    share: Share,
    loaded: Option<usize>,
    plans: BTreeMap<(usize, Mode), ForwardPlan>,
    best: BTreeMap<usize, Mode>,
    /// Widths whose layouts were refined.
    refined: BTreeSet<usize>,
    /// Plans whose times are compared, with the owners that they began from.
    timed: BTreeMap<usize, (ForwardPlan, Fastest)>,
    /// Plans as they run.
    ran: BTreeMap<usize, (ForwardPlan, i64)>,
    estimates: BTreeMap<(usize, Kind), Estimate>,
}

impl Prober {
    pub(super) fn new(
        engine: Arc<Engine>,
        profiles: Arc<Profiles>,
        start: usize,
        available: i64,
    ) -> Self {
        Self {
            pricer: Pricer::new(engine, profiles),
            available,
            probes: Vec::new(),
            start,
            share: Share::default(),
            loaded: None,
            plans: BTreeMap::new(),
            best: BTreeMap::new(),
            refined: BTreeSet::new(),
            timed: BTreeMap::new(),
            ran: BTreeMap::new(),
            estimates: BTreeMap::new(),
        }
    }

    /// Takes these requests as the share of width 0.
    pub(super) fn load(&mut self, requests: &[u32]) -> Result<()> {
        (self.plans, self.timed, self.ran) = Default::default();
        (self.best, self.refined) = Default::default();
        self.loaded = None;
        self.pricer.load(requests, &mut self.share)?;
        self.loaded = Some(0);
        Ok(())
    }

    /// The groups of this rank's share of a wave.
    pub(super) fn groups(&self, width: usize) -> Vec<usize> {
        self.pricer.engine.deal(self.start, width)
    }

    /// Loads the share of a width, unless it is there.
    pub(super) fn share(&mut self, width: usize) -> Result<&Share> {
        if self.loaded != Some(width) {
            self.loaded = None;
            let requests = self.pricer.engine.share(self.start, width);
            self.pricer.load(&requests, &mut self.share)?;
            self.loaded = Some(width);
        }
        Ok(&self.share)
    }

    /// A width in one forward as it runs, else split.
    pub(super) fn split(&mut self, width: usize) -> Result<Fallback> {
        let mut attempts = Vec::new();
        if let Some((plan, least)) = self.whole(width, &mut attempts)? {
            return Ok(Fallback::Whole(Box::new(plan), least));
        }
        let full = self.take(width, Kind::PlanFull)?;
        (self.pricer).split(&self.share, self.available, full, attempts)
    }

    /// A width in one forward as it runs, by the first layout that is usable, else that fits; and
    /// its bytes at an even share. Every price is an attempt and a probe.
    pub(super) fn whole(
        &mut self,
        width: usize,
        attempts: &mut Vec<Attempt>,
    ) -> Result<Option<(ForwardPlan, i64)>> {
        let engine = Arc::clone(&self.pricer.engine);
        let (available, best) = (self.available, engine.strategy() == Strategy::Best);
        let mut fitting = None;
        self.share(width)?;
        for &mode in engine.unsplit_modes() {
            let plan = self.plan(width, mode)?;
            let fit = plan.fit(available);
            let probe = Probe::of_plan(0, plan, fit.fits);
            attempts.push(Attempt {
                parts: 1,
                kind: probe.kind.clone(),
                required: probe.required,
            });
            self.probes.push(probe);
            if fit.fits && (fitting.is_none() || fit.usable()) {
                fitting = Some(mode);
            }
            if fit.usable() || !best && fit.fits || best && !self.share.sharing() {
                break; // or every mode packs alike
            }
        }
        let kind = match fitting {
            None => return Ok(None),
            Some(mode) if best => {
                self.best.insert(width, mode);
                Kind::PlanBest
            }
            Some(Mode::Full) => Kind::PlanFull,
            Some(_) => Kind::PlanOptimal,
        };
        Ok(Some(self.run(width, kind)?.clone()))
    }

    /// The plan of a width that was priced, or is priced now.
    pub(super) fn take(&mut self, width: usize, kind: Kind) -> Result<ForwardPlan> {
        let mode = self.mode(width, kind)?;
        Ok(self.plan(width, mode)?.clone())
    }

    /// The plan of a width to be compared by its modelled time, with the fastest owners that its
    /// memory allows. Least work is not always least time: where its layout shares less, full
    /// sharing is timed.
    pub(super) fn timed(&mut self, width: usize, kind: Kind) -> Result<&ForwardPlan> {
        if self.ran.contains_key(&width) {
            return Ok(&self.ran[&width].0);
        }
        if !self.timed.contains_key(&width) {
            let mode = self.executed(width, kind)?;
            let mut made = self.own(width, mode)?;
            if self.pricer.engine.times_layouts()
                && self.share.shares_less(&made.0)
                && self.priced(width, Mode::Full)?.usable()
            {
                let full = self.own(width, Mode::Full)?;
                if full.0.faster(&made.0) {
                    self.best.insert(width, Mode::Full);
                    made = full;
                }
            }
            self.timed.insert(width, made);
        }
        Ok(&self.timed[&width].0)
    }

    /// The plan of a width as it runs, and its bytes at an even share; see [`Pricer::refine`].
    pub(super) fn run(&mut self, width: usize, kind: Kind) -> Result<&(ForwardPlan, i64)> {
        if !self.ran.contains_key(&width) {
            let mode = self.executed(width, kind)?;
            let plan = self.plan(width, mode)?.clone();
            let known = self.timed.get(&width).map(|(_, known)| known.clone());
            self.share(width)?;
            let first = self.probes.len();
            let Self {
                pricer,
                share,
                available,
                probes,
                ..
            } = self;
            let made = pricer.refine(share, plan, known, *available, probes)?;
            for probe in &mut probes[first..] {
                probe.width = width;
            }
            self.ran.insert(width, made);
        }
        Ok(&self.ran[&width])
    }

    /// The mode of the plan that is executed at a width.
    fn executed(&mut self, width: usize, kind: Kind) -> Result<Mode> {
        if kind == Kind::PlanBest {
            self.refine(width)?;
        }
        self.mode(width, kind)
    }

    fn own(&mut self, width: usize, mode: Mode) -> Result<(ForwardPlan, Fastest)> {
        let mut plan = self.plan(width, mode)?.clone();
        self.share(width)?;
        let available = self.available;
        let fits = |plan: &ForwardPlan| plan.required() <= available;
        let fastest = (self.pricer).own(&self.share, &mut plan, None, false, &fits)?;
        Ok((plan, fastest))
    }

    /// The plan of a width that does not run, with the times of an even share.
    pub(super) fn take_even(&mut self, width: usize, kind: Kind) -> Result<ForwardPlan> {
        let mut plan = self.take(width, kind)?;
        self.share(width)?;
        self.pricer.own_evenly(&self.share, &mut plan)?;
        Ok(plan)
    }

    /// Bytes of the price that decided a width.
    pub(super) fn required(&mut self, width: usize, kind: Kind) -> Result<i64> {
        if let Some(estimate) = self.estimates.get(&(width, kind)) {
            return Ok(estimate.required);
        }
        let mode = self.mode(width, kind)?;
        Ok(self.plan(width, mode)?.required())
    }

    fn mode(&mut self, width: usize, kind: Kind) -> Result<Mode> {
        Ok(match kind {
            Kind::PlanFull => Mode::Full,
            Kind::PlanBest => self.best_mode(width)?,
            _ => Mode::Optimal,
        })
    }

    fn plan(&mut self, width: usize, mode: Mode) -> Result<&ForwardPlan> {
        if !self.plans.contains_key(&(width, mode)) {
            self.share(width)?;
            let same = self.twin(width, mode);
            let plan = match same {
                Some(twin) => ForwardPlan { mode, ..twin },
                None => self.pricer.plan(&self.share, mode, ROOM)?,
            };
            self.plans.insert((width, mode), plan);
        }
        Ok(&self.plans[&(width, mode)])
    }

    /// The plan of full sharing, if another mode has already shared everything.
    fn twin(&self, width: usize, mode: Mode) -> Option<ForwardPlan> {
        let other = self.plans.get(&(width, Mode::Optimal))?;
        let everything = mode == Mode::Full && !self.share.shares_less(other);
        everything.then(|| other.clone())
    }

    /// Our order of layouts: the first that is usable; else the first that fits, else the
    /// cheapest.
    fn best_mode(&mut self, width: usize) -> Result<Mode> {
        if let Some(&mode) = self.best.get(&width) {
            return Ok(mode);
        }
        let mut ranked: Option<(bool, i64, Mode)> = None;
        for &mode in self.pricer.engine.unsplit_modes() {
            let fit = self.priced(width, mode)?;
            let required = self.plan(width, mode)?.required();
            let rank = (!fit.fits, if fit.fits { 0 } else { required }, mode);
            if fit.usable() {
                ranked = Some(rank);
                break;
            }
            if ranked.is_none_or(|best| (rank.0, rank.1) < (best.0, best.1)) {
                ranked = Some(rank);
            }
            if !self.share.sharing() {
                break; // every mode packs alike
            }
        }
        let mode = ranked.map_or(Mode::Full, |(.., mode)| mode);
        self.best.insert(width, mode);
        Ok(mode)
    }

    /// Where only full sharing fits in memory, looks for a layout between it and the
    /// cost-optimal one that fits too.
    pub(super) fn refine(&mut self, width: usize) -> Result<()> {
        let known = |mode| self.plans.get(&(width, mode)).map(ForwardPlan::required);
        let (Some(full), Some(optimal)) = (known(Mode::Full), known(Mode::Optimal)) else {
            return Ok(());
        };
        let short = optimal > self.available && full <= self.available;
        if self.best.get(&width) != Some(&Mode::Full) || !short || !self.refined.insert(width) {
            return Ok(());
        }
        let span = i128::from(optimal) - i128::from(full);
        let room = (i128::from(self.available) - i128::from(full)) * 1000 / span;
        for room in [room as i64, room as i64 * 3 / 4, room as i64 / 2] {
            self.share(width)?;
            let plan = self.pricer.plan(&self.share, Mode::Fitting, room)?;
            self.plans.insert((width, Mode::Fitting), plan);
            if self.priced(width, Mode::Fitting)?.usable() {
                self.best.insert(width, Mode::Fitting);
                break;
            }
        }
        Ok(())
    }

    /// Prices a plan and records the probe.
    fn priced(&mut self, width: usize, mode: Mode) -> Result<Fit> {
        let available = self.available;
        let plan = self.plan(width, mode)?;
        let fit = plan.fit(available);
        let probe = Probe::of_plan(width, plan, fit.fits);
        self.probes.push(probe);
        Ok(fit)
    }

    /// Whether estimates are valid for a width's share.
    fn estimable(&mut self, width: usize) -> Result<bool> {
        self.share(width)?;
        let settings = self.pricer.engine.settings();
        if settings.reference && !self.pricer.engine.parallel() {
            let packs = &self.share.packs;
            let mut keys = (0..packs.len()).map(|g| packs.key(g));
            return Ok(!keys.any(|key| {
                let named = key.slot != 0;
                (key.gradient && settings.gdn_pending)
                    || (named && settings.moe)
                    || (named && key.gradient && settings.adapter_pending)
            }));
        }
        Ok(false)
    }

    fn estimate(&mut self, width: usize, kind: Kind) -> Result<Estimate> {
        if let Some(known) = self.estimates.get(&(width, kind)) {
            return Ok(*known);
        }
        self.share(width)?;
        let mut made = match kind {
            Kind::Unshared => self.pricer.bound(&self.share, |_| Bound::NoSharing)?,
            Kind::Shared => self.pricer.bound(&self.share, Bound::FullSharing)?,
            Kind::Full => self.pricer.estimate(&self.share, Mode::Full)?,
            _ => self.pricer.estimate(&self.share, Mode::Optimal)?,
        };
        made.required -= self.pricer.growth(); // only a plan has it
        self.estimates.insert((width, kind), made);
        self.probes.push(Probe {
            width,
            requests: self.share.requests.len(),
            kind: name(kind).to_owned(),
            packed_tokens: made.packed,
            required: made.required,
            fits: made.required <= self.available,
            trusted: made.trusted,
        });
        Ok(made)
    }
}

impl Probes for Prober {
    fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit> {
        match kind {
            Kind::PlanBest => {
                let (mode, available) = (self.best_mode(width)?, self.available);
                Ok(self.plan(width, mode)?.fit(available))
            }
            Kind::PlanOptimal => self.priced(width, Mode::Optimal),
            Kind::PlanFull => self.priced(width, Mode::Full),
            _ if !self.estimable(width)? => Ok(Fit::default()),
            _ => {
                let made = self.estimate(width, kind)?;
                Ok(Fit {
                    valid: true,
                    fits: made.required <= self.available,
                    trusted: made.trusted,
                    profiled: made.profiled,
                })
            }
        }
    }

    fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool> {
        let mode = self.mode(width, kind)?;
        Ok(self.plan(width, mode)?.trusted)
    }
}
