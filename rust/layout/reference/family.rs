//! The mandatory family: sharing by depth and by span, whatever the score.

use rustc_hash::FxHashSet;

use super::bits::{Arena, Keys, Set};
use super::spans::Spans;
use crate::cancel;
use crate::error::Result;
use crate::layout::{Forest, Measures};

/// The policies that give one set of decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// Nothing is shared.
    None,
    /// Decisions down to this depth, 1 at a root.
    Depth(u32),
    /// Decisions whose span from their nearest chosen ancestor is at least so many tokens, for
    /// every number in this range; the end is open for the set without decisions.
    Span(i64, Option<i64>),
    /// Everything is shared.
    Full,
    /// The smallest member of the family that saves so many percent of what full sharing saves.
    Saves(i64),
}

/// One member of the family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) set: Set,
    pub(super) measures: Measures,
}

/// All members, each once.
pub(super) fn family(forest: &Forest, keys: &Keys, arena: &mut Arena) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    let mut seen = FxHashSet::default();
    let mut push = |words: &[u64], hash: u128, measures: Measures, arena: &mut Arena| {
        if seen.insert(hash) {
            let set = arena.push(words, hash);
            members.push(Member { set, measures });
        }
    };
    let mut walk = Walk::new(forest);
    let deepest = forest.depth.iter().copied().max().unwrap_or(0);
    for depth in 0..=deepest {
        cancel::check()?;
        walk.run(|i, _| forest.depth[i] <= depth);
        push(&walk.words, keys.hash(&walk.words), walk.measures, arena);
    }
    let mut spans = Spans::new(forest, keys);
    loop {
        push(&spans.words, spans.hash, spans.measures(), arena);
        if !spans.next()? {
            return Ok(members);
        }
    }
}

/// The labels of a set, none if it is no member. `members` is the whole family.
pub(super) fn labels(
    forest: &Forest,
    chosen: &[bool],
    members: &[Member],
    arena: &Arena,
    keys: &Keys,
) -> Vec<Label> {
    let mut out = Vec::new();
    let mut walk = Walk::new(forest);
    walk.run(|i, _| chosen[i]);
    let hash = keys.hash(&walk.words);
    let number = walk.measures.chosen as usize;
    if number == 0 {
        out.push(Label::None);
    }
    out.extend(uniform(forest, chosen).map(Label::Depth));
    let from = walk.longest_unchosen + 1;
    if walk.shortest_chosen.is_none_or(|span| from <= span) {
        out.push(Label::Span(from, walk.shortest_chosen));
    }
    if number == forest.len() {
        out.push(Label::Full);
    }
    let least = members.iter().map(|m| m.measures.tokens).min();
    let most = forest.unshared_tokens - least.unwrap_or(forest.unshared_tokens);
    for percent in [90, 95, 99] {
        let saves = |m: &&Member| {
            let saved = forest.unshared_tokens - m.measures.tokens;
            most == 0 || saved * 100 >= most * percent
        };
        let winner = members.iter().filter(saves).min_by(|a, b| {
            let key = |m: &Member| {
                let m = &m.measures;
                (m.chosen, m.depth, m.segments, m.tokens)
            };
            key(a)
                .cmp(&key(b))
                .then_with(|| arena.compare(a.set, b.set))
        });
        if winner.is_some_and(|w| w.set.hash == hash) {
            out.push(Label::Saves(percent));
        }
    }
    out
}

/// The depth down to which exactly everything is chosen.
fn uniform(forest: &Forest, chosen: &[bool]) -> Option<u32> {
    let deepest = |wanted: bool| {
        let of = (0..chosen.len()).filter(move |&i| chosen[i] == wanted);
        of.map(|i| forest.depth[i])
    };
    let down = deepest(true).max().unwrap_or(0);
    deepest(false)
        .min()
        .is_none_or(|up| up > down)
        .then_some(down)
}

/// True if the set belongs to the family: uniform in depth, or every chosen span is longer than
/// every span that was passed over.
pub(in crate::layout) fn is_member(forest: &Forest, chosen: &[bool]) -> bool {
    if uniform(forest, chosen).is_some() {
        return true;
    }
    let mut walk = Walk::new(forest);
    walk.run(|i, _| chosen[i]);
    walk.shortest_chosen
        .is_none_or(|span| walk.longest_unchosen < span)
}

/// One pass over the decisions, parents first.
struct Walk<'a> {
    forest: &'a Forest,
    /// End of the nearest chosen decision at or above each, and how many are chosen.
    below: Vec<(i64, i64)>,
    words: Vec<u64>,
    measures: Measures,
    shortest_chosen: Option<i64>,
    longest_unchosen: i64,
}

impl<'a> Walk<'a> {
    fn new(forest: &'a Forest) -> Self {
        Self {
            forest,
            below: vec![(0, 0); forest.len()],
            words: vec![0; forest.len().div_ceil(64)],
            measures: Measures::default(),
            shortest_chosen: None,
            longest_unchosen: 0,
        }
    }

    /// Chooses by `(decision, span)`.
    fn run(&mut self, mut choose: impl FnMut(usize, i64) -> bool) {
        let forest = self.forest;
        self.words.fill(0);
        let mut m = forest.lone_measures();
        let (mut shortest, mut longest) = (i64::MAX, 0);
        for i in 0..forest.len() {
            let (from, depth) = forest.above(i).map_or((0, 0), |p| self.below[p]);
            let end = forest.end[i];
            let chosen = choose(i, end - from);
            forest.contribute(i, chosen, from, depth, &mut m);
            if chosen {
                self.words[i / 64] |= 1 << (i % 64);
                shortest = shortest.min(end - from);
                self.below[i] = (end, depth + 1);
            } else {
                longest = longest.max(end - from);
                self.below[i] = (from, depth);
            }
        }
        self.measures = m;
        self.shortest_chosen = (m.chosen > 0).then_some(shortest);
        self.longest_unchosen = longest;
    }
}
