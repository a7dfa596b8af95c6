//! The bounded refinement of the reference planner, proposal for proposal.
//!
//! A proposal changes one subtree or a few decisions; its measures are those of the state it
//! comes from, less what the subtree added, plus what it adds now.

use std::cmp::Ordering;

use rustc_hash::FxHashSet;

use super::bits::{self, Arena, Keys, Set};
use super::family::Member;
use super::view::{Levels, View, subtree};
use crate::cancel;
use crate::error::Result;
use crate::layout::scoring::Weights;
use crate::layout::{Forest, Measures, Score, Stop};

/// States that a tier starts from, at most.
const WIDTH: usize = 16;
/// Decisions flipped together around the incumbent, at most.
const FLIPS: usize = 4;

/// A layout that was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) set: Set,
    pub(super) measures: Measures,
    pub(super) score: Score,
}

/// A state of the beam: a layout and its segments by depth.
struct State {
    point: Point,
    levels: Levels,
}

/// The result and the counters of a refinement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refined {
    pub(super) incumbent: Point,
    pub(super) work: usize,
    pub(super) evaluated: usize,
    pub(super) stop: Stop,
}

/// One refinement of one tree.
pub(super) struct Refinement<'a> {
    forest: &'a Forest,
    weights: &'a Weights,
    keys: &'a Keys,
    arena: &'a mut Arena,
    seen: FxHashSet<u128>,
    budget: usize,
    /// Stops as soon as this layout, known to be the best of all, has been met.
    target: Option<u128>,
    found: Refined,
}

impl<'a> Refinement<'a> {
    /// Prepares a refinement from the mandatory family.
    pub(super) fn new(
        forest: &'a Forest,
        weights: &'a Weights,
        keys: &'a Keys,
        arena: &'a mut Arena,
        members: &[Member],
        budget: usize,
        target: Option<u128>,
    ) -> (Self, Vec<Point>) {
        let points: Vec<Point> = members
            .iter()
            .map(|member| Point {
                set: member.set,
                measures: member.measures,
                score: weights.score(&member.measures),
            })
            .collect();
        let mut incumbent = points[0];
        for &point in &points[1..] {
            if by_rank(arena, &point, &incumbent).is_lt() {
                incumbent = point;
            }
        }
        let search = Self {
            forest,
            weights,
            keys,
            arena,
            seen: members.iter().map(|member| member.set.hash).collect(),
            budget,
            target,
            found: Refined {
                incumbent,
                work: 0,
                evaluated: 0,
                stop: Stop::Complete,
            },
        };
        (search, points)
    }

