//! One plan of some requests under one way to choose layouts, and its price.

use std::sync::Arc;

use super::owned;
use super::profile::Scale;
use super::{Engine, Profiles, Signature};
use crate::cancel;
use crate::error::Result;
use crate::fields::result;
use crate::gdn::{self, Gdn};
use crate::heads::HeadWork;
use crate::layout::{self, Layout, Method, Options, Scoring};
use crate::measures::{self, Bound, Exact, HeadCount, Measures, Packs, pack, plan};
use crate::ownership::{self, Asked, Ownership};
use crate::price::{Values, root};
use crate::search::split::{Cost, scaled};
use crate::search::width::Fit;
use crate::tree::{Tree, TreeWorkspace};

/// How far towards the cost-optimal layout a fitting one may go: half way, in thousandths.
pub(super) const ROOM: i64 = 500;

/// How the layouts of a plan are chosen, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Least predicted work.
    Optimal,
    /// Least predicted work among layouts short enough to fit, or to take less modelled time.
    Fitting,
    /// Everything shared.
    Full,
    /// The reference planner's bounded search.
    Reference,
}

impl Mode {
    /// The name in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimal => "optimal",
            Self::Fitting => "fitting",
            Self::Full => "full",
            Self::Reference => "reference",
        }
    }
}

result! {
    /// Requests of one adapter slot and one gradient mode, packed into one line of tokens.
    #[derive(Debug, Clone)]
    pub struct Pack as "Pack" {
        /// Its adapter slot's name; none for the model's own weights.
        pub adapter: Option<String>,
        /// Computes gradients.
        pub gradient: bool,
        /// Replays expert routing.
        pub routed: bool,
        /// Its requests, as pool indices, in packing order of input.
        pub requests: Vec<u32>,
        /// The segments of its canonical tree that are stored once.
        pub shared: Vec<bool>,
        /// Segments on the longest path.
        pub depth: i64,
        /// The layout's score is proven to be the least.
        pub optimal: bool,
        /// Predicted work of the layout, in the units of its score.
        pub work: i128,
        /// No layout of these requests has less work.
        pub work_bound: i128,
        /// Owners of chunks of the pack padded to a multiple of TP; none at CP 1.
        pub ownership: Option<Ownership>,
        /// Segments to ranks; none at CP 1 or without gdn layers.
        pub gdn: Option<Gdn>,
        /// Modelled milliseconds over all layers of the slowest rank; none where it is not timed.
        pub time_ms: Option<f64>,
        @core
        /// Its measures.
        pub measures: [i64; pack::COUNT],
        /// The tree of the pool.
        pub pool_tree: Arc<Tree>,
    }
    get {
        /// Tokens of the pack, without padding.
        packed_tokens(self) = self.measures[pack::PACKED];
        /// Tokens of its requests.
        logical_tokens(self) = self.measures[pack::LOGICAL];
        /// Tokens that sharing saves.
        saved_tokens(self) = self.measures[pack::LOGICAL] - self.measures[pack::PACKED];
        /// The number of them that are stored once.
        shared_decisions(self) = self.shared.iter().filter(|&&shared| shared).count();
        /// Tokens of the busiest rank.
        local_tokens(self) = self.measures[pack::LOCAL];
        /// Tokens that the head projects.
        head_tokens(self) = self.measures[pack::HEAD_TOKENS];
    }
    python {
        /// The canonical tree of its requests.
        #[getter]
        fn tree(&self, py: Python<'_>) -> PyResult<Tree> {
            detached(py, || self.pool_tree.restrict(&self.requests))
        }

        /// The packed line of tokens; sequences are numbered within the pack.
        #[getter]
        fn packing(&self, py: Python<'_>) -> PyResult<crate::pack::Packing> {
            detached(py, || {
                layout::pack(&self.pool_tree.restrict(&self.requests)?, &self.shared)
            })
        }

        /// Prefixes that two or more requests share.
        #[getter]
        fn decisions(&self, py: Python<'_>) -> PyResult<usize> {
            let tree = self.tree(py)?;
            Ok((0..tree.len()).filter(|&s| tree.is_decision(s)).count())
        }

        /// Tokens of each context-parallel rank, the larger of both layouts.
        #[getter(rank_tokens)]
        fn py_rank_tokens<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.rank_tokens().give(py)
        }

        /// Tokens of the busiest rank over the mean of all ranks; 1 is even.
        #[getter]
        fn balance(&self) -> f64 {
            let ranks = self.rank_tokens();
            match (ranks.iter().sum::<i64>(), ranks.iter().max()) {
                (sum, Some(&most)) if sum > 0 => most as f64 / (sum as f64 / ranks.len() as f64),
                _ => 1.0,
            }
        }

        fn __repr__(&self) -> String {
            let kind = if self.gradient { "gradient" } else { "forward only" };
            let (requests, tokens) = (self.requests.len(), self.measures[pack::PACKED]);
            format!("Pack({requests} requests, {tokens} tokens, {kind})")
        }
    }
}

