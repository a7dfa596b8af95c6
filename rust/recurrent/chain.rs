//! Which segments to chain: a small beam search over groups of segments.

use super::RecurrentSettings;
use super::forest::{Forest, Legal};
use super::place::Loads;
use super::set_order;
use crate::error::Result;
use crate::interrupt::Ticker;
use crate::segments::NONE;
use std::cmp::Ordering;

/// Up to here, the best candidates are kept by insertion; beyond, by sorting all.
const INSERTED: usize = 64;

/// A set of chained positions (ascending, in [`Search::members`]) and its score.
#[derive(Debug, Clone, Copy)]
struct Decision {
    first: usize,
    last: usize,
    score: f64,
}

/// What a candidate group is made of.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// One segment, by position.
    Single(u32),
    /// The legal children of one parent, by number.
    Siblings(u32),
}

/// A candidate group and how promising it is.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// Sums of relief and length, largest locality, sum of what locality misses, size; then,
    /// only when those decide nothing, minus the place in the walk of the set.
    key: [i64; 6],
    source: Source,
}

/// Buffers of the search.
#[derive(Debug, Default)]
pub(super) struct Search {
    decisions: Vec<Decision>,
    members: Vec<u32>,
    best: usize,
    /// Candidate group `g`: `group_members[group_ends[g - 1]..group_ends[g]]`.
    group_members: Vec<u32>,
    group_ends: Vec<usize>,
    siblings: Siblings,
    beam: Vec<usize>,
    expanded: Vec<usize>,
    picked: Vec<usize>,
    /// Per position: the last stamp of a set that held it.
    marks: Vec<u32>,
}

/// Legal children that share a parent with another one.
#[derive(Debug, Default)]
struct Siblings {
    /// Positions of group `g`: `members[first[g]..first[g + 1]]`, ascending.
    first: Vec<u32>,
    members: Vec<u32>,
    /// Per position of a parent: its group, `NONE` without.
    group: Vec<u32>,
    counts: Vec<u32>,
}

impl Search {
    /// The positions to chain, ascending.
    pub(super) fn best(&self) -> &[u32] {
        self.set(self.best)
    }

    /// Sets that were scored.
    pub(super) fn evaluations(&self) -> usize {
        self.decisions.len()
    }

