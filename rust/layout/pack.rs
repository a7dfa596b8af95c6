//! A layout becomes a pack: at each tree segment first itself if it is shared, then the
//! tails of the sequences that end there, in input order. That order decides everything downstream.

use crate::error::{Error, Result};
use crate::pack::Packing;
use crate::segments::{NONE, Segments};
use crate::tree::Tree;

/// A pack without its members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Lengths and parents.
    pub segments: Segments,
    /// First position of each segment inside its sequences.
    pub sequence_start: Vec<i64>,
    /// The tree segment that a shared segment is, or where the sequence of a tail ends.
    pub tree_segment: Vec<u32>,
    /// The sequence of a tail; [`NONE`] for a shared segment.
    pub sequence: Vec<u32>,
}

/// The pack of a layout, members included. `shared` has one flag a tree segment;
/// segments with one sequence may carry it or not, it changes nothing.
pub fn pack(tree: &Tree, shared: &[bool]) -> Result<Packing> {
    let shape = shape(tree, shared)?;
    let mut packed_of = vec![NONE; tree.len()];
    let mut last = vec![NONE; tree.sequences()];
    for (packed, (&sequence, &at)) in shape.sequence.iter().zip(&shape.tree_segment).enumerate() {
        let slot = if sequence == NONE {
            &mut packed_of[at as usize]
        } else {
            &mut last[sequence as usize]
        };
        *slot = packed as u32;
    }
    for (last, &terminal) in last.iter_mut().zip(&tree.terminal) {
        if *last == NONE && terminal != NONE {
            // No tail: the segment where the sequence ends is itself shared.
            *last = packed_of[terminal as usize];
        }
    }
    Packing::new(shape.segments, shape.sequence_start, last)
}

/// The pack of a layout without member lists.
pub fn shape(tree: &Tree, shared: &[bool]) -> Result<Shape> {
    let count = tree.parent.len();
    if shared.len() != count {
        return Err(Error::input(format!(
            "shared has {} entries for {count} tree segments: give one each",
            shared.len()
        )));
    }
    let (offsets, sequences) = tree.terminal_sequences();
    let mut out = Shape::default();
    let mut starts = vec![0_i64];
    let mut packed_end = 0_i64;
    // Nearest shared segment at or above each tree segment: (packed index, end).
    let mut near: Vec<(u32, i64)> = Vec::with_capacity(count);
    let mut emit = |near: (u32, i64), end: i64, at: usize, sequence: u32| -> Result<()> {
        packed_end = packed_end
            .checked_add(end - near.1)
            .ok_or(Error::Overflow("the packed length"))?;
        starts.push(packed_end);
        out.segments.parents.push(near.0);
        out.sequence_start.push(near.1);
        out.tree_segment.push(at as u32);
        out.sequence.push(sequence);
        Ok(())
    };
    let mut emitted = 0_u32;
    for s in 0..count {
        let parent = tree.parent[s];
        let mut here = if parent == NONE {
            (NONE, 0)
        } else {
            near[parent as usize]
        };
        let end = tree.end[s];
        if shared[s] && tree.count[s] >= 2 {
            emit(here, end, s, NONE)?;
            here = (emitted, end);
            emitted += 1;
        }
        if here.1 < end {
            for &sequence in &sequences[offsets[s] as usize..offsets[s + 1] as usize] {
                emit(here, end, s, sequence)?;
                emitted += 1;
            }
        }
        near.push(here);
    }
    out.segments.starts = starts;
    Ok(out)
}
