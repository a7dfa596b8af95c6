//! The search for the width of a wave.
//!
//! [`Walk`] goes over widths: the minimum wave, a hint, doubling, bisection over granules and, but
//! in reference mode, over the multiples of the rank count. [`Decisions`] decides one width by
//! *probes*, prices of one kind each: in reference mode bounds first where they are valid, exact
//! plans otherwise. Neither prices anything, so the same code runs over live prices and over a
//! table that all ranks have agreed on.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};

/// How a search decides: by our own way or by the reference planner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// One probe a width, of the best layout of each rank; refined to the widest width.
    #[default]
    Best,
    /// The reference planner's order of probes; stops at a granule.
    Reference,
}

/// The widths that a wave can have: groups of requests over all data-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Groups of the pool not yet run.
    pub remaining: usize,
    /// The minimum wave: a group for each rank, as far as there are groups.
    pub min_width: usize,
    /// Larger widths are multiples of this, a multiple of the rank count.
    pub granule: usize,
    /// Data-parallel ranks.
    pub dp: usize,
}

impl Geometry {
    /// Returns the widths of waves from group `start` on, over `dp` data-parallel ranks.
    pub fn new(groups: usize, start: usize, dp: usize) -> Result<Self> {
        if dp == 0 {
            return Err(Error::input(
                "dp is 0: there is at least one data-parallel rank",
            ));
        }
        if start >= groups {
            return Err(Error::input(format!(
                "start is {start} of {groups} groups: nothing is left to plan"
            )));
        }
        let remaining = groups - start;
        let base: usize = match remaining {
            0..=63 => 1,
            64..=255 => 8,
            _ => 32,
        };
        let granule = base
            .div_ceil(dp)
            .checked_mul(dp)
            .ok_or(Error::Overflow("the granularity of widths"))?;
        Ok(Self {
            remaining,
            min_width: dp.min(remaining),
            granule,
            dp,
        })
    }

    /// Clamps a width to the pool and floors it to a granule strictly inside.
    #[must_use]
    pub fn normalize(&self, width: usize) -> usize {
        let width = width.clamp(self.min_width, self.remaining);
        let inside = width != self.min_width && width != self.remaining;
        if inside && self.granule > 1 && width >= self.granule {
            (width / self.granule * self.granule).max(self.min_width)
        } else {
            width
        }
    }

    /// The next width of the growth phase.
    #[must_use]
    pub fn grown(&self, best: usize) -> usize {
        self.normalize(best.saturating_add(1).max(best.saturating_mul(2)))
    }

    /// Every width that the search can probe before it bisects, in a fixed order: the minimum,
    /// its doublings, the hint and the hint's doublings.
    #[must_use]
    pub fn growth_widths(&self, hint: Option<usize>) -> Vec<Vec<usize>> {
        let chain = |first: usize| {
            let mut widths = vec![first];
            let mut width = first;
            while width < self.remaining {
                let next = self.grown(width);
                if next == width {
                    break;
                }
                width = next;
                widths.push(width);
            }
            widths
        };
        let mut chains = vec![chain(self.min_width)];
        let hint = self.normalize(hint.unwrap_or(self.min_width));
        if hint > self.min_width {
            chains.push(chain(hint));
        }
        chains
    }

    /// The width between two others that bisection probes next, if there is one.
    #[must_use]
    pub fn middle(&self, best: usize, failed: usize) -> Option<usize> {
        if failed - best <= 1 {
            return None;
        }
        let width = self.normalize(usize::midpoint(best, failed));
        (width != best && width != failed).then_some(width)
    }

    /// The middle one of the multiples of the rank count between two widths.
    #[must_use]
    pub fn middle_multiple(&self, best: usize, failed: usize) -> Option<usize> {
        let (first, last) = (best / self.dp + 1, failed.saturating_sub(1) / self.dp);
        (first <= last).then(|| usize::midpoint(first, last) * self.dp)
    }

    /// The width between two others that a step probes next, if there is one.
    #[must_use]
    pub fn between(&self, best: usize, failed: usize, step: Step) -> Option<usize> {
        match step {
            Step::Refine => self.middle_multiple(best, failed),
            _ => self.middle(best, failed),
        }
    }

    /// Every width that bisection between two others can probe, ascending.
    #[must_use]
    pub fn bisection_widths(&self, best: usize, failed: usize, step: Step) -> Vec<usize> {
        let mut widths = Vec::new();
        let mut open = vec![(best, failed)];
        while let Some((low, high)) = open.pop() {
            if let Some(width) = self.between(low, high, step) {
                widths.push(width);
                // A floored middle can be at or below `low`: only true sub-intervals go on.
                if low < width && width < high {
                    open.push((low, width));
                    open.push((width, high));
                }
            }
        }
        widths.sort_unstable();
        widths.dedup();
        widths
    }
}

