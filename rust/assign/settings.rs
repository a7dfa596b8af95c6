//! What the assignment may be told: chunk sizes, search limits, costs, a model's indexer work.

use crate::error::{Error, Result};

/// Settings of the assignment. Times are milliseconds; the defaults are the measured ones of
/// the published planner. Every cost must be finite.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignSettings {
    /// Chunks are multiples of this many tokens, at least 1.
    pub block: i64,
    /// Tokens of a chunk asked for; at least a block is used.
    pub chunk: i64,
    /// Chunks that a row may have whatever the ranks; negative counts as 0.
    pub chunk_budget_base: i64,
    /// Chunks that a row may have per rank; with a base of 0 too, there is no budget.
    pub chunk_budget_per_rank: i64,
    /// Fetch stages tried, at least 1.
    pub max_stages: i64,
    /// Chunks that the slowest rank offers in a step; 0 or less offers all.
    pub candidates: i64,
    /// Steps of the local search; 0 or less keeps the contiguous start.
    pub steps: i64,
    /// Fixed time of an attention stage.
    pub stage_overhead_ms: f64,
    /// Host time of a remote stage.
    pub remote_host_ms: f64,
    /// Time that the rest of a layer takes per token owned, forward and backward.
    pub owned_token_ms: f64,
    /// Fixed time of a fetch or a reduce.
    pub comm_overhead_ms: f64,
    /// Time per contiguous run of chunks, computed on or sent.
    pub interval_ms: f64,
    /// Time to merge a query token's partial output.
    pub merge_token_ms: f64,
    /// Time to fetch a token's keys and values.
    pub fetch_token_ms: f64,
    /// Time to reduce a token's key and value gradients.
    pub reduce_token_ms: f64,
    /// Forward time of a query-key pair, both on the rank.
    pub local_pair_ms: f64,
    /// Forward time of a query-key pair whose key was fetched.
    pub remote_pair_ms: f64,
    /// Backward time of a pair on the rank.
    pub local_backward_pair_ms: f64,
    /// Backward time of a pair whose key was fetched.
    pub remote_backward_pair_ms: f64,
    /// Extra time of a remote stage too small to fill the device.
    pub underfill_ms: f64,
    /// Tokens from which a remote stage fills the device; 0 or less: any.
    pub underfill_tokens: i64,
    /// Pairs from which a remote stage fills the device; 0 or less: any.
    pub underfill_pairs: i64,
    /// Work of a sparse-indexer model; the answer is then checked against two others.
    pub profile: Option<WorkloadProfile>,
}

impl Default for AssignSettings {
    fn default() -> Self {
        Self {
            block: 128,
            chunk: 512,
            chunk_budget_base: 128,
            chunk_budget_per_rank: 16,
            max_stages: 4,
            candidates: 8,
            steps: 8,
            stage_overhead_ms: 0.287_151,
            remote_host_ms: 1.2,
            owned_token_ms: 0.0,
            comm_overhead_ms: 0.143_576,
            interval_ms: 0.114_86,
            merge_token_ms: 0.000_114_86,
            fetch_token_ms: 0.000_03,
            reduce_token_ms: 0.000_03,
            local_pair_ms: 4.594_4e-8,
            remote_pair_ms: 4.881_6e-8,
            local_backward_pair_ms: 1.378_32e-7,
            remote_backward_pair_ms: 1.493_18e-7,
            underfill_ms: 0.287_151,
            underfill_tokens: 4096,
            underfill_pairs: 4_000_000,
            profile: None,
        }
    }
}

/// Work of one pipeline stage of a sparse-indexer model, per unit; none may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageWork {
    /// Flops per query token.
    pub query_flops: i64,
    /// Indexer flops per pair of a tile.
    pub tile_pair_flops: i64,
    /// Key bytes read from device memory per key token.
    pub key_hbm_bytes: i64,
    /// Bytes fetched per key token.
    pub fetch_bytes: i64,
    /// Gradient bytes reduced per key token.
    pub reduce_bytes: i64,
    /// Bytes held per query token.
    pub query_memory_bytes: i64,
    /// Bytes held per key token.
    pub key_memory_bytes: i64,
}

