//! Layouts within reach of the best sum, compared by the exact score.
//!
//! Rounding depends on the tokens modulo the common denominator alone. So for each state that
//! a layout within reach can pass through, the best sum for each residue is enough.

use std::cmp::Ordering;

use super::Forest;
use super::costs::{Cost, Costs, Unit};
use super::dense::Dense;
use super::exact::Best;
use super::scoring::Weights;
use crate::cancel;
use crate::error::Result;

/// Partial layouts that a comparison may make before it gives up.
const MOST_ENTRIES: usize = 1 << 20;

/// Which layouts count, and by what.
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

/// What to compare.
pub(super) struct Near<'a, T> {
    forest: &'a Forest,
    goal: &'a Goal<'a>,
    unit: Unit,
    costs: &'a Costs<T>,
    /// Solved tables with values.
    dense: &'a Dense<T>,
    slack: i128,
    /// Levels are free.
    free: bool,
}

impl<'a, T: Cost> Near<'a, T> {
    pub(super) fn new(
        forest: &'a Forest,
        goal: &'a Goal<'a>,
        unit: Unit,
        costs: &'a Costs<T>,
        dense: &'a Dense<T>,
    ) -> Self {
        Self {
            forest,
            goal,
            unit,
            costs,
            dense,
            slack: unit.slack(goal.slack),
            free: goal.weights.levels_are_free(),
        }
    }
}

/// A partial layout of the subtrees walked so far.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Sum in the unit of the tables.
    key: i128,
    /// Work without the price on tokens, tokens and segments, in the order in which they decide.
    real: (i128, i64, i64),
    /// Segments on its longest path, when levels are free.
    depth: u32,
    /// The first by sorted decisions when others follow, and when none does: links.
    long: u32,
    short: u32,
}

/// A list of decisions, as a tree of joins; link 0 is empty.
#[derive(Debug, Clone, Copy)]
enum Link {
    One(u32),
    Join(u32, u32),
}

/// A state on the way of a layout within reach.
struct Place {
    x: usize,
    k: u32,
    slack: i128,
    entries: Vec<Entry>,
}

struct Walk<'a, T> {
    near: &'a Near<'a, T>,
    links: Vec<Link>,
    made: usize,
    /// The decision at hand and its ancestors, by depth.
    path: Vec<usize>,
    /// Their ends; entry 0 stands for no ancestor.
    ends: Vec<i64>,
    children: Vec<Vec<u32>>,
    places: Vec<Vec<Place>>,
    /// Kept between comparisons of lists.
    stacks: (Vec<u32>, Vec<u32>),
}

/// Replaces `best` by the exact optimum and marks it as proven, unless that takes too long.
pub(super) fn settle<T: Cost>(near: &Near<'_, T>, best: &mut Best) -> Result<()> {
    let mut walk = Walk::new(near);
    let mut winner: Option<(super::Score, Vec<u32>)> = None;
    let roots: Vec<(u32, i128)> = if near.free {
        vec![(1, near.slack)]
    } else {
        let key = |k: u32| {
            let root: i128 = near.dense.root[k as usize - 1].into();
            root + near.unit.key(near.goal.weights.levels(i64::from(k)), 0, 0)
        };
        let widest = near.dense.root.len() as u32;
        let least = (1..=widest).map(key).min().unwrap_or(0);
        (1..=widest)
            .map(|k| (k, near.slack - (key(k) - least)))
            .filter(|&(_, slack)| slack >= 0)
            .collect()
    };
    for (k, slack) in roots {
        let Some(entries) = walk.solve(k, slack)? else {
            return Ok(());
        };
        for entry in entries {
            cancel::check()?;
            let chosen = walk.list(entry.short);
            let mut flags = vec![false; near.forest.len()];
            for &i in &chosen {
                flags[i as usize] = true;
            }
            let score = near.goal.exact.score(&near.forest.measure(&flags));
            if near
                .goal
                .most_tokens
                .is_some_and(|most| score.tokens > most)
            {
                continue;
            }
            let better = winner
                .as_ref()
                .is_none_or(|(s, list)| (score, &chosen) < (*s, list));
            if better {
                winner = Some((score, chosen));
            }
        }
    }
    if let Some((score, chosen)) = winner {
        best.chosen.fill(false);
        for i in chosen {
            best.chosen[i as usize] = true;
        }
        best.score = score;
        best.optimal = true;
    }
    Ok(())
}

