//! One plan of some requests under one way to choose layouts, and its price.

use std::sync::Arc;

use super::profile::Scale;
use super::{Engine, Profiles, Signature};
use crate::assign::{self, Assignment};
use crate::cancel;
use crate::error::Result;
use crate::fields::result;
use crate::heads::HeadWork;
use crate::layout::{self, Layout, Method, Options, Scoring};
use crate::measures::{self, Bound, Exact, Groups, HeadCount, Measures, group, plan};
use crate::price::{Values, root};
use crate::recurrent::{self, Recurrent};
use crate::split::{Cost, scaled};
use crate::tree::{Tree, TreeWorkspace};

/// Where a fitting layout is looked for: half way, in thousandths.
pub(super) const ROOM: i64 = 500;
/// How the layouts of a plan are chosen, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Least predicted work.
    Optimal,
    /// Least predicted work among layouts short enough to fit.
    Fitting,
    /// Everything shared.
    Full,
    /// The published planner's bounded search.
    Published,
}

impl Mode {
    /// The name in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimal => "optimal",
            Self::Fitting => "fitting",
            Self::Full => "full",
            Self::Published => "compatible",
        }
    }
}

result! {
    /// Requests of one adapter slot and one gradient mode, packed into one line of tokens.
    #[derive(Debug, Clone)]
    pub struct GroupPlan as "Pack" {
        /// Its adapter slot's name; none for the model's own weights.
        pub adapter: Option<String>,
        /// Computes gradients.
        pub gradient: bool,
        /// Replays expert routing.
        pub routed: bool,
        /// Its requests, as pool indices, in packing order of input.
        pub requests: Vec<u32>,
        /// Which segments of its canonical tree are stored once.
        pub shared: Vec<bool>,
        /// Segments on the longest path.
        pub depth: i64,
        /// The layout's score is proven to be the least.
        pub optimal: bool,
        /// Predicted work of the layout, in the units of its score.
        pub work: i128,
        /// No layout of these requests has less work.
        pub work_bound: i128,
        /// Chunks to ranks, of the row padded to a multiple of TP; none at CP 1.
        pub assignment: Option<Assignment>,
        /// Segments to ranks; none at CP 1 or without recurrent layers.
        pub recurrent: Option<Recurrent>,
        /// Its measures, in the order of `GROUP_MEASURES`.
        pub measures: Vec<i64>,
        @core
        /// The tree of the pool.
        pub pool_tree: Arc<Tree>,
    }
    python {
        /// The canonical tree of its requests.
        #[getter]
        fn tree(&self, py: Python<'_>) -> PyResult<Tree> {
            detached(py, || self.pool_tree.restrict(&self.requests))
        }

        /// The packed row; rows are numbered within the pack.
        #[getter]
        fn packing(&self, py: Python<'_>) -> PyResult<crate::pack::Packing> {
            detached(py, || {
                layout::pack(&self.pool_tree.restrict(&self.requests)?, &self.shared)
            })
        }

        /// Tokens of the packed row, without padding.
        #[getter]
        fn packed_tokens(&self) -> i64 {
            self.measures[group::PACKED]
        }

        /// Tokens of its requests.
        #[getter]
        fn logical_tokens(&self) -> i64 {
            self.measures[group::LOGICAL]
        }

        /// Tokens that sharing saves.
        #[getter]
        fn saved_tokens(&self) -> i64 {
            self.measures[group::LOGICAL] - self.measures[group::PACKED]
        }

        /// Prefixes that two or more requests share.
        #[getter]
        fn decisions(&self, py: Python<'_>) -> PyResult<usize> {
            let tree = self.tree(py)?;
            Ok((0..tree.len()).filter(|&s| tree.is_decision(s)).count())
        }

        /// How many of them are stored once.
        #[getter]
        fn shared_decisions(&self) -> usize {
            self.shared.iter().filter(|&&shared| shared).count()
        }

        /// Tokens of the busiest rank.
        #[getter]
        fn rows(&self) -> i64 {
            self.measures[group::LOCAL]
        }

        /// Tokens of each context-parallel rank, the larger of both layouts.
        #[getter(rank_rows)]
        fn py_rank_rows<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.rank_rows().give(py)
        }

        /// Tokens of the busiest rank over the mean of all ranks; 1 is even.
        #[getter]
        fn balance(&self) -> f64 {
            let rows = self.rank_rows();
            match (rows.iter().sum::<i64>(), rows.iter().max()) {
                (sum, Some(&most)) if sum > 0 => most as f64 / (sum as f64 / rows.len() as f64),
                _ => 1.0,
            }
        }

        fn __repr__(&self) -> String {
            let kind = if self.gradient { "gradient" } else { "forward only" };
            let (rows, tokens) = (self.requests.len(), self.packed_tokens());
            format!("Pack({rows} requests, {tokens} tokens, {kind})")
        }
    }
}

