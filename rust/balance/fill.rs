//! Packings under the cap, and how they become as many parts as are wanted.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::Problem;

/// Parts that `least_loaded` looks at for one item.
const MOST_LOOKS: usize = 64;
/// Items that `tightest` tries at each place of a part, and places after the first.
const BRANCH: usize = 6;
const PLACES: usize = 4;

/// First fit in the given order, first fit and best fit by decreasing length; where a part holds few
/// items, the tightest part by part.
pub(super) fn packings(problem: &Problem<'_>) -> Vec<Vec<Vec<u32>>> {
    let mut falling = problem.rest.clone();
    falling.sort_by_key(|&item| Reverse(problem.length(item)));
    let mut made = vec![
        first_fit(problem, &problem.rest),
        first_fit(problem, &falling),
        best_fit(problem, &falling),
    ];
    if falling.len() <= (PLACES + 1) * made[2].len() {
        made.push(tightest(problem, &falling));
    }
    made
}

/// Every item into the first part that has room for it.
fn first_fit(problem: &Problem<'_>, order: &[u32]) -> Vec<Vec<u32>> {
    let leaves = order.len().next_power_of_two();
    let mut room = vec![problem.cap; 2 * leaves]; // a tree of the most room below each node
    let mut parts: Vec<Vec<u32>> = Vec::new();
    for &item in order {
        let length = problem.length(item);
        let mut at = 1;
        while at < leaves {
            at = 2 * at + usize::from(room[2 * at] < length);
        }
        let part = at - leaves;
        if part == parts.len() {
            parts.push(Vec::new());
        }
        parts[part].push(item);
        room[at] -= length;
        while at > 1 {
            at /= 2;
            room[at] = room[2 * at].max(room[2 * at + 1]);
        }
    }
    parts
}

/// Every item into the fullest part that has room for it.
fn best_fit(problem: &Problem<'_>, order: &[u32]) -> Vec<Vec<u32>> {
    let mut rooms: BTreeSet<(i64, usize)> = BTreeSet::new();
    let mut parts: Vec<Vec<u32>> = Vec::new();
    for &item in order {
        let length = problem.length(item);
        let tightest = rooms.range((length, 0)..).next().copied();
        let (room, part) = tightest.unwrap_or((problem.cap, parts.len()));
        if part == parts.len() {
            parts.push(Vec::new());
        }
        rooms.remove(&(room, part));
        rooms.insert((room - length, part));
        parts[part].push(item);
    }
    parts
}

/// One part after another: the longest item left, then those that leave the least room.
fn tightest(problem: &Problem<'_>, order: &[u32]) -> Vec<Vec<u32>> {
    let mut left = Left {
        lengths: order.iter().map(|&item| problem.length(item)).collect(),
        next: (0..=order.len()).collect(),
    };
    let mut parts = Vec::new();
    loop {
        let first = left.from(0);
        if first == order.len() {
            return parts;
        }
        left.take(first);
        let (mut chosen, mut best) = (Vec::new(), (i64::MAX, Vec::new()));
        left.fill(
            problem.cap - left.lengths[first],
            first,
            &mut chosen,
            &mut best,
        );
        let mut part = vec![order[first]];
        for &at in &best.1 {
            left.take(at);
            part.push(order[at]);
        }
        parts.push(part);
    }
}

/// Items that are left, by decreasing length.
struct Left {
    lengths: Vec<i64>,
    /// A position not before the next item that is left, itself if it is.
    next: Vec<usize>,
}

impl Left {
    /// The first item left from a position on.
    fn from(&mut self, at: usize) -> usize {
        let mut end = at;
        while self.next[end] != end {
            end = self.next[end];
        }
        let mut at = at;
        while self.next[at] != end {
            at = std::mem::replace(&mut self.next[at], end);
        }
        end
    }

    fn take(&mut self, at: usize) {
        self.next[at] = at + 1;
    }

