//! Attempts at a wave that does not fit, by live prices: unsplit, then in 2, 4, 8, ... forwards.

use super::Engine;
use super::owned::clearly;
use super::plan::{ForwardPlan, Mode, Pricer, ROOM, Share};
use crate::error::Result;
use crate::fields::settings;
use crate::search::split::{self, Cost};
use crate::search::width::Strategy;

settings! {
    /// One split tried for a wave that does not fit.
    #[derive(Eq)]
    pub struct Attempt as "Attempt" {
        /// Forwards: 1 is unsplit.
        parts: usize;
        /// How layouts were chosen; "bound" where a lower bound already needs too much.
        kind: String;
        /// Bytes it needs.
        required: i64;
    }
}

/// A split that fits.
#[derive(Debug, Clone)]
pub(super) struct Split {
    /// Plans in order of execution.
    pub parts: Vec<ForwardPlan>,
    /// The request numbers of each part, counted within the wave's share.
    pub requests: Vec<Vec<u32>>,
    /// Bytes the split needs.
    pub required: i64,
    /// Bytes it needs where every part is shared evenly over the ranks.
    pub least: i64,
}

/// The refusal of a wave.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// The unsplit plan with everything shared.
    pub plan: ForwardPlan,
    /// Bytes of the last attempt.
    pub required: i64,
    /// All attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Splitting is switched off (expert parallelism).
    pub unsplittable: bool,
}

/// How the attempts ended.
pub(super) enum Fallback {
    /// An unsplit plan fits after all; the bytes that it needs shared evenly over the ranks.
    Whole(Box<ForwardPlan>, i64),
    /// A split fits.
    Split(Split),
    /// Nothing fits.
    Refused(Box<Refusal>),
}

/// One split: its parts, their prices and what they need together.
struct Priced {
    parts: Vec<ForwardPlan>,
    costs: Vec<Cost>,
    required: i64,
}

impl Priced {
    fn milliseconds(&self) -> Option<f64> {
        self.parts.iter().map(ForwardPlan::milliseconds).sum()
    }
}

impl Pricer {
    /// Splits a share that fits in no unsplit `plan`, the last of which shares everything.
    pub(super) fn split(
        &mut self,
        share: &Share,
        available: i64,
        mut plan: ForwardPlan,
        mut attempts: Vec<Attempt>,
    ) -> Result<Fallback> {
        let mut required = plan.required();
        let split = self.engine.settings.split;
        if share.requests.len() > 1 && split {
            let order = order(share);
            for count in split::counts(order.len()) {
                match self.try_split(share, &order, count, available, &mut attempts)? {
                    Ok(fits) => return Ok(Fallback::Split(fits)),
                    Err(needed) => required = needed,
                }
            }
        }
        self.own_evenly(share, &mut plan)?;
        Ok(Fallback::Refused(Box::new(Refusal {
            plan,
            required,
            attempts,
            unsplittable: !split,
        })))
    }

