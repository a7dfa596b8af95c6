//! The requests of a whole pool as columns.

use std::ops::Range;

use super::mixes::mixes;
use crate::cancel;
use crate::error::{Error, Result};

/// The adapter slot of requests that run the model's own weights.
pub const NO_SLOT: u32 = 0;

/// Shorter single-label requests leave packed pricing (see `packed_priceable`).
const SHORT_TOKENS: i64 = 64;

/// The labelled tokens of each request, as given.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Per request: labelled from this position to its end.
    From(&'a [i64]),
    /// One flag per token of the pool, requests one after another.
    Mask(&'a [bool]),
}

/// One entry per request, as given.
#[derive(Debug, Clone)]
pub struct Columns<'a> {
    /// Tokens of each request.
    pub lengths: &'a [i64],
    /// Has targets at all.
    pub targets: &'a [bool],
    /// Its labelled tokens; read only where `targets` is true.
    pub labels: Labels<'a>,
    /// Target entries per token: 1 for single labels.
    pub target_width: &'a [i64],
    /// k of the top-k output, 0 for none.
    pub top_k: &'a [i64],
    /// Returns logits.
    pub logits: &'a [bool],
    /// Returns hidden states.
    pub hidden: &'a [bool],
    /// Computes gradients.
    pub gradient: &'a [bool],
    /// Adapter slot, [`NO_SLOT`] for none.
    pub slot: &'a [u32],
    /// Entries of routed-expert replay, 0 for none.
    pub routed: &'a [i64],
    /// Requests of each group, in order.
    pub group_sizes: &'a [i64],
}

/// All requests of a pool, checked, with their labelled tokens as intervals.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// Tokens of each request.
    pub lengths: Vec<i64>,
    /// Group `i` holds the requests `group_offsets[i]..group_offsets[i + 1]`.
    pub group_offsets: Vec<u32>,
    /// Computes gradients.
    pub gradient: Vec<bool>,
    /// Adapter slot, [`NO_SLOT`] for none.
    pub slot: Vec<u32>,
    /// One more than the largest slot.
    pub slots: u32,
    /// Entries of routed-expert replay, 0 for none.
    pub routed: Vec<i64>,
    /// Has targets.
    pub targets: Vec<bool>,
    /// Target entries: tokens times their width, ignored ones included; 0 without targets.
    pub target_entries: Vec<i64>,
    /// Ceiling of target entries per token.
    pub target_width: Vec<i64>,
    /// k of the top-k output, 0 for none.
    pub top_k: Vec<i64>,
    /// Top-k entries: tokens times k.
    pub top_k_entries: Vec<i64>,
    /// Returns logits.
    pub logits: Vec<bool>,
    /// Returns hidden states.
    pub hidden: Vec<bool>,
    /// Interned output mix: equal numbers, equal mixes.
    pub mix: Vec<u32>,
    /// The first request of each mix.
    pub mix_first: Vec<u32>,
    /// Single-label targets and nothing else.
    pub plain: Vec<bool>,
    /// Labelled tokens of request `r`: `runs[run_offsets[r]..run_offsets[r + 1]]`.
    pub run_offsets: Vec<u32>,
    /// Half-open intervals of positions, ascending, apart from each other.
    pub runs: Vec<(i64, i64)>,
    /// Labelled tokens.
    pub labelled: Vec<i64>,
    /// Tokens that the head projects: all for logits and top-k, else the labelled ones.
    pub projected: Vec<i64>,
}

impl Pool {
    /// Checks the columns and turns labels into intervals, in one pass.
    pub fn new(columns: &Columns<'_>) -> Result<Self> {
        let count = columns.lengths.len();
        check_lengths(columns, count)?;
        check_values(columns)?;
        let (mix, mix_first) = mixes(columns);
        let mut pool = Self {
            lengths: columns.lengths.to_vec(),
            group_offsets: group_offsets(columns.group_sizes, count)?,
            gradient: columns.gradient.to_vec(),
            slot: columns.slot.to_vec(),
            slots: columns.slot.iter().max().map_or(1, |&slot| slot + 1),
            routed: columns.routed.to_vec(),
            targets: columns.targets.to_vec(),
            target_entries: Vec::with_capacity(count),
            target_width: columns.target_width.to_vec(),
            top_k: columns.top_k.to_vec(),
            top_k_entries: Vec::with_capacity(count),
            logits: columns.logits.to_vec(),
            hidden: columns.hidden.to_vec(),
            mix,
            mix_first,
            plain: Vec::with_capacity(count),
            run_offsets: Vec::with_capacity(count + 1),
            runs: Vec::with_capacity(count),
            labelled: Vec::with_capacity(count),
            projected: Vec::with_capacity(count),
        };
        pool.label(columns)?;
        for r in 0..count {
            let entries = if pool.targets[r] {
                pool.lengths[r]
                    .checked_mul(pool.target_width[r])
                    .ok_or(Error::Overflow("the number of target entries"))?
            } else {
                0
            };
            pool.target_entries.push(entries);
            pool.top_k_entries.push(
                pool.lengths[r]
                    .checked_mul(pool.top_k[r])
                    .ok_or(Error::Overflow("the number of top-k entries"))?,
            );
            let whole = pool.whole(r);
            pool.projected.push(if whole {
                pool.lengths[r]
            } else {
                pool.labelled[r]
            });
            pool.plain.push(
                pool.targets[r]
                    && pool.target_width[r] == 1
                    && !whole
                    && !pool.hidden[r]
                    && pool.routed[r] == 0,
            );
        }
        Ok(pool)
    }

