//! Fills the measures of a plan: first those without a layout, then each pack's layout or bound.

use crate::error::{Error, Result};
use crate::fields::{at_least, settings};
use crate::gdn::Gdn;
use crate::gdn::schedule::{Schedule, gdn_schedule, gdn_schedule_per_rank};
use crate::heads::{self, HeadWork};
use crate::measures::{Measures, Packs, Requests, pack, plan};
use crate::ownership::Ownership;
use crate::price::{Program, root};
use crate::segments::{NONE, Segments};
use crate::tree::Tree;

settings! {
    /// Facts that measures depend on besides the requests and their layouts.
    #[derive(Eq)]
    pub struct Settings as "MeasureSettings" {
        /// Tensor-parallel size: packs are padded to a multiple of it.
        tp: i64 = 1, at_least(1);
        /// Context-parallel size.
        cp: i64 = 1, at_least(1);
        /// The model has gdn layers.
        gdn: bool = false;
        /// Pending bytes of the gdn schedule per executed token, state and packed token:
        /// they decide which rank counts as the busiest.
        gdn_weights: [i64; 3] = [1, 0, 0];
        /// Tokens of the head's largest chunk: from here on its dense part no longer grows.
        head_chunk: i64 = i64::MAX;
        /// Rank of each adapter slot, from slot 0 on; missing ones count as 0.
        adapter_ranks: Vec<i64> = Vec::new();
    }
}

impl Settings {
    /// Those of a price program, on one rank without gdn layers.
    pub fn of(program: &Program) -> Result<Self> {
        Ok(Self {
            gdn_weights: [
                program.known(root::EXECUTED_TOKEN)?,
                program.known(root::STATE)?,
                program.known(root::OUTPUT_TOKEN)?,
            ],
            head_chunk: program.known(root::HEAD_CHUNK)?,
            ..Self::default()
        })
    }

    fn padded(&self, tokens: i64) -> Result<i64> {
        round_up(tokens, self.tp).ok_or(Error::Overflow("the padded packed length"))
    }
}

fn round_up(tokens: i64, multiple: i64) -> Option<i64> {
    if multiple <= 1 {
        return Some(tokens);
    }
    tokens.checked_add((multiple - tokens % multiple) % multiple)
}

/// A bound on every layout of a pack, priced instead of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// No sharing: an upper bound, fit to accept a plan.
    NoSharing,
    /// Full sharing, so many packed tokens: a lower bound, fit to reject a plan.
    FullSharing(i64),
    /// Full sharing spread evenly over the context-parallel ranks: a lower bound for a part of a
    /// split.
    Split(i64),
}

/// The count of projected tokens of an exact layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadCount {
    /// The union of packed positions.
    Union,
    /// The union, but the sum where neither could change the head's dense part: when the
    /// longest request and the sum both reach a full chunk.
    UnionOrSum,
}

/// The layout of one pack and its parts on the ranks.
#[derive(Debug, Clone, Copy)]
pub struct Exact<'a> {
    /// Canonical tree of the pack's requests, in the pack's order.
    pub tree: &'a Tree,
    /// The segments of it that are stored once.
    pub shared: &'a [bool],
    /// The pack, without padding.
    pub segments: &'a Segments,
    /// Owners of the padded pack; `None` at CP 1.
    pub ownership: Option<&'a Ownership>,
    /// Gdn layout of the padded pack; `None` at CP 1 or without gdn layers.
    pub gdn: Option<&'a Gdn>,
    /// The count of projected tokens.
    pub head: HeadCount,
}

/// Starts the measures of a plan for `requests`: those without a layout.
pub fn start(
    pool: &Requests,
    requests: &[u32],
    packs: &Packs,
    settings: &Settings,
    measures: &mut Measures,
) -> Result<()> {
    measures.plan = [0; plan::COUNT];
    measures.plan[plan::COLD] = 1;
    measures.packs.clear();
    measures.packs.resize(packs.len(), [0; pack::COUNT]);
    for (g, into) in measures.packs.iter_mut().enumerate() {
        start_pack(pool, packs, g, settings, into)?;
    }
    entries(pool, packs, &mut measures.plan)?;
    let all_gradient = measures.packs.iter().all(|into| into[pack::GRADIENT] == 1);
    let priceable = !packs.is_empty()
        && all_gradient
        && requests.iter().all(|&r| pool.packed_priceable(r as usize));
    measures.plan[plan::PACKED_PRICEABLE] = i64::from(priceable);
    Ok(())
}

/// Counts the outputs of the requests.
fn entries(pool: &Requests, packs: &Packs, plan: &mut [i64; plan::COUNT]) -> Result<()> {
    for g in 0..packs.len() {
        let row = pool.row(packs.requests(g));
        for &request in packs.requests(g) {
            let r = request as usize;
            let length = row.unwrap_or(pool.lengths[r]);
            add(&mut plan[plan::LOGICAL], length)?;
            add(
                &mut plan[plan::TARGET_ENTRIES],
                target_entries(pool, r, row)?,
            )?;
            add(&mut plan[plan::TOP_K_ENTRIES], top_k_entries(pool, r, row)?)?;
            plan[plan::LOGITS_TOKENS] += if pool.logits[r] { length } else { 0 };
            plan[plan::HIDDEN_TOKENS] += if pool.hidden[r] { length } else { 0 };
            add(&mut plan[plan::ROUTED_ENTRIES], pool.routed[r])?;
        }
    }
    for &request in packs.inactive() {
        plan[plan::INACTIVE] += pool.lengths[request as usize];
        add(
            &mut plan[plan::ROUTED_ENTRIES],
            pool.routed[request as usize],
        )?;
    }
    Ok(())
}

