//! The second layout by its definition: everything is recomputed from the segments for each set
//! of chained segments, and owners come from comparing whole keys.

use std::collections::{BTreeMap, BTreeSet};

use waveplan::recurrent::RecurrentSettings;

use super::set_order::walk_order;

/// Chained segments.
pub type Chained = BTreeSet<usize>;

/// A packed row and its attention chunks.
#[derive(Debug)]
pub struct Row {
    /// Tokens of each segment.
    pub lengths: Vec<i64>,
    /// Parent of each segment.
    pub parents: Vec<Option<usize>>,
    /// Ranks.
    pub ranks: usize,
    /// Tokens of a chunk.
    pub chunk: i64,
    /// Owner of each chunk.
    pub owners: Vec<u32>,
}

/// Where everything is.
#[derive(Debug)]
pub struct Placement {
    /// Tokens on each rank.
    pub loads: Vec<i64>,
    /// Owner of each segment, none if chained.
    pub owner: Vec<Option<usize>>,
    /// Tokens moved.
    pub moved: i64,
}

impl Row {
    fn count(&self) -> usize {
        self.lengths.len()
    }

    fn start(&self, segment: usize) -> i64 {
        self.lengths[..segment].iter().sum()
    }

    fn end(&self, segment: usize) -> i64 {
        self.start(segment) + self.lengths[segment]
    }

    fn depth(&self, segment: usize) -> usize {
        self.parents[segment].map_or(0, |parent| self.depth(parent) + 1)
    }

    fn children(&self, parent: Option<usize>) -> Vec<usize> {
        (0..self.count())
            .filter(|&s| self.parents[s] == parent)
            .collect()
    }

    /// The segment and all below it, depth first.
    fn subtree(&self, segment: usize) -> Vec<usize> {
        let mut found = vec![segment];
        for child in self.children(Some(segment)) {
            found.extend(self.subtree(child));
        }
        found
    }

    /// (owner, tokens) of each chunk that a range touches.
    fn pieces(&self, start: i64, end: i64) -> Vec<(usize, i64)> {
        let mut found = Vec::new();
        for (i, &owner) in self.owners.iter().enumerate() {
            let low = start.max(i as i64 * self.chunk);
            let high = end.min((i as i64 + 1) * self.chunk);
            if low < high {
                found.push((owner as usize, high - low));
            }
        }
        found
    }

    fn on_ranks(&self, start: i64, end: i64) -> Vec<i64> {
        let mut tokens = vec![0; self.ranks];
        for (owner, held) in self.pieces(start, end) {
            tokens[owner] += held;
        }
        tokens
    }

    /// Tokens of the segments on each rank.
    fn here(&self, group: &[usize]) -> Vec<i64> {
        let mut tokens = vec![0; self.ranks];
        for &s in group {
            for (sum, held) in tokens
                .iter_mut()
                .zip(self.on_ranks(self.start(s), self.end(s)))
            {
                *sum += held;
            }
        }
        tokens
    }

    /// (tokens per rank, tokens moved) of a segment that may be chained.
    #[must_use]
    pub fn shards(&self, segment: usize) -> Option<(Vec<i64>, i64)> {
        let (start, length) = (self.start(segment), self.lengths[segment]);
        let ranks = self.ranks as i64;
        if self.ranks == 1 || length / 64 < ranks {
            return None;
        }
        let own = self.pieces(start, start + length);
        let whole = own[..own.len() - 1]
            .iter()
            .all(|(_, tokens)| tokens % 64 == 0);
        if whole && own.iter().map(|piece| piece.0).eq(0..self.ranks) {
            return Some((own.into_iter().map(|piece| piece.1).collect(), 0));
        }
        let mut cut: Vec<i64> = (0..ranks)
            .map(|rank| 64 * (length / 64 / ranks + i64::from(rank < length / 64 % ranks)))
            .collect();
        cut[self.ranks - 1] += length % 64;
        let (mut moved, mut at) = (0, start);
        for (rank, tokens) in cut.iter().enumerate() {
            moved += tokens - self.on_ranks(at, at + tokens)[rank];
            at += tokens;
        }
        Some((cut, moved))
    }
}

fn exchange_ms(settings: &RecurrentSettings, moved: i64) -> f64 {
    if moved == 0 {
        return 0.0;
    }
    (moved * settings.hidden_bytes * settings.exchanges) as f64 / settings.exchange_bandwidth
}

/// The placement with this set of segments chained.
#[must_use]
pub fn place(row: &Row, settings: &RecurrentSettings, chained: &Chained) -> Placement {
    let mut placed = Placement {
        loads: vec![0; row.ranks],
        owner: vec![None; row.count()],
        moved: 0,
    };
    let tokens: i64 = row.lengths.iter().sum();
    let limit = ((tokens as f64 / row.ranks as f64) as i64).max(1);
    for root in row.children(None) {
        place_below(row, settings, chained, root, limit, &mut placed);
    }
    placed
}

