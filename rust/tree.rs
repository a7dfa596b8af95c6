//! The canonical radix tree of token rows, and what it answers without reading tokens again.

mod build;
mod restrict;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::rows::Rows;
use crate::segments::NONE;

pub use restrict::TreeWorkspace;

/// Full radix tree of some rows: parents before children (depth first), siblings in the order
/// in which the rows first reach them. Positions count from the start of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

/// Full-sharing counts of every prefix of a list of n rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Packed tokens of the first k rows, for k = 0..=n (n + 1 entries).
    pub packed: Vec<i64>,
    /// Per row: its leading tokens that an earlier row of the list already holds (n entries).
    pub shared: Vec<i64>,
}

impl Tree {
    /// Builds the tree in one pass over the tokens. A token that no other row shares is read
    /// at most once, and the unshared tail of a row not at all. Empty rows are allowed.
    pub fn build(rows: &Rows<'_>) -> Result<Self> {
        build::build(rows.len(), |i| rows.row(i), None)
    }

    /// The same for rows cut to `limits[i]` leading tokens (clamped to `0..=length`).
    ///
    /// # Panics
    /// If there are fewer limits than rows.
    pub fn build_limited(rows: &Rows<'_>, limits: &[i64]) -> Result<Self> {
        build::build(rows.len(), |i| rows.row(i), Some(limits))
    }

    /// The same for rows that lie apart from each other.
    pub fn build_scattered(rows: &[&[i64]], limits: Option<&[i64]>) -> Result<Self> {
        build::build(rows.len(), |i| rows[i], limits)
    }

    /// Number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// True without any segment: no rows, or empty rows only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }

    /// Number of rows, empty ones included.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.terminal.len()
    }

    /// Tokens of segment `s`.
    #[must_use]
    pub fn length(&self, s: usize) -> i64 {
        self.end[s] - self.start[s]
    }

    /// Tokens of row `r`.
    #[must_use]
    pub fn row_length(&self, r: usize) -> i64 {
        match self.terminal[r] {
            NONE => 0,
            s => self.end[s as usize],
        }
    }

    /// True if two or more rows run through segment `s`.
    #[must_use]
    pub fn is_decision(&self, s: usize) -> bool {
        self.count[s] >= 2
    }

    /// Tokens with everything shared: the sum of the segments' lengths.
    #[must_use]
    pub fn packed_tokens(&self) -> i64 {
        self.start.iter().zip(&self.end).map(|(s, e)| e - s).sum()
    }

    /// The rows that end at each segment: those of `s` are
    /// `rows[offsets[s]..offsets[s + 1]]`, in input order. Empty rows are left out. As segments
    /// come depth first, the rows through `s` are `rows[offsets[s]..offsets[subtree[s]]]`.
    #[must_use]
    pub fn terminal_rows(&self) -> (Vec<u32>, Vec<u32>) {
        let mut offsets = vec![0_u32; self.len() + 1];
        let ends = || self.terminal.iter().copied().filter(|&s| s != NONE);
        for s in ends() {
            offsets[s as usize + 1] += 1;
        }
        for s in 0..self.len() {
            offsets[s + 1] += offsets[s];
        }
        let mut next = offsets.clone();
        let mut rows = vec![0_u32; offsets[self.len()] as usize];
        for (row, &s) in self.terminal.iter().enumerate() {
            if s != NONE {
                let at = &mut next[s as usize];
                rows[*at as usize] = row as u32;
                *at += 1;
            }
        }
        (offsets, rows)
    }
}