/// Target entries of a request, or of the padded row that it runs as.
fn target_entries(pool: &Requests, r: usize, row: Option<i64>) -> Result<i64> {
    match row {
        Some(row) if pool.targets[r] => row.checked_mul(pool.target_width[r]).ok_or(TOO_LARGE),
        _ => Ok(pool.target_entries[r]),
    }
}

/// The same for top-k entries.
fn top_k_entries(pool: &Requests, r: usize, row: Option<i64>) -> Result<i64> {
    match row {
        Some(row) => row.checked_mul(pool.top_k[r]).ok_or(TOO_LARGE),
        None => Ok(pool.top_k_entries[r]),
    }
}

const TOO_LARGE: Error = Error::Overflow("the size of the requested outputs");

fn add(sum: &mut i64, value: i64) -> Result<()> {
    *sum = sum.checked_add(value).ok_or(TOO_LARGE)?;
    Ok(())
}

fn start_pack(
    pool: &Requests,
    packs: &Packs,
    g: usize,
    settings: &Settings,
    into: &mut [i64; pack::COUNT],
) -> Result<()> {
    let key = packs.key(g);
    into[pack::GRADIENT] = i64::from(key.gradient);
    into[pack::ADAPTER_RANK] = match settings.adapter_ranks.get(key.slot as usize) {
        Some(&rank) if key.slot != 0 => rank,
        _ => 0,
    };
    into[pack::REQUESTS] = packs.requests(g).len() as i64;
    let row = pool.row(packs.requests(g));
    for &request in packs.requests(g) {
        let r = request as usize;
        let projected = match row {
            Some(row) if pool.whole(r) => row,
            _ => pool.projected[r],
        };
        add(&mut into[pack::LOGICAL], row.unwrap_or(pool.lengths[r]))?;
        add(&mut into[pack::HEAD_SUM], projected)?;
        into[pack::HEAD_LONGEST] = into[pack::HEAD_LONGEST].max(projected);
        into[pack::HEAD_TARGET_TOKENS] = into[pack::HEAD_TARGET_TOKENS].max(pool.labelled[r]);
        add(&mut into[pack::HEAD_LABELS], target_entries(pool, r, row)?)?;
        add(&mut into[pack::HEAD_TOPK], top_k_entries(pool, r, row)?)?;
        if pool.targets[r] && pool.lengths[r] > 0 {
            add(&mut into[pack::HEAD_WIDTH], pool.target_width[r])?;
        }
        add(&mut into[pack::HEAD_WIDTH], pool.top_k[r])?;
        into[pack::HEAD_TARGETS] |= i64::from(pool.targets[r]);
        into[pack::HEAD_STATISTICS] |= i64::from(pool.targets[r] || pool.top_k[r] > 0);
        into[pack::HEAD_LOGITS] |= i64::from(pool.logits[r]);
    }
    Ok(())
}

/// Fills a started pack's measures from its layout.
pub fn exact(
    pool: &Requests,
    requests: &[u32],
    layout: &Exact<'_>,
    settings: &Settings,
    work: &mut HeadWork,
    into: &mut [i64; pack::COUNT],
) -> Result<()> {
    let packed = layout.segments.tokens();
    let padded = settings.padded(packed)?;
    into[pack::PACKED] = packed;
    into[pack::PADDED] = padded;
    into[pack::SEGMENTS] = layout.segments.len() as i64;
    let by_sum = layout.head == HeadCount::UnionOrSum
        && into[pack::HEAD_LONGEST].min(settings.head_chunk)
            == into[pack::HEAD_SUM].min(settings.head_chunk);
    into[pack::HEAD_TOKENS] = if by_sum || into[pack::HEAD_SUM] == 0 {
        into[pack::HEAD_SUM]
    } else {
        heads::union(pool, requests, layout.tree, layout.shared, work)
    };
    into[pack::HEAD_BOUND] = 0;
    let whole = if settings.gdn && into[pack::GRADIENT] == 1 {
        gdn_schedule(layout.segments)
    } else {
        Schedule::default()
    };
    into[pack::GDN_EXECUTED] = whole.executed_tokens;
    into[pack::GDN_STATES] = whole.states;
    into[pack::GDN_PACKED] = whole.packed_tokens;
    owned(
        layout.segments,
        layout.ownership,
        layout.gdn,
        settings,
        into,
    )
}