fn place_below(
    row: &Row,
    settings: &RecurrentSettings,
    chained: &Chained,
    segment: usize,
    limit: i64,
    placed: &mut Placement,
) {
    let below = row.subtree(segment);
    let total: i64 = below.iter().map(|&s| row.lengths[s]).sum();
    if chained.contains(&segment) {
        let (cut, moved) = row.shards(segment).unwrap();
        for (load, shard) in placed.loads.iter_mut().zip(cut) {
            *load += shard;
        }
        placed.moved += moved;
    } else if total <= limit && below.iter().all(|s| !chained.contains(s)) {
        own(row, settings, &below, placed);
        return;
    } else {
        own(row, settings, &[segment], placed);
    }
    for child in row.children(Some(segment)) {
        place_below(row, settings, chained, child, limit, placed);
    }
}

/// Gives segments to the rank whose key is the least.
fn own(row: &Row, settings: &RecurrentSettings, group: &[usize], placed: &mut Placement) {
    let tokens: i64 = group.iter().map(|&s| row.lengths[s]).sum();
    let here = row.here(group);
    let key = |rank: usize| {
        let slowest = (0..row.ranks)
            .map(|other| {
                let more = if other == rank { tokens } else { 0 };
                (placed.loads[other] + more) as f64 / settings.local_rate
            })
            .fold(0.0, f64::max);
        let exchange = exchange_ms(settings, tokens - here[rank]);
        (
            slowest + exchange,
            exchange,
            tokens - here[rank],
            -here[rank],
        )
    };
    let mut owner = 0;
    for rank in 1..row.ranks {
        if key(rank) < key(owner) {
            owner = rank;
        }
    }
    placed.loads[owner] += tokens;
    placed.moved += tokens - here[owner];
    for &s in group {
        placed.owner[s] = Some(owner);
    }
}

/// Predicted milliseconds with this set of segments chained.
#[must_use]
pub fn score(row: &Row, settings: &RecurrentSettings, chained: &Chained) -> f64 {
    let placed = place(row, settings, chained);
    let depths: Vec<usize> = (0..row.count()).map(|s| row.depth(s)).collect();
    let levels = depths.iter().max().map_or(0, |deepest| deepest + 1);
    let on_level = |level: usize| -> Vec<usize> {
        chained
            .iter()
            .copied()
            .filter(|&s| depths[s] == level)
            .collect()
    };
    let mut slowest = 0.0_f64;
    for rank in 0..row.ranks {
        let (mut work, mut buckets, mut segments, mut chain) = (0, 0, 0, 0);
        for level in 0..levels {
            let owned: Vec<i64> = (0..row.count())
                .filter(|&s| depths[s] == level && placed.owner[s] == Some(rank))
                .map(|s| row.lengths[s])
                .collect();
            if let Some(longest) = owned.iter().max() {
                work += longest * owned.len() as i64;
                buckets += 1;
                segments += owned.len();
            }
            let cut = on_level(level);
            let shards = cut.iter().map(|&s| row.shards(s).unwrap().0[rank]);
            chain += shards.max().unwrap_or(0) * cut.len() as i64;
        }
        let time = work as f64 / settings.local_rate
            + f64::from(buckets) * settings.local_bucket_ms
            + segments as f64 * settings.local_segment_ms
            + chain as f64 / settings.chain_rate
            + placed.loads[rank] as f64 / settings.dense_rate;
        slowest = slowest.max(time);
    }
    let mut chain_ms = 0.0;
    if !chained.is_empty() {
        let buckets = (0..levels)
            .filter(|&level| !on_level(level).is_empty())
            .count() as f64;
        let segments = chained.len() as i64;
        let summaries = segments * settings.summary_bytes * settings.summary_exchanges;
        chain_ms = buckets * settings.chain_bucket_ms
            + summaries as f64 / settings.summary_bandwidth
            + segments as f64 / settings.summary_rate
            + buckets * settings.scan_bucket_ms
            + segments as f64 / settings.scan_rate;
    }
    let handed = (0..row.count())
        .filter(|&s| match row.parents[s] {
            Some(parent) if !chained.contains(&parent) => {
                chained.contains(&s) || placed.owner[s] != placed.owner[parent]
            }
            _ => false,
        })
        .count() as i64;
    let parents = if handed > 0 {
        (handed * settings.parent_bytes) as f64 / settings.parent_bandwidth
    } else {
        0.0
    };
    slowest + chain_ms + exchange_ms(settings, placed.moved) + parents
}

