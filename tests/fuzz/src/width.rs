//! The width search over tables of probes, by one rank and by many, and the cuts of splits.

use waveplan::Result;
use waveplan::search::agreed::Exchange;
use waveplan::search::split;
use waveplan::search::width::{
    self, Decisions, Fit, Geometry, KINDS, Kind, Outcome, Probes, Stop, Strategy,
};

use crate::draw::Draw;
use crate::slow::width as slow;

/// One input.
pub fn check(data: &[u8]) {
    let mut draw = Draw::new(data);
    match draw.below(10) {
        0 => hostile_geometry(&mut draw),
        1 => cuts(&mut draw),
        2 => monotone(&mut draw),
        _ => tables(&mut draw),
    }
}

/// Probes of one rank by width and kind.
#[derive(Debug, Clone)]
struct Table {
    fits: Vec<[Fit; KINDS]>,
    probed: Vec<(usize, Kind)>,
}

impl Probes for Table {
    fn probe(&mut self, width: usize, kind: Kind) -> Result<Fit> {
        self.probed.push((width, kind));
        Ok(self.fits[width][kind as usize])
    }

    fn trusted(&mut self, width: usize, kind: Kind) -> Result<bool> {
        Ok(self.fits[width][kind as usize].trusted)
    }
}

/// A rank whose probes worsen with the width, but for some.
fn table(draw: &mut Draw<'_>, groups: usize) -> Table {
    let limit = |draw: &mut Draw<'_>| draw.below(groups + groups / 2 + 2);
    let memory = [(); KINDS].map(|()| limit(draw));
    let trust = [(); KINDS].map(|()| limit(draw));
    let (profiled, valid) = (draw.coin(), draw.coin());
    let mut fits: Vec<[Fit; KINDS]> = (0..=groups)
        .map(|width| {
            std::array::from_fn(|kind| {
                let mut fit = Fit::from_bits(0);
                fit.valid = valid || kind >= Kind::PlanOptimal as usize;
                fit.fits = width <= memory[kind];
                fit.trusted = width <= trust[kind];
                fit.profiled = profiled;
                fit
            })
        })
        .collect();
    for _ in 0..draw.below(40) {
        let width = draw.below(groups + 1);
        let kind = draw.below(KINDS);
        fits[width][kind] = Fit::from_bits(draw.below(16) as u8);
    }
    if draw.one_in(4) {
        // No order at all.
        for kinds in &mut fits {
            for fit in kinds {
                *fit = Fit::from_bits(draw.below(16) as u8);
            }
        }
    }
    Table {
        fits,
        probed: Vec::new(),
    }
}

fn stop_of(stop: Stop) -> slow::Stop {
    match stop {
        Stop::Memory(width) => slow::Stop::Memory(width),
        Stop::Time(_) => unreachable!("no search over tables compares times"),
        Stop::Trust(width) => slow::Stop::Trust(width),
        Stop::End => slow::Stop::End,
    }
}

fn ended(outcome: Outcome) -> Option<(usize, slow::Stop, bool)> {
    match outcome {
        Outcome::Split => None,
        Outcome::Cold(width, stop) => Some((width, stop_of(stop), true)),
        Outcome::Wave(width, stop) => Some((width, stop_of(stop), false)),
    }
}

/// One probe as all ranks agree on it.
fn all_of(ranks: &[Table], width: usize, kind: Kind) -> Fit {
    let bits = ranks
        .iter()
        .map(|rank| rank.fits[width][kind as usize].bits());
    Fit::from_bits(bits.fold(15, |all, bits| all & bits))
}

