//! Structured values out of fuzz bytes; small and plausible mostly, hostile now and then.

use arbitrary::{Arbitrary, Unstructured};

/// Numbers at the ends of what an argument can hold, and beside powers of two.
const WILD: [i64; 16] = [
    i64::MIN,
    i64::MIN + 1,
    i64::MAX,
    i64::MAX - 1,
    -1,
    0,
    1,
    -2,
    63,
    64,
    1 << 31,
    1 << 32,
    (1 << 53) + 1,
    1 << 62,
    -(1 << 32),
    3_037_000_500,
];

/// Reads values from bytes; zeros when they run out.
#[derive(Debug)]
pub struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    /// From the bytes of one input.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Any value of a type.
    pub fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number in a closed range.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0.int_in_range(low..=high).unwrap_or(low)
    }

    /// A number below `below`, which is positive.
    pub fn below(&mut self, below: usize) -> usize {
        self.0.int_in_range(0..=below - 1).unwrap_or(0)
    }

    /// True or false.
    pub fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    /// True once in so many times; false when the bytes have run out.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of several values.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number that an argument should not have, or any.
    pub fn wild(&mut self) -> i64 {
        if self.coin() {
            self.any()
        } else {
            self.pick(&WILD)
        }
    }

    /// A float that an argument should not have, or any.
    pub fn wild_float(&mut self) -> f64 {
        let odd = [
            0.0,
            -0.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            f64::MAX,
            1e-300,
        ];
        if self.coin() {
            self.any()
        } else {
            self.pick(&odd)
        }
    }

    /// Up to `most` values.
    pub fn list<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| one(self)).collect()
    }

    /// Token sequences: new ones, and continuations of an earlier sequence's beginning.
    pub fn sequences(&mut self, most: usize) -> Vec<Vec<i64>> {
        let count = self.below(most + 1);
        let alphabet = self.pick(&[1, 2, 3, 5]);
        let repeat = self.pick(&[1, 1, 1, 2, 13, 64, 70]);
        let mut sequences: Vec<Vec<i64>> = Vec::new();
        for _ in 0..count {
            let mut sequence = match sequences.len() {
                0 => Vec::new(),
                made => {
                    let earlier = &sequences[self.below(made)];
                    earlier[..self.below(earlier.len() + 1)].to_vec()
                }
            };
            for _ in 0..self.below(5) {
                let token = match self.below(8) {
                    7 => self.wild(),
                    _ => self.below(alphabet) as i64,
                };
                let times = if self.coin() { repeat } else { 1 };
                sequence.extend(std::iter::repeat_n(token, times));
            }
            sequence.truncate(400);
            sequences.push(sequence);
        }
        sequences
    }
}

/// Sequences one after another, and where each begins.
#[must_use]
pub fn flat(sequences: &[Vec<i64>]) -> (Vec<i64>, Vec<i64>) {
    let mut offsets = vec![0];
    for sequence in sequences {
        offsets.push(offsets[offsets.len() - 1] + sequence.len() as i64);
    }
    (sequences.concat(), offsets)
}
