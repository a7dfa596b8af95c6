//! Sets of decisions: bit words in one arena, hashed by xor of a 128-bit key a decision.

use std::cmp::Ordering;

/// Keys of the decisions and their running xor.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    /// `prefix[i]` is the xor of the first `i` keys.
    prefix: Vec<u128>,
}

/// A set in an [`Arena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set {
    at: u32,
    /// Two sets of one tree are taken for equal when their hashes are: with 128 bits of a fixed
    /// mixer a chance clash is out of reach.
    pub(super) hash: u128,
}

/// Words of many sets of one size.
#[derive(Debug, Clone, Default)]
pub(super) struct Arena {
    words: Vec<u64>,
    size: usize,
}

impl Keys {
    /// Keys for `count` decisions; a longer list is kept.
    pub(super) fn reserve(&mut self, count: usize) {
        if self.prefix.is_empty() {
            self.prefix.push(0);
        }
        while self.prefix.len() <= count {
            let i = self.prefix.len() as u64;
            let key = u128::from(mix(2 * i)) << 64 | u128::from(mix(2 * i + 1));
            self.prefix.push(self.prefix[self.prefix.len() - 1] ^ key);
        }
    }

    /// The key of decision `i`.
    pub(super) fn key(&self, i: usize) -> u128 {
        self.prefix[i] ^ self.prefix[i + 1]
    }

    /// All decisions of a range.
    pub(super) fn range(&self, from: usize, to: usize) -> u128 {
        self.prefix[from] ^ self.prefix[to]
    }

    /// The hash of a set.
    pub(super) fn hash(&self, words: &[u64]) -> u128 {
        let mut hash = 0;
        for_each(words, 0, words.len() * 64, |i| hash ^= self.key(i));
        hash
    }

    /// The hash of the part of a set inside a range.
    pub(super) fn hash_range(&self, words: &[u64], from: usize, to: usize) -> u128 {
        let mut hash = 0;
        for_each(words, from, to, |i| hash ^= self.key(i));
        hash
    }
}

impl Arena {
    /// Forgets all sets; the next ones have `decisions` members at most.
    pub(super) fn reset(&mut self, decisions: usize) {
        self.words.clear();
        self.size = decisions.div_ceil(64);
    }

    /// Adds a set.
    pub(super) fn push(&mut self, words: &[u64], hash: u128) -> Set {
        let at = self.words.len() as u32;
        self.words.extend_from_slice(words);
        Set { at, hash }
    }

    /// Adds a copy of a set, changed by `change`.
    pub(super) fn push_changed(
        &mut self,
        set: Set,
        hash: u128,
        change: impl FnOnce(&mut [u64]),
    ) -> Set {
        let at = self.words.len();
        let from = set.at as usize;
        self.words.extend_from_within(from..from + self.size);
        change(&mut self.words[at..]);
        Set {
            at: at as u32,
            hash,
        }
    }

    /// The words of a set.
    pub(super) fn words(&self, set: Set) -> &[u64] {
        &self.words[set.at as usize..set.at as usize + self.size]
    }

    /// Compares the sorted lists of members, as tuples compare.
    pub(super) fn compare(&self, a: Set, b: Set) -> Ordering {
        let (x, y) = (self.words(a), self.words(b));
        let Some(word) = (0..self.size).find(|&w| x[w] != y[w]) else {
            return Ordering::Equal;
        };
        let bit = (x[word] ^ y[word]).trailing_zeros();
        let x_first = x[word] >> bit & 1 == 1;
        // Whoever lacks the first differing member ends here, and is then the lesser, or goes
        // on with a greater member.
        let other = if x_first { y } else { x };
        let goes_on = other[word] >> bit != 0 || other[word + 1..].iter().any(|&w| w != 0);
        if x_first == goes_on {
            Ordering::Less
        } else {
            Ordering::Greater
        }
    }
}

/// Visits the members inside a range, in order.
pub(super) fn for_each(words: &[u64], from: usize, to: usize, mut visit: impl FnMut(usize)) {
    let mut word = from / 64;
    while word * 64 < to {
        let mut bits = words[word];
        if word == from / 64 {
            bits &= !0 << (from % 64);
        }
        if to < (word + 1) * 64 {
            bits &= !(!0 << (to % 64));
        }
        while bits != 0 {
            visit(word * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
        word += 1;
    }
}

/// Sets or clears a range of members.
pub(super) fn fill(words: &mut [u64], from: usize, to: usize, value: bool) {
    let mut at = from;
    while at < to {
        let end = to.min((at / 64 + 1) * 64);
        let low = !0_u64 << (at % 64);
        let mask = if end % 64 == 0 {
            low
        } else {
            low & !(!0 << (end % 64))
        };
        if value {
            words[at / 64] |= mask;
        } else {
            words[at / 64] &= !mask;
        }
        at = end;
    }
}

/// The words of a set given by flags.
pub(super) fn words(flags: &[bool]) -> Vec<u64> {
    let mut words = vec![0; flags.len().div_ceil(64)];
    for (i, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
        words[i / 64] |= 1 << (i % 64);
    }
    words
}

/// Whether `i` is a member.
pub(super) fn has(words: &[u64], i: usize) -> bool {
    words[i / 64] >> (i % 64) & 1 == 1
}

/// The finaliser of `SplitMix64`: a fixed function, equal on every machine.
fn mix(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_compare_as_sorted_tuples() {
        let lists: [&[usize]; 8] = [
            &[],
            &[0],
            &[0, 1],
            &[0, 70],
            &[0, 99],
            &[1],
            &[70],
            &[70, 99],
        ];
        let mut arena = Arena::default();
        arena.reset(100);
        let mut keys = Keys::default();
        keys.reserve(100);
        let sets = lists.map(|list| {
            let mut words = [0; 2];
            for &i in list {
                fill(&mut words, i, i + 1, true);
            }
            arena.push(&words, keys.hash(&words))
        });
        for (i, &a) in sets.iter().enumerate() {
            for (j, &b) in sets.iter().enumerate() {
                assert_eq!(arena.compare(a, b), lists[i].cmp(lists[j]), "{i} {j}");
                assert_eq!(a.hash == b.hash, i == j);
            }
        }
    }

    #[test]
    fn ranges() {
        let mut words = [0; 3];
        fill(&mut words, 3, 130, true);
        fill(&mut words, 64, 128, false);
        let mut found = Vec::new();
        for_each(&words, 60, 129, |i| found.push(i));
        assert_eq!(found, [60, 61, 62, 63, 128]);
        assert!(has(&words, 3) && !has(&words, 130) && !has(&words, 64));
    }
}