    fn label(&mut self, columns: &Columns<'_>) -> Result<()> {
        self.run_offsets.push(0);
        let mut at = 0;
        for (r, &length) in columns.lengths.iter().enumerate() {
            cancel::check_at(r)?;
            let first = self.runs.len();
            let end = at + length as usize;
            if self.targets[r] {
                match columns.labels {
                    Labels::From(from) if from[r] < length => self.runs.push((from[r], length)),
                    Labels::From(_) => {}
                    Labels::Mask(mask) => {
                        runs_of(&mask[at..end], &mut self.runs)?;
                    }
                }
            }
            at = end;
            let count = self.runs[first..].iter().map(|run| run.1 - run.0).sum();
            self.labelled.push(count);
            let offset = u32::try_from(self.runs.len())
                .map_err(|_| Error::Overflow("the number of label runs"))?;
            self.run_offsets.push(offset);
        }
        Ok(())
    }

    /// Number of requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.lengths.len()
    }

    /// Number of groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.group_offsets.len() - 1
    }

    /// The requests of group `i`.
    #[must_use]
    pub fn group(&self, i: usize) -> Range<usize> {
        self.group_offsets[i] as usize..self.group_offsets[i + 1] as usize
    }

    /// True if request `r` has an output; the others join no pack.
    #[must_use]
    pub fn active(&self, r: usize) -> bool {
        self.targets[r] || self.hidden[r] || self.whole(r)
    }

    /// True if the head projects every token of request `r`.
    #[must_use]
    pub fn whole(&self, r: usize) -> bool {
        self.logits[r] || self.top_k[r] > 0
    }

    /// True if request `r` allows packed pricing of a plan that holds it.
    #[must_use]
    pub fn packed_priceable(&self, r: usize) -> bool {
        !self.active(r) && self.routed[r] == 0 || self.plain[r] && self.lengths[r] >= SHORT_TOKENS
    }

    /// Labelled tokens of request `r`.
    #[must_use]
    pub fn runs(&self, r: usize) -> &[(i64, i64)] {
        &self.runs[self.run_offsets[r] as usize..self.run_offsets[r + 1] as usize]
    }
}

/// Appends the intervals of true entries.
pub(crate) fn runs_of(mask: &[bool], runs: &mut Vec<(i64, i64)>) -> Result<()> {
    let mut at = 0;
    while let Some(gap) = mask[at..].iter().position(|&set| set) {
        cancel::check_at(runs.len())?;
        let start = at + gap;
        let length = mask[start..]
            .iter()
            .position(|&set| !set)
            .unwrap_or(mask.len() - start);
        at = start + length;
        runs.push((start as i64, at as i64));
    }
    Ok(())
}

fn group_offsets(sizes: &[i64], count: usize) -> Result<Vec<u32>> {
    let mut offsets = Vec::with_capacity(sizes.len() + 1);
    let mut at = 0_u32;
    offsets.push(at);
    for (i, &size) in sizes.iter().enumerate() {
        let next = u32::try_from(size)
            .ok()
            .and_then(|size| at.checked_add(size));
        match next {
            Some(next) if size > 0 && next as usize <= count => at = next,
            _ => {
                return Err(Error::input(format!(
                    "groups[{i}] is {size}: a group holds at least 1 request and all groups together {count}"
                )));
            }
        }
        offsets.push(at);
    }
    if at as usize != count {
        return Err(Error::input(format!(
            "groups hold {at} requests, but there are {count}: their sizes must sum to that"
        )));
    }
    Ok(offsets)
}

