//! Probes that all ranks agree on, in tables.
//!
//! The probes of a search are known beforehand: first those of the widths of growth, then those of
//! the granules between the last usable and the first failed width, and of the widths between two
//! granules (none in reference mode). Every rank prices its own share for all of them, one minimum
//! over the ranks reduces each table, and the same search then runs over the tables on every rank.
//! The result is that of ranks which reduce every probe by itself.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::search::width::{
    self, Decisions, Fit, Geometry, KINDS, Kind, Next, Outcome, Probes, Step, Strategy, Walk,
};

/// Flags of a probe: each an entry of its own, so that a minimum is a conjunction.
const FLAGS: usize = 4;

type Kinds = [Fit; KINDS];

/// The tables of one search.
#[derive(Debug, Clone)]
pub struct Exchange {
    geometry: Geometry,
    hint: Option<usize>,
    strategy: Strategy,
    agreed: Table,
    /// The widths between which bisection, then refinement starts.
    intervals: [Option<(usize, usize)>; 2],
}

impl Exchange {
    /// Nothing agreed yet.
    #[must_use]
    pub fn new(geometry: Geometry, hint: Option<usize>, strategy: Strategy) -> Self {
        Self {
            geometry,
            hint,
            strategy,
            agreed: Table::default(),
            intervals: [None; 2],
        }
    }

    /// Entries of the first table.
    #[must_use]
    pub fn growth_len(&self) -> usize {
        self.growth_widths().len() * self.entries()
    }

    /// Computes the first table of this rank: every width of growth. A chain of growth ends at the
    /// first width from which this rank lets nothing grow; the rest is zero.
    pub fn growth(&self, probes: &mut impl Probes) -> Result<Vec<i64>> {
        let mut flags = Vec::with_capacity(self.growth_len());
        for chain in self.geometry.growth_widths(self.hint) {
            let mut open = true;
            for width in chain {
                let mut fits = Kinds::default();
                if open {
                    fits = self.fits(width, probes)?;
                    open = fits.iter().any(|fit| fit.fits) && fits.iter().any(|fit| fit.trusted);
                }
                self.push(&fits, &mut flags);
            }
        }
        Ok(flags)
    }

    /// Takes the first agreed table; entries of the second, which is empty if nothing is left to
    /// bisect. `decisions` is as it was before the search.
    pub fn settle_growth(&mut self, decisions: &Decisions, agreed: &[i64]) -> Result<usize> {
        let widths = self.growth_widths();
        self.fill(&widths, agreed)?;
        self.find_interval(decisions.clone(), Step::Bisect)?;
        Ok(self.widths(Step::Bisect).len() * self.entries())
    }

    /// Computes the second table of this rank: the widths of bisection.
    pub fn bisection(&self, probes: &mut impl Probes) -> Result<Vec<i64>> {
        self.between(Step::Bisect, probes)
    }

    /// Takes the second agreed table; entries of the third, which is empty in reference mode or
    /// if nothing is left to refine.
    pub fn settle_bisection(&mut self, decisions: &Decisions, agreed: &[i64]) -> Result<usize> {
        self.started("agree_bisection")?;
        let widths = self.widths(Step::Bisect);
        self.fill(&widths, agreed)?;
        self.find_interval(decisions.clone(), Step::Refine)?;
        Ok(self.widths(Step::Refine).len() * self.entries())
    }

    /// Computes the third table of this rank: the widths of refinement.
    pub fn refinement(&self, probes: &mut impl Probes) -> Result<Vec<i64>> {
        self.between(Step::Refine, probes)
    }

    /// Takes the third agreed table and runs the search over all.
    pub fn settle(&mut self, decisions: &mut Decisions, agreed: &[i64]) -> Result<Outcome> {
        self.started("finish")?;
        let widths = self.widths(Step::Refine);
        self.fill(&widths, agreed)?;
        width::search(self.geometry, self.hint, decisions, &mut self.agreed)
    }

    fn started(&self, what: &str) -> Result<()> {
        if self.agreed.widths.is_empty() {
            return Err(Error::input(format!(
                "no first table is agreed: agree_growth comes before {what}"
            )));
        }
        Ok(())
    }

