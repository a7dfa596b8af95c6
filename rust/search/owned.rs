//! The ownership of a plan that runs: the fastest that its memory allows.
//!
//! A probe prices an even share of each pack, which no ownership undercuts by more than a few
//! tokens, and looks at no pairs. Only a plan that runs, or whose time is compared, is owned here.

use super::Settings;
use super::forest::{Costs, MILLISECOND};
use super::plan::{ForwardPlan, Mode, Pack, Pricer, Share};
use super::probe::Probe;
use crate::cancel;
use crate::error::Result;
use crate::gdn::{self, Gdn};
use crate::layout;
use crate::measures;
use crate::ownership::{self, Asked, Ownership};
use crate::segments::Segments;

/// Limits between an even share and the fastest ownership that are told apart.
const LIMITS: i64 = 256;
/// How near to each other limits are tried where times are only compared.
const QUICK_STEP: i64 = LIMITS / 8;
/// Limits that a model with gdn layers tries where memory is loose: what is even is often faster
/// there, whatever attention alone would take.
const GDN_LIMITS: [i64; 3] = [0, LIMITS / 4, LIMITS / 2];

/// The fastest owners of every pack, whatever they need.
#[derive(Debug, Clone, Default)]
pub(super) struct Fastest {
    packs: Vec<Owned>,
    /// As of [`Problem`].
    tokens: Vec<(i64, i64)>,
}

/// Owners of one pack and their modelled time.
#[derive(Debug, Clone)]
struct Owned {
    ownership: Ownership,
    gdn: Option<Gdn>,
    time_ms: f64,
    /// Tokens that a rank was allowed.
    most: Option<i64>,
}

impl Owned {
    fn busiest(&self) -> i64 {
        let gdn = self
            .gdn
            .as_ref()
            .map(|gdn| gdn.busiest_tokens(&self.ownership));
        gdn.unwrap_or(self.ownership.most_tokens)
    }

    /// Less time, then fewer ranges, then fewer tokens.
    fn better(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.ownership.most_ranges, one.busiest());
        let time = self.time_ms.total_cmp(&other.time_ms);
        time.then_with(|| key(self).cmp(&key(other))).is_lt()
    }
}

/// Modelled milliseconds of a pack over all layers of the slowest rank, forward and backward:
/// attention layers by the ownership's score, gdn layers by their placement's and the MLP of the
/// busiest rank.
#[must_use]
pub fn time_ms(settings: &Settings, ownership: &Ownership, gdn: Option<&Gdn>) -> f64 {
    let attention = settings.attention_layers as f64 * ownership.score;
    match gdn {
        None => attention,
        Some(gdn) => {
            let mlp = gdn.busiest_tokens(ownership) as f64 * settings.mlp_token_ms;
            attention + settings.gdn_layers as f64 * (gdn.score + mlp)
        }
    }
}

/// Packs of a plan as they are owned: padded, and the chunks between which limits lie.
struct Problem {
    padded: Vec<Segments>,
    /// Tokens of the busiest rank under an even share, and under the fastest ownership.
    tokens: Vec<(i64, i64)>,
    /// The pack whose pairs are loaded.
    loaded: Option<usize>,
    /// Bounds are wanted.
    prove: bool,
}

impl Pricer {
    /// Owns a plan that runs, and returns it with the bytes of its even share, of which it was priced.
    /// Where the same requests take less modelled time in another layout that fits, it is that: least
    /// work is not always least time. `known` are the owners that the plan began from, if it was timed.
    pub(super) fn refine(
        &mut self,
        share: &Share,
        mut plan: ForwardPlan,
        known: Option<Fastest>,
        available: i64,
        probes: &mut Vec<Probe>,
    ) -> Result<(ForwardPlan, i64)> {
        let fits = |plan: &ForwardPlan| plan.required() <= available;
        let mut others = Vec::new();
        if self.engine.times_layouts() && share.sharing() {
            others = self.others(share, &plan)?;
        }
        let least = plan.required();
        self.own(share, &mut plan, known, true, &fits)?;
        let mut best = (plan, least);
        for mut plan in others {
            let least = plan.required();
            if plan.mode == Mode::Fitting {
                probes.push(Probe::of_plan(0, &plan, fits(&plan)));
            }
            if plan.fit(available).usable() && plan.covered >= best.0.covered {
                self.own(share, &mut plan, None, true, &fits)?;
                if plan.milliseconds() < best.0.milliseconds() {
                    best = (plan, least);
                }
            }
        }
        Ok(best)
    }

