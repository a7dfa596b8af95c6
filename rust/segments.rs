//! The segments of one pack: what every stage after packing works on.

use crate::error::{Error, Result};

/// "No parent", "no segment", "no pack".
pub const NONE: u32 = u32::MAX;

/// Segments of one pack in packed order; a parent comes before its children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segments {
    /// Packed start of each segment, and the pack's length at the end: S + 1 entries.
    pub starts: Vec<i64>,
    /// Index of the parent segment, [`NONE`] for a root.
    pub parents: Vec<u32>,
}

impl Segments {
    /// From lengths and parents (-1 for a root), checked.
    pub fn new(lengths: &[i64], parents: &[i64]) -> Result<Self> {
        if lengths.len() != parents.len() {
            return Err(Error::input(format!(
                "parents has {} entries for {} segments: give one each",
                parents.len(),
                lengths.len()
            )));
        }
        if lengths.len() >= NONE as usize {
            return Err(Error::Overflow("the number of segments"));
        }
        let mut starts = Vec::with_capacity(lengths.len() + 1);
        let mut at = 0_i64;
        starts.push(0);
        for (i, &length) in lengths.iter().enumerate() {
            if length <= 0 {
                return Err(Error::input(format!(
                    "lengths[{i}] is {length}: a segment holds at least one token"
                )));
            }
            at = at
                .checked_add(length)
                .ok_or(Error::Overflow("the packed length"))?;
            starts.push(at);
        }
        let mut checked = Vec::with_capacity(parents.len());
        for (i, &parent) in parents.iter().enumerate() {
            checked.push(match parent {
                -1 => NONE,
                p if p >= 0 && (p as usize) < i => p as u32,
                p => {
                    return Err(Error::input(format!(
                        "parents[{i}] is {p}: it must be -1 (a root) or an earlier segment"
                    )));
                }
            });
        }
        Ok(Self {
            starts,
            parents: checked,
        })
    }

    /// Number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// True without any segment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// Length of segment `i` in tokens.
    #[must_use]
    pub fn length(&self, i: usize) -> i64 {
        self.starts[i + 1] - self.starts[i]
    }

    /// Tokens of the pack.
    #[must_use]
    pub fn tokens(&self) -> i64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The parent of segment `i`, if it has one.
    #[must_use]
    pub fn parent(&self, i: usize) -> Option<usize> {
        let parent = self.parents[i];
        (parent != NONE).then_some(parent as usize)
    }
}
