//! The bounded refinement of the published planner, proposal for proposal.
//!
//! A proposal changes one subtree or a few decisions; its measures are those of the state it
//! comes from, less what the subtree added, plus what it adds now.

use std::cmp::Ordering;

use rustc_hash::FxHashSet;

use super::bits::{self, Arena, Keys, Set};
use super::family::Member;
use super::scoring::Weights;
use super::view::View;
use super::{Forest, Measures, Score, Stop};
use crate::error::Result;
use crate::interrupt::Ticker;

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

/// What a refinement spent and found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) incumbent: Point,
    pub(super) work: usize,
    pub(super) evaluated: usize,
    pub(super) stop: Stop,
}

/// One refinement of one tree.
pub(super) struct Search<'a> {
    forest: &'a Forest,
    weights: &'a Weights,
    keys: &'a Keys,
    arena: &'a mut Arena,
    seen: FxHashSet<u128>,
    budget: usize,
    /// Stops as soon as this layout, known to be the best of all, has been met.
    target: Option<u128>,
    found: Found,
}

/// The loop must end: the budget is spent, or the target was met.
struct Ended;

impl<'a> Search<'a> {
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
            found: Found {
                incumbent,
                work: 0,
                evaluated: 0,
                stop: Stop::Complete,
            },
        };
        (search, points)
    }

    /// Runs the tiers, then the flips around the incumbent.
    pub(super) fn run(mut self, points: Vec<Point>, ticker: &mut Ticker) -> Result<Found> {
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
        let mut beam: Vec<(Point, View)> = Vec::new();
        self.advance(&mut beam, points);
        for &decision in &order {
            ticker.work(200 * beam.len() as u64)?;
            match self.tier(decision, &beam) {
                Ok(fresh) => self.advance(&mut beam, fresh),
                Err(Ended) => return Ok(self.found),
            }
        }
        for flips in 1..=FLIPS.min(order.len()) {
            if self.flip_all(&order, flips, ticker)?.is_err() {
                break;
            }
        }
        Ok(self.found)
    }

    /// Proposals for one decision from every state of the beam; the layouts measured first here.
    fn tier(
        &mut self,
        decision: usize,
        beam: &[(Point, View)],
    ) -> std::result::Result<Vec<Point>, Ended> {
        let mut fresh = Vec::new();
        let to = self.forest.last[decision] as usize;
        let all = self.keys.range(decision, to);
        for (parent, view) in beam {
            let words = self.arena.words(parent.set);
            let here = self.keys.hash_range(words, decision, to);
            let flipped = !bits::has(words, decision);
            let proposals = [
                (self.keys.key(decision), decision + 1, flipped),
                (here ^ all, to, true),
                (here, to, false),
            ];
            for (change, end, value) in proposals {
                let hash = parent.set.hash ^ change;
                if !self.spend(hash)? {
                    continue;
                }
                let fill = |words: &mut [u64]| bits::fill(words, decision, end, value);
                let set = self.arena.push_changed(parent.set, hash, fill);
                let measures = view.with_subtree(self.forest, decision, self.arena.words(set));
                let point = self.point(set, measures);
                fresh.push(point);
                self.meet(point);
                if self.is_met() {
                    return Err(Ended);
                }
            }
        }
        Ok(fresh)
    }

    /// All flips of `count` decisions around the incumbent as it stands.
    fn flip_all(
        &mut self,
        order: &[usize],
        count: usize,
        ticker: &mut Ticker,
    ) -> Result<std::result::Result<(), Ended>> {
        let base = self.found.incumbent;
        let mut view = View::default();
        view.fill(self.forest, self.arena.words(base.set));
        let mut picks: Vec<usize> = (0..count).collect();
        let mut flips = vec![0; count];
        loop {
            ticker.work(100)?;
            for (flip, &pick) in flips.iter_mut().zip(&picks) {
                *flip = order[pick];
            }
            let hash = flips
                .iter()
                .fold(base.set.hash, |h, &i| h ^ self.keys.key(i));
            match self.spend(hash) {
                Err(ended) => return Ok(Err(ended)),
                Ok(false) => {}
                Ok(true) => {
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
                        return Ok(Err(Ended));
                    }
                }
            }
            if !next_combination(&mut picks, order.len()) {
                return Ok(Ok(()));
            }
        }
    }

    /// Spends one proposal; true if the layout is new.
    fn spend(&mut self, hash: u128) -> std::result::Result<bool, Ended> {
        if self.found.work >= self.budget {
            self.found.stop = Stop::BudgetExhausted;
            return Err(Ended);
        }
        self.found.work += 1;
        let new = self.seen.insert(hash);
        self.found.evaluated += usize::from(new);
        Ok(new)
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
    fn advance(&self, beam: &mut Vec<(Point, View)>, fresh: Vec<Point>) {
        let old = beam.len();
        let mut all: Vec<Point> = beam.iter().map(|(point, _)| *point).collect();
        all.extend(fresh);
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
        let mut views: Vec<Option<View>> = beam.drain(..).map(|(_, view)| Some(view)).collect();
        let mut spare: Vec<View> = Vec::new();
        for (at, view) in views.iter_mut().enumerate().take(old) {
            if !front.contains(&at) {
                spare.extend(view.take());
            }
        }
        for at in front {
            let kept = views.get_mut(at).and_then(Option::take);
            let view = kept.unwrap_or_else(|| {
                let mut view = spare.pop().unwrap_or_default();
                view.fill(self.forest, self.arena.words(all[at].set));
                view
            });
            beam.push((all[at], view));
        }
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