    /// Gives the packs of a plan the fastest owners found with which it still `fits`, and the
    /// times of an even share where nothing faster does. `prove` looks closer, from the owners
    /// that are `known` on, and runs the programme that bounds. Returns the owners it began from.
    pub(super) fn own(
        &mut self,
        share: &Share,
        plan: &mut ForwardPlan,
        known: Option<Fastest>,
        prove: bool,
        fits: &dyn Fn(&ForwardPlan) -> bool,
    ) -> Result<Fastest> {
        if !self.owns(share, plan)? {
            return Ok(Fastest::default());
        }
        let mut problem = self.problem(share, plan)?;
        let mut best = match known {
            Some(known) => {
                problem.tokens = known.tokens;
                known.packs
            }
            None => self.fastest(&mut problem)?,
        };
        let fastest = Fastest {
            packs: best.clone(),
            tokens: problem.tokens.clone(),
        };
        if prove {
            self.look_closer(&mut problem, &mut best)?;
        }
        self.give(share, plan, &best)?;
        if !fits(plan) {
            let step = if prove { 1 } else { QUICK_STEP };
            let mut limited = None;
            if self.engine.settings().ownership.profile.is_none() {
                limited = self.limited(share, plan, &mut problem, &best, step, fits)?;
            }
            best = match limited {
                Some(limited) => limited,
                None => self.even(&mut problem)?,
            };
            self.give(share, plan, &best)?;
            if self.engine.settings().ownership.max_ranges > 1 {
                for g in 0..best.len() {
                    let folded = self.folded(&mut problem, g)?;
                    self.replace(share, plan, &mut best, (g, folded), fits)?;
                }
            }
        }
        if prove {
            self.prove(share, plan, &mut problem, &mut best, fits)?;
        }
        Ok(fastest)
    }

    /// Gives a pack other owners if they are faster and the plan still fits.
    fn replace(
        &mut self,
        share: &Share,
        plan: &mut ForwardPlan,
        best: &mut [Owned],
        (g, other): (usize, Owned),
        fits: &dyn Fn(&ForwardPlan) -> bool,
    ) -> Result<()> {
        if other.better(&best[g]) {
            let before = std::mem::replace(&mut best[g], other);
            self.give(share, plan, best)?;
            if !fits(plan) {
                best[g] = before;
                self.give(share, plan, best)?;
            }
        }
        Ok(())
    }

    /// Runs the programme of every pack within the tokens that its ranks were allowed: takes its
    /// owners where they are faster, and its bound.
    fn prove(
        &mut self,
        share: &Share,
        plan: &mut ForwardPlan,
        problem: &mut Problem,
        best: &mut [Owned],
        fits: &dyn Fn(&ForwardPlan) -> bool,
    ) -> Result<()> {
        if self.engine.settings().ownership.profile.is_some() {
            return Ok(());
        }
        problem.prove = true;
        for g in 0..best.len() {
            let known = &best[g].ownership;
            if known.optimal || known.most_ranges > 1 {
                continue;
            }
            // With gdn layers the best is seldom that of the most tokens.
            let most = best[g]
                .most
                .or(best[g].gdn.as_ref().map(|_| known.most_tokens));
            let within = self.one(problem, g, ownership::FASTEST, most)?;
            let bound = within.ownership.bound;
            self.replace(share, plan, best, (g, within), fits)?;
            let made = &mut best[g].ownership;
            made.bound = bound;
            made.optimal = bound.is_some_and(|bound| ownership::proven(made.score, bound));
            plan.packs[g].ownership = Some(made.clone());
        }
        Ok(())
    }

    /// Times the even share that a plan was priced with.
    pub(super) fn own_evenly(&mut self, share: &Share, plan: &mut ForwardPlan) -> Result<()> {
        if !self.owns(share, plan)? {
            return Ok(());
        }
        let mut problem = self.problem(share, plan)?;
        let even = self.even(&mut problem)?;
        self.give(share, plan, &even)
    }