/// How one width, or one price of it, stands against the memory and the profiles.
#[allow(clippy::struct_excessive_bools)] // independent flags, each agreed by itself
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fit {
    /// This kind of price holds for the width at all.
    pub valid: bool,
    /// Fits on every rank.
    pub fits: bool,
    /// Trusted on every rank.
    pub trusted: bool,
    /// Every rank has a profile of its share's signature.
    pub profiled: bool,
}

impl Fit {
    /// Fits, and trusted or never seen before.
    #[must_use]
    pub fn usable(self) -> bool {
        self.fits && (self.trusted || !self.profiled)
    }
}

/// The part of the search that probes a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The minimum wave; `trusted` then means that it need not run cold.
    First,
    /// A width used before.
    Hint,
    /// Doubling.
    Grow,
    /// Between the widest usable and the narrowest failed width, by granules.
    Bisect,
    /// The same by multiples of the rank count.
    Refine,
}

/// Why no wider wave was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// This width does not fit.
    Memory(usize),
    /// This width fits but has less work per modelled time.
    Time(usize),
    /// This width fits but is beyond what a profile has seen, or (equal to the chosen width)
    /// nothing wider may be tried before this one has run.
    Trust(usize),
    /// The pool ends here.
    End,
}

/// How the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The minimum wave does not fit: it must be split.
    Split,
    /// The minimum wave, which must run before anything wider may be tried.
    Cold(usize, Stop),
    /// This width, priced last with this reason to stop.
    Wave(usize, Stop),
}

/// The next move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Probe this width and advance by its fit.
    Probe(usize, Step),
    /// Over.
    Done(Outcome),
}

/// The search over widths. Alternate [`Walk::next`] and [`Walk::advance`].
#[derive(Debug, Clone)]
pub struct Walk {
    geometry: Geometry,
    strategy: Strategy,
    hint: usize,
    best: usize,
    failed: Option<usize>,
    stop: Stop,
    next: Next,
}

impl Walk {
    /// Starts at the minimum wave; `hint` is the largest width used so far.
    #[must_use]
    pub fn new(geometry: Geometry, hint: Option<usize>, strategy: Strategy) -> Self {
        let first = geometry.min_width;
        Self {
            geometry,
            strategy,
            hint: geometry.normalize(hint.unwrap_or(first)),
            best: first,
            failed: None,
            stop: Stop::End,
            next: Next::Probe(first, Step::First),
        }
    }

    /// The next move.
    #[must_use]
    pub fn next(&self) -> Next {
        self.next
    }

    /// The widest usable and the narrowest failed width, while bisecting or refining.
    #[must_use]
    pub fn interval(&self) -> Option<(usize, usize)> {
        match self.next {
            Next::Probe(_, Step::Bisect | Step::Refine) => {
                self.failed.map(|failed| (self.best, failed))
            }
            _ => None,
        }
    }

    /// Moves on by the fit of the width probed last.
    pub fn advance(&mut self, fit: Fit) {
        let Next::Probe(width, step) = self.next else {
            return;
        };
        self.next = match step {
            Step::First if !fit.fits => Next::Done(Outcome::Split),
            Step::First if !fit.trusted => Next::Done(Outcome::Cold(width, self.cold_stop(width))),
            Step::First if self.hint > self.best => Next::Probe(self.hint, Step::Hint),
            Step::First => self.grow(),
            Step::Hint => {
                // An unprofiled mix may fit at the hint by chance: grow towards it instead.
                if fit.usable() && fit.trusted {
                    self.best = width;
                }
                self.grow()
            }
            Step::Grow if fit.usable() => {
                self.best = width;
                if fit.trusted {
                    self.grow()
                } else {
                    Next::Done(Outcome::Wave(width, self.cold_stop(width)))
                }
            }
            Step::Bisect | Step::Refine if fit.usable() => {
                self.best = width;
                self.between(step)
            }
            Step::Grow | Step::Bisect | Step::Refine => {
                self.failed = Some(width);
                self.stop = if fit.fits {
                    Stop::Trust(width)
                } else {
                    Stop::Memory(width)
                };
                self.between(step)
            }
        };
    }

    fn cold_stop(&self, width: usize) -> Stop {
        if width == self.geometry.remaining {
            Stop::End
        } else {
            Stop::Trust(width)
        }
    }