impl GroupPlan {
    /// Tokens of each context-parallel rank, the larger of both layouts.
    #[must_use]
    pub fn rank_rows(&self) -> Vec<i64> {
        match (&self.assignment, &self.recurrent) {
            (None, _) => vec![self.measures[group::PADDED]],
            (Some(made), None) => made.rank_tokens.clone(),
            (Some(made), Some(placed)) => placed.model_rows(made),
        }
    }
}

result! {
    /// One forward: all packs of some requests, run one after another, and its price.
    #[derive(Debug, Clone)]
    pub struct FlatPlan as "ForwardPlan" {
        /// How its layouts were chosen: "optimal", "fitting", "full" or "compatible".
        pub mode: Mode,
        /// Its requests, as pool indices.
        pub requests: Vec<u32>,
        /// Its packs in order of execution.
        pub groups: Vec<GroupPlan>,
        /// Every named result of the price, in the order of `PRICE_ROOTS`.
        pub roots: Vec<i64>,
        /// Its price inside a split.
        pub cost: Cost,
        /// A profile covers it.
        pub covered: bool,
        /// It may be believed.
        pub trusted: bool,
        /// A profile of its signature exists.
        pub profiled: bool,
        @core
        /// What the price was made of.
        pub measures: Measures,
    }
    python {
        /// Its measures, in the order of `PLAN_MEASURES`.
        #[getter]
        fn measures<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.measures.plan.to_vec().give(py)
        }

        /// Bytes it needs by itself.
        #[getter(required)]
        fn py_required(&self) -> i64 {
            self.required()
        }

        /// Packed tokens of all packs, padded to a multiple of TP.
        #[getter]
        fn packed_tokens(&self) -> i64 {
            self.packed()
        }

        /// Tokens of all its requests.
        #[getter]
        fn logical_tokens(&self) -> i64 {
            self.logical()
        }

        /// Tokens of its requests that ask for an output.
        #[getter]
        fn active_tokens(&self) -> i64 {
            self.measures.plan[plan::LOGICAL]
        }

        /// Bytes of all requested outputs.
        #[getter]
        fn output_bytes(&self) -> i64 {
            self.roots[root::OUTPUT]
        }

        /// Segments on the longest path of any pack.
        #[getter]
        fn depth(&self) -> i64 {
            self.groups.iter().map(|group| group.depth).max().unwrap_or(0)
        }

        fn __repr__(&self) -> String {
            let (rows, tokens) = (self.requests.len(), self.packed());
            format!("ForwardPlan({rows} requests, {tokens} tokens, {})", self.mode.name())
        }
    }
}

impl FlatPlan {
    /// The memory check's price.
    #[must_use]
    pub fn required(&self) -> i64 {
        self.roots[root::REQUIRED]
    }

    /// Packed tokens, padded.
    #[must_use]
    pub fn packed(&self) -> i64 {
        self.measures.plan[plan::PACKED]
    }

    /// Tokens of all requests, those without an output too.
    #[must_use]
    pub fn logical(&self) -> i64 {
        self.measures.plan[plan::LOGICAL] + self.measures.plan[plan::INACTIVE]
    }
}

