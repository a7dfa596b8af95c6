//! Ways to fill bins. Each gives lists of atoms; what does not fit alone is left to the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::deal;
use super::super::forest::Cover;
use super::bins::{Bin, Price, Shop};
use crate::cancel;
use crate::error::Result;

/// Bins that are looked at for one atom: those opened last.
const MOST_OPEN: usize = 512;
/// Atoms up to which bins are grown.
pub(super) const MOST_GROWN: usize = 4_096;

/// Consecutive runs of an order, each as long as fits.
pub(super) fn runs<P: Price>(shop: &mut Shop<'_, P>, order: &[u32]) -> Result<Vec<Bin>> {
    let mut cover = Cover::new(shop.forest);
    let mut bins = Vec::new();
    let mut rest = order;
    while !rest.is_empty() {
        cancel::check()?;
        let length = shop.reach(rest, &mut cover)?;
        bins.push(shop.bin_of(&rest[..length]));
        rest = &rest[length..];
    }
    Ok(bins)
}

/// Every atom of an order into the first bin that admits it.
pub(super) fn first<P: Price>(shop: &mut Shop<'_, P>, order: &[u32]) -> Result<Vec<Bin>> {
    let mut bins: Vec<Bin> = Vec::new();
    'atoms: for (i, &atom) in order.iter().enumerate() {
        cancel::check_at(i)?;
        let from = bins.len().saturating_sub(MOST_OPEN);
        for bin in &mut bins[from..] {
            if shop.admit(bin, atom, 2)? {
                continue 'atoms;
            }
        }
        bins.push(shop.bin_of(&[atom]));
    }
    Ok(bins)
}

/// By decreasing tokens into the bin that gains least, the fullest among equals.
pub(super) fn least<P: Price>(shop: &mut Shop<'_, P>, placed: &[u32]) -> Result<Vec<Bin>> {
    let mut order = placed.to_vec();
    order.sort_by_key(|&atom| Reverse(shop.atoms.tokens[atom as usize]));
    let mut bins: Vec<Bin> = Vec::new();
    'atoms: for (i, atom) in order.into_iter().enumerate() {
        cancel::check_at(i)?;
        let from = bins.len().saturating_sub(MOST_OPEN);
        let mut by_gain: Vec<(i64, Reverse<i64>, usize)> = (from..bins.len())
            .map(|at| (shop.gain(&bins[at], atom).0, Reverse(bins[at].tokens), at))
            .collect();
        by_gain.sort_unstable();
        for (.., at) in by_gain {
            if shop.admit(&mut bins[at], atom, 2)? {
                continue 'atoms;
            }
        }
        bins.push(shop.bin_of(&[atom]));
    }
    Ok(bins)
}

/// One bin after another: the largest atom left, then always the one that saves most and fits.
pub(super) fn grow<P: Price>(shop: &mut Shop<'_, P>, placed: &[u32]) -> Result<Vec<Bin>> {
    let atoms = shop.atoms;
    let mut through: Vec<Vec<u32>> = vec![Vec::new(); shop.forest.len()];
    for (atom, segments) in atoms.segments.iter().enumerate() {
        for &s in segments {
            through[s as usize].push(atom as u32);
        }
    }
    let mut order = placed.to_vec();
    order.sort_by_key(|&atom| (Reverse(atoms.tokens[atom as usize]), atom));
    // Atoms that may still join: in no bin, and not tried in this one.
    let mut free = vec![false; atoms.len()];
    for &atom in &order {
        free[atom as usize] = true;
    }
    let mut bins = Vec::new();
    for seed in 0..order.len() {
        if !free[order[seed] as usize] {
            continue;
        }
        let mut bin = shop.bin();
        let (mut saved, mut refused) = (vec![0_i64; atoms.len()], Vec::new());
        // Those that save tokens, once for each number of them; then `order` gives the others.
        let mut saving: BinaryHeap<(i64, i64, Reverse<u32>)> = BinaryHeap::new();
        let (mut place, mut next) = (seed, Some(order[seed]));
        while let Some(atom) = next {
            cancel::check()?;
            free[atom as usize] = false;
            let mut fresh = atoms.segments[atom as usize].clone();
            fresh.retain(|&s| bin.count(s) == 0);
            let first = bin.atoms.is_empty();
            if first {
                shop.add(&mut bin, atom);
            }
            if first || shop.admit(&mut bin, atom, 8)? {
                let mut touched = Vec::new();
                for s in fresh {
                    for &other in &through[s as usize] {
                        saved[other as usize] += shop.forest.tokens[s as usize];
                        touched.push(other);
                    }
                }
                touched.sort_unstable();
                touched.dedup();
                for other in touched.into_iter().filter(|&other| free[other as usize]) {
                    let saves = saved[other as usize];
                    saving.push((saves, atoms.tokens[other as usize] - saves, Reverse(other)));
                }
            } else {
                refused.push(atom);
            }
            let room = bin.room() - bin.tokens;
            next = None;
            while let Some((saves, gain, Reverse(other))) = saving.pop() {
                if free[other as usize] && saves == saved[other as usize] && gain <= room {
                    next = Some(other);
                    break;
                }
            }
            while next.is_none() && place < order.len() {
                let other = order[place];
                let fits = saved[other as usize] == 0 && atoms.tokens[other as usize] <= room;
                next = Some(other).filter(|&other| fits && free[other as usize]);
                place += 1;
            }
        }
        for atom in refused {
            free[atom as usize] = true;
        }
        bins.push(bin);
    }
    Ok(bins)
}