    fn grow(&self) -> Next {
        let width = self.geometry.grown(self.best);
        if self.best < self.geometry.remaining && width != self.best {
            Next::Probe(width, Step::Grow)
        } else {
            Next::Done(Outcome::Wave(self.best, self.stop))
        }
    }

    /// The next move between the widest usable and the narrowest failed width.
    fn between(&self, step: Step) -> Next {
        let (best, failed) = (self.best, self.failed.unwrap_or(self.best));
        let refines = self.strategy == Strategy::Best;
        let coarse = match step {
            Step::Refine => None,
            _ => self.geometry.middle(best, failed),
        };
        // A middle that is floored to a width below the best would lose what was found.
        let coarse = coarse.filter(|&width| !refines || width > best);
        if let Some(width) = coarse {
            return Next::Probe(width, Step::Bisect);
        }
        match self.geometry.middle_multiple(best, failed) {
            Some(width) if refines => Next::Probe(width, Step::Refine),
            _ => Next::Done(Outcome::Wave(best, self.stop)),
        }
    }
}

/// A kind of price of one width. The first four are estimates without a plan, used in reference
/// mode where they bound a plan's price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing shared: an upper bound of any layout's price.
    Unshared,
    /// Everything shared, every term at its least: a lower bound of any layout's price.
    Shared,
    /// The cost-optimal layout, without its plan.
    Optimal,
    /// The full-sharing layout, without its plan.
    Full,
    /// The plan of the cost-optimal layout.
    PlanOptimal,
    /// The plan of the full-sharing layout.
    PlanFull,
    /// Each rank's own best plan among all layouts it may try.
    PlanBest,
}

/// Number of kinds.
pub const KINDS: usize = 7;

impl Kind {
    /// Every kind, by number.
    pub const ALL: [Self; KINDS] = [
        Self::Unshared,
        Self::Shared,
        Self::Optimal,
        Self::Full,
        Self::PlanOptimal,
        Self::PlanFull,
        Self::PlanBest,
    ];
}

impl Fit {
    /// Four bits: valid, fits, trusted, profiled.
    #[must_use]
    pub fn bits(self) -> u8 {
        u8::from(self.valid)
            | u8::from(self.fits) << 1
            | u8::from(self.trusted) << 2
            | u8::from(self.profiled) << 3
    }

    /// The inverse of [`Fit::bits`].
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self {
            valid: bits & 1 != 0,
            fits: bits & 2 != 0,
            trusted: bits & 4 != 0,
            profiled: bits & 8 != 0,
        }
    }
}

/// A source of probes: live prices of this rank, or a table agreed by all ranks.
pub trait Probes {
    /// Probes `width` by a price of one kind; again where the search prices a width again.
    fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit>;

    /// Whether the plan of `kind` is trusted, without pricing it.
    fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool>;
}

/// Decides widths by probes and remembers what decided earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    strategy: Strategy,
    /// Decisions by estimates.
    estimates: BTreeMap<usize, Option<Fit>>,
    /// The estimate that decided each of them.
    decided: BTreeMap<usize, Kind>,
    /// Widths whose full-sharing layouts were priced last.
    full: BTreeMap<usize, bool>,
    /// The narrowest width that failed after exact pricing.
    exact_failed: Option<usize>,
    /// Distinct widths after the minimum wave that did not fit.
    rejected: BTreeSet<usize>,
    /// Widths that may run, in best mode.
    usable: BTreeSet<usize>,
}

