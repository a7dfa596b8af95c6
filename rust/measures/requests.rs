//! The requests of a whole pool as columns.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::mixes::{mix_of, mixes};
use crate::cancel;
use crate::error::{Error, Result};
use crate::fields::result;
use crate::hash::{Hash, RUN, hash};
use crate::scattered::labelled_runs;
use crate::sequences::Sequences;
use crate::tree::{Tree, padded_row};

/// The adapter slot of requests that run the model's own weights.
pub const NO_SLOT: u32 = 0;

/// Key of the hashes of content.
const KEY: [u64; 2] = [0x5761_7665_706c_616e, 0x636f_6e74_656e_7400];

/// Shorter single-label requests leave packed pricing (see `packed_priceable`).
const SHORT_TOKENS: i64 = 64;

/// The labelled tokens of each request, as given.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Per request: labelled from this position to its end.
    From(&'a [i64]),
    /// One flag per token of the pool, requests one after another.
    Mask(&'a [bool]),
    /// The labels of each request, so many for each of its tokens; -100 asks for nothing.
    Each(&'a [Option<&'a [i64]>]),
}

result! {
    /// The requests of a pool: one entry each.
    #[derive(Debug, Clone, Default)]
    pub struct Requests as "Requests", given to PyRequests {
        /// Has targets.
        pub targets: Vec<bool>,
        /// Target entries per token: 1 for single labels.
        pub target_width: Vec<i64>,
        /// k of the top-k output, 0 for none.
        pub top_k: Vec<i64>,
        /// Returns logits.
        pub logits: Vec<bool>,
        /// Returns hidden states.
        pub hidden: Vec<bool>,
        /// Computes gradients.
        pub gradient: Vec<bool>,
        /// Names of the adapter slots 1, 2, ...
        pub adapters: Vec<String>,
        /// Adapter slot, [`NO_SLOT`] for none.
        pub slot: Vec<u32>,
        /// Entries of routed-expert replay, 0 for none.
        pub routed: Vec<i64>,
        /// Requests of each group, in order.
        pub group_sizes: Vec<i64>,
        /// Leading tokens of each request that others may share; empty: all of all.
        pub shareable: Vec<i64>,
        /// Requests of a pack run as rows padded to the longest, rounded up to a multiple of this;
        /// 0: they run as packed, without pads.
        pub padding: i64,
        @core
        /// Tokens of each request.
        pub lengths: Vec<i64>,
        /// Group `i` holds the requests `group_offsets[i]..group_offsets[i + 1]`.
        pub group_offsets: Vec<u32>,
        /// One more than the largest slot.
        pub slots: u32,
        /// Target entries: tokens times their width, ignored ones included; 0 without targets.
        pub target_entries: Vec<i64>,
        /// Top-k entries: tokens times k.
        pub top_k_entries: Vec<i64>,
        /// Interned output mix: equal numbers, equal mixes.
        pub mix: Vec<u32>,
        /// The first request of each mix.
        pub mix_first: Vec<u32>,
        /// Single-label targets and nothing else.
        pub plain: Vec<bool>,
        /// Labels were given as a mask.
        pub masked: bool,
        /// Labelled tokens of request `r`: `runs[run_offsets[r]..run_offsets[r + 1]]`.
        pub run_offsets: Vec<u32>,
        /// Half-open intervals of positions, ascending, apart from each other.
        pub runs: Vec<(i64, i64)>,
        /// Labelled tokens.
        pub labelled: Vec<i64>,
        /// Tokens that the head projects: all for logits and top-k, else the labelled ones.
        pub projected: Vec<i64>,
        /// The prefix tree of their sequences.
        pub tree: Arc<Tree>,
        /// The hash of their tokens, once it is known.
        pub hashed: OnceLock<u128>,
    }
    get {
        /// Tokens of each request.
        lengths(self) = self.lengths;
        /// Labelled tokens of each request.
        labelled(self) = self.labelled;
        /// Number of each request's mix of outputs.
        mix(self) = self.mix;
        /// The distinct mixes, ascending, for example "target:single+hidden".
        mixes(self) = self.mix_names();
        /// First labelled position of each request; none where masks were given.
        first_target(self) = (!self.masked).then(|| self.first_targets());
        /// Labelled tokens of all requests; none where first targets were given.
        label_mask(self) = self.masked.then(|| self.mask());
    }
    python {
        #[new]
        #[pyo3(signature = (
            tokens, offsets=None, *, first_target=None, label_mask=None, labels=None,
            hashed=false, **columns
        ))]
        #[allow(clippy::needless_pass_by_value)] // so PyO3 hands arrays over
        fn py_new(
            tokens: &Bound<'_, PyAny>,
            offsets: Option<Ints<'_>>,
            first_target: Option<Ints<'_>>,
            label_mask: Option<Flags<'_>>,
            labels: Option<List<Option<Ints<'_>>>>,
            hashed: bool,
            columns: Option<&Bound<'_, pyo3::types::PyDict>>,
        ) -> PyResult<Self> {
            // Copied, so that what was checked stays true while other threads run.
            let from = first_target.map(|from| slice("first_target", &from).map(<[i64]>::to_vec));
            let mask = label_mask.map(|mask| slice("label_mask", &mask).map(<[bool]>::to_vec));
            let (from, mask) = (from.transpose()?, mask.transpose()?);
            let each = labels.as_ref().map(|labels| optional("labels", labels)).transpose()?;
            let labels = match (&from, &mask, &each) {
                (Some(from), None, None) => Labels::From(from),
                (None, Some(mask), None) => Labels::Mask(mask),
                (None, None, Some(each)) => Labels::Each(each),
                _ => {
                    return Err(refused(
                        "give one of first_target, label_mask and labels, and None for the others",
                    ));
                }
            };
            let mut given = Requests::default();
            for (name, column) in columns.into_iter().flatten() {
                given.set(name.extract()?, &column)?;
            }
            let Some(offsets) = offsets else {
                let arrays: Arrays<'_> = tokens.extract()?;
                let sequences = slices(&arrays)?;
                let made = detached(tokens.py(), || {
                    given.tree = Arc::new(Tree::build_scattered(&sequences, None)?);
                    given.lengths = sequences.iter().map(|tokens| tokens.len() as i64).collect();
                    given.complete(labels)
                })?;
                return Ok(Self(Arc::new(made)));
            };
            let tokens_of: Ints<'_> = tokens.extract()?;
            let tokens_of = slice("tokens", &tokens_of)?;
            let offsets = slice("offsets", &offsets)?.to_vec();
            let sequences = Sequences::new(tokens_of, &offsets)?;
            let short = sequences.len() <= FEW_SEQUENCES && tokens_of.len() <= FEW_TOKENS;
            let made = detached_unless(tokens.py(), short, || {
                let mut hash = hashed.then(|| Hash::new(tokens_of.len(), KEY));
                sequences.refuse_negative(hash.as_mut())?;
                given.hashed = hash.map_or_else(OnceLock::new, |hash| OnceLock::from(hash.end()));
                given.tree = Arc::new(given.grow(&sequences)?);
                given.lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
                given.complete(labels)
            })?;
            Ok(Self(Arc::new(made)))
        }

        /// Hashes of 128 bits of the tokens and of every column, by name. The tokens, of which the
        /// requests keep none, are read if no earlier pass has.
        #[allow(clippy::needless_pass_by_value)] // so PyO3 hands arrays over
        fn hashes(&self, py: Python<'_>, tokens: Ints<'_>) -> PyResult<Vec<(&'static str, u128)>> {
            let tokens = slice("tokens", &tokens)?;
            detached(py, || self.0.content(tokens))
        }

        fn __len__(&self) -> usize {
            self.len()
        }

        fn __repr__(&self) -> String {
            let (tokens, groups) = (self.lengths.iter().sum::<i64>(), self.groups());
            let (requests, mixes) = (self.len(), self.mix_names().join(", "));
            format!("Requests({requests} requests, {tokens} tokens, {groups} groups, outputs {mixes})")
        }

        /// The packs of some requests (all by default), in the order they execute.
        #[pyo3(signature = (indices=None))]
        fn packs(
            &self,
            py: Python<'_>,
            indices: Option<&Bound<'_, PyAny>>,
        ) -> PyResult<Vec<PackRequests>> {
            let chosen = match indices {
                Some(given) => picked("indices", given, self.len())?,
                None => (0..self.len() as u32).collect(),
            };
            let mut packs = super::Packs::default();
            py.detach(|| packs.form(self, &chosen));
            let one = |g| {
                let key = packs.key(g);
                let slot = (key.slot as usize).checked_sub(1);
                PackRequests {
                    adapter: slot.and_then(|at| self.adapters.get(at).cloned()),
                    gradient: key.gradient,
                    routed: key.routed,
                    indices: packs.requests(g).to_vec(),
                }
            };
            Ok((0..packs.len()).map(one).collect())
        }
    }
}

