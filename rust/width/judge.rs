//! Makes verdicts of widths out of quotes, in the published order of probes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Geometry, Machine, Next, Outcome, Step, Verdict};
use crate::error::Result;

/// Kinds of prices of one width. The first four are estimates that need no plan; the published
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
    /// One composite quote a width instead of the published order of probes.
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

    /// Prices the chosen width once more, as the published search does.
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

/// Runs machine and judge over `quotes` to the end.
pub fn search(
    geometry: Geometry,
    hint: Option<usize>,
    judge: &mut Judge,
    quotes: &mut impl Quotes,
) -> Result<Outcome> {
    let mut machine = Machine::new(geometry, hint);
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
