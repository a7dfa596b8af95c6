//! Ownership of chunks to context-parallel ranks.

mod bounds;
mod contiguous;
mod even_fold;
mod fastest;
mod pairs;
mod profiled;
mod reference;
mod settings;
mod spans;
#[cfg(test)]
mod tests;
mod time;

use crate::error::{Error, Result};
use crate::fields::{Table, result};
use crate::segments::Segments;

use bounds::time_bound;
use pairs::ChunkPairs;
use profiled::Span;
use reference::Search;
use time::Plan;

pub(crate) use fastest::proven;
pub use profiled::ProfiledWork;
pub use settings::{OwnershipSettings, StageWork, WorkloadProfile};

/// Ranks that an ownership may have.
pub const MOST_RANKS: usize = crate::layout::MOST_RANKS as usize;

result! {
/// The owners of a pack's chunks. K chunks, C ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ownership as "Ownership" {
    /// The method that made it; empty where the owners were given.
    pub method: String,
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
    /// A lower bound of any ownership of these chunks, by `fastest` of any with one range and no
    /// more than the tokens allowed on a rank; `None` where a cost is negative.
    pub bound: Option<f64>,
    /// No such ownership has a lower score.
    pub optimal: bool,
    /// Most ranges on a rank.
    pub most_ranges: i64,
    /// Most tokens on a rank.
    pub most_tokens: i64,
    /// Most tokens whose keys and values a rank fetches in one stage.
    pub fetched_tokens: i64,
    /// Milliseconds per rank; empty with a profile.
    pub forward_ms: Vec<f64>,
    /// Milliseconds per rank; empty with a profile.
    pub backward_ms: Vec<f64>,
    /// With a profile: the work that decided.
    pub work: Option<ProfiledWork>,
}

python {
    fn __repr__(&self) -> String {
        let (tokens, ranks, most) = (self.tokens, self.ranks, self.most_tokens);
        format!("Ownership({tokens} tokens on {ranks} ranks, at most {most}, {:.3} ms)", self.score)
    }

    /// Packed token ranges that a rank owns, [n, 2], in order, neighbours joined.
    fn ranges<'py>(&self, py: Python<'py>, rank: &Bound<'py, PyAny>) -> PyResult<Object<'py>> {
        self.ranges_of(index("rank", rank, self.ranks)? as u32).give(py)?.call_method1("reshape", (-1, 2))
    }

    /// The ownership of chunks of `chunk` tokens by these ranks, of a pack; timed with settings.
    #[staticmethod]
    #[pyo3(signature = (packing, cp, chunk, owners, settings=None))]
    fn from_owners(
        py: Python<'_>,
        packing: &crate::pack::Packing,
        cp: &Bound<'_, PyAny>,
        chunk: &Bound<'_, PyAny>,
        owners: &Bound<'_, PyAny>,
        settings: Option<&OwnershipSettings>,
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
        let settings = settings.filter(|_| tokens > 0).cloned();
        detached(py, || match settings {
            Some(settings) => timed(&packing.segments, cp, chunk, &owners, &settings),
            None => Ok(counted(String::new(), cp, tokens, chunk, owners)),
        })
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
    trial: Plan,
    tables: fastest::Tables,
    /// The reference's answer for the pack at hand.
    today: Option<Ownership>,
}

/// A pack to be owned, and how.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The pack.
    pub segments: &'a Segments,
    /// Context-parallel ranks.
    pub ranks: usize,
    /// Chunks, limits and costs.
    pub settings: &'a OwnershipSettings,
    /// Tokens that a rank may have at most, read by `fastest` alone.
    pub most_tokens: Option<i64>,
    /// Looks for a better answer than a quick one, and for a bound; read by `fastest` alone.
    pub prove: bool,
}

impl<'a> Asked<'a> {
    /// A pack to be owned without a limit of tokens, with a bound.
    #[must_use]
    pub fn new(segments: &'a Segments, ranks: usize, settings: &'a OwnershipSettings) -> Self {
        Self {
            segments,
            ranks,
            settings,
            most_tokens: None,
            prove: true,
        }
    }

    fn chunk(&self) -> i64 {
        self.settings.chunk_size(self.segments.tokens(), self.ranks)
    }

    fn chunks(&self) -> i64 {
        settings::ceil_div(self.segments.tokens(), self.chunk())
    }

    /// Tokens of the busiest rank where chunks are shared out evenly; no ownership has fewer. One
    /// rank alone with a chunk more than the others takes the last one, which may be shorter.
    #[must_use]
    pub fn even_tokens(&self) -> i64 {
        let (tokens, chunk, chunks) = (self.segments.tokens(), self.chunk(), self.chunks());
        let share = settings::ceil_div(chunks, self.ranks as i64);
        let full = share.saturating_mul(chunk).min(tokens);
        if share > 1 && chunks % self.ranks as i64 == 1 {
            return (tokens - (chunks - share) * chunk).max((share - 1) * chunk);
        }
        full
    }