impl<'a, T: Cost> Walk<'a, T> {
    fn new(near: &'a Near<'a, T>) -> Self {
        let forest = near.forest;
        let mut children = vec![Vec::new(); forest.len()];
        for i in 0..forest.len() {
            if let Some(p) = forest.above(i) {
                children[p].push(i as u32);
            }
        }
        let deepest = forest.depth.iter().copied().max().unwrap_or(0) as usize;
        Self {
            near,
            links: vec![Link::One(u32::MAX)],
            made: 0,
            path: Vec::with_capacity(deepest + 1),
            ends: vec![0; deepest + 1],
            children,
            places: (0..forest.len()).map(|_| Vec::new()).collect(),
            stacks: (Vec::new(), Vec::new()),
        }
    }

    /// Puts `i` and those of its ancestors that are not there yet on the path.
    fn enter(&mut self, i: usize) {
        let forest = self.near.forest;
        // What lies deeper may belong to another branch by the time it is asked for again.
        self.path.resize(forest.depth[i] as usize + 1, usize::MAX);
        let mut at = Some(i);
        while let Some(j) = at {
            let depth = forest.depth[j] as usize;
            if self.path[depth] == j {
                break;
            }
            self.path[depth] = j;
            self.ends[depth] = forest.end[j];
            at = forest.above(j);
        }
    }

