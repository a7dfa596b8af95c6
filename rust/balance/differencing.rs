//! The largest differencing method of Karmarkar and Karp: the two dealings of largest spread are
//! joined, the largest part of one to the smallest of the other, until one is left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cancel;
use crate::error::Result;
use crate::segments::NONE;

/// Parts that are put in order one by one.
const FEW: usize = 32;

/// A part of a dealing: a chain of items. Parts compare by sum, then items, then first item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    sum: i64,
    count: u32,
    first: u32,
    last: u32,
}

/// Parts that are not empty, descending; the other parts are empty.
#[derive(Debug, PartialEq, Eq)]
struct Dealing {
    spread: i64,
    parts: Vec<Part>,
}

impl Dealing {
    fn new(parts: Vec<Part>, count: usize) -> Self {
        let least = parts.get(count - 1).map_or(0, |part| part.sum);
        Self {
            spread: parts[0].sum - least,
            parts,
        }
    }
}

impl Ord for Dealing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.spread, self.parts[0]).cmp(&(other.spread, other.parts[0]))
    }
}

impl PartialOrd for Dealing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Deals values into `parts`; with `equal` as many into each, so that `parts` divides their number.
pub(super) fn deal(
    mut values: Vec<(i64, u32)>,
    parts: usize,
    equal: bool,
) -> Result<Vec<Vec<u32>>> {
    values.sort_unstable();
    let items = values
        .iter()
        .map(|&(_, item)| item as usize + 1)
        .max()
        .unwrap_or(0);
    let mut next = vec![NONE; items];
    let one = |&(sum, item): &(i64, u32)| Part {
        sum,
        count: 1,
        first: item,
        last: item,
    };
    let mut heap: BinaryHeap<Dealing> = values
        .chunks(if equal { parts } else { 1 })
        .map(|chunk| {
            let mut made: Vec<Part> = chunk.iter().map(one).collect();
            made.sort_unstable_by_key(|&part| Reverse(part));
            Dealing::new(made, parts)
        })
        .collect();
    for step in 0.. {
        cancel::check_at(step)?;
        let Some(first) = heap.pop() else {
            return Ok(Vec::new());
        };
        let Some(second) = heap.pop() else {
            return Ok(first
                .parts
                .iter()
                .map(|part| chain(part.first, &next))
                .collect());
        };
        heap.push(Dealing::new(
            join(first.parts, &second.parts, parts, &mut next),
            parts,
        ));
    }
    unreachable!()
}

/// Adds the parts of `second`, the smallest first, to those of `first`, the largest first.
fn join(mut first: Vec<Part>, second: &[Part], parts: usize, next: &mut [u32]) -> Vec<Part> {
    let own = first.len();
    for (i, other) in second.iter().enumerate() {
        let at = parts - 1 - i;
        if at < own {
            let part = &mut first[at];
            next[part.last as usize] = other.first;
            part.sum += other.sum;
            part.count += other.count;
            part.last = other.last;
        } else {
            first.push(*other);
        }
    }
    // What is before stays in order, and mostly little comes after.
    let changed = own.min(parts - second.len());
    if first.len() - changed > FEW {
        first.sort_unstable_by_key(|&part| Reverse(part));
        return first;
    }
    for i in changed..first.len() {
        let at = first[..i].partition_point(|part| *part > first[i]);
        first[at..=i].rotate_right(1);
    }
    first
}

fn chain(first: u32, next: &[u32]) -> Vec<u32> {
    std::iter::successors(Some(first), |&item| {
        Some(next[item as usize]).filter(|&n| n != NONE)
    })
    .collect()
}