/// One search with every probe reduced by itself; the same by tables.
fn tables(draw: &mut Draw<'_>) {
    let most = draw.pick(&[10, 40, 70, 300]);
    let left = 1 + draw.below(most);
    let start = draw.below(5);
    let dp = 1 + draw.below(9);
    let hint = draw.coin().then(|| draw.below(left + 10));
    let best_layouts = draw.coin();
    let strategy = [Strategy::Reference, Strategy::Best][usize::from(best_layouts)];
    let count = 1 + draw.below(dp.min(4));
    let ranks: Vec<Table> = (0..count).map(|_| table(draw, left)).collect();
    let geometry = Geometry::new(left + start, start, dp).unwrap();

    let say = |width: usize, kind: Kind| all_of(&ranks, width, kind);
    let mut slow = slow::Search::new(left, dp, hint, best_layouts, &say);
    for width in 0..left + 40 {
        assert_eq!(geometry.normalize(width), slow.normalize(width));
    }
    let expected = slow.run();
    let mut decisions = Decisions::new(strategy);
    let mut together = Table {
        fits: (0..=left)
            .map(|width| Kind::ALL.map(|kind| say(width, kind)))
            .collect(),
        probed: Vec::new(),
    };
    let outcome = width::search(geometry, hint, &mut decisions, &mut together).unwrap();
    assert_eq!(ended(outcome), expected);
    assert_eq!(decisions.rejected(), slow.rejected.len());
    if let Outcome::Wave(width, _) = outcome {
        decisions.choose(width, &mut together).unwrap();
    }
    if expected.is_some() {
        assert_eq!(together.probed, slow.probed);
    }
    for width in 0..=left {
        assert_eq!(decisions.executed(width), slow.executed(width));
    }
    by_tables(&ranks, geometry, hint, &decisions, outcome, strategy);
}

/// Three tables, each settled by one minimum over the ranks.
fn by_tables(
    ranks: &[Table],
    geometry: Geometry,
    hint: Option<usize>,
    decisions: &Decisions,
    expected: Outcome,
    strategy: Strategy,
) {
    let mut ranks = ranks.to_vec();
    let mut exchanges = vec![Exchange::new(geometry, hint, strategy); ranks.len()];
    let mut every = vec![Decisions::new(strategy); ranks.len()];
    let growth: Vec<Vec<i64>> = (exchanges.iter().zip(&mut ranks))
        .map(|(exchange, rank)| exchange.growth(rank).unwrap())
        .collect();
    let agreed = minimum(&growth);
    assert_eq!(agreed.len(), exchanges[0].growth_len());
    let mut lengths = Vec::new();
    for (exchange, decisions) in exchanges.iter_mut().zip(&every) {
        assert!(exchange.settle_growth(decisions, &agreed[1..]).is_err());
        lengths.push(exchange.settle_growth(decisions, &agreed).unwrap());
    }
    let bisection: Vec<Vec<i64>> = (exchanges.iter().zip(&mut ranks))
        .map(|(exchange, rank)| exchange.bisection(rank).unwrap())
        .collect();
    let agreed = minimum(&bisection);
    let mut last = Vec::new();
    for ((exchange, decisions), length) in exchanges.iter_mut().zip(&every).zip(lengths) {
        assert_eq!(length, agreed.len());
        last.push(exchange.settle_bisection(decisions, &agreed).unwrap());
    }
    let refinement: Vec<Vec<i64>> = (exchanges.iter().zip(&mut ranks))
        .map(|(exchange, rank)| exchange.refinement(rank).unwrap())
        .collect();
    let agreed = minimum(&refinement);
    for ((exchange, own), length) in exchanges.iter_mut().zip(&mut every).zip(last) {
        assert_eq!(length, agreed.len());
        assert!(strategy == Strategy::Best || length == 0);
        let outcome = exchange.settle(own, &agreed).unwrap();
        assert_eq!(outcome, expected);
        assert_eq!(own.rejected(), decisions.rejected());
        for width in 0..=geometry.remaining {
            assert_eq!(own.executed(width), decisions.executed(width));
            assert_eq!(own.decided(width), decisions.decided(width));
        }
    }
}

fn minimum(tables: &[Vec<i64>]) -> Vec<i64> {
    assert!(tables.iter().all(|table| table.len() == tables[0].len()));
    (0..tables[0].len())
        .map(|i| tables.iter().map(|table| table[i]).min().unwrap_or(0))
        .collect()
}

