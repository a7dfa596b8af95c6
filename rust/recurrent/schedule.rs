//! How gated-delta-net layers execute a tree: buckets of columns, and what they keep.
//!
//! The kernel runs one bucket after another; a bucket is a batch of columns, a column the rows
//! of one segment. Roots with children run up to their last whole kernel chunk, and every child
//! replays the tail that is left, so that chunk borders fall where they would without sharing.

use super::{KERNEL_CHUNK, Recurrent};
use crate::segments::Segments;

/// What one pass of a gated-delta-net layer executes and keeps, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Rows that run through the kernel, replayed tails included.
    pub executed_rows: i64,
    /// Recurrent states kept: one per column, two in a bucket that hands states on.
    pub state_rows: i64,
    /// Rows of the output.
    pub packed_rows: i64,
}

/// The columns of one bucket so far.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    columns: i64,
    hands_on: bool,
}

impl Bucket {
    fn add(&mut self, hands_on: bool) {
        self.columns += 1;
        self.hands_on |= hands_on;
    }

    fn state_rows(self) -> i64 {
        self.columns * if self.hands_on { 2 } else { 1 }
    }
}

/// The schedule of a whole packed row on one rank.
///
/// Counts beyond 63 bits stay at the largest value, where any price overflows.
#[must_use]
pub fn gdn_schedule(segments: &Segments) -> Schedule {
    let parents = has_children(segments);
    let depths = depths(segments);
    let mut buckets = vec![Bucket::default(); deepest(&depths) + 1];
    let mut roots = Bucket::default(); // with children, at least one whole chunk
    let mut executed = 0_i64;
    for s in 0..segments.len() {
        let length = segments.length(s);
        let rows = match segments.parent(s) {
            None if parents[s] => {
                if length >= KERNEL_CHUNK {
                    roots.add(true);
                }
                length - length % KERNEL_CHUNK
            }
            None => {
                buckets[0].add(false);
                length
            }
            Some(parent) => {
                buckets[depths[s] as usize].add(parents[s]);
                let replayed = match segments.parent(parent) {
                    None => segments.length(parent) % KERNEL_CHUNK,
                    Some(_) => 0,
                };
                length.saturating_add(replayed)
            }
        };
        executed = executed.saturating_add(rows);
    }
    Schedule {
        executed_rows: executed,
        state_rows: roots.state_rows() + buckets.iter().map(|b| b.state_rows()).sum::<i64>(),
        packed_rows: segments.tokens(),
    }
}

/// The schedule of each rank: the rule of one rank, over the segments and shards it holds.
///
/// A child replays the tail of its root only where both lie on one rank; a tail that no child
/// replays there runs with its root. Columns that hand states to another rank keep them too.
/// A rank that holds a whole row has the schedule of [`gdn_schedule`].
#[must_use]
pub fn gdn_schedule_per_rank(segments: &Segments, recurrent: &Recurrent) -> Vec<Schedule> {
    let ranks = recurrent.rank_tokens.len();
    let parents = has_children(segments);
    let depths = depths(segments);
    let levels = deepest(&depths) + 1;
    let pieces = Pieces::new(recurrent, ranks);
    let replayed = replayed_tails(segments, recurrent, &pieces);

    let mut schedules: Vec<Schedule> = (recurrent.rank_tokens.iter())
        .map(|&packed_rows| Schedule {
            packed_rows,
            ..Schedule::default()
        })
        .collect();
    let mut roots = vec![Bucket::default(); ranks];
    let mut buckets = vec![Bucket::default(); ranks * levels];
    for s in 0..segments.len() {
        for (rank, piece) in pieces.of(recurrent, s) {
            let length = pieces.length(segments, recurrent, s, piece);
            let tail = length % KERNEL_CHUNK;
            let bucket = &mut buckets[rank * levels + depths[s] as usize];
            let rows = match segments.parent(s) {
                None if parents[s] => {
                    let stays = if replayed[piece] {
                        length - tail
                    } else {
                        length
                    };
                    if stays > 0 {
                        roots[rank].add(true);
                    }
                    stays
                }
                None => {
                    bucket.add(false);
                    length
                }
                Some(parent) => {
                    bucket.add(parents[s]);
                    let at = pieces.at(recurrent, parent, rank);
                    let replay = match (at, segments.parent(parent)) {
                        (Some(at), None) => {
                            pieces.length(segments, recurrent, parent, at) % KERNEL_CHUNK
                        }
                        _ => 0,
                    };
                    length.saturating_add(replay)
                }
            };
            let executed = &mut schedules[rank].executed_rows;
            *executed = executed.saturating_add(rows);
        }
    }
    for (rank, schedule) in schedules.iter_mut().enumerate() {
        let own = &buckets[rank * levels..(rank + 1) * levels];
        schedule.state_rows =
            roots[rank].state_rows() + own.iter().map(|b| b.state_rows()).sum::<i64>();
    }
    schedules
}