/// Consecutive blocks of an order, at most `count`, each admitted by its tokens, the slowest as
/// fast as can be.
pub(super) fn cut<P: Price>(shop: &Shop<'_, P>, order: &[u32], count: usize) -> Option<Vec<Bin>> {
    let groups: Vec<&[u32]> = order
        .iter()
        .map(|&atom| &shop.atoms.requests[atom as usize][..])
        .collect();
    let starts = deal::cut_within(shop.forest, &groups, count.min(order.len()), shop.most)?;
    let bins = starts
        .windows(2)
        .map(|pair| shop.bin_of(&order[pair[0]..pair[1]]));
    Some(bins.collect())
}

/// By decreasing time into the bin with the least that admits; none if an atom finds no bin.
pub(super) fn load<P: Price>(
    shop: &mut Shop<'_, P>,
    placed: &[u32],
    count: usize,
) -> Result<Option<Vec<Bin>>> {
    let mut order = placed.to_vec();
    order.sort_by_key(|&atom| Reverse(shop.atoms.time[atom as usize]));
    let mut bins: Vec<Bin> = (0..count).map(|_| shop.bin()).collect();
    'atoms: for (i, atom) in order.into_iter().enumerate() {
        cancel::check_at(i)?;
        let mut by_time: Vec<(i64, usize)> = (0..count)
            .map(|at| (bins[at].time + shop.gain(&bins[at], atom).1, at))
            .collect();
        by_time.sort_unstable();
        for (_, at) in by_time {
            if bins[at].atoms.is_empty() {
                shop.add(&mut bins[at], atom);
                continue 'atoms;
            }
            if shop.admit(&mut bins[at], atom, 2)? {
                continue 'atoms;
            }
        }
        return Ok(None);
    }
    Ok(Some(bins))
}

/// Cuts the slowest bin, in the order of the forest, where the larger half is least, until there
/// are so many, or each holds one atom.
pub(super) fn split<P: Price>(shop: &Shop<'_, P>, bins: &mut Vec<Bin>, count: usize) {
    bins.retain(|bin| !bin.atoms.is_empty());
    let last = |atom: &u32| (shop.atoms.segments[*atom as usize].last().copied(), *atom);
    let mut cover = Cover::new(shop.forest);
    let add = |cover: &mut Cover<'_>, atom: u32| {
        for &request in &shop.atoms.requests[atom as usize] {
            cover.add(request);
        }
    };
    while bins.len() < count {
        let slowest = (0..bins.len())
            .filter(|&at| bins[at].atoms.len() > 1)
            .max_by_key(|&at| (bins[at].time, Reverse(at)));
        let Some(at) = slowest else { return };
        let mut atoms = std::mem::take(&mut bins[at].atoms);
        atoms.sort_by_key(last);
        let mut after = vec![0; atoms.len()];
        cover.clear();
        for i in (1..atoms.len()).rev() {
            add(&mut cover, atoms[i]);
            after[i] = cover.time;
        }
        let mut best = (i64::MAX, 1);
        cover.clear();
        for i in 1..atoms.len() {
            add(&mut cover, atoms[i - 1]);
            best = best.min((cover.time.max(after[i]), i));
        }
        bins[at] = shop.bin_of(&atoms[..best.1]);
        bins.push(shop.bin_of(&atoms[best.1..]));
    }
}
