//! The second layout, of gated-delta-net layers: which rank runs which segment.
//!
//! Gdn layers run along a segment, so they cannot use the attention layout's chunks.
//! Each segment is owned by one rank, or *chained*: cut into one shard per rank, in order.
//! [`gdn`] chooses the chained segments by a small beam search under a time model, then
//! places the rest greedily. A rank then holds the larger of its attention and gdn tokens.

mod chain;
mod forest;
mod place;
pub mod schedule;
mod set_order;
mod settings;

pub use schedule::{Schedule, gdn_schedule, gdn_schedule_per_rank};
pub use settings::{GdnSettings, Shape};

use crate::error::{Error, Result};
use crate::fields::result;
use crate::ownership::Ownership;
use crate::segments::{NONE, Segments};

/// Tokens of one step of the gdn kernel: shards of a chained segment are multiples of it.
pub const KERNEL_CHUNK: i64 = 64;

/// Bounds the tables of segments by ranks to some hundred MiB each.
pub(crate) const MOST_CELLS: usize = 1 << 26;

result! {
    /// The ranks of a pack's segments. S segments, C ranks.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct Gdn as "Gdn" {
        /// Tokens on each rank (C entries).
        pub rank_tokens: Vec<i64>,
        /// Owner of each segment, [`NONE`] (-1 in Python) where it is chained (S entries).
        pub owner: Vec<u32>,
        /// Whether a segment is cut over all ranks (S entries).
        pub chained: Vec<bool>,
        /// Tokens that change rank between the attention layout and this one.
        pub cross_tokens: i64,
        /// Predicted milliseconds per layer, forward and backward, of the slowest rank.
        pub score: f64,
        /// No placement is predicted below this: all work spread evenly, nothing padded or moved.
        pub bound: f64,
        /// Placements that were scored, the answer's among them.
        pub evaluations: usize,
        @core
        /// Tokens of each rank in the attention layout (C entries).
        pub attention_tokens: Vec<i64>,
        /// Tokens of each shard: C entries per chained segment, in segment order.
        pub shards: Vec<i64>,
    }
    python {
        fn __repr__(&self) -> String {
            format!("Gdn({:?} tokens by rank, {:.3} ms)", self.rank_tokens, self.score)
        }

        /// Tokens of each shard, [chained segments, C].
        #[getter(shards)]
        fn py_shards<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.shards.give(py)?.call_method1("reshape", (-1, self.rank_tokens.len()))
        }

        /// Tokens of a model with both kinds of layers on each rank: the larger of both.
        #[getter(model_tokens)]
        fn py_model_tokens<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            let pairs = self.rank_tokens.iter().zip(&self.attention_tokens);
            pairs.map(|(&mine, &theirs)| mine.max(theirs)).collect::<Vec<i64>>().give(py)
        }
    }
}

impl Gdn {
    /// Tokens of a model with both kinds of layers: the larger of both layouts, per rank.
    #[must_use]
    pub fn model_tokens(&self, ownership: &Ownership) -> Vec<i64> {
        let pairs = self.rank_tokens.iter().zip(&ownership.rank_tokens);
        pairs.map(|(&mine, &theirs)| mine.max(theirs)).collect()
    }

    /// Tokens of the busiest rank over both layouts.
    #[must_use]
    pub fn busiest_tokens(&self, ownership: &Ownership) -> i64 {
        let pairs = self.rank_tokens.iter().zip(&ownership.rank_tokens);
        pairs
            .map(|(&mine, &theirs)| mine.max(theirs))
            .max()
            .unwrap_or(0)
    }
}

/// Buffers of [`gdn`], to be used again.
#[derive(Debug, Default)]
pub struct Workspace {
    forest: forest::Forest,
    loads: place::Loads,
    search: chain::Search,
}

/// Places the segments of a pack on the ranks of its attention ownership, where it can with at
/// most `most` tokens a rank.
///
/// Refuses a pack without segments, or too many, and an ownership of another pack.
pub fn gdn(
    segments: &Segments,
    ownership: &Ownership,
    settings: &GdnSettings,
    most: Option<i64>,
    workspace: &mut Workspace,
) -> Result<Gdn> {
    debug_assert_eq!(settings.check(), Ok(()));
    check_ownership(segments, ownership)?;
    settings.check_sizes(segments)?;
    let Workspace {
        forest,
        loads,
        search,
    } = workspace;
    forest.most = most.unwrap_or(i64::MAX);
    forest.fill(segments, ownership, settings);
    search.run(forest, loads, settings)?;
    let chosen = search.best();
    let score = loads.record(forest, chosen, settings);
    let ranks = ownership.ranks;
    let mut answer = Gdn {
        rank_tokens: loads.tokens.clone(),
        owner: vec![NONE; segments.len()],
        chained: vec![false; segments.len()],
        shards: Vec::with_capacity(chosen.len() * ranks),
        cross_tokens: loads.cross,
        score,
        bound: settings.bound(segments.tokens(), ranks),
        evaluations: search.evaluations() + 1,
        attention_tokens: ownership.rank_tokens.clone(),
    };
    for (at, &owner) in loads.owner.iter().enumerate() {
        answer.owner[forest.segment(at)] = owner;
    }
    for &at in chosen {
        answer.chained[forest.segment(at as usize)] = true;
    }
    for (segment, _) in answer.chained.iter().enumerate().filter(|(_, c)| **c) {
        let shards = forest.shards(forest.position(segment));
        answer.shards.extend_from_slice(shards);
    }
    Ok(answer)
}

/// The ownership must be one of this pack.
fn check_ownership(segments: &Segments, ownership: &Ownership) -> Result<()> {
    if segments.is_empty() {
        return Err(Error::input(
            "the pack has no segments: gdn layers need at least one token",
        ));
    }
    let tokens = segments.tokens();
    let ranks = ownership.ranks;
    if ownership.tokens != tokens {
        return Err(Error::input(format!(
            "ownership covers {} tokens, but the pack has {tokens}: they must be of one pack",
            ownership.tokens
        )));
    }
    if segments.len().saturating_mul(ranks) > MOST_CELLS {
        return Err(Error::input(format!(
            "{} segments on {ranks} ranks are too many: at most {MOST_CELLS} pairs of both",
            segments.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