    /// Searches; the answer is [`Search::best`].
    pub(super) fn run(
        &mut self,
        forest: &Forest,
        loads: &mut Loads,
        settings: &RecurrentSettings,
        ticker: &mut Ticker,
    ) -> Result<()> {
        self.decisions.clear();
        self.members.clear();
        self.best = 0;
        if forest.legal.is_empty() {
            self.best = self.decisions.len();
            self.decisions.push(Decision {
                first: 0,
                last: 0,
                score: f64::INFINITY,
            });
            return Ok(());
        }
        let none = self.decide(0, forest, loads, settings, ticker)?;
        self.members.extend(forest.legal.iter().map(|l| l.at));
        self.members.sort_unstable();
        let all = self.decide(0, forest, loads, settings, ticker)?;
        let gain = settings.min_gain_ms;
        if self.decisions[none].score - self.decisions[all].score > gain {
            self.best = all;
        }
        self.collect_groups(forest, settings.candidates.max(1) as usize);
        let width = settings.beam_width.max(1) as usize;
        self.beam.clear();
        self.beam.extend([none, all]);
        self.cut_beam(forest, width);
        let mut stale = 0;
        for _ in 0..settings.max_steps.max(0) {
            self.expand(forest, loads, settings, ticker)?;
            let expanded = std::mem::take(&mut self.expanded);
            self.beam.extend(&expanded);
            self.expanded = expanded;
            self.cut_beam(forest, width);
            let first = self.beam[0];
            if self.decisions[self.best].score - self.decisions[first].score > gain {
                self.best = first;
                stale = 0;
            } else {
                stale += 1;
                if stale == 2 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn set(&self, decision: usize) -> &[u32] {
        let Decision { first, last, .. } = self.decisions[decision];
        &self.members[first..last]
    }

    fn groups(&self) -> usize {
        self.group_ends.len()
    }

    fn group(&self, group: usize) -> &[u32] {
        let first = group.checked_sub(1).map_or(0, |g| self.group_ends[g]);
        &self.group_members[first..self.group_ends[group]]
    }

    /// The decision for the set at the end of `members`, scored unless it was seen before.
    fn decide(
        &mut self,
        first: usize,
        forest: &Forest,
        loads: &mut Loads,
        settings: &RecurrentSettings,
        ticker: &mut Ticker,
    ) -> Result<usize> {
        let set = &self.members[first..];
        let seen = (0..self.decisions.len()).find(|&decision| self.set(decision) == set);
        if let Some(decision) = seen {
            self.members.truncate(first);
            return Ok(decision);
        }
        ticker.work((forest.len() + forest.levels * forest.ranks) as u64)?;
        self.decisions.push(Decision {
            first,
            last: self.members.len(),
            score: loads.score(forest, &self.members[first..], settings),
        });
        Ok(self.decisions.len() - 1)
    }

    /// Sorts the beam by (score, size, segments) and keeps the first `width`.
    fn cut_beam(&mut self, forest: &Forest, width: usize) {
        let mut beam = std::mem::take(&mut self.beam);
        beam.sort_by(|&a, &b| {
            let (left, right) = (self.set(a), self.set(b));
            (self.decisions[a].score)
                .total_cmp(&self.decisions[b].score)
                .then(left.len().cmp(&right.len()))
                .then_with(|| compare_segments(forest, left, right))
        });
        beam.truncate(width);
        self.beam = beam;
    }

    /// Fills `expanded` with what one toggled group makes of each state of the beam.
    fn expand(
        &mut self,
        forest: &Forest,
        loads: &mut Loads,
        settings: &RecurrentSettings,
        ticker: &mut Ticker,
    ) -> Result<()> {
        self.expanded.clear();
        for state in 0..self.beam.len() {
            let state = self.beam[state];
            self.mark(forest, state);
            self.pick(settings.branch.max(1) as usize);
            for picked in 0..self.picked.len() {
                let first = self.toggle(state, self.picked[picked]);
                let made = self.decide(first, forest, loads, settings, ticker)?;
                if !self.expanded.contains(&made) {
                    self.expanded.push(made);
                }
            }
        }
        Ok(())
    }

    /// Marks the members of a decision with its number.
    fn mark(&mut self, forest: &Forest, decision: usize) {
        self.marks.clear();
        self.marks.resize(forest.len(), 0);
        let Decision { first, last, .. } = self.decisions[decision];
        for &at in &self.members[first..last] {
            self.marks[at as usize] = 1;
        }
    }

    fn marked(&self, at: u32) -> bool {
        self.marks[at as usize] == 1
    }

    /// Groups to toggle: the first that the marked set does not contain; if they are fewer than
    /// `branch`, then from the end those that overlap it.
    fn pick(&mut self, branch: usize) {
        let mut picked = std::mem::take(&mut self.picked);
        picked.clear();
        let contained = |group: usize| self.group(group).iter().all(|&at| self.marked(at));
        let overlaps = |group: usize| self.group(group).iter().any(|&at| self.marked(at));
        picked.extend((0..self.groups()).filter(|&g| !contained(g)).take(branch));
        for group in (0..self.groups()).rev() {
            if picked.len() >= branch {
                break;
            }
            if overlaps(group) && !picked.contains(&group) {
                picked.push(group);
            }
        }
        self.picked = picked;
    }

    /// Appends the marked set with a group removed if it contains it, else added.
    fn toggle(&mut self, state: usize, group: usize) -> usize {
        let made = self.members.len();
        let Decision { first, last, .. } = self.decisions[state];
        let begin = group.checked_sub(1).map_or(0, |g| self.group_ends[g]);
        let end = self.group_ends[group];
        let remove = (self.group(group).iter()).all(|&at| self.marked(at));
        let mut toggled = begin;
        for index in first..last {
            let at = self.members[index];
            while toggled < end && self.group_members[toggled] < at {
                // Only when adding: a contained group has no member between two of the set.
                self.members.push(self.group_members[toggled]);
                toggled += 1;
            }
            let both = toggled < end && self.group_members[toggled] == at;
            toggled += usize::from(both);
            if !(both && remove) {
                self.members.push(at);
            }
        }
        self.members
            .extend_from_slice(&self.group_members[toggled..end]);
        made
    }

    /// The candidate groups, in order, at most `limit`.
    fn collect_groups(&mut self, forest: &Forest, limit: usize) {
        self.group_members.clear();
        self.group_ends.clear();
        let is_root = |l: &Legal| forest.parent[l.at as usize] == NONE;
        let legal = &forest.legal;
        self.push_group(legal.iter().map(|l| l.at));
        self.push_group(legal.iter().filter(|l| is_root(l)).map(|l| l.at));
        self.push_group(legal.iter().filter(|l| !is_root(l)).map(|l| l.at));
        self.siblings.fill(forest);
        for candidate in ranked(forest, &self.siblings, limit) {
            match candidate.source {
                Source::Single(at) => self.push_group(std::iter::once(at)),
                Source::Siblings(group) => {
                    let siblings = std::mem::take(&mut self.siblings);
                    self.push_group(siblings.members(group).iter().copied());
                    self.siblings = siblings;
                }
            }
        }
        self.group_ends.truncate(limit);
    }

    /// Appends a group unless it is empty or one of the groups so far.
    fn push_group(&mut self, positions: impl Iterator<Item = u32>) {
        let first = self.group_members.len();
        self.group_members.extend(positions);
        self.group_members[first..].sort_unstable();
        let made = &self.group_members[first..];
        // Ranked groups differ from one another: only the first three can be repeated.
        let repeated = (0..self.groups().min(3)).any(|group| self.group(group) == made);
        if made.is_empty() || repeated {
            self.group_members.truncate(first);
        } else {
            self.group_ends.push(self.group_members.len());
        }
    }
}

impl Siblings {
    fn members(&self, group: u32) -> &[u32] {
        let group = group as usize;
        &self.members[self.first[group] as usize..self.first[group + 1] as usize]
    }

    /// Groups the legal segments by parent, numbered by their first legal child.
    fn fill(&mut self, forest: &Forest) {
        self.counts.clear();
        self.counts.resize(forest.len(), 0);
        let parents = || {
            (forest.legal.iter())
                .map(|l| (l.at, forest.parent[l.at as usize]))
                .filter(|&(_, parent)| parent != NONE)
        };
        for (_, parent) in parents() {
            self.counts[parent as usize] += 1;
        }
        self.group.clear();
        self.group.resize(forest.len(), NONE);
        self.first.clear();
        let mut total = 0;
        for (_, parent) in parents() {
            let (count, group) = (
                self.counts[parent as usize],
                &mut self.group[parent as usize],
            );
            if count > 1 && *group == NONE {
                *group = self.first.len() as u32;
                self.first.push(total);
                total += count;
            }
        }
        self.first.push(total);
        self.members.clear();
        self.members.resize(total as usize, 0);
        for (at, parent) in parents() {
            let group = self.group[parent as usize];
            if group != NONE {
                // Counts down to nought: children of a parent come in order.
                let left = &mut self.counts[parent as usize];
                let end = self.first[group as usize + 1];
                self.members[(end - *left) as usize] = at;
                *left -= 1;
            }
        }
    }
}

/// The `limit` most promising groups. Equal ones come in the walk order of a set.
fn ranked(forest: &Forest, siblings: &Siblings, limit: usize) -> Vec<Candidate> {
    let (best, tied) = most_promising(candidates(forest, siblings, &[]), limit);
    if !tied {
        return best;
    }
    let range = |&at: &u32| {
        let start = forest.start[at as usize];
        (start, start + forest.length[at as usize])
    };
    let hashes: Vec<u64> = candidates(forest, siblings, &[])
        .map(|candidate| match candidate.source {
            Source::Single(at) => set_order::group_hash(std::iter::once(range(&at))),
            Source::Siblings(group) => {
                set_order::group_hash(siblings.members(group).iter().map(range))
            }
        })
        .collect();
    let walk = set_order::walk_ranks(&hashes);
    most_promising(candidates(forest, siblings, &walk), limit).0
}

/// All candidates in the order in which the set is filled; `walk` may be empty.
fn candidates<'a>(
    forest: &'a Forest,
    siblings: &'a Siblings,
    walk: &'a [u32],
) -> impl Iterator<Item = Candidate> + 'a {
    let legal = |l: &Legal| {
        let at = l.at as usize;
        let length = forest.length[at];
        let locality = forest.on_ranks(at).iter().copied().max().unwrap_or(0);
        [length - l.longest, length, locality, locality - length, 1]
    };
    let singles = (forest.legal.iter()).map(move |l| (legal(l), Source::Single(l.at)));
    let groups = (0..siblings.first.len() as u32 - 1).map(move |group| {
        let mut sum = [0, 0, 0, 0, 0];
        for &at in siblings.members(group) {
            let one = legal(&forest.legal[forest.legal_at[at as usize] as usize]);
            let largest = sum[2].max(one[2]);
            for (total, value) in sum.iter_mut().zip(one) {
                *total += value;
            }
            sum[2] = largest;
        }
        (sum, Source::Siblings(group))
    });
    (singles.chain(groups).enumerate()).map(move |(index, (key, source))| Candidate {
        key: [
            key[0],
            key[1],
            key[2],
            key[3],
            key[4],
            -walk.get(index).map_or(0, |&rank| i64::from(rank)),
        ],
        source,
    })
}

/// The `limit` candidates with the largest keys, and whether equal keys left the order open.
fn most_promising(
    candidates: impl Iterator<Item = Candidate>,
    limit: usize,
) -> (Vec<Candidate>, bool) {
    let mut best: Vec<Candidate>;
    let mut tied = false;
    if limit > INSERTED {
        best = candidates.collect();
        best.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.key));
        tied = best.windows(2).any(|pair| pair[0].key == pair[1].key);
        best.truncate(limit);
    } else {
        best = Vec::with_capacity(limit + 1);
        for candidate in candidates {
            if best.len() == limit && candidate.key < best[limit - 1].key {
                continue;
            }
            let at = best.partition_point(|better| better.key > candidate.key);
            tied |= best.get(at).is_some_and(|next| next.key == candidate.key);
            best.insert(at, candidate);
            best.truncate(limit);
        }
    }
    (best, tied)
}

/// Compares two sets as sorted lists of segments.
fn compare_segments(forest: &Forest, left: &[u32], right: &[u32]) -> Ordering {
    if forest.in_order() {
        return left.cmp(right);
    }
    let segments = |set: &[u32]| {
        let mut list: Vec<usize> = set.iter().map(|&at| forest.segment(at as usize)).collect();
        list.sort_unstable();
        list
    };
    segments(left).cmp(&segments(right))
}
