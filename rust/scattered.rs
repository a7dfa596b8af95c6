//! Sequences and labels in arrays of their own, as another package holds them.
//!
//! Gathers the tokens of a pack, and counts the tokens that the head projects,
//! of requests whose packed positions are known token by token.

use crate::cancel;
use crate::error::{Error, Result};
use crate::measures::requests::runs_of;
use crate::pack::Packing;
use crate::segments::NONE;

/// A label that asks for nothing.
const NO_LABEL: i64 = -100;
/// Bits of one word of [`Marks`].
const BITS: usize = u64::BITS as usize;

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

/// What the head projects of one request.
#[derive(Debug, Clone, Copy)]
pub struct HeadTokens<'a> {
    /// Labels, the same number for each token; `None` without targets.
    pub labels: Option<&'a [i64]>,
    /// Every token is projected (logits, top-k).
    pub every: bool,
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

/// Intervals of a sequence's tokens that the head projects.
fn projected(request: &HeadTokens<'_>, tokens: i64) -> Result<Vec<(i64, i64)>> {
    let mut runs = Vec::new();
    match request.labels {
        _ if request.every => runs.push((0, tokens)),
        Some(labels) if tokens > 0 => {
            labelled_runs(labels, labels.len() / tokens as usize, &mut runs)?;
        }
        _ => {}
    }
    Ok(runs)
}

/// Appends the intervals of tokens that have a label, of `width` labels each.
pub(crate) fn labelled_runs(
    labels: &[i64],
    width: usize,
    runs: &mut Vec<(i64, i64)>,
) -> Result<()> {
    if width == 1 {
        return runs_of(labels, |&label| label != NO_LABEL, runs);
    }
    let asked: Vec<bool> = labels.chunks(width.max(1)).map(asks).collect();
    runs_of(&asked, |&set| set, runs)
}