/// Facts of a sparse-indexer model that choose between assignments with few ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadProfile {
    /// One entry per pipeline stage, at least one.
    pub stages: Vec<StageWork>,
    /// Query tokens of an indexer tile, at least 1.
    pub query_tile: i64,
    /// Key tokens of an indexer tile, at least 1.
    pub key_tile: i64,
    /// Elements of the indexer's score workspace, at least 1.
    pub workspace_elements: i64,
    /// Key tokens that the indexer takes at once, at least 1.
    pub max_key_tokens: i64,
    /// Contiguous ranges a rank may own in a challenger, at least 1.
    pub max_ranges: i64,
}

impl AssignSettings {
    /// Refuses what no assignment can be made with.
    pub fn check(&self) -> Result<()> {
        if self.block < 1 {
            return Err(Error::input(format!(
                "block is {}: it must be at least 1 token",
                self.block
            )));
        }
        if self.max_stages < 1 {
            return Err(Error::input(format!(
                "max_stages is {}: at least 1 fetch stage must be tried",
                self.max_stages
            )));
        }
        for (name, value) in self.costs() {
            if !value.is_finite() {
                return Err(Error::input(format!(
                    "{name} is {value}: it must be a finite number of milliseconds"
                )));
            }
        }
        self.profile.as_ref().map_or(Ok(()), WorkloadProfile::check)
    }

    fn costs(&self) -> [(&'static str, f64); 13] {
        [
            ("stage_overhead_ms", self.stage_overhead_ms),
            ("remote_host_ms", self.remote_host_ms),
            ("owned_token_ms", self.owned_token_ms),
            ("comm_overhead_ms", self.comm_overhead_ms),
            ("interval_ms", self.interval_ms),
            ("merge_token_ms", self.merge_token_ms),
            ("fetch_token_ms", self.fetch_token_ms),
            ("reduce_token_ms", self.reduce_token_ms),
            ("local_pair_ms", self.local_pair_ms),
            ("remote_pair_ms", self.remote_pair_ms),
            ("local_backward_pair_ms", self.local_backward_pair_ms),
            ("remote_backward_pair_ms", self.remote_backward_pair_ms),
            ("underfill_ms", self.underfill_ms),
        ]
    }

    /// True when no cost is negative, so that more work never costs less.
    pub(super) fn monotone(&self) -> bool {
        self.costs().iter().all(|&(_, value)| value >= 0.0)
    }

    /// The chunk size of a row of `tokens` over `ranks`: the size asked for in whole blocks,
    /// larger when the row would need more chunks than its budget, smaller (and then no longer
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

impl WorkloadProfile {
    fn check(&self) -> Result<()> {
        if self.stages.is_empty() {
            return Err(Error::input(
                "profile.stages is empty: give the work of at least one pipeline stage",
            ));
        }
        for (name, value) in [
            ("query_tile", self.query_tile),
            ("key_tile", self.key_tile),
            ("workspace_elements", self.workspace_elements),
            ("max_key_tokens", self.max_key_tokens),
            ("max_ranges", self.max_ranges),
        ] {
            if value < 1 {
                return Err(Error::input(format!(
                    "profile.{name} is {value}: it must be at least 1"
                )));
            }
        }
        for (i, stage) in self.stages.iter().enumerate() {
            for (name, value) in [
                ("query_flops", stage.query_flops),
                ("tile_pair_flops", stage.tile_pair_flops),
                ("key_hbm_bytes", stage.key_hbm_bytes),
                ("fetch_bytes", stage.fetch_bytes),
                ("reduce_bytes", stage.reduce_bytes),
                ("query_memory_bytes", stage.query_memory_bytes),
                ("key_memory_bytes", stage.key_memory_bytes),
            ] {
                if value < 0 {
                    return Err(Error::input(format!(
                        "profile.stages[{i}].{name} is {value}: it must be at least 0"
                    )));
                }
            }
        }
        Ok(())
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
