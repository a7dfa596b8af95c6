//! The width search, as a machine that asks for a verdict and is told.
//!
//! [`Machine`] walks widths: the minimum wave, a hint, doubling, bisection over granules and, but
//! in reference mode, over the multiples of the rank count. [`Judge`] makes one width's verdict out of *quotes* (one price of one kind) the way the reference planner does:
//! bounds first where they are valid, exact plans otherwise. Neither prices anything, so the same
//! code runs over live prices and over a table that all ranks have agreed on.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};

/// Which widths a wave can have: all in groups over all data-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Items of the pool not yet run.
    pub remaining: usize,
    /// The minimum wave: a group a rank, as far as there are groups.
    pub min_width: usize,
    /// Larger widths are multiples of this, a multiple of the rank count.
    pub granule: usize,
    /// Data-parallel ranks.
    pub dp: usize,
}

impl Geometry {
    /// Of the groups from `start` on, over `dp` data-parallel ranks.
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

    /// Every width that the search can ask before it bisects, in a fixed order: the minimum,
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

    /// The width between two others that bisection asks next, if there is one.
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
    pub fn fine_middle(&self, best: usize, failed: usize) -> Option<usize> {
        let (first, last) = (best / self.dp + 1, failed.saturating_sub(1) / self.dp);
        (first <= last).then(|| usize::midpoint(first, last) * self.dp)
    }

    /// The width between two others that a step asks next, if there is one.
    #[must_use]
    pub fn between(&self, best: usize, failed: usize, step: Step) -> Option<usize> {
        match step {
            Step::Refine => self.fine_middle(best, failed),
            _ => self.middle(best, failed),
        }
    }

    /// Every width that bisection between two others can ask, ascending.
    #[must_use]
    pub fn bisection_widths(&self, best: usize, failed: usize, step: Step) -> Vec<usize> {
        let mut widths = Vec::new();
        let mut open = vec![(best, failed)];
        while let Some((low, high)) = open.pop() {
            if let Some(width) = self.between(low, high, step) {
                widths.push(width);
                // A floored middle can lie at or below `low`: only true sub-intervals go on.
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

/// What all ranks say of one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Fits on every rank.
    pub fits: bool,
    /// Trusted on every rank.
    pub trusted: bool,
    /// Every rank has a profile of its share's signature.
    pub profiled: bool,
}

impl Verdict {
    /// Fits, and trusted or never seen before.
    #[must_use]
    pub fn usable(self) -> bool {
        self.fits && (self.trusted || !self.profiled)
    }
}

/// Which part of the search asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The minimum wave; the verdict's `trusted` means that it need not run cold.
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
    /// This width fits but lies outside what a profile covers, or (equal to the chosen width)
    /// nothing wider may be attempts before this one has run.
    Trust(usize),
    /// The pool ends here.
    End,
}

/// How the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The minimum wave does not fit: the split ladder decides.
    Ladder,
    /// The minimum wave, which must run before anything wider may be attempts.
    Cold(usize, Stop),
    /// This width, priced last with this reason to stop.
    Wave(usize, Stop),
}

/// The next move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Tell the verdict of this width.
    Ask(usize, Step),
    /// Over.
    Done(Outcome),
}

/// The search over widths. Alternate [`Machine::next`] and [`Machine::tell`].
#[derive(Debug, Clone)]
pub struct Machine {
    geometry: Geometry,
    /// Refine after bisection.
    fine: bool,
    hint: usize,
    best: usize,
    failed: Option<usize>,
    stop: Stop,
    next: Next,
}

impl Machine {
    /// Starts at the minimum wave; `hint` is the largest width used so far; `fine`: the reference
    /// search stops at a granule, ours goes on to the widest.
    #[must_use]
    pub fn new(geometry: Geometry, hint: Option<usize>, fine: bool) -> Self {
        let first = geometry.min_width;
        Self {
            geometry,
            fine,
            hint: geometry.normalize(hint.unwrap_or(first)),
            best: first,
            failed: None,
            stop: Stop::End,
            next: Next::Ask(first, Step::First),
        }
    }

    /// What to do now.
    #[must_use]
    pub fn next(&self) -> Next {
        self.next
    }

