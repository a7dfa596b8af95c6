//! Which shared prefixes are stored once: score, candidates, search, materialisation.
//!
//! A *decision* is a tree segment with two or more rows. A *layout* is a set of decisions: a
//! chosen one is stored once, from the end of its nearest chosen ancestor to its own end, and
//! each row replays what follows its deepest chosen segment.

mod beam;
mod bits;
mod family;
mod forest;
mod pack;
mod scoring;
#[cfg(test)]
mod trees;
mod view;

use beam::Search;
use bits::{Arena, Keys};
use scoring::Weights;

pub use family::Label;
pub use forest::{Forest, Measures};
pub use pack::{Shape, pack, shape};
pub use scoring::{Score, Scoring, Version};

use crate::error::{Error, Result};
use crate::interrupt::Ticker;
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
    /// The policies of the mandatory family that give this layout (compatible).
    pub labels: Vec<Label>,
    /// Distinct layouts of the mandatory family (compatible).
    pub mandatory_candidates: usize,
    /// Proposals spent (compatible).
    pub refinement_work: usize,
    /// Proposals that were new layouts (compatible).
    pub evaluated_refinements: usize,
    /// Why the search ended (compatible).
    pub stop: Stop,
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
            Method::Exact => Err(Error::Internal("this layout method is not built in")),
        }
    }

    /// The cheapest layout with at most `most_tokens` packed tokens; `None` when even full
    /// sharing has more.
    pub fn fits(
        &mut self,
        _tree: &Tree,
        _scoring: &Scoring,
        _most_tokens: i64,
    ) -> Result<Option<Layout>> {
        Err(Error::Internal("not built in"))
    }

    fn compatible(&mut self, tree: &Tree, weights: &Weights, options: &Options) -> Result<Layout> {
        let mut ticker = Ticker::new();
        self.keys.reserve(self.forest.len());
        self.arena.reset(self.forest.len());
        let (forest, keys) = (&self.forest, &self.keys);
        let members = family::family(forest, keys, &mut self.arena, &mut ticker)?;
        let (search, points) = Search::new(
            forest,
            weights,
            keys,
            &mut self.arena,
            &members,
            options.budget,
            None,
        );
        let found = search.run(points, &mut ticker)?;
        let words = self.arena.words(found.incumbent.set);
        let chosen: Vec<bool> = (0..forest.len()).map(|i| bits::has(words, i)).collect();
        Ok(Layout {
            labels: family::labels(forest, &chosen, &members, &self.arena, keys),
            mandatory_candidates: members.len(),
            refinement_work: found.work,
            evaluated_refinements: found.evaluated,
            stop: found.stop,
            ..finish(tree, forest, weights, &chosen)
        })
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

#[cfg(test)]
mod tests {
    use super::trees::{Dice, tree};
    use super::*;
    use crate::segments::NONE;

    fn chosen(tree: &Tree, forest: &Forest, dice: &mut Dice) -> (Vec<bool>, Vec<bool>) {
        let flags: Vec<bool> = (0..forest.len()).map(|_| dice.roll(2) == 1).collect();
        let mut shared = vec![false; tree.parent.len()];
        for (i, &flag) in flags.iter().enumerate() {
            shared[forest.tree_segment[i] as usize] = flag;
        }
        (flags, shared)
    }

    #[test]
    fn measures_are_those_of_the_packed_row() {
        let mut dice = Dice(7);
        for round in 0..400 {
            let rows = dice.rows(1 + round % 17, 5, 3, 90);
            let tree = tree(&rows);
            let forest = Forest::new(&tree, 64).unwrap();
            let (flags, shared) = chosen(&tree, &forest, &mut dice);
            let m = forest.measure(&flags);
            let packing = pack(&tree, &shared).unwrap();
            let s = &packing.segments;
            let mut depth = vec![0_i64; s.len()];
            for i in 0..s.len() {
                depth[i] = 1 + s.parent(i).map_or(0, |p| depth[p]);
            }
            assert_eq!(m.tokens, s.tokens());
            assert_eq!(m.segments, s.len() as i64);
            assert_eq!(m.depth, depth.iter().copied().max().unwrap());
            let tiny = (0..s.len()).filter(|&i| s.length(i) < 64).count();
            assert_eq!(m.tiny, tiny as i64);
        }
    }

    #[test]
    fn a_packed_row_spells_every_row() {
        let mut dice = Dice(11);
        for round in 0..200 {
            let rows = dice.rows(1 + round % 13, 6, 2, 4);
            let tree = tree(&rows);
            let forest = Forest::new(&tree, 0).unwrap();
            let (_, shared) = chosen(&tree, &forest, &mut dice);
            let p = pack(&tree, &shared).unwrap();
            let mut spelled = vec![0_i64; rows.len()];
            for i in 0..p.segments.len() {
                let range = p.member_offsets[i] as usize..p.member_offsets[i + 1] as usize;
                let members = &p.members[range];
                assert!(!members.is_empty() && members.is_sorted());
                for &row in members {
                    assert_eq!(spelled[row as usize], p.row_start[i]);
                    spelled[row as usize] += p.segments.length(i);
                }
                let parent = p.segments.parents[i];
                assert!(parent == NONE || (parent as usize) < i);
            }
            let lengths: Vec<i64> = rows.iter().map(|r| r.len() as i64).collect();
            assert_eq!(spelled, lengths);
        }
    }

    #[test]
    fn refuses_what_has_no_layout() {
        let scoring = Scoring {
            version: Version::One,
            coefficients: [0; 10],
            tp: 1,
            cp: 1,
            layers: 1,
            gdn_layers: 0,
            uses_gdn: false,
        };
        let empty = Tree::default();
        assert!(choose(&empty, &scoring, Method::Full).is_err());
        let mut one = tree(&[vec![1], vec![1, 2]]);
        assert!(choose(&one, &scoring, Method::Full).is_ok());
        one.terminal.push(NONE);
        assert!(choose(&one, &scoring, Method::Full).is_err());
        assert!(shape(&one, &[true]).is_err());
    }
}