    /// Whether there is something to own. Reference mode owns every plan while it prices it; without
    /// context parallelism there is the time of tokens and pairs alone.
    fn owns(&self, share: &Share, plan: &mut ForwardPlan) -> Result<bool> {
        let settings = self.engine.settings();
        if settings.cp == 1 {
            for (pack, tree) in plan.packs.iter_mut().zip(&share.trees) {
                let segments = layout::shape(tree, &pack.shared)?.segments;
                let time = Costs::new(settings, pack.gradient).of(&segments);
                pack.time_ms = Some(time as f64 / MILLISECOND);
            }
        }
        Ok(settings.cp > 1 && !settings.reference && !plan.packs.is_empty())
    }

    fn problem(&self, share: &Share, plan: &ForwardPlan) -> Result<Problem> {
        let settings = self.engine.settings();
        let mut padded = Vec::with_capacity(plan.packs.len());
        for (pack, tree) in plan.packs.iter().zip(&share.trees) {
            let shape = layout::shape(tree, &pack.shared)?;
            padded.push(measures::pad(&shape.segments, settings.tp)?);
        }
        let tokens = vec![(0, 0); padded.len()];
        Ok(Problem {
            padded,
            tokens,
            loaded: None,
            prove: false,
        })
    }

    /// One pack by a method, its gdn layers placed within the same limit.
    fn one(
        &mut self,
        problem: &mut Problem,
        g: usize,
        method: ownership::Method,
        most: Option<i64>,
    ) -> Result<Owned> {
        cancel::check()?;
        let engine = std::sync::Arc::clone(&self.engine);
        let settings = engine.settings();
        let (ranks, costs) = (settings.cp as usize, &settings.ownership);
        let asked = Asked {
            most_tokens: most,
            prove: problem.prove,
            ..Asked::new(&problem.padded[g], ranks, costs)
        };
        if problem.loaded != Some(g) {
            self.work.ownership.load(&asked)?;
            problem.loaded = Some(g);
        }
        let ownership = method(&asked, &mut self.work.ownership)?;
        let mut placed = None;
        if let Some(facts) = &settings.gdn {
            let work = &mut self.work.gdn;
            placed = Some(gdn::gdn(asked.segments, &ownership, facts, most, work)?);
        }
        let time_ms = time_ms(settings, &ownership, placed.as_ref());
        Ok(Owned {
            ownership,
            gdn: placed,
            time_ms,
            most,
        })
    }

    /// The fastest of every pack, whatever it needs; the reference's where none is faster.
    fn fastest(&mut self, problem: &mut Problem) -> Result<Vec<Owned>> {
        let mut all = Vec::with_capacity(problem.padded.len());
        for g in 0..problem.padded.len() {
            let mut best = self.one(problem, g, ownership::METHODS[0].1, None)?;
            // Where nothing is faster these are the reference's owners, with the tighter bound.
            let next = self.one(problem, g, ownership::FASTEST, None)?;
            let most = best.busiest().max(next.busiest());
            problem.tokens[g] = (self.even_tokens(problem, g), most);
            if !best.better(&next) {
                best = next;
            }
            if self.engine.settings().ownership.max_ranges > 1 {
                let next = self.folded(problem, g)?;
                if next.better(&best) {
                    best = next;
                }
            }
            all.push(best);
        }
        Ok(all)
    }

    /// Takes owners within tighter limits where these are faster, in a model with gdn layers.
    fn look_closer(&mut self, problem: &mut Problem, best: &mut [Owned]) -> Result<()> {
        let settings = self.engine.settings();
        if settings.gdn.is_none() || settings.ownership.profile.is_some() {
            return Ok(());
        }
        for (g, best) in best.iter_mut().enumerate() {
            for limit in GDN_LIMITS {
                let most = problem.limit(g, limit, best.ownership.chunk);
                let next = self.one(problem, g, ownership::FASTEST, Some(most))?;
                if next.better(best) {
                    *best = next;
                }
            }
        }
        Ok(())
    }

