//! Trees for tests: the definition of the canonical tree, slowly.

use crate::segments::NONE;
use crate::tree::Tree;

/// A small generator with a fixed sequence (the `SplitMix64` mixer).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    }

    /// Sequences of `blocks` runs over `alphabet` letters; a run repeats its letter up to `most` times.
    pub(super) fn sequences(
        &mut self,
        count: u64,
        blocks: u64,
        alphabet: u64,
        most: u64,
    ) -> Vec<Vec<i64>> {
        let lengths: Vec<u64> = (0..alphabet).map(|_| 1 + self.roll(most)).collect();
        let sequence = |dice: &mut Self| {
            let runs = 1 + dice.roll(blocks);
            let mut sequence = Vec::new();
            for _ in 0..runs {
                let letter = dice.roll(alphabet);
                sequence.extend(std::iter::repeat_n(
                    letter as i64,
                    lengths[letter as usize] as usize,
                ));
            }
            sequence
        };
        (0..count).map(|_| sequence(self)).collect()
    }
}

/// The canonical tree of non-empty sequences.
pub(super) fn tree(sequences: &[Vec<i64>]) -> Tree {
    let mut out = Tree {
        terminal: vec![NONE; sequences.len()],
        ..Tree::default()
    };
    let mut tasks = vec![((0..sequences.len()).collect::<Vec<_>>(), 0_usize, NONE)];
    while let Some((here, start, parent)) = tasks.pop() {
        let active: Vec<usize> = here
            .into_iter()
            .filter(|&r| sequences[r].len() > start)
            .collect();
        let Some(&first) = active.first() else {
            continue;
        };
        let same = |at: usize| {
            active
                .iter()
                .all(|&r| sequences[r].get(at) == Some(&sequences[first][at]))
        };
        let end = (start..sequences[first].len())
            .find(|&at| !same(at))
            .unwrap_or(sequences[first].len());
        if end == start {
            let mut order: Vec<i64> = Vec::new();
            for &r in &active {
                if !order.contains(&sequences[r][start]) {
                    order.push(sequences[r][start]);
                }
            }
            for token in order.into_iter().rev() {
                let pack = active
                    .iter()
                    .copied()
                    .filter(|&r| sequences[r][start] == token)
                    .collect();
                tasks.push((pack, start, parent));
            }
            continue;
        }
        let index = out.parent.len() as u32;
        out.parent.push(parent);
        out.start.push(start as i64);
        out.end.push(end as i64);
        let above = if parent == NONE {
            0
        } else {
            out.depth[parent as usize]
        };
        out.depth.push(above + 1);
        out.count.push(active.len() as u32);
        out.first_sequence.push(first as u32);
        for &r in &active {
            out.terminal[r] = index;
        }
        tasks.push((active, end, index));
    }
    out.subtree = (0..out.parent.len()).map(|s| s as u32 + 1).collect();
    for s in (0..out.parent.len()).rev() {
        if out.parent[s] != NONE {
            let parent = out.parent[s] as usize;
            out.subtree[parent] = out.subtree[parent].max(out.subtree[s]);
        }
    }
    out
}
