//! Quotes that all ranks agree on, in tables.
//!
//! The quotes that a search can ask are known beforehand: first those of the widths of growth,
//! then those of the granules between the last usable and the first failed width, and of the
//! widths between two granules (none in reference mode). Every rank prices its own share for all
//! of them, one minimum over the ranks settles each table, and the same search then runs over the
//! tables on every rank. The answer is that of ranks which settle every quote when it is asked.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::search::width::{
    self, Geometry, Judge, Machine, Next, Outcome, QUOTES, Quote, Quoted, Quotes, Step,
};

/// Flags of a quote: each an entry of its own, so that a minimum is a conjunction.
const FLAGS: usize = 4;

type Row = [Quoted; QUOTES];

/// The tables of one search.
#[derive(Debug, Clone)]
pub struct Exchange {
    geometry: Geometry,
    hint: Option<usize>,
    composite: bool,
    agreed: Table,
    /// Where bisection, then refinement starts.
    intervals: [Option<(usize, usize)>; 2],
}

impl Exchange {
    /// `composite`: only [`Quote::PlanBest`] is asked.
    #[must_use]
    pub fn new(geometry: Geometry, hint: Option<usize>, composite: bool) -> Self {
        Self {
            geometry,
            hint,
            composite,
            agreed: Table::default(),
            intervals: [None; 2],
        }
    }

    /// Entries of the first table.
    #[must_use]
    pub fn growth_len(&self) -> usize {
        self.growth_widths().len() * self.entries()
    }

    /// First table of this rank: every width that growth can ask. A chain of growth ends at the
    /// first width from which this rank lets nothing grow; what follows is left at zero.
    pub fn growth(&self, quotes: &mut impl Quotes) -> Result<Vec<i64>> {
        let mut flags = Vec::with_capacity(self.growth_len());
        for chain in self.geometry.growth_widths(self.hint) {
            let mut open = true;
            for width in chain {
                let mut row = Row::default();
                if open {
                    row = self.row(width, quotes)?;
                    open = row.iter().any(|quoted| quoted.verdict.fits)
                        && row.iter().any(|quoted| quoted.verdict.trusted);
                }
                self.push(&row, &mut flags);
            }
        }
        Ok(flags)
    }

    /// Takes the first agreed table; entries of the second, which is empty if nothing is left to
    /// bisect. `judge` is as it was before the search.
    pub fn settle_growth(&mut self, judge: &Judge, agreed: &[i64]) -> Result<usize> {
        let widths = self.growth_widths();
        self.fill(&widths, agreed)?;
        self.find_interval(judge.clone(), Step::Bisect)?;
        Ok(self.widths(Step::Bisect).len() * self.entries())
    }

    /// Second table of this rank: the widths that bisection can ask.
    pub fn bisection(&self, quotes: &mut impl Quotes) -> Result<Vec<i64>> {
        self.between(Step::Bisect, quotes)
    }

    /// Takes the second agreed table; entries of the third, which is empty in reference mode or
    /// if nothing is left to refine.
    pub fn settle_bisection(&mut self, judge: &Judge, agreed: &[i64]) -> Result<usize> {
        self.started("agree_bisection")?;
        let widths = self.widths(Step::Bisect);
        self.fill(&widths, agreed)?;
        self.find_interval(judge.clone(), Step::Refine)?;
        Ok(self.widths(Step::Refine).len() * self.entries())
    }

    /// Third table of this rank: the widths that refinement can ask.
    pub fn refinement(&self, quotes: &mut impl Quotes) -> Result<Vec<i64>> {
        self.between(Step::Refine, quotes)
    }

    /// Takes the third agreed table and runs the search over all.
    pub fn settle(&mut self, judge: &mut Judge, agreed: &[i64]) -> Result<Outcome> {
        self.started("finish")?;
        let widths = self.widths(Step::Refine);
        self.fill(&widths, agreed)?;
        width::search(self.geometry, self.hint, judge, &mut self.agreed)
    }

    fn started(&self, what: &str) -> Result<()> {
        if self.agreed.rows.is_empty() {
            return Err(Error::input(format!(
                "no first table is agreed: agree_growth comes before {what}"
            )));
        }
        Ok(())
    }

