//! A layout becomes a packed row: at each tree segment first itself if it is shared, then the
//! tails of the rows that end there, in input order. That order decides everything downstream.

use crate::error::{Error, Result};
use crate::pack::Packing;
use crate::segments::{NONE, Segments};
use crate::tree::Tree;

/// A packed row without its members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Lengths and parents.
    pub segments: Segments,
    /// Where each segment begins inside its rows.
    pub row_start: Vec<i64>,
    /// The tree segment that a shared segment is, or where the row of a tail ends.
    pub tree_segment: Vec<u32>,
    /// The row of a tail; [`NONE`] for a shared segment.
    pub row: Vec<u32>,
}

/// The packed row of a layout, members included. `shared` has one flag a tree segment;
/// segments with one row may carry it or not, it changes nothing.
pub fn pack(tree: &Tree, shared: &[bool]) -> Result<Packing> {
    let shape = shape(tree, shared)?;
    let segments = shape.row.len();
    let mut member_offsets = Vec::with_capacity(segments + 1);
    let mut total = 0_u32;
    member_offsets.push(0);
    for (&row, &at) in shape.row.iter().zip(&shape.tree_segment) {
        let members = if row == NONE {
            tree.count[at as usize]
        } else {
            1
        };
        total = total
            .checked_add(members)
            .ok_or(Error::Overflow("the number of segment members"))?;
        member_offsets.push(total);
    }
    let mut packed_of = vec![NONE; tree.parent.len()];
    let mut members = vec![0; total as usize];
    let mut last = vec![NONE; tree.rows()];
    for (packed, (&row, &at)) in shape.row.iter().zip(&shape.tree_segment).enumerate() {
        if row == NONE {
            packed_of[at as usize] = packed as u32;
        } else {
            members[member_offsets[packed] as usize] = row;
            last[row as usize] = packed as u32;
        }
    }
    // Rows in input order climb to the root, so members come out ascending.
    let mut next: Vec<u32> = member_offsets[..segments].to_vec();
    for (row, &terminal) in tree.terminal.iter().enumerate() {
        let mut at = terminal;
        if at != NONE && last[row] == NONE {
            // No tail: the segment where the row ends is itself shared.
            last[row] = packed_of[at as usize];
        }
        while at != NONE {
            let packed = packed_of[at as usize];
            if packed != NONE {
                let slot = &mut next[packed as usize];
                members[*slot as usize] = row as u32;
                *slot += 1;
            }
            at = tree.parent[at as usize];
        }
    }
    Ok(Packing {
        segments: shape.segments,
        row_start: shape.row_start,
        member_offsets,
        members,
        last,
    })
}

/// The packed row of a layout without member lists.
pub fn shape(tree: &Tree, shared: &[bool]) -> Result<Shape> {
    let count = tree.parent.len();
    if shared.len() != count {
        return Err(Error::input(format!(
            "shared has {} entries for {count} tree segments: give one each",
            shared.len()
        )));
    }
    let (offsets, rows) = tree.terminal_rows();
    let mut out = Shape::default();
    let mut starts = vec![0_i64];
    let mut packed_end = 0_i64;
    // Nearest shared segment at or above each tree segment: (packed index, end).
    let mut near: Vec<(u32, i64)> = Vec::with_capacity(count);
    let mut emit = |near: (u32, i64), end: i64, at: usize, row: u32| -> Result<()> {
        packed_end = packed_end
            .checked_add(end - near.1)
            .ok_or(Error::Overflow("the packed length"))?;
        starts.push(packed_end);
        out.segments.parents.push(near.0);
        out.row_start.push(near.1);
        out.tree_segment.push(at as u32);
        out.row.push(row);
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
            for &row in &rows[offsets[s] as usize..offsets[s + 1] as usize] {
                emit(here, end, s, row)?;
                emitted += 1;
            }
        }
        near.push(here);
    }
    out.segments.starts = starts;
    Ok(out)
}
