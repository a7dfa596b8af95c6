//! Layouts choose the shared prefixes that are stored once: score, candidates, search, materialisation.
//!
//! A *decision* is a tree segment with two or more sequences. A *layout* is a set of decisions: a
//! chosen one is stored once, from the end of its nearest chosen ancestor to its own end, and
//! each sequence replays what follows its deepest chosen segment.

mod exact;
mod forest;
mod pack;
mod reference;
mod result;
mod scoring;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trees;

use result::finish;
use scoring::Weights;

pub use forest::{Forest, Measures};
pub use pack::{Shape, pack, shape};
pub use reference::Label;
pub use result::{Layout, Stop};
pub use scoring::{MOST_RANKS, Score, Scoring, Version};

use crate::error::{Error, Result};
use crate::tree::Tree;

/// A method of choosing a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// The best of all layouts under the score, proven where possible.
    #[default]
    Exact,
    /// The bounded search of the reference planner.
    Reference,
    /// Everything shared.
    Full,
    /// Nothing shared.
    None,
}

/// The methods by name; the first is the default.
pub const METHODS: [(&str, Method); 4] = [
    ("exact", Method::Exact),
    ("reference", Method::Reference),
    ("full", Method::Full),
    ("none", Method::None),
];

/// Proposals that the reference search may spend: the reference planner's budget.
pub const BUDGET: usize = 2_000;

/// Options of the choice and its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How.
    pub method: Method,
    /// Proposals of the reference search.
    pub budget: usize,
    /// Run the reference search to its end, for its counters; else it may stop as soon as
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
    tables: exact::Tables,
    reference: reference::Workspace,
}

/// Chooses a layout of `tree`. A tree without sequences, or with an empty sequence, is refused.
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
        let weights = scoring.weights();
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
            Method::Reference => self.reference(tree, &weights, options),
            Method::Exact => self.exact(tree, &weights),
        }
    }

    fn exact(&mut self, tree: &Tree, weights: &Weights) -> Result<Layout> {
        let best = exact::exact(&self.forest, weights, &mut self.tables)?;
        if let Some(best) = best.as_ref().filter(|best| best.optimal) {
            return Ok(self.proven(tree, weights, best));
        }
        // No proof: the reference search may know a better layout.
        let found = (self.reference).search(&self.forest, weights, BUDGET, None)?;
        let found = finish(tree, &self.forest, weights, &found.chosen);
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
        let weights = scoring.weights();
        let chosen = self.flags(&cheapest.shared);
        let best = exact::fits(
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

    /// Up to three layouts between full sharing and the cheapest, of growing tokens: what prices on
    /// tokens find.
    pub fn between(&mut self, tree: &Tree, scoring: &Scoring) -> Result<Vec<Layout>> {
        let weights = scoring.weights();
        let cheapest = self.choose(tree, scoring, &Options::default())?;
        let least = self.flags(&cheapest.shared);
        let full = vec![true; least.len()];
        let (forest, tables) = (&self.forest, &mut self.tables);
        let mut next =
            |under: &[bool], over: &[bool]| exact::between(forest, &weights, tables, (under, over));
        let mut found = Vec::new();
        if let Some(middle) = next(&full, &least)? {
            let (low, high) = (next(&full, &middle)?, next(&middle, &least)?);
            found.extend([low, Some(middle), high].into_iter().flatten());
        }
        let layout = |chosen: &Vec<bool>| Layout {
            bound: cheapest.bound,
            ..finish(tree, &self.forest, &weights, chosen)
        };
        Ok(found.iter().map(layout).collect())
    }

    /// One flag a decision, from one a tree segment.
    fn flags(&self, shared: &[bool]) -> Vec<bool> {
        let decisions = &self.forest.tree_segment;
        decisions.iter().map(|&s| shared[s as usize]).collect()
    }

    fn reference(&mut self, tree: &Tree, weights: &Weights, options: &Options) -> Result<Layout> {
        let forest = &self.forest;
        let best = if options.counts {
            None
        } else {
            exact::exact(forest, weights, &mut self.tables)?.filter(|best| best.optimal)
        };
        // The best of all layouts is the answer of every search that meets it.
        if let Some(best) =
            (best.as_ref()).filter(|best| reference::is_member(forest, &best.chosen))
        {
            return Ok(self.proven(tree, weights, best));
        }
        let target = best.as_ref().map(|best| best.chosen.as_slice());
        let found = (self.reference).search(forest, weights, options.budget, target)?;
        let mut layout = finish(tree, forest, weights, &found.chosen);
        if let Some(best) = best {
            layout.bound = best.score.work;
            layout.optimal = found.chosen == best.chosen;
        }
        if options.counts {
            layout.labels = self.reference.labels(forest, &found);
            layout.mandatory_candidates = found.mandatory();
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
            "the tree has no sequences: a layout needs at least one",
        ));
    }
    match tree
        .terminal
        .iter()
        .position(|&t| t as usize >= tree.parent.len())
    {
        Some(sequence) => Err(Error::input(format!(
            "sequence {sequence} is empty: a layout needs at least one token in each sequence"
        ))),
        None => Ok(()),
    }
}
