//! The portfolio over the planner's own prices.

use std::sync::Arc;

use super::super::forest::{Forest, MILLISECOND};
use super::super::plan::{Mode, Pricer, ROOM, Share};
use super::super::{Engine, Profiles};
use super::bins::{MILLION, Price, Priced};
use super::bounds::bounds;
use super::{Found, Problem, search};
use crate::error::{Error, Result};
use crate::fields::{Table, result};
use crate::segments::NONE;

result! {
/// Requests put into waves in any order. W waves, D data-parallel ranks, n requests of the pool.
#[derive(Debug, Clone, Default)]
pub struct Composition as "Composed" {
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
    /// Modelled milliseconds, tokens shared evenly over context-parallel ranks, [W, D].
    pub ms: Table<f64>,
    /// Requests that fit in no wave.
    pub refused: Vec<u32>,
    /// No order needs fewer waves.
    pub bound: usize,
    /// No order packs fewer tokens, of the requests placed.
    pub bound_tokens: i64,
    /// No order takes fewer milliseconds, by the linear time of full sharing.
    pub bound_ms: f64,
    /// Milliseconds of all waves: the slowest rank of each, and what a wave takes besides.
    pub total_ms: f64,
    /// Waves in the pool's order.
    pub keep_waves: usize,
    /// Milliseconds in the pool's order.
    pub keep_ms: f64,
    /// How the bins were filled.
    pub by: String,
    /// Equal for equal compositions.
    pub fingerprint: String,
    @core
    /// By wave and rank.
    pub requests: Vec<Vec<Vec<u32>>>,
}

python {
    /// Requests of each rank of each wave, ascending: W tuples of D arrays.
    #[getter]
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        let waves: PyResult<Vec<_>> = self.requests.iter().map(|wave| wave.give(py)).collect();
        Ok(pyo3::types::PyTuple::new(py, waves?)?.into_any())
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

/// What is to be composed.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Groups of the pool, ascending; they stay whole.
    pub groups: Vec<u32>,
    /// Groups of each rank of each wave in the pool's order.
    pub keep: Vec<Vec<Vec<u32>>>,
    /// Bytes that each rank has.
    pub available: i64,
    /// In any order; else the waves of `keep` stand.
    pub free: bool,
    /// Milliseconds of a wave beside its slowest rank.
    pub fixed_ms: f64,
    /// The number of waves is a multiple of this.
    pub multiple: usize,
    /// Groups beyond the run of the oldest that its wave may take; any without.
    pub window: Option<usize>,
}

/// Composes groups of an engine's pool.
pub fn compose(
    engine: &Arc<Engine>,
    profiles: Arc<Profiles>,
    asked: &Asked,
) -> Result<Composition> {
    let pool = engine.pool();
    let forest = Forest::new(pool, engine.settings())?;
    let requests = |group: u32| {
        pool.group(group as usize)
            .map(|r| r as u32)
            .collect::<Vec<_>>()
    };
    let atoms: Vec<Vec<u32>> = asked.groups.iter().map(|&group| requests(group)).collect();
    let numbered = |group: &u32| {
        let at = asked.groups.binary_search(group);
        at.map(|at| at as u32)
            .map_err(|_| Error::Internal("keep holds another group"))
    };
    let lists = |groups: &Vec<u32>| groups.iter().map(numbered).collect::<Result<Vec<u32>>>();
    let keep: Result<Vec<Vec<Vec<u32>>>> = asked
        .keep
        .iter()
        .map(|wave| wave.iter().map(lists).collect())
        .collect();
    let mut price = Product {
        pricer: Pricer::new(Arc::clone(engine), profiles),
        share: Share::default(),
        available: asked.available,
    };
    let most = price.most(&atoms, &forest)?;
    let problem = Problem {
        forest: &forest,
        atoms: atoms.clone(),
        dp: engine.settings().dp,
        multiple: asked.multiple,
        free: asked.free,
        window: asked.window,
        fixed: (asked.fixed_ms * MILLISECOND).round() as i64,
        most,
        keep: keep?,
    };
    let fixed = problem.fixed;
    Ok(Composition::of(
        search(problem, price)?,
        &atoms,
        pool.len(),
        (engine.settings().dp, asked.window.is_some() || !asked.free),
        fixed,
    ))
}

/// The bounds of groups of an engine's pool, all of which fit in some wave.
pub fn order_bound(
    engine: &Arc<Engine>,
    profiles: Arc<Profiles>,
    groups: &[u32],
    available: i64,
) -> Result<OrderBound> {
    let (pool, dp) = (engine.pool(), engine.settings().dp);
    let forest = Forest::new(pool, engine.settings())?;
    let requests = |group: &u32| pool.group(*group as usize).map(|r| r as u32).collect();
    let atoms: Vec<Vec<u32>> = groups.iter().map(requests).collect();
    let mut price = Product {
        pricer: Pricer::new(Arc::clone(engine), profiles),
        share: Share::default(),
        available,
    };
    let most = price.most(&atoms, &forest)?;
    let found = bounds(&forest, &atoms.concat(), most);
    Ok(OrderBound {
        waves: found.bins.div_ceil(dp),
        tokens: found.tokens,
        ms: found.time as f64 / dp as f64 / MILLISECOND,
    })
}

impl Composition {
    /// Waves by decreasing bytes, so that what can fail fails first; the slowest bin of each to the
    /// rank with the least time so far.
    fn of(
        found: Found,
        atoms: &[Vec<u32>],
        count: usize,
        (dp, in_turn): (usize, bool),
        fixed: i64,
    ) -> Self {
        let ms = |time: i64| time as f64 / MILLISECOND;
        let mut waves = found.best.bins;
        let required = |wave: &[(Vec<u32>, Priced)]| wave.iter().map(|bin| bin.1.required).max();
        if !in_turn {
            waves.sort_by_key(|wave| std::cmp::Reverse(required(wave)));
        }
        let shape = [waves.len(), dp];
        let cells = waves.len() * dp;
        let mut made = Self {
            waves: waves.len(),
            inverse: vec![NONE; count],
            required: (vec![0; cells], shape),
            packed_tokens: (vec![0; cells], shape),
            ms: (vec![0.0; cells], shape),
            refused: found
                .refused
                .iter()
                .flat_map(|&atom| atoms[atom as usize].clone())
                .collect(),
            bound: found.waves,
            bound_tokens: found.bounds.tokens,
            bound_ms: ms(found.bounds.time / dp as i64 + fixed * found.waves as i64),
            total_ms: ms(found.best.time),
            keep_waves: found.keep.bins.len(),
            keep_ms: ms(found.keep.time),
            by: found.best.by.to_owned(),
            ..Self::default()
        };
        let mut so_far = vec![0_i64; dp];
        for (w, wave) in waves.into_iter().enumerate() {
            let mut ranks: Vec<usize> = (0..dp).collect();
            ranks.sort_by_key(|&rank| (so_far[rank], rank));
            let mut parts = vec![Vec::new(); dp];
            for (rank, (bin, priced)) in ranks.into_iter().zip(wave) {
                so_far[rank] += priced.time;
                let cell = w * dp + rank;
                made.required.0[cell] = priced.required;
                made.packed_tokens.0[cell] = priced.packed;
                made.ms.0[cell] = ms(priced.time);
                let own = bin.iter().flat_map(|&atom| &atoms[atom as usize]);
                parts[rank] = own.copied().collect();
                parts[rank].sort_unstable();
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
    pricer: Pricer,
    share: Share,
    available: i64,
}

impl Price for Product {
    fn price(&mut self, requests: &[u32]) -> Result<Option<Priced>> {
        let engine = Arc::clone(&self.pricer.engine);
        self.pricer.load(requests, &mut self.share)?;
        for &mode in engine.unsplit_modes() {
            let mut plan = self.pricer.plan(&self.share, mode, ROOM)?;
            if plan.fit(self.available).usable() {
                let required = plan.required();
                self.pricer.own_evenly(&self.share, &mut plan)?;
                let ms = plan.milliseconds().unwrap_or(0.0);
                return Ok(Some(Priced {
                    required,
                    packed: plan.packed(),
                    time: (ms * MILLISECOND).round() as i64,
                }));
            }
            if !self.share.sharing() {
                break; // every mode packs alike
            }
        }
        Ok(None)
    }

    fn left(&mut self, requests: &[u32]) -> Result<Option<i64>> {
        self.pricer.load(requests, &mut self.share)?;
        // Over context-parallel ranks what shares less can be more even.
        let even = self.pricer.engine.settings().cp > 1 && self.share.sharing();
        for &mode in &[Mode::Full, Mode::Optimal][..=usize::from(even)] {
            let plan = self.pricer.plan(&self.share, mode, ROOM)?;
            if plan.fit(self.available).usable() {
                let left = i128::from(self.available - plan.required()) * i128::from(MILLION);
                return Ok(Some((left / i128::from(self.available.max(1))) as i64));
            }
        }
        Ok(None)
    }
}

impl Product {
    /// The most packed tokens that any forward can hold: of each mix of outputs the request that the
    /// head has least to do for, with every other measure at its least.
    fn most(&mut self, atoms: &[Vec<u32>], forest: &Forest) -> Result<i64> {
        let engine = Arc::clone(&self.pricer.engine);
        let pool = engine.pool();
        let mut smallest: Vec<Option<u32>> = vec![None; pool.mix_first.len()];
        let head = |r: u32| (pool.projected[r as usize], pool.lengths[r as usize], r);
        let mut keys: Vec<(u32, bool, bool)> = Vec::new();
        for &request in atoms.iter().flatten() {
            let r = request as usize;
            if !pool.active(r) {
                continue;
            }
            let least = &mut smallest[pool.mix[r] as usize];
            if least.is_none_or(|least| head(request) < head(least)) {
                *least = Some(request);
            }
            let key = (pool.slot[r], pool.gradient[r], pool.routed[r] > 0);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let total: i64 = forest.tokens.iter().sum();
        let mut most = 0;
        for request in smallest.into_iter().flatten() {
            self.pricer.load(&[request], &mut self.share)?;
            let (mut low, mut high) = (0, total + 1);
            if self
                .least(total)?
                .is_some_and(|least| least <= self.available)
            {
                low = total;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.least(middle)? {
                    Some(least) if least <= self.available => low = middle,
                    _ => high = middle,
                }
            }
            most = most.max(low);
        }
        Ok(most.saturating_mul(keys.len().max(1) as i64))
    }

    /// The least bytes of so many packed tokens; none beyond 64 bits.
    fn least(&mut self, tokens: i64) -> Result<Option<i64>> {
        match self.pricer.least_required(&self.share, tokens) {
            Ok(required) => Ok(Some(required)),
            Err(Error::Overflow(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
