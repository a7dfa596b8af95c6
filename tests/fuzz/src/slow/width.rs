//! The width search and the ladder's cut, step by step: with composite quotes to the widest,
//! else as the reference planner does them.

use std::collections::{BTreeMap, BTreeSet};

use waveplan::search::width::{Quote, Quoted};

fn usable(quote: Quoted) -> bool {
    quote.verdict.fits && (quote.verdict.trusted || !quote.verdict.profiled)
}

/// Why it stopped, and at which width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A width does not fit.
    Memory(usize),
    /// A width is not trusted.
    Trust(usize),
    /// The end of the pool.
    End,
}

/// A search over a table of quotes; every quote asked is kept.
pub struct Search<'a> {
    /// Items not yet run.
    pub left: usize,
    /// Data-parallel ranks.
    pub dp: usize,
    /// The largest width so far.
    pub hint: Option<usize>,
    /// One quote a width.
    pub composite: bool,
    /// The table.
    pub table: &'a dyn Fn(usize, Quote) -> Quoted,
    /// Quotes asked.
    pub asked: Vec<(usize, Quote)>,
    /// Widths that did not fit.
    pub rejected: BTreeSet<usize>,
    estimates: BTreeMap<usize, Option<Quoted>>,
    full: BTreeMap<usize, bool>,
    exact_failed: Option<usize>,
}

impl<'a> Search<'a> {
    /// Before any question.
    #[must_use]
    pub fn new(
        left: usize,
        dp: usize,
        hint: Option<usize>,
        composite: bool,
        table: &'a dyn Fn(usize, Quote) -> Quoted,
    ) -> Self {
        Self {
            left,
            dp,
            hint,
            composite,
            table,
            asked: Vec::new(),
            rejected: BTreeSet::new(),
            estimates: BTreeMap::new(),
            full: BTreeMap::new(),
            exact_failed: None,
        }
    }

    fn least(&self) -> usize {
        self.dp.min(self.left)
    }

    /// A width clamped and floored.
    #[must_use]
    pub fn normalize(&self, width: usize) -> usize {
        let mut grain = match self.left {
            0..64 => 1,
            64..256 => 8,
            _ => 32,
        };
        while grain % self.dp != 0 {
            grain += 1;
        }
        let width = width.max(self.least()).min(self.left);
        if self.least() < width && width < self.left && width >= grain {
            return (width - width % grain).max(self.least());
        }
        width
    }

    fn quote(&mut self, width: usize, kind: Quote) -> Quoted {
        self.asked.push((width, kind));
        (self.table)(width, kind)
    }

    fn estimate(&mut self, width: usize) -> Option<Quoted> {
        if !self.estimates.contains_key(&width) {
            let made = self.fresh_estimate(width);
            self.estimates.insert(width, made);
        }
        self.estimates[&width]
    }

    fn fresh_estimate(&mut self, width: usize) -> Option<Quoted> {
        let mut quote = self.quote(width, Quote::Unshared);
        if !quote.valid {
            return None;
        }
        if !usable(quote) && self.exact_failed.is_none_or(|failed| width < failed) {
            quote = self.quote(width, Quote::Shared);
            if quote.verdict.fits {
                for kind in [Quote::Optimal, Quote::Full] {
                    quote = self.quote(width, kind);
                    self.full.insert(width, kind == Quote::Full);
                    if usable(quote) {
                        break;
                    }
                }
            } else {
                self.full.insert(width, true);
            }
            if !quote.verdict.fits {
                let failed = self.exact_failed.unwrap_or(width);
                self.exact_failed = Some(failed.min(width));
            }
        }
        Some(quote)
    }

    /// The plan that is executed at a width.
    #[must_use]
    pub fn executed(&self, width: usize) -> Quote {
        match (self.composite, self.full.get(&width)) {
            (true, _) => Quote::PlanBest,
            (_, Some(true)) => Quote::PlanFull,
            _ => Quote::PlanOptimal,
        }
    }

