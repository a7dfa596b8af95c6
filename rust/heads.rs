//! Counts the tokens that the output head projects.
//!
//! A labelled token that several requests share is projected once. Counting works on intervals
//! of positions over the segments that a layout stores once. A request's intervals are cut at
//! the end of its deepest shared segment: the part after it is its own, the part before joins
//! the union of a shared segment. As long as that union is one interval it stays one, and is
//! cut again at each shared ancestor on the way to the root; intervals apart from it are
//! marked in a bit map of the segment that stores them.

use crate::measures::Requests;
use crate::segments::NONE;
use crate::tree::Tree;

/// Reusable memory of [`union`].
#[derive(Debug, Clone, Default)]
pub struct HeadWork {
    /// Per segment: itself if shared, else its nearest shared ancestor.
    holder: Vec<u32>,
    /// Per segment: one interval of its union; empty while its end is 0.
    span: Vec<(i64, i64)>,
    /// Per segment: where its bit map begins in `words`, [`NONE`] without one.
    map: Vec<u32>,
    /// Bit maps; bit 0 of a map is the segment's first stored position.
    words: Vec<u64>,
}

/// The segments that a layout stores once.
struct Stored<'a> {
    tree: &'a Tree,
    holder: &'a [u32],
}

impl Stored<'_> {
    /// One past the last position that `holder` and its shared ancestors store.
    #[inline]
    fn end(&self, holder: u32) -> i64 {
        if holder == NONE {
            0
        } else {
            self.tree.end[holder as usize]
        }
    }

    /// The next shared segment on the way to the root.
    #[inline]
    fn above(&self, segment: u32) -> u32 {
        match self.tree.parent[segment as usize] {
            NONE => NONE,
            parent => self.holder[parent as usize],
        }
    }
}

/// Unions of the stored segments.
struct Unions<'a> {
    span: &'a mut [(i64, i64)],
    map: &'a mut [u32],
    words: &'a mut Vec<u64>,
}

impl Unions<'_> {
    /// Joins a non-empty interval that ends within `segment` to its union.
    #[inline]
    fn join(&mut self, stored: &Stored<'_>, segment: u32, low: i64, high: i64) {
        let span = &mut self.span[segment as usize];
        if span.1 == 0 {
            *span = (low, high);
        } else if low <= span.1 && high >= span.0 {
            *span = (span.0.min(low), span.1.max(high));
        } else {
            self.mark(stored, segment, low, high);
        }
    }

    /// Marks an interval in the maps of `segment` and the shared segments above it; returns
    /// the last of them.
    fn mark(&mut self, stored: &Stored<'_>, segment: u32, low: i64, mut high: i64) -> u32 {
        let mut at = segment;
        let mut above = stored.above(at);
        loop {
            let first = stored.end(above);
            if high > first {
                let from = low.max(first);
                self.set(stored, at, first, from, high);
                high = from;
            }
            if low >= high {
                return at;
            }
            at = above;
            above = stored.above(at);
        }
    }

    /// Sets the bits of `from..to` in the map of `segment`, whose first position is `first`.
    fn set(&mut self, stored: &Stored<'_>, segment: u32, first: i64, from: i64, to: i64) {
        let map = &mut self.map[segment as usize];
        if *map == NONE {
            *map = self.words.len() as u32;
            let bits = (stored.end(segment) - first) as usize;
            self.words.resize(self.words.len() + bits.div_ceil(64), 0);
        }
        let words = &mut self.words[*map as usize..];
        let (from, last) = ((from - first) as usize, (to - first - 1) as usize);
        let head = !0 << (from % 64);
        let tail = !0 >> (63 - last % 64);
        if from / 64 == last / 64 {
            words[from / 64] |= head & tail;
        } else {
            words[from / 64] |= head;
            words[from / 64 + 1..last / 64].fill(!0);
            words[last / 64] |= tail;
        }
    }

    /// Tokens of a request whose deepest shared segment is `deepest`: those after it; the
    /// others join its union and those above.
    fn spread(&mut self, stored: &Stored<'_>, runs: &[(i64, i64)], deepest: u32) -> i64 {
        let end = stored.end(deepest);
        let mut own = 0;
        let mut at = deepest;
        for &(low, high) in runs.iter().rev() {
            own += (high - low.max(end)).max(0);
            if low < end {
                at = self.mark(stored, at, low, high.min(end));
            }
        }
        own
    }

    /// Tokens of the union of `segment`; its part before the segment joins the next one above.
    fn settle(&mut self, stored: &Stored<'_>, segment: u32) -> i64 {
        let (low, high) = self.span[segment as usize];
        let above = stored.above(segment);
        let first = stored.end(above);
        if low < first && high > 0 {
            self.join(stored, above, low, high.min(first));
        }
        let low = low.max(first);
        let map = self.map[segment as usize];
        if map == NONE {
            return (high - low).max(0);
        }
        if high > low {
            self.set(stored, segment, first, low, high);
        }
        let bits = (stored.end(segment) - first) as usize;
        let words = &self.words[map as usize..][..bits.div_ceil(64)];
        words.iter().map(|word| i64::from(word.count_ones())).sum()
    }
}

