//! Which requests go together: a portfolio of ways to fill bins, improved, beside a bound.
//!
//! A bin is one rank's part of one wave; every wave has a bin for each data-parallel rank. Times are
//! whole picoseconds and budgets are counts: equal input gives equal bins everywhere.

mod bins;
mod bounds;
mod build;
mod improve;
mod price;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use super::forest::{Cover, Forest};
use crate::cancel;
use crate::error::{Error, Result};
use bins::{Atoms, Bin, Price, Shop};
use bounds::Bounds;
use improve::total;

pub use bins::Priced;
pub use price::{Asked, Composition, Kept, OrderBound, compose, order_bound};

/// Numbers of waves that are tried: from one below the fewest that were found, so many.
const WAVES_TRIED: usize = 3;
/// Bins of each number of waves that are improved, and of all numbers that are priced as they run.
const IMPROVED: usize = 2;
/// Evenly filled bins that take at most this part more than the bound make others needless.
const ENOUGH: i64 = 64;
/// Segments over all atoms up to which bins are searched; beyond, the given ones stand.
const MOST_SEGMENTS: usize = 6_000_000;
/// Atoms up to which every bin is compared with every atom.
const MOST_COMPARED: usize = 20_000;

/// What is composed.
struct Problem<'a> {
    forest: &'a Forest,
    /// The requests of each atom.
    atoms: Vec<Vec<u32>>,
    /// Bins of a wave.
    dp: usize,
    /// The number of waves is a multiple of this.
    multiple: usize,
    /// Picoseconds of a wave beside its slowest bin.
    fixed: i64,
    /// No bin that fits has more packed tokens.
    most: i64,
    /// Other waves than those of the pool in order are searched.
    free: bool,
    /// Waves hold the oldest atom left and reach this far beyond the run that begins there.
    window: Option<usize>,
    /// The waves of the pool in order, atoms by wave and rank.
    keep: Vec<Kept>,
}

/// Waves, their bins by decreasing time.
#[derive(Debug, Clone, Default)]
struct Waves {
    bins: Vec<Vec<(Vec<u32>, Priced)>>,
    /// Picoseconds of all waves, and packed tokens.
    time: i64,
    tokens: i64,
    by: &'static str,
}

impl Waves {
    /// Those whose bins all fit, the slowest bin of each first.
    fn of(by: &'static str, waves: &[Kept], fixed: i64) -> Self {
        let mut made = Self {
            by,
            ..Self::default()
        };
        for wave in waves {
            let bins = wave.iter().cloned();
            let bins: Option<Vec<_>> = bins.map(|(atoms, priced)| Some((atoms, priced?))).collect();
            let Some(mut bins) = bins else { continue };
            bins.sort_by_key(|(_, priced)| Reverse(priced.time));
            made.time += fixed + bins.first().map_or(0, |(_, priced)| priced.time);
            made.tokens += bins.iter().map(|(_, priced)| priced.packed).sum::<i64>();
            made.bins.push(bins);
        }
        made
    }

    fn atoms(&self) -> usize {
        self.bins.iter().flatten().map(|bin| bin.0.len()).sum()
    }

    /// Less is better. Times up to `ideal` are equal: what no order beats.
    fn key(&self, ideal: i64) -> (i64, usize, i64, i64) {
        (
            self.time.max(ideal),
            self.bins.len(),
            self.time,
            self.tokens,
        )
    }
}

/// The result of a search.
#[derive(Debug, Default)]
struct Found {
    best: Waves,
    keep: Waves,
    refused: Vec<u32>,
    waves: usize,
    bounds: Bounds,
}

/// Searches all ways to put the atoms into waves. `keep` may hold some of the atoms alone: those
/// that it does not hold are refused there.
fn search<P: Price>(mut problem: Problem<'_>, price: P) -> Result<Found> {
    let atoms = Atoms::new(problem.forest, std::mem::take(&mut problem.atoms))?;
    let mut shop = Shop::new(problem.forest, &atoms, problem.most, price);
    let mut found = search_in(&mut shop, &problem)?;
    if found.is_none() {
        shop.trust_nothing(); // some atom is smaller than the bound, and fits nowhere
        found = search_in(&mut shop, &problem)?;
    }
    found.ok_or_else(|| {
        let (multiple, groups) = (problem.multiple, atoms.len());
        Error::input(format!(
            "multiple is {multiple}: {groups} groups make no such number of waves"
        ))
    })
}

