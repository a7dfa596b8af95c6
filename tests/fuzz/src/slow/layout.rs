//! Layouts by their definitions: the pack of a set of chosen segments, its measures and
//! score, all sets, the mandatory family, and the reference refinement.

use std::collections::{BTreeSet, HashMap};

use waveplan::layout::{Scoring, Version};
use waveplan::segments::NONE;
use waveplan::tree::Tree;

const THRESHOLDS: [i64; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
const WIDTH: usize = 16;

/// Chosen tree segments.
pub type Chosen = BTreeSet<usize>;

/// Work, tokens, segments, depth.
pub type Score = (i128, i64, i64, i64);

/// One packed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its sequences.
    pub sequences: Vec<usize>,
    /// First position in its sequences.
    pub start: i64,
    /// One past the last.
    pub end: i64,
    /// Index of the parent.
    pub parent: Option<usize>,
}

fn parent_of(tree: &Tree, s: usize) -> Option<usize> {
    (tree.parent[s] != NONE).then_some(tree.parent[s] as usize)
}

/// Ancestors, the nearest first.
fn above(tree: &Tree, s: usize) -> Vec<usize> {
    std::iter::successors(parent_of(tree, s), |&at| parent_of(tree, at)).collect()
}

/// Segments with two sequences or more.
#[must_use]
pub fn decisions(tree: &Tree) -> Vec<usize> {
    (0..tree.len()).filter(|&s| tree.count[s] >= 2).collect()
}

/// The pack that stores the chosen segments once.
#[must_use]
pub fn segments(tree: &Tree, chosen: &Chosen) -> Vec<Segment> {
    let mut out = Vec::new();
    let mut packed: HashMap<usize, usize> = HashMap::new();
    for s in 0..tree.len() {
        let mut near = above(tree, s).into_iter().find(|at| chosen.contains(at));
        if chosen.contains(&s) {
            let below = |&sequence: &usize| {
                let end = tree.terminal[sequence] as usize;
                end == s || above(tree, end).contains(&s)
            };
            packed.insert(s, out.len());
            out.push(Segment {
                sequences: (0..tree.sequences()).filter(below).collect(),
                start: near.map_or(0, |at| tree.end[at]),
                end: tree.end[s],
                parent: near.map(|at| packed[&at]),
            });
            near = Some(s);
        }
        let start = near.map_or(0, |at| tree.end[at]);
        if start < tree.end[s] {
            for sequence in
                (0..tree.sequences()).filter(|&sequence| tree.terminal[sequence] as usize == s)
            {
                out.push(Segment {
                    sequences: vec![sequence],
                    start,
                    end: tree.end[s],
                    parent: near.map(|at| packed[&at]),
                });
            }
        }
    }
    out
}

/// Work and its tie-breaks.
#[must_use]
pub fn score(tree: &Tree, chosen: &Chosen, scoring: &Scoring) -> Score {
    let segments = segments(tree, chosen);
    let mut depths: Vec<i64> = Vec::new();
    for segment in &segments {
        depths.push(1 + segment.parent.map_or(0, |parent| depths[parent]));
    }
    let lengths: Vec<i64> = segments.iter().map(|s| s.end - s.start).collect();
    let depth = depths.into_iter().max().unwrap_or(0);
    let tokens: i64 = lengths.iter().sum();
    let (t, count, levels) = (
        i128::from(tokens),
        segments.len() as i128,
        i128::from(depth - 1),
    );
    let (tp, cp) = (i128::from(scoring.tp), i128::from(scoring.cp));
    let (layers, gdn) = (i128::from(scoring.layers), i128::from(scoring.gdn_layers));
    let work = match scoring.version {
        Version::One => {
            let launch = 96 + 32 * cp;
            let mut total = layers * t * 1024 + (t + cp - 1) / cp * launch;
            total += count * launch * 1024 + chosen.len() as i128 * (64 + 32 * cp) * 1024;
            if scoring.has_gdn() {
                let deep = levels.min(1) * 768 + (levels - 1).max(0) * 256;
                total += deep * layers * 1024;
            }
            total
        }
        Version::Two => {
            let wanted = 128 * scoring.cp;
            let listed = THRESHOLDS.into_iter().find(|&at| at >= wanted);
            let short = listed.unwrap_or(8192);
            let below = lengths.iter().filter(|&&length| length < short).count() as i128;
            let terms = [
                t * layers * 1024 / (tp * cp),
                t * layers * (cp - 1) * 1024 / cp,
                t * layers * (tp - 1) * 1024 / tp,
                t * gdn * 1024 / (tp * cp),
                t * (layers - gdn).max(0) * (cp - 1) * 1024 / cp,
                below * layers * 1024,
                levels * layers * (cp - 1) * 1024,
                levels * layers * (tp - 1) * 1024,
                levels * gdn * 1024,
                levels * gdn * (tp - 1) * 1024,
            ];
            (terms.iter().zip(scoring.coefficients))
                .map(|(term, c)| term * i128::from(c))
                .sum()
        }
    };
    (work, tokens, count as i64, depth)
}