impl Pack {
    /// Tokens of each context-parallel rank, the larger of both layouts.
    #[must_use]
    pub fn rank_tokens(&self) -> Vec<i64> {
        match (&self.ownership, &self.gdn) {
            (None, _) => vec![self.measures[pack::PADDED]],
            (Some(made), None) => made.rank_tokens.clone(),
            (Some(made), Some(placed)) => placed.model_tokens(made),
        }
    }
}

result! {
    /// One forward: all packs of some requests, run one after another, and its price.
    #[derive(Debug, Clone)]
    pub struct ForwardPlan as "ForwardPlan" {
        /// How its layouts were chosen: "optimal", "fitting", "full" or "reference".
        pub mode: Mode,
        /// Its requests, as pool indices.
        pub requests: Vec<u32>,
        /// Its packs in order of execution.
        pub packs: Vec<Pack>,
        /// Every named result of the price, in the order of `PRICE_ROOTS`.
        pub roots: Vec<i64>,
        /// Its price inside a split.
        pub cost: Cost,
        /// Within what a profile of its signature has seen.
        pub covered: bool,
        /// Its price is trusted.
        pub trusted: bool,
        /// A profile of its signature exists.
        pub profiled: bool,
        /// The measures that it was priced by.
        pub measures: Measures,
    }
    get {
        /// Packed tokens of all packs, padded to a multiple of TP.
        packed_tokens(self) = self.packed();
        /// Tokens of all its requests.
        logical_tokens(self) = self.logical();
        /// Tokens of its requests that ask for an output.
        active_tokens(self) = self.measures.plan[plan::LOGICAL];
        /// Bytes of all requested outputs.
        output_bytes(self) = self.roots[root::OUTPUT];
        /// Modelled milliseconds of all packs, one after another; none where one is not timed.
        time_ms(self) = self.milliseconds();
        /// Segments on the longest path of any pack.
        depth(self) = self.packs.iter().map(|pack| pack.depth).max().unwrap_or(0);
    }
    python {
        /// Bytes it needs by itself.
        #[getter(required)]
        fn py_required(&self) -> i64 {
            self.required()
        }

        fn __repr__(&self) -> String {
            let (requests, tokens) = (self.requests.len(), self.packed());
            format!("ForwardPlan({requests} requests, {tokens} tokens, {})", self.mode.name())
        }
    }
}

impl ForwardPlan {
    /// Compares its price with the bytes available.
    pub(super) fn fit(&self, available: i64) -> Fit {
        Fit {
            valid: true,
            fits: self.required() <= available,
            trusted: self.trusted,
            profiled: self.profiled,
        }
    }

    /// Bytes that it needs.
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
    let floor = roots[root::SPLIT_KEPT];
    Cost {
        required: roots[root::COST_REQUIRED],
        retained: retained.map_or(forward, |known| {
            forward.min(known.max(scaled(floor, safety)))
        }),
        checkpoint_retained: floor,
        checkpoint_workspace: roots[root::SPLIT_WORKSPACE],
        input_gradient: roots[root::INPUT_GRADIENT],
        peak_increment: roots[root::PEAK_INCREMENT],
        hybridep_growth: roots[root::BUFFERS],
        adapter_gradient: roots[root::ADAPTER_GRADIENT],
        adapter_slots,
    }
}

/// One number for the set of adapter slots that a share trains.
fn trained_slots(packs: &Packs) -> u64 {
    let mut slots: Vec<u32> = (0..packs.len())
        .map(|g| packs.key(g))
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

/// Some requests with all that does not depend on their layout: packs, trees, signature.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) requests: Vec<u32>,
    pub(super) packs: Packs,
    pub(super) trees: Vec<Tree>,
    pub(super) profile: Option<usize>,
    base: Measures,
}

impl Share {
    /// Whether some layout of a plan stores twice what could be shared.
    pub(super) fn shares_less(&self, plan: &ForwardPlan) -> bool {
        let all = |pack: &Pack, tree: &Tree| {
            (0..tree.len()).all(|s| pack.shared[s] || !tree.is_decision(s))
        };
        !(plan.packs.iter().zip(&self.trees)).all(|(pack, tree)| all(pack, tree))
    }

