//! The canonical radix tree of token rows, and what it answers without reading tokens again.

/// Full radix tree of some rows: parents before children (depth first), siblings in the order
/// in which the rows first reach them. Positions count from the start of a row.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Parent segment, `NONE` for a root.
    pub parent: Vec<u32>,
    /// First position of the segment in its rows.
    pub start: Vec<i64>,
    /// One past its last position.
    pub end: Vec<i64>,
    /// 1 at a root.
    pub depth: Vec<u32>,
    /// One past the last segment of the subtree: segments `s..subtree[s]` are below `s`.
    pub subtree: Vec<u32>,
    /// How many rows run through the segment; two or more make it a decision.
    pub count: Vec<u32>,
    /// The first row, in input order, that runs through the segment.
    pub first_row: Vec<u32>,
    /// Per row: the segment where it ends (`NONE` for an empty row).
    pub terminal: Vec<u32>,
}
