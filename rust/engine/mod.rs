//! From a pool of requests to an admitted wave: runs every stage for the widths that the search
//! asks, and the ladder when the minimum wave does not fit.
//!
//! The pool's tree is built once; a probe restricts it to the wave's requests and reads no token.

pub mod agreed;
mod ladder;
mod plan;
mod probe;
mod profile;
mod wave;

use std::sync::Arc;

use crate::assign::AssignSettings;
use crate::error::{Error, Result};
use crate::layout::{MOST_RANKS, Scoring};
use crate::measures::{self, Pool};
use crate::price::{Program, root};
use crate::recurrent::RecurrentSettings;
use crate::tree::Tree;

pub use ladder::Tried;
pub use plan::{FlatPlan, GroupPlan, Mode};
pub use probe::Probed;
pub use profile::{Curve, Observed, Profile, Rates, TRUST_GROWTH};
pub use wave::{Ending, Found, Session, part_costs, plan};

/// Which prices may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Only within eight times what a profile has seen.
    Profile,
    /// Also where no rule that matters to the plan is missing or unmeasured.
    Rules {
        /// A margin stands in for such rules, so that all prices may be believed.
        margin: bool,
    },
}

/// What stays the same from wave to wave.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // independent facts of a job, named one by one
pub struct Settings {
    /// The published order of probes and its layouts.
    pub compatible: bool,
    /// Which prices may be believed.
    pub trust: Trust,
    /// Data-parallel ranks.
    pub dp: usize,
    /// This process's data-parallel rank.
    pub dp_rank: usize,
    /// Internal splitting is allowed (no expert parallelism).
    pub split: bool,
    /// The model has mixture-of-experts layers.
    pub moe: bool,
    /// Gradient groups need their bucket schedule to be priced (recurrent layers).
    pub gdn_pending: bool,
    /// Gradients of adapters are still to be allocated.
    pub adapter_pending: bool,
    /// Layout score of groups with gradients.
    pub scoring: Scoring,
    /// Layout score of groups without.
    pub forward_scoring: Scoring,
    /// Chunk assignment.
    pub assign: AssignSettings,
    /// The recurrent layout, if the model has one.
    pub recurrent: Option<RecurrentSettings>,
    /// What measures depend on; holds TP and CP.
    pub measures: measures::Settings,
    /// The bound rules.
    pub program: Arc<Program>,
    /// Names of the adapter slots 1, 2, ..., shown in plans.
    pub adapters: Vec<String>,
}

/// What profiles are kept by: plans of one signature behave alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signature {
    /// Distinct output mixes, ascending.
    pub mixes: Vec<u32>,
    /// Gradient mode of each group, ascending.
    pub gradients: Vec<bool>,
    /// Gradient mode and adapter rank of each group, ascending; empty without adapters.
    pub adapters: Vec<(bool, i64)>,
}

/// Profiles by signature.
pub type Profiles = Vec<(Signature, Profile)>;

/// A planner's view of one pool.
#[derive(Debug, Clone)]
pub struct Engine {
    settings: Settings,
    /// The results of the rules that a profile reads.
    apart: Program,
    pool: Arc<Pool>,
    tree: Arc<Tree>,
}

impl Engine {
    /// Checks that the parts belong together.
    pub fn new(mut settings: Settings, pool: Arc<Pool>, tree: Arc<Tree>) -> Result<Self> {
        if tree.rows() != pool.requests() {
            return Err(Error::input(format!(
                "the tree has {} rows for {} requests: give one each",
                tree.rows(),
                pool.requests()
            )));
        }
        if let Some(row) = pool.lengths.iter().position(|&length| length == 0) {
            return Err(Error::input(format!(
                "row {row} is empty: every request holds at least one token"
            )));
        }
        if settings.dp == 0 || settings.dp_rank >= settings.dp {
            return Err(Error::input(format!(
                "dp_rank is {} of {}: it must be below the number of data-parallel ranks",
                settings.dp_rank, settings.dp
            )));
        }
        let (tp, cp) = (settings.measures.tp, settings.measures.cp);
        if ![tp, cp].iter().all(|size| (1..=MOST_RANKS).contains(size)) {
            return Err(Error::input(format!(
                "tp is {tp} and cp is {cp}: both must be from 1 to {MOST_RANKS}"
            )));
        }
        settings.scoring.check()?;
        settings.forward_scoring.check()?;
        settings.assign.check()?;
        settings.measures.gdn_weights = settings.program.gdn_weights()?;
        let read = [
            root::PACKED_PRICED,
            root::LOGICAL_BYTES,
            root::APART_BYTES,
            root::OUTPUT,
        ];
        Ok(Self {
            apart: settings.program.part(&read),
            settings,
            pool,
            tree,
        })
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The tree of the pool's rows.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What stays the same from wave to wave.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn parallel(&self) -> bool {
        self.settings.measures.cp > 1
    }
}
