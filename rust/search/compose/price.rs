//! The portfolio over the planner's own prices.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::forest::{Cover, Forest, MILLISECOND};
use super::super::plan::{ForwardPlan, Mode, ROOM, Share};
use super::super::probe::Prober;
use super::super::{Engine, Profiles};
use super::bins::{MILLION, Price, Priced};
use super::bounds::bounds;
use super::{Found, Problem, search};
use crate::error::{Error, Result};
use crate::fields::{Table, result};
use crate::segments::NONE;

/// What a composition keeps to.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
pub struct Asked {
    /// "free", any order; or the waves of the pool in order: "keep" or "blocks".
    pub order: String,
    /// Milliseconds of a wave beside its slowest rank.
    pub fixed_ms: f64,
    /// The number of waves is a multiple of this.
    pub multiple: usize,
    /// Groups beyond the run of the oldest that its wave may take; any without.
    pub window: Option<usize>,
}

result! {
/// Requests of a pool put into waves in any order: the same on every rank. W waves, D data-parallel
/// ranks, n requests of the pool.
#[derive(Debug, Clone, Default)]
pub struct Composition as "Composition" {
    /// Waves.
    pub waves: usize,
    /// The requests in the order of waves and ranks, those refused left out.
    pub permutation: Vec<u32>,
    /// Where each request of the pool stands in it; -1 if it was refused (n entries).
    pub inverse: Vec<u32>,
    /// Bytes of each rank's part of each wave, [W, D].
    pub required: Table<i64>,
    /// Packed tokens, [W, D].
    pub packed_tokens: Table<i64>,
    /// Modelled milliseconds as they run, [W, D].
    pub ms: Table<f64>,
    /// The same with everything shared and spread evenly over context-parallel ranks, [W, D].
    pub linear_ms: Table<f64>,
    /// Requests that fit in no wave.
    pub refused: Vec<u32>,
    /// No order needs fewer waves.
    pub bound: usize,
    /// No order packs fewer tokens, of the requests placed.
    pub bound_tokens: i64,
    /// No order takes fewer milliseconds, with everything shared and spread evenly over all ranks.
    pub bound_ms: f64,
    /// Milliseconds of all waves: the slowest rank of each, and what a wave takes besides.
    pub total_ms: f64,
    /// Waves in the pool's order.
    pub keep_waves: usize,
    /// Milliseconds in the pool's order.
    pub keep_ms: f64,
    /// How the bins were filled.
    pub by: String,
    /// One more with each composition of what is left.
    pub version: usize,
    /// Equal for equal compositions.
    pub fingerprint: String,
    @core
    /// By wave and rank.
    pub requests: Vec<Vec<Vec<u32>>>,
    /// The pool, and what was asked for, as Python holds them.
    #[cfg(feature = "python")]
    pub held: Option<Arc<[pyo3::Py<pyo3::PyAny>; 2]>>,
}

get {
    /// Modelled time beyond the bound, as a share of it.
    gap(self) = if self.bound_ms > 0.0 { self.total_ms / self.bound_ms - 1.0 } else { 0.0 };
}

python {
    /// The pool that was composed.
    #[getter]
    fn pool(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.held.as_ref().map(|held| held[0].clone_ref(py))
    }

    /// What was asked for.
    #[getter]
    fn given(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.held.as_ref().map(|held| held[1].clone_ref(py))
    }

    /// Requests of each rank of each wave, ascending: W tuples of D arrays.
    #[getter]
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        let waves: PyResult<Vec<_>> = self.requests.iter().map(|wave| wave.give(py)).collect();
        Ok(pyo3::types::PyTuple::new(py, waves?)?.into_any())
    }

    /// The requests of a data-parallel rank in each wave.
    fn share<'py>(&self, py: Python<'py>, dp_rank: &Bound<'py, PyAny>) -> PyResult<Vec<Object<'py>>> {
        let (rank, ranks) = (usize::take("dp_rank", dp_rank)?, self.required.1[1]);
        if rank >= ranks {
            return Err(refused(format!("dp_rank is {rank} of {ranks}: it must be below")));
        }
        self.requests.iter().map(|wave| wave[rank].give(py)).collect()
    }

    fn __str__(&self) -> String {
        let Self { waves, bound, keep_waves, .. } = self;
        format!("{waves} waves (bound {bound}; in order {keep_waves})")
    }

    fn __repr__(&self) -> String {
        format!("Composition({}, version {})", self.__str__(), self.version)
    }
}
}

result! {
/// What no order of some requests beats.
#[derive(Debug, Clone, Default)]
pub struct OrderBound as "OrderBound" {
    /// Waves.
    pub waves: usize,
    /// Packed tokens of all waves.
    pub tokens: i64,
    /// Milliseconds of all waves: those of full sharing, spread evenly over the ranks.
    pub ms: f64,
}
}

