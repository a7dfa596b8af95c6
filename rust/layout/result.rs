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
        /// Stored once for all its rows (S entries); false for segments of one row.
        pub shared: Vec<bool>,
        /// Predicted work and its tie-breaks.
        pub score: Score,
        /// No layout of this tree has less work than this.
        pub bound: i128,
        /// The score is proven to be the least of all layouts.
        pub optimal: bool,
        /// Tokens of the packed row.
        pub packed_tokens: i64,
        /// Segments on the longest path: 1 without sharing.
        pub depth: i64,
        /// Segments of the packed row.
        pub segments: i64,
        /// The policies of the mandatory family that give this layout (compatible): "none",
        /// "depth 2", "span 18-40", "saves 5%", "full".
        pub labels: Vec<Label>,
        /// Distinct layouts of the mandatory family (compatible).
        pub mandatory_candidates: usize,
        /// Proposals spent (compatible).
        pub refinement_work: usize,
        /// Proposals that were new layouts (compatible).
        pub evaluated_refinements: usize,
        @core
        /// Chosen decisions.
        pub chosen: usize,
        /// Why the search ended (compatible).
        pub stop: Stop,
    }
    python {
        /// The shared segments, ascending.
        #[getter]
        fn decisions<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            let flags = self.shared.iter().enumerate();
            flags.filter(|f| *f.1).map(|f| f.0 as i64).collect::<Vec<i64>>().give(py)
        }

        /// Work that a better layout could save at most; 0 when proven optimal.
        #[getter]
        fn gap(&self) -> i128 {
            if self.optimal { 0 } else { (self.score.work - self.bound).max(0) }
        }

        /// Why the refinement ended (compatible).
        #[getter]
        fn stop_reason(&self) -> Option<&'static str> {
            match self.stop {
                Stop::NotSearched => None,
                Stop::NoDecisions => Some("no_shareable_decisions"),
                Stop::BudgetExhausted => Some("refinement_budget_exhausted"),
                Stop::Complete => Some("search_complete"),
            }
        }

        fn __repr__(&self) -> String {
            let proof = if self.optimal { "optimal".to_owned() } else { format!("gap {}", self.gap()) };
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
