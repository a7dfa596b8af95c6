//! Bins: one rank's part of one wave each, with what it holds of the forest.

use rustc_hash::FxHashMap;

use super::super::forest::{Cover, Forest};
use crate::cancel;
use crate::error::Result;

/// Tenths of the most packed tokens up to which a bin is not priced while it is filled.
const UNPRICED: i64 = 7;
/// Between two prices a bin takes less than this part of the most packed tokens.
const BETWEEN: i64 = 50;

/// What moves together: a request, or a group of them.
#[derive(Debug, Default)]
pub(super) struct Atoms {
    pub(super) requests: Vec<Vec<u32>>,
    /// The segments of each, ascending, so that those above come first.
    pub(super) segments: Vec<Vec<u32>>,
    pub(super) tokens: Vec<i64>,
    pub(super) time: Vec<i64>,
}

impl Atoms {
    pub(super) fn new(forest: &Forest, requests: Vec<Vec<u32>>) -> Result<Self> {
        let mut made = Self::default();
        for (i, own) in requests.iter().enumerate() {
            cancel::check_at(i)?;
            let mut segments: Vec<u32> = own.iter().flat_map(|&r| forest.path(r)).collect();
            segments.sort_unstable();
            segments.dedup();
            let sum = |of: &[i64]| segments.iter().map(|&s| of[s as usize]).sum();
            made.tokens.push(sum(&forest.tokens));
            made.time.push(sum(&forest.time));
            made.segments.push(segments);
        }
        made.requests = requests;
        Ok(made)
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Atoms in the order of the forest: by the last of their segments.
    pub(super) fn tree_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|&atom| self.segments[atom as usize].last().copied());
        order
    }
}

/// The price of a bin that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Priced {
    pub(super) required: i64,
    pub(super) packed: i64,
    /// Picoseconds.
    pub(super) time: i64,
}

/// What prices some requests as one forward.
pub(super) trait Price {
    /// The price of these requests, ascending; none if they do not fit in one forward.
    fn price(&mut self, requests: &[u32]) -> Result<Option<Priced>>;
}

#[derive(Debug, Clone, Default)]
pub(super) struct Bin {
    /// In the order in which they came.
    pub(super) atoms: Vec<u32>,
    /// Atoms through each segment that the bin holds. Never iterated.
    counts: FxHashMap<u32, u32>,
    pub(super) tokens: i64,
    pub(super) time: i64,
    /// Most tokens that it takes, lowered by refusals; none of it left once it is closed.
    room: i64,
    refusals: u32,
    /// Tokens at its last price that fits.
    checked: i64,
}

impl Bin {
    /// Atoms through a segment.
    pub(super) fn count(&self, segment: u32) -> u32 {
        self.counts.get(&segment).copied().unwrap_or(0)
    }

    /// Most tokens that it takes.
    pub(super) fn room(&self) -> i64 {
        self.room
    }
}

/// Tokens and picoseconds that a bin gains or loses.
pub(super) type Change = (i64, i64);

/// The pool with its prices, each made once.
pub(super) struct Shop<'a, P> {
    pub(super) forest: &'a Forest,
    pub(super) atoms: &'a Atoms,
    /// No bin that fits has more packed tokens.
    pub(super) most: i64,
    price: P,
    known: FxHashMap<Vec<u32>, Option<Priced>>,
}

impl<'a, P: Price> Shop<'a, P> {
    pub(super) fn new(forest: &'a Forest, atoms: &'a Atoms, most: i64, price: P) -> Self {
        Self {
            forest,
            atoms,
            most,
            price,
            known: FxHashMap::default(),
        }
    }

    /// The price of some atoms in one bin.
    pub(super) fn priced(&mut self, atoms: &[u32]) -> Result<Option<Priced>> {
        let mut key = atoms.to_vec();
        key.sort_unstable();
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        cancel::check()?;
        let mut requests: Vec<u32> = key
            .iter()
            .flat_map(|&atom| &self.atoms.requests[atom as usize])
            .copied()
            .collect();
        requests.sort_unstable();
        let made = self.price.price(&requests)?;
        self.known.insert(key, made);
        Ok(made)
    }

    pub(super) fn bin(&self) -> Bin {
        Bin {
            room: self.most,
            ..Bin::default()
        }
    }

    pub(super) fn bin_of(&self, atoms: &[u32]) -> Bin {
        let mut bin = self.bin();
        for &atom in atoms {
            self.add(&mut bin, atom);
        }
        bin
    }