/// Groups of each rank of a wave, and their price if they run as one forward.
pub type Kept = Vec<(Vec<u32>, Option<Priced>)>;

/// Composes groups of an engine's pool, ascending, each of which stays whole. `keep` are the waves
/// of the pool in order.
pub fn compose(
    engine: &Arc<Engine>,
    profiles: Arc<Profiles>,
    groups: &[u32],
    keep: Vec<Kept>,
    available: i64,
    asked: &Asked,
) -> Result<Composition> {
    let (pool, dp) = (engine.pool(), engine.settings().dp);
    let forest = Forest::new(pool, engine.settings())?;
    let atoms = atoms(engine, groups);
    let mut numbers = vec![NONE; pool.groups()];
    for (atom, &group) in groups.iter().enumerate() {
        numbers[group as usize] = atom as u32;
    }
    let mut price = Product::new(engine, profiles, available);
    let most = price.most(&atoms, &forest)?;
    let numbered = |(part, priced): (Vec<u32>, _)| {
        let part = part.iter().map(|&group| numbers[group as usize]);
        (part.collect(), priced)
    };
    // No sum of waves leaves 63 bits.
    let largest = i64::MAX / 2 / (atoms.len() as i64 + asked.multiple as i64);
    let problem = Problem {
        forest: &forest,
        atoms: atoms.clone(),
        dp,
        multiple: asked.multiple,
        free: asked.order == "free",
        window: asked.window,
        fixed: ((asked.fixed_ms * MILLISECOND).round() as i64).min(largest),
        most,
        keep: (keep.into_iter())
            .map(|wave| wave.into_iter().map(numbered).collect())
            .collect(),
    };
    let fixed = problem.fixed;
    let found = search(problem, price)?;
    Ok(Composition::of(found, &forest, &atoms, (dp, fixed), asked))
}

/// The requests of each group.
fn atoms(engine: &Engine, groups: &[u32]) -> Vec<Vec<u32>> {
    let requests = |&group: &u32| engine.pool().group(group as usize).map(|r| r as u32);
    groups
        .iter()
        .map(|group| requests(group).collect())
        .collect()
}

/// The bounds of groups of an engine's pool, all of which fit in some wave.
pub fn order_bound(
    engine: &Arc<Engine>,
    profiles: Arc<Profiles>,
    groups: &[u32],
    available: i64,
) -> Result<OrderBound> {
    let dp = engine.settings().dp;
    let forest = Forest::new(engine.pool(), engine.settings())?;
    let atoms = atoms(engine, groups);
    let most = Product::new(engine, profiles, available).most(&atoms, &forest)?;
    let found = bounds(&forest, &atoms.concat(), most);
    Ok(OrderBound {
        waves: found.bins.div_ceil(dp) * usize::from(!atoms.is_empty()),
        tokens: found.tokens,
        ms: found.time as f64 / dp as f64 / MILLISECOND,
    })
}

impl Composition {
    /// Waves by decreasing bytes, so that what can fail fails first, unless they stand in the pool's
    /// order; the slowest bin of each to the rank with the least time so far.
    fn of(
        found: Found,
        forest: &Forest,
        atoms: &[Vec<u32>],
        (dp, fixed): (usize, i64),
        asked: &Asked,
    ) -> Self {
        let ms = |time: i64| time as f64 / MILLISECOND;
        let mut waves = found.best.bins;
        let required = |wave: &[(Vec<u32>, Priced)]| wave.iter().map(|bin| bin.1.required).max();
        if asked.order == "free" && asked.window.is_none() {
            waves.sort_by_key(|wave| std::cmp::Reverse(required(wave)));
        }
        let (shape, cells) = ([waves.len(), dp], waves.len() * dp);
        let mut made = Self {
            waves: waves.len(),
            inverse: vec![NONE; forest.terminal.len()],
            required: (vec![0; cells], shape),
            packed_tokens: (vec![0; cells], shape),
            ms: (vec![0.0; cells], shape),
            linear_ms: (vec![0.0; cells], shape),
            refused: (found.refused.iter())
                .flat_map(|&atom| atoms[atom as usize].clone())
                .collect(),
            bound: found.waves,
            bound_tokens: found.bounds.tokens,
            bound_ms: ms(found.bounds.time / dp as i64 + fixed * found.waves as i64),
            total_ms: ms(found.best.time),
            keep_waves: found.keep.bins.len(),
            keep_ms: ms(found.keep.time),
            by: found.best.by.to_owned(),
            version: 1,
            ..Self::default()
        };
        let (mut so_far, mut cover) = (vec![0_i64; dp], Cover::new(forest));
        for (w, wave) in waves.into_iter().enumerate() {
            let mut ranks: Vec<usize> = (0..dp).collect();
            ranks.sort_by_key(|&rank| (so_far[rank], rank));
            let mut parts = vec![Vec::new(); dp];
            for (rank, (bin, priced)) in ranks.into_iter().zip(wave) {
                let own = bin.iter().flat_map(|&atom| &atoms[atom as usize]);
                parts[rank] = own.copied().collect();
                parts[rank].sort_unstable();
                cover.clear();
                parts[rank].iter().for_each(|&request| cover.add(request));
                so_far[rank] += priced.time;
                let cell = w * dp + rank;
                made.required.0[cell] = priced.required;
                made.packed_tokens.0[cell] = priced.packed;
                made.ms.0[cell] = ms(priced.time);
                made.linear_ms.0[cell] = ms(cover.time);
            }
            made.permutation.extend(parts.iter().flatten());
            made.requests.push(parts);
        }
        for (at, &request) in made.permutation.iter().enumerate() {
            made.inverse[request as usize] = at as u32;
        }
        made.fingerprint = made.hash();
        made
    }

