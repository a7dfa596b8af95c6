//! Bounds of any ownership: no search, one pass over the chunks.

use super::pairs::ChunkPairs;
use super::settings::{OwnershipSettings, WorkloadProfile, ceil_div};

/// A time that the slowest rank needs under any ownership of the chunks with at most `most` tokens
/// on a rank: one local stage, and an even share of all work or the heaviest chunk alone; none where
/// a cost is negative.
///
/// All work is the pairs, at the cheaper of local and remote, the merges and the owned tokens. A
/// limit adds what it keeps from being local: `n` tokens have at most `n (n + 1) / 2` pairs of their
/// own, and of the chunks that attend one chunk only `most` tokens can be where that is.
pub(super) fn time_bound(
    settings: &OwnershipSettings,
    pairs: &ChunkPairs,
    ranks: usize,
    most: i64,
) -> Option<f64> {
    if !settings.monotone() {
        return None;
    }
    let local = settings.local_pair_ms + settings.local_backward_pair_ms;
    let remote = settings.remote_pair_ms + settings.remote_backward_pair_ms;
    let pair_ms = local.min(remote);
    let token_ms = 2.0 * settings.merge_token_ms + settings.owned_token_ms;
    let work = |pairs: i64, tokens: i64| pairs as f64 * pair_ms + tokens as f64 * token_ms;
    let (chunks, all) = (pairs.len(), pairs.weight_sums[pairs.len()]);
    let heaviest = (0..chunks)
        .map(|i| work(pairs.weights[i], pairs.length(i)))
        .fold(0.0, f64::max);
    let own = i128::from(pairs.tokens) * (i128::from(most) + 1) / 2;
    let apart = (i128::from(all) - own).max(0) as f64 * (remote - local).max(0.0);
    let mut together = vec![0; chunks];
    for i in 0..chunks {
        let first = pairs.pack(i).next().map_or(i, |run| run.low as usize);
        together[first] += pairs.length(i);
    }
    let away: i64 = together.iter().map(|tokens| (tokens - most).max(0)).sum();
    let stage = 2.0 * settings.stage_overhead_ms + 4.0 * settings.interval_ms;
    let fetching = ceil_div(away, most.max(1)) as f64 * (stage + 2.0 * settings.remote_host_ms);
    let merges = away as f64 * 2.0 * settings.merge_token_ms;
    let share = (work(all, pairs.tokens) + apart + merges + fetching) / ranks as f64;
    // The sums are rounded in another order than the score's.
    Some((stage + share.max(heaviest)) * (1.0 - 1e-12))
}

/// Query flops that some rank needs: an even share of the tokens, or one whole chunk.
pub(super) fn profiled_bound(profile: &WorkloadProfile, pairs: &ChunkPairs, ranks: usize) -> f64 {
    let share = ceil_div(pairs.tokens, ranks as i64);
    let tokens = share.max(pairs.length(0));
    let rate = profile.stages.iter().map(|stage| stage.query_flops).max();
    (i128::from(tokens) * i128::from(rate.unwrap_or(0))) as f64
}
