//! A chosen layout, measured and scored.

use super::scoring::Weights;
use super::{Forest, Label, Score};
use crate::fields::result;
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

result! {
    /// A choice of shared segments of a tree of S segments, and how good it is.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Layout as "Layout" {
        /// Stored once for all its sequences (S entries); false for segments of one sequence.
        pub shared: Vec<bool>,
        /// Predicted work and its tie-breaks.
        pub score: Score,
        /// No layout of this tree has less work than this.
        pub bound: i128,
        /// The score is proven to be the least of all layouts.
        pub optimal: bool,
        /// Tokens of the pack.
        pub packed_tokens: i64,
        /// Segments on the longest path: 1 without sharing.
        pub depth: i64,
        /// Segments of the pack.
        pub segments: i64,
        /// The policies of the mandatory family that give this layout (reference): "none",
        /// "depth 2", "span 18-40", "saves 5%", "full".
        pub labels: Vec<Label>,
        /// Distinct layouts of the mandatory family (reference).
        pub mandatory_candidates: usize,
        /// Proposals spent (reference).
        pub refinement_work: usize,
        /// Proposals that were new layouts (reference).
        pub evaluated_refinements: usize,
        @core
        /// Chosen decisions.
        pub chosen: usize,
        /// Why the search ended (reference).
        pub stop: Stop,
    }
    get {
        /// The shared segments, ascending.
        decisions(self) =
            (0..self.shared.len()).filter(|&s| self.shared[s]).collect::<Vec<usize>>();
        /// Work that a better layout could save at most; 0 when proven optimal.
        gap(self) = if self.optimal { 0 } else { (self.score.work - self.bound).max(0) };
        /// Why the refinement ended (reference).
        stop_reason(self) = match self.stop {
            Stop::NotSearched => None,
            Stop::NoDecisions => Some("no_shareable_decisions"),
            Stop::BudgetExhausted => Some("refinement_budget_exhausted"),
            Stop::Complete => Some("search_complete"),
        };
    }
    python {
        fn __repr__(&self) -> String {
            let gap = (self.score.work - self.bound).max(0);
            let proof = if self.optimal { "optimal".to_owned() } else { format!("gap {gap}") };
            format!(
                "Layout({} shared, {} segments, depth {}, {} tokens, {proof})",
                self.chosen, self.segments, self.depth, self.packed_tokens
            )
        }
    }
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
