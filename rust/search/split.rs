//! Splits of a wave into several forwards: orders and cuts the requests, and prices the parts.
//!
//! All graphs of a split wave stay alive together, so a split is priced by everything retained
//! plus the largest transient share.

use crate::error::{Error, Result};
use crate::fields::result;
use crate::segments::NONE;

/// Bytes times the safety factor: one float64 product, truncated.
#[must_use]
pub fn scaled(bytes: i64, safety: f64) -> i64 {
    (bytes as f64 * safety) as i64
}

result! {
/// Memory of one forward of a split, in bytes on the busiest rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost as "Cost" {
    /// Its own peak, with the factor.
    pub required: i64,
    /// Bytes that stay until its backward, with the factor.
    pub retained: i64,
    /// Outputs and the retained floor, before the factor.
    pub checkpoint_retained: i64,
    /// The floors' workspace, before the factor.
    pub checkpoint_workspace: i64,
    /// Gradient of the checkpointed inputs, before the factor.
    pub input_gradient: i64,
    /// Bytes that the input gradient added to `required`.
    pub peak_increment: i64,
    /// Growth of the expert-parallel buffer, before the factor.
    pub hybridep_growth: i64,
    /// Adapter gradients, before the factor.
    pub adapter_gradient: i64,
    @core
    /// The adapters that they belong to: equal keys share one allocation.
    pub adapter_slots: u64,
}
}

impl Cost {
    /// Freed when the forward returns.
    #[must_use]
    pub fn ephemeral(&self) -> i64 {
        self.required.saturating_sub(self.retained)
    }
}

/// Requests in the order of the tree, so that contiguous cuts keep sharing inside a chunk.
///
/// `packs` gives, per pack, the requests' indices and the terminal tree segment of each;
/// requests of no pack follow in input order.
#[must_use]
pub fn order(requests: usize, packs: &[(&[u32], &[u32])]) -> Vec<u32> {
    let mut ordered = Vec::with_capacity(requests);
    let mut seen = vec![false; requests];
    let mut keyed: Vec<(u32, u32)> = Vec::new();
    for (members, terminals) in packs {
        keyed.clear();
        keyed.extend(
            members
                .iter()
                .zip(*terminals)
                .filter(|&(_, &terminal)| terminal != NONE)
                .map(|(&member, &terminal)| (terminal, member)),
        );
        keyed.sort_by_key(|&(terminal, _)| terminal);
        for &(_, member) in &keyed {
            seen[member as usize] = true;
            ordered.push(member);
        }
    }
    ordered.extend((0..requests as u32).filter(|&i| !seen[i as usize]));
    ordered
}

/// Cuts ordered requests into `count` runs of about equal tokens. Returns the runs' ends.
///
/// A run closes at its share of the total, or when the requests left are just enough for the
/// runs left; the last run takes the rest.
pub fn cut(tokens: &[i64], count: usize) -> Result<Vec<usize>> {
    let count = count.clamp(1, tokens.len().max(1));
    let total: i128 = tokens.iter().map(|&n| i128::from(n)).sum();
    if total > i128::from(i64::MAX) {
        return Err(Error::Overflow("the tokens of a wave"));
    }
    let mut ends = Vec::with_capacity(count);
    let mut cumulative = 0_i128;
    for (i, &mass) in tokens.iter().enumerate() {
        cumulative += i128::from(mass);
        let open = count - ends.len() - 1;
        let left = tokens.len() - i - 1;
        let full = cumulative * count as i128 >= total * (ends.len() as i128 + 1);
        if open > 0 && (full || left <= open) {
            ends.push(i + 1);
        }
    }
    if ends.last().copied() != Some(tokens.len()) && !tokens.is_empty() {
        ends.push(tokens.len());
    }
    Ok(ends)
}

/// The numbers of parts to try for `requests` requests: 2, 4, 8, ... up to one request each.
#[must_use]
pub fn counts(requests: usize) -> Vec<usize> {
    if requests < 2 {
        return Vec::new();
    }
    let doubled = std::iter::successors(Some(2_usize), |count| count.checked_mul(2));
    let mut counts: Vec<usize> = doubled.take_while(|&count| count < requests).collect();
    counts.push(requests);
    counts
}

