//! Assignment of chunks to context-parallel ranks.

/// Result of the assignment of one packed row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignment {
    /// Context-parallel ranks.
    pub ranks: usize,
    /// Tokens of the packed row.
    pub tokens: i64,
    /// Chunk size in tokens; the last chunk may be shorter.
    pub chunk: i64,
    /// Owner of each chunk.
    pub owners: Vec<u32>,
    /// Fetch stage of each chunk.
    pub stages: Vec<u32>,
    /// The contiguous start of the search.
    pub contiguous: Vec<u32>,
    /// Tokens on each rank.
    pub rank_tokens: Vec<i64>,
    /// The slowest rank's forward + backward milliseconds (query flops with a profile).
    pub score: f64,
    /// Milliseconds per rank.
    pub forward_ms: Vec<f64>,
    /// Milliseconds per rank.
    pub backward_ms: Vec<f64>,
}