/// The search; none where no waves hold all atoms that are not refused.
fn search_in<P: Price>(shop: &mut Shop<'_, P>, problem: &Problem<'_>) -> Result<Option<Found>> {
    let &Problem {
        forest,
        dp,
        fixed,
        multiple,
        ..
    } = problem;
    let atoms = shop.atoms;
    let refused = refusals(shop)?;
    let kept = |atom: &u32| refused.binary_search(atom).is_err();
    let placed: Vec<u32> = (0..atoms.len() as u32).filter(kept).collect();
    let alive: Vec<u32> = placed
        .iter()
        .flat_map(|&atom| atoms.requests[atom as usize].clone())
        .collect();
    let bounds = bounds::bounds(forest, &alive, shop.most);
    let waves = |bins: usize| bins.div_ceil(dp).next_multiple_of(multiple);
    let mut found = Found {
        bounds,
        waves: waves(bounds.bins),
        refused: refused.clone(),
        ..Found::default()
    };
    found.keep = Waves::of("keep", &problem.keep, fixed);
    shop.know(&problem.keep);
    let complete = |made: &Waves| made.bins.len() % multiple == 0 && made.atoms() == placed.len();
    let mut best = Some(found.keep.clone()).filter(complete);
    let ideal = bounds.time.div_euclid(dp as i64);
    let near = if fixed == 0 { ideal + ideal / 500 } else { 0 }; // nothing to gain by less
    let slowest = best.as_ref().map_or(i64::MAX, |keep| keep.time);
    let offer = |best: &mut Option<Waves>, made: Waves| {
        let better = |best: &Waves| made.key(near) < best.key(near);
        if made.time <= slowest && complete(&made) && best.as_ref().is_none_or(better) {
            *best = Some(made);
        }
    };
    if let Some(window) = problem.window {
        let lists = windowed(shop, &placed, dp, window)?;
        offer(&mut best, Waves::of("window", &shop.run(lists)?, fixed));
    }
    let done = |best: &Waves| best.key(near) <= (near, found.waves, near, 0);
    let mut finalists = Vec::new();
    if problem.window.is_none() && !best.as_ref().is_some_and(done) {
        let goal = (bounds.tokens, ideal, near);
        finalists = ways(shop, problem, &placed, (found.waves, goal), best.is_none())?;
    }
    let key = |(time, _, bins): &Way| (near.max(*time), bins.len().div_ceil(dp), *time, 0);
    finalists.sort_by_key(key);
    for one in finalists.into_iter().take(IMPROVED) {
        if best
            .as_ref()
            .is_some_and(|best| best.key(near) <= key(&one))
        {
            break; // no layout takes less than full sharing
        }
        let (_, by, made) = one;
        let lists = in_waves(made, dp);
        offer(&mut best, Waves::of(by, &shop.run(lists)?, fixed));
    }
    if best.is_none() && !placed.is_empty() {
        return Ok(None);
    }
    found.best = best.unwrap_or_default();
    found.waves = found.waves.min(found.best.bins.len());
    Ok(Some(found))
}