    /// Quotes of the widths between two, as far as this rank lets the search come to them.
    fn between(&self, step: Step, quotes: &mut impl Quotes) -> Result<Vec<i64>> {
        let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
        let mut open: Vec<(usize, usize)> = self.interval(step).into_iter().collect();
        // What the only rank says is what all say, so that one side of a middle is never asked.
        let decides = self.composite && self.geometry.dp == 1;
        while let Some((low, high)) = open.pop() {
            let Some(width) = self.geometry.between(low, high, step) else {
                continue;
            };
            let row = match rows.get(&width) {
                Some(row) => *row,
                None => self.row(width, quotes)?,
            };
            rows.insert(width, row);
            if low < width && width < high {
                if row.iter().any(|quoted| quoted.verdict.fits) {
                    open.push((width, high));
                }
                if !decides || !row.iter().any(|quoted| quoted.verdict.usable()) {
                    open.push((low, width));
                }
            }
        }
        let mut flags = Vec::new();
        for width in self.widths(step) {
            self.push(&rows.get(&width).copied().unwrap_or_default(), &mut flags);
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

    /// Where a step starts under what is agreed, if it comes to that; others ask no more than is
    /// agreed already.
    fn find_interval(&mut self, mut judge: Judge, step: Step) -> Result<()> {
        let mut machine = Machine::new(self.geometry, self.hint, self.composite);
        let found = loop {
            match machine.next() {
                Next::Ask(_, now) if now == step => break machine.interval(),
                Next::Ask(_, Step::Refine) | Next::Done(_) => break None,
                Next::Ask(width, step) => {
                    machine.tell(judge.verdict(width, step, &mut self.agreed)?);
                }
            }
        };
        self.intervals[usize::from(step == Step::Refine)] = found;
        Ok(())
    }

    /// The kinds of quotes in a row of a table.
    fn kinds(&self) -> impl Iterator<Item = Quote> + use<> {
        let composite = self.composite;
        (Quote::ALL.into_iter()).filter(move |&kind| (kind == Quote::PlanBest) == composite)
    }

    fn entries(&self) -> usize {
        self.kinds().count() * FLAGS
    }

    fn row(&self, width: usize, quotes: &mut impl Quotes) -> Result<Row> {
        let mut row = Row::default();
        for kind in self.kinds() {
            row[kind as usize] = quotes.quote(width, kind)?;
        }
        Ok(row)
    }

    fn push(&self, row: &Row, flags: &mut Vec<i64>) {
        for kind in self.kinds() {
            let bits = row[kind as usize].bits();
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
        let kinds: Vec<Quote> = self.kinds().collect();
        for (&width, flags) in widths.iter().zip(flags.chunks_exact(entries)) {
            // Two chains of growth can meet; one that had ended holds zeros there.
            let row = self.agreed.rows.entry(width).or_default();
            for (&kind, flags) in kinds.iter().zip(flags.chunks_exact(FLAGS)) {
                let bits =
                    (flags.iter().rev()).fold(0, |bits, &flag| bits << 1 | u8::from(flag != 0));
                let old = row[kind as usize].bits();
                row[kind as usize] = Quoted::from_bits(old | bits);
            }
        }
        Ok(())
    }
}

/// Quotes agreed by all ranks.
#[derive(Debug, Clone, Default)]
struct Table {
    rows: BTreeMap<usize, Row>,
}

impl Quotes for Table {
    fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted> {
        match self.rows.get(&width) {
            Some(row) => Ok(row[kind as usize]),
            None => Err(Error::Internal(
                "the search asked a width outside its table",
            )),
        }
    }

    fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool> {
        Ok(self.quote(width, kind)?.verdict.trusted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotes of one rank, drawn once.
    #[derive(Clone)]
    struct Rank {
        quotes: Vec<Row>,
        asked: usize,
    }

    impl Quotes for Rank {
        fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted> {
            self.asked += 1;
            Ok(self.quotes[width][kind as usize])
        }

        fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool> {
            Ok(self.quotes[width][kind as usize].verdict.trusted)
        }
    }

    /// Ranks that settle every quote when it is asked.
    struct Probing<'a>(&'a mut [Rank]);

    impl Quotes for Probing<'_> {
        fn quote(&mut self, width: usize, kind: Quote) -> Result<Quoted> {
            let mut bits = 15;
            for rank in self.0.iter_mut() {
                bits &= rank.quote(width, kind)?.bits();
            }
            Ok(Quoted::from_bits(bits))
        }

        fn trusted(&mut self, width: usize, kind: Quote) -> Result<bool> {
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

    /// A rank whose quotes mostly worsen with width, with exceptions.
    fn rank(draw: &mut Draw, groups: usize) -> Rank {
        let limits: [[usize; QUOTES]; 2] =
            std::array::from_fn(|_| std::array::from_fn(|_| draw.below(3 * groups / 2 + 2)));
        let (profiled, valid) = (draw.below(3) > 0, draw.below(4) > 0);
        let noise = [0, 0, 20, 4][draw.below(4)];
        let quotes = (0..=groups)
            .map(|width| {
                std::array::from_fn(|kind| {
                    let mut odd = || noise > 0 && draw.below(noise) == 0;
                    let plan = kind >= Quote::PlanOptimal as usize;
                    Quoted {
                        valid: plan || (valid != odd()),
                        verdict: width::Verdict {
                            fits: (width <= limits[0][kind]) != odd(),
                            trusted: (width <= limits[1][kind]) != odd(),
                            profiled: profiled != odd(),
                        },
                    }
                })
            })
            .collect();
        Rank { quotes, asked: 0 }
    }

    fn minimum(tables: Vec<Vec<i64>>) -> Vec<i64> {
        let columns = tables.into_iter().reduce(|a, b| {
            assert_eq!(a.len(), b.len());
            a.into_iter().zip(b).map(|(x, y)| x.min(y)).collect()
        });
        columns.unwrap()
    }

    #[test]
    fn tables_equal_settling_every_quote() {
        let mut ends = [0; 3];
        for seed in 0..4000 {
            let mut draw = Draw(seed * 7919 + 1);
            let groups = 1 + draw.below([12, 70, 300][seed as usize % 3]);
            let dp = 1 + draw.below(4);
            let composite = draw.below(2) == 0;
            let hint = [None, Some(1 + draw.below(groups))][draw.below(2)];
            let mut ranks: Vec<Rank> = (0..dp).map(|_| rank(&mut draw, groups)).collect();
            let geometry = Geometry::new(groups, 0, dp).unwrap();

            let mut judge = Judge::new(composite);
            let expected =
                width::search(geometry, hint, &mut judge, &mut Probing(&mut ranks)).unwrap();

            let mut exchanges = vec![Exchange::new(geometry, hint, composite); dp];
            let mut judges = vec![Judge::new(composite); dp];
            let tables = (exchanges.iter().zip(&mut ranks)).map(|(e, r)| e.growth(r).unwrap());
            let agreed = minimum(tables.collect());
            for (exchange, judge) in exchanges.iter_mut().zip(&judges) {
                exchange.settle_growth(judge, &agreed).unwrap();
            }
            let tables = (exchanges.iter().zip(&mut ranks)).map(|(e, r)| e.bisection(r).unwrap());
            let agreed = minimum(tables.collect());
            for (exchange, judge) in exchanges.iter_mut().zip(&judges) {
                let entries = exchange.settle_bisection(judge, &agreed).unwrap();
                assert!(composite || entries == 0);
            }
            let tables = (exchanges.iter().zip(&mut ranks)).map(|(e, r)| e.refinement(r).unwrap());
            let agreed = minimum(tables.collect());
            for (exchange, own) in exchanges.iter_mut().zip(&mut judges) {
                assert_eq!(exchange.settle(own, &agreed).unwrap(), expected, "{seed}");
                assert_eq!(own.rejected(), judge.rejected(), "{seed}");
                if let Outcome::Wave(width, _) | Outcome::Cold(width, _) = expected {
                    assert_eq!(own.executed(width), judge.executed(width), "{seed}");
                    assert_eq!(own.decided(width), judge.decided(width), "{seed}");
                }
            }
            ends[match expected {
                Outcome::Ladder => 0,
                Outcome::Cold(..) => 1,
                Outcome::Wave(..) => 2,
            }] += 1;
        }
        assert!(ends.iter().all(|&count| count > 200), "{ends:?}");
    }

    #[test]
    fn a_table_of_the_wrong_length_is_refused() {
        let geometry = Geometry::new(9, 0, 2).unwrap();
        let mut exchange = Exchange::new(geometry, None, true);
        let error = exchange
            .settle_growth(&Judge::new(true), &[1; 3])
            .unwrap_err();
        assert!(error.to_string().contains("3 entries"), "{error}");
    }
}