/// A price inside a split from the program's results. `retained` is the profile's, scaled.
fn cost(roots: &[i64], retained: Option<i64>, safety: f64, adapter_slots: u64) -> Cost {
    let forward = roots[root::FORWARD_REQUIRED];
    let floor = roots[root::OUTPUT] + roots[root::RETAINED];
    Cost {
        required: roots[root::COST_REQUIRED],
        retained: retained.map_or(forward, |known| {
            forward.min(known.max(scaled(floor, safety)))
        }),
        checkpoint_retained: floor,
        checkpoint_workspace: roots[root::LADDER_WORKSPACE],
        input_gradient: roots[root::INPUT_GRADIENT],
        peak_increment: roots[root::PEAK_INCREMENT],
        hybridep_growth: roots[root::BUFFERS],
        adapter_gradient: roots[root::ADAPTER_GRADIENT],
        adapter_slots,
    }
}

/// One number for the set of adapter slots that a share trains.
fn trained_slots(groups: &Groups) -> u64 {
    let mut slots: Vec<u32> = (0..groups.len())
        .map(|g| groups.key(g))
        .filter(|key| key.gradient && key.slot != 0)
        .map(|key| key.slot)
        .collect();
    slots.sort_unstable();
    slots.dedup();
    slots.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &slot| {
        (hash ^ u64::from(slot)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A priced estimate or bound.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Estimate {
    pub(super) required: i64,
    pub(super) packed: i64,
    pub(super) trusted: bool,
    pub(super) profiled: bool,
}

/// Some requests with what every layout of them shares: groups, trees, signature.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) requests: Vec<u32>,
    pub(super) groups: Groups,
    pub(super) trees: Vec<Tree>,
    pub(super) profile: Option<usize>,
    base: Measures,
    pub(super) signature: Signature,
}

impl Share {
    /// Whether there is anything to decide: some rows share tokens.
    pub(super) fn sharing(&self) -> bool {
        let decides = |tree: &Tree| (0..tree.len()).any(|s| tree.is_decision(s));
        self.trees.iter().any(decides)
    }
}

/// Reusable memory of all stages.
#[derive(Debug, Default)]
pub(super) struct Work {
    tree: TreeWorkspace,
    layout: layout::Workspace,
    assign: assign::Workspace,
    recurrent: recurrent::Workspace,
    heads: HeadWork,
    measures: Measures,
    scale: Scale,
    values: Values,
}

impl Work {
    /// Chooses a group's layout. `room` is how far, in thousandths, a fitting layout may go from
    /// full sharing to the cost-optimal layout's tokens.
    fn choose(
        &mut self,
        tree: &Tree,
        scoring: &Scoring,
        mode: Mode,
        compatible: bool,
        room: i64,
    ) -> Result<Layout> {
        let method = match mode {
            Mode::Full => Method::Full,
            Mode::Published => Method::Reference,
            Mode::Optimal | Mode::Fitting if compatible => Method::Reference,
            Mode::Optimal | Mode::Fitting => Method::Exact,
        };
        let options = Options {
            method,
            ..Options::default()
        };
        let best = self.layout.choose(tree, scoring, &options)?;
        if mode != Mode::Fitting {
            return Ok(best);
        }
        let least = tree.packed_tokens();
        let most = least + (best.packed_tokens - least) * room / 1000;
        Ok((self.layout.fits(tree, scoring, most)?).unwrap_or(best))
    }
}

/// Prices plans of one engine against a set of profiles.
pub(super) struct Pricer {
    pub(super) engine: Arc<Engine>,
    pub(super) profiles: Arc<Profiles>,
    pub(super) work: Work,
}

impl Pricer {
    pub(super) fn new(engine: Arc<Engine>, profiles: Arc<Profiles>) -> Self {
        Self {
            engine,
            profiles,
            work: Work::default(),
        }
    }

    /// Forms groups and trees of `requests`.
    pub(super) fn load(&mut self, requests: &[u32], share: &mut Share) -> Result<()> {
        let Engine {
            measures: settings,
            pool,
            tree,
            ..
        } = &*self.engine;
        share.requests.clear();
        share.requests.extend_from_slice(requests);
        cancel::check()?;
        share.groups.form(pool, requests);
        share.trees.resize_with(share.groups.len(), Tree::default);
        for (g, into) in share.trees.iter_mut().enumerate() {
            let rows = share.groups.requests(g);
            tree.restrict_into(rows, &mut self.work.tree, into)?;
        }
        measures::start(pool, requests, &share.groups, settings, &mut share.base)?;
        self.sign(share);
        Ok(())
    }

    /// Finds the profile of the share's signature.
    fn sign(&mut self, share: &mut Share) {
        let pool = &self.engine.pool;
        let signature = &mut share.signature;
        signature.mixes.clear();
        for &request in &share.requests {
            let r = request as usize;
            if let Err(at) = signature.mixes.binary_search(&pool.mix[r]) {
                signature.mixes.insert(at, pool.mix[r]);
            }
        }
        signature.gradients.clear();
        signature.adapters.clear();
        for row in &share.base.groups {
            let gradient = row[group::GRADIENT] == 1;
            signature.gradients.push(gradient);
            signature
                .adapters
                .push((gradient, row[group::ADAPTER_RANK]));
        }
        signature.gradients.sort_unstable();
        signature.adapters.sort_unstable();
        if signature.adapters.iter().all(|&(_, rank)| rank == 0) {
            signature.adapters.clear();
        }
        share.profile = (self.profiles.iter()).position(|(known, _)| *known == *signature);
    }

    /// Chooses layouts for a share and prices the plan.
    pub(super) fn plan(&mut self, share: &Share, mode: Mode, room: i64) -> Result<FlatPlan> {
        self.work.measures.clone_from(&share.base);
        let mut groups = Vec::with_capacity(share.groups.len());
        for g in 0..share.groups.len() {
            groups.push(self.group(share, g, mode, room, HeadCount::Union)?);
        }
        let (estimate, covered) = self.finish(share, false)?;
        for (group, row) in groups.iter_mut().zip(&self.work.measures.groups) {
            group.measures = row.to_vec();
        }
        Ok(FlatPlan {
            mode,
            requests: share.requests.clone(),
            groups,
            measures: self.work.measures.clone(),
            roots: self.work.values.roots().to_vec(),
            cost: self.cost(share),
            covered,
            trusted: estimate.trusted,
            profiled: estimate.profiled,
        })
    }

    /// Prices layouts as the published CP 1 probe does, without a plan.
    pub(super) fn estimate(&mut self, share: &Share, mode: Mode) -> Result<Estimate> {
        self.work.measures.clone_from(&share.base);
        for g in 0..share.groups.len() {
            self.group(share, g, mode, 0, HeadCount::UnionOrSum)?;
        }
        Ok(self.finish(share, false)?.0)
    }

    /// Prices a bound on all layouts of a share.
    pub(super) fn bound(&mut self, share: &Share, bound: fn(i64) -> Bound) -> Result<Estimate> {
        self.work.measures.clone_from(&share.base);
        let settings = &self.engine.measures;
        for (row, tree) in self.work.measures.groups.iter_mut().zip(&share.trees) {
            measures::bound(bound(tree.packed_tokens()), settings, row)?;
        }
        let even = matches!(bound(0), Bound::Ladder(_));
        Ok(self.finish(share, even)?.0)
    }

    /// The ladder's lower bound on the price of a chunk.
    pub(super) fn lower_cost(&mut self, share: &Share) -> Result<Cost> {
        self.bound(share, Bound::Ladder)?;
        let mut lower = self.cost(share);
        let roots = self.work.values.roots();
        let loose = share.profile.is_some_and(|p| {
            let unshared = self.work.measures.plan[plan::UNSHARED];
            (self.profiles[p].1).bound_is_loose(&self.work.scale, unshared)
        });
        if loose {
            let floor = roots[root::OUTPUT] + roots[root::CHECKPOINT_RETAINED];
            lower.retained = (lower.retained).min(scaled(floor, self.work.scale.safety));
        }
        Ok(lower)
    }

    /// The price evaluated last, as part of a split.
    fn cost(&self, share: &Share) -> Cost {
        let scale = &self.work.scale;
        let retained = share
            .profile
            .and_then(|p| self.profiles[p].1.retained(scale));
        let slots = trained_slots(&share.groups);
        cost(self.work.values.roots(), retained, scale.safety, slots)
    }

    /// Reads what a profile's price depends on; the results of the rules only where one exists.
    fn scale(&mut self, profiled: bool) -> Result<()> {
        let Engine { program, apart, .. } = &*self.engine;
        let Work {
            measures,
            scale,
            values,
            ..
        } = &mut self.work;
        *scale = Scale {
            packed: measures.plan[plan::PACKED],
            logical: measures.plan[plan::LOGICAL],
            safety: program.safety(),
            ..Scale::default()
        };
        if profiled {
            apart.evaluate(&measures.plan, &measures.groups, values)?;
            let [packed_priced, logical_bytes, apart_bytes, output] =
                [0, 1, 2, 3].map(|result| values.root(result));
            scale.packed_priced = packed_priced != 0;
            (scale.logical_bytes, scale.apart_bytes) = (logical_bytes, apart_bytes);
            scale.output = output;
        }
        Ok(())
    }

    fn group(
        &mut self,
        share: &Share,
        g: usize,
        mode: Mode,
        room: i64,
        head: HeadCount,
    ) -> Result<GroupPlan> {
        let engine = Arc::clone(&self.engine);
        let (settings, pool) = (&engine.settings, &engine.pool);
        let (tree, key) = (&share.trees[g], share.groups.key(g));
        let scoring = if key.gradient {
            &settings.scoring
        } else {
            &engine.forward_scoring
        };
        let chosen = self
            .work
            .choose(tree, scoring, mode, settings.compatible, room)?;
        let shape = layout::shape(tree, &chosen.shared)?;
        let segments = &shape.segments;
        let (mut assignment, mut recurrent) = (None, None);
        if settings.cp > 1 {
            let padded = measures::pad(segments, settings.tp)?;
            let ranks = settings.cp as usize;
            let made = assign::assign(&padded, ranks, &settings.assign, &mut self.work.assign)?;
            if let Some(facts) = &settings.recurrent {
                let work = &mut self.work.recurrent;
                recurrent = Some(recurrent::recurrent(&padded, &made, facts, work)?);
            }
            assignment = Some(made);
        }
        let exact = Exact {
            tree,
            shared: &chosen.shared,
            segments,
            assignment: assignment.as_ref(),
            recurrent: recurrent.as_ref(),
            head,
        };
        let requests = share.groups.requests(g);
        let row = &mut self.work.measures.groups[g];
        measures::exact(
            pool,
            requests,
            &exact,
            &engine.measures,
            &mut self.work.heads,
            row,
        )?;
        Ok(GroupPlan {
            adapter: (key.slot as usize)
                .checked_sub(1)
                .and_then(|at| engine.adapters.get(at).cloned()),
            gradient: key.gradient,
            routed: key.routed,
            requests: requests.to_vec(),
            depth: chosen.depth,
            optimal: chosen.optimal,
            work: chosen.score.work,
            work_bound: chosen.bound,
            measures: Vec::new(), // known once the plan is finished
            pool_tree: Arc::clone(&engine.tree),
            shared: chosen.shared,
            assignment,
            recurrent,
        })
    }

    /// Sums the groups, adds what profiles know, and runs the program.
    fn finish(&mut self, share: &Share, even: bool) -> Result<(Estimate, bool)> {
        let settings = &self.engine.settings;
        measures::finish(&self.engine.measures, even, &mut self.work.measures)?;
        let columns = &mut self.work.measures.plan;
        columns[plan::ADAPTER_PENDING] = i64::from(settings.adapter_pending);
        columns[plan::COLD] = i64::from(share.profile.is_none());
        self.scale(share.profile.is_some())?;
        let scale = self.work.scale;
        let profile = share.profile.map(|p| &self.profiles[p].1);
        let settings = &self.engine.settings;
        self.work.measures.plan[plan::LEARNED] = profile.map_or(0, |p| p.learned(&scale));
        let Work {
            measures, values, ..
        } = &mut self.work;
        (self.engine.program).evaluate(&measures.plan, &measures.groups, values)?;
        let covered = scale.packed <= 0 || profile.is_some_and(|p| p.window() >= scale.packed);
        let believed =
            settings.trust_rules && (settings.margin || values.root(root::UNPRICED) == 0);
        let estimate = Estimate {
            required: values.root(root::REQUIRED),
            packed: scale.packed,
            trusted: covered || believed,
            profiled: profile.is_some(),
        };
        Ok((estimate, covered))
    }
}