    /// Runs the tiers, then the flips around the incumbent.
    pub(super) fn run(mut self, points: Vec<Point>) -> Result<Refined> {
        if self.forest.is_empty() {
            self.found.stop = Stop::NoDecisions;
            return Ok(self.found);
        }
        if self.target == Some(self.found.incumbent.set.hash) {
            return Ok(self.found);
        }
        // Deepest first, ties by index.
        let mut order: Vec<usize> = (0..self.forest.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.forest.depth[i]));
        let fresh: Vec<Fresh> = points.into_iter().map(|point| (point, None)).collect();
        let mut beam = self.advance(&[], &fresh);
        for &decision in &order {
            cancel::check()?;
            let Some(fresh) = self.tier(decision, &mut beam) else {
                return Ok(self.found);
            };
            beam = self.advance(&beam, &fresh);
        }
        for flips in 1..=FLIPS.min(order.len()) {
            if !self.flip_all(&order, flips)? {
                break;
            }
        }
        Ok(self.found)
    }

    /// Proposals for one decision from every state of the beam; the layouts measured first here,
    /// with the state and the decision they come from. `None` ends the search: the budget is
    /// spent, or the target was met.
    fn tier(&mut self, decision: usize, beam: &mut [State]) -> Option<Vec<Fresh>> {
        let forest = self.forest;
        let mut fresh = Vec::new();
        let to = forest.last[decision] as usize;
        let all = self.keys.range(decision, to);
        for (at, State { point, levels }) in beam.iter_mut().enumerate() {
            let words = self.arena.words(point.set);
            let here = self.keys.hash_range(words, decision, to);
            let flipped = !bits::has(words, decision);
            let proposals = [
                (self.keys.key(decision), decision + 1, flipped),
                (here ^ all, to, true),
                (here, to, false),
            ];
            let mut rest = None;
            for (change, end, value) in proposals {
                let hash = point.set.hash ^ change;
                if !self.spend(hash)? {
                    continue;
                }
                // The layout without the subtree, measured when it is first needed.
                let rest = rest.get_or_insert_with(|| {
                    let words = self.arena.words(point.set);
                    let mut rest = minus(&point.measures, &subtree(forest, words, decision));
                    levels.apply(forest, words, decision, -1);
                    rest.depth = levels.deepest();
                    levels.apply(forest, words, decision, 1);
                    rest
                });
                let fill = |words: &mut [u64]| bits::fill(words, decision, end, value);
                let set = self.arena.push_changed(point.set, hash, fill);
                let changed = subtree(forest, self.arena.words(set), decision);
                let made = self.point(set, plus(rest, &changed));
                fresh.push((made, Some((at, decision))));
                self.meet(made);
                if self.is_met() {
                    return None;
                }
            }
        }
        Some(fresh)
    }

    /// All flips of `count` decisions around the incumbent as it stands; whether the search
    /// goes on.
    fn flip_all(&mut self, order: &[usize], count: usize) -> Result<bool> {
        let base = self.found.incumbent;
        let mut view = View::default();
        view.fill(self.forest, self.arena.words(base.set));
        let mut picks: Vec<usize> = (0..count).collect();
        let mut flips = vec![0; count];
        loop {
            cancel::check()?;
            for (flip, &pick) in flips.iter_mut().zip(&picks) {
                *flip = order[pick];
            }
            let hash = flips
                .iter()
                .fold(base.set.hash, |h, &i| h ^ self.keys.key(i));
            let Some(new) = self.spend(hash) else {
                return Ok(false);
            };
            if new {
                let set = self.arena.push_changed(base.set, hash, |words| {
                    for &i in &flips {
                        words[i / 64] ^= 1 << (i % 64);
                    }
                });
                flips.sort_unstable();
                let measures = view.with_flips(self.forest, &flips, self.arena.words(set));
                let point = self.point(set, measures);
                self.meet(point);
                if self.is_met() {
                    return Ok(false);
                }
            }
            if !next_combination(&mut picks, order.len()) {
                return Ok(true);
            }
        }
    }

    /// Spends one proposal, if the budget has one left; true if the layout is new.
    fn spend(&mut self, hash: u128) -> Option<bool> {
        if self.found.work >= self.budget {
            self.found.stop = Stop::BudgetExhausted;
            return None;
        }
        self.found.work += 1;
        let new = self.seen.insert(hash);
        self.found.evaluated += usize::from(new);
        Some(new)
    }

    fn point(&self, set: Set, measures: Measures) -> Point {
        Point {
            set,
            measures,
            score: self.weights.score(&measures),
        }
    }

    fn meet(&mut self, point: Point) {
        if by_rank(self.arena, &point, &self.found.incumbent).is_lt() {
            self.found.incumbent = point;
        }
    }

    fn is_met(&self) -> bool {
        self.target == Some(self.found.incumbent.set.hash)
    }

    /// The next beam: the front of the old one and the fresh points, cut to the width. As the
    /// points come in the order of their keys, none can dominate one before it.
    fn advance(&self, beam: &[State], fresh: &[Fresh]) -> Vec<State> {
        let mut all: Vec<Point> = beam.iter().map(|state| state.point).collect();
        all.extend(fresh.iter().map(|(point, _)| *point));
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_unstable_by(|&a, &b| by_key(self.arena, &all[a], &all[b]));
        let mut front: Vec<usize> = Vec::with_capacity(WIDTH);
        for at in order {
            if front.iter().any(|&kept| dominates(&all[kept], &all[at])) {
                continue;
            }
            front.push(at);
            if front.len() == WIDTH {
                break;
            }
        }
        let made = |at: usize| State {
            point: all[at],
            levels: match at.checked_sub(beam.len()) {
                None => beam[at].levels.clone(),
                Some(at) => self.levels(&fresh[at], beam),
            },
        };
        front.into_iter().map(made).collect()
    }

    /// The segments of a fresh layout by depth.
    fn levels(&self, (point, origin): &Fresh, beam: &[State]) -> Levels {
        let words = self.arena.words(point.set);
        let Some((parent, decision)) = *origin else {
            let mut levels = Levels::default();
            levels.fill(self.forest, words);
            return levels;
        };
        let parent = &beam[parent];
        let mut levels = parent.levels.clone();
        levels.apply(
            self.forest,
            self.arena.words(parent.point.set),
            decision,
            -1,
        );
        levels.apply(self.forest, words, decision, 1);
        levels
    }
}

/// A layout measured in this tier, with the state and the decision it comes from.
type Fresh = (Point, Option<(usize, usize)>);

/// Measures without those of a part; the depth is left open.
fn minus(m: &Measures, part: &Measures) -> Measures {
    Measures {
        tokens: m.tokens - part.tokens,
        segments: m.segments - part.segments,
        chosen: m.chosen - part.chosen,
        depth: 0,
        tiny: m.tiny - part.tiny,
    }
}

/// Measures of two parts together.
fn plus(m: &Measures, part: &Measures) -> Measures {
    Measures {
        tokens: m.tokens + part.tokens,
        segments: m.segments + part.segments,
        chosen: m.chosen + part.chosen,
        depth: m.depth.max(part.depth),
        tiny: m.tiny + part.tiny,
    }
}

/// Order of results: the score, then the sorted decisions.
fn by_rank(arena: &Arena, a: &Point, b: &Point) -> Ordering {
    let by_score = a.score.cmp(&b.score);
    by_score.then_with(|| arena.compare(a.set, b.set))
}

/// Order of the beam: the score holds tokens, segments and depth already.
fn by_key(arena: &Arena, a: &Point, b: &Point) -> Ordering {
    let by_score = a.score.cmp(&b.score);
    by_score
        .then_with(|| a.measures.chosen.cmp(&b.measures.chosen))
        .then_with(|| arena.compare(a.set, b.set))
}

fn dominates(a: &Point, b: &Point) -> bool {
    let (s, t) = (&a.score, &b.score);
    let (m, n) = (&a.measures, &b.measures);
    let at_most = s.work <= t.work
        && s.tokens <= t.tokens
        && s.segments <= t.segments
        && s.depth <= t.depth
        && m.chosen <= n.chosen;
    at_most && (s != t || m.chosen != n.chosen)
}

/// The next combination of `picks.len()` of the first `of` numbers, in lexicographic order.
fn next_combination(picks: &mut [usize], of: usize) -> bool {
    let count = picks.len();
    let Some(at) = (0..count).rev().find(|&i| picks[i] < i + of - count) else {
        return false;
    };
    picks[at] += 1;
    for i in at + 1..count {
        picks[i] = picks[i - 1] + 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_come_in_order() {
        let mut picks = vec![0, 1];
        let mut all = vec![picks.clone()];
        while next_combination(&mut picks, 4) {
            all.push(picks.clone());
        }
        let expected = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        assert_eq!(all, expected.map(Vec::from));
    }
}