/// Checks that there is one request a sequence, with the same number of labels for each token.
fn check(packing: &Packing, requests: &[HeadTokens<'_>]) -> Result<()> {
    packing.refuse_absent()?;
    let sequences = packing.last.len();
    if requests.len() != sequences {
        return Err(Error::input(format!(
            "there are {} requests, but the pack has {sequences} sequences: give one each",
            requests.len()
        )));
    }
    for (i, request) in requests.iter().enumerate() {
        let (tokens, labels) = (
            tokens_of(packing, i),
            request.labels.map_or(0, <[i64]>::len),
        );
        if labels > 0 && (tokens == 0 || labels % tokens as usize != 0) {
            return Err(Error::input(format!(
                "request {i} has {labels} labels for {tokens} tokens: give the same number for each"
            )));
        }
    }
    Ok(())
}

/// Tokens of a sequence of a pack.
fn tokens_of(packing: &Packing, sequence: usize) -> i64 {
    match packing.last[sequence] {
        NONE => 0,
        s => packing.sequence_start[s as usize] + packing.segments.length(s as usize),
    }
}

/// A set of packed positions.
struct Marks(Vec<u64>);

impl Marks {
    fn new(packing: &Packing) -> Self {
        Self(vec![0; (packing.segments.tokens() as usize).div_ceil(BITS)])
    }

    /// Adds the packed positions of ascending intervals of a sequence.
    fn insert(&mut self, packing: &Packing, sequence: usize, runs: &[(i64, i64)]) {
        let mut runs = runs.iter().copied().peekable();
        for s in packing.path(sequence) {
            let (s, start) = (s as usize, packing.sequence_start[s as usize]);
            let (end, packed) = (
                start + packing.segments.length(s),
                packing.segments.starts[s],
            );
            while let Some(&(from, to)) = runs.peek() {
                if from < end {
                    let (from, to) = (from.max(start), to.min(end));
                    self.fill(
                        (from - start + packed) as usize,
                        (to - start + packed) as usize,
                    );
                }
                if to > end {
                    break;
                }
                runs.next();
            }
        }
    }

    fn fill(&mut self, from: usize, to: usize) {
        for word in from / BITS..to.div_ceil(BITS) {
            let below = |at: usize| match at.saturating_sub(word * BITS) {
                bits if bits >= BITS => u64::MAX,
                bits => (1 << bits) - 1,
            };
            self.0[word] |= below(to) & !below(from);
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Members before `at`.
    fn rank(&self, at: usize) -> usize {
        let rest = self.0[at / BITS] & ((1_u64 << (at % BITS)) - 1);
        let whole = self.0[..at / BITS].iter().map(|word| word.count_ones());
        (whole.sum::<u32>() + rest.count_ones()) as usize
    }
}

/// Distinct packed positions that the head projects, `requests` those of the pack's sequences.
pub fn projected_tokens(packing: &Packing, requests: &[HeadTokens<'_>]) -> Result<usize> {
    check(packing, requests)?;
    let mut marks = Marks::new(packing);
    for (i, request) in requests.iter().enumerate() {
        cancel::check_at(i)?;
        marks.insert(packing, i, &projected(request, tokens_of(packing, i))?);
    }
    Ok(marks.count())
}

/// Tokens of the head's first chunk that holds a position of a request with labels: the largest
/// chunk whose backward runs, as only the last may be short.
pub fn target_chunk(packing: &Packing, requests: &[HeadTokens<'_>], chunk: usize) -> Result<usize> {
    check(packing, requests)?;
    let (mut marks, mut targeted) = (Marks::new(packing), Marks::new(packing));
    for (i, request) in requests.iter().enumerate() {
        cancel::check_at(i)?;
        let tokens = tokens_of(packing, i);
        marks.insert(packing, i, &projected(request, tokens)?);
        if request.labels.is_some() {
            targeted.insert(packing, i, &[(0, tokens)]);
        }
    }
    let both = (marks.0.iter().zip(&targeted.0)).map(|(a, b)| a & b);
    let Some((at, word)) = both.enumerate().find(|&(_, word)| word != 0) else {
        return Ok(0);
    };
    let first = marks.rank(at * BITS + word.trailing_zeros() as usize);
    Ok(chunk.min(marks.count() - first / chunk * chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sequences of 70 and 4 tokens that share the first 2, and one of 1 token.
    fn forked() -> Packing {
        let mut long: Vec<i64> = vec![0; 70];
        long[69] = 9;
        let sequences: [&[i64]; 3] = [&long, &[0, 0, 1, 1], &[5]];
        crate::pack::pack_scattered(&sequences, &crate::pack::PackOptions::default()).unwrap()
    }

    fn head(labels: Option<&[i64]>, every: bool) -> HeadTokens<'_> {
        HeadTokens { labels, every }
    }

    #[test]
    fn counts_each_position_once() {
        let packing = forked();
        assert_eq!(packing.segments.tokens(), 73);
        let mut labels = vec![-100; 70];
        labels[1] = 7;
        labels[66..].fill(7);
        let count = |requests: &[HeadTokens<'_>]| projected_tokens(&packing, requests).unwrap();
        let some = [
            head(Some(&labels), false),
            head(Some(&[3, 3, -100, 3]), false),
        ];
        assert_eq!(count(&[some[0], some[1], head(None, false)]), 7);
        assert_eq!(count(&[some[0], head(None, true), head(None, true)]), 9);
        assert_eq!(labelled(&labels, 70), 5);
        assert_eq!(labelled(&labels, 35), 3);
        assert_eq!(labelled(&[], 0), 0);
    }

    #[test]
    fn the_target_chunk_starts_at_a_multiple() {
        let packing = forked();
        let requests = [head(None, true), head(None, false), head(Some(&[1]), false)];
        let chunk = |size| target_chunk(&packing, &requests, size).unwrap();
        assert_eq!((chunk(64), chunk(70), chunk(100)), (7, 1, 71));
        let none = [head(None, true); 3];
        assert_eq!(target_chunk(&packing, &none, 4), Ok(0));
    }

    #[test]
    fn refuses_requests_of_another_pack() {
        let packing = forked();
        for bad in [
            &[head(None, true); 2][..],
            &[
                head(Some(&[1, 2, 3]), false),
                head(None, true),
                head(None, true),
            ],
        ] {
            assert!(projected_tokens(&packing, bad).is_err());
            assert!(target_chunk(&packing, bad, 3).is_err());
        }
    }
}