/// Groups of segments to toggle, most promising first.
fn candidate_groups(row: &Row, settings: &RecurrentSettings, legal: &[usize]) -> Vec<Chained> {
    let mut filled: Vec<Chained> = legal.iter().map(|&s| Chained::from([s])).collect();
    let mut parents: Vec<usize> = Vec::new();
    for &s in legal {
        if let Some(parent) = row.parents[s].filter(|parent| !parents.contains(parent)) {
            parents.push(parent);
            let siblings = legal
                .iter()
                .copied()
                .filter(|&s| row.parents[s] == Some(parent));
            let together: Chained = siblings.collect();
            if together.len() > 1 {
                filled.push(together);
            }
        }
    }
    let triples: Vec<Vec<[i64; 3]>> = (filled.iter())
        .map(|group| {
            group
                .iter()
                .map(|&s| [0, row.start(s), row.end(s)])
                .collect()
        })
        .collect();
    let priority = |group: &Chained| {
        let (mut relief, mut length, mut locality, mut missed) = (0, 0, 0, 0);
        for &s in group {
            let held = row.here(&[s]).into_iter().max().unwrap_or(0);
            relief += row.lengths[s] - row.shards(s).unwrap().0.iter().max().unwrap();
            length += row.lengths[s];
            missed += held - row.lengths[s];
            locality = locality.max(held);
        }
        (relief, length, locality, missed, group.len())
    };
    let mut walked: Vec<&Chained> = walk_order(&triples).iter().map(|&i| &filled[i]).collect();
    walked.sort_by_key(|group| std::cmp::Reverse(priority(group)));
    let all = legal.iter().copied();
    let mut groups: Vec<Chained> = Vec::new();
    for group in [
        all.clone().collect(),
        all.clone().filter(|&s| row.parents[s].is_none()).collect(),
        all.filter(|&s| row.parents[s].is_some()).collect(),
    ]
    .into_iter()
    .chain(walked.into_iter().cloned())
    {
        if !group.is_empty() && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.truncate(settings.candidates.max(1) as usize);
    groups
}

/// The groups to toggle from this set.
fn neighbours<'a>(chained: &Chained, groups: &'a [Chained], branch: usize) -> Vec<&'a Chained> {
    let outside = groups.iter().filter(|group| !group.is_subset(chained));
    let mut picked: Vec<&Chained> = outside.take(branch).collect();
    for group in groups.iter().rev() {
        if picked.len() < branch && !group.is_disjoint(chained) && !picked.contains(&group) {
            picked.push(group);
        }
    }
    picked
}

/// The set that the beam search settles on.
#[must_use]
pub fn chained_segments(row: &Row, settings: &RecurrentSettings) -> Chained {
    let legal: Vec<usize> = (0..row.count())
        .filter(|&s| row.shards(s).is_some())
        .collect();
    if legal.is_empty() {
        return Chained::new();
    }
    let mut known: BTreeMap<Chained, f64> = BTreeMap::new();
    let mut ms = |chained: &Chained| {
        *known
            .entry(chained.clone())
            .or_insert_with(|| score(row, settings, chained))
    };
    let cut = |mut beam: Vec<Chained>, ms: &mut dyn FnMut(&Chained) -> f64| {
        let list = |set: &Chained| set.iter().copied().collect::<Vec<_>>();
        beam.sort_by(|a, b| {
            let scores = ms(a).total_cmp(&ms(b));
            scores
                .then(a.len().cmp(&b.len()))
                .then(list(a).cmp(&list(b)))
        });
        beam.truncate(settings.beam_width.max(1) as usize);
        beam
    };
    let (none, all): (Chained, Chained) = (Chained::new(), legal.iter().copied().collect());
    let gain = settings.min_gain_ms;
    let mut best = if ms(&none) - ms(&all) > gain {
        all.clone()
    } else {
        none.clone()
    };
    let mut beam = cut(vec![none, all], &mut ms);
    let groups = candidate_groups(row, settings, &legal);
    let mut stale = 0;
    for _ in 0..settings.max_steps {
        let mut made: Vec<Chained> = Vec::new();
        for chained in &beam {
            for group in neighbours(chained, &groups, settings.branch.max(1) as usize) {
                let next: Chained = if group.is_subset(chained) {
                    chained.difference(group).copied().collect()
                } else {
                    chained.union(group).copied().collect()
                };
                if !made.contains(&next) {
                    made.push(next);
                }
            }
        }
        beam.extend(made);
        beam = cut(beam, &mut ms);
        if ms(&best) - ms(&beam[0]) > gain {
            best.clone_from(&beam[0]);
            stale = 0;
        } else {
            stale += 1;
            if stale == 2 {
                break;
            }
        }
    }
    best
}

/// (executed rows, state rows, packed rows) of the rank that holds `held`: tokens by segment.
#[must_use]
pub fn schedule(row: &Row, held: &BTreeMap<usize, i64>) -> (i64, i64, i64) {
    let mut executed = 0;
    // By (is a root, has children or depth): whether each column hands states on.
    let mut buckets: BTreeMap<(bool, usize), Vec<bool>> = BTreeMap::new();
    for (&s, &tokens) in held {
        let children = row.children(Some(s));
        let hands_on = !children.is_empty();
        let mut rows = tokens;
        let bucket = match row.parents[s] {
            None => {
                if children.iter().any(|child| held.contains_key(child)) {
                    rows -= tokens % 64;
                }
                (true, usize::from(hands_on))
            }
            Some(parent) => {
                if row.parents[parent].is_none() {
                    rows += held.get(&parent).map_or(0, |tokens| tokens % 64);
                }
                (false, row.depth(s))
            }
        };
        executed += rows;
        if rows > 0 {
            buckets.entry(bucket).or_default().push(hands_on);
        }
    }
    let states = buckets.values().map(|columns| {
        let each = if columns.contains(&true) { 2 } else { 1 };
        columns.len() as i64 * each
    });
    (executed, states.sum(), held.values().sum())
}
