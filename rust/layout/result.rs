//! A chosen layout, measured and scored.

use super::scoring::Weights;
use super::{Forest, Label, Score};
use crate::tree::Tree;

/// Why a reference search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// The method has no refinement.
    #[default]
    NotSearched,
    /// There was nothing to decide.
    NoDecisions,
    /// The budget of proposals ran out.
    BudgetExhausted,
    /// Every proposal was made.
    Complete,
}

/// A chosen layout and how good it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Per tree segment: stored once for all its rows.
    pub shared: Vec<bool>,
    /// Predicted work and its tie-breaks.
    pub score: Score,
    /// No layout of this tree has less work than this.
    pub bound: i128,
    /// The score is proven to be the least of all layouts.
    pub optimal: bool,
    /// Tokens of the packed row.
    pub packed_tokens: i64,
    /// Segments on the longest path.
    pub depth: i64,
    /// Segments of the packed row.
    pub segments: i64,
    /// Chosen decisions.
    pub chosen: usize,
    /// The policies of the mandatory family that give this layout (reference).
    pub labels: Vec<Label>,
    /// Distinct layouts of the mandatory family (reference).
    pub mandatory_candidates: usize,
    /// Proposals spent (reference).
    pub refinement_work: usize,
    /// Proposals that were new layouts (reference).
    pub evaluated_refinements: usize,
    /// Why the search ended (reference).
    pub stop: Stop,
}

/// Measures and scores a choice of decisions.
pub(super) fn finish(tree: &Tree, forest: &Forest, weights: &Weights, chosen: &[bool]) -> Layout {
    let measures = forest.measure(chosen);
    let score = weights.score(&measures);
    let mut shared = vec![false; tree.parent.len()];
    for (decision, &chosen) in chosen.iter().enumerate() {
        shared[forest.tree_segment[decision] as usize] = chosen;
    }
    Layout {
        shared,
        score,
        packed_tokens: measures.tokens,
        depth: measures.depth,
        segments: measures.segments,
        chosen: measures.chosen as usize,
        ..Layout::default()
    }
}
