//! From a pool of requests to a wave that fits: runs every stage for the widths of the search, and
//! splits the minimum wave where it does not fit.
//!
//! The pool's tree is built once; a probe restricts it to the wave's requests and reads no token.

pub mod agreed;
mod attempts;
pub mod compose;
mod deal;
pub mod forest;
mod observed;
mod owned;
mod plan;
mod probe;
mod profile;
pub mod split;
mod wave;
pub mod width;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fields::{at_least, between, settings};
use crate::gdn::GdnSettings;
use crate::layout::{MOST_RANKS, Scoring, Version};
use crate::measures::{self, Requests};
use crate::ownership::OwnershipSettings;
use crate::price::{Program, root};
use crate::search::width::Strategy;
use forest::{Cover, Forest};

pub use attempts::Attempt;
pub use observed::{Observation, Observed, Rates};
pub use owned::time_ms;
pub use plan::{ForwardPlan, Mode, Pack};
pub use probe::Probe;
pub use profile::{Curve, Curves, Profile, TRUST_GROWTH};
pub use wave::{Ending, SearchResult, Session, plan, sign, unshared};

settings! {
    /// Facts that stay the same from wave to wave of a job.
    #[allow(clippy::struct_excessive_bools)] // independent facts of a job, named one by one
    pub struct Settings as "PlannerSettings" {
        /// Layout score of packs with gradients; packs without take its version 1.
        scoring: Scoring;
        /// The context of its profiles' signatures.
        context: String = String::new();
        /// The reference order of probes and its layouts.
        reference: bool = false;
        /// Prices are trusted where no rule that matters to the plan is uncharged or unmeasured,
        /// else only within eight times what a profile has seen.
        trust_rules: bool = true;
        /// A margin stands in for such rules, so that all prices are trusted.
        margin: bool = false;
        /// Data-parallel ranks.
        dp: usize = 1, at_least(1);
        /// This process's data-parallel rank.
        dp_rank: usize = 0;
        /// Ranks take consecutive blocks of a wave where these are faster than groups dealt in turn.
        blocks: bool = false;
        /// Tensor-parallel ranks.
        tp: i64 = 1, between(1, MOST_RANKS);
        /// Context-parallel ranks.
        cp: i64 = 1, between(1, MOST_RANKS);
        /// Internal splitting is allowed (no expert parallelism).
        split: bool = true;
        /// The model has mixture-of-experts layers.
        moe: bool = false;
        /// Gradient packs need their bucket schedule to be priced (gdn layers).
        gdn_pending: bool = false;
        /// Gradients of adapters are still to be allocated.
        adapter_pending: bool = false;
        /// Rank of every adapter.
        adapter_rank: i64 = 0, at_least(0);
        /// Attention layers, for modelled times.
        attention_layers: i64 = 1, at_least(0);
        /// Gdn layers, for modelled times.
        gdn_layers: i64 = 0, at_least(0);
        /// Modelled time of a layer's MLP per token, forward and backward.
        mlp_token_ms: f64 = 0.0, at_least(0);
        /// Takes the widest wave that fits, rather than one with the most work per modelled time.
        widest: bool = false;
        /// Ownership of chunks.
        ownership: OwnershipSettings = OwnershipSettings::default();
        /// The gdn layout, if the model has one.
        gdn: Option<GdnSettings> = None;
    }
}

settings! {
    /// The key of a profile: plans of one signature need memory alike.
    #[derive(Eq)]
    pub struct Signature as "Signature" {
        /// Topology and layout score of the job.
        context: String;
        /// Distinct output mixes of the requests, sorted.
        mixes: Vec<String>;
        /// Gradient mode of each pack, sorted.
        gradients: Box<[bool]>;
        /// Gradient mode and adapter rank of each pack, sorted; empty without adapters.
        adapters: Vec<(bool, i64)> = Vec::new();
    }
}

impl Settings {
    /// Groups are dealt in blocks.
    fn deals_blocks(&self) -> bool {
        self.blocks && self.dp > 1
    }

    /// Modelled times decide between the widths that fit.
    fn times_decide(&self) -> bool {
        !self.reference && !self.widest && self.cp > 1
    }
}

impl Signature {
    /// The same with every list sorted, as plans are signed.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.mixes.sort_unstable();
        self.gradients.sort_unstable();
        self.adapters.sort_unstable();
        self
    }
}

/// Profiles by signature.
pub type Profiles = Vec<(Signature, Profile)>;

/// A planner's view of one pool.
#[derive(Debug, Clone)]
pub struct Engine {
    settings: Settings,
    forward_scoring: Scoring,
    measures: measures::Settings,
    /// The bound rules.
    program: Arc<Program>,
    /// The results of the rules that a profile reads.
    apart: Program,
    /// Names of the pool's mixes.
    mixes: Vec<String>,
    pool: Arc<Requests>,
    /// The groups in the order in which waves take them; that of the pool without one.
    order: Option<Vec<u32>>,
    /// The pool's trees, where groups are dealt in blocks or times are compared.
    forest: Option<Forest>,
    /// Modelled picoseconds of what is left before each place of the order, where times are compared.
    left: Vec<i64>,
}

