//! The published planner's search: its mandatory family, then its bounded refinement.

mod beam;
mod bits;
mod family;
mod spans;
#[cfg(test)]
mod tests;
mod view;

pub use family::Label;
pub(super) use family::is_member;

use super::scoring::Weights;
use super::{Forest, Stop};
use crate::error::Result;
use beam::Refinement;
use bits::{Arena, Keys};
use family::Member;

/// Memory that one search after another can use.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    keys: Keys,
    arena: Arena,
}

/// The chosen layout and what the search spent.
pub(super) struct Found {
    pub(super) chosen: Vec<bool>,
    /// Proposals spent, and those that were new layouts.
    pub(super) work: usize,
    pub(super) evaluated: usize,
    pub(super) stop: Stop,
    members: Vec<Member>,
}

impl Found {
    /// Distinct layouts of the mandatory family.
    pub(super) fn mandatory(&self) -> usize {
        self.members.len()
    }
}

impl Workspace {
    /// Runs the search with a budget of proposals. It may stop where it meets `target`, the best
    /// of all layouts.
    pub(super) fn search(
        &mut self,
        forest: &Forest,
        weights: &Weights,
        budget: usize,
        target: Option<&[bool]>,
    ) -> Result<Found> {
        let Self { keys, arena } = self;
        keys.reserve(forest.len());
        arena.reset(forest.len());
        let keys = &*keys;
        let target = target.map(|chosen| keys.hash(&bits::words(chosen)));
        let members = family::family(forest, keys, arena)?;
        let (refinement, points) =
            Refinement::new(forest, weights, keys, arena, &members, budget, target);
        let refined = refinement.run(points)?;
        let words = arena.words(refined.incumbent.set);
        Ok(Found {
            chosen: (0..forest.len()).map(|i| bits::has(words, i)).collect(),
            work: refined.work,
            evaluated: refined.evaluated,
            stop: refined.stop,
            members,
        })
    }

    /// The policies of the family that give the found layout.
    pub(super) fn labels(&self, forest: &Forest, found: &Found) -> Vec<Label> {
        family::labels(
            forest,
            &found.chosen,
            &found.members,
            &self.arena,
            &self.keys,
        )
    }
}
