//! Head rows: how many packed rows the output head projects.
//!
//! A labelled row that several requests share is projected once. Counting works on intervals
//! of positions over the segments that a layout stores once, never on single positions: a
//! request's intervals are cut at the end of its deepest shared segment, what lies behind is
//! its own, what lies before joins the union of that segment, and unions are cut again at each
//! shared ancestor on the way to the root.

use crate::measures::Pool;
use crate::segments::NONE;
use crate::tree::Tree;

/// Reusable memory of [`union`].
#[derive(Debug, Clone, Default)]
pub struct HeadWork {
    /// Per segment: itself if shared, else its nearest shared ancestor.
    holder: Vec<u32>,
    /// Per segment: one interval of its union; empty while its end is 0.
    first: Vec<(i64, i64)>,
    /// Per segment: further intervals, a list in `more`.
    rest: Vec<u32>,
    /// Interval and the next entry of the same list.
    more: Vec<(i64, i64, u32)>,
    merged: Vec<(i64, i64)>,
}

impl HeadWork {
    fn prepare(&mut self, tree: &Tree, shared: &[bool]) {
        let segments = tree.parent.len();
        self.holder.clear();
        self.holder.reserve(segments);
        for (s, (&parent, &stored)) in tree.parent.iter().zip(shared).enumerate() {
            self.holder.push(if stored {
                s as u32
            } else if parent == NONE {
                NONE
            } else {
                self.holder[parent as usize]
            });
        }
        self.first.clear();
        self.first.resize(segments, (0, 0));
        self.rest.clear();
        self.rest.resize(segments, NONE);
        self.more.clear();
    }

    /// Joins a non-empty interval to the union of segment `s`.
    #[inline]
    fn join(&mut self, s: usize, low: i64, high: i64) {
        let first = &mut self.first[s];
        if first.1 == 0 {
            *first = (low, high);
        } else if low <= first.1 && high >= first.0 {
            *first = (first.0.min(low), first.1.max(high));
        } else {
            let next = self.rest[s];
            self.rest[s] = self.more.len() as u32;
            self.more.push((low, high, next));
        }
    }

    /// Rows of the interval at or behind `end`; what lies before joins the union of `below`.
    #[inline]
    fn cut(&mut self, (low, high): (i64, i64), end: i64, below: u32) -> i64 {
        if low >= end {
            return high - low;
        }
        self.join(below as usize, low, high.min(end));
        (high - end).max(0)
    }

    /// Rows of the union of shared segment `s`; the part before it goes to `below`.
    fn settle(&mut self, s: usize, end: i64, below: u32) -> i64 {
        let first = self.first[s];
        if first.1 == 0 {
            return 0;
        }
        if self.rest[s] == NONE {
            return self.cut(first, end, below);
        }
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        merged.push(first);
        let mut at = self.rest[s];
        while at != NONE {
            let (low, high, next) = self.more[at as usize];
            merged.push((low, high));
            at = next;
        }
        merged.sort_unstable();
        let mut rows = 0;
        let mut open = merged[0];
        for &(low, high) in &merged[1..] {
            if low <= open.1 {
                open.1 = open.1.max(high);
            } else {
                rows += self.cut(open, end, below);
                open = (low, high);
            }
        }
        rows += self.cut(open, end, below);
        self.merged = merged;
        rows
    }
}

/// Packed rows that the head projects for `requests`, under the layout that stores the
/// segments marked in `shared` once. Row `i` of the tree is `requests[i]`.
#[must_use]
pub fn union(
    pool: &Pool,
    requests: &[u32],
    tree: &Tree,
    shared: &[bool],
    work: &mut HeadWork,
) -> i64 {
    work.prepare(tree, shared);
    let end_of = |s: u32| if s == NONE { 0 } else { tree.end[s as usize] };
    let mut rows = 0;
    for (&request, &terminal) in requests.iter().zip(&tree.terminal) {
        if terminal == NONE {
            continue;
        }
        let r = request as usize;
        let below = work.holder[terminal as usize];
        let end = end_of(below);
        if pool.whole_row(r) {
            rows += work.cut((0, pool.lengths[r]), end, below);
        } else {
            for &run in pool.runs(r) {
                rows += work.cut(run, end, below);
            }
        }
    }
    for s in (0..tree.parent.len()).rev() {
        if shared[s] {
            let parent = tree.parent[s];
            let below = if parent == NONE {
                NONE
            } else {
                work.holder[parent as usize]
            };
            rows += work.settle(s, end_of(below), below);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::interrupt::Ticker;
    use crate::measures::pool::tests::plain_pool;
    use crate::rows::Rows;

    /// Rows 0 and 1 share 10 tokens, of which 4 are all that row 2 has in common with them.
    fn tree() -> Tree {
        Tree {
            parent: vec![NONE, 0, 1, 1, 0],
            start: vec![0, 4, 10, 10, 4],
            end: vec![4, 10, 15, 12, 9],
            depth: vec![1, 2, 3, 3, 2],
            subtree: vec![5, 4, 3, 4, 5],
            count: vec![3, 2, 1, 1, 1],
            first_row: vec![0, 0, 0, 1, 2],
            terminal: vec![2, 3, 4],
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
        let rows = union(&pool, &[0, 1, 2], &tree(), &full, &mut work);
        assert_eq!(rows, 4 + 4 + 3);
    }

    /// The same count with a set of packed positions.
    fn naive(pool: &Pool, requests: &[u32], tree: &Tree, shared: &[bool]) -> i64 {
        let mut stored = HashSet::new();
        for (row, &request) in requests.iter().enumerate() {
            let r = request as usize;
            let mut wanted: Vec<i64> = pool.runs(r).iter().flat_map(|run| run.0..run.1).collect();
            if pool.whole_row(r) {
                wanted = (0..pool.lengths[r]).collect();
            }
            for position in wanted {
                let mut place = (NONE, row, position);
                let mut at = tree.terminal[row];
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
        #[test]
        fn union_equals_a_set_of_positions(
            rows in vec(vec(0_i64..2, 0..12), 1..9),
            masks in vec(any::<u16>(), 9),
            whole in vec(0_u8..6, 9),
            sharing in vec(any::<bool>(), 64),
            keep in vec(any::<bool>(), 9),
        ) {
            let tokens: Vec<i64> = rows.concat();
            let mut offsets = vec![0];
            offsets.extend(rows.iter().scan(0, |at, row| { *at += row.len() as i64; Some(*at) }));
            let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
            let mut pool = plain_pool(&lengths, &lengths);
            pool.run_offsets = vec![0];
            for (row, mask) in rows.iter().zip(&masks) {
                let mask: Vec<bool> = (0..row.len()).map(|i| mask >> i & 1 == 1).collect();
                crate::measures::pool::runs_of(&mask, &mut pool.runs);
                pool.run_offsets.push(pool.runs.len() as u32);
            }
            for (logits, &draw) in pool.logits.iter_mut().zip(&whole) {
                *logits = draw == 0;
            }
            let tree = Tree::build(&Rows::new(&tokens, &offsets).unwrap(), &mut Ticker::new()).unwrap();
            let picked: Vec<u32> = (0..rows.len() as u32).filter(|&r| keep[r as usize]).collect();
            let tree = tree.restrict(&picked);
            let shared: Vec<bool> = (0..tree.len()).map(|s| tree.is_decision(s) && sharing[s]).collect();
            let mut work = HeadWork::default();
            let expected = naive(&pool, &picked, &tree, &shared);
            for _ in 0..2 {
                prop_assert_eq!(union(&pool, &picked, &tree, &shared, &mut work), expected);
            }
        }
    }
}