/// The best of all layouts with at most so many tokens.
#[must_use]
pub fn best(tree: &Tree, scoring: &Scoring, most_tokens: i64) -> Option<(Score, Vec<usize>)> {
    let decisions = decisions(tree);
    let layouts = (0..1_usize << decisions.len()).map(|set| {
        let picked = (0..decisions.len()).filter(|i| set >> i & 1 == 1);
        let chosen: Chosen = picked.map(|i| decisions[i]).collect();
        (score(tree, &chosen, scoring), chosen.into_iter().collect())
    });
    layouts
        .filter(|layout: &(Score, Vec<usize>)| layout.0.1 <= most_tokens)
        .min()
}

/// Decisions at most so deep.
#[must_use]
pub fn by_depth(tree: &Tree, depth: u32) -> Chosen {
    let all = decisions(tree).into_iter();
    all.filter(|&s| tree.depth[s] <= depth).collect()
}

/// Decisions whose span from their nearest chosen ancestor is at least so long.
#[must_use]
pub fn by_span(tree: &Tree, least: i64) -> Chosen {
    let mut chosen = Chosen::new();
    for s in decisions(tree) {
        let near = above(tree, s).into_iter().find(|at| chosen.contains(at));
        if tree.end[s] - near.map_or(0, |at| tree.end[at]) >= least {
            chosen.insert(s);
        }
    }
    chosen
}

/// The mandatory family, in order.
#[must_use]
pub fn family(tree: &Tree) -> Vec<Chosen> {
    let all = decisions(tree);
    let deepest = all.iter().map(|&s| tree.depth[s]).max().unwrap_or(0);
    let mut found: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut add = |chosen: Chosen| {
        found.insert(chosen.into_iter().collect());
    };
    (0..=deepest).for_each(|depth| add(by_depth(tree, depth)));
    let mut spans = BTreeSet::from([1]);
    for &s in &all {
        spans.insert(tree.end[s] + 1);
        for at in above(tree, s) {
            spans.insert(tree.end[s] - tree.end[at] + 1);
        }
    }
    for least in spans {
        add(by_span(tree, least));
    }
    add(all.into_iter().collect());
    (found.into_iter())
        .map(|list| list.into_iter().collect())
        .collect()
}

/// How a refinement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nothing to decide.
    NoDecisions,
    /// The budget ran out.
    Exhausted,
    /// All proposals were made.
    Complete,
}

/// What a refinement found and spent.
#[derive(Debug)]
pub struct Refined {
    /// The best layout seen.
    pub chosen: Chosen,
    /// Its score.
    pub score: Score,
    /// Proposals.
    pub work: usize,
    /// Proposals that were new.
    pub evaluated: usize,
    /// Why it ended.
    pub stop: Stop,
}

type Point = (Score, Chosen);

