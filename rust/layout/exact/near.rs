//! Layouts within reach of the least sum, compared by the exact score.
//!
//! Rounding can turn the order of near equal layouts, and a limit on tokens can rule out the
//! least sum. Rounding depends on the tokens modulo the common denominator alone. So for each
//! state that a layout within reach can pass through, the best sum for each residue is enough;
//! under a limit, the best for each residue and number of tokens.
//!
//! It is kept for the limit: on 640 waves of the bundled corpora at CP 8 and TP 2, 239 layouts are
//! others without it, with up to 7% more work, and the gaps reach 35%. Rounding alone would not
//! pay for it: at CP 3, and at CP 6 with TP 2, no layout changes and the gaps stay below 2e-8, but
//! none of 1,280 is proven; the part of it that a limit does not need is about 20 lines.
//! `benches/layouts.py --chosen FILE`, before and with `MOST_ENTRIES` 0, compares them.

use std::cmp::Ordering;
use std::ops::Range;

use super::Best;
use super::costs::{Cost, Costs, Unit};
use super::dense::Dense;
use crate::cancel;
use crate::error::Result;
use crate::layout::scoring::Weights;
use crate::layout::{Forest, Score};
use crate::segments::NONE;

/// Partial layouts that a comparison may make before it gives up.
const MOST_ENTRIES: usize = 1 << 20;

/// The layouts that count, and their order.
pub(super) struct Goal<'a> {
    /// The score that decides.
    pub(super) exact: &'a Weights,
    /// The weights the tables were solved for: a multiple of those of the score, and `price` a
    /// token.
    pub(super) weights: &'a Weights,
    pub(super) price: i128,
    /// Layouts with more tokens do not count.
    pub(super) most_tokens: Option<i64>,
    /// Sums of `weights` up to this much above the least one are within reach.
    pub(super) slack: i128,
}

/// The nearest chosen decision above some others, and the levels left for them.
type Below = (u32, u32);

/// A partial layout of the subtrees walked so far.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Sum in the unit of the tables.
    key: i128,
    /// Work without the price on tokens, tokens and segments, in the order in which they decide.
    real: (i128, i64, i64),
    /// Segments on its longest path, when levels are free.
    depth: u32,
    /// Its decisions.
    link: u32,
}

/// A list of decisions, as a tree of joins; link 0 is empty.
#[derive(Debug, Clone, Copy)]
enum Link {
    One(u32),
    Join(u32, u32),
}

/// A state on the way of a layout within reach.
struct Place {
    below: Below,
    slack: i128,
    entries: Vec<Entry>,
}

/// The walk over all states within reach.
struct Near<'a, T> {
    forest: &'a Forest,
    goal: &'a Goal<'a>,
    unit: Unit,
    costs: Costs<T>,
    /// Solved tables with values.
    dense: &'a Dense<T>,
    /// Levels are free.
    free: bool,
    links: Vec<Link>,
    made: usize,
    places: Vec<Vec<Place>>,
}

/// Replaces `best` by the exact optimum and marks it as proven, unless that takes too long.
pub(super) fn settle<T: Cost>(
    forest: &Forest,
    goal: &Goal<'_>,
    unit: Unit,
    dense: &Dense<T>,
    best: &mut Best,
) -> Result<()> {
    let Some(costs) = unit.costs(goal.weights) else {
        return Ok(());
    };
    let mut near = Near {
        forest,
        goal,
        unit,
        costs,
        dense,
        free: goal.weights.levels_are_free(),
        links: vec![Link::One(NONE)],
        made: 0,
        places: (0..forest.len()).map(|_| Vec::new()).collect(),
    };
    let mut winner: Option<(Score, Vec<u32>)> = None;
    for (levels, slack) in near.roots() {
        let Some(entries) = near.solve(levels, slack)? else {
            return Ok(());
        };
        for entry in entries {
            cancel::check()?;
            let list = near.list(entry.link);
            let mut chosen = vec![false; forest.len()];
            for &i in &list {
                chosen[i as usize] = true;
            }
            let score = goal.exact.score(&forest.measure(&chosen));
            let fits = goal.most_tokens.is_none_or(|most| score.tokens <= most);
            if fits && (winner.as_ref()).is_none_or(|best| (score, &list) < (best.0, &best.1)) {
                winner = Some((score, list));
            }
        }
    }
    if let Some((score, list)) = winner {
        best.chosen.fill(false);
        for i in list {
            best.chosen[i as usize] = true;
        }
        best.score = score;
        best.optimal = true;
    }
    Ok(())
}