    /// What a bin gains by an atom.
    pub(super) fn gain(&self, bin: &Bin, atom: u32) -> Change {
        let mut change = (0, 0);
        let one = self.atoms.requests[atom as usize].len() == 1;
        for &s in self.atoms.segments[atom as usize].iter().rev() {
            if bin.counts.contains_key(&s) {
                if one {
                    break; // so are those above
                }
                continue;
            }
            change.0 += self.forest.tokens[s as usize];
            change.1 += self.forest.time[s as usize];
        }
        change
    }

    /// What a bin loses without some of its atoms.
    pub(super) fn loss(&self, bin: &Bin, atoms: &[u32]) -> Change {
        let mut gone: FxHashMap<u32, u32> = FxHashMap::default();
        let mut change = (0, 0);
        for &atom in atoms {
            for &s in &self.atoms.segments[atom as usize] {
                let seen = gone.entry(s).or_insert(0);
                *seen += 1;
                if bin.counts.get(&s) == Some(seen) {
                    change.0 += self.forest.tokens[s as usize];
                    change.1 += self.forest.time[s as usize];
                }
            }
        }
        change
    }

    pub(super) fn add(&self, bin: &mut Bin, atom: u32) {
        for &s in &self.atoms.segments[atom as usize] {
            let count = bin.counts.entry(s).or_insert(0);
            *count += 1;
            if *count == 1 {
                bin.tokens += self.forest.tokens[s as usize];
                bin.time += self.forest.time[s as usize];
            }
        }
        bin.atoms.push(atom);
    }

    pub(super) fn remove(&self, bin: &mut Bin, atom: u32) {
        bin.atoms.retain(|&other| other != atom);
        for &s in &self.atoms.segments[atom as usize] {
            if let Some(count) = bin.counts.get_mut(&s) {
                *count -= 1;
                if *count == 0 {
                    bin.counts.remove(&s);
                    bin.tokens -= self.forest.tokens[s as usize];
                    bin.time -= self.forest.time[s as usize];
                }
            }
        }
    }

    /// Whether a set of so many packed tokens may stand unpriced for now.
    fn surely(&self, tokens: i64) -> bool {
        tokens <= self.most / 10 * UNPRICED
    }

    /// Whether these atoms, of so many packed tokens, may share a bin.
    pub(super) fn fits(&mut self, atoms: &[u32], tokens: i64) -> Result<bool> {
        Ok(tokens <= self.most && (self.surely(tokens) || self.priced(atoms)?.is_some()))
    }

    /// Adds an atom if the bin admits it; a refusal lowers its room, and the last one closes it.
    pub(super) fn admit(&mut self, bin: &mut Bin, atom: u32, refusals: u32) -> Result<bool> {
        let tokens = bin.tokens + self.gain(bin, atom).0;
        if tokens > bin.room {
            return Ok(false);
        }
        // Small atoms are not priced one by one: what is too much in the end goes back.
        if !self.surely(tokens) && tokens > bin.checked + self.most / BETWEEN {
            bin.atoms.push(atom);
            let priced = self.priced(&bin.atoms)?;
            bin.atoms.pop();
            if priced.is_none() {
                bin.refusals += 1;
                bin.room = if bin.refusals < refusals {
                    tokens - 1
                } else {
                    0
                };
                return Ok(false);
            }
            bin.checked = tokens;
        }
        self.add(bin, atom);
        Ok(true)
    }

    /// How many of the first atoms of an order go into one bin: one at least, found by doubling and
    /// bisection.
    pub(super) fn run(&mut self, order: &[u32], cover: &mut Cover<'_>) -> Result<usize> {
        let mut ends = Vec::new(); // tokens of ever longer runs
        cover.clear();
        let (mut low, mut high) = (1, None);
        while high.is_none_or(|high| high - low > 1) {
            let length = high.map_or((2 * low).min(order.len()), |high| {
                usize::midpoint(low, high)
            });
            if length == low {
                break;
            }
            for &atom in &order[ends.len()..length.max(ends.len())] {
                for &request in &self.atoms.requests[atom as usize] {
                    cover.add(request);
                }
                ends.push(cover.tokens);
            }
            if self.fits(&order[..length], ends[length - 1])? {
                low = length;
            } else {
                high = Some(length);
            }
        }
        Ok(low)
    }
}