impl Decisions {
    /// Nothing decided yet.
    #[must_use]
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            ..Self::default()
        }
    }

    /// Distinct widths after the minimum wave that did not fit.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.rejected.len()
    }

    /// Widths up to `most` that were decided and may run, ascending.
    #[must_use]
    pub fn usable(&self, most: usize) -> Vec<usize> {
        self.usable.range(..=most).copied().collect()
    }

    /// The kind of price whose plan is executed at a width that was decided.
    #[must_use]
    pub fn executed(&self, width: usize) -> Kind {
        match (self.strategy, self.full.get(&width)) {
            (Strategy::Best, _) => Kind::PlanBest,
            (Strategy::Reference, Some(true)) => Kind::PlanFull,
            _ => Kind::PlanOptimal,
        }
    }

    /// The estimate that decided a width, so that its price is the width's; none where a plan
    /// decided.
    #[must_use]
    pub fn decided(&self, width: usize) -> Option<Kind> {
        self.decided.get(&width).copied()
    }

    /// Decides a width for a step of the walk. For the minimum wave `trusted` means that the plan
    /// to be executed is trusted.
    pub fn fit(&mut self, width: usize, step: Step, probes: &mut impl Probes) -> Result<Fit> {
        if self.strategy == Strategy::Best {
            let fit = probes.probe(width, Kind::PlanBest)?;
            if step != Step::First && !fit.fits {
                self.rejected.insert(width);
            }
            if fit.usable() {
                self.usable.insert(width);
            }
            return Ok(fit);
        }
        let estimate = self.estimate(width, probes)?;
        if step == Step::First {
            return self.first(width, estimate, probes);
        }
        let fit = match estimate {
            Some(fit) => fit,
            None => self.planned(width, probes)?,
        };
        if !fit.fits {
            self.rejected.insert(width);
        }
        Ok(fit)
    }

    /// Probes the chosen width once more, as the reference planner does.
    pub fn choose(&mut self, width: usize, probes: &mut impl Probes) -> Result<()> {
        if self.decided(width).is_none() {
            probes.probe(width, self.executed(width))?;
        }
        Ok(())
    }

    fn first(
        &mut self,
        width: usize,
        estimate: Option<Fit>,
        probes: &mut impl Probes,
    ) -> Result<Fit> {
        if let Some(fit) = estimate {
            if fit.fits && !fit.trusted {
                // The plan may have fewer tokens than what was priced.
                let trusted = probes.trusted(width, self.executed(width))?;
                return Ok(Fit { trusted, ..fit });
            }
            return Ok(fit);
        }
        let fit = probes.probe(width, Kind::PlanOptimal)?;
        if fit.fits && !fit.trusted && fit.profiled {
            self.full.insert(width, true);
            return probes.probe(width, Kind::PlanFull);
        }
        Ok(fit)
    }

    fn planned(&mut self, width: usize, probes: &mut impl Probes) -> Result<Fit> {
        let kind = self.executed(width);
        let fit = probes.probe(width, kind)?;
        if fit.usable() || kind == Kind::PlanFull {
            return Ok(fit);
        }
        self.full.insert(width, true);
        probes.probe(width, Kind::PlanFull)
    }

    /// Decides by bounds and layouts without plans; none where they are not valid.
    fn estimate(&mut self, width: usize, probes: &mut impl Probes) -> Result<Option<Fit>> {
        if let Some(known) = self.estimates.get(&width) {
            return Ok(*known);
        }
        let unshared = probes.probe(width, Kind::Unshared)?;
        let mut fit = None;
        if unshared.valid {
            let (found, kind) = self.bounded(width, unshared, probes)?;
            self.decided.insert(width, kind);
            fit = Some(found);
        }
        self.estimates.insert(width, fit);
        Ok(fit)
    }

    fn bounded(
        &mut self,
        width: usize,
        unshared: Fit,
        probes: &mut impl Probes,
    ) -> Result<(Fit, Kind)> {
        let after = self.exact_failed.is_some_and(|failed| width >= failed);
        if unshared.usable() || after {
            return Ok((unshared, Kind::Unshared));
        }
        let mut decided = Kind::Shared;
        let mut fit = probes.probe(width, decided)?;
        if fit.fits {
            for kind in [Kind::Optimal, Kind::Full] {
                decided = kind;
                fit = probes.probe(width, kind)?;
                if fit.usable() {
                    break;
                }
            }
        }
        self.full.insert(width, decided != Kind::Optimal);
        if !fit.fits {
            self.exact_failed = Some(self.exact_failed.map_or(width, |old| old.min(width)));
        }
        Ok((fit, decided))
    }
}