impl<T: Cost> Near<'_, T> {
    /// Numbers of levels with a layout within reach, and the slack left with each.
    fn roots(&self) -> Vec<(u32, i128)> {
        let slack = self.unit.slack(self.goal.slack);
        if self.free {
            return vec![(1, slack)];
        }
        let key = |levels: u32| {
            let root: i128 = self.dense.root[levels as usize - 1].into();
            let price = self.goal.weights.levels(i64::from(levels));
            root + self.unit.key(price, 0, 0)
        };
        let all = 1..=self.dense.root.len() as u32;
        let least = all.clone().map(key).min().unwrap_or(0);
        all.map(|levels| (levels, slack - (key(levels) - least)))
            .filter(|&(_, slack)| slack >= 0)
            .collect()
    }

    /// The entries of the whole forest with at most `levels` levels; `None`: too many.
    fn solve(&mut self, levels: u32, slack: i128) -> Result<Option<Vec<Entry>>> {
        for places in &mut self.places {
            places.clear();
        }
        let n = self.forest.len();
        self.reach(0..n, (NONE, levels), slack);
        for i in 0..n {
            cancel::check_at(i)?;
            self.made += self.places[i].len();
            if self.made > MOST_ENTRIES {
                return Ok(None);
            }
            for at in 0..self.places[i].len() {
                for (_, below, left) in self.options(i, at).into_iter().flatten() {
                    self.reach(self.inside(i), below, left);
                }
            }
        }
        for i in (0..n).rev() {
            for at in 0..self.places[i].len() {
                cancel::check()?;
                let entries = self.entries(i, at);
                self.made += entries.len();
                self.places[i][at].entries = entries;
            }
            if self.made > MOST_ENTRIES {
                return Ok(None);
            }
        }
        let mut lone = self.entry(self.costs.lone(self.forest).into(), 0);
        lone.depth = u32::from(self.free && self.forest.lone > 0);
        Ok(Some(self.join(lone, 0..n, (NONE, levels), slack)))
    }

    /// The decisions below one.
    fn inside(&self, i: usize) -> Range<usize> {
        i + 1..self.forest.last[i] as usize
    }

    /// The topmost of a range of decisions.
    fn topmost(&self, range: Range<usize>) -> impl Iterator<Item = usize> + use<'_, T> {
        let within = move |&i: &usize| i < range.end;
        let first = Some(range.start).filter(within);
        std::iter::successors(first, move |&i| {
            Some(self.forest.last[i] as usize).filter(within)
        })
    }

    /// Notes that the topmost decisions of a range can be passed with so much slack.
    fn reach(&mut self, range: Range<usize>, below: Below, slack: i128) {
        let mut i = range.start;
        while i < range.end {
            let below = self.state(i, below);
            let places = &mut self.places[i];
            match places.iter_mut().find(|place| place.below == below) {
                Some(place) => place.slack = place.slack.max(slack),
                None => places.push(Place {
                    below,
                    slack,
                    entries: Vec::new(),
                }),
            }
            i = self.forest.last[i] as usize;
        }
    }

    /// More levels than matter in a decision's subtree count as those that matter.
    fn state(&self, i: usize, (above, levels): Below) -> Below {
        let most = if self.free {
            1
        } else {
            self.dense.levels_at(i)
        };
        (above, levels.min(most))
    }

    /// The least sum of a decision's subtree.
    fn value(&self, i: usize, below: Below) -> i128 {
        let (above, levels) = self.state(i, below);
        self.dense.values[self.dense.state(i, self.depth(above), levels)].into()
    }

    fn depth(&self, above: u32) -> usize {
        match above {
            NONE => 0,
            above => self.forest.depth[above as usize] as usize,
        }
    }

    /// The two options of a state, to replay and to share: the sum of the decision's own costs,
    /// the state of what is below it, and the slack left; `None` beyond reach.
    fn options(&self, i: usize, at: usize) -> [Option<(i128, Below, i128)>; 2] {
        let (forest, costs) = (self.forest, &self.costs);
        let Place { below, slack, .. } = self.places[i][at];
        let (above, levels) = below;
        let from = match above {
            NONE => 0,
            above => forest.end[above as usize],
        };
        let inner = !self.inside(i).is_empty();
        // What is below cannot pass everything over, too.
        let passed = !inner || self.dense.admits(i + 1, self.depth(above));
        let replay = passed.then(|| (costs.unchosen(forest, i, from), below));
        let has_level = self.free || levels > 1 || !(inner || forest.leaves[i] > 0);
        let share = has_level.then(|| {
            let own = costs.stored(forest, i, from) + costs.leaves(forest, i);
            (own, (i as u32, levels.saturating_sub(1).max(1)))
        });
        let most = slack + self.value(i, below);
        [replay, share].map(|option| {
            let (own, below) = option?;
            let own = own.into();
            let rest: i128 = (self.topmost(self.inside(i)))
                .map(|child| self.value(child, below))
                .sum();
            Some((own, below, most - own - rest)).filter(|option| option.2 >= 0)
        })
    }

    /// The entries of one state from those of what is below.
    fn entries(&mut self, i: usize, at: usize) -> Vec<Entry> {
        let (own, leaves) = (self.forest.own[i], self.forest.leaves[i]);
        let [replay, share] = self.options(i, at);
        let mut all = Vec::new();
        if let Some((sum, below, left)) = replay {
            let mut start = self.entry(sum, 0);
            start.depth = u32::from(self.free && own + leaves > 0);
            all = self.join(start, self.inside(i), below, left);
        }
        if let Some((sum, below, left)) = share {
            self.links.push(Link::One(i as u32));
            let mut start = self.entry(sum, self.links.len() as u32 - 1);
            start.depth = u32::from(self.free && leaves > 0);
            for mut entry in self.join(start, self.inside(i), below, left) {
                entry.depth += u32::from(self.free);
                self.insert(&mut all, entry);
            }
        }
        all
    }

    fn entry(&self, key: i128, link: u32) -> Entry {
        let (work, tokens, segments) = self.unit.parts(key);
        let real = work - self.goal.price * i128::from(tokens);
        Entry {
            key,
            real: (real, tokens, segments),
            depth: 0,
            link,
        }
    }

    /// Combines `start` with the entries of the topmost decisions of a range, keeping what is
    /// within `slack` of their best sum.
    fn join(&mut self, start: Entry, range: Range<usize>, below: Below, slack: i128) -> Vec<Entry> {
        let mut least = start.key;
        let mut sums = vec![start];
        let mut child = range.start;
        while child < range.end {
            least += self.value(child, below);
            let state = self.state(child, below);
            let place = (self.places[child].iter()).position(|place| place.below == state);
            let Some(place) = place else {
                return Vec::new(); // no layout within reach passes here
            };
            let theirs = std::mem::take(&mut self.places[child][place].entries);
            let mut next = Vec::new();
            for a in &sums {
                for b in &theirs {
                    if a.key + b.key - least <= slack {
                        self.made += 1;
                        let entry = self.joined(a, b);
                        self.insert(&mut next, entry);
                    }
                }
            }
            self.places[child][place].entries = theirs;
            sums = next;
            child = self.forest.last[child] as usize;
        }
        sums
    }

    fn joined(&mut self, a: &Entry, b: &Entry) -> Entry {
        let link = match (a.link, b.link) {
            (link, 0) | (0, link) => link,
            (a, b) => {
                self.links.push(Link::Join(a, b));
                self.links.len() as u32 - 1
            }
        };
        Entry {
            key: a.key + b.key,
            real: (
                a.real.0 + b.real.0,
                a.real.1 + b.real.1,
                a.real.2 + b.real.2,
            ),
            depth: a.depth.max(b.depth),
            link,
        }
    }

    /// Adds an entry unless another with its residue (and no more tokens, when they are
    /// limited) is as good; drops those it beats.
    fn insert(&self, all: &mut Vec<Entry>, mut entry: Entry) {
        let modulus = self.goal.weights.modulus;
        let limited = self.goal.most_tokens.is_some();
        let mut at = 0;
        while at < all.len() {
            let other = all[at];
            if (other.real.1 - entry.real.1) % modulus != 0 {
                at += 1;
                continue;
            }
            match other.real.cmp(&entry.real) {
                Ordering::Less if !limited || other.real.1 <= entry.real.1 => return,
                Ordering::Greater if !limited || entry.real.1 <= other.real.1 => {
                    all.swap_remove(at);
                }
                Ordering::Equal if other.depth == entry.depth => {
                    // Equal in all that counts: the first list.
                    if self.comes_first(other.link, entry.link) {
                        entry.link = other.link;
                    }
                    all.swap_remove(at);
                }
                _ => at += 1,
            }
        }
        all.push(entry);
    }

    /// Whether the first decision that only one of two lists has is in `a`. Of two layouts with
    /// equal tokens neither holds the other: one more decision means fewer tokens.
    ///
    /// Both are walked only as far as they agree, and parts that they share not at all.
    fn comes_first(&self, a: u32, b: u32) -> bool {
        let (mut left, mut right) = (vec![a], vec![b]);
        while let (Some(&x), Some(&y)) = (left.last(), right.last()) {
            match (self.links[x as usize], self.links[y as usize]) {
                _ if x == y => {}
                (Link::One(i), Link::One(j)) if i == j => {}
                (Link::One(i), Link::One(j)) => return i < j,
                (first, second) => {
                    for (stack, link) in [(&mut left, first), (&mut right, second)] {
                        if let Link::Join(a, b) = link {
                            stack.pop();
                            stack.extend([b, a]);
                        }
                    }
                    continue;
                }
            }
            left.pop();
            right.pop();
        }
        true
    }

    fn list(&self, link: u32) -> Vec<u32> {
        let mut out = Vec::new();
        let mut pending = vec![link];
        while let Some(link) = pending.pop() {
            match self.links[link as usize] {
                Link::One(NONE) => {}
                Link::One(i) => out.push(i),
                Link::Join(a, b) => pending.extend([b, a]),
            }
        }
        out
    }
}