    /// The items after `from` that leave the least of `room`; among equals the first found.
    fn fill(
        &mut self,
        room: i64,
        from: usize,
        chosen: &mut Vec<usize>,
        best: &mut (i64, Vec<usize>),
    ) {
        if room < best.0 {
            *best = (room, chosen.clone());
        }
        let start = self.lengths.partition_point(|&length| length > room);
        let mut at = self.from(start.max(from));
        if chosen.len() == PLACES {
            return;
        }
        for _ in 0..BRANCH {
            if at == self.lengths.len() || best.0 == 0 {
                return;
            }
            chosen.push(at);
            self.fill(room - self.lengths[at], at + 1, chosen, best);
            chosen.pop();
            // An item of another length.
            let length = self.lengths[at];
            let shorter = self.lengths.partition_point(|&other| other >= length);
            at = self.from(shorter);
        }
    }
}

/// By decreasing work into the part with the least that has room.
pub(super) fn least_loaded(problem: &Problem<'_>, count: usize) -> Option<Vec<Vec<u32>>> {
    let mut falling = problem.rest.clone();
    falling.sort_by_key(|&item| (Reverse(problem.work(item)), Reverse(problem.length(item))));
    let mut parts = vec![Vec::new(); count];
    let mut room = vec![problem.cap; count];
    // Empty parts come first, and have room for any item.
    let mut loads: BinaryHeap<Reverse<(i64, usize, usize)>> =
        (0..count).map(|part| Reverse((0, 0, part))).collect();
    let mut full = BinaryHeap::new();
    for item in falling {
        let mut found = None;
        for _ in 0..MOST_LOOKS {
            let Some(least) = loads.pop() else { break };
            if room[least.0.2] >= problem.length(item) {
                found = Some(least.0);
                break;
            }
            full.push(least);
        }
        loads.append(&mut full);
        let (load, items, part) = found?;
        parts[part].push(item);
        room[part] -= problem.length(item);
        loads.push(Reverse((load + problem.work(item), items + 1, part)));
    }
    Some(parts)
}

/// Parts one after another get an item, by decreasing length and back again.
pub(super) fn dealt_in_turn(problem: &Problem<'_>, count: usize) -> Vec<Vec<u32>> {
    let mut falling = problem.rest.clone();
    falling.sort_by_key(|&item| Reverse(problem.length(item)));
    let mut parts = vec![Vec::new(); count];
    for (turn, items) in falling.chunks(count).enumerate() {
        for (i, &item) in items.iter().enumerate() {
            parts[if turn % 2 == 0 { i } else { count - 1 - i }].push(item);
        }
    }
    parts
}

/// Halves the part of most work that has two items or more until there are enough.
pub(super) fn split(
    problem: &Problem<'_>,
    mut parts: Vec<Vec<u32>>,
    count: usize,
) -> Vec<Vec<u32>> {
    let sum = |part: &[u32]| part.iter().map(|&item| problem.work(item)).sum::<i64>();
    let mut heap: BinaryHeap<(i64, usize)> = (parts.iter().enumerate())
        .filter(|(_, part)| part.len() > 1)
        .map(|(i, part)| (sum(part), i))
        .collect();
    while parts.len() < count {
        let Some((_, at)) = heap.pop() else { break };
        let mut falling = std::mem::take(&mut parts[at]);
        falling.sort_by_key(|&item| Reverse(problem.work(item)));
        let mut halves = [Vec::new(), Vec::new()];
        let mut loads = [0, 0];
        for item in falling {
            // An item without work still opens the second half.
            let half =
                usize::from(loads[1] < loads[0] || (halves[1].is_empty() && !halves[0].is_empty()));
            loads[half] += problem.work(item);
            halves[half].push(item);
        }
        let [left, right] = halves;
        for (i, part, load) in [(at, left, loads[0]), (parts.len(), right, loads[1])] {
            if part.len() > 1 {
                heap.push((load, i));
            }
            if i == parts.len() {
                parts.push(part);
            } else {
                parts[i] = part;
            }
        }
    }
    parts
}