/// Walks over widths, each decided by `probes`, to the end.
pub fn search(
    geometry: Geometry,
    hint: Option<usize>,
    decisions: &mut Decisions,
    probes: &mut impl Probes,
) -> Result<Outcome> {
    let mut walk = Walk::new(geometry, hint, decisions.strategy);
    loop {
        match walk.next() {
            Next::Probe(width, step) => {
                walk.advance(decisions.fit(width, step, probes)?);
            }
            Next::Done(outcome) => return Ok(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Limit {
        memory: usize,
        trust: usize,
        probed: Vec<usize>,
    }

    impl Probes for Limit {
        fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit> {
            if kind == Kind::PlanBest {
                self.probed.push(width);
            }
            Ok(Fit {
                valid: false,
                fits: width <= self.memory,
                trusted: width <= self.trust,
                profiled: true,
            })
        }

        fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool> {
            Ok(self.probe(width, kind)?.trusted)
        }
    }

    fn run(groups: usize, dp: usize, memory: usize, trust: usize) -> (Outcome, Vec<usize>) {
        let mut probes = Limit {
            memory,
            trust,
            probed: Vec::new(),
        };
        let geometry = Geometry::new(groups, 0, dp).unwrap();
        let outcome = search(
            geometry,
            None,
            &mut Decisions::new(Strategy::Best),
            &mut probes,
        )
        .unwrap();
        (outcome, probes.probed)
    }

    #[test]
    fn widths_are_clamped_and_floored() {
        let normalized = |groups: usize| {
            let g = Geometry::new(groups, 0, 1).unwrap();
            let probed = [1, 3, 7, 9, 20, 33, 64, groups - 1, groups];
            (g.granule, probed.map(|width| g.normalize(width)))
        };
        assert_eq!(normalized(64), (8, [1, 3, 7, 8, 16, 32, 64, 56, 64]));
        assert_eq!(normalized(255), (8, [1, 3, 7, 8, 16, 32, 64, 248, 255]));
        assert_eq!(normalized(256), (32, [1, 3, 7, 9, 20, 32, 64, 224, 256]));
        assert_eq!(Geometry::new(100, 0, 3).unwrap().granule, 9);
    }

    #[test]
    fn finds_the_limit_and_says_what_stopped_it() {
        assert_eq!(run(20, 1, 11, 99).0, Outcome::Wave(11, Stop::Memory(12)));
        assert_eq!(run(20, 1, 99, 5).0, Outcome::Wave(5, Stop::Trust(6)));
        assert_eq!(run(20, 1, 99, 99).0, Outcome::Wave(20, Stop::End));
        assert_eq!(run(20, 4, 3, 99).0, Outcome::Split);
        assert_eq!(run(20, 4, 9, 0).0, Outcome::Cold(4, Stop::Trust(4)));
        assert_eq!(
            run(20, 1, 11, 99).1,
            [1, 2, 4, 8, 16, 12, 10, 11],
            "doubling, then bisection"
        );
    }

    #[test]
    fn refines_between_granules() {
        let (outcome, probed) = run(1000, 1, 42, 999);
        assert_eq!(outcome, Outcome::Wave(42, Stop::Memory(43)));
        assert_eq!(probed, [1, 2, 4, 8, 16, 32, 64, 48, 40, 44, 42, 43]);
        assert_eq!(
            run(1000, 4, 171, 999).0,
            Outcome::Wave(168, Stop::Memory(172))
        );
        assert_eq!(run(29, 5, 25, 999).0, Outcome::Wave(25, Stop::Memory(29)));
        assert_eq!(
            run(300, 1, 299, 999).0,
            Outcome::Wave(299, Stop::Memory(300))
        );
        assert_eq!(run(300, 1, 999, 70).0, Outcome::Wave(70, Stop::Trust(71)));
    }

    #[test]
    fn widths_at_the_end_of_numbers_do_not_overflow() {
        let most = usize::MAX;
        for dp in [1, 3, most] {
            let geometry = Geometry::new(most, 0, dp).unwrap();
            assert_eq!(geometry.grown(most), most);
            for chain in geometry.growth_widths(Some(most)) {
                assert_eq!(chain.last(), Some(&most));
            }
        }
    }

    #[test]
    fn every_probed_width_is_foreseen() {
        let strategies = [Strategy::Best, Strategy::Reference];
        for groups in [5, 63, 64, 200, 300, 1000] {
            for dp in [1, 3, 8] {
                for memory in (0..groups).step_by(7) {
                    let geometry = Geometry::new(groups, 0, dp).unwrap();
                    let growth = geometry.growth_widths(None).concat();
                    let mut walk = Walk::new(geometry, None, strategies[memory % 2]);
                    let mut between = std::collections::HashMap::new();
                    while let Next::Probe(width, step) = walk.next() {
                        let foreseen = match walk.interval() {
                            Some((best, failed)) => between
                                .entry(step == Step::Refine)
                                .or_insert_with(|| geometry.bisection_widths(best, failed, step))
                                .contains(&width),
                            None => growth.contains(&width),
                        };
                        assert!(foreseen, "{groups} {dp} {memory} {width}");
                        walk.advance(Fit {
                            valid: true,
                            fits: width <= memory,
                            trusted: true,
                            profiled: true,
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn bits_round_trip() {
        for bits in 0..16 {
            assert_eq!(Fit::from_bits(bits).bits(), bits);
        }
    }
}