/// Bytes that a split needs while all its graphs are alive, with the safety factor.
///
/// The larger of two sums: everything retained and the largest transient share; or, with
/// gradients, every checkpointed extent with its input gradient and one workspace. The largest
/// buffer growth counts once in either. A sum past 63 bits is the largest number.
#[must_use]
pub fn required(costs: &[Cost], safety: f64) -> i64 {
    let growth = costs.iter().map(|c| c.hybridep_growth).max().unwrap_or(0);
    let retained = sum(costs.iter().map(|c| c.retained));
    let transient = costs
        .iter()
        .map(|c| {
            c.ephemeral()
                .saturating_sub(scaled(c.hybridep_growth, safety))
        })
        .max()
        .unwrap_or(0);
    let forward = sum([retained, transient, scaled(growth, safety)]);
    if costs.iter().all(|c| c.input_gradient == 0) {
        return forward;
    }
    let mut adapters = costs.iter().filter(|c| c.adapter_gradient != 0);
    let shared = match adapters.next() {
        None => true,
        Some(first) => adapters.all(|c| c.adapter_slots == first.adapter_slots),
    };
    let gradients = costs.iter().map(|c| c.adapter_gradient);
    let adapters: i64 = if shared {
        gradients.max().unwrap_or(0)
    } else {
        sum(gradients)
    };
    let extents = sum(costs
        .iter()
        .flat_map(|c| [c.checkpoint_retained, c.input_gradient]));
    let workspace = costs
        .iter()
        .map(|c| c.checkpoint_workspace)
        .max()
        .unwrap_or(0);
    forward.max(scaled(sum([extents, workspace, adapters, growth]), safety))
}

/// A sum that stays at the largest number instead of wrapping.
fn sum(bytes: impl IntoIterator<Item = i64>) -> i64 {
    bytes.into_iter().fold(0, i64::saturating_add)
}

/// Order of execution: the largest forward transient first, so that it runs while the least is
/// retained; ties by chunk.
#[must_use]
pub fn execution_order(costs: &[Cost]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|&i| {
        std::cmp::Reverse(costs[i].ephemeral().saturating_sub(costs[i].peak_increment))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_balanced_and_never_empty() {
        assert_eq!(cut(&[1, 1, 1, 1], 2).unwrap(), [2, 4]);
        assert_eq!(cut(&[100, 1, 1, 1], 4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(cut(&[1, 1, 100], 2).unwrap(), [2, 3]);
        assert_eq!(cut(&[5], 8).unwrap(), [1]);
        assert_eq!(counts(1), [0_usize; 0]);
        assert_eq!(counts(2), [2]);
        assert_eq!(counts(7), [2, 4, 7]);
    }

    #[test]
    fn requests_follow_their_tree_and_idle_ones_come_last() {
        let packs: [(&[u32], &[u32]); 2] = [(&[0, 3, 4], &[5, 1, 5]), (&[2], &[0])];
        assert_eq!(order(5, &packs), [3, 0, 4, 2, 1]);
    }

    #[test]
    fn growth_and_shared_adapters_count_once() {
        let cost = Cost {
            required: 1000,
            retained: 100,
            hybridep_growth: 100,
            adapter_gradient: 50,
            input_gradient: 10,
            checkpoint_retained: 80,
            checkpoint_workspace: 30,
            ..Cost::default()
        };
        // 2 x 100 retained, 900 transient without its growth of 110, the growth once.
        assert_eq!(required(&[cost, cost], 1.1), 200 + 790 + 110);
        let heavy = |slots| Cost {
            required: 0,
            retained: 0,
            hybridep_growth: 0,
            adapter_slots: slots,
            ..cost
        };
        assert_eq!(required(&[heavy(0), heavy(0)], 1.1), scaled(260, 1.1));
        assert_eq!(required(&[heavy(0), heavy(1)], 1.1), scaled(310, 1.1));
    }
}