/// Packed tokens that the head projects for `requests`, under the layout that stores the
/// segments marked in `shared` once. Sequence `i` of the tree is `requests[i]`.
#[must_use]
pub fn union(
    pool: &Requests,
    requests: &[u32],
    tree: &Tree,
    shared: &[bool],
    work: &mut HeadWork,
) -> i64 {
    let segments = tree.len();
    work.holder.clear();
    for (s, (&parent, &stored)) in tree.parent.iter().zip(shared).enumerate() {
        let holder = match parent {
            _ if stored => s as u32,
            NONE => NONE,
            parent => work.holder[parent as usize],
        };
        work.holder.push(holder);
    }
    work.span.clear();
    work.span.resize(segments, (0, 0));
    work.map.clear();
    work.map.resize(segments, NONE);
    work.words.clear();
    let stored = Stored {
        tree,
        holder: &work.holder,
    };
    let mut unions = Unions {
        span: &mut work.span,
        map: &mut work.map,
        words: &mut work.words,
    };
    let mut tokens = 0;
    for (&request, &terminal) in requests.iter().zip(&tree.terminal) {
        if terminal == NONE {
            continue;
        }
        let r = request as usize;
        let deepest = work.holder[terminal as usize];
        let whole = [(0, tree.end[terminal as usize])];
        let runs = if pool.whole(r) { &whole } else { pool.runs(r) };
        if let &[(low, high)] = runs {
            let end = stored.end(deepest);
            tokens += (high - low.max(end)).max(0);
            if low < end {
                unions.join(&stored, deepest, low, high.min(end));
            }
        } else {
            tokens += unions.spread(&stored, runs, deepest);
        }
    }
    for s in (0..segments).rev() {
        if shared[s] {
            tokens += unions.settle(&stored, s as u32);
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec as list;
    use proptest::prelude::*;

    use super::*;
    use crate::measures::requests::tests::plain_pool;
    use crate::sequences::Sequences;

    /// Sequences 0 and 1 share 10 tokens, of which 4 are all that sequence 2 has in common with them.
    fn tree() -> Tree {
        Tree {
            parent: vec![NONE, 0, 1, 1, 0],
            start: vec![0, 4, 10, 10, 4],
            end: vec![4, 10, 15, 12, 9],
            depth: vec![1, 2, 3, 3, 2],
            subtree: vec![5, 4, 3, 4, 5],
            count: vec![3, 2, 1, 1, 1],
            first_sequence: vec![0, 0, 0, 1, 2],
            terminal: vec![2, 3, 4],
            padding: 0,
        }
    }

    #[test]
    fn shared_rows_count_once() {
        let mut work = HeadWork::default();
        let full = [true, true, false, false, false];
        let none = [false; 5];
        let deep = [false, true, false, false, false];
        let mut count = |first: &[i64], shared: &[bool]| {
            union(
                &plain_pool(&[15, 12, 9], first),
                &[0, 1, 2],
                &tree(),
                shared,
                &mut work,
            )
        };
        assert_eq!(count(&[0, 0, 0], &none), 36);
        assert_eq!(count(&[0, 0, 0], &full), 10 + 5 + 2 + 5);
        assert_eq!(count(&[0, 0, 0], &deep), 10 + 5 + 2 + 9);
        assert_eq!(count(&[12, 11, 9], &full), 3 + 1);
        assert_eq!(count(&[9, 5, 2], &full), 5 + 5 + 2 + 2 + 5);
        assert_eq!(count(&[15, 2, 3], &full), 2 + 6 + 2 + 5);
    }

    #[test]
    fn apart_intervals_merge_at_the_segment() {
        let mut pool = plain_pool(&[15, 12, 9], &[0, 0, 0]);
        pool.runs = vec![(0, 2), (6, 8), (13, 14), (1, 3), (5, 7), (9, 11), (3, 5)];
        pool.run_offsets = vec![0, 3, 6, 7];
        let mut work = HeadWork::default();
        let full = [true, true, false, false, false];
        // 0..4: 0..3 and 3; 4..10: 5..8 and 9; tails: 13, 10, 4
        let tokens = union(&pool, &[0, 1, 2], &tree(), &full, &mut work);
        assert_eq!(tokens, 4 + 4 + 3);
    }

    /// The same count with a set of packed positions.
    fn naive(pool: &Requests, requests: &[u32], tree: &Tree, shared: &[bool]) -> i64 {
        let mut stored = HashSet::new();
        for (sequence, &request) in requests.iter().enumerate() {
            let r = request as usize;
            let mut wanted: Vec<i64> = pool.runs(r).iter().flat_map(|run| run.0..run.1).collect();
            if pool.whole(r) {
                wanted = (0..pool.lengths[r]).collect();
            }
            for position in wanted {
                let mut place = (NONE, sequence, position);
                let mut at = tree.terminal[sequence];
                while at != NONE {
                    let s = at as usize;
                    if shared[s] && position < tree.end[s] {
                        let below = (0..s).rev().find(|&p| {
                            shared[p] && (s as u32) < tree.subtree[p] && position < tree.end[p]
                        });
                        if below.is_none() {
                            place = (at, 0, position);
                        }
                    }
                    at = tree.parent[s];
                }
                stored.insert(place);
            }
        }
        stored.len() as i64
    }

    proptest! {
        #![proptest_config(crate::testing::cases(256))]

        #[test]
        fn union_equals_a_set_of_positions(
            sequences in list(list(0_i64..2, 0..12), 1..9),
            masks in list(any::<u16>(), 9),
            whole in list(0_u8..6, 9),
            sharing in list(any::<bool>(), 64),
            keep in list(any::<bool>(), 9),
            repeat in prop_oneof![Just(1), Just(23), Just(64), Just(100)],
        ) {
            let sequences: Vec<Vec<i64>> = (sequences.iter())
                .map(|sequence| sequence.iter().flat_map(|&token| vec![token; repeat]).collect())
                .collect();
            let tokens: Vec<i64> = sequences.concat();
            let mut offsets = vec![0];
            offsets.extend(sequences.iter().scan(0, |at, sequence| { *at += sequence.len() as i64; Some(*at) }));
            let lengths: Vec<i64> = sequences.iter().map(|sequence| sequence.len() as i64).collect();
            let mut pool = plain_pool(&lengths, &lengths);
            pool.run_offsets = vec![0];
            for (sequence, mask) in sequences.iter().zip(&masks) {
                let mask: Vec<bool> = (0..sequence.len())
                    .map(|i| mask >> (i * 16 / sequence.len().max(1)) & 1 == 1)
                    .collect();
                crate::measures::requests::runs_of(&mask, |&set| set, &mut pool.runs).unwrap();
                pool.run_offsets.push(pool.runs.len() as u32);
            }
            for (logits, &draw) in pool.logits.iter_mut().zip(&whole) {
                *logits = draw == 0;
            }
            let tree = Tree::build(&Sequences::new(&tokens, &offsets).unwrap()).unwrap();
            let picked: Vec<u32> = (0..sequences.len() as u32).filter(|&r| keep[r as usize]).collect();
            let tree = tree.restrict(&picked).unwrap();
            let shared: Vec<bool> = (0..tree.len()).map(|s| tree.is_decision(s) && sharing[s]).collect();
            let mut work = HeadWork::default();
            let expected = naive(&pool, &picked, &tree, &shared);
            for _ in 0..2 {
                prop_assert_eq!(union(&pool, &picked, &tree, &shared, &mut work), expected);
            }
        }
    }
}
