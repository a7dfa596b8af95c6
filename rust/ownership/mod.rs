//! Ownership of chunks to context-parallel ranks.

mod contiguous;
mod pairs;
mod profiled;
mod reference;
mod settings;
#[cfg(test)]
mod tests;
mod time;

use crate::error::{Error, Result};
use crate::fields::{Table, result};
use crate::segments::Segments;

use pairs::ChunkPairs;
use reference::Search;

pub use profiled::ProfiledWork;
pub use settings::{OwnershipSettings, StageWork, WorkloadProfile};

/// Ranks that an ownership may have.
pub const MOST_RANKS: usize = crate::layout::MOST_RANKS as usize;

result! {
/// The owners of a pack's chunks. K chunks, C ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ownership as "Ownership" {
    /// Context-parallel ranks.
    pub ranks: usize,
    /// Tokens of the pack.
    pub tokens: i64,
    /// Chunk size in tokens; the last chunk may be shorter. 0 for a pack without tokens.
    pub chunk: i64,
    /// Owner of each chunk.
    pub owners: Vec<u32>,
    /// Fetch stage of each chunk.
    pub stages: Vec<u32>,
    /// The contiguous start of the search.
    pub contiguous: Vec<u32>,
    /// Tokens on each rank.
    pub rank_tokens: Vec<i64>,
    /// The slowest rank's forward + backward milliseconds (query flops with a profile).
    pub score: f64,
    /// A lower bound of any ownership of these chunks; `None` where a cost is negative.
    pub bound: Option<f64>,
    /// Milliseconds per rank; empty with a profile.
    pub forward_ms: Vec<f64>,
    /// Milliseconds per rank; empty with a profile.
    pub backward_ms: Vec<f64>,
    /// With a profile: the work that decided.
    pub work: Option<ProfiledWork>,
}

python {
    /// Packed token ranges that a rank owns, [n, 2], in order, neighbours joined.
    fn ranges<'py>(&self, py: Python<'py>, rank: &Bound<'py, PyAny>) -> PyResult<Object<'py>> {
        self.ranges_of(index("rank", rank, self.ranks)? as u32).give(py)?.call_method1("reshape", (-1, 2))
    }

    /// The ownership of chunks of `chunk` tokens by these ranks, of a pack.
    #[staticmethod]
    fn from_owners(
        packing: &crate::pack::Packing,
        cp: &Bound<'_, PyAny>,
        chunk: &Bound<'_, PyAny>,
        owners: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (cp, chunk) = (ranks(cp)?, usize::take("chunk", chunk)? as i64);
        let owners = picked("owners", owners, cp)?;
        let tokens = packing.segments.tokens();
        if chunk == 0 {
            return Err(refused("chunk is 0: it must be at least 1"));
        }
        let chunks = settings::ceil_div(tokens, chunk);
        if owners.len() as i64 != chunks {
            let message = format!(
                "owners has {} entries for {chunks} chunks of {chunk} tokens: give one each",
                owners.len()
            );
            return Err(refused(message));
        }
        let mut made = Self { ranks: cp, tokens, chunk, owners, ..Self::default() };
        made.rank_tokens = vec![0; cp];
        for (i, &owner) in made.owners.iter().enumerate() {
            let length = made.chunk_start(i + 1) - made.chunk_start(i);
            made.rank_tokens[owner as usize] += length;
        }
        Ok(made)
    }
}
}

impl Ownership {
    fn chunk_start(&self, i: usize) -> i64 {
        (i as i64).saturating_mul(self.chunk).min(self.tokens)
    }

    /// Starts and ends of the packed token ranges that a rank owns, neighbours joined.
    #[must_use]
    pub fn ranges_of(&self, rank: u32) -> Vec<i64> {
        let mut edges = Vec::new();
        let mut mine = false;
        for (i, &owner) in self.owners.iter().enumerate() {
            if (owner == rank) != mine {
                mine = !mine;
                edges.push(self.chunk_start(i));
            }
        }
        if mine {
            edges.push(self.tokens);
        }
        edges
    }
}

