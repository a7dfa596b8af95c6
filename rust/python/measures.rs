//! Python classes and functions of the stage `measures`.

use std::sync::Arc;

use numpy::PyArray1;
use pyo3::prelude::*;

use super::convert::{self, Flags, Ints, List, picked, slice};
use super::errors::{FEW_SEQUENCES, FEW_TOKENS, detached_unless, refused};
use super::fields::give_class;
use crate::fields::result;
use crate::gdn::Gdn;
use crate::heads::HeadWork;
use crate::layout;
use crate::measures::{self, Columns, Exact, HeadCount, Labels, Measures, Packs, Pool, Settings};
use crate::ownership::Ownership;
use crate::sequences::Sequences;
use crate::tree::Tree;

/// The requests of a pool, checked, and the tree of its sequences; shared with the engine.
#[pyclass(name = "Pool", module = "waveplan._core", frozen)]
#[derive(Clone)]
pub(crate) struct PyPool {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tree: Arc<Tree>,
}

#[pymethods]
impl PyPool {
    #[new]
    #[pyo3(signature = (tokens, offsets, targets, first_target, label_mask, target_width, top_k, logits,
        hidden, gradient, slot, routed, group_sizes))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // columns, by keyword
    fn new(
        py: Python<'_>,
        tokens: Ints<'_>,
        offsets: Ints<'_>,
        targets: Flags<'_>,
        first_target: Option<Ints<'_>>,
        label_mask: Option<Flags<'_>>,
        target_width: Ints<'_>,
        top_k: Ints<'_>,
        logits: Flags<'_>,
        hidden: Flags<'_>,
        gradient: Flags<'_>,
        slot: &Bound<'_, PyAny>,
        routed: Ints<'_>,
        group_sizes: Ints<'_>,
    ) -> PyResult<Self> {
        let labels = match (&first_target, &label_mask) {
            (Some(from), None) => Labels::From(slice("first_target", from)?),
            (None, Some(mask)) => Labels::Mask(slice("label_mask", mask)?),
            _ => {
                return Err(refused(
                    "give either first_target or label_mask, and None for the other",
                ));
            }
        };
        let slot = picked("slot", slot, u32::MAX as usize)?;
        let tokens = slice("tokens", &tokens)?;
        // Copied, so that what was checked stays true while other threads run.
        let offsets = slice("offsets", &offsets)?.to_vec();
        let sequences = Sequences::new(tokens, &offsets)?;
        let lengths: Vec<i64> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let columns = Columns {
            lengths: &lengths,
            targets: slice("targets", &targets)?,
            labels,
            target_width: slice("target_width", &target_width)?,
            top_k: slice("top_k", &top_k)?,
            logits: slice("logits", &logits)?,
            hidden: slice("hidden", &hidden)?,
            gradient: slice("gradient", &gradient)?,
            slot: &slot,
            routed: slice("routed", &routed)?,
            group_sizes: slice("group_sizes", &group_sizes)?,
        };
        let short = sequences.len() <= FEW_SEQUENCES && tokens.len() <= FEW_TOKENS;
        let (pool, tree) = detached_unless(py, short, || {
            sequences.refuse_negative()?;
            Ok((Pool::new(&columns)?, Tree::build(&sequences)?))
        })?;
        Ok(Self {
            pool: Arc::new(pool),
            tree: Arc::new(tree),
        })
    }

    fn __len__(&self) -> usize {
        self.pool.requests()
    }

    /// The number of each request's mix of outputs, mixes in ascending order, and the first
    /// request of each mix.
    fn mixes<'py>(&self, py: Python<'py>) -> [Bound<'py, PyArray1<i64>>; 2] {
        [&self.pool.mix, &self.pool.mix_first].map(|column| convert::indices(py, column))
    }

    /// Labelled tokens of each request.
    fn labelled<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_slice(py, &self.pool.labelled)
    }

    /// The packs of some requests, in the order they execute.
    #[allow(clippy::needless_pass_by_value)]
    fn packs(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        adapters: List<String>,
    ) -> PyResult<Vec<PackRequests>> {
        let picked = self.requests(requests)?;
        let mut packs = Packs::default();
        py.detach(|| packs.form(&self.pool, &picked));
        let one = |g| {
            let (key, indices) = (packs.key(g), packs.requests(g).to_vec());
            let name = (key.slot as usize)
                .checked_sub(1)
                .and_then(|at| adapters.0.get(at));
            let (adapter, gradient, routed) = (name.cloned(), key.gradient, key.routed);
            PackRequests {
                adapter,
                gradient,
                routed,
                indices,
            }
        };
        Ok((0..packs.len()).map(one).collect())
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

give_class!(Measures);

impl PyPool {
    /// Indices of requests, checked against the pool.
    fn requests(&self, requests: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        picked("requests", requests, self.pool.requests())
    }
}

/// Measures of one plan, filled pack by pack.
#[pyclass(name = "PlanMeasures", module = "waveplan._core")]
pub(crate) struct PyPlanMeasures {
    pool: Arc<Pool>,
    packs: Packs,
    settings: Settings,
    measures: Measures,
    work: HeadWork,
}

#[pymethods]
impl PyPlanMeasures {
    #[new]
    #[pyo3(signature = (pool, requests, settings=None))]
    #[allow(clippy::needless_pass_by_value)]
    fn new(
        py: Python<'_>,
        pool: &PyPool,
        requests: &Bound<'_, PyAny>,
        settings: Option<&Settings>,
    ) -> PyResult<Self> {
        let picked = pool.requests(requests)?;
        let settings = settings.cloned().unwrap_or_default();
        let mut packs = Packs::default();
        py.detach(|| packs.form(&pool.pool, &picked));
        let mut measures = Measures::default();
        measures::start(&pool.pool, &picked, &packs, &settings, &mut measures)?;
        Ok(Self {
            pool: Arc::clone(&pool.pool),
            packs,
            settings,
            measures,
            work: HeadWork::default(),
        })
    }

    /// Fills pack `g` from its layout and, under context parallelism, the ownership and the gdn
    /// placement of its pack, padded to a multiple of TP.
    #[pyo3(signature = (g, tree, shared, *, ownership=None, gdn=None))]
    #[allow(clippy::needless_pass_by_value)]
    fn exact(
        &mut self,
        g: usize,
        tree: &Tree,
        shared: Flags<'_>,
        ownership: Option<&Ownership>,
        gdn: Option<&Gdn>,
    ) -> PyResult<()> {
        let (shared, requests) = (slice("shared", &shared)?, self.pack(g)?);
        let lengths = requests.iter().map(|&r| self.pool.lengths[r as usize]);
        if !lengths.eq((0..tree.sequences()).map(|r| tree.sequence_length(r))) {
            return Err(refused(format!(
                "tree is not of pack {g}'s rows: restrict the pool's tree to the pack's requests"
            )));
        }
        let shape = layout::shape(tree, shared)?;
        let padded = measures::pad(&shape.segments, self.settings.tp)?;
        let (ranks, tokens) = (self.settings.cp as usize, padded.tokens());
        let other = |made: &Ownership| made.ranks != ranks || made.tokens != tokens;
        let elsewhere = |placed: &Gdn| placed.owner.len() != padded.len();
        if ownership.map_or(ranks > 1, other) || gdn.is_some_and(elsewhere) {
            return Err(refused(format!(
                "ownership and gdn must be of pack {g}'s {tokens} padded tokens on {ranks} ranks"
            )));
        }
        let exact = Exact {
            tree,
            shared,
            segments: &shape.segments,
            ownership,
            gdn,
            head: HeadCount::Union,
        };
        let (pool, settings, requests) = (&self.pool, &self.settings, self.packs.requests(g));
        let into = &mut self.measures.packs[g];
        Ok(measures::exact(
            pool,
            requests,
            &exact,
            settings,
            &mut self.work,
            into,
        )?)
    }

    /// Sums the packs into the plan's measures.
    fn finish(&mut self) -> PyResult<Measures> {
        measures::finish(&self.settings, false, &mut self.measures)?;
        Ok(self.measures.clone())
    }
}

impl PyPlanMeasures {
    fn pack(&self, g: usize) -> PyResult<&[u32]> {
        let packs = self.packs.len();
        if g >= packs {
            return Err(refused(format!("pack {g} of {packs}: count from 0")));
        }
        Ok(self.packs.requests(g))
    }
}

/// Adds the tables of names to the module.
pub(super) fn tables(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PLAN_MEASURES", measures::plan::NAMED.to_vec())?;
    module.add("PACK_MEASURES", measures::pack::NAMED.to_vec())?;
    module.add("PRICE_ROOTS", crate::price::ROOTS.to_vec())
}
