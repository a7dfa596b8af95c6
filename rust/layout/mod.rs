//! Which shared prefixes are stored once: score, candidates, search, materialisation.
//!
//! A *decision* is a tree segment with two or more rows. A *layout* is a set of decisions: a
//! chosen one is stored once, from the end of its nearest chosen ancestor to its own end, and
//! each row replays what follows its deepest chosen segment.

mod beam;
mod bits;
mod costs;
mod dense;
mod exact;
mod family;
mod fits;
mod forest;
mod near;
mod pack;
mod scoring;
mod spans;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trees;
mod view;
mod window;

use beam::Search;
use bits::{Arena, Keys};
use scoring::Weights;

pub use family::Label;
pub use forest::{Forest, Measures};
pub use pack::{Shape, pack, shape};
pub use scoring::{MOST_RANKS, Score, Scoring, Version};

use crate::error::{Error, Result};
use crate::fields::result;
use crate::tree::Tree;

/// How a layout is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// The best of all layouts under the score, proven where possible.
    #[default]
    Exact,
    /// The bounded search of the published planner.
    Compatible,
    /// Everything shared.
    Full,
    /// Nothing shared.
    None,
}

/// Why a compatible search ended.
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

/// Proposals that the compatible refinement may spend: the published planner's budget.
pub const BUDGET: usize = 2_000;

/// What to choose and what to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How.
    pub method: Method,
    /// Proposals of the compatible refinement.
    pub budget: usize,
    /// Run the compatible refinement to its end, for its counters; else it may stop as soon as
    /// its answer is known.
    pub counts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: Method::Exact,
            budget: BUDGET,
            counts: false,
        }
    }
}

/// Memory that one choice after another can use.
#[derive(Debug, Default)]
pub struct Workspace {
    forest: Forest,
    keys: Keys,
    arena: Arena,
    tables: exact::Tables,
}

/// Chooses a layout of `tree`. A tree without rows, or with an empty row, is refused.
pub fn choose(tree: &Tree, scoring: &Scoring, method: Method) -> Result<Layout> {
    let options = Options {
        method,
        ..Options::default()
    };
    Workspace::default().choose(tree, scoring, &options)
}

impl Workspace {
    /// Like [`choose`], with all options.
    pub fn choose(&mut self, tree: &Tree, scoring: &Scoring, options: &Options) -> Result<Layout> {
        check(tree)?;
        let weights = scoring.weights()?;
        self.forest.rebuild(tree, weights.tiny_below)?;
        let decisions = self.forest.len();
        match options.method {
            Method::Full => Ok(finish(tree, &self.forest, &weights, &vec![true; decisions])),
            Method::None => Ok(finish(
                tree,
                &self.forest,
                &weights,
                &vec![false; decisions],
            )),
            Method::Compatible => self.compatible(tree, &weights, options),
            Method::Exact => self.exact(tree, &weights),
        }
    }

    fn exact(&mut self, tree: &Tree, weights: &Weights) -> Result<Layout> {
        let best = exact::exact(&self.forest, weights, &mut self.tables)?;
        if let Some(best) = best.as_ref().filter(|best| best.optimal) {
            return Ok(self.proven(tree, weights, best));
        }
        // No proof: the bounded search may know a better layout.
        let options = Options {
            counts: true,
            ..Options::default()
        };
        let found = self.compatible(tree, weights, &options)?;
        Ok(match best {
            Some(best) if best.score <= found.score => self.proven(tree, weights, &best),
            Some(best) => Layout {
                bound: best.bound,
                ..found
            },
            None => found,
        })
    }

    fn proven(&self, tree: &Tree, weights: &Weights, best: &exact::Best) -> Layout {
        Layout {
            bound: best.bound,
            optimal: best.optimal,
            ..finish(tree, &self.forest, weights, &best.chosen)
        }
    }

    /// The cheapest layout with at most `most_tokens` packed tokens; `None` when even full
    /// sharing has more.
    pub fn fits(
        &mut self,
        tree: &Tree,
        scoring: &Scoring,
        most_tokens: i64,
    ) -> Result<Option<Layout>> {
        let options = Options::default();
        let cheapest = self.choose(tree, scoring, &options)?;
        if cheapest.packed_tokens <= most_tokens {
            return Ok(Some(cheapest));
        }
        if tree.packed_tokens() > most_tokens {
            return Ok(None);
        }
        let weights = scoring.weights()?;
        let chosen = self.flags(&cheapest.shared);
        let best = fits::fits(
            &self.forest,
            &weights,
            &mut self.tables,
            &chosen,
            most_tokens,
        )?;
        let mut layout = self.proven(tree, &weights, &best);
        layout.bound = layout.bound.max(cheapest.bound);
        Ok(Some(layout))
    }

    /// One flag a decision, from one a tree segment.
    fn flags(&self, shared: &[bool]) -> Vec<bool> {
        let decisions = &self.forest.tree_segment;
        decisions.iter().map(|&s| shared[s as usize]).collect()
    }

    fn compatible(&mut self, tree: &Tree, weights: &Weights, options: &Options) -> Result<Layout> {
        let forest = &self.forest;
        self.keys.reserve(forest.len());
        let best = if options.counts {
            None
        } else {
            exact::exact(forest, weights, &mut self.tables)?
        };
        let best = best.filter(|best| best.optimal);
        // The best of all layouts is the answer of every search that meets it.
        if let Some(best) = best
            .as_ref()
            .filter(|best| family::is_member(forest, &best.chosen))
        {
            return Ok(self.proven(tree, weights, best));
        }
        let target = best
            .as_ref()
            .map(|best| self.keys.hash(&bits::words(&best.chosen)));
        self.arena.reset(forest.len());
        let keys = &self.keys;
        let members = family::family(forest, keys, &mut self.arena)?;
        let (search, points) = Search::new(
            forest,
            weights,
            keys,
            &mut self.arena,
            &members,
            options.budget,
            target,
        );
        let found = search.run(points)?;
        let words = self.arena.words(found.incumbent.set);
        let chosen: Vec<bool> = (0..forest.len()).map(|i| bits::has(words, i)).collect();
        let mut layout = finish(tree, forest, weights, &chosen);
        if let Some(best) = best {
            layout.bound = best.score.work;
            layout.optimal = chosen == best.chosen;
        }
        if options.counts {
            layout.labels = family::labels(forest, &chosen, &members, &self.arena, keys);
            layout.mandatory_candidates = members.len();
            layout.refinement_work = found.work;
            layout.evaluated_refinements = found.evaluated;
            layout.stop = found.stop;
        }
        Ok(layout)
    }
}

fn check(tree: &Tree) -> Result<()> {
    if tree.terminal.is_empty() {
        return Err(Error::input(
            "the tree has no rows: a layout needs at least one",
        ));
    }
    match tree
        .terminal
        .iter()
        .position(|&t| t as usize >= tree.parent.len())
    {
        Some(row) => Err(Error::input(format!(
            "row {row} is empty: a layout needs at least one token in each row"
        ))),
        None => Ok(()),
    }
}

/// Measures and scores a choice of decisions.
fn finish(tree: &Tree, forest: &Forest, weights: &Weights, chosen: &[bool]) -> Layout {
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