    fn hash(&self) -> String {
        let ends = self.requests.iter().flatten().map(|part| part.len() as u64);
        let numbers = self
            .permutation
            .iter()
            .map(|&request| u64::from(request))
            .chain(ends);
        let bytes = self.required.0.iter().map(|&required| required as u64);
        let hash = numbers
            .chain(bytes)
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, number| {
                (hash.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
        format!("{hash:016x}")
    }
}

/// The planner's own price of a forward.
struct Product {
    prober: Prober,
    share: Share,
}

impl Price for Product {
    fn price(&mut self, requests: &[u32]) -> Result<Option<Priced>> {
        self.prober.load(requests)?;
        let whole = self.prober.whole(0, &mut Vec::new())?;
        self.prober.probes.clear();
        let ms = |plan: &ForwardPlan| plan.milliseconds().unwrap_or(0.0);
        Ok(whole.map(|(plan, _)| Priced::new(plan.required(), plan.packed(), ms(&plan))))
    }

    fn left(&mut self, requests: &[u32]) -> Result<Option<i64>> {
        self.prober.pricer.load(requests, &mut self.share)?;
        // Over context-parallel ranks what shares less can be more even.
        let even = self.prober.pricer.engine.settings().cp > 1 && self.share.sharing();
        for &mode in &[Mode::Full, Mode::Optimal][..=usize::from(even)] {
            let plan = self.prober.pricer.plan(&self.share, mode, ROOM)?;
            if plan.fit(self.prober.available).usable() {
                let left =
                    i128::from(self.prober.available - plan.required()) * i128::from(MILLION);
                return Ok(Some(
                    (left / i128::from(self.prober.available.max(1))) as i64,
                ));
            }
        }
        Ok(None)
    }
}

impl Product {
    fn new(engine: &Arc<Engine>, profiles: Arc<Profiles>, available: i64) -> Self {
        Self {
            prober: Prober::new(Arc::clone(engine), profiles, 0, available),
            share: Share::default(),
        }
    }

    /// The most packed tokens that any forward can hold: of each kind of request (outputs, adapter,
    /// gradient, routing) the one that the head has least to do for, every other measure at its least.
    fn most(&mut self, atoms: &[Vec<u32>], forest: &Forest) -> Result<i64> {
        let engine = Arc::clone(&self.prober.pricer.engine);
        let pool = engine.pool();
        let mut smallest = BTreeMap::new();
        let head = |r: u32| (pool.projected[r as usize], pool.lengths[r as usize], r);
        let mut keys: Vec<(u32, bool, bool)> = Vec::new();
        for &request in atoms.iter().flatten() {
            let r = request as usize;
            if !pool.active(r) {
                continue;
            }
            let key = (pool.slot[r], pool.gradient[r], pool.routed[r] > 0);
            let kind = (pool.mix[r], key.0 > 0, key.1, key.2);
            let least = smallest.entry(kind).or_insert(request);
            if head(request) < head(*least) {
                *least = request;
            }
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let total: i64 = forest.tokens.iter().sum();
        let mut most = 0;
        for request in smallest.into_values() {
            self.prober.pricer.load(&[request], &mut self.share)?;
            let (mut low, mut high) = (0, total + 1);
            if self
                .least(total)?
                .is_some_and(|least| least <= self.prober.available)
            {
                low = total;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.least(middle)? {
                    Some(least) if least <= self.prober.available => low = middle,
                    _ => high = middle,
                }
            }
            most = most.max(low);
        }
        Ok(most.saturating_mul(keys.len().max(1) as i64))
    }

    /// The least bytes of so many packed tokens; none beyond 64 bits.
    fn least(&mut self, tokens: i64) -> Result<Option<i64>> {
        match self.prober.pricer.least_required(&self.share, tokens) {
            Ok(required) => Ok(Some(required)),
            Err(Error::Overflow(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