    /// The widest usable and the narrowest failed width, while bisecting or refining.
    #[must_use]
    pub fn interval(&self) -> Option<(usize, usize)> {
        match self.next {
            Next::Ask(_, Step::Bisect | Step::Refine) => {
                self.failed.map(|failed| (self.best, failed))
            }
            _ => None,
        }
    }

    /// Takes the verdict of the width asked last.
    pub fn tell(&mut self, verdict: Verdict) {
        let Next::Ask(width, step) = self.next else {
            return;
        };
        self.next = match step {
            Step::First if !verdict.fits => Next::Done(Outcome::Ladder),
            Step::First if !verdict.trusted => {
                Next::Done(Outcome::Cold(width, self.cold_stop(width)))
            }
            Step::First if self.hint > self.best => Next::Ask(self.hint, Step::Hint),
            Step::First => self.grow(),
            Step::Hint => {
                // An unprofiled mix may fit at the hint by chance: grow towards it instead.
                if verdict.usable() && verdict.trusted {
                    self.best = width;
                }
                self.grow()
            }
            Step::Grow if verdict.usable() => {
                self.best = width;
                if verdict.trusted {
                    self.grow()
                } else {
                    Next::Done(Outcome::Wave(width, self.cold_stop(width)))
                }
            }
            Step::Bisect | Step::Refine if verdict.usable() => {
                self.best = width;
                self.between(step)
            }
            Step::Grow | Step::Bisect | Step::Refine => {
                self.failed = Some(width);
                self.stop = if verdict.fits {
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
            Next::Ask(width, Step::Grow)
        } else {
            Next::Done(Outcome::Wave(self.best, self.stop))
        }
    }

    /// Between the widest usable and the narrowest failed width.
    fn between(&self, step: Step) -> Next {
        let (best, failed) = (self.best, self.failed.unwrap_or(self.best));
        let coarse = match step {
            Step::Refine => None,
            _ => self.geometry.middle(best, failed),
        };
        // A middle that is floored to a width below the best would lose what was found.
        let coarse = coarse.filter(|&width| !self.fine || width > best);
        if let Some(width) = coarse {
            return Next::Ask(width, Step::Bisect);
        }
        match self.geometry.fine_middle(best, failed) {
            Some(width) if self.fine => Next::Ask(width, Step::Refine),
            _ => Next::Done(Outcome::Wave(best, self.stop)),
        }
    }
}

/// Kinds of prices of one width. The first four are estimates that need no plan; the reference
/// search uses them where they bound a plan's price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quote {
    /// Nothing shared: an upper bound of any layout.
    Unshared,
    /// Everything shared, every term at its least: a lower bound.
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

/// Number of [`Quote`] kinds.
pub const QUOTES: usize = 7;

impl Quote {
    /// Every kind, by number.
    pub const ALL: [Self; QUOTES] = [
        Self::Unshared,
        Self::Shared,
        Self::Optimal,
        Self::Full,
        Self::PlanOptimal,
        Self::PlanFull,
        Self::PlanBest,
    ];
}

/// One quote, as agreed by all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quoted {
    /// Whether this kind of price is valid for the width at all.
    pub valid: bool,
    /// See [`Verdict`].
    pub verdict: Verdict,
}

impl Quoted {
    /// Four bits: valid, fits, trusted, profiled.
    #[must_use]
    pub fn bits(self) -> u8 {
        u8::from(self.valid)
            | u8::from(self.verdict.fits) << 1
            | u8::from(self.verdict.trusted) << 2
            | u8::from(self.verdict.profiled) << 3
    }

    /// The inverse of [`Quoted::bits`].
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self {
            valid: bits & 1 != 0,
            verdict: Verdict {
                fits: bits & 2 != 0,
                trusted: bits & 4 != 0,
                profiled: bits & 8 != 0,
            },
        }
    }
}

/// Where quotes come from: live prices of this rank, or a table agreed by all ranks.
pub trait Quotes {
    /// The quote of `kind` at `width`. Asked again when the search prices a width again.
    fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted>;

    /// Whether the plan of `kind` is trusted, without pricing it.
    fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool>;
}