result! {
    /// Requests that run together: one adapter slot, one gradient mode, one replay mode.
    pub struct PackRequests as "PackRequests" {
        /// Its adapter slot's name; none for the model's own weights.
        pub adapter: Option<String>,
        /// Computes gradients.
        pub gradient: bool,
        /// Replays expert routing.
        pub routed: bool,
        /// Its requests, as pool indices.
        pub indices: Vec<u32>,
    }
}

impl Requests {
    /// Checks the columns given, and computes those that follow, labels as intervals, in one pass.
    pub fn complete(self, labels: Labels<'_>) -> Result<Self> {
        let count = self.len();
        check_lengths(&self, &labels)?;
        check_values(&self, &labels)?;
        let (mix, mix_first) = mixes(&self);
        let mut pool = Self {
            group_offsets: group_offsets(&self.group_sizes, count)?,
            slots: self.slot.iter().max().map_or(1, |&slot| slot + 1),
            mix,
            mix_first,
            target_entries: Vec::with_capacity(count),
            top_k_entries: Vec::with_capacity(count),
            plain: Vec::with_capacity(count),
            masked: matches!(labels, Labels::Mask(_)),
            run_offsets: Vec::with_capacity(count + 1),
            runs: Vec::with_capacity(count),
            labelled: Vec::with_capacity(count),
            projected: Vec::with_capacity(count),
            ..self
        };
        pool.label(labels)?;
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

    /// Builds the tree of the pool.
    pub fn grow(&self, sequences: &Sequences<'_>) -> Result<Tree> {
        let entries = self.shareable.len();
        if entries != 0 && entries != sequences.len() {
            return Err(Error::input(format!(
                "shareable has {entries} entries for {} requests: give one each",
                sequences.len()
            )));
        }
        if self.padding < 0 {
            return Err(Error::input(format!(
                "padding is {}: it must be at least 0",
                self.padding
            )));
        }
        let mut tree = if self.padding > 0 {
            Tree::build_shareable(sequences, &vec![0; sequences.len()])?
        } else if entries == 0 {
            Tree::build(sequences)?
        } else {
            Tree::build_shareable(sequences, &self.shareable)?
        };
        tree.padding = self.padding;
        Ok(tree)
    }

    /// Hashes of 128 bits of the tokens and of what was given with them, by name, equal on every
    /// machine. `tokens` are read unless [`Requests::hashed`] is known.
    pub fn content(&self, tokens: &[i64]) -> Result<Vec<(&'static str, u128)>> {
        // Every field is named, so that a new one is either hashed or follows from those that are.
        let Self {
            targets,
            target_width,
            top_k,
            logits,
            hidden,
            gradient,
            shareable,
            padding,
            adapters,
            slot,
            routed,
            group_sizes,
            lengths,
            run_offsets,
            runs,
            hashed,
            group_offsets: _,
            slots: _,
            target_entries: _,
            top_k_entries: _,
            mix: _,
            mix_first: _,
            plain: _,
            masked: _,
            labelled: _,
            projected: _,
            tree: _,
        } = self;
        if hashed.get().is_none() {
            let mut made = Hash::new(tokens.len(), KEY);
            for (block, run) in tokens.chunks(RUN).enumerate() {
                cancel::check_at(block)?;
                made.read(run);
            }
            hashed.get_or_init(|| made.end());
        }
        let known = hashed.get().copied().unwrap_or_default();
        let flags = |flags: &[bool]| {
            flags
                .iter()
                .map(|&flag| i64::from(flag))
                .collect::<Vec<_>>()
        };
        let numbers = |column: &[u32]| column.iter().map(|&n| i64::from(n)).collect::<Vec<_>>();
        let labels = runs.iter().flat_map(|&(from, to)| [from, to]);
        let names = (adapters.iter())
            .flat_map(|name| std::iter::once(name.len() as i64).chain(name.bytes().map(i64::from)));
        let columns = [
            ("lengths", lengths.clone()),
            ("targets", flags(targets)),
            ("target_width", target_width.clone()),
            (
                "labels",
                numbers(run_offsets).into_iter().chain(labels).collect(),
            ),
            ("top_k", top_k.clone()),
            ("logits", flags(logits)),
            ("hidden", flags(hidden)),
            ("gradient", flags(gradient)),
            ("adapter", numbers(slot).into_iter().chain(names).collect()),
            ("routed", routed.clone()),
            ("groups", group_sizes.clone()),
            ("sharing", shareable.clone()),
            ("padding", vec![*padding]),
        ];
        let columns = columns
            .into_iter()
            .map(|(name, column)| (name, hash(&column, KEY)));
        Ok(std::iter::once(("tokens", known)).chain(columns).collect())
    }

    fn label(&mut self, labels: Labels<'_>) -> Result<()> {
        self.run_offsets.push(0);
        let mut at = 0;
        for (r, &length) in self.lengths.iter().enumerate() {
            cancel::check_at(r)?;
            let first = self.runs.len();
            let end = at + length as usize;
            if self.targets[r] {
                match labels {
                    Labels::From(from) if from[r] < length => self.runs.push((from[r], length)),
                    Labels::From(_) => {}
                    Labels::Mask(mask) => {
                        runs_of(&mask[at..end], |&set| set, &mut self.runs)?;
                    }
                    Labels::Each(each) => {
                        let labels = each[r].unwrap_or_default();
                        labelled_runs(labels, self.target_width[r] as usize, &mut self.runs)?;
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

    /// So many requests with one label a token and gradients, each in a group of its own; without
    /// their lengths.
    #[must_use]
    pub fn plain(count: usize) -> Self {
        let (no, zeros, ones) = (vec![false; count], vec![0; count], vec![1; count]);
        Self {
            targets: vec![true; count],
            target_width: ones.clone(),
            top_k: zeros.clone(),
            logits: no.clone(),
            hidden: no,
            gradient: vec![true; count],
            slot: vec![NO_SLOT; count],
            routed: zeros,
            group_sizes: ones,
            ..Self::default()
        }
    }

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// True without requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Names of the distinct mixes, ascending.
    #[must_use]
    pub fn mix_names(&self) -> Vec<String> {
        (self.mix_first.iter())
            .map(|&r| mix_of(self, r as usize).to_string())
            .collect()
    }

    /// First labelled position of each request: its length where none is, 0 without targets.
    #[must_use]
    pub fn first_targets(&self) -> Vec<i64> {
        let first = |r: usize| self.runs(r).first().map_or(self.lengths[r], |run| run.0);
        (0..self.len())
            .map(|r| if self.targets[r] { first(r) } else { 0 })
            .collect()
    }

    /// Labelled tokens of all requests, one after another.
    #[must_use]
    pub fn mask(&self) -> Vec<bool> {
        let mut mask = vec![false; self.lengths.iter().sum::<i64>() as usize];
        let mut at = 0;
        for r in 0..self.len() {
            for &(from, to) in self.runs(r) {
                mask[at + from as usize..at + to as usize].fill(true);
            }
            at += self.lengths[r] as usize;
        }
        mask
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

    /// Tokens of each row of a pack that runs padded; none where it does not.
    #[must_use]
    pub fn row(&self, pack: &[u32]) -> Option<i64> {
        let longest = pack.iter().map(|&r| self.lengths[r as usize]).max();
        (self.padding > 0).then(|| padded_row(longest.unwrap_or(0), self.padding))
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

/// Appends the intervals of entries that are set.
pub(crate) fn runs_of<T>(
    entries: &[T],
    set: impl Fn(&T) -> bool,
    runs: &mut Vec<(i64, i64)>,
) -> Result<()> {
    let mut at = 0;
    while let Some(gap) = entries[at..].iter().position(&set) {
        cancel::check_at(runs.len())?;
        let start = at + gap;
        let length = entries[start..]
            .iter()
            .position(|entry| !set(entry))
            .unwrap_or(entries.len() - start);
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

fn check_lengths(columns: &Requests, labels: &Labels<'_>) -> Result<()> {
    let count = columns.len();
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
    match *labels {
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
        Labels::Each(each) if each.len() != count => Err(Error::input(format!(
            "labels has {} entries for {count} requests: give one each",
            each.len()
        ))),
        _ => Ok(()),
    }
}

fn check_values(columns: &Requests, labels: &Labels<'_>) -> Result<()> {
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
        let adapters = columns.adapters.len();
        if columns.slot[r] as usize > adapters {
            return Err(Error::input(format!(
                "slot[{r}] is {}: it must be at most {adapters}, the number of adapters",
                columns.slot[r]
            )));
        }
        if let Labels::Each(each) = *labels
            && let Some(given) = each[r]
            && usize::try_from(length.saturating_mul(width)) != Ok(given.len())
        {
            return Err(Error::input(format!(
                "request {r} has {} labels for {length} tokens of {width} each: give so many for each token",
                given.len()
            )));
        }
        if let Labels::From(from) = *labels
            && columns.targets[r]
            && !(0..=length).contains(&from[r])
        {
            return Err(Error::input(format!(
                "targets[{r}] is {}: the first target must be within 0..{length}, the request's length",
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
    pub(crate) fn plain_pool(lengths: &[i64], first: &[i64]) -> Requests {
        let count = lengths.len();
        let asked = Requests {
            lengths: lengths.to_vec(),
            ..Requests::plain(count)
        };
        asked.complete(Labels::From(first)).unwrap()
    }

    #[test]
    fn masks_become_runs() {
        let mut runs = Vec::new();
        let mask = [true, true, false, true, false, false];
        for mask in [&mask[..], &[], &[false], &[false, true]] {
            runs_of(mask, |&set| set, &mut runs).unwrap();
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
