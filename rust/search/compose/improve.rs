//! Moves between bins that lower the sum over waves of the slowest bin.

use std::cmp::Reverse;

use super::bins::{Bin, Price, Shop};
use crate::cancel;
use crate::error::Result;

/// Moves looked at.
const MOST_LOOKS: usize = 3_000;
/// Comparisons spent on sums of waves, for pools of very many bins.
const MOST_COMPARED: usize = 8_000_000;
/// Bins that a move tries: those that are fastest with it.
const TARGETS: usize = 6;
/// Sets of atoms tried out of one bin.
const MOST_SETS: usize = 96;

/// The sum over waves of the slowest bin: bins by decreasing time, `dp` a wave.
pub(super) fn total(times: &[i64], dp: usize) -> i64 {
    if times.len() <= dp {
        return times.iter().copied().max().unwrap_or(0);
    }
    let mut falling = times.to_vec();
    falling.sort_unstable_by_key(|&time| Reverse(time));
    falling.iter().step_by(dp).sum()
}

/// Atoms go from bin `from` to bin `to`, and one may come back.
struct Move {
    from: usize,
    to: usize,
    there: Vec<u32>,
    back: Option<u32>,
}

/// Makes the first move that gains a five-hundredth, else the best, until none gains.
pub(super) fn improve<P: Price>(
    shop: &mut Shop<'_, P>,
    bins: &mut [Bin],
    dp: usize,
    bound: i64,
) -> Result<()> {
    let mut looks = 0;
    let most = MOST_LOOKS.min(MOST_COMPARED / bins.len().max(1));
    loop {
        cancel::check()?;
        let times: Vec<i64> = bins.iter().map(|bin| bin.time).collect();
        let now = total(&times, dp);
        if now <= bound || looks >= most {
            return Ok(());
        }
        let mut order: Vec<usize> = (0..bins.len()).collect();
        order.sort_by_key(|&at| (Reverse(times[at]), at));
        // The heads of waves, those that stand out most first.
        let mut heads: Vec<(i64, usize)> = (0..order.len())
            .step_by(dp)
            .map(|at| {
                let next = order.get(at + 1).map_or(0, |&next| times[next]);
                (times[order[at]] - next, order[at])
            })
            .collect();
        heads.sort_by_key(|&(gap, at)| (Reverse(gap), at));
        let mut best: (i64, Option<Move>) = (now, None);
        for (_, from) in heads {
            best_of(shop, bins, (from, dp), &times, &mut best, &mut looks)?;
            if best.0 < now - now / 500 || looks >= most {
                break;
            }
        }
        let Some(made) = best.1 else { return Ok(()) };
        let (from, to) = (made.from, made.to);
        for &atom in &made.there {
            shop.remove(&mut bins[from], atom);
        }
        if let Some(atom) = made.back {
            shop.remove(&mut bins[to], atom);
            shop.add(&mut bins[from], atom);
        }
        for &atom in &made.there {
            shop.add(&mut bins[to], atom);
        }
    }
}

/// The atoms below each segment of which a bin holds some and not all, then each atom.
fn sets<P: Price>(shop: &Shop<'_, P>, bin: &Bin) -> Vec<Vec<u32>> {
    let mut sets: Vec<Vec<u32>> = Vec::new();
    let mut seen: Vec<u32> = Vec::new();
    for &atom in &bin.atoms {
        for &s in shop.atoms.segments[atom as usize].iter().rev() {
            let count = bin.count(s) as usize;
            if count == bin.atoms.len() || sets.len() >= MOST_SETS / 2 {
                break;
            }
            if count > 1 && !seen.contains(&s) {
                seen.push(s);
                let below = |&&other: &&u32| {
                    shop.atoms.segments[other as usize]
                        .binary_search(&s)
                        .is_ok()
                };
                sets.push(bin.atoms.iter().filter(below).copied().collect());
            }
        }
    }
    sets.extend(bin.atoms.iter().map(|&atom| vec![atom]));
    sets.truncate(MOST_SETS);
    sets
}

fn best_of<P: Price>(
    shop: &mut Shop<'_, P>,
    bins: &[Bin],
    (from, dp): (usize, usize),
    times: &[i64],
    best: &mut (i64, Option<Move>),
    looks: &mut usize,
) -> Result<()> {
    let source = &bins[from];
    if source.atoms.len() < 2 {
        return Ok(());
    }
    let mut after = times.to_vec();
    // The sum of waves where two bins take other times; no less where neither is less.
    let mut sum_with = |one: i64, to: usize, two: i64| {
        let (before, now) = ((times[from], times[to]), (one, two));
        if now.0.max(now.1) >= before.0.max(before.1) && now.0.min(now.1) >= before.0.min(before.1)
        {
            return i64::MAX;
        }
        (after[from], after[to]) = now;
        let sum = total(&after, dp);
        after[to] = before.1;
        sum
    };
    for there in sets(shop, source) {
        let loss = shop.loss(source, &there);
        let mut targets: Vec<(i64, usize)> = Vec::new();
        for (at, bin) in bins.iter().enumerate().filter(|&(at, _)| at != from) {
            let rough = there
                .iter()
                .map(|&atom| shop.gain(bin, atom).1)
                .max()
                .unwrap_or(0);
            targets.push((times[at] + rough, at));
        }
        targets.sort_unstable();
        for &(_, to) in targets.iter().take(TARGETS) {
            let target = &bins[to];
            let gain = shop.gain_of(target, &there);
            *looks += 1;
            let sum = sum_with(source.time - loss.1, to, target.time + gain.1);
            if sum < best.0 {
                let with = [&target.atoms[..], &there].concat();
                if shop.fits(&with, target.tokens + gain.0)? {
                    let made = Move {
                        from,
                        to,
                        there: there.clone(),
                        back: None,
                    };
                    *best = (sum, Some(made));
                }
            }
            if there.len() > 1 || target.atoms.len() > 64 {
                continue;
            }
            let out = there[0];
            for &back in &target.atoms {
                if shop.atoms.time[back as usize] >= shop.atoms.time[out as usize] {
                    continue;
                }
                *looks += 1;
                let (returned, lost) = shop.swapped(source, target, out, back);
                let (one, two) = (
                    source.time - loss.1 + returned.1,
                    target.time + gain.1 - lost.1,
                );
                let sum = sum_with(one, to, two);
                if sum >= best.0 {
                    continue;
                }
                let instead = |of: &[u32], gone: u32, new: u32| {
                    let others = of.iter().copied().filter(|&atom| atom != gone);
                    others.chain([new]).collect::<Vec<u32>>()
                };
                let one = instead(&source.atoms, out, back);
                let two = instead(&target.atoms, back, out);
                if shop.fits(&one, source.tokens - loss.0 + returned.0)?
                    && shop.fits(&two, target.tokens + gain.0 - lost.0)?
                {
                    let made = Move {
                        from,
                        to,
                        there: there.clone(),
                        back: Some(back),
                    };
                    *best = (sum, Some(made));
                }
            }
        }
    }
    Ok(())
}
