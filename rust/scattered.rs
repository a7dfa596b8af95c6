//! Sequences and labels in arrays of their own, as another package holds them.
//!
//! Hashes sequences, gathers the tokens of a pack, and counts the tokens that the head projects,
//! of requests whose packed positions are known token by token.

use crate::cancel;
use crate::error::{Error, Result};
use crate::pack::Packing;

/// A label that asks for nothing.
const NO_LABEL: i64 = -100;
/// Bits of one word of [`Marks`].
const BITS: usize = u64::BITS as usize;
/// One past the largest packed position: a bit map holds them all.
const LARGEST: i64 = 1 << 28;

/// Odd 64-bit constants with well-mixed bits (fractions of the golden ratio, e, pi).
const MIX: [u64; 4] = [
    0x9e37_79b9_7f4a_7c15,
    0xb7e1_5162_8aed_2a6b,
    0x2432_f6a8_885a_308d,
    0xd6e8_feb8_6659_fd93,
];

/// The two halves of a full product, folded together.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Keyed 128-bit hash of a sequence: for look-ups within one process, not a signature.
///
/// Two chains of folded multiplications with different keys, four words a step.
#[must_use]
pub fn hash_sequence(tokens: &[i64], key: [u64; 2]) -> u128 {
    let seed = fold(key[0] ^ tokens.len() as u64, MIX[0]);
    let mut left = [seed ^ MIX[1], seed ^ MIX[2]];
    let mut right = [fold(key[1] ^ seed, MIX[3]), fold(key[1] ^ seed, MIX[1])];
    let mut steps = tokens.chunks_exact(4);
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
    let end = |pair: [u64; 2], key: u64| fold(fold(pair[0] ^ key, MIX[2]) ^ pair[1], MIX[1]);
    (u128::from(end(left, key[0])) << 64) | u128::from(end(right, key[1]))
}

/// The tokens of a pack, from the first sequence of each segment.
pub fn gather(packing: &Packing, sequences: &[&[i64]]) -> Result<Vec<i64>> {
    if sequences.len() != packing.last.len() {
        return Err(Error::input(format!(
            "there are {} sequences, but the pack has {}: they must be the sequences it was made of",
            sequences.len(),
            packing.last.len()
        )));
    }
    packing.refuse_absent()?;
    let segments = &packing.segments;
    let mut tokens = Vec::with_capacity(segments.tokens() as usize);
    for s in 0..segments.len() {
        cancel::check_at(s)?;
        let start = packing.sequence_start[s] as usize;
        let end = start + segments.length(s) as usize;
        let part = (packing.sequences_of(s).first())
            .and_then(|&sequence| sequences[sequence as usize].get(start..end))
            .ok_or_else(|| Error::input(format!("segment {s} is not in its first sequence")))?;
        tokens.extend_from_slice(part);
    }
    Ok(tokens)
}

/// Segment number of each packed token, from 1; with `parents` its parent's, or its own at a root.
pub fn ids(packing: &Packing, parents: bool) -> Result<Vec<i64>> {
    packing.refuse_absent()?;
    let segments = &packing.segments;
    let mut ids = Vec::with_capacity(segments.tokens() as usize);
    for s in 0..segments.len() {
        let parent = segments.parent(s).filter(|_| parents);
        let id = parent.unwrap_or(s) as i64 + 1;
        ids.extend(std::iter::repeat_n(id, segments.length(s) as usize));
    }
    Ok(ids)
}

/// Position of each packed token inside its sequences.
pub fn position_ids(packing: &Packing) -> Result<Vec<i64>> {
    packing.refuse_absent()?;
    let segments = &packing.segments;
    let mut ids = Vec::with_capacity(segments.tokens() as usize);
    for (s, &start) in packing.sequence_start.iter().enumerate() {
        ids.extend(start..start + segments.length(s));
    }
    Ok(ids)
}

/// Packed positions of all sequences, one sequence after another, and where each begins.
pub fn positions(packing: &Packing) -> Result<(Vec<i64>, Vec<i64>)> {
    let segments = &packing.segments;
    let sequences = packing.last.len();
    let mut offsets = Vec::with_capacity(sequences + 1);
    offsets.push(0);
    let mut flat = Vec::new();
    for sequence in 0..sequences {
        cancel::check_at(sequence)?;
        for s in packing.path(sequence) {
            let start = segments.starts[s as usize];
            flat.extend(start..start + segments.length(s as usize));
        }
        offsets.push(flat.len() as i64);
    }
    Ok((flat, offsets))
}

/// The tokens of one request that the head may project.
#[derive(Debug, Clone, Copy)]
pub struct HeadTokens<'a> {
    /// Packed position of each token.
    pub positions: &'a [i64],
    /// Labels, the same number for each token; `None` without targets.
    pub labels: Option<&'a [i64]>,
    /// Every token is projected (logits, top-k).
    pub every: bool,
}

impl HeadTokens<'_> {
    /// Positions that are projected; those with a label alone if `labelled`.
    fn projected(&self, labelled: bool) -> impl Iterator<Item = i64> {
        let width = match self.labels {
            Some(labels) if !self.positions.is_empty() => labels.len() / self.positions.len(),
            _ => 0,
        };
        let all = self.every && !labelled;
        (self.positions.iter().enumerate())
            .filter(move |&(i, _)| {
                all || (self.labels).is_some_and(|labels| asks(&labels[i * width..(i + 1) * width]))
            })
            .map(|(_, &position)| position)
    }
}

