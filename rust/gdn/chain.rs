//! Chooses the segments to chain: a small beam search over batches of segments.

use super::GdnSettings;
use super::forest::{Forest, Legal};
use super::place::Loads;
use super::set_order;
use crate::cancel;
use crate::error::Result;
use crate::segments::NONE;
use std::cmp::Ordering;

/// A set of chained positions (ascending, in [`Search::members`]) and its score.
#[derive(Debug, Clone, Copy)]
struct Decision {
    first: usize,
    last: usize,
    /// The score, or while `open` something it cannot be below.
    score: f64,
    open: bool,
}

/// The origin of a batch.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// One segment, by position.
    Single(u32),
    /// The legal children of one parent, by number.
    Siblings(u32),
}

/// A batch and how promising it is.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// Sums of relief and length, largest locality, sum of what locality misses, size; then,
    /// only when those decide nothing, minus the place in the walk of the set.
    key: [i64; 6],
    source: Source,
}

/// The scorer of sets of segments.
struct Scoring<'a> {
    forest: &'a Forest,
    loads: &'a mut Loads,
    settings: &'a GdnSettings,
}

impl Scoring<'_> {
    fn score(&mut self, chained: &[u32]) -> Result<f64> {
        cancel::check()?;
        Ok(self.loads.score(self.forest, chained, self.settings))
    }

    fn bound(&mut self, chained: &[u32]) -> f64 {
        self.loads.bound(self.forest, chained, self.settings)
    }
}

/// Buffers of the search.
#[derive(Debug, Default)]
pub(super) struct Search {
    decisions: Vec<Decision>,
    members: Vec<u32>,
    best: usize,
    evaluations: usize,
    /// Batch `g`: `batch_members[batch_ends[g - 1]..batch_ends[g]]`.
    batch_members: Vec<u32>,
    batch_ends: Vec<usize>,
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
    /// Positions of batch `g`: `members[first[g]..first[g + 1]]`, ascending.
    first: Vec<u32>,
    members: Vec<u32>,
    /// Per position of a parent: its batch, `NONE` without.
    batch: Vec<u32>,
    counts: Vec<u32>,
}

impl Search {
    /// The positions to chain, ascending.
    pub(super) fn best(&self) -> &[u32] {
        self.set(self.best)
    }

    /// Sets that were scored.
    pub(super) fn evaluations(&self) -> usize {
        self.evaluations
    }

