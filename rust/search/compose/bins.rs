//! Bins: one rank's part of one wave each, with what it holds of the forest.

use rustc_hash::FxHashMap;

use super::super::forest::{Cover, Forest, MILLISECOND};
use super::Kept;
use crate::cancel;
use crate::error::Result;

/// Part of the most packed tokens up to which a bin is not priced while it is filled.
const UNPRICED: (i64, i64) = (7, 10);
/// Between two prices a bin may always take this part of the most packed tokens.
const BETWEEN: i64 = 200;

/// One whole of `Price::left`.
pub(super) const MILLION: i64 = 1_000_000;

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Priced {
    pub(super) required: i64,
    pub(super) packed: i64,
    /// Picoseconds.
    pub(super) time: i64,
}

impl Priced {
    /// Bytes, packed tokens and modelled milliseconds.
    #[must_use]
    pub fn new(required: i64, packed: i64, ms: f64) -> Self {
        let time = (ms * MILLISECOND).round() as i64;
        Self {
            required,
            packed,
            time,
        }
    }
}

/// What prices some requests as one forward.
pub(super) trait Price {
    /// The price of these requests, ascending; none if they do not fit in one forward.
    fn price(&mut self, requests: &[u32]) -> Result<Option<Priced>>;

    /// The part of the bytes available that they leave with everything shared, in millionths; none
    /// if they do not fit so.
    fn left(&mut self, requests: &[u32]) -> Result<Option<i64>>;
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
    /// Tokens up to which it is not priced again.
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

/// Computes something of the requests of some atoms, ascending, once.
fn once<T: Copy>(
    known: &mut FxHashMap<Vec<u32>, T>,
    all: &Atoms,
    atoms: &[u32],
    make: impl FnOnce(&[u32]) -> Result<T>,
) -> Result<T> {
    let mut key = atoms.to_vec();
    key.sort_unstable();
    if let Some(known) = known.get(&key) {
        return Ok(*known);
    }
    cancel::check()?;
    let own = |&atom: &u32| &all.requests[atom as usize];
    let mut requests: Vec<u32> = key.iter().flat_map(own).copied().collect();
    requests.sort_unstable();
    let made = make(&requests)?;
    known.insert(key, made);
    Ok(made)
}

/// Tokens and picoseconds that a bin gains or loses.
pub(super) type Change = (i64, i64);

/// The pool with its prices, each made once.
pub(super) struct Shop<'a, P> {
    pub(super) forest: &'a Forest,
    pub(super) atoms: &'a Atoms,
    /// No bin that fits has more packed tokens.
    pub(super) most: i64,
    /// So many stand unpriced until a bin is full.
    pub(super) unpriced: i64,
    price: P,
    known: FxHashMap<Vec<u32>, Option<Priced>>,
    shared: FxHashMap<Vec<u32>, Option<i64>>,
}

impl<'a, P: Price> Shop<'a, P> {
    pub(super) fn new(forest: &'a Forest, atoms: &'a Atoms, most: i64, price: P) -> Self {
        Self {
            forest,
            atoms,
            most,
            unpriced: most / UNPRICED.1 * UNPRICED.0,
            price,
            known: FxHashMap::default(),
            shared: FxHashMap::default(),
        }
    }

    /// The price of some atoms in one bin.
    pub(super) fn priced(&mut self, atoms: &[u32]) -> Result<Option<Priced>> {
        let Self { price, known, .. } = self;
        once(known, self.atoms, atoms, |requests| price.price(requests))
    }

    /// What some atoms in one bin leave with everything shared, see `Price::left`.
    pub(super) fn left(&mut self, atoms: &[u32]) -> Result<Option<i64>> {
        let Self { price, shared, .. } = self;
        once(shared, self.atoms, atoms, |requests| price.left(requests))
    }