    /// Tries one split; the bytes that it needs if it does not fit.
    fn try_split(
        &mut self,
        share: &Share,
        order: &[u32],
        count: usize,
        available: i64,
        attempts: &mut Vec<Attempt>,
    ) -> Result<std::result::Result<Split, i64>> {
        let pool = &self.engine.pool;
        let request = |local: u32| share.requests[local as usize];
        let tokens: Vec<i64> = (order.iter())
            .map(|&local| pool.lengths[request(local) as usize])
            .collect();
        let ends = split::cut(&tokens, count)?;
        let mut chunks: Vec<&[u32]> = Vec::with_capacity(ends.len());
        let mut start = 0;
        for &end in &ends {
            chunks.push(&order[start..end]);
            start = end;
        }
        let mut shares = Vec::with_capacity(chunks.len());
        let mut lower = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            let requests: Vec<u32> = chunk.iter().map(|&local| request(local)).collect();
            let mut part = Share::default();
            self.load(&requests, &mut part)?;
            lower.push(self.lower_cost(&part)?);
            shares.push(part);
        }
        let parts = chunks.len();
        let required = split::required(&lower, self.engine.program.safety());
        if required > available {
            attempts.push(Attempt {
                parts,
                kind: "bound".to_owned(),
                required,
            });
            return Ok(Err(required));
        }
        let mut last = required;
        let mut best: Option<(Priced, i64)> = None;
        for &mode in self.engine.split_modes() {
            let priced = self.parts(&shares, mode)?;
            last = priced.required;
            attempts.push(Attempt {
                parts,
                kind: mode.name().to_owned(),
                required: last,
            });
            let mut less = shares.iter().zip(&priced.parts);
            let alike = !self.engine.times_layouts() || !less.any(|(s, plan)| s.shares_less(plan));
            if last <= available {
                let owned = self.own_parts(&shares, priced, available)?;
                let faster =
                    |best: &(Priced, i64)| clearly(owned.milliseconds(), best.0.milliseconds());
                if best.as_ref().is_none_or(faster) {
                    best = Some((owned, last));
                }
            }
            if best.is_some() && (alike || mode != Mode::Optimal) {
                break;
            }
        }
        Ok(match best {
            Some((owned, least)) => Ok(arrange(owned, &chunks, least)),
            None => Err(last),
        })
    }

    /// Owns the parts of a split that fits, one after another, within what the others leave.
    fn own_parts(&mut self, shares: &[Share], split: Priced, available: i64) -> Result<Priced> {
        let Priced {
            mut parts,
            mut costs,
            ..
        } = split;
        let safety = self.engine.program.safety();
        for (i, share) in shares.iter().enumerate() {
            let fits = |plan: &ForwardPlan| {
                let mut with = costs.clone();
                with[i] = plan.cost;
                split::required(&with, safety) <= available
            };
            self.own(share, &mut parts[i], None, true, &fits)?;
            costs[i] = parts[i].cost;
        }
        let required = split::required(&costs, safety);
        Ok(Priced {
            parts,
            costs,
            required,
        })
    }

    fn parts(&mut self, shares: &[Share], mode: Mode) -> Result<Priced> {
        let mut parts = Vec::with_capacity(shares.len());
        for share in shares {
            parts.push(self.plan(share, mode, ROOM)?);
        }
        let costs: Vec<Cost> = parts.iter().map(|plan| plan.cost).collect();
        let required = split::required(&costs, self.engine.program.safety());
        Ok(Priced {
            parts,
            costs,
            required,
        })
    }
}

/// Requests of the share (numbered within it) so that sharing stays inside chunks.
fn order(share: &Share) -> Vec<u32> {
    let packs: Vec<(&[u32], &[u32])> = share
        .trees
        .iter()
        .enumerate()
        .map(|(g, tree)| (share.packs.local(g), tree.terminal.as_slice()))
        .collect();
    split::order(share.requests.len(), &packs)
}

/// Brings a split's parts into their order of execution.
fn arrange(priced: Priced, chunks: &[&[u32]], least: i64) -> Split {
    let order = split::execution_order(&priced.costs);
    let mut parts: Vec<Option<ForwardPlan>> = priced.parts.into_iter().map(Some).collect();
    Split {
        parts: order.iter().filter_map(|&i| parts[i].take()).collect(),
        requests: order.iter().map(|&i| chunks[i].to_vec()).collect(),
        required: priced.required,
        least,
    }
}

impl Engine {
    /// Layout modes of an unsplit plan, in the order tried.
    pub(super) fn unsplit_modes(&self) -> &'static [Mode] {
        match self.strategy() {
            Strategy::Reference => &[Mode::Optimal, Mode::Full],
            Strategy::Best => &[Mode::Optimal, Mode::Full, Mode::Fitting, Mode::Reference],
        }
    }

    /// Layout modes of a split, in the order tried.
    fn split_modes(&self) -> &'static [Mode] {
        match self.strategy() {
            Strategy::Reference => &[Mode::Optimal, Mode::Full],
            Strategy::Best => &[Mode::Optimal, Mode::Full, Mode::Reference],
        }
    }
}
