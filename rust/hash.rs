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

/// Words read at once.
pub const STEP: usize = 4;

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

    /// Reads a run: all but the last have a multiple of [`STEP`] integers.
    pub fn read(&mut self, run: &[i64]) {
        let (key, mut left, mut right) = (self.key, self.left, self.right);
        let mut steps = run.chunks_exact(STEP);
        for step in &mut steps {
            let word = [
                step[0] as u64,
                step[1] as u64,
                step[2] as u64,
                step[3] as u64,
            ];
            left[0] = fold(word[0] ^ MIX[0] ^ key[0], word[1] ^ left[0]);
            left[1] = fold(word[2] ^ MIX[1] ^ key[0], word[3] ^ left[1]);
            right[0] = fold(word[1] ^ MIX[2] ^ key[1], word[2] ^ right[0]);
            right[1] = fold(word[3] ^ MIX[3] ^ key[1], word[0] ^ right[1]);
        }
        for &token in steps.remainder() {
            left[0] = fold(token as u64 ^ MIX[0] ^ key[0], left[0] ^ MIX[2]);
            right[0] = fold(token as u64 ^ MIX[1] ^ key[1], right[0] ^ MIX[3]);
        }
        (self.left, self.right) = (left, right);
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
    made.read(values);
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
    fn a_hash_is_the_same_however_it_is_read_and_wherever() {
        let values: Vec<i64> = (0..4099).map(|i| i * i).collect();
        let mut made = Hash::new(values.len(), [5, 7]);
        for run in values.chunks(8 * STEP) {
            made.read(run);
        }
        assert_eq!(made.end(), hash(&values, [5, 7]));
        assert_eq!(
            made.end(),
            254_017_966_454_919_976_607_875_602_561_736_045_143
        );
    }
}