    /// The entries of the whole forest with `k` levels; `None`: too many.
    fn solve(&mut self, k: u32, slack: i128) -> Result<Option<Vec<Entry>>> {
        for places in &mut self.places {
            places.clear();
        }
        let forest = self.near.forest;
        let roots: Vec<u32> = (0..forest.len() as u32)
            .filter(|&i| forest.above(i as usize).is_none())
            .collect();
        for &root in &roots {
            self.reach(root as usize, 0, k, slack);
        }
        // Each pass begins without a path: what is left of the last one may lie elsewhere.
        self.path.fill(usize::MAX);
        for i in 0..forest.len() {
            self.enter(i);
            self.made += self.places[i].len();
            if self.made > MOST_ENTRIES {
                return Ok(None);
            }
            self.spread(i);
        }
        self.path.fill(usize::MAX);
        for i in (0..forest.len()).rev() {
            self.enter(i);
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
        let mut lone = self.entry(self.near.costs.lone(forest).into(), 0);
        lone.depth = u32::from(self.near.free && forest.lone > 0);
        Ok(Some(self.join(vec![lone], &roots, 0, k, slack)))
    }

    /// Notes that a state can be passed with so much slack.
    fn reach(&mut self, i: usize, x: usize, k: u32, slack: i128) {
        let k = if self.near.free {
            1
        } else {
            k.min(self.near.dense.levels_at(i))
        };
        let places = &mut self.places[i];
        match places.iter_mut().find(|place| place.x == x && place.k == k) {
            Some(place) => place.slack = place.slack.max(slack),
            None => places.push(Place {
                x,
                k,
                slack,
                entries: Vec::new(),
            }),
        }
    }

    fn value(&self, i: usize, x: usize, k: u32) -> i128 {
        let near = self.near;
        let k = if near.free { 1 } else { k };
        near.dense.values[near.dense.state(i, x, k)].into()
    }

    /// The two options of a state of the decision that was entered last: sum of the decision's own costs, and the state of its
    /// children; the second is `None` where levels do not allow it.
    fn options(&self, i: usize, x: usize, k: u32) -> [Option<(i128, usize, u32)>; 2] {
        let (near, forest) = (self.near, self.near.forest);
        let from = self.ends[x];
        let replay = near.costs.unchosen(forest, i, from).into();
        let below = !self.children[i].is_empty() || forest.leaves[i] > 0;
        let share = (near.free || k > 1 || !below).then(|| {
            let stored = near.costs.stored(forest, i, from) + near.costs.leaves(forest, i);
            (
                stored.into(),
                forest.depth[i] as usize,
                k.saturating_sub(1).max(1),
            )
        });
        // Its children cannot pass everything over, too.
        let passed = (self.children[i].first()).is_none_or(|&c| near.dense.admits(c as usize, x));
        [passed.then_some((replay, x, k)), share]
    }

    /// Hands the slack of a decision's states on to its children.
    fn spread(&mut self, i: usize) {
        for at in 0..self.places[i].len() {
            let Place { x, k, slack, .. } = self.places[i][at];
            let best = self.value(i, x, k);
            for (own, x, k) in self.options(i, x, k).into_iter().flatten() {
                let below: i128 = self.children[i]
                    .iter()
                    .map(|&c| self.value(c as usize, x, k))
                    .sum();
                let left = slack - (own + below - best);
                if left >= 0 {
                    for c in 0..self.children[i].len() {
                        self.reach(self.children[i][c] as usize, x, k, left);
                    }
                }
            }
        }
    }

    /// The entries of one state from those of the children.
    fn entries(&mut self, i: usize, at: usize) -> Vec<Entry> {
        let Place { x, k, slack, .. } = self.places[i][at];
        let best = self.value(i, x, k);
        let options = self.options(i, x, k);
        let children = std::mem::take(&mut self.children[i]);
        let mut all = Vec::new();
        let (forest, free) = (self.near.forest, self.near.free);
        for (share, option) in options.into_iter().enumerate() {
            let Some((own, inner_x, inner_k)) = option else {
                continue;
            };
            let below: i128 = children
                .iter()
                .map(|&c| self.value(c as usize, inner_x, inner_k))
                .sum();
            let left = slack - (own + below - best);
            if left < 0 {
                continue;
            }
            let tails = if share == 1 {
                self.links.push(Link::One(i as u32));
                forest.leaves[i] > 0
            } else {
                forest.own[i] + forest.leaves[i] > 0
            };
            let link = if share == 1 {
                self.links.len() as u32 - 1
            } else {
                0
            };
            let mut start = self.entry(own, link);
            start.depth = u32::from(free && tails);
            let mut joined = self.join(vec![start], &children, inner_x, inner_k, left);
            if share == 1 && free {
                for entry in &mut joined {
                    entry.depth += 1;
                }
            }
            for entry in joined {
                self.insert(&mut all, entry);
            }
        }
        self.children[i] = children;
        all
    }

    fn entry(&self, key: i128, link: u32) -> Entry {
        let (work, tokens, segments) = self.near.unit.parts(key);
        let real = work - self.near.goal.price * i128::from(tokens);
        Entry {
            key,
            real: (real, tokens, segments),
            depth: 0,
            long: link,
            short: link,
        }
    }

    /// Combines `start` with the entries of some subtrees in one state, keeping what is within
    /// `slack` of their best sum.
    fn join(
        &mut self,
        start: Vec<Entry>,
        subtrees: &[u32],
        x: usize,
        k: u32,
        slack: i128,
    ) -> Vec<Entry> {
        let mut sums = start;
        let Some(mut least) = sums.iter().map(|entry| entry.key).min() else {
            return sums;
        };
        for &child in subtrees {
            let child = child as usize;
            least += self.value(child, x, k);
            let kept = if self.near.free {
                1
            } else {
                k.min(self.near.dense.levels_at(child))
            };
            let place = self.places[child]
                .iter()
                .position(|p| p.x == x && p.k == kept);
            let Some(place) = place else {
                return Vec::new(); // no layout within reach passes here
            };
            let theirs = std::mem::take(&mut self.places[child][place].entries);
            let mut next = Vec::new();
            for a in &sums {
                for b in &theirs {
                    if a.key + b.key - least > slack {
                        continue;
                    }
                    self.made += 1;
                    let entry = self.joined(a, b);
                    self.insert(&mut next, entry);
                }
            }
            self.places[child][place].entries = theirs;
            sums = next;
        }
        sums
    }

    fn joined(&mut self, a: &Entry, b: &Entry) -> Entry {
        let long = self.link(a.long, b.long);
        // Without anything after it, `b` may leave `a` as the end of the list.
        let short = if b.short == 0 {
            a.short
        } else {
            self.link(a.long, b.short)
        };
        Entry {
            key: a.key + b.key,
            real: (
                a.real.0 + b.real.0,
                a.real.1 + b.real.1,
                a.real.2 + b.real.2,
            ),
            depth: a.depth.max(b.depth),
            long,
            short,
        }
    }

    fn link(&mut self, a: u32, b: u32) -> u32 {
        if a == 0 {
            b
        } else if b == 0 {
            a
        } else {
            self.links.push(Link::Join(a, b));
            self.links.len() as u32 - 1
        }
    }

    /// Adds an entry unless another with its residue (and no more tokens, when they are
    /// limited) is as good; drops those it beats.
    fn insert(&mut self, all: &mut Vec<Entry>, mut entry: Entry) {
        let modulus = self.near.goal.weights.modulus;
        let limited = self.near.goal.most_tokens.is_some();
        let residue = entry.real.1 % modulus;
        let mut at = 0;
        while at < all.len() {
            let other = all[at];
            if other.real.1 % modulus != residue {
                at += 1;
                continue;
            }
            match other.real.cmp(&entry.real) {
                Ordering::Less if !limited || other.real.1 <= entry.real.1 => {
                    return;
                }
                Ordering::Greater if !limited || entry.real.1 <= other.real.1 => {
                    all.swap_remove(at);
                }
                Ordering::Equal if other.depth == entry.depth => {
                    // Equal in all that counts: keep the first list of each kind.
                    if self.order(other.short, entry.short, false).is_le() {
                        entry.short = other.short;
                    }
                    if self.order(other.long, entry.long, true).is_le() {
                        entry.long = other.long;
                    }
                    all.swap_remove(at);
                }
                _ => at += 1,
            }
        }
        all.push(entry);
    }

    /// Order of two lists; when one begins the other, the longer comes first if more follows.
    ///
    /// Both are walked only as far as they agree, and parts that they share not at all.
    fn order(&mut self, a: u32, b: u32, more: bool) -> Ordering {
        let (mut left, mut right) = std::mem::take(&mut self.stacks);
        left.clear();
        right.clear();
        left.push(a);
        right.push(b);
        let order = loop {
            left.truncate(left.len() - left.iter().rev().take_while(|&&l| l == 0).count());
            right.truncate(right.len() - right.iter().rev().take_while(|&&l| l == 0).count());
            let (Some(&x), Some(&y)) = (left.last(), right.last()) else {
                let by_length = left.len().cmp(&right.len());
                break if more { by_length.reverse() } else { by_length };
            };
            if x == y {
                left.pop();
                right.pop();
                continue;
            }
            match (self.links[x as usize], self.links[y as usize]) {
                (Link::One(i), Link::One(j)) if i == j => {
                    left.pop();
                    right.pop();
                }
                (Link::One(i), Link::One(j)) => break i.cmp(&j),
                (first, second) => {
                    for (stack, link) in [(&mut left, first), (&mut right, second)] {
                        if let Link::Join(a, b) = link {
                            stack.pop();
                            stack.extend([b, a]);
                        }
                    }
                }
            }
        };
        self.stacks = (left, right);
        order
    }

    fn list(&self, link: u32) -> Vec<u32> {
        let mut out = Vec::new();
        let mut pending = vec![link];
        while let Some(link) = pending.pop() {
            if link == 0 {
                continue;
            }
            match self.links[link as usize] {
                Link::One(i) => out.push(i),
                Link::Join(a, b) => {
                    pending.push(b);
                    pending.push(a);
                }
            }
        }
        out
    }
}