    /// Probes the widths between two, as far as this rank lets the search go.
    fn between(&self, step: Step, probes: &mut impl Probes) -> Result<Vec<i64>> {
        let mut widths: BTreeMap<usize, Kinds> = BTreeMap::new();
        let mut open: Vec<(usize, usize)> = self.interval(step).into_iter().collect();
        // A single rank decides for all, so that one side of a middle is never probed.
        let decides = self.strategy == Strategy::Best && self.geometry.dp == 1;
        while let Some((low, high)) = open.pop() {
            let Some(width) = self.geometry.between(low, high, step) else {
                continue;
            };
            let fits = match widths.get(&width) {
                Some(fits) => *fits,
                None => self.fits(width, probes)?,
            };
            widths.insert(width, fits);
            if low < width && width < high {
                if fits.iter().any(|fit| fit.fits) {
                    open.push((width, high));
                }
                if !decides || !fits.iter().any(|fit| fit.usable()) {
                    open.push((low, width));
                }
            }
        }
        let mut flags = Vec::new();
        for width in self.widths(step) {
            self.push(&widths.get(&width).copied().unwrap_or_default(), &mut flags);
        }
        Ok(flags)
    }

    fn growth_widths(&self) -> Vec<usize> {
        self.geometry.growth_widths(self.hint).concat()
    }

    fn interval(&self, step: Step) -> Option<(usize, usize)> {
        self.intervals[usize::from(step == Step::Refine)]
    }

    fn widths(&self, step: Step) -> Vec<usize> {
        (self.interval(step)).map_or_else(Vec::new, |(best, failed)| {
            self.geometry.bisection_widths(best, failed, step)
        })
    }

    /// Finds the widths between which a step starts by what is agreed, if the search gets there.
    fn find_interval(&mut self, mut decisions: Decisions, step: Step) -> Result<()> {
        let mut walk = Walk::new(self.geometry, self.hint, self.strategy);
        let found = loop {
            match walk.next() {
                Next::Probe(_, now) if now == step => break walk.interval(),
                Next::Probe(_, Step::Refine) | Next::Done(_) => break None,
                Next::Probe(width, step) => {
                    walk.advance(decisions.fit(width, step, &mut self.agreed)?);
                }
            }
        };
        self.intervals[usize::from(step == Step::Refine)] = found;
        Ok(())
    }

    /// The kinds of probes in a table.
    fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        let best = self.strategy == Strategy::Best;
        (Kind::ALL.into_iter()).filter(move |&kind| (kind == Kind::PlanBest) == best)
    }

    fn entries(&self) -> usize {
        self.kinds().count() * FLAGS
    }

    fn fits(&self, width: usize, probes: &mut impl Probes) -> Result<Kinds> {
        let mut fits = Kinds::default();
        for kind in self.kinds() {
            fits[kind as usize] = probes.probe(width, kind)?;
        }
        Ok(fits)
    }

    fn push(&self, fits: &Kinds, flags: &mut Vec<i64>) {
        for kind in self.kinds() {
            let bits = fits[kind as usize].bits();
            flags.extend((0..FLAGS).map(|flag| i64::from(bits >> flag & 1)));
        }
    }

    fn fill(&mut self, widths: &[usize], flags: &[i64]) -> Result<()> {
        let entries = self.entries();
        if flags.len() != widths.len() * entries {
            return Err(Error::input(format!(
                "the agreed table has {} entries for {} widths: give {entries} each",
                flags.len(),
                widths.len()
            )));
        }
        let kinds: Vec<Kind> = self.kinds().collect();
        for (&width, flags) in widths.iter().zip(flags.chunks_exact(entries)) {
            // Two chains of growth can meet; one that had ended holds zeros there.
            let fits = self.agreed.widths.entry(width).or_default();
            for (&kind, flags) in kinds.iter().zip(flags.chunks_exact(FLAGS)) {
                let bits =
                    (flags.iter().rev()).fold(0, |bits, &flag| bits << 1 | u8::from(flag != 0));
                let old = fits[kind as usize].bits();
                fits[kind as usize] = Fit::from_bits(old | bits);
            }
        }
        Ok(())
    }
}

/// Probes agreed by all ranks.
#[derive(Debug, Clone, Default)]
struct Table {
    widths: BTreeMap<usize, Kinds>,
}

impl Probes for Table {
    fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit> {
        match self.widths.get(&width) {
            Some(fits) => Ok(fits[kind as usize]),
            None => Err(Error::Internal(
                "the search probed a width outside its table",
            )),
        }
    }

    fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool> {
        Ok(self.probe(width, kind)?.trusted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes of one rank, drawn once.
    #[derive(Clone)]
    struct Rank {
        probes: Vec<Kinds>,
        asked: usize,
    }

    impl Probes for Rank {
        fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit> {
            self.asked += 1;
            Ok(self.probes[width][kind as usize])
        }

        fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool> {
            Ok(self.probes[width][kind as usize].trusted)
        }
    }

    /// Ranks that reduce every probe by itself.
    struct Probing<'a>(&'a mut [Rank]);

    impl Probes for Probing<'_> {
        fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit> {
            let mut bits = 15;
            for rank in self.0.iter_mut() {
                bits &= rank.probe(width, kind)?.bits();
            }
            Ok(Fit::from_bits(bits))
        }

        fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool> {
            Ok(self
                .0
                .iter_mut()
                .all(|rank| rank.trusted(width, kind).unwrap()))
        }
    }

