//! Places a forest on ranks for a given set of chained segments, and scores the placement.

use super::GdnSettings;
use super::forest::{Forest, Level, refill};
use crate::segments::NONE;

/// Longest segment and number of segments at one depth.
#[derive(Debug, Clone, Copy, Default)]
struct Padded {
    longest: i64,
    count: i64,
}

impl Padded {
    fn add(&mut self, longest: i64, count: i64) {
        self.longest = self.longest.max(longest);
        self.count += count;
    }

    /// Tokens of the bucket: every column is as long as the longest.
    fn work(self) -> i64 {
        self.longest * self.count
    }
}

/// A placement under construction, and the last one finished.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Tokens per rank.
    pub(super) tokens: Vec<i64>,
    /// Tokens that change rank.
    pub(super) cross: i64,
    /// Owner per position, `NONE` where chained. After [`Loads::score`] only the entries that
    /// children looked at are set, after [`Loads::record`] all.
    pub(super) owner: Vec<u32>,
    /// States handed to a child that another rank, or all ranks, run.
    handed: i64,
    /// Per depth and rank, the owned segments.
    local: Vec<Padded>,
    /// Per depth and rank, the longest shard of the chained segments.
    chain: Vec<i64>,
    /// Chained segments per depth.
    chain_count: Vec<i64>,
    /// Per rank, while scoring.
    sums: Vec<RankWork>,
}

/// The work of one rank.
#[derive(Debug, Clone, Copy, Default)]
struct RankWork {
    local: i64,
    buckets: i64,
    segments: i64,
    chain: i64,
}

impl GdnSettings {
    /// Milliseconds to move `cross` tokens between the layouts.
    pub(super) fn exchange_ms(&self, cross: i64) -> f64 {
        if cross <= 0 {
            return 0.0;
        }
        (cross * self.hidden_bytes * self.exchanges) as f64 / self.exchange_bandwidth
    }

    /// Milliseconds that chaining adds to every rank, `buckets` depths with chained segments.
    fn chain_ms(&self, buckets: i64, segments: i64) -> f64 {
        if buckets == 0 {
            return 0.0;
        }
        let bytes = segments * self.summary_bytes * self.summary_exchanges;
        buckets as f64 * self.chain_bucket_ms
            + bytes as f64 / self.summary_bandwidth
            + segments as f64 / self.summary_rate
            + buckets as f64 * self.scan_bucket_ms
            + segments as f64 / self.scan_rate
    }

    /// Milliseconds of one rank's own work.
    fn rank_ms(&self, work: RankWork, tokens: i64) -> f64 {
        (work.local as f64 / self.local_rate
            + work.buckets as f64 * self.local_bucket_ms
            + work.segments as f64 * self.local_segment_ms)
            + work.chain as f64 / self.chain_rate
            + tokens as f64 / self.dense_rate
    }
}

impl Loads {
    /// Predicted milliseconds with `chained` (ascending positions) chained.
    pub(super) fn score(
        &mut self,
        forest: &Forest,
        chained: &[u32],
        settings: &GdnSettings,
    ) -> f64 {
        self.place::<false>(forest, chained, settings);
        self.milliseconds(forest, settings)
    }

    /// A lower bound of [`Loads::score`] of the same set: chained work in full, all other work
    /// spread evenly and unpadded. Rounded down a little, whatever the order of additions.
    pub(super) fn bound(
        &mut self,
        forest: &Forest,
        chained: &[u32],
        settings: &GdnSettings,
    ) -> f64 {
        refill(&mut self.chain, forest.levels, 0);
        refill(&mut self.chain_count, forest.levels, 0);
        let mut chained_tokens = 0;
        for &at in chained {
            let depth = forest.depth[at as usize] as usize;
            let legal = &forest.legal[forest.legal_at[at as usize] as usize];
            self.chain[depth] = self.chain[depth].max(legal.shortest);
            self.chain_count[depth] += 1;
            chained_tokens += forest.length[at as usize];
        }
        let (mut buckets, mut work) = (0, 0);
        for (&shortest, &count) in self.chain.iter().zip(&self.chain_count) {
            buckets += i64::from(count > 0);
            work += shortest * count;
        }
        let ranks = forest.ranks as f64;
        let local = (forest.tokens - chained_tokens) as f64 / ranks;
        let time = local / settings.local_rate
            + work as f64 / settings.chain_rate
            + forest.tokens as f64 / ranks / settings.dense_rate
            + settings.chain_ms(buckets, chained.len() as i64);
        time * (1.0 - 1e-12)
    }

    /// The same as [`Loads::score`], and every owner is set.
    pub(super) fn record(
        &mut self,
        forest: &Forest,
        chained: &[u32],
        settings: &GdnSettings,
    ) -> f64 {
        self.place::<true>(forest, chained, settings);
        self.milliseconds(forest, settings)
    }

    fn clear(&mut self, forest: &Forest) {
        let (ranks, levels) = (forest.ranks, forest.levels);
        self.cross = 0;
        self.handed = 0;
        refill(&mut self.tokens, ranks, 0);
        refill(&mut self.local, levels * ranks, Padded::default());
        refill(&mut self.chain, levels * ranks, 0);
        refill(&mut self.chain_count, levels, 0);
        self.owner.resize(forest.len(), NONE);
    }

