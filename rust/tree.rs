//! The canonical radix tree of token sequences, and what it answers without reading tokens again.

mod build;
mod restrict;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::fields::result;
use crate::segments::NONE;
use crate::sequences::Sequences;

pub use restrict::TreeWorkspace;

result! {
    /// Full radix tree of n sequences: S segments, parents before children (depth first), siblings in
    /// the order in which the sequences first reach them. A segment is a run of tokens that the same
    /// sequences share. Positions count from the start of a sequence.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Tree as "Tree" {
        /// Parent segment, `NONE` (-1 in Python) for a root (S entries).
        pub parent: Vec<u32>,
        /// First position of the segment in its sequences (S entries).
        pub start: Vec<i64>,
        /// One past its last position (S entries).
        pub end: Vec<i64>,
        /// 1 at a root (S entries).
        pub depth: Vec<u32>,
        /// How many sequences run through the segment; two or more make it a decision (S entries).
        pub count: Vec<u32>,
        /// Per sequence: the segment where it ends (`NONE` for an empty sequence).
        pub terminal: Vec<u32>,
        @core
        /// One past the last segment of the subtree: those below `s` are `s + 1..subtree[s]`.
        pub subtree: Vec<u32>,
        /// The first sequence, in input order, that runs through the segment (S entries).
        pub first_sequence: Vec<u32>,
        /// Restrictions run as padded rows of this multiple, see [`Tree::pad`]; 0 for none.
        pub padding: i64,
    }
    get {
        /// Number of sequences.
        sequence_count(self) = self.sequences();
        /// Segments of two or more sequences: those that may be stored once or replayed.
        decisions(self) =
            (0..self.len()).filter(|&s| self.is_decision(s)).collect::<Vec<usize>>();
    }
    python {
        fn __len__(&self) -> usize {
            self.len()
        }

        /// Sequences that run through each segment, ascending; S lists.
        #[getter(sequences)]
        fn py_sequences<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            let members = || crate::pack::members(&self.parent, &self.terminal);
            let (offsets, sequences) = detached(py, members)?;
            ragged(py, &sequences, &offsets)
        }

        /// Packed tokens of the first `sequences` sequences (all by default) with everything shared.
        #[pyo3(signature = (sequences=None))]
        fn packed(&self, py: Python<'_>, sequences: Option<&Bound<'_, PyAny>>) -> PyResult<i64> {
            let Some(n) = sequences.map(|n| i64::take("sequences", n)).transpose()? else {
                return Ok(self.packed_tokens());
            };
            let prefixes = py.detach(|| self.packed_prefixes());
            let found = usize::try_from(n).ok().and_then(|n| prefixes.get(n));
            found.copied().ok_or_else(|| {
                refused(format!("sequences is {n}: the tree has {}", self.sequences()))
            })
        }

        /// The tree of some of the sequences, in the order given and numbered anew; reads no token.
        #[pyo3(name = "restrict")]
        fn py_restrict(&self, py: Python<'_>, sequences: &Bound<'_, PyAny>) -> PyResult<Self> {
            let sequences = picked("sequences", sequences, self.sequences())?;
            refuse_empty(detached(py, || self.restrict(&sequences))?)
        }

        /// The pack that stores the flagged segments once (one flag a segment).
        #[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
        fn pack(&self, py: Python<'_>, shared: Flags<'_>) -> PyResult<crate::pack::Packing> {
            // Copied, so that what is checked stays true while other threads run.
            let shared = shared.as_array().to_vec();
            detached(py, || crate::layout::pack(self, &shared))
        }

        fn __repr__(&self) -> String {
            let (segments, sequences) = (self.len(), self.sequences());
            format!("Tree({segments} segments, {sequences} sequences, {} tokens)", self.packed_tokens())
        }
    }
}