fn dominates(a: &Point, b: &Point) -> bool {
    let key = |p: &Point| {
        let (work, tokens, segments, depth) = p.0;
        [
            work,
            tokens.into(),
            segments.into(),
            p.1.len() as i128,
            depth.into(),
        ]
    };
    let (a, b) = (key(a), key(b));
    a != b && a.iter().zip(b).all(|(a, b)| *a <= b)
}

/// The Pareto front, built in order of its keys, cut to the width.
fn front(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by_key(|(score, chosen)| {
        (
            *score,
            chosen.len(),
            chosen.iter().copied().collect::<Vec<_>>(),
        )
    });
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        if !kept.iter().any(|other| dominates(other, &point)) {
            kept.push(point);
        }
    }
    kept.truncate(WIDTH);
    kept
}

fn toggled(base: &Chosen, flips: &[usize]) -> Chosen {
    base.symmetric_difference(&flips.iter().copied().collect())
        .copied()
        .collect()
}

/// All choices of `count` of the items, in order.
fn combinations(items: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for first in 0..items.len() {
        for rest in combinations(&items[first + 1..], count - 1) {
            let mut one = vec![items[first]];
            one.extend(rest);
            found.push(one);
        }
    }
    found
}

struct Search<'a> {
    tree: &'a Tree,
    scoring: &'a Scoring,
    budget: usize,
    seen: BTreeSet<Vec<usize>>,
    best: Point,
    work: usize,
    evaluated: usize,
}

impl Search<'_> {
    /// Spends a proposal: `Err` without budget, the point if it is new.
    fn propose(&mut self, chosen: Chosen) -> Result<Option<Point>, ()> {
        if self.work == self.budget {
            return Err(());
        }
        self.work += 1;
        if !self.seen.insert(chosen.iter().copied().collect()) {
            return Ok(None);
        }
        self.evaluated += 1;
        let point = (score(self.tree, &chosen, self.scoring), chosen);
        let rank = |p: &Point| (p.0, p.1.iter().copied().collect::<Vec<_>>());
        if rank(&point) < rank(&self.best) {
            self.best = point.clone();
        }
        Ok(Some(point))
    }

    fn run(&mut self, points: Vec<Point>) -> Result<(), ()> {
        let mut order = decisions(self.tree);
        order.sort_by_key(|&s| (std::cmp::Reverse(self.tree.depth[s]), s));
        let mut beam = front(points);
        for &decision in &order {
            let below: Chosen = (order.iter().copied())
                .filter(|&s| s == decision || above(self.tree, s).contains(&decision))
                .collect();
            let mut next = beam.clone();
            for (_, state) in &beam {
                for proposal in [
                    toggled(state, &[decision]),
                    state.union(&below).copied().collect(),
                    state.difference(&below).copied().collect(),
                ] {
                    next.extend(self.propose(proposal)?);
                }
            }
            beam = front(next);
        }
        for count in 1..=order.len().min(4) {
            let base = self.best.1.clone();
            for flips in combinations(&order, count) {
                self.propose(toggled(&base, &flips))?;
            }
        }
        Ok(())
    }
}

/// The reference refinement with so many proposals.
#[must_use]
pub fn refine(tree: &Tree, scoring: &Scoring, budget: usize) -> Refined {
    let points: Vec<Point> = (family(tree).into_iter())
        .map(|chosen| (score(tree, &chosen, scoring), chosen))
        .collect();
    let rank = |p: &&Point| (p.0, p.1.iter().copied().collect::<Vec<_>>());
    let mut search = Search {
        tree,
        scoring,
        budget,
        seen: points
            .iter()
            .map(|p| p.1.iter().copied().collect())
            .collect(),
        best: points.iter().min_by_key(rank).unwrap().clone(),
        work: 0,
        evaluated: 0,
    };
    let stop = if decisions(tree).is_empty() {
        Stop::NoDecisions
    } else if search.run(points).is_err() {
        Stop::Exhausted
    } else {
        Stop::Complete
    };
    Refined {
        score: search.best.0,
        chosen: search.best.1,
        work: search.work,
        evaluated: search.evaluated,
        stop,
    }
}