    /// Whether there is anything to decide: some sequences share tokens.
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
    pub(super) ownership: ownership::Workspace,
    pub(super) gdn: gdn::Workspace,
    heads: HeadWork,
    measures: Measures,
    scale: Scale,
    values: Values,
}

impl Work {
    /// Chooses a pack's layout.
    fn choose(
        &mut self,
        tree: &Tree,
        scoring: &Scoring,
        mode: Mode,
        reference: bool,
        room: i64,
    ) -> Result<Layout> {
        let method = match mode {
            Mode::Full => Method::Full,
            Mode::Reference => Method::Reference,
            Mode::Optimal | Mode::Fitting if reference => Method::Reference,
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

    /// Forms packs and trees of `requests`.
    pub(super) fn load(&mut self, requests: &[u32], share: &mut Share) -> Result<()> {
        let Engine {
            measures: settings,
            pool,
            ..
        } = &*self.engine;
        share.requests.clear();
        share.requests.extend_from_slice(requests);
        cancel::check()?;
        share.packs.form(pool, requests);
        share.trees.resize_with(share.packs.len(), Tree::default);
        for (g, into) in share.trees.iter_mut().enumerate() {
            let requests = share.packs.requests(g);
            pool.tree
                .restrict_into(requests, &mut self.work.tree, into)?;
        }
        measures::start(pool, requests, &share.packs, settings, &mut share.base)?;
        share.profile = None;
        if !self.profiles.is_empty() {
            let signature = self.sign(share);
            share.profile = (self.profiles.iter()).position(|(known, _)| *known == signature);
        }
        Ok(())
    }

    /// Computes the key of the share's profile.
    pub(super) fn sign(&self, share: &Share) -> Signature {
        let Engine {
            pool,
            mixes: names,
            settings,
            ..
        } = &*self.engine;
        let mut numbers = Vec::new();
        for &request in &share.requests {
            let mix = pool.mix[request as usize];
            if let Err(at) = numbers.binary_search(&mix) {
                numbers.insert(at, mix);
            }
        }
        let mixes = numbers.iter().map(|&mix| names[mix as usize].clone());
        let modes = (share.base.packs.iter())
            .map(|pack| (pack[pack::GRADIENT] == 1, pack[pack::ADAPTER_RANK]));
        let mut adapters: Vec<(bool, i64)> = modes.collect();
        let gradients = adapters.iter().map(|one| one.0).collect();
        if adapters.iter().all(|one| one.1 == 0) {
            adapters.clear();
        }
        let signature = Signature {
            context: settings.context.clone(),
            mixes: mixes.collect(),
            gradients,
            adapters,
        };
        signature.sorted()
    }

    /// Chooses the layout of every pack. `room` is how far, in thousandths, a fitting layout may go
    /// from full sharing to the cost-optimal layout's tokens.
    fn layouts(&mut self, share: &Share, mode: Mode, room: i64) -> Result<Vec<Layout>> {
        let reference = self.engine.settings.reference;
        let work = &mut self.work;
        (share.trees.iter().enumerate())
            .map(|(g, tree)| {
                let scoring = self.engine.scoring(share.packs.key(g).gradient);
                work.choose(tree, scoring, mode, reference, room)
            })
            .collect()
    }

    /// Chooses layouts for a share and prices the plan.
    pub(super) fn plan(&mut self, share: &Share, mode: Mode, room: i64) -> Result<ForwardPlan> {
        let layouts = self.layouts(share, mode, room)?;
        self.plan_of(share, mode, layouts)
    }

    /// Prices the plan of these layouts.
    fn plan_of(&mut self, share: &Share, mode: Mode, layouts: Vec<Layout>) -> Result<ForwardPlan> {
        self.work.measures.clone_from(&share.base);
        let mut packs = Vec::with_capacity(layouts.len());
        for (g, layout) in layouts.into_iter().enumerate() {
            packs.push(self.pack(share, g, layout, HeadCount::Union)?);
        }
        let (estimate, covered) = self.finish(share, false)?;
        for (pack, measures) in packs.iter_mut().zip(&self.work.measures.packs) {
            pack.measures = *measures;
        }
        Ok(ForwardPlan {
            mode,
            requests: share.requests.clone(),
            packs,
            measures: self.work.measures.clone(),
            roots: self.work.values.roots().to_vec(),
            cost: self.cost(share),
            covered,
            trusted: estimate.trusted,
            profiled: estimate.profiled,
        })
    }

    /// Plans of the same requests that another takes the time of less work for: with everything
    /// shared and, with gdn layers, with a part of it, as the score of layouts does not see how
    /// segments fall on ranks. Each other than `plan`, and than those before it.
    pub(super) fn others(&mut self, share: &Share, plan: &ForwardPlan) -> Result<Vec<ForwardPlan>> {
        let mut made = vec![(Mode::Full, self.layouts(share, Mode::Full, 0)?)];
        if self.engine.settings.gdn.is_some() {
            let mut parts = Vec::new();
            for (g, tree) in share.trees.iter().enumerate() {
                let scoring = self.engine.scoring(share.packs.key(g).gradient);
                parts.push(self.work.layout.between(tree, scoring)?);
            }
            let most = parts.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..most {
                // A pack with fewer layouts stays with the last; one with none shares everything.
                let of = |(part, full): (&Vec<Layout>, &Layout)| {
                    part.get(at).or(part.last()).unwrap_or(full).clone()
                };
                let layouts = parts.iter().zip(&made[0].1).map(of).collect();
                made.push((Mode::Fitting, layouts));
            }
        }
        let shared = |layouts: &[Layout]| layouts.iter().map(|one| one.shared.clone()).collect();
        let mut seen: Vec<Vec<Vec<bool>>> =
            vec![plan.packs.iter().map(|pack| pack.shared.clone()).collect()];
        let mut plans = Vec::new();
        for (mode, layouts) in made {
            let shared = shared(&layouts);
            if !seen.contains(&shared) {
                seen.push(shared);
                plans.push(self.plan_of(share, mode, layouts)?);
            }
        }
        Ok(plans)
    }

    /// Prices layouts as the reference CP 1 probe does, without a plan.
    pub(super) fn estimate(&mut self, share: &Share, mode: Mode) -> Result<Estimate> {
        let layouts = self.layouts(share, mode, 0)?;
        self.work.measures.clone_from(&share.base);
        for (g, layout) in layouts.into_iter().enumerate() {
            self.pack(share, g, layout, HeadCount::UnionOrSum)?;
        }
        Ok(self.finish(share, false)?.0)
    }

    /// Prices a bound on all layouts of a share.
    pub(super) fn bound(&mut self, share: &Share, bound: fn(i64) -> Bound) -> Result<Estimate> {
        self.work.measures.clone_from(&share.base);
        let settings = &self.engine.measures;
        for (into, tree) in self.work.measures.packs.iter_mut().zip(&share.trees) {
            measures::bound(bound(tree.packed_tokens()), settings, into)?;
        }
        let even = matches!(bound(0), Bound::Split(_));
        Ok(self.finish(share, even)?.0)
    }

    /// The least bytes of a forward of so many packed tokens, of which a share's requests are part.
    pub(super) fn least_required(&mut self, share: &Share, tokens: i64) -> Result<i64> {
        self.work.measures.clone_from(&share.base);
        let settings = &self.engine.measures;
        for into in &mut self.work.measures.packs {
            measures::bound(Bound::Split(tokens), settings, into)?;
        }
        Ok(self.finish(share, true)?.0.required)
    }

    /// The measures of a share that shares nothing, with the gdn work of a schedule without padding.
    pub(super) fn unshared(&mut self, share: &Share) -> Result<Measures> {
        self.bound(share, |_| Bound::NoSharing)?;
        let mut measures = self.work.measures.clone();
        for one in &mut measures.packs {
            for tokens in [
                pack::GDN_EXECUTED,
                pack::GDN_PACKED,
                pack::GDN_RANK_EXECUTED,
                pack::GDN_RANK_PACKED,
            ] {
                one[tokens] = one[pack::PACKED];
            }
            (one[pack::GDN_STATES], one[pack::GDN_RANK_STATES]) =
                (one[pack::REQUESTS], one[pack::REQUESTS]);
        }
        Ok(measures)
    }

    /// Computes a lower bound on the price of a part of a split.
    pub(super) fn lower_cost(&mut self, share: &Share) -> Result<Cost> {
        self.bound(share, Bound::Split)?;
        let mut lower = self.cost(share);
        if self.engine.settings.reference {
            lower.required -= self.growth();
            lower.hybridep_growth = 0;
        }
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

    /// What communication buffers grow by in the price evaluated last, with the safety factor.
    pub(super) fn growth(&self) -> i64 {
        scaled(self.work.values.root(root::BUFFERS), self.work.scale.safety)
    }

    /// The price evaluated last, as part of a split.
    fn cost(&self, share: &Share) -> Cost {
        let scale = &self.work.scale;
        let retained = share
            .profile
            .and_then(|p| self.profiles[p].1.retained(scale));
        let slots = trained_slots(&share.packs);
        cost(self.work.values.roots(), retained, scale.safety, slots)
    }

    /// Computes the inputs of a profile's price; results of the rules only where one exists.
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
            apart.evaluate(&measures.plan, &measures.packs, values)?;
            let [packed_priced, logical_bytes, apart_bytes, output] =
                [0, 1, 2, 3].map(|result| values.root(result));
            scale.packed_priced = packed_priced != 0;
            (scale.logical_bytes, scale.apart_bytes) = (logical_bytes, apart_bytes);
            scale.output = output;
        }
        Ok(())
    }

    fn pack(&mut self, share: &Share, g: usize, chosen: Layout, head: HeadCount) -> Result<Pack> {
        let engine = Arc::clone(&self.engine);
        let (settings, pool) = (&engine.settings, &engine.pool);
        let (tree, key) = (&share.trees[g], share.packs.key(g));
        let shape = layout::shape(tree, &chosen.shared)?;
        let segments = &shape.segments;
        let (mut ownership, mut gdn, mut time_ms) = (None, None, None);
        if settings.cp > 1 {
            let padded = measures::pad(segments, settings.tp)?;
            let asked = Asked::new(&padded, settings.cp as usize, &settings.ownership);
            let (mut made, mut most) = (asked.even(), Some(asked.even_tokens()));
            if settings.reference {
                let method = ownership::METHODS[0].1;
                made = ownership::own_by(method, &asked, &mut self.work.ownership)?;
                most = None;
            }
            if let Some(facts) = &settings.gdn {
                let work = &mut self.work.gdn;
                gdn = Some(gdn::gdn(&padded, &made, facts, most, work)?);
            }
            let timed = settings.reference;
            time_ms = timed.then(|| owned::time_ms(settings, &made, gdn.as_ref()));
            ownership = Some(made);
        }
        let exact = Exact {
            tree,
            shared: &chosen.shared,
            segments,
            ownership: ownership.as_ref(),
            gdn: gdn.as_ref(),
            head,
        };
        let requests = share.packs.requests(g);
        let into = &mut self.work.measures.packs[g];
        measures::exact(
            pool,
            requests,
            &exact,
            &engine.measures,
            &mut self.work.heads,
            into,
        )?;
        Ok(Pack {
            adapter: (key.slot as usize)
                .checked_sub(1)
                .and_then(|at| pool.adapters.get(at).cloned()),
            gradient: key.gradient,
            routed: key.routed,
            requests: requests.to_vec(),
            depth: chosen.depth,
            optimal: chosen.optimal,
            work: chosen.score.work,
            work_bound: chosen.bound,
            measures: [0; pack::COUNT], // known once the plan is finished
            pool_tree: Arc::clone(&engine.pool.tree),
            shared: chosen.shared,
            ownership,
            gdn,
            time_ms,
        })
    }

    /// Prices a plan whose packs have other owners.
    pub(super) fn price_again(&mut self, share: &Share, plan: &mut ForwardPlan) -> Result<()> {
        self.work.measures.clone_from(&plan.measures);
        let settings = &self.engine.measures;
        for (g, pack) in plan.packs.iter().enumerate() {
            let segments = layout::shape(&share.trees[g], &pack.shared)?.segments;
            let into = &mut self.work.measures.packs[g];
            let (ownership, gdn) = (pack.ownership.as_ref(), pack.gdn.as_ref());
            measures::owned(&segments, ownership, gdn, settings, into)?;
        }
        let (estimate, covered) = self.finish(share, false)?;
        for (pack, measures) in plan.packs.iter_mut().zip(&self.work.measures.packs) {
            pack.measures = *measures;
        }
        plan.measures.clone_from(&self.work.measures);
        plan.roots.clear();
        plan.roots.extend_from_slice(self.work.values.roots());
        plan.cost = self.cost(share);
        (plan.covered, plan.trusted, plan.profiled) =
            (covered, estimate.trusted, estimate.profiled);
        Ok(())
    }

    /// Sums the packs, adds the profile's bytes, and evaluates the program.
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
        (self.engine.program).evaluate(&measures.plan, &measures.packs, values)?;
        let covered = scale.packed <= 0 || profile.is_some_and(|p| p.window() >= scale.packed);
        let believed = settings.trust_rules
            && (settings.margin
                || !(self.engine.program)
                    .matter(&measures.plan, &measures.packs, false)?
                    .contains(&true));
        let estimate = Estimate {
            required: values.root(root::REQUIRED),
            packed: scale.packed,
            trusted: covered || believed,
            profiled: profile.is_some(),
        };
        Ok((estimate, covered))
    }
}