    /// The fastest within the loosest limit that fits, by bisection; none where no limit does.
    fn limited(
        &mut self,
        share: &Share,
        plan: &mut ForwardPlan,
        problem: &mut Problem,
        fastest: &[Owned],
        step: i64,
        fits: &dyn Fn(&ForwardPlan) -> bool,
    ) -> Result<Option<Vec<Owned>>> {
        let mut best: Option<Vec<Owned>> = None;
        let (mut low, mut high) = (-1, LIMITS);
        let mut tried: Vec<(Vec<i64>, bool)> = Vec::new();
        while high - low > step {
            // The even share comes last: mostly something looser fits.
            let limit = if high <= step {
                0
            } else {
                (low.max(0) + high) / 2
            };
            let limits: Vec<i64> = (fastest.iter().enumerate())
                .map(|(g, one)| problem.limit(g, limit, one.ownership.chunk))
                .collect();
            let known = tried
                .iter()
                .find(|(before, _)| *before == limits)
                .map(|one| one.1);
            let holds = if let Some(known) = known {
                known
            } else {
                let mut next = Vec::with_capacity(limits.len());
                for (g, &most) in limits.iter().enumerate() {
                    next.push(self.one(problem, g, ownership::FASTEST, Some(most))?);
                }
                self.give(share, plan, &next)?;
                let holds = fits(plan);
                if holds && best.as_ref().is_none_or(|best| total(&next) < total(best)) {
                    best = Some(next);
                }
                tried.push((limits, holds));
                holds
            };
            if holds {
                low = limit;
            } else {
                high = limit;
            }
        }
        Ok(best)
    }

    fn folded(&mut self, problem: &mut Problem, g: usize) -> Result<Owned> {
        let even = self.even_tokens(problem, g);
        self.one(problem, g, ownership::EVEN_FOLD, Some(even))
    }

    fn even_tokens(&self, problem: &Problem, g: usize) -> i64 {
        let settings = self.engine.settings();
        let ranks = settings.cp as usize;
        Asked::new(&problem.padded[g], ranks, &settings.ownership).even_tokens()
    }

    /// The even share of every pack, as probes price it.
    fn even(&mut self, problem: &mut Problem) -> Result<Vec<Owned>> {
        let mut all = Vec::with_capacity(problem.padded.len());
        for g in 0..problem.padded.len() {
            let even = self.even_tokens(problem, g);
            all.push(self.one(problem, g, ownership::EVEN, Some(even))?);
        }
        Ok(all)
    }

    /// Gives a plan these owners, and prices it again.
    fn give(&mut self, share: &Share, plan: &mut ForwardPlan, owned: &[Owned]) -> Result<()> {
        for (pack, owned) in plan.packs.iter_mut().zip(owned) {
            pack.ownership = Some(owned.ownership.clone());
            pack.gdn.clone_from(&owned.gdn);
            pack.time_ms = Some(owned.time_ms);
        }
        self.price_again(share, plan)
    }
}

/// Whether a modelled time is less by more than a hundredth; false where one is not known.
pub(super) fn clearly(time: Option<f64>, other: Option<f64>) -> bool {
    time.zip(other)
        .is_some_and(|(time, other)| time < 0.99 * other)
}

fn total(owned: &[Owned]) -> f64 {
    owned.iter().map(|one| one.time_ms).sum()
}

impl Problem {
    /// Tokens that a rank may have in the pack `g` at a limit; no fewer than an even share.
    fn limit(&self, g: usize, limit: i64, chunk: i64) -> i64 {
        let (even, most) = self.tokens[g];
        let chunks = (most - even).max(0).div_euclid(chunk) + 1;
        even + chunks * limit / LIMITS * chunk
    }
}

impl ForwardPlan {
    /// Modelled milliseconds of all packs, one after another; none where a pack is not timed.
    #[must_use]
    pub fn milliseconds(&self) -> Option<f64> {
        self.packs.iter().map(|pack: &Pack| pack.time_ms).sum()
    }

    /// Whether it takes clearly less modelled time than a plan of less predicted work.
    pub(super) fn faster(&self, other: &Self) -> bool {
        clearly(self.milliseconds(), other.milliseconds())
    }
}