    /// Waves with the prices of their bins; a bin may be empty.
    pub(super) fn run(&mut self, waves: Vec<Vec<Vec<u32>>>) -> Result<Vec<Kept>> {
        let mut priced = |atoms: Vec<u32>| {
            let nothing = atoms.is_empty().then(Priced::default);
            let price = if nothing.is_some() {
                nothing
            } else {
                self.priced(&atoms)?
            };
            Ok((atoms, price))
        };
        let wave = |bins: Vec<_>| bins.into_iter().map(&mut priced).collect();
        waves.into_iter().map(wave).collect()
    }

    /// Takes the prices of some bins.
    pub(super) fn know(&mut self, waves: &[Kept]) {
        for (atoms, price) in waves.iter().flatten() {
            let mut key = atoms.clone();
            key.sort_unstable();
            self.known.insert(key, *price);
        }
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

    /// What a bin gains by several atoms.
    pub(super) fn gain_of(&self, bin: &Bin, atoms: &[u32]) -> Change {
        if let [atom] = *atoms {
            return self.gain(bin, atom);
        }
        let mut fresh: Vec<u32> = atoms
            .iter()
            .flat_map(|&atom| &self.atoms.segments[atom as usize])
            .copied()
            .filter(|&s| bin.count(s) == 0)
            .collect();
        fresh.sort_unstable();
        fresh.dedup();
        self.sum(fresh.into_iter())
    }

    /// Where `out` goes from one bin to another: what the first gains by `back`, which the other
    /// loses.
    pub(super) fn swapped(&self, from: &Bin, to: &Bin, out: u32, back: u32) -> (Change, Change) {
        let with = &self.atoms.segments[out as usize];
        let back = &self.atoms.segments[back as usize];
        let shared = |s: u32| u32::from(with.binary_search(&s).is_ok());
        let gained = back.iter().copied().filter(|&s| from.count(s) == shared(s));
        let lost = back
            .iter()
            .copied()
            .filter(|&s| to.count(s) + shared(s) == 1);
        (self.sum(gained), self.sum(lost))
    }

    fn sum(&self, segments: impl Iterator<Item = u32>) -> Change {
        segments.fold((0, 0), |sum, s| {
            let s = s as usize;
            (sum.0 + self.forest.tokens[s], sum.1 + self.forest.time[s])
        })
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

    /// Prices every set from now on.
    pub(super) fn trust_nothing(&mut self) {
        self.unpriced = -1;
    }

    /// Whether these atoms, of so many packed tokens, may share a bin.
    pub(super) fn fits(&mut self, atoms: &[u32], tokens: i64) -> Result<bool> {
        Ok(tokens <= self.most && (tokens <= self.unpriced || self.left(atoms)?.is_some()))
    }

    /// Adds an atom if the bin admits it; a refusal lowers its room, and the last one closes it.
    pub(super) fn admit(&mut self, bin: &mut Bin, atom: u32, refusals: u32) -> Result<bool> {
        let tokens = bin.tokens + self.gain(bin, atom).0;
        if tokens > bin.room {
            return Ok(false);
        }
        if tokens > self.unpriced.max(bin.checked) {
            bin.atoms.push(atom);
            let left = self.left(&bin.atoms)?;
            bin.atoms.pop();
            let Some(left) = left else {
                bin.refusals += 1;
                bin.room = if bin.refusals < refusals {
                    tokens - 1
                } else {
                    0
                };
                return Ok(false);
            };
            // Half of what would fit if tokens went on needing what they need in the mean. What is
            // too much in the end goes back.
            let more = i128::from(tokens) * i128::from(left) / i128::from(MILLION - left).max(1);
            bin.checked = tokens + (more as i64 / 2).max(self.most / BETWEEN);
        }
        self.add(bin, atom);
        Ok(true)
    }

    /// How many of the first atoms of an order go into one bin: one at least, found by doubling and
    /// bisection.
    pub(super) fn reach(&mut self, order: &[u32], cover: &mut Cover<'_>) -> Result<usize> {
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