/// A way to fill bins, with the picoseconds of its waves.
type Way = (i64, &'static str, Vec<Bin>);

/// The best ways for several numbers of waves, from `least` on, which no order beats. `goal` are the
/// bounds of tokens and time, and the time that is as good as the bound. Without a search just one,
/// if it `must`.
fn ways<P: Price>(
    shop: &mut Shop<'_, P>,
    problem: &Problem<'_>,
    placed: &[u32],
    (least, (tokens, ideal, near)): (usize, (i64, i64, i64)),
    must: bool,
) -> Result<Vec<Way>> {
    let &Problem { dp, multiple, .. } = problem;
    let segments: usize = shop.atoms.segments.iter().map(Vec::len).sum();
    let free = problem.free && segments <= MOST_SEGMENTS;
    let (mut candidates, mut even, mut from) = (Vec::new(), Vec::new(), least);
    if free && dp > 1 {
        even = evenly(shop, placed, least * dp)?;
    }
    // With room to spare balance decides, not memory.
    let loose = tokens <= shop.unpriced * (least * dp) as i64;
    let most = ideal + ideal / ENOUGH;
    let enough = |(_, bins): &(_, Vec<Bin>)| loose || total(&times(bins), dp) <= most;
    let enough = even.iter().any(enough);
    if free && !enough {
        candidates = build_all(shop, placed)?;
    } else if must && !free {
        candidates.push(("runs", build::runs(shop, placed)?));
    }
    if even.is_empty() {
        let bins = candidates.iter().map(|(_, bins)| bins.len()).min();
        let waves = bins.unwrap_or(1).div_ceil(dp).next_multiple_of(multiple);
        from = least.max(waves.saturating_sub(multiple)).max(1);
    }
    let mut made: Vec<Way> = Vec::new();
    let tries = if enough { 1 } else { WAVES_TRIED };
    for count in (from..).step_by(multiple).take(tries) {
        let before = made.iter().map(|one| one.0).min();
        if before.is_some_and(|time| time <= near) {
            break;
        }
        let mut tried = std::mem::take(&mut even);
        if free && dp > 1 && count > least {
            tried = evenly(shop, placed, count * dp)?;
        }
        for (by, bins) in &candidates {
            if bins.len() <= count * dp {
                let mut bins = bins.clone();
                build::split(shop, &mut bins, count * dp);
                tried.push((by, bins));
            }
        }
        tried.sort_by_key(|(_, bins)| total(&times(bins), dp));
        for (by, mut bins) in tried.into_iter().take(IMPROVED) {
            if dp > 1 && free {
                improve::improve(shop, &mut bins, dp, ideal)?;
            }
            let time = total(&times(&bins), dp) + problem.fixed * count as i64;
            made.push((time, by, bins));
        }
        let now = made.iter().map(|one| one.0).min();
        if before.is_some() && now == before {
            break; // more waves take no less
        }
    }
    Ok(made)
}

fn times(bins: &[Bin]) -> Vec<i64> {
    bins.iter().map(|bin| bin.time).collect()
}

/// Bins by decreasing time, `dp` a wave; the last wave may have empty ones.
fn in_waves(mut bins: Vec<Bin>, dp: usize) -> Vec<Vec<Vec<u32>>> {
    bins.sort_by_key(|bin| Reverse(bin.time));
    let mut lists: Vec<Vec<Vec<u32>>> = bins
        .chunks(dp)
        .map(|wave| wave.iter().map(|bin| bin.atoms.clone()).collect())
        .collect();
    if let Some(last) = lists.last_mut() {
        last.resize(dp, Vec::new());
    }
    lists
}

/// So many bins, cut from an order or filled evenly.
fn evenly<P: Price>(
    shop: &mut Shop<'_, P>,
    placed: &[u32],
    bins: usize,
) -> Result<Vec<(&'static str, Vec<Bin>)>> {
    let mut made: Vec<(&'static str, Vec<Bin>)> = Vec::new();
    if bins > placed.len() {
        return Ok(made);
    }
    let mut tree = shop.atoms.tree_order();
    tree.retain(|atom| placed.binary_search(atom).is_ok());
    for (by, order) in [("cut in the order of the tree", &tree[..]), ("cut", placed)] {
        if let Some(cut) = build::cut(shop, order, bins) {
            let cut = settled(shop, cut)?;
            if cut.len() == bins {
                made.push((by, cut));
            }
        }
    }
    if placed.len() * bins <= MOST_COMPARED * 32 {
        made.extend(build::load(shop, placed, bins)?.map(|bins| ("load", bins)));
    }
    Ok(made)
}

/// One wave after another: the oldest atom, then what its bins admit of the run that begins there
/// and of the `window` atoms behind that.
fn windowed<P: Price>(
    shop: &mut Shop<'_, P>,
    placed: &[u32],
    dp: usize,
    window: usize,
) -> Result<Vec<Vec<Vec<u32>>>> {
    let mut left = placed.to_vec();
    let mut waves = Vec::new();
    let mut cover = Cover::new(shop.forest);
    while !left.is_empty() {
        cancel::check()?;
        let mut end = 0;
        for _ in 0..dp {
            if end < left.len() {
                end += shop.reach(&left[end..], &mut cover)?;
            }
        }
        let reach = end.saturating_add(window).min(left.len());
        let mut bins: Vec<Bin> = (0..dp).map(|_| shop.bin()).collect();
        for &atom in &left[..reach] {
            for bin in &mut bins {
                if bin.atoms.is_empty() {
                    shop.add(bin, atom);
                    break;
                }
                if shop.admit(bin, atom, 8)? {
                    break;
                }
            }
        }
        let mut bins = settled(shop, bins)?;
        bins.truncate(dp); // what was given back waits for the next wave
        let mut chosen: Vec<u32> = bins.iter().flat_map(|bin| bin.atoms.clone()).collect();
        chosen.sort_unstable();
        build::split(shop, &mut bins, dp.min(chosen.len()));
        let mut tree = shop.atoms.tree_order();
        tree.retain(|atom| chosen.binary_search(atom).is_ok());
        if let Some(made) = build::cut(shop, &tree, dp).filter(|_| dp > 1) {
            let slowest = |bins: &[Bin]| bins.iter().map(|bin| bin.time).max();
            let made = settled(shop, made)?;
            if made.len() <= dp && slowest(&made) < slowest(&bins) {
                bins = made;
            }
        }
        left.retain(|atom| chosen.binary_search(atom).is_err());
        let mut lists: Vec<Vec<u32>> = bins.into_iter().map(|bin| bin.atoms).collect();
        lists.resize(dp, Vec::new());
        waves.push(lists);
    }
    Ok(waves)
}

/// Atoms that do not fit alone.
fn refusals<P: Price>(shop: &mut Shop<'_, P>) -> Result<Vec<u32>> {
    let mut refused = Vec::new();
    for atom in 0..shop.atoms.len() as u32 {
        let fits = shop.fits(&[atom], shop.atoms.tokens[atom as usize])?;
        if !fits && shop.priced(&[atom])?.is_none() {
            refused.push(atom);
        }
    }
    Ok(refused)
}

/// Bins of every construction, each of which fits.
fn build_all<P: Price>(
    shop: &mut Shop<'_, P>,
    placed: &[u32],
) -> Result<Vec<(&'static str, Vec<Bin>)>> {
    let mut made: Vec<(&'static str, Vec<Bin>)> = vec![("runs", build::runs(shop, placed)?)];
    let mut tree = shop.atoms.tree_order();
    tree.retain(|atom| placed.binary_search(atom).is_ok());
    made.push(("runs in the order of the tree", build::runs(shop, &tree)?));
    if placed.len() <= MOST_COMPARED {
        made.push(("fill", build::first(shop, placed)?));
        made.push(("least", build::least(shop, placed)?));
    }
    if placed.len() <= build::MOST_GROWN {
        made.push(("grow", build::grow(shop, placed)?));
    }
    for (_, bins) in &mut made {
        *bins = settled(shop, std::mem::take(bins))?;
    }
    Ok(made)
}

/// Prices every bin; one that does not fit gives its last atoms back, and these fill bins anew.
fn settled<P: Price>(shop: &mut Shop<'_, P>, mut bins: Vec<Bin>) -> Result<Vec<Bin>> {
    let mut made = Vec::new();
    let mut cover = Cover::new(shop.forest);
    while !bins.is_empty() {
        let mut back = Vec::new();
        for bin in bins.into_iter().filter(|bin| !bin.atoms.is_empty()) {
            let count = bin.atoms.len();
            if count == 1 || shop.left(&bin.atoms)?.is_some() {
                made.push(bin);
                continue;
            }
            let mut length = shop.reach(&bin.atoms, &mut cover)?.min(count - 1);
            while length > 1 && shop.left(&bin.atoms[..length])?.is_none() {
                length /= 2;
            }
            back.extend_from_slice(&bin.atoms[length..]);
            made.push(shop.bin_of(&bin.atoms[..length]));
        }
        bins = build::runs(shop, &back)?;
    }
    Ok(made)
}