/// Memory that ownerships reuse from call to call.
#[derive(Debug, Default)]
pub struct Workspace {
    pairs: ChunkPairs,
    sums: Vec<f64>,
    start: Vec<u32>,
    search: Search,
}

/// Cuts the chunks of the workspace's pairs into one range a rank, in its `start`; returns whether
/// the local search may move them.
pub type Method = fn(&mut Workspace, usize, &OwnershipSettings) -> bool;

/// Methods of ownership by name, the default first; each is a file.
pub const METHODS: [(&str, Method); 1] = [("reference", contiguous::balance)];

/// [`own_by`] the default method.
pub fn own(
    segments: &Segments,
    ranks: usize,
    settings: &OwnershipSettings,
    workspace: &mut Workspace,
) -> Result<Ownership> {
    own_by(METHODS[0].1, segments, ranks, settings, workspace)
}

/// Refuses a number of ranks that no ownership has.
pub fn check_ranks(ranks: usize) -> Result<()> {
    if ranks == 0 || ranks > MOST_RANKS {
        return Err(Error::input(format!(
            "cp is {ranks}: it must be from 1 to {MOST_RANKS}"
        )));
    }
    Ok(())
}

/// Assigns the chunks of a pack to `ranks` ranks, each a contiguous range but for a
/// challenger of a workload profile.
///
/// The reference method is exactly the reference planner's: contiguous start, fetch stages, local
/// search.
pub fn own_by(
    method: Method,
    segments: &Segments,
    ranks: usize,
    settings: &OwnershipSettings,
    workspace: &mut Workspace,
) -> Result<Ownership> {
    debug_assert_eq!(settings.check().and_then(|()| check_ranks(ranks)), Ok(()));
    let tokens = segments.tokens();
    if tokens == 0 {
        return Ok(without_chunks(ranks, settings));
    }
    let chunk = settings.chunk_size(tokens, ranks);
    workspace.pairs.build(segments, chunk)?;
    let movable = method(workspace, ranks, settings);
    let Workspace {
        pairs,
        start,
        search,
        ..
    } = workspace;
    let stages = search.run(start, pairs, settings, movable)?;
    let chunks = pairs.len();
    search.evaluator.set_stages(stages, chunks);
    let mut made = Ownership {
        ranks,
        tokens,
        chunk,
        stages: part_of_each(&search.evaluator.bounds),
        contiguous: part_of_each(start),
        rank_tokens: vec![0; ranks],
        ..Ownership::default()
    };
    let best = &search.best;
    if let Some(profile) = &settings.profile {
        let problem = profiled::Problem {
            segments,
            chunk,
            chunks,
            ranks,
            stages,
            profile,
        };
        let (spans, work) = problem.choose(&best.cuts)?;
        made.owners = profiled::owners(&spans).collect();
        for span in spans {
            made.rank_tokens[span.rank as usize] += pairs.span_tokens(span.low, span.high);
        }
        made.score = work.query_flops as f64;
        made.bound = Some(profiled_bound(profile, pairs, ranks));
        made.work = Some(work);
    } else {
        made.owners = part_of_each(&best.cuts);
        for (tokens, cut) in made.rank_tokens.iter_mut().zip(best.cuts.windows(2)) {
            if cut[0] < cut[1] {
                *tokens = pairs.span_tokens(cut[0], cut[1]);
            }
        }
        made.score = best.score;
        made.bound = time_bound(settings, pairs, ranks);
        made.forward_ms.clone_from(&best.forward);
        made.backward_ms.clone_from(&best.backward);
    }
    Ok(made)
}

result! {
    /// Forward milliseconds of an ownership taken apart: of C ranks and their fetch stages.
    pub struct StageTimes as "StageTimes" {
        /// Of the keys that a rank owns, [C].
        pub local: Vec<f64>,
        /// Of the keys that it fetches, [C, stages].
        pub compute: Table<f64>,
        /// Of fetching them, [C, stages].
        pub exchange: Table<f64>,
    }
}