    fn probe(&mut self, width: usize) -> Quoted {
        let mut quote;
        if self.composite {
            quote = self.quote(width, Quote::PlanBest);
        } else if let Some(estimate) = self.estimate(width) {
            quote = estimate;
        } else {
            quote = self.quote(width, self.executed(width));
            if !usable(quote) && self.full.get(&width) != Some(&true) {
                self.full.insert(width, true);
                quote = self.quote(width, Quote::PlanFull);
            }
        }
        if !quote.verdict.fits {
            self.rejected.insert(width);
        }
        quote
    }

    /// Whether the minimum wave fits, and whether it is trusted.
    fn first(&mut self) -> (bool, bool) {
        let width = self.least();
        let mut quote;
        if self.composite {
            quote = self.quote(width, Quote::PlanBest);
        } else if let Some(estimate) = self.estimate(width) {
            quote = estimate;
            if quote.verdict.fits && !quote.verdict.trusted {
                quote.verdict.trusted = (self.table)(width, self.executed(width)).verdict.trusted;
            }
        } else {
            quote = self.quote(width, Quote::PlanOptimal);
            if quote.verdict.fits && quote.verdict.profiled && !quote.verdict.trusted {
                self.full.insert(width, true);
                quote = self.quote(width, Quote::PlanFull);
            }
        }
        (quote.verdict.fits, quote.verdict.trusted)
    }

    fn cold(&self, width: usize) -> Stop {
        if width == self.left {
            Stop::End
        } else {
            Stop::Trust(width)
        }
    }

    /// The width, why it stopped and whether it runs cold; none for the ladder.
    pub fn run(&mut self) -> Option<(usize, Stop, bool)> {
        let (fits, trusted) = self.first();
        if !fits {
            return None;
        }
        let mut best = self.least();
        if !trusted {
            return Some((best, self.cold(best), true));
        }
        let mut stop = Stop::End;
        let hint = self.normalize(self.hint.unwrap_or(best));
        if hint > best {
            let quote = self.probe(hint);
            if quote.verdict.fits && quote.verdict.trusted {
                best = hint;
            }
        }
        let mut failed = None;
        while failed.is_none() && best < self.left {
            let width = self.normalize((best + 1).max(2 * best));
            if width == best {
                break;
            }
            let quote = self.probe(width);
            if !usable(quote) {
                failed = Some(width);
                stop = why(quote, width);
                break;
            }
            best = width;
            if !quote.verdict.trusted {
                stop = self.cold(best);
                break;
            }
        }
        while let Some(high) = failed.filter(|&high| high > best + 1) {
            let width = self.normalize(usize::midpoint(best, high));
            if width == best || width == high || self.composite && width < best {
                break;
            }
            let quote = self.probe(width);
            if usable(quote) {
                best = width;
            } else {
                failed = Some(width);
                stop = why(quote, width);
            }
        }
        while let Some(high) = failed.filter(|_| self.composite) {
            let between: Vec<usize> = (best + 1..high).filter(|w| w % self.dp == 0).collect();
            if between.is_empty() {
                break;
            }
            let width = between[(between.len() - 1) / 2];
            let quote = self.probe(width);
            if usable(quote) {
                best = width;
            } else {
                failed = Some(width);
                stop = why(quote, width);
            }
        }
        if self.composite || self.estimates.get(&best).is_none_or(Option::is_none) {
            self.quote(best, self.executed(best));
        }
        Some((best, stop, false))
    }
}

fn why(quote: Quoted, width: usize) -> Stop {
    if quote.verdict.fits {
        Stop::Trust(width)
    } else {
        Stop::Memory(width)
    }
}

/// Runs of about equal tokens: the ends of each.
#[must_use]
pub fn cut(tokens: &[i64], count: usize) -> Vec<usize> {
    let count = count.min(tokens.len()).max(1);
    let wide = |tokens: &[i64]| tokens.iter().map(|&n| i128::from(n)).sum::<i128>();
    let mut ends = Vec::new();
    for i in 0..tokens.len() {
        let runs_left = count - 1 - ends.len();
        let reached =
            wide(&tokens[..=i]) * count as i128 >= wide(tokens) * (ends.len() as i128 + 1);
        if runs_left > 0 && (reached || tokens.len() - 1 - i <= runs_left) {
            ends.push(i + 1);
        }
    }
    if ends.last() != Some(&tokens.len()) && !tokens.is_empty() {
        ends.push(tokens.len());
    }
    ends
}