    fn place<const RECORD: bool>(
        &mut self,
        forest: &Forest,
        chained: &[u32],
        settings: &GdnSettings,
    ) {
        self.clear(forest);
        let ranks = forest.ranks;
        let mut chained = chained.iter().copied();
        let mut next = chained.next().unwrap_or(NONE) as usize;
        let mut at = 0;
        while at < forest.len() {
            if at == next {
                self.add_chained(forest, at);
                next = chained.next().unwrap_or(NONE) as usize;
                at += 1;
                continue;
            }
            let end = forest.end[at] as usize;
            if forest.subtree[at] > forest.limit || next < end {
                let (length, on_ranks) = (forest.length[at], forest.on_ranks(at));
                let owner = self.best_owner(length, on_ranks, forest.most, settings, |cross, _| {
                    settings.exchange_ms(cross)
                });
                self.own(owner, length, on_ranks);
                self.local[forest.depth[at] as usize * ranks + owner].add(length, 1);
                self.hand_over(forest, at, owner as u32);
                self.owner[at] = owner as u32;
                at += 1;
                continue;
            }
            let (length, on_ranks) = (forest.subtree[at], forest.subtree_on_ranks(at));
            let owner;
            if forest.unit[at] == NONE {
                owner = self.best_owner(length, on_ranks, forest.most, settings, |cross, _| {
                    settings.exchange_ms(cross)
                });
                for inside in at..end {
                    let slot = forest.depth[inside] as usize * ranks + owner;
                    self.local[slot].add(forest.length[inside], 1);
                }
            } else {
                let (levels, exchange) = forest.unit_at(forest.unit[at] as usize);
                owner = self.best_owner(length, on_ranks, forest.most, settings, |_, rank| {
                    exchange[rank]
                });
                self.add_levels(levels, ranks, owner);
            }
            self.own(owner, length, on_ranks);
            self.hand_over(forest, at, owner as u32);
            if RECORD {
                self.owner[at..end].fill(owner as u32);
            }
            at = end;
        }
    }

    /// The rank that should own `length` more tokens, of which it has `on_ranks` at hand.
    ///
    /// Least (slowest rank's gdn time + exchange, exchange, tokens moved, rank). A longer
    /// load never takes less time, so the slowest rank is the one with the largest load. A rank
    /// that would have more than `most` tokens is left out, unless all would.
    fn best_owner(
        &self,
        length: i64,
        on_ranks: &[i64],
        most: i64,
        settings: &GdnSettings,
        exchange_ms: impl Fn(i64, usize) -> f64,
    ) -> usize {
        let largest = self.tokens.iter().copied().max().unwrap_or(0);
        let mut best = (f64::INFINITY, f64::INFINITY, i64::MAX);
        let mut owner = 0;
        let holds = |load: i64| load <= most.saturating_sub(length);
        let capped = self.tokens.iter().any(|&load| holds(load));
        for (rank, (&load, &here)) in self.tokens.iter().zip(on_ranks).enumerate() {
            if capped && !holds(load) {
                continue;
            }
            let slowest = (load + length).max(largest) as f64 / settings.local_rate;
            let exchange = exchange_ms(length - here, rank);
            let key = (slowest + exchange, exchange, length - here);
            if key < best {
                best = key;
                owner = rank;
            }
        }
        owner
    }

    fn own(&mut self, owner: usize, length: i64, on_ranks: &[i64]) {
        self.tokens[owner] += length;
        self.cross += length - on_ranks[owner];
    }

    fn add_levels(&mut self, levels: &[Level], ranks: usize, owner: usize) {
        for level in levels {
            self.local[level.depth as usize * ranks + owner].add(level.longest, level.count);
        }
    }

    fn add_chained(&mut self, forest: &Forest, at: usize) {
        let (ranks, depth) = (forest.ranks, forest.depth[at] as usize);
        let longest = &mut self.chain[depth * ranks..][..ranks];
        let shards = forest.shards(at);
        for ((load, longest), &shard) in self.tokens.iter_mut().zip(longest).zip(shards) {
            *load += shard;
            *longest = (*longest).max(shard);
        }
        self.chain_count[depth] += 1;
        self.cross += forest.legal[forest.legal_at[at] as usize].cross;
        self.hand_over(forest, at, NONE);
        self.owner[at] = NONE;
    }

    /// Counts the state that an unchained parent hands to another owner, or to all (`NONE`).
    fn hand_over(&mut self, forest: &Forest, at: usize, owner: u32) {
        let parent = forest.parent[at];
        if parent != NONE {
            let from = self.owner[parent as usize];
            self.handed += i64::from(from != NONE && from != owner);
        }
    }

    fn milliseconds(&mut self, forest: &Forest, settings: &GdnSettings) -> f64 {
        let ranks = forest.ranks;
        let (mut chain_buckets, mut chain_segments) = (0, 0);
        refill(&mut self.sums, ranks, RankWork::default());
        for (depth, &chained) in self.chain_count.iter().enumerate() {
            for (sum, padded) in self.sums.iter_mut().zip(&self.local[depth * ranks..]) {
                sum.local += padded.work();
                sum.buckets += i64::from(padded.count > 0);
                sum.segments += padded.count;
            }
            if chained > 0 {
                chain_buckets += 1;
                chain_segments += chained;
                for (sum, &longest) in self.sums.iter_mut().zip(&self.chain[depth * ranks..]) {
                    sum.chain += longest * chained;
                }
            }
        }
        let mut slowest = 0.0_f64;
        for (&work, &tokens) in self.sums.iter().zip(&self.tokens) {
            slowest = slowest.max(settings.rank_ms(work, tokens));
        }
        let parents = if self.handed > 0 {
            (self.handed * settings.parent_bytes) as f64 / settings.parent_bandwidth
        } else {
            0.0
        };
        slowest
            + settings.chain_ms(chain_buckets, chain_segments)
            + settings.exchange_ms(self.cross)
            + parents
    }
}