impl Engine {
    /// Plans a pool whose groups are taken in some order, by default the pool's.
    pub fn new(
        settings: Settings,
        program: Arc<Program>,
        pool: Arc<Requests>,
        order: Option<Vec<u32>>,
    ) -> Result<Self> {
        debug_assert_eq!(pool.tree.sequences(), pool.len());
        debug_assert_eq!(settings.check(), Ok(()));
        if let Some(empty) = pool.lengths.iter().position(|&length| length == 0) {
            return Err(Error::input(format!(
                "request {empty} is empty: it must have at least one token"
            )));
        }
        if settings.dp_rank >= settings.dp {
            return Err(Error::input(format!(
                "dp_rank is {} of {}: it must be below the number of data-parallel ranks",
                settings.dp_rank, settings.dp
            )));
        }
        let read = [
            root::PACKED_PRICED,
            root::LOGICAL_BYTES,
            root::APART_BYTES,
            root::OUTPUT,
        ];
        let (mut forest, mut left) = (None, Vec::new());
        if settings.deals_blocks() || settings.times_decide() {
            let made = Forest::new(&pool, &settings)?;
            let group = |place| order.as_ref().map_or(place, |order| order[place] as usize);
            let requests = |place| pool.group(group(place)).map(|request| request as u32);
            left = made.left((0..pool.groups()).map(requests));
            forest = Some(made);
        }
        let adapters = pool.adapters.iter().map(|_| settings.adapter_rank);
        Ok(Self {
            forward_scoring: Scoring {
                version: Version::One,
                ..settings.scoring.clone()
            },
            measures: measures::Settings {
                tp: settings.tp,
                cp: settings.cp,
                gdn: settings.gdn.is_some(),
                adapter_ranks: std::iter::once(0).chain(adapters).collect(),
                ..measures::Settings::of(&program)?
            },
            apart: program.part(&read),
            settings,
            program,
            mixes: pool.mix_names(),
            pool,
            order,
            forest,
            left,
        })
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Requests {
        &self.pool
    }

    /// Deals the groups of a wave to the data-parallel ranks, one by one in turn or in blocks: this
    /// rank's share of the `width` groups from position `start` of the order on.
    #[must_use]
    pub fn deal(&self, start: usize, width: usize) -> Vec<usize> {
        let Settings { dp, dp_rank, .. } = self.settings;
        let places = start..start + width;
        let group = |place| self.group(place);
        let blocks = (self.forest.as_ref())
            .filter(|_| self.settings.deals_blocks() && width > dp)
            .and_then(|forest| {
                let requests = |place| self.pool.group(group(place)).map(|r| r as u32);
                let groups: Vec<Vec<u32>> =
                    places.clone().map(|at| requests(at).collect()).collect();
                deal::blocks(forest, &groups, dp)
            });
        match blocks {
            Some(starts) => places
                .take(starts[dp_rank + 1])
                .skip(starts[dp_rank])
                .map(group)
                .collect(),
            None => places.skip(dp_rank).step_by(dp).map(group).collect(),
        }
    }

    /// The group at a place of the order.
    fn group(&self, place: usize) -> usize {
        (self.order.as_ref()).map_or(place, |order| order[place] as usize)
    }

    /// Of the widths from half of `most` on the one that leaves least of its own work to be done once
    /// more, the widest of equals: often where no shared prefix is cut.
    fn cut(&self, start: usize, most: usize) -> Option<usize> {
        let mut cover = Cover::new(self.forest.as_ref()?);
        let mut best: Option<(f64, usize)> = None;
        for width in 1..=most {
            for request in self.pool.group(self.group(start + width - 1)) {
                cover.add(request as u32);
            }
            if 2 * width >= most && width % self.settings.dp == 0 {
                let taken = self.work(start, width) as f64 / cover.time.max(1) as f64;
                if best.is_none_or(|(most, _)| taken >= most) {
                    best = Some((taken, width));
                }
            }
        }
        best.map(|best| best.1)
    }

    /// Modelled picoseconds that a wave, on all ranks, takes off what is left. What it shares with
    /// later waves is left to do once more.
    fn work(&self, start: usize, width: usize) -> i64 {
        self.left[start] - self.left[start + width]
    }

    /// The requests of that share, in order.
    #[must_use]
    pub fn share(&self, start: usize, width: usize) -> Vec<u32> {
        (self.deal(start, width).into_iter())
            .flat_map(|group| self.pool.group(group))
            .map(|request| request as u32)
            .collect()
    }

    /// Facts that stay the same from wave to wave.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn strategy(&self) -> Strategy {
        if self.settings.reference {
            Strategy::Reference
        } else {
            Strategy::Best
        }
    }

    /// The score of layouts of packs with gradients, or without.
    fn scoring(&self, gradient: bool) -> &Scoring {
        if gradient {
            &self.settings.scoring
        } else {
            &self.forward_scoring
        }
    }

    /// Modelled times decide between layouts that fit.
    fn times_layouts(&self) -> bool {
        !self.settings.reference && self.parallel()
    }

    fn parallel(&self) -> bool {
        self.settings.cp > 1
    }
}
