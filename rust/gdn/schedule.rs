//! The bucket schedule of gated-delta-net layers over a tree, and the states that they keep.
//!
//! The kernel runs one bucket after another; a bucket is a batch of columns, a column the tokens
//! of one segment. Roots with children run up to their last whole kernel chunk, and every child
//! replays the tail that is left, so that chunk borders fall where they would without sharing.

use super::{Gdn, KERNEL_CHUNK};
use crate::fields::result;
use crate::segments::Segments;

result! {
    /// Tokens that one pass of a gated-delta-net layer executes and keeps.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Schedule as "GdnSchedule" {
        /// Tokens that run through the kernel, replayed tails included.
        pub executed_tokens: i64,
        /// Gdn states kept: one per column, two in a bucket that hands states on.
        pub states: i64,
        /// Tokens of the output.
        pub packed_tokens: i64,
    }
    python {
        fn __eq__(&self, other: &Self) -> bool {
            self == other
        }
    }
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

    fn states(self) -> i64 {
        self.columns * if self.hands_on { 2 } else { 1 }
    }
}

/// The schedule of a whole pack on one rank.
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
        let own = match segments.parent(s) {
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
        executed = executed.saturating_add(own);
    }
    Schedule {
        executed_tokens: executed,
        states: roots.states() + buckets.iter().map(|b| b.states()).sum::<i64>(),
        packed_tokens: segments.tokens(),
    }
}

/// The schedule of each rank: the rule of one rank, over the segments and shards it holds.
///
/// A child replays the tail of its root only where both lie on one rank; a tail that no child
/// replays there runs with its root. Columns that hand states to another rank keep them too.
/// A rank that holds a whole pack has the schedule of [`gdn_schedule`].
#[must_use]
pub fn gdn_schedule_per_rank(segments: &Segments, gdn: &Gdn) -> Vec<Schedule> {
    let ranks = gdn.rank_tokens.len();
    let parents = has_children(segments);
    let depths = depths(segments);
    let levels = deepest(&depths) + 1;
    let pieces = Pieces::new(gdn);
    let replayed = replayed_tails(segments, &pieces);

    let mut schedules: Vec<Schedule> = (gdn.rank_tokens.iter())
        .map(|&packed_tokens| Schedule {
            packed_tokens,
            ..Schedule::default()
        })
        .collect();
    let mut roots = vec![Bucket::default(); ranks];
    let mut buckets = vec![Bucket::default(); ranks * levels];
    for s in 0..segments.len() {
        for (rank, piece) in pieces.of(s) {
            let length = pieces.length(segments, s, piece);
            let tail = length % KERNEL_CHUNK;
            let bucket = &mut buckets[rank * levels + depths[s] as usize];
            let own = match segments.parent(s) {
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
                    let at = pieces.at(parent, rank);
                    let replay = match (at, segments.parent(parent)) {
                        (Some(at), None) => pieces.length(segments, parent, at) % KERNEL_CHUNK,
                        _ => 0,
                    };
                    length.saturating_add(replay)
                }
            };
            let executed = &mut schedules[rank].executed_tokens;
            *executed = executed.saturating_add(own);
        }
    }
    for (rank, schedule) in schedules.iter_mut().enumerate() {
        let own = &buckets[rank * levels..(rank + 1) * levels];
        schedule.states = roots[rank].states() + own.iter().map(|b| b.states()).sum::<i64>();
    }
    schedules
}

/// The pieces of all segments one after another: one of an owned segment, C of a chained one.
struct Pieces<'a> {
    gdn: &'a Gdn,
    ranks: usize,
    /// Chained segments before each segment.
    before: Vec<usize>,
    count: usize,
}

impl<'a> Pieces<'a> {
    fn new(gdn: &'a Gdn) -> Self {
        let ranks = gdn.rank_tokens.len();
        let mut chained = 0;
        let before = (gdn.chained.iter())
            .map(|&here| {
                chained += usize::from(here);
                chained - usize::from(here)
            })
            .collect();
        Self {
            gdn,
            ranks,
            before,
            count: gdn.chained.len() + (ranks - 1) * chained,
        }
    }

    /// First piece of segment `s`.
    fn first(&self, s: usize) -> usize {
        s + (self.ranks - 1) * self.before[s]
    }

    /// (rank, piece) of each piece of segment `s`.
    fn of(&self, s: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (ranks, first) = if self.gdn.chained[s] {
            (0..self.ranks, self.first(s))
        } else {
            let owner = self.gdn.owner[s] as usize;
            (owner..owner + 1, self.first(s))
        };
        ranks.enumerate().map(move |(i, rank)| (rank, first + i))
    }

    /// The piece of segment `s` on `rank`, if there is one.
    fn at(&self, s: usize, rank: usize) -> Option<usize> {
        if self.gdn.chained[s] {
            Some(self.first(s) + rank)
        } else {
            (self.gdn.owner[s] as usize == rank).then(|| self.first(s))
        }
    }

    /// Tokens of a piece of segment `s`.
    fn length(&self, segments: &Segments, s: usize, piece: usize) -> i64 {
        if self.gdn.chained[s] {
            self.gdn.shards[self.before[s] * self.ranks + piece - self.first(s)]
        } else {
            segments.length(s)
        }
    }
}

/// Per piece of a root: whether a child on the same rank replays its tail.
fn replayed_tails(segments: &Segments, pieces: &Pieces<'_>) -> Vec<bool> {
    let mut replayed = vec![false; pieces.count];
    for s in 0..segments.len() {
        // Only roots leave tails to their children.
        let Some(parent) = (segments.parent(s)).filter(|&p| segments.parent(p).is_none()) else {
            continue;
        };
        for (rank, _) in pieces.of(s) {
            if let Some(at) = pieces.at(parent, rank) {
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