/// Where wider never fits better, the widest width there is that fits.
fn monotone(draw: &mut Draw<'_>) {
    let most = draw.pick(&[40, 70, 300, 1_000]);
    let left = 1 + draw.below(most);
    let geometry = Geometry::new(left, 0, 1 + draw.below(9)).unwrap();
    let (memory, trust) = (draw.below(left + 2), draw.below(left + 2));
    let hint = draw.coin().then(|| draw.below(left + 2));
    let kinds = |width: usize| {
        let mut fit = Fit::from_bits(0);
        fit.fits = width <= memory;
        fit.trusted = width <= trust;
        fit.profiled = true;
        [fit; KINDS]
    };
    let mut table = Table {
        fits: (0..=left).map(kinds).collect(),
        probed: Vec::new(),
    };
    let outcome = width::search(
        geometry,
        hint,
        &mut Decisions::new(Strategy::Best),
        &mut table,
    )
    .unwrap();
    if memory < geometry.min_width {
        assert_eq!(outcome, Outcome::Split);
    } else if trust < geometry.min_width {
        assert!(matches!(outcome, Outcome::Cold(width, _) if width == geometry.min_width));
    } else {
        let usable = memory.min(trust);
        // Every width below a granule, multiples of the rank count above.
        let widest = match usable {
            _ if usable >= left => left,
            _ if usable < geometry.granule => usable,
            _ => usable / geometry.dp * geometry.dp,
        };
        let Outcome::Wave(width, _) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(width, widest, "{geometry:?} {usable}");
    }
}

/// Numbers of groups and ranks at the ends of what a walk counts.
fn hostile_geometry(draw: &mut Draw<'_>) {
    let mut number = || draw.wild() as usize;
    let (groups, start, dp) = (number(), number(), number());
    let (width, hint) = (number(), number());
    let geometry = Geometry::new(groups, start, dp);
    if dp == 0 || start >= groups {
        assert!(geometry.is_err());
        return;
    }
    let Ok(geometry) = geometry else {
        return;
    };
    let normal = geometry.normalize(width);
    assert!((geometry.min_width..=geometry.remaining).contains(&normal));
    assert_eq!(geometry.normalize(normal), normal);
    assert!(geometry.grown(width) >= geometry.min_width);
    for chain in geometry.growth_widths(Some(hint)) {
        assert!(chain.is_sorted() && chain.len() < 200);
    }
    if let Some(middle) = geometry.middle(normal.min(width), normal.max(width)) {
        assert!((geometry.min_width..=geometry.remaining).contains(&middle));
    }
    let _ = Exchange::new(geometry, Some(hint), Strategy::Best).growth_len();
}

/// Requests cut into runs of about equal tokens.
fn cuts(draw: &mut Draw<'_>) {
    let tokens = draw.list(20, |draw| match draw.below(10) {
        9 => draw.wild(),
        _ => draw.between(0, 50),
    });
    let count = draw.pick(&[1, 2, 4, 8, 3, 0, 100, usize::MAX]);
    let made = split::cut(&tokens, count);
    let total: i128 = tokens.iter().map(|&n| i128::from(n)).sum();
    if total > i128::from(i64::MAX) {
        assert!(made.is_err());
    } else if tokens.iter().all(|&n| n >= 0) {
        assert_eq!(made, Ok(slow::cut(&tokens, count)));
    }
    let costs = draw.list(4, |draw| split::Cost {
        required: draw.wild(),
        retained: draw.wild(),
        checkpoint_retained: draw.wild(),
        checkpoint_workspace: draw.wild(),
        input_gradient: draw.wild(),
        peak_increment: draw.wild(),
        hybridep_growth: draw.wild(),
        adapter_gradient: draw.wild(),
        adapter_slots: draw.below(3) as u64,
    });
    let _ = split::required(&costs, 1.1);
    let mut order = split::execution_order(&costs);
    order.sort_unstable();
    assert!(order.into_iter().eq(0..costs.len()));
}