    /// Searches; the answer is [`Search::best`].
    ///
    /// A set is scored only where its bound leaves open whether it enters the beam.
    pub(super) fn run(
        &mut self,
        forest: &Forest,
        loads: &mut Loads,
        settings: &GdnSettings,
    ) -> Result<()> {
        self.decisions.clear();
        self.members.clear();
        self.evaluations = 0;
        let mut scoring = Scoring {
            forest,
            loads,
            settings,
        };
        let none = self.decide(0, &mut scoring);
        self.best = none;
        if forest.legal.is_empty() {
            return Ok(());
        }
        self.members.extend(forest.legal.iter().map(|l| l.at));
        if !forest.in_order() {
            self.members.sort_unstable();
        }
        let all = self.decide(0, &mut scoring);
        self.close(none, &mut scoring)?;
        self.replace_best(all, &mut scoring)?;
        self.collect_batches(forest, settings.candidates.max(1) as usize);
        let width = settings.beam_width.max(1) as usize;
        self.beam.clear();
        self.beam.extend([none, all]);
        self.cut_beam(width, &mut scoring)?;
        let mut stale = 0;
        for _ in 0..settings.max_steps.max(0) {
            self.expand(&mut scoring)?;
            self.beam.extend_from_slice(&self.expanded);
            self.cut_beam(width, &mut scoring)?;
            if self.replace_best(self.beam[0], &mut scoring)? {
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

    /// Scores a decision that is still open.
    fn close(&mut self, decision: usize, scoring: &mut Scoring<'_>) -> Result<()> {
        if self.decisions[decision].open {
            let score = scoring.score(self.set(decision))?;
            debug_assert!(score >= self.decisions[decision].score, "the bound holds");
            self.decisions[decision].score = score;
            self.decisions[decision].open = false;
            self.evaluations += 1;
        }
        Ok(())
    }

    /// Makes a decision the best if it saves enough; whether it did.
    fn replace_best(&mut self, decision: usize, scoring: &mut Scoring<'_>) -> Result<bool> {
        let (best, gain) = (
            self.decisions[self.best].score,
            scoring.settings.min_gain_ms,
        );
        if best - self.decisions[decision].score > gain {
            self.close(decision, scoring)?;
            if best - self.decisions[decision].score > gain {
                self.best = decision;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn set(&self, decision: usize) -> &[u32] {
        let Decision { first, last, .. } = self.decisions[decision];
        &self.members[first..last]
    }

    fn batches(&self) -> usize {
        self.batch_ends.len()
    }

    fn batch(&self, batch: usize) -> &[u32] {
        let first = batch.checked_sub(1).map_or(0, |g| self.batch_ends[g]);
        &self.batch_members[first..self.batch_ends[batch]]
    }

    /// The decision for the set at the end of `members`, a new one unless it was met before.
    fn decide(&mut self, first: usize, scoring: &mut Scoring<'_>) -> usize {
        let set = &self.members[first..];
        let met = (0..self.decisions.len()).find(|&decision| self.set(decision) == set);
        if let Some(decision) = met {
            self.members.truncate(first);
            return decision;
        }
        self.decisions.push(Decision {
            first,
            last: self.members.len(),
            score: scoring.bound(&self.members[first..]),
            open: true,
        });
        self.decisions.len() - 1
    }

    /// Sorts the beam by (score, size, segments) and keeps the first `width`, all scored.
    fn cut_beam(&mut self, width: usize, scoring: &mut Scoring<'_>) -> Result<()> {
        let mut beam = std::mem::take(&mut self.beam);
        // If all stay, only who is first matters.
        let exact = if beam.len() <= width { 1 } else { width };
        loop {
            cancel::check()?;
            beam.sort_by(|&a, &b| self.compare(scoring.forest, a, b));
            let Some(&open) = (beam.iter().take(exact)).find(|&&d| self.decisions[d].open) else {
                break;
            };
            self.close(open, scoring)?;
        }
        beam.truncate(width);
        self.beam = beam;
        Ok(())
    }

    /// Order of two decisions in the beam; an open one comes before its equals.
    fn compare(&self, forest: &Forest, a: usize, b: usize) -> Ordering {
        let (left, right) = (&self.decisions[a], &self.decisions[b]);
        (left.score.total_cmp(&right.score))
            .then(right.open.cmp(&left.open))
            .then((left.last - left.first).cmp(&(right.last - right.first)))
            .then_with(|| compare_segments(forest, self.set(a), self.set(b)))
    }

    /// Fills `expanded` with each state of the beam, one batch toggled.
    fn expand(&mut self, scoring: &mut Scoring<'_>) -> Result<()> {
        self.expanded.clear();
        for state in 0..self.beam.len() {
            let state = self.beam[state];
            self.mark(scoring.forest, state);
            self.pick(scoring.settings.branch.max(1) as usize);
            for picked in 0..self.picked.len() {
                cancel::check()?;
                let first = self.toggle(state, self.picked[picked]);
                let made = self.decide(first, scoring);
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

    /// Batches to toggle: the first that the marked set does not contain; if they are fewer than
    /// `branch`, then from the end those that overlap it.
    fn pick(&mut self, branch: usize) {
        let mut picked = std::mem::take(&mut self.picked);
        picked.clear();
        let contained = |batch: usize| self.batch(batch).iter().all(|&at| self.marked(at));
        let overlaps = |batch: usize| self.batch(batch).iter().any(|&at| self.marked(at));
        picked.extend((0..self.batches()).filter(|&g| !contained(g)).take(branch));
        for batch in (0..self.batches()).rev() {
            if picked.len() >= branch {
                break;
            }
            if overlaps(batch) && !picked.contains(&batch) {
                picked.push(batch);
            }
        }
        self.picked = picked;
    }

    /// Appends the marked set with a batch removed if it contains it, else added.
    fn toggle(&mut self, state: usize, batch: usize) -> usize {
        let made = self.members.len();
        let Decision { first, last, .. } = self.decisions[state];
        let begin = batch.checked_sub(1).map_or(0, |g| self.batch_ends[g]);
        let end = self.batch_ends[batch];
        let remove = (self.batch(batch).iter()).all(|&at| self.marked(at));
        let mut toggled = begin;
        for index in first..last {
            let at = self.members[index];
            while toggled < end && self.batch_members[toggled] < at {
                // Only when adding: a contained batch has no member between two of the set.
                self.members.push(self.batch_members[toggled]);
                toggled += 1;
            }
            let both = toggled < end && self.batch_members[toggled] == at;
            toggled += usize::from(both);
            if !(both && remove) {
                self.members.push(at);
            }
        }
        self.members
            .extend_from_slice(&self.batch_members[toggled..end]);
        made
    }

    /// The batches, in order, at most `limit`.
    fn collect_batches(&mut self, forest: &Forest, limit: usize) {
        self.batch_members.clear();
        self.batch_ends.clear();
        // The positions of all legal segments are the second decision's set, ascending.
        let Decision { first, last, .. } = self.decisions[1];
        let is_root = |at: u32| forest.parent[at as usize] == NONE;
        for kept in [|_| true, |root| root, |root: bool| !root] {
            let begin = self.batch_members.len();
            for &at in &self.members[first..last] {
                if kept(is_root(at)) {
                    self.batch_members.push(at);
                }
            }
            self.close_batch(begin);
        }
        self.siblings.fill(forest);
        for candidate in ranked(forest, &self.siblings, limit) {
            let begin = self.batch_members.len();
            match candidate.source {
                Source::Single(at) => self.batch_members.push(at),
                Source::Siblings(batch) => {
                    let together = self.siblings.members(batch);
                    self.batch_members.extend_from_slice(together);
                }
            }
            self.close_batch(begin);
        }
        self.batch_ends.truncate(limit);
    }

    /// Makes a batch of the members from `begin` on, unless they are none or a batch already.
    fn close_batch(&mut self, begin: usize) {
        let made = &self.batch_members[begin..];
        // Ranked batches differ from one another: only the first three can be repeated.
        let repeated = (0..self.batches().min(3)).any(|batch| self.batch(batch) == made);
        if made.is_empty() || repeated {
            self.batch_members.truncate(begin);
        } else {
            self.batch_ends.push(self.batch_members.len());
        }
    }
}

impl Siblings {
    /// Number of batches.
    fn len(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    fn members(&self, batch: u32) -> &[u32] {
        let batch = batch as usize;
        &self.members[self.first[batch] as usize..self.first[batch + 1] as usize]
    }

    /// Batches the legal segments by parent, numbered by their first legal child.
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
        self.batch.clear();
        self.batch.resize(forest.len(), NONE);
        self.first.clear();
        let mut total = 0;
        for (_, parent) in parents() {
            let (count, batch) = (
                self.counts[parent as usize],
                &mut self.batch[parent as usize],
            );
            if count > 1 && *batch == NONE {
                *batch = self.first.len() as u32;
                self.first.push(total);
                total += count;
            }
        }
        self.first.push(total);
        self.members.clear();
        self.members.resize(total as usize, 0);
        for (at, parent) in parents() {
            let batch = self.batch[parent as usize];
            if batch != NONE {
                // Counts down to nought: children of a parent come in order.
                let left = &mut self.counts[parent as usize];
                let end = self.first[batch as usize + 1];
                self.members[(end - *left) as usize] = at;
                *left -= 1;
            }
        }
    }
}

/// The `limit` most promising batches. Equal ones come in the walk order of a set.
fn ranked(forest: &Forest, siblings: &Siblings, limit: usize) -> Vec<Candidate> {
    let mut best = rank(forest, siblings, &[], limit);
    if best.windows(2).any(|pair| pair[0].key == pair[1].key) {
        let range = |&at: &u32| {
            let start = forest.start[at as usize];
            (start, start + forest.length[at as usize])
        };
        let singles =
            (forest.legal.iter()).map(|l| set_order::set_hash(std::iter::once(range(&l.at))));
        let batches = (0..siblings.len())
            .map(|batch| set_order::set_hash(siblings.members(batch).iter().map(range)));
        let hashes: Vec<u64> = singles.chain(batches).collect();
        best = rank(forest, siblings, &set_order::walk_ranks(&hashes), limit);
    }
    best.truncate(limit);
    best
}

/// The best `limit` candidates and one more, best first; `walk` gives their places in the walk, or
/// is empty. Keeping them by insertion saved 1.9% of "ownership" in `benches/instructions.py`.
fn rank(forest: &Forest, siblings: &Siblings, walk: &[u32], limit: usize) -> Vec<Candidate> {
    let walked = |index: usize| -walk.get(index).map_or(0, |&rank| i64::from(rank));
    let mut all: Vec<Candidate> = Vec::with_capacity(forest.legal.len() + siblings.len() as usize);
    for (index, legal) in forest.legal.iter().enumerate() {
        let mut key = key_of(forest, legal);
        key[5] = walked(index);
        let source = Source::Single(legal.at);
        all.push(Candidate { key, source });
    }
    for batch in 0..siblings.len() {
        let mut key = [0; 6];
        for &at in siblings.members(batch) {
            let one = key_of(forest, &forest.legal[forest.legal_at[at as usize] as usize]);
            let largest = key[2].max(one[2]);
            for (total, value) in key.iter_mut().zip(one) {
                *total += value;
            }
            key[2] = largest;
        }
        key[5] = walked(forest.legal.len() + batch as usize);
        let source = Source::Siblings(batch);
        all.push(Candidate { key, source });
    }
    let best_first = |a: &Candidate, b: &Candidate| b.key.cmp(&a.key);
    if all.len() > limit + 1 {
        all.select_nth_unstable_by(limit, best_first);
        all.truncate(limit + 1);
    }
    all.sort_unstable_by(best_first);
    all
}

/// How promising a segment is: relief, length, locality, what locality misses, size.
fn key_of(forest: &Forest, legal: &Legal) -> [i64; 6] {
    let at = legal.at as usize;
    let length = forest.length[at];
    let locality = forest.on_ranks(at).iter().copied().max().unwrap_or(0);
    [
        length - legal.longest,
        length,
        locality,
        locality - length,
        1,
        0,
    ]
}

/// Compares two sets of one size, given by ascending positions, as sorted lists of segments: that
/// with the least segment that the other lacks comes first.
fn compare_segments(forest: &Forest, left: &[u32], right: &[u32]) -> Ordering {
    if forest.in_order() {
        return left.cmp(right);
    }
    let least = |best: usize, at: u32| best.min(forest.segment(at as usize));
    let (mut ours, mut theirs) = (usize::MAX, usize::MAX);
    let (mut l, mut r) = (0, 0);
    while let (Some(&a), Some(&b)) = (left.get(l), right.get(r)) {
        match a.cmp(&b) {
            Ordering::Less => ours = least(ours, a),
            Ordering::Greater => theirs = least(theirs, b),
            Ordering::Equal => {}
        }
        l += usize::from(a <= b);
        r += usize::from(b <= a);
    }
    ours = left[l..].iter().fold(ours, |best, &at| least(best, at));
    theirs = right[r..].iter().fold(theirs, |best, &at| least(best, at));
    ours.cmp(&theirs)
}
