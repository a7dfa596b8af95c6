//! Packed rows: segments with the rows they belong to.

use crate::segments::Segments;

/// One packed row made of token rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packing {
    /// Lengths, parents and packed starts.
    pub segments: Segments,
    /// Where each segment begins inside its rows (S entries).
    pub row_start: Vec<i64>,
    /// Rows of segment `s`: `members[member_offsets[s]..member_offsets[s + 1]]`, ascending.
    pub member_offsets: Vec<u32>,
    /// Row indices, see `member_offsets`.
    pub members: Vec<u32>,
}