/// The pieces of all segments in one sequence: one of an owned segment, C of a chained one.
struct Pieces {
    ranks: usize,
    /// First piece of each segment.
    first: Vec<usize>,
    /// Minus the first shard: `shards[piece + shift]` of a chained segment.
    shard: Vec<usize>,
    count: usize,
}

impl Pieces {
    fn new(recurrent: &Recurrent, ranks: usize) -> Self {
        let (mut first, mut shard) = (Vec::new(), Vec::new());
        let (mut count, mut shards) = (0, 0);
        for &chained in &recurrent.chained {
            first.push(count);
            shard.push(shards);
            count += if chained { ranks } else { 1 };
            shards += if chained { ranks } else { 0 };
        }
        Self {
            ranks,
            first,
            shard,
            count,
        }
    }

    /// (rank, piece) of each piece of segment `s`.
    fn of<'a>(
        &'a self,
        recurrent: &'a Recurrent,
        s: usize,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        let chained = recurrent.chained[s];
        let count = if chained { self.ranks } else { 1 };
        (0..count).map(move |i| {
            let rank = if chained {
                i
            } else {
                recurrent.owner[s] as usize
            };
            (rank, self.first[s] + i)
        })
    }

    /// The piece of segment `s` on `rank`, if there is one.
    fn at(&self, recurrent: &Recurrent, s: usize, rank: usize) -> Option<usize> {
        if recurrent.chained[s] {
            Some(self.first[s] + rank)
        } else {
            (recurrent.owner[s] as usize == rank).then_some(self.first[s])
        }
    }

    /// Tokens of a piece of segment `s`.
    fn length(&self, segments: &Segments, recurrent: &Recurrent, s: usize, piece: usize) -> i64 {
        if recurrent.chained[s] {
            recurrent.shards[self.shard[s] + piece - self.first[s]]
        } else {
            segments.length(s)
        }
    }
}

/// Per piece of a root: whether a child on the same rank replays its tail.
fn replayed_tails(segments: &Segments, recurrent: &Recurrent, pieces: &Pieces) -> Vec<bool> {
    let mut replayed = vec![false; pieces.count];
    for s in 0..segments.len() {
        let Some(parent) = segments.parent(s) else {
            continue;
        };
        for (rank, _) in pieces.of(recurrent, s) {
            if let Some(at) = pieces.at(recurrent, parent, rank) {
                replayed[at] = true;
            }
        }
    }
    replayed
}

/// Whether each segment has children.
fn has_children(segments: &Segments) -> Vec<bool> {
    let mut has = vec![false; segments.len()];
    for s in 0..segments.len() {
        if let Some(parent) = segments.parent(s) {
            has[parent] = true;
        }
    }
    has
}

/// Depth of each segment, 0 at a root.
fn depths(segments: &Segments) -> Vec<u32> {
    let mut depths = vec![0; segments.len()];
    for s in 0..segments.len() {
        if let Some(parent) = segments.parent(s) {
            depths[s] = depths[parent] + 1;
        }
    }
    depths
}

fn deepest(depths: &[u32]) -> usize {
    depths.iter().copied().max().unwrap_or(0) as usize
}