    /// A small generator of numbers below `below`.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, below: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) as usize % below
        }
    }

    /// A rank whose probes mostly worsen with width, with exceptions.
    fn rank(draw: &mut Draw, groups: usize) -> Rank {
        let limits: [[usize; KINDS]; 2] =
            std::array::from_fn(|_| std::array::from_fn(|_| draw.below(3 * groups / 2 + 2)));
        let (profiled, valid) = (draw.below(3) > 0, draw.below(4) > 0);
        let noise = [0, 0, 20, 4][draw.below(4)];
        let probes = (0..=groups)
            .map(|width| {
                std::array::from_fn(|kind| {
                    let mut odd = || noise > 0 && draw.below(noise) == 0;
                    let plan = kind >= Kind::PlanOptimal as usize;
                    Fit {
                        valid: plan || (valid != odd()),
                        fits: (width <= limits[0][kind]) != odd(),
                        trusted: (width <= limits[1][kind]) != odd(),
                        profiled: profiled != odd(),
                    }
                })
            })
            .collect();
        Rank { probes, asked: 0 }
    }

    fn minimum(tables: Vec<Vec<i64>>) -> Vec<i64> {
        let columns = tables.into_iter().reduce(|a, b| {
            assert_eq!(a.len(), b.len());
            a.into_iter().zip(b).map(|(x, y)| x.min(y)).collect()
        });
        columns.unwrap()
    }

    #[test]
    fn tables_equal_reducing_every_probe() {
        let mut ends = [0; 3];
        for seed in 0..4000 {
            let mut draw = Draw(seed * 7919 + 1);
            let groups = 1 + draw.below([12, 70, 300][seed as usize % 3]);
            let dp = 1 + draw.below(4);
            let strategy = [Strategy::Best, Strategy::Reference][draw.below(2)];
            let hint = [None, Some(1 + draw.below(groups))][draw.below(2)];
            let mut ranks: Vec<Rank> = (0..dp).map(|_| rank(&mut draw, groups)).collect();
            let geometry = Geometry::new(groups, 0, dp).unwrap();

            let mut decisions = Decisions::new(strategy);
            let expected =
                width::search(geometry, hint, &mut decisions, &mut Probing(&mut ranks)).unwrap();

            let mut exchanges = vec![Exchange::new(geometry, hint, strategy); dp];
            let mut every = vec![Decisions::new(strategy); dp];
            let tables = (exchanges.iter().zip(&mut ranks)).map(|(e, r)| e.growth(r).unwrap());
            let agreed = minimum(tables.collect());
            for (exchange, decisions) in exchanges.iter_mut().zip(&every) {
                exchange.settle_growth(decisions, &agreed).unwrap();
            }
            let tables = (exchanges.iter().zip(&mut ranks)).map(|(e, r)| e.bisection(r).unwrap());
            let agreed = minimum(tables.collect());
            for (exchange, decisions) in exchanges.iter_mut().zip(&every) {
                let entries = exchange.settle_bisection(decisions, &agreed).unwrap();
                assert!(strategy == Strategy::Best || entries == 0);
            }
            let tables = (exchanges.iter().zip(&mut ranks)).map(|(e, r)| e.refinement(r).unwrap());
            let agreed = minimum(tables.collect());
            for (exchange, own) in exchanges.iter_mut().zip(&mut every) {
                assert_eq!(exchange.settle(own, &agreed).unwrap(), expected, "{seed}");
                assert_eq!(own.rejected(), decisions.rejected(), "{seed}");
                if let Outcome::Wave(width, _) | Outcome::Cold(width, _) = expected {
                    assert_eq!(own.executed(width), decisions.executed(width), "{seed}");
                    assert_eq!(own.decided(width), decisions.decided(width), "{seed}");
                }
            }
            ends[match expected {
                Outcome::Split => 0,
                Outcome::Cold(..) => 1,
                Outcome::Wave(..) => 2,
            }] += 1;
        }
        assert!(ends.iter().all(|&count| count > 200), "{ends:?}");
    }

    #[test]
    fn a_table_of_the_wrong_length_is_refused() {
        let geometry = Geometry::new(9, 0, 2).unwrap();
        let mut exchange = Exchange::new(geometry, None, Strategy::Best);
        let error = exchange
            .settle_growth(&Decisions::new(Strategy::Best), &[1; 3])
            .unwrap_err();
        assert!(error.to_string().contains("3 entries"), "{error}");
    }
}
