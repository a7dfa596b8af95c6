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
    use super::*;
    use crate::measures::pool::tests::plain_pool;

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
}
