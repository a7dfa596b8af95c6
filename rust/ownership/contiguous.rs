//! The contiguous start: cuts nearest to equal shares of the chunks' weight.

use super::{OwnershipSettings, Workspace};

/// The reference method's start: ranks balanced by pairs and owned tokens; the search moves it.
pub(super) fn balance(work: &mut Workspace, ranks: usize, settings: &OwnershipSettings) {
    let pair_ms = settings.local_pair_ms + settings.local_backward_pair_ms;
    let mut sum = 0.0;
    work.sums.clear();
    work.sums.push(sum);
    for (i, &weight) in work.pairs.weights.iter().enumerate() {
        let tokens = work.pairs.length(i) as f64;
        sum += weight as f64 * pair_ms + tokens * settings.owned_token_ms;
        work.sums.push(sum);
    }
    let rising = pair_ms >= 0.0 && settings.owned_token_ms >= 0.0;
    cut(&work.sums, rising, ranks, &mut work.start);
}

/// Cuts of the chunks over `ranks`: rank `r` owns `cuts[r]..cuts[r + 1]`.
///
/// `sums` holds the K + 1 prefix sums of the weights; `rising` says that they never fall. A cut
/// leaves a chunk for every later rank and stays where it is when it has no room.
pub(super) fn cut(sums: &[f64], rising: bool, ranks: usize, cuts: &mut Vec<u32>) {
    let chunks = sums.len() - 1;
    let total = sums[chunks];
    cuts.clear();
    cuts.push(0);
    let mut previous = 0;
    for s in 1..ranks {
        let low = previous + 1;
        if low + (ranks - s) <= chunks {
            let high = chunks - (ranks - s);
            previous = if total > 0.0 {
                let target = total * s as f64 / ranks as f64;
                nearest(low..=high, target, rising, |i| sums[i])
            } else {
                let target = chunks as f64 * s as f64 / ranks as f64;
                nearest(low..=high, target, true, |i| i as f64)
            };
        }
        cuts.push(previous as u32);
    }
    cuts.push(chunks as u32);
}

/// The first place whose value is nearest to the target. Rising values only move away once
/// they have passed it.
fn nearest(
    places: std::ops::RangeInclusive<usize>,
    target: f64,
    rising: bool,
    value: impl Fn(usize) -> f64,
) -> usize {
    let (mut best, mut error) = (*places.start(), f64::INFINITY);
    for place in places {
        let value = value(place);
        let away = (value - target).abs();
        if away < error {
            (best, error) = (place, away);
        }
        if rising && value >= target {
            break;
        }
    }
    best
}
