//! The packing walk by its definition.

use super::tree::branches;

/// One packed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its sequences, in input order.
    pub sequences: Vec<usize>,
    /// First position in its sequences.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// Index of the parent.
    pub parent: Option<usize>,
}

struct Walk<'a> {
    sequences: &'a [Vec<i64>],
    limits: Vec<usize>,
    max_depth: usize,
    min_shared: usize,
    segments: Vec<Segment>,
}

/// Segments in packed order.
#[must_use]
pub fn pack(
    sequences: &[Vec<i64>],
    max_depth: Option<usize>,
    min_shared: i64,
    shareable: Option<&[i64]>,
) -> Vec<Segment> {
    let limit = |i: usize| match shareable {
        Some(limits) => limits[i].clamp(0, sequences[i].len() as i64) as usize,
        None => sequences[i].len(),
    };
    let mut walk = Walk {
        sequences,
        limits: (0..sequences.len()).map(limit).collect(),
        max_depth: max_depth.unwrap_or(sequences.len()),
        min_shared: usize::try_from(min_shared).unwrap_or(0).max(1),
        segments: Vec::new(),
    };
    walk.go((0..sequences.len()).collect(), 0, 0, None);
    walk.segments
}

impl Walk<'_> {
    fn emit(
        &mut self,
        sequences: Vec<usize>,
        start: usize,
        end: usize,
        parent: Option<usize>,
    ) -> usize {
        self.segments.push(Segment {
            sequences,
            start,
            end,
            parent,
        });
        self.segments.len() - 1
    }

    fn alone(&mut self, members: &[usize], start: usize, parent: Option<usize>) {
        for &i in members {
            self.emit(vec![i], start, self.sequences[i].len(), parent);
        }
    }

    /// Emits the members whose limit is at most `at` alone, from `start`; the others.
    fn limited(
        &mut self,
        members: Vec<usize>,
        at: usize,
        start: usize,
        parent: Option<usize>,
    ) -> Vec<usize> {
        let (limited, free): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|&i| self.limits[i] <= at);
        self.alone(&limited, start, parent);
        free
    }

    fn go(&mut self, members: Vec<usize>, start: usize, depth: usize, parent: Option<usize>) {
        let longer = members
            .into_iter()
            .filter(|&i| self.sequences[i].len() > start);
        let members = self.limited(longer.collect(), start, start, parent);
        let capped = self.max_depth == 0 || (parent.is_some() && depth >= self.max_depth);
        if members.len() <= 1 || capped {
            self.alone(&members, start, parent);
            return;
        }
        let shortest = members.iter().map(|&i| self.limits[i]).min().unwrap_or(0);
        let mut end = start;
        while end < shortest
            && members
                .iter()
                .all(|&i| self.sequences[i][end] == self.sequences[members[0]][end])
        {
            end += 1;
        }
        if end > start && end - start >= self.min_shared {
            let shared = self.emit(members.clone(), start, end, parent);
            self.go(members, end, depth + 1, Some(shared));
            return;
        }
        let members = if end > start {
            self.limited(members, end, start, parent)
        } else {
            members
        };
        for branch in branches(self.sequences, members, end) {
            self.go(branch, start, depth, parent);
        }
    }
}
