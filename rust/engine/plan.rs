//! One plan of some requests under one way to choose layouts, and its price.

use std::sync::Arc;

use super::profile::Scale;
use super::{Engine, Profiles, Signature, Trust};
use crate::assign::{self, Assignment};
use crate::cancel;
use crate::error::Result;
use crate::heads::HeadWork;
use crate::layout::{self, Layout, Method, Options, Scoring};
use crate::measures::{self, Bound, Exact, GroupKey, Groups, HeadCount, Measures, group, plan};
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

/// One group of a plan.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    /// What its requests have in common.
    pub key: GroupKey,
    /// Its requests, as pool indices.
    pub requests: Vec<u32>,
    /// Which segments of its canonical tree are stored once.
    pub shared: Vec<bool>,
    /// Segments on the longest path.
    pub depth: i64,
    /// The layout's score is proven to be the least.
    pub proven: bool,
    /// Predicted work of the layout, and a bound on any layout's.
    pub work: (i128, i128),
    /// Chunks to ranks, of the padded packed row; none at CP 1.
    pub assignment: Option<Assignment>,
    /// Segments to ranks; none at CP 1 or without recurrent layers.
    pub recurrent: Option<Recurrent>,
}

/// One forward: all groups of some requests, priced.
#[derive(Debug, Clone)]
pub struct FlatPlan {
    /// How its layouts were chosen.
    pub mode: Mode,
    /// Its requests, as pool indices.
    pub requests: Vec<u32>,
    /// Its groups in order of execution.
    pub groups: Vec<GroupPlan>,
    /// What the price was made of.
    pub measures: Measures,
    /// Every named result of the price.
    pub roots: Vec<i64>,
    /// Its price inside a split.
    pub cost: Cost,
    /// A profile covers it.
    pub covered: bool,
    /// It may be believed.
    pub trusted: bool,
    /// A profile of its signature exists.
    pub profiled: bool,
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
fn cost(roots: &[i64], retained: Option<i64>, adapter_slots: u64) -> Cost {
    let forward = roots[root::FORWARD_REQUIRED];
    let floor = roots[root::OUTPUT] + roots[root::FLOOR_RETAINED];
    Cost {
        required: roots[root::COST_REQUIRED],
        retained: retained.map_or(forward, |known| forward.min(known.max(scaled(floor)))),
        checkpoint_retained: floor,
        checkpoint_workspace: roots[root::WORKSPACE],
        input_gradient: roots[root::INPUT_GRADIENT],
        peak_increment: roots[root::PEAK_INCREMENT],
        hybridep_growth: roots[root::HYBRIDEP_GROWTH],
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
    signature: Signature,
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
            settings,
            pool,
            tree,
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
        measures::start(
            pool,
            requests,
            &share.groups,
            &settings.measures,
            &mut share.base,
        )?;
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
        let settings = &self.engine.settings.measures;
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
            self.profiles[p].1.bound_is_loose(&self.scale(), unshared)
        });
        if loose {
            let floor = roots[root::OUTPUT] + roots[root::CHECKPOINT_RETAINED];
            lower.retained = lower.retained.min(scaled(floor));
        }
        Ok(lower)
    }

    /// The price evaluated last, as part of a split.
    fn cost(&self, share: &Share) -> Cost {
        let slots = trained_slots(&share.groups);
        cost(self.work.values.roots(), self.retained(share), slots)
    }

    fn retained(&self, share: &Share) -> Option<i64> {
        self.profiles[share.profile?].1.retained(&self.scale())
    }

    fn scale(&self) -> Scale {
        let measures = &self.work.measures;
        let segments = measures
            .groups
            .iter()
            .map(|row| row[group::GRADIENT] * row[group::SEGMENTS]);
        Scale {
            packed: measures.plan[plan::PACKED],
            logical: measures.plan[plan::LOGICAL],
            segments: segments.sum(),
            packed_priced: self.engine.settings.one_layer_recompute
                && measures.plan[plan::PACKED_PRICEABLE] == 1,
            segment_layer_bytes: self.engine.settings.segment_layer_bytes,
            output: measures.plan[plan::OUTPUT],
        }
    }

    fn group(
        &mut self,
        share: &Share,
        g: usize,
        mode: Mode,
        room: i64,
        head: HeadCount,
    ) -> Result<GroupPlan> {
        let Engine { settings, pool, .. } = &*self.engine;
        let (tree, key) = (&share.trees[g], share.groups.key(g));
        let scoring = if key.gradient {
            &settings.scoring
        } else {
            &settings.forward_scoring
        };
        let chosen = self
            .work
            .choose(tree, scoring, mode, settings.compatible, room)?;
        let shape = layout::shape(tree, &chosen.shared)?;
        let segments = &shape.segments;
        let (mut assignment, mut recurrent) = (None, None);
        if settings.measures.cp > 1 {
            let padded = measures::pad(segments, settings.measures.tp)?;
            let ranks = settings.measures.cp as usize;
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
            depth: chosen.depth,
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
            &settings.measures,
            &mut self.work.heads,
            row,
        )?;
        Ok(GroupPlan {
            key,
            requests: requests.to_vec(),
            depth: chosen.depth,
            proven: chosen.optimal,
            work: (chosen.score.work, chosen.bound),
            shared: chosen.shared,
            assignment,
            recurrent,
        })
    }

    /// Sums the groups, adds what profiles know, and runs the program.
    fn finish(&mut self, share: &Share, even: bool) -> Result<(Estimate, bool)> {
        let settings = &self.engine.settings;
        measures::finish(&settings.measures, even, &mut self.work.measures)?;
        let scale = self.scale();
        let profile = share.profile.map(|p| &self.profiles[p].1);
        let columns = &mut self.work.measures.plan;
        columns[plan::ADAPTER_PENDING] = i64::from(settings.adapter_pending);
        columns[plan::COLD] = i64::from(profile.is_none());
        columns[plan::LEARNED] = profile.map_or(0, |p| p.learned(&scale));
        let retained = profile.and_then(|p| p.retained(&scale));
        columns[plan::RETAINED_KNOWN] = i64::from(retained.is_some());
        columns[plan::PROFILE_RETAINED] = retained.unwrap_or(0);
        let Work {
            measures, values, ..
        } = &mut self.work;
        (settings.program).evaluate(&measures.plan, &measures.groups, values)?;
        let covered = scale.packed <= 0 || profile.is_some_and(|p| p.window() >= scale.packed);
        let believed = match settings.trust {
            Trust::Profile => false,
            Trust::Rules { margin } => margin || values.root(root::UNPRICED) == 0,
        };
        let estimate = Estimate {
            required: values.root(root::REQUIRED),
            packed: scale.packed,
            trusted: covered || believed,
            profiled: profile.is_some(),
        };
        Ok((estimate, covered))
    }
}