/// Makes verdicts of widths out of quotes and remembers what earlier widths decided.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    /// One composite quote a width instead of the reference order of probes.
    composite: bool,
    /// Verdicts made from estimates.
    estimates: BTreeMap<usize, Option<Verdict>>,
    /// The estimate that decided each of them.
    decided: BTreeMap<usize, Quote>,
    /// Widths whose full-sharing layouts were priced last.
    full: BTreeMap<usize, bool>,
    /// The narrowest width that failed after exact pricing.
    exact_failed: Option<usize>,
    /// Distinct widths after the minimum wave that did not fit.
    rejected: BTreeSet<usize>,
}

impl Judge {
    /// `composite`: ask [`Quote::PlanBest`] only.
    #[must_use]
    pub fn new(composite: bool) -> Self {
        Self {
            composite,
            ..Self::default()
        }
    }

    /// See [`Judge::new`].
    #[must_use]
    pub fn composite(&self) -> bool {
        self.composite
    }

    /// Distinct widths after the minimum wave that did not fit.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.rejected.len()
    }

    /// The quote whose plan is executed at a width that was judged.
    #[must_use]
    pub fn executed(&self, width: usize) -> Quote {
        match (self.composite, self.full.get(&width)) {
            (true, _) => Quote::PlanBest,
            (false, Some(true)) => Quote::PlanFull,
            _ => Quote::PlanOptimal,
        }
    }

    /// The estimate that decided a width, so that its price is the width's; none where a plan
    /// decided.
    #[must_use]
    pub fn decided(&self, width: usize) -> Option<Quote> {
        self.decided.get(&width).copied()
    }

    /// The verdict for a step of the machine. For the minimum wave `trusted` means that the plan
    /// to be executed is trusted.
    pub fn verdict(
        &mut self,
        width: usize,
        step: Step,
        quotes: &mut impl Quotes,
    ) -> Result<Verdict> {
        if self.composite {
            let verdict = quotes.quote(width, Quote::PlanBest)?.verdict;
            if step != Step::First && !verdict.fits {
                self.rejected.insert(width);
            }
            return Ok(verdict);
        }
        let estimate = self.estimate(width, quotes)?;
        if step == Step::First {
            return self.first(width, estimate, quotes);
        }
        let verdict = match estimate {
            Some(verdict) => verdict,
            None => self.planned(width, quotes)?,
        };
        if !verdict.fits {
            self.rejected.insert(width);
        }
        Ok(verdict)
    }

    /// Prices the chosen width once more, as the reference search does.
    pub fn choose(&mut self, width: usize, quotes: &mut impl Quotes) -> Result<()> {
        if self.decided(width).is_none() {
            quotes.quote(width, self.executed(width))?;
        }
        Ok(())
    }

    fn first(
        &mut self,
        width: usize,
        estimate: Option<Verdict>,
        quotes: &mut impl Quotes,
    ) -> Result<Verdict> {
        if let Some(verdict) = estimate {
            if verdict.fits && !verdict.trusted {
                // The plan may hold fewer tokens than the price that was asked.
                let trusted = quotes.trusted(width, self.executed(width))?;
                return Ok(Verdict { trusted, ..verdict });
            }
            return Ok(verdict);
        }
        let verdict = quotes.quote(width, Quote::PlanOptimal)?.verdict;
        if verdict.fits && !verdict.trusted && verdict.profiled {
            self.full.insert(width, true);
            return Ok(quotes.quote(width, Quote::PlanFull)?.verdict);
        }
        Ok(verdict)
    }

    fn planned(&mut self, width: usize, quotes: &mut impl Quotes) -> Result<Verdict> {
        let kind = self.executed(width);
        let verdict = quotes.quote(width, kind)?.verdict;
        if verdict.usable() || kind == Quote::PlanFull {
            return Ok(verdict);
        }
        self.full.insert(width, true);
        Ok(quotes.quote(width, Quote::PlanFull)?.verdict)
    }

    /// The verdict from bounds and layouts without plans; none where they are not valid.
    fn estimate(&mut self, width: usize, quotes: &mut impl Quotes) -> Result<Option<Verdict>> {
        if let Some(known) = self.estimates.get(&width) {
            return Ok(*known);
        }
        let unshared = quotes.quote(width, Quote::Unshared)?;
        let mut verdict = None;
        if unshared.valid {
            let (found, quote) = self.bounded(width, unshared.verdict, quotes)?;
            self.decided.insert(width, quote);
            verdict = Some(found);
        }
        self.estimates.insert(width, verdict);
        Ok(verdict)
    }

    fn bounded(
        &mut self,
        width: usize,
        unshared: Verdict,
        quotes: &mut impl Quotes,
    ) -> Result<(Verdict, Quote)> {
        let after = self.exact_failed.is_some_and(|failed| width >= failed);
        if unshared.usable() || after {
            return Ok((unshared, Quote::Unshared));
        }
        let mut decided = Quote::Shared;
        let mut verdict = quotes.quote(width, decided)?.verdict;
        if verdict.fits {
            for kind in [Quote::Optimal, Quote::Full] {
                decided = kind;
                verdict = quotes.quote(width, kind)?.verdict;
                if verdict.usable() {
                    break;
                }
            }
        }
        self.full.insert(width, decided != Quote::Optimal);
        if !verdict.fits {
            self.exact_failed = Some(self.exact_failed.map_or(width, |old| old.min(width)));
        }
        Ok((verdict, decided))
    }
}