fn asks(labels: &[i64]) -> bool {
    labels.iter().any(|&label| label != NO_LABEL)
}

/// Tokens that have a label, of `labels.len() / tokens` labels each.
#[must_use]
pub fn labelled(labels: &[i64], tokens: usize) -> usize {
    if tokens == 0 || labels.is_empty() {
        return 0;
    }
    let width = labels.len() / tokens;
    if width == 1 {
        return labels.iter().filter(|&&label| label != NO_LABEL).count();
    }
    labels.chunks_exact(width).filter(|l| asks(l)).count()
}

/// Checks positions and labels; returns one past the largest position.
fn check(requests: &[HeadTokens<'_>]) -> Result<usize> {
    let mut size = 0;
    for (i, request) in requests.iter().enumerate() {
        let tokens = request.positions.len();
        let labels = request.labels.map_or(0, <[i64]>::len);
        if labels > 0 && (tokens == 0 || labels % tokens != 0) {
            return Err(Error::input(format!(
                "request {i} has {labels} labels for {tokens} tokens: give the same number for each"
            )));
        }
        for &position in request.positions {
            if !(0..LARGEST).contains(&position) {
                return Err(Error::input(format!(
                    "request {i} has a token at packed position {position}: it must be from 0 to below 2^28"
                )));
            }
            size = size.max(position as usize + 1);
        }
    }
    Ok(size)
}

/// A set of positions.
struct Marks {
    words: Vec<u64>,
    count: usize,
}

impl Marks {
    fn new(size: usize) -> Self {
        Self {
            words: vec![0; size.div_ceil(BITS)],
            count: 0,
        }
    }

    fn insert(&mut self, position: i64) {
        let at = position as usize;
        let (word, bit) = (&mut self.words[at / BITS], 1_u64 << (at % BITS));
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    /// Members before `at`.
    fn rank(&self, at: usize) -> usize {
        let whole: u32 = (self.words[..at / BITS].iter())
            .map(|w| w.count_ones())
            .sum();
        let rest = self.words[at / BITS] & ((1_u64 << (at % BITS)) - 1);
        (whole + rest.count_ones()) as usize
    }
}

/// Distinct positions that the head projects; counts no further than `most`.
pub fn projected_tokens(requests: &[HeadTokens<'_>], most: usize) -> Result<usize> {
    let mut marks = Marks::new(check(requests)?);
    for request in requests {
        for position in request.projected(false) {
            marks.insert(position);
            if marks.count >= most {
                return Ok(most);
            }
        }
    }
    Ok(marks.count)
}

/// Tokens of the head's first chunk that holds a position of a request with labels: the largest
/// chunk whose backward runs, as only the last may be short.
pub fn target_chunk(requests: &[HeadTokens<'_>], chunk: usize) -> Result<usize> {
    let size = check(requests)?;
    let (mut projected, mut targeted) = (Marks::new(size), Marks::new(size));
    for request in requests {
        for position in request.projected(false) {
            projected.insert(position);
        }
        if request.labels.is_some() {
            for &position in request.positions {
                targeted.insert(position);
            }
        }
    }
    let both = (projected.words.iter().zip(&targeted.words)).map(|(a, b)| a & b);
    let Some((at, word)) = both.enumerate().find(|&(_, word)| word != 0) else {
        return Ok(0);
    };
    let first = projected.rank(at * BITS + word.trailing_zeros() as usize);
    Ok(chunk.min(projected.count - first / chunk * chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(positions: &'a [i64], labels: Option<&'a [i64]>, every: bool) -> HeadTokens<'a> {
        HeadTokens {
            positions,
            labels,
            every,
        }
    }

    #[test]
    fn counts_each_position_once() {
        let shared = [0, 1, 2, 3];
        let labels = [-100, 7, 7, -100];
        let requests = [
            head(&shared, Some(&labels), false),
            head(&[0, 1, 64, 65], Some(&[7, -100, -100, 7]), false),
            head(&[200], None, false),
        ];
        let count = |most| projected_tokens(&requests, most).unwrap();
        assert_eq!((count(usize::MAX), count(3)), (4, 3));
        assert_eq!(labelled(&labels, 4), 2);
        assert_eq!(labelled(&labels, 2), 2);
        assert_eq!(labelled(&[], 0), 0);
    }

    #[test]
    fn the_target_chunk_starts_at_a_multiple() {
        let every: Vec<i64> = (0..10).collect();
        let requests = [head(&every, None, true), head(&[9], Some(&[1]), false)];
        let chunk = |size| target_chunk(&requests, size).unwrap();
        assert_eq!((chunk(4), chunk(3), chunk(100)), (2, 1, 10));
        assert_eq!(target_chunk(&requests[..1], 4), Ok(0));
    }

    #[test]
    fn refuses_positions_and_labels_that_lie() {
        for bad in [
            head(&[-1], None, true),
            head(&[i64::MAX], None, true),
            head(&[0, 1], Some(&[1, 2, 3]), false),
            head(&[], Some(&[1]), false),
        ] {
            assert!(projected_tokens(&[bad], 9).is_err());
        }
    }

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
        let mut seen: Vec<u128> = sequences.iter().map(|r| hash_sequence(r, [1, 2])).collect();
        seen.push(hash_sequence(&sequences[9], [1, 3]));
        seen.push(hash_sequence(&sequences[9], [2, 2]));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