/// Computes the parts of what [`own`] answers. With a workload profile: of the answer that the
/// profile challenges.
pub fn stage_times(
    segments: &Segments,
    ranks: usize,
    settings: &OwnershipSettings,
    workspace: &mut Workspace,
) -> Result<StageTimes> {
    let made = own(segments, ranks, settings, workspace)?;
    let parts = |stages: usize, times: &[f64]| {
        let width = 1 + 2 * stages;
        let table = |from| {
            let of = |rank: &'_ [f64]| {
                rank.iter()
                    .skip(from)
                    .step_by(2)
                    .copied()
                    .collect::<Vec<_>>()
            };
            (
                times.chunks_exact(width).flat_map(of).collect(),
                [ranks, stages],
            )
        };
        StageTimes {
            local: times.iter().step_by(width).copied().collect(),
            compute: table(1),
            exchange: table(2),
        }
    };
    if made.owners.is_empty() {
        return Ok(parts(0, &vec![0.0; ranks]));
    }
    let search = &mut workspace.search;
    let stages = search.evaluator.bounds.len() - 1;
    let times = search
        .evaluator
        .stage_times(&search.best.cuts, &workspace.pairs, settings);
    Ok(parts(stages, &times))
}

/// A pack of padding alone: all zeros.
fn without_chunks(ranks: usize, settings: &OwnershipSettings) -> Ownership {
    let zeros = || vec![0.0; ranks];
    let (forward_ms, backward_ms, work) = if settings.profile.is_some() {
        let work = ProfiledWork {
            tile_pairs: vec![0; ranks],
            key_tokens: vec![0; ranks],
            sent_tokens: vec![0; ranks],
            received_tokens: vec![0; ranks],
            ..ProfiledWork::default()
        };
        (Vec::new(), Vec::new(), Some(work))
    } else {
        (zeros(), zeros(), None)
    };
    Ownership {
        ranks,
        rank_tokens: vec![0; ranks],
        bound: Some(0.0),
        forward_ms,
        backward_ms,
        work,
        ..Ownership::default()
    }
}

/// The part that holds each chunk: part `p` is `cuts[p]..cuts[p + 1]`.
fn part_of_each(cuts: &[u32]) -> Vec<u32> {
    let mut parts = Vec::with_capacity(cuts[cuts.len() - 1] as usize);
    for (part, &end) in cuts[1..].iter().enumerate() {
        parts.resize(end as usize, part as u32);
    }
    parts
}

/// A time that the slowest rank needs under any ownership of the chunks: an even share of the
/// pairs at the cheaper of local and remote, of the merges and of the owned tokens, or the
/// heaviest chunk alone, and one local stage.
fn time_bound(settings: &OwnershipSettings, pairs: &ChunkPairs, ranks: usize) -> Option<f64> {
    if !settings.monotone() {
        return None;
    }
    let local = settings.local_pair_ms + settings.local_backward_pair_ms;
    let remote = settings.remote_pair_ms + settings.remote_backward_pair_ms;
    let pair_ms = local.min(remote);
    let token_ms = 2.0 * settings.merge_token_ms + settings.owned_token_ms;
    let work = |pairs: i64, tokens: i64| pairs as f64 * pair_ms + tokens as f64 * token_ms;
    let chunks = pairs.len();
    let share = work(pairs.weight_sums[chunks], pairs.tokens) / ranks as f64;
    let heaviest = (0..chunks)
        .map(|i| work(pairs.weights[i], pairs.length(i)))
        .fold(share, f64::max);
    let stage = 2.0 * settings.stage_overhead_ms + 4.0 * settings.interval_ms;
    // The sums are rounded in another order than the score's.
    Some((stage + heaviest) * (1.0 - 1e-12))
}

/// Query flops that some rank needs: an even share of the tokens, or one whole chunk.
fn profiled_bound(profile: &WorkloadProfile, pairs: &ChunkPairs, ranks: usize) -> f64 {
    let share = settings::ceil_div(pairs.tokens, ranks as i64);
    let tokens = share.max(pairs.length(0));
    let rate = profile.stages.iter().map(|stage| stage.query_flops).max();
    (i128::from(tokens) * i128::from(rate.unwrap_or(0))) as f64
}