/// Runs machine and judge over `quotes` to the end: to the widest with composite quotes, else by
/// granules as reference.
pub fn search(
    geometry: Geometry,
    hint: Option<usize>,
    judge: &mut Judge,
    quotes: &mut impl Quotes,
) -> Result<Outcome> {
    let mut machine = Machine::new(geometry, hint, judge.composite());
    loop {
        match machine.next() {
            Next::Ask(width, step) => {
                let verdict = judge.verdict(width, step, quotes)?;
                machine.tell(verdict);
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
        asked: Vec<usize>,
    }

    impl Quotes for Limit {
        fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted> {
            if kind == Quote::PlanBest {
                self.asked.push(width);
            }
            Ok(Quoted {
                valid: false,
                verdict: Verdict {
                    fits: width <= self.memory,
                    trusted: width <= self.trust,
                    profiled: true,
                },
            })
        }

        fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool> {
            Ok(self.quote(width, kind)?.verdict.trusted)
        }
    }

    fn run(groups: usize, dp: usize, memory: usize, trust: usize) -> (Outcome, Vec<usize>) {
        let mut quotes = Limit {
            memory,
            trust,
            asked: Vec::new(),
        };
        let geometry = Geometry::new(groups, 0, dp).unwrap();
        let outcome = search(geometry, None, &mut Judge::new(true), &mut quotes).unwrap();
        (outcome, quotes.asked)
    }

    #[test]
    fn widths_are_clamped_and_floored() {
        let normalized = |groups: usize| {
            let g = Geometry::new(groups, 0, 1).unwrap();
            let asked = [1, 3, 7, 9, 20, 33, 64, groups - 1, groups];
            (g.granule, asked.map(|width| g.normalize(width)))
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
        assert_eq!(run(20, 4, 3, 99).0, Outcome::Ladder);
        assert_eq!(run(20, 4, 9, 0).0, Outcome::Cold(4, Stop::Trust(4)));
        assert_eq!(
            run(20, 1, 11, 99).1,
            [1, 2, 4, 8, 16, 12, 10, 11],
            "doubling, then bisection"
        );
    }

    #[test]
    fn refines_between_granules() {
        let (outcome, asked) = run(1000, 1, 42, 999);
        assert_eq!(outcome, Outcome::Wave(42, Stop::Memory(43)));
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 48, 40, 44, 42, 43]);
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
    fn every_width_asked_is_foreseen() {
        for groups in [5, 63, 64, 200, 300, 1000] {
            for dp in [1, 3, 8] {
                for memory in (0..groups).step_by(7) {
                    let geometry = Geometry::new(groups, 0, dp).unwrap();
                    let growth = geometry.growth_widths(None).concat();
                    let mut machine = Machine::new(geometry, None, memory % 2 == 0);
                    let mut between = std::collections::HashMap::new();
                    while let Next::Ask(width, step) = machine.next() {
                        let foreseen = match machine.interval() {
                            Some((best, failed)) => between
                                .entry(step == Step::Refine)
                                .or_insert_with(|| geometry.bisection_widths(best, failed, step))
                                .contains(&width),
                            None => growth.contains(&width),
                        };
                        assert!(foreseen, "{groups} {dp} {memory} {width}");
                        machine.tell(Verdict {
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
            assert_eq!(Quoted::from_bits(bits).bits(), bits);
        }
    }
}
