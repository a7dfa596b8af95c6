//! How the groups of a wave are dealt to data-parallel ranks: one by one in turn, or in consecutive
//! blocks, which keep neighbours that share prefixes on one rank.

use super::forest::{Cover, Forest};

/// Limits tried before the best blocks so far are taken.
const MOST_LIMITS: usize = 24;

/// The first position of each rank's block of `groups`, and the end: the blocks whose slowest takes
/// least time, or none where the groups dealt in turn take no longer. `groups` are those of a wave
/// in order, with their requests; there are as many as ranks at least.
pub(super) fn blocks<G: AsRef<[u32]>>(
    forest: &Forest,
    groups: &[G],
    ranks: usize,
) -> Option<Vec<usize>> {
    let mut cover = Cover::new(forest);
    let mut time = |groups: &mut dyn Iterator<Item = &G>| {
        cover.clear();
        groups
            .flat_map(AsRef::as_ref)
            .for_each(|&request| cover.add(request));
        cover.time
    };
    let in_turn = (0..ranks).map(|rank| time(&mut groups.iter().skip(rank).step_by(ranks)));
    let high = in_turn.max().unwrap_or(0);
    least_slow(&mut cover, groups, ranks, (high, i64::MAX))
}

/// The same without comparison, of blocks of at most `most` packed tokens; none if there are none.
pub(super) fn cut_within<G: AsRef<[u32]>>(
    forest: &Forest,
    groups: &[G],
    ranks: usize,
    most: i64,
) -> Option<Vec<usize>> {
    least_slow(&mut Cover::new(forest), groups, ranks, (i64::MAX, most))
}

/// Bisection on the time of the slowest block, from above.
fn least_slow<G: AsRef<[u32]>>(
    cover: &mut Cover<'_>,
    groups: &[G],
    ranks: usize,
    (high, most): (i64, i64),
) -> Option<Vec<usize>> {
    cover.clear();
    for group in groups {
        add(cover, group);
    }
    let mut low = cover.time / ranks as i64 - 1;
    let mut best = cut(cover, groups, ranks, (high, most))?;
    for _ in 0..MOST_LIMITS {
        let high = best.1;
        if high - low <= high >> 10 {
            break;
        }
        let middle = low + (high - low) / 2;
        match cut(cover, groups, ranks, (middle, most)) {
            Some(made) => best = made,
            None => low = middle,
        }
    }
    Some(best.0)
}

/// As many blocks as ranks, each as long as time and packed tokens allow but for one group a rank,
/// and the time of the slowest.
fn cut<G: AsRef<[u32]>>(
    cover: &mut Cover<'_>,
    groups: &[G],
    ranks: usize,
    (limit, most): (i64, i64),
) -> Option<(Vec<usize>, i64)> {
    let (mut starts, mut slowest) = (vec![0], 0);
    cover.clear();
    for (i, group) in groups.iter().enumerate() {
        let before = cover.time;
        add(cover, group);
        let over = cover.time > limit || cover.tokens > most;
        let must_open = groups.len() - i <= ranks - starts.len();
        if i > *starts.last()? && (over || must_open) {
            if starts.len() == ranks {
                return None;
            }
            slowest = slowest.max(before);
            starts.push(i);
            cover.clear();
            add(cover, group);
        }
        if cover.time > limit || cover.tokens > most {
            return None;
        }
    }
    starts.push(groups.len());
    Some((starts, slowest.max(cover.time)))
}

fn add<G: AsRef<[u32]>>(cover: &mut Cover<'_>, group: &G) {
    for &request in group.as_ref() {
        cover.add(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::NONE;

    /// Groups of one request each, of chains of segments of given times below one root of 100.
    fn forest(times: &[i64], shared: &[bool]) -> Forest {
        let mut made = Forest {
            parent: vec![NONE],
            tokens: vec![100],
            time: vec![100],
            end: vec![100],
            terminal: Vec::new(),
        };
        for (&time, &shared) in times.iter().zip(shared) {
            made.terminal.push(made.len() as u32);
            made.parent.push(if shared { 0 } else { NONE });
            made.tokens.push(time);
            made.time.push(time);
            made.end.push(time);
        }
        made
    }

    fn slowest(forest: &Forest, parts: &[Vec<u32>]) -> i64 {
        let time = |part: &Vec<u32>| {
            let mut cover = Cover::new(forest);
            add(&mut cover, part);
            cover.time
        };
        parts.iter().map(time).max().unwrap()
    }

    #[test]
    fn blocks_are_the_least_slow_within_a_thousandth() {
        let mut draw = 1_u64;
        let mut below = |n: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draw >> 33) % n
        };
        let mut blocked = 0;
        for _ in 0..400 {
            let count = 2 + below(8) as usize;
            let ranks = 1 + below(count.min(4) as u64) as usize;
            let times: Vec<i64> = (0..count).map(|_| 1 + below(300) as i64).collect();
            let shared: Vec<bool> = (0..count).map(|_| below(2) == 0).collect();
            let forest = forest(&times, &shared);
            let groups: Vec<[u32; 1]> = (0..count as u32).map(|i| [i]).collect();
            let in_turn: Vec<Vec<u32>> = (0..ranks)
                .map(|rank| (rank as u32..count as u32).step_by(ranks).collect())
                .collect();
            let mut best = slowest(&forest, &in_turn);
            for cuts in 0..1_u32 << (count - 1) {
                if cuts.count_ones() as usize == ranks - 1 {
                    let mut parts = vec![vec![0]];
                    for i in 1..count as u32 {
                        if cuts >> (i - 1) & 1 == 1 {
                            parts.push(Vec::new());
                        }
                        parts.last_mut().unwrap().push(i);
                    }
                    best = best.min(slowest(&forest, &parts));
                }
            }
            let mut made = slowest(&forest, &in_turn);
            if let Some(starts) = blocks(&forest, &groups, ranks) {
                assert_eq!(starts.len(), ranks + 1);
                let parts: Vec<Vec<u32>> = starts
                    .windows(2)
                    .map(|pair| (pair[0] as u32..pair[1] as u32).collect())
                    .collect();
                assert!(parts.iter().all(|part| !part.is_empty()));
                made = slowest(&forest, &parts);
                blocked += 1;
            }
            assert!(made <= best + best / 1000 + 1, "{made} {best}");
        }
        assert!(blocked > 100);
    }
}