/// Fills the measures of a pack that depend on the owners of its tokens.
pub fn owned(
    segments: &Segments,
    ownership: Option<&Ownership>,
    gdn: Option<&Gdn>,
    settings: &Settings,
    into: &mut [i64; pack::COUNT],
) -> Result<()> {
    into[pack::LOCAL] = match ownership {
        None => into[pack::PADDED],
        Some(ownership) => busiest(ownership, gdn, settings)?,
    };
    into[pack::FETCHED] = ownership.map_or(0, |ownership| ownership.fetched_tokens);
    let mut rank = Schedule {
        executed_tokens: into[pack::GDN_EXECUTED],
        states: into[pack::GDN_STATES],
        packed_tokens: into[pack::GDN_PACKED],
    };
    if let Some(gdn) = gdn
        && settings.gdn
        && into[pack::GRADIENT] == 1
    {
        let ranks = if settings.tp > 1 {
            gdn_schedule_per_rank(&pad(segments, settings.tp)?, gdn)
        } else {
            gdn_schedule_per_rank(segments, gdn)
        };
        // the first of equals
        rank = ranks
            .into_iter()
            .rev()
            .max_by_key(|rank| pending_bytes(rank, settings))
            .unwrap_or_default();
    }
    into[pack::GDN_RANK_EXECUTED] = rank.executed_tokens;
    into[pack::GDN_RANK_STATES] = rank.states;
    into[pack::GDN_RANK_PACKED] = rank.packed_tokens;
    Ok(())
}

/// Tokens of the rank with the most, in either layout.
fn busiest(ownership: &Ownership, gdn: Option<&Gdn>, settings: &Settings) -> Result<i64> {
    let most = |tokens: &[i64]| tokens.iter().copied().max().unwrap_or(0);
    let gdn = gdn.map_or(0, |layout| most(&layout.rank_tokens));
    settings.padded(most(&ownership.rank_tokens).max(gdn).max(1))
}

fn pending_bytes(rank: &Schedule, settings: &Settings) -> i128 {
    let [executed, states, packed] = settings.gdn_weights.map(i128::from);
    (i128::from(rank.executed_tokens) * executed)
        .saturating_add(i128::from(rank.states) * states)
        .saturating_add(i128::from(rank.packed_tokens) * packed)
}

/// Fills a started pack's measures from a bound on its layouts.
pub fn bound(bound: Bound, settings: &Settings, into: &mut [i64; pack::COUNT]) -> Result<()> {
    let requests = into[pack::REQUESTS];
    let (packed, segments, head, rejects) = match bound {
        Bound::NoSharing => (into[pack::LOGICAL], 2 * requests, into[pack::HEAD_SUM], 0),
        Bound::FullSharing(tokens) => (tokens, 1, into[pack::HEAD_LONGEST], 1),
        Bound::Split(tokens) => (tokens, 0, into[pack::HEAD_LONGEST], 1),
    };
    let padded = settings.padded(packed)?;
    let local = match bound {
        Bound::Split(_) => padded.div_euclid(settings.cp) + i64::from(padded % settings.cp != 0),
        _ => padded,
    };
    into[pack::PACKED] = packed;
    into[pack::PADDED] = padded;
    into[pack::SEGMENTS] = segments;
    into[pack::HEAD_TOKENS] = head;
    into[pack::HEAD_BOUND] = rejects;
    into[pack::LOCAL] = local;
    for column in [
        pack::FETCHED,
        pack::GDN_EXECUTED,
        pack::GDN_STATES,
        pack::GDN_PACKED,
        pack::GDN_RANK_EXECUTED,
        pack::GDN_RANK_STATES,
        pack::GDN_RANK_PACKED,
    ] {
        into[column] = 0;
    }
    Ok(())
}

/// Sums the packs' measures into the plan's. `even` spreads all packed tokens evenly over the
/// context-parallel ranks, as the bound of a split does.
pub fn finish(settings: &Settings, even: bool, measures: &mut Measures) -> Result<()> {
    let Measures { plan, packs } = measures;
    let (mut packed, mut local, mut unshared) = (0_i64, 0_i64, 0_i64);
    let too_large = Error::Overflow("the packed tokens of a plan");
    for into in packs.iter() {
        let padded = settings.padded(into[pack::LOGICAL])?;
        for (sum, value) in [
            (&mut packed, into[pack::PADDED]),
            (&mut local, into[pack::LOCAL]),
            (&mut unshared, padded),
        ] {
            *sum = sum.checked_add(value).ok_or(too_large.clone())?;
        }
    }
    plan[plan::PACKED] = packed;
    plan[plan::UNSHARED] = unshared;
    plan[plan::RETAINED_TOKENS] = if even {
        packed / settings.cp + i64::from(packed % settings.cp != 0)
    } else {
        local
    };
    Ok(())
}

/// The pack padded to a multiple of TP by one-token roots, as it is executed.
pub fn pad(segments: &Segments, tp: i64) -> Result<Segments> {
    let tokens = segments.tokens();
    let padded = round_up(tokens, tp).ok_or(Error::Overflow("the padded packed length"))?;
    let mut made = segments.clone();
    if made.starts.is_empty() {
        made.starts.push(0);
    }
    for at in tokens..padded {
        made.starts.push(at + 1);
        made.parents.push(NONE);
    }
    Ok(made)
}
