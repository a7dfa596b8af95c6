//! 128-bit hashes of integers, equal on every machine.
//!
//! Two chains of folded multiplications (a 64 by 64 bit product, its halves combined by exclusive
//! or), each of which reads every word, with keys and orders of their own. They tell content apart
//! that differs by accident; they are no signature against somebody who wants a collision.

/// Odd 64-bit constants with well-mixed bits (fractions of the golden ratio, e, pi).
const MIX: [u64; 4] = [
    0x9e37_79b9_7f4a_7c15,
    0xb7e1_5162_8aed_2a6b,
    0x2432_f6a8_885a_308d,
    0xd6e8_feb8_6659_fd93,
];

/// Integers that are read at once; the last run may be shorter.
pub const RUN: usize = 1 << 12;

/// Integers of a step of the two loops.
const STEP: usize = 8;

/// The two halves of a full product, folded together.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A hash of so many integers, read run by run.
#[derive(Debug, Clone, Copy)]
pub struct Hash {
    key: [u64; 2],
    left: [u64; 2],
    right: [u64; 2],
}

impl Hash {
    /// The hash of `length` integers, none of them read yet.
    #[must_use]
    pub fn new(length: usize, key: [u64; 2]) -> Self {
        let seed = fold(key[0] ^ length as u64, MIX[0]);
        Self {
            key,
            left: [seed ^ MIX[1], seed ^ MIX[2]],
            right: [fold(key[1] ^ seed, MIX[3]), fold(key[1] ^ seed, MIX[1])],
        }
    }

    /// Reads the next [`RUN`] integers, two a word where all are of 32 bits; returns their bitwise
    /// or.
    pub fn read(&mut self, run: &[i64]) -> i64 {
        let all = run.iter().fold(0, |all, &value| all | value);
        let mut steps = run.chunks_exact(STEP);
        if all as u64 >> 32 == 0 {
            let pair = |low: i64, high: i64| low as u64 | (high as u64) << 32;
            // Another key than of words read one by one.
            self.key[0] ^= MIX[1];
            for s in &mut steps {
                let words = [
                    pair(s[0], s[1]),
                    pair(s[2], s[3]),
                    pair(s[4], s[5]),
                    pair(s[6], s[7]),
                ];
                self.step(words);
            }
            self.key[0] ^= MIX[1];
        } else {
            for s in &mut steps {
                self.step([s[0] as u64, s[1] as u64, s[2] as u64, s[3] as u64]);
                self.step([s[4] as u64, s[5] as u64, s[6] as u64, s[7] as u64]);
            }
        }
        for &value in steps.remainder() {
            let word = value as u64;
            self.left[0] = fold(word ^ MIX[0] ^ self.key[0], self.left[0] ^ MIX[2]);
            self.right[0] = fold(word ^ MIX[1] ^ self.key[1], self.right[0] ^ MIX[3]);
        }
        all
    }

    #[inline]
    fn step(&mut self, word: [u64; 4]) {
        let Self { key, left, right } = self;
        left[0] = fold(word[0] ^ MIX[0] ^ key[0], word[1] ^ left[0]);
        left[1] = fold(word[2] ^ MIX[1] ^ key[0], word[3] ^ left[1]);
        right[0] = fold(word[1] ^ MIX[2] ^ key[1], word[2] ^ right[0]);
        right[1] = fold(word[3] ^ MIX[3] ^ key[1], word[0] ^ right[1]);
    }

    /// The hash of all that was read.
    #[must_use]
    pub fn end(self) -> u128 {
        let end = |pair: [u64; 2], key: u64| fold(fold(pair[0] ^ key, MIX[2]) ^ pair[1], MIX[1]);
        (u128::from(end(self.left, self.key[0])) << 64) | u128::from(end(self.right, self.key[1]))
    }
}

/// The hash of integers with a key.
#[must_use]
pub fn hash(values: &[i64], key: [u64; 2]) -> u128 {
    let mut made = Hash::new(values.len(), key);
    for run in values.chunks(RUN) {
        made.read(run);
    }
    made.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_differ_by_key_length_place_and_bit() {
        let sequences: Vec<Vec<i64>> = (0..70)
            .flat_map(|n| {
                let base: Vec<i64> = vec![0; n];
                let changed = (0..n).map(move |i| {
                    let mut sequence = vec![0; n];
                    sequence[i] = 1 << (i % 63);
                    sequence
                });
                std::iter::once(base).chain(changed)
            })
            .collect();
        let mut seen: Vec<u128> = sequences.iter().map(|r| hash(r, [1, 2])).collect();
        seen.push(hash(&sequences[9], [1, 3]));
        seen.push(hash(&sequences[9], [2, 2]));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn a_hash_is_the_same_on_every_machine() {
        let mut values: Vec<i64> = (0..RUN as i64 + 99).map(|i| i * i).collect();
        let expected = [
            103_498_840_128_835_481_493_377_194_511_226_887_487,
            294_963_380_474_680_041_796_192_304_601_758_117_508,
            164_674_974_859_359_131_480_148_126_534_075_960_111,
        ];
        values[RUN + 7] = -1; // the second run is read word by word
        let found = [&values[..RUN], &values[RUN..], &values].map(|run| hash(run, [5, 7]));
        assert_eq!(found, expected);
    }
}
