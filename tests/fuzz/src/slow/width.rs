//! The width search and the cut of a split, step by step: with best layouts to the widest,
//! else as the reference planner does them.

use std::collections::{BTreeMap, BTreeSet};

use waveplan::search::width::{Fit, Kind};

fn usable(fit: Fit) -> bool {
    fit.fits && (fit.trusted || !fit.profiled)
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

/// A search over a table of probes; every probe is kept.
pub struct Search<'a> {
    /// Groups not yet run.
    pub left: usize,
    /// Data-parallel ranks.
    pub dp: usize,
    /// The largest width so far.
    pub hint: Option<usize>,
    /// One probe a width.
    pub best_layouts: bool,
    /// The table.
    pub table: &'a dyn Fn(usize, Kind) -> Fit,
    /// Probes.
    pub probed: Vec<(usize, Kind)>,
    /// Widths that did not fit.
    pub rejected: BTreeSet<usize>,
    estimates: BTreeMap<usize, Option<Fit>>,
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
        best_layouts: bool,
        table: &'a dyn Fn(usize, Kind) -> Fit,
    ) -> Self {
        Self {
            left,
            dp,
            hint,
            best_layouts,
            table,
            probed: Vec::new(),
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

    fn priced(&mut self, width: usize, kind: Kind) -> Fit {
        self.probed.push((width, kind));
        (self.table)(width, kind)
    }

    fn estimate(&mut self, width: usize) -> Option<Fit> {
        if !self.estimates.contains_key(&width) {
            let made = self.fresh_estimate(width);
            self.estimates.insert(width, made);
        }
        self.estimates[&width]
    }

    fn fresh_estimate(&mut self, width: usize) -> Option<Fit> {
        let mut fit = self.priced(width, Kind::Unshared);
        if !fit.valid {
            return None;
        }
        if !usable(fit) && self.exact_failed.is_none_or(|failed| width < failed) {
            fit = self.priced(width, Kind::Shared);
            if fit.fits {
                for kind in [Kind::Optimal, Kind::Full] {
                    fit = self.priced(width, kind);
                    self.full.insert(width, kind == Kind::Full);
                    if usable(fit) {
                        break;
                    }
                }
            } else {
                self.full.insert(width, true);
            }
            if !fit.fits {
                let failed = self.exact_failed.unwrap_or(width);
                self.exact_failed = Some(failed.min(width));
            }
        }
        Some(fit)
    }

    /// The plan that is executed at a width.
    #[must_use]
    pub fn executed(&self, width: usize) -> Kind {
        match (self.best_layouts, self.full.get(&width)) {
            (true, _) => Kind::PlanBest,
            (_, Some(true)) => Kind::PlanFull,
            _ => Kind::PlanOptimal,
        }
    }

    fn probe(&mut self, width: usize) -> Fit {
        let mut fit;
        if self.best_layouts {
            fit = self.priced(width, Kind::PlanBest);
        } else if let Some(estimate) = self.estimate(width) {
            fit = estimate;
        } else {
            fit = self.priced(width, self.executed(width));
            if !usable(fit) && self.full.get(&width) != Some(&true) {
                self.full.insert(width, true);
                fit = self.priced(width, Kind::PlanFull);
            }
        }
        if !fit.fits {
            self.rejected.insert(width);
        }
        fit
    }

    /// Whether the minimum wave fits, and whether it is trusted.
    fn first(&mut self) -> (bool, bool) {
        let width = self.least();
        let mut fit;
        if self.best_layouts {
            fit = self.priced(width, Kind::PlanBest);
        } else if let Some(estimate) = self.estimate(width) {
            fit = estimate;
            if fit.fits && !fit.trusted {
                fit.trusted = (self.table)(width, self.executed(width)).trusted;
            }
        } else {
            fit = self.priced(width, Kind::PlanOptimal);
            if fit.fits && fit.profiled && !fit.trusted {
                self.full.insert(width, true);
                fit = self.priced(width, Kind::PlanFull);
            }
        }
        (fit.fits, fit.trusted)
    }

    fn cold(&self, width: usize) -> Stop {
        if width == self.left {
            Stop::End
        } else {
            Stop::Trust(width)
        }
    }

    /// The width, why it stopped and whether it runs cold; none where it must be split.
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
            let fit = self.probe(hint);
            if fit.fits && fit.trusted {
                best = hint;
            }
        }
        let mut failed = None;
        while failed.is_none() && best < self.left {
            let width = self.normalize((best + 1).max(2 * best));
            if width == best {
                break;
            }
            let fit = self.probe(width);
            if !usable(fit) {
                failed = Some(width);
                stop = why(fit, width);
                break;
            }
            best = width;
            if !fit.trusted {
                stop = self.cold(best);
                break;
            }
        }
        while let Some(high) = failed.filter(|&high| high > best + 1) {
            let width = self.normalize(usize::midpoint(best, high));
            if width == best || width == high || self.best_layouts && width < best {
                break;
            }
            let fit = self.probe(width);
            if usable(fit) {
                best = width;
            } else {
                failed = Some(width);
                stop = why(fit, width);
            }
        }
        while let Some(high) = failed.filter(|_| self.best_layouts) {
            let between: Vec<usize> = (best + 1..high).filter(|w| w % self.dp == 0).collect();
            if between.is_empty() {
                break;
            }
            let width = between[(between.len() - 1) / 2];
            let fit = self.probe(width);
            if usable(fit) {
                best = width;
            } else {
                failed = Some(width);
                stop = why(fit, width);
            }
        }
        if self.best_layouts || self.estimates.get(&best).is_none_or(Option::is_none) {
            self.priced(best, self.executed(best));
        }
        Some((best, stop, false))
    }
}

fn why(fit: Fit, width: usize) -> Stop {
    if fit.fits {
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