    /// The ownership with an even share of contiguous chunks a rank, by formula: neither timed
    /// nor bounded. Its `fetched_tokens` are no less than what it fetches in the most stages.
    #[must_use]
    pub fn even(&self) -> Ownership {
        let tokens = self.segments.tokens();
        if tokens == 0 {
            return without_chunks(self.ranks, self.settings);
        }
        let (chunk, chunks) = (self.chunk(), self.chunks() as usize);
        let mut cuts = Vec::new();
        even_cuts(chunks, self.ranks, &mut cuts);
        let stages = reference::stage_limit(self.settings, chunks);
        let mut made = counted(
            "even".to_owned(),
            self.ranks,
            tokens,
            chunk,
            part_of_each(&cuts),
        );
        let below = chunks - (cuts[self.ranks] - cuts[self.ranks - 1]) as usize;
        made.fetched_tokens = below.min(chunks.div_ceil(stages)) as i64 * chunk;
        made
    }
}

/// Owns a pack whose pairs are in the workspace.
pub type Method = fn(&Asked<'_>, &mut Workspace) -> Result<Ownership>;

/// Methods of ownership by name, the default first; each is a file.
pub const METHODS: [(&str, Method); 3] = [
    ("reference", reference::own),
    ("fastest", fastest::own),
    ("even_fold", even_fold::own),
];

/// The fastest with one range a rank.
pub const FASTEST: Method = fastest::own;
/// An even share in at most two ranges a rank.
pub const EVEN_FOLD: Method = even_fold::own;
/// An even share in one range a rank, in the most stages, as [`Asked::even`] counts it.
pub const EVEN: Method = fastest::even;

/// [`own_by`] the default method.
pub fn own(
    segments: &Segments,
    ranks: usize,
    settings: &OwnershipSettings,
    workspace: &mut Workspace,
) -> Result<Ownership> {
    own_by(
        METHODS[0].1,
        &Asked::new(segments, ranks, settings),
        workspace,
    )
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

/// Assigns the chunks of a pack to ranks by a method.
pub fn own_by(method: Method, asked: &Asked<'_>, workspace: &mut Workspace) -> Result<Ownership> {
    if asked.segments.tokens() == 0 {
        return Ok(without_chunks(asked.ranks, asked.settings));
    }
    workspace.load(asked)?;
    method(asked, workspace)
}

impl Workspace {
    /// Counts the pairs of a pack with tokens, for any number of methods after it.
    pub fn load(&mut self, asked: &Asked<'_>) -> Result<()> {
        debug_assert_eq!(
            asked
                .settings
                .check()
                .and_then(|()| check_ranks(asked.ranks)),
            Ok(())
        );
        self.today = None;
        self.pairs.build(asked.segments, asked.chunk())
    }

    /// A contiguous plan as the result of a method; the evaluator holds its stages.
    fn made(&self, method: &str, asked: &Asked<'_>, plan: &Plan) -> Ownership {
        let owners = part_of_each(&plan.cuts);
        let contiguous = part_of_each(&self.start);
        Ownership {
            contiguous,
            ..self.made_of(method.to_owned(), asked, owners, plan)
        }
    }

    fn made_of(
        &self,
        method: String,
        asked: &Asked<'_>,
        owners: Vec<u32>,
        plan: &Plan,
    ) -> Ownership {
        let pairs = &self.pairs;
        let mut made = counted(method, asked.ranks, pairs.tokens, pairs.chunk, owners);
        made.stages = part_of_each(&self.search.evaluator.bounds);
        made.fetched_tokens = plan.fetched;
        made.score = plan.score;
        made.bound = time_bound(asked.settings, pairs, asked.ranks, pairs.tokens);
        made.optimal = made.bound.is_some_and(|bound| proven(plan.score, bound));
        made.forward_ms.clone_from(&plan.forward);
        made.backward_ms.clone_from(&plan.backward);
        made
    }
}

/// Owners of chunks with what is counted of them.
fn counted(method: String, ranks: usize, tokens: i64, chunk: i64, owners: Vec<u32>) -> Ownership {
    let mut made = Ownership {
        method,
        ranks,
        tokens,
        chunk,
        owners,
        ..Ownership::default()
    };
    made.rank_tokens = vec![0; ranks];
    let mut ranges = vec![0; ranks];
    for (i, &owner) in made.owners.iter().enumerate() {
        made.rank_tokens[owner as usize] += made.chunk_start(i + 1) - made.chunk_start(i);
        ranges[owner as usize] += i64::from(i == 0 || made.owners[i - 1] != owner);
    }
    made.most_tokens = made.rank_tokens.iter().copied().max().unwrap_or(0);
    made.most_ranges = ranges.into_iter().max().unwrap_or(0);
    made
}

/// Any owners of chunks, timed with the number of fetch stages that is fastest.
#[cfg(feature = "python")]
fn timed(
    segments: &Segments,
    ranks: usize,
    chunk: i64,
    owners: &[u32],
    settings: &OwnershipSettings,
) -> Result<Ownership> {
    let mut work = Workspace::default();
    work.pairs.build(segments, chunk)?;
    let asked = Asked::new(segments, ranks, settings);
    let (plan, owners) = work.best_stages(&asked, |_| Ok(owners.to_vec()))?;
    Ok(work.made_of(String::new(), &asked, owners, &plan))
}

impl Workspace {
    /// The owners for each number of fetch stages, timed; those of the fastest, whose stages the
    /// evaluator then holds.
    fn best_stages(
        &mut self,
        asked: &Asked<'_>,
        mut owners: impl FnMut(&mut Self) -> Result<Vec<u32>>,
    ) -> Result<(Plan, Vec<u32>)> {
        let chunks = self.pairs.len();
        let mut best: Option<(Plan, Vec<u32>, usize)> = None;
        for stages in 1..=reference::stage_limit(asked.settings, chunks) {
            crate::cancel::check()?;
            self.search.evaluator.set_stages(stages, chunks);
            let owners = owners(self)?;
            let (spans, evaluator) = (spans_of(&owners), &mut self.search.evaluator);
            let plan = evaluator.spans(&spans, asked.ranks, &self.pairs, asked.settings);
            let faster = |best: &(Plan, _, _)| plan.score + reference::TIE_MS < best.0.score;
            if best.as_ref().is_none_or(faster) {
                best = Some((plan, owners, stages));
            }
        }
        let (plan, owners, stages) = best.unwrap_or_default();
        self.search.evaluator.set_stages(stages, chunks);
        Ok((plan, owners))
    }
}

/// Runs of chunks with one owner.
fn spans_of(owners: &[u32]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (i, &rank) in owners.iter().enumerate() {
        match spans.last_mut() {
            Some(last) if last.rank == rank => last.high += 1,
            _ => spans.push(Span {
                low: i as u32,
                high: i as u32 + 1,
                rank,
            }),
        }
    }
    spans
}

/// Cuts of the chunks into even shares, the first ranks one more; a single one more is the last
/// rank's, whose last chunk may be shorter.
fn even_cuts(chunks: usize, ranks: usize, cuts: &mut Vec<u32>) {
    let (share, more) = (chunks / ranks, chunks % ranks);
    let early = if more == 1 { 0 } else { more };
    cuts.clear();
    cuts.extend((0..ranks).map(|rank| (share * rank + rank.min(early)) as u32));
    cuts.push(chunks as u32);
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

/// Computes the parts of an ownership's forward, by its stages.
pub fn stage_times(
    segments: &Segments,
    made: &Ownership,
    settings: &OwnershipSettings,
) -> Result<StageTimes> {
    let (tokens, given) = (segments.tokens(), made.tokens);
    if tokens != given {
        return Err(Error::input(format!(
            "ownership covers {given} tokens, but the pack has {tokens}: they must be of one pack"
        )));
    }
    let stages = made.stages.last().map_or(0, |&last| last as usize + 1);
    let mut times = vec![0.0; made.ranks];
    if stages > 0 {
        let (mut pairs, mut evaluator) = (ChunkPairs::default(), time::Evaluator::default());
        pairs.build(segments, made.chunk)?;
        evaluator.set_stages(stages, pairs.len());
        times = evaluator.stage_times(&spans_of(&made.owners), made.ranks, &pairs, settings);
    }
    let width = 1 + 2 * stages;
    let table = |from: usize| {
        let of = |rank: &'_ [f64]| rank[from..].iter().step_by(2).copied().collect::<Vec<_>>();
        let all = if stages > 0 {
            times.chunks_exact(width).flat_map(of).collect()
        } else {
            vec![]
        };
        (all, [made.ranks, stages])
    };
    Ok(StageTimes {
        local: times.iter().step_by(width).copied().collect(),
        compute: table(1),
        exchange: table(2),
    })
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
        method: METHODS[0].0.to_owned(),
        ranks,
        rank_tokens: vec![0; ranks],
        bound: Some(0.0),
        optimal: true,
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
