//! Settings of the ownership: chunk sizes, search limits, costs, a model's indexer work.

use crate::fields::{at_least, between, settings};

settings! {
    /// Chunk sizes, search limits and costs. Fields named `*_ms` are milliseconds; the defaults
    /// are the reference planner's, measured on H200.
    pub struct OwnershipSettings as "OwnershipSettings" {
        /// Chunks are multiples of this many tokens.
        block: i64 = 128, at_least(1);
        /// Tokens of a chunk asked for; at least a block is used.
        chunk: i64 = 512;
        /// Chunks that a pack may have whatever the ranks; negative counts as 0.
        chunk_budget_base: i64 = 128;
        /// Chunks that a pack may have per rank; with a base of 0 too, there is no budget.
        chunk_budget_per_rank: i64 = 16;
        /// Fetch stages tried: 1 up to this number.
        max_stages: i64 = 4, at_least(1);
        /// Chunks that the slowest rank offers in a step; 0 or less offers all.
        candidates: i64 = 8;
        /// Steps of the local search; 0 or less keeps the contiguous start.
        steps: i64 = 8;
        /// Fixed time of an attention stage.
        stage_overhead_ms: f64 = 0.287_151;
        /// Host time of a remote stage.
        remote_host_ms: f64 = 1.2;
        /// Time that the rest of a layer takes per token owned, forward and backward.
        owned_token_ms: f64 = 0.0;
        /// Fixed time of a fetch or a reduce.
        comm_overhead_ms: f64 = 0.143_576;
        /// Time per contiguous run of chunks, computed on or sent.
        interval_ms: f64 = 0.114_86;
        /// Time to merge a query token's partial output.
        merge_token_ms: f64 = 0.000_114_86;
        /// Time to fetch a token's keys and values.
        fetch_token_ms: f64 = 0.000_03;
        /// Time to reduce a token's key and value gradients.
        reduce_token_ms: f64 = 0.000_03;
        /// Forward time of a query-key pair, both on the rank.
        local_pair_ms: f64 = 4.594_4e-8;
        /// Forward time of a query-key pair whose key was fetched.
        remote_pair_ms: f64 = 4.881_6e-8;
        /// Backward time of a pair on the rank.
        local_backward_pair_ms: f64 = 1.378_32e-7;
        /// Backward time of a pair whose key was fetched.
        remote_backward_pair_ms: f64 = 1.493_18e-7;
        /// Most extra time of a remote stage too small to fill the device.
        underfill_ms: f64 = 0.287_151;
        /// Tokens from which a remote stage fills the device; 0 or less: any.
        underfill_tokens: i64 = 4096;
        /// Pairs from which a remote stage fills the device; 0 or less: any.
        underfill_pairs: i64 = 4_000_000;
        /// Ranges of chunks that a rank may own where the planner chooses; 2 allows an even share
        /// folded into an early and a late range.
        max_ranges: i64 = 1, between(1, 2);
        /// Work of a sparse-indexer model; the answer is then checked against two others.
        profile: Option<WorkloadProfile> = None;
    }
}

settings! {
    /// Work of one pipeline stage of a sparse-indexer model, per unit.
    #[derive(Copy, Eq)]
    pub struct StageWork as "StageWork" {
        /// Flops per query token.
        query_flops: i64 = 0, at_least(0);
        /// Indexer flops per query-key pair of a tile.
        tile_pair_flops: i64 = 0, at_least(0);
        /// Key bytes read from device memory per key token.
        key_hbm_bytes: i64 = 0, at_least(0);
        /// Bytes fetched per key token.
        fetch_bytes: i64 = 0, at_least(0);
        /// Gradient bytes reduced per key token.
        reduce_bytes: i64 = 0, at_least(0);
        /// Bytes held per query token.
        query_memory_bytes: i64 = 0, at_least(0);
        /// Bytes held per key token.
        key_memory_bytes: i64 = 0, at_least(0);
    }
}

settings! {
    /// Facts of a sparse-indexer model that choose between ownerships with few ranges: the
    /// generic answer stands unless a contiguous or folded one by chunk length holds no more
    /// memory and is better in query flops, then network, key reads, indexer flops, peers, ranges.
    #[derive(Eq)]
    pub struct WorkloadProfile as "WorkloadProfile" {
        /// One entry per pipeline stage, at least one.
        stages: Vec<StageWork>, at_least(1);
        /// Query tokens of an indexer tile.
        query_tile: i64, at_least(1);
        /// Key tokens of an indexer tile.
        key_tile: i64, at_least(1);
        /// Elements of the indexer's score workspace.
        workspace_elements: i64, at_least(1);
        /// Key tokens that the indexer takes at once.
        max_key_tokens: i64, at_least(1);
        /// Contiguous ranges that a rank may own in a challenger.
        max_ranges: i64 = 2, at_least(1);
    }
}

impl OwnershipSettings {
    /// True when no cost is negative, so that more work never costs less.
    pub(super) fn monotone(&self) -> bool {
        [
            self.stage_overhead_ms,
            self.remote_host_ms,
            self.owned_token_ms,
            self.comm_overhead_ms,
            self.interval_ms,
            self.merge_token_ms,
            self.fetch_token_ms,
            self.reduce_token_ms,
            self.local_pair_ms,
            self.remote_pair_ms,
            self.local_backward_pair_ms,
            self.remote_backward_pair_ms,
            self.underfill_ms,
        ]
        .iter()
        .all(|&cost| cost >= 0.0)
    }

    /// The chunk size of a pack of `tokens` over `ranks`: the size asked for in whole blocks,
    /// larger when the pack would need more chunks than its budget, smaller (and then no longer
    /// in blocks) when it would give some rank no chunk although it has a token for each.
    #[must_use]
    pub fn chunk_size(&self, tokens: i64, ranks: usize) -> i64 {
        let ranks = i64::try_from(ranks).unwrap_or(i64::MAX);
        let longest = tokens.max(1);
        let blocks = |size: i64| round_up(size, self.block).min(longest);
        let mut size = blocks(self.block.max(self.chunk));
        let base = self.chunk_budget_base.max(0);
        let per_rank = self.chunk_budget_per_rank.max(0);
        if base > 0 || per_rank > 0 {
            let budget = ranks.max(base.saturating_add(per_rank.saturating_mul(ranks)));
            if ceil_div(longest, size) > budget {
                size = blocks(size.max(ceil_div(longest, budget)));
            }
        }
        if tokens >= ranks && ceil_div(tokens, size) < ranks {
            size = (tokens / ranks).max(1);
        }
        size
    }
}

/// `value / by` rounded up, for positive numbers, without leaving 64 bits.
pub(super) fn ceil_div(value: i64, by: i64) -> i64 {
    value / by + i64::from(value % by != 0)
}

/// `value` rounded up to a multiple, or the largest integer where that would overflow.
fn round_up(value: i64, multiple: i64) -> i64 {
    ceil_div(value, multiple).saturating_mul(multiple)
}