/// Tokens of a row that holds `longest` tokens, rounded up to a multiple.
#[must_use]
pub fn padded_row(longest: i64, multiple: i64) -> i64 {
    longest.saturating_add(multiple - 1) / multiple * multiple
}

impl Tree {
    /// Builds the tree in one pass over the tokens. A token that no other sequence shares is read
    /// at most once, and the unshared tail of a sequence not at all. Empty sequences are allowed.
    pub fn build(sequences: &Sequences<'_>) -> Result<Self> {
        build::build(sequences.len(), |i| sequences.sequence(i), None, None)
    }

    /// The same where only the first `shareable[i]` tokens of sequence `i` may be shared with others
    /// (clamped to `0..=length`): what may not differs from every token of the others.
    ///
    /// # Panics
    /// If there are fewer limits than sequences.
    pub fn build_shareable(sequences: &Sequences<'_>, shareable: &[i64]) -> Result<Self> {
        build::build(
            sequences.len(),
            |i| sequences.sequence(i),
            None,
            Some(shareable),
        )
    }

    /// Lengthens the sequences of a tree without sharing to the longest, rounded up to a multiple:
    /// rows of one batch.
    fn pad(&mut self, multiple: i64) {
        let longest = self.end.iter().copied().max().unwrap_or(0);
        self.end.fill(padded_row(longest, multiple));
    }

    /// The same for sequences cut to `limits[i]` leading tokens (clamped to `0..=length`).
    ///
    /// # Panics
    /// If there are fewer limits than sequences.
    pub fn build_limited(sequences: &Sequences<'_>, limits: &[i64]) -> Result<Self> {
        build::build(
            sequences.len(),
            |i| sequences.sequence(i),
            Some(limits),
            None,
        )
    }

    /// The same for sequences in arrays of their own.
    pub fn build_scattered(sequences: &[&[i64]], limits: Option<&[i64]>) -> Result<Self> {
        build::build(sequences.len(), |i| sequences[i], limits, None)
    }

    /// Number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// True without any segment: no sequences, or empty sequences only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }

    /// Number of sequences, empty ones included.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.terminal.len()
    }

    /// Tokens of segment `s`.
    #[must_use]
    pub fn length(&self, s: usize) -> i64 {
        self.end[s] - self.start[s]
    }

    /// Tokens of sequence `r`.
    #[must_use]
    pub fn sequence_length(&self, r: usize) -> i64 {
        match self.terminal[r] {
            NONE => 0,
            s => self.end[s as usize],
        }
    }

    /// True if two or more sequences run through segment `s`.
    #[must_use]
    pub fn is_decision(&self, s: usize) -> bool {
        self.count[s] >= 2
    }

    /// Tokens with everything shared: the sum of the segments' lengths.
    #[must_use]
    pub fn packed_tokens(&self) -> i64 {
        self.start.iter().zip(&self.end).map(|(s, e)| e - s).sum()
    }

    /// The sequences that end at each segment: those of `s` are
    /// `sequences[offsets[s]..offsets[s + 1]]`, in input order. Empty sequences are left out. As segments
    /// come depth first, the sequences through `s` are `sequences[offsets[s]..offsets[subtree[s]]]`.
    #[must_use]
    pub fn terminal_sequences(&self) -> (Vec<u32>, Vec<u32>) {
        let mut offsets = vec![0_u32; self.len() + 1];
        let ends = || self.terminal.iter().copied().filter(|&s| s != NONE);
        for s in ends() {
            offsets[s as usize + 1] += 1;
        }
        for s in 0..self.len() {
            offsets[s + 1] += offsets[s];
        }
        let mut next = offsets.clone();
        let mut sequences = vec![0_u32; offsets[self.len()] as usize];
        for (sequence, &s) in self.terminal.iter().enumerate() {
            if s != NONE {
                let at = &mut next[s as usize];
                sequences[*at as usize] = sequence as u32;
                *at += 1;
            }
        }
        (offsets, sequences)
    }
}