fn check_lengths(columns: &Columns<'_>, count: usize) -> Result<()> {
    if count >= u32::MAX as usize {
        return Err(Error::Overflow("the number of requests"));
    }
    let given = [
        ("targets", columns.targets.len()),
        ("target_width", columns.target_width.len()),
        ("top_k", columns.top_k.len()),
        ("logits", columns.logits.len()),
        ("hidden", columns.hidden.len()),
        ("gradient", columns.gradient.len()),
        ("adapter", columns.slot.len()),
        ("routed", columns.routed.len()),
    ];
    for (name, entries) in given {
        if entries != count {
            return Err(Error::input(format!(
                "{name} has {entries} entries for {count} requests: give one each"
            )));
        }
    }
    let mut tokens = 0_i64;
    for (r, &length) in columns.lengths.iter().enumerate() {
        if length < 0 {
            return Err(Error::input(format!(
                "lengths[{r}] is {length}: it must be at least 0"
            )));
        }
        tokens = tokens
            .checked_add(length)
            .ok_or(Error::Overflow("the pool's tokens"))?;
    }
    match columns.labels {
        Labels::From(from) if from.len() != count => Err(Error::input(format!(
            "targets has {} entries for {count} requests: give one first target each",
            from.len()
        ))),
        Labels::Mask(mask) if Ok(mask.len()) != usize::try_from(tokens) => {
            Err(Error::input(format!(
                "label masks hold {} entries for {tokens} tokens: give one per token",
                mask.len()
            )))
        }
        _ => Ok(()),
    }
}

fn check_values(columns: &Columns<'_>) -> Result<()> {
    for (r, &length) in columns.lengths.iter().enumerate() {
        let (width, k, routed) = (columns.target_width[r], columns.top_k[r], columns.routed[r]);
        if width < 1 {
            return Err(Error::input(format!(
                "target_width[{r}] is {width}: it must be at least 1"
            )));
        }
        if k < 0 {
            return Err(Error::input(format!(
                "top_k[{r}] is {k}: it must be at least 1, or None for no top-k output"
            )));
        }
        if routed < 0 {
            return Err(Error::input(format!(
                "routed[{r}] is {routed}: it must be at least 0"
            )));
        }
        // Slots are numbered as they come, so there are no more than requests.
        if columns.slot[r] as usize > columns.lengths.len() {
            return Err(Error::input(format!(
                "slot[{r}] is {}: it must be at most {}, the number of requests",
                columns.slot[r],
                columns.lengths.len()
            )));
        }
        if let Labels::From(from) = columns.labels
            && columns.targets[r]
            && !(0..=length).contains(&from[r])
        {
            return Err(Error::input(format!(
                "targets[{r}] is {}: the first target must be within 0..{length}, the sequence's length",
                from[r]
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pool of plain single-label requests, labelled from `first` on.
    pub(crate) fn plain_pool(lengths: &[i64], first: &[i64]) -> Pool {
        let count = lengths.len();
        let (yes, no) = (vec![true; count], vec![false; count]);
        let (ones, zeros) = (vec![1; count], vec![0; count]);
        let none = vec![0_u32; count];
        Pool::new(&Columns {
            lengths,
            targets: &yes,
            labels: Labels::From(first),
            target_width: &ones,
            top_k: &zeros,
            logits: &no,
            hidden: &no,
            gradient: &yes,
            slot: &none,
            routed: &zeros,
            group_sizes: &ones,
        })
        .unwrap()
    }

    #[test]
    fn masks_become_runs() {
        let mut runs = Vec::new();
        let mask = [true, true, false, true, false, false];
        for mask in [&mask[..], &[], &[false], &[false, true]] {
            runs_of(mask, &mut runs).unwrap();
        }
        assert_eq!(runs, [(0, 2), (3, 4), (1, 2)]);
    }

    #[test]
    fn columns_of_a_pool() {
        let pool = plain_pool(&[100, 10, 0], &[40, 10, 0]);
        assert_eq!(pool.runs, [(40, 100)]);
        assert_eq!(pool.labelled, [60, 0, 0]);
        assert_eq!(pool.target_entries, [100, 10, 0]);
        assert_eq!((pool.groups(), pool.group(2)), (3, 2..3));
        assert!(pool.packed_priceable(0) && !pool.packed_priceable(1));
    }

    #[test]
    fn refuses_what_cannot_be() {
        let bad = |sizes: &[i64]| group_offsets(sizes, 3).unwrap_err().to_string();
        assert!(bad(&[1, 0, 2]).starts_with("groups[1] is 0"));
        assert!(bad(&[2, 2]).starts_with("groups[1] is 2"));
        assert!(bad(&[2]).starts_with("groups hold 2"));
        assert_eq!(group_offsets(&[2, 1], 3).unwrap(), [0, 2, 3]);
    }
}
