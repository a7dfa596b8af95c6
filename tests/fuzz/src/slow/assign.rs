//! The parser of ids and the chunk assignment by their definitions: every query-key pair is one
//! entry of a matrix, every set of chunks or tokens a set.

use std::collections::{BTreeMap, BTreeSet};

use waveplan::assign::{AssignSettings, StageWork, WorkloadProfile};

const TIE_MS: f64 = 1e-9;

/// Lengths and parents of a row of ids, padding cut off; `None` if it is no forest.
#[must_use]
pub fn parse(groups: &[i64], parents: &[i64]) -> Option<(Vec<i64>, Vec<Option<usize>>)> {
    if groups.len() != parents.len() {
        return None;
    }
    let valid = groups.iter().filter(|&&group| group != -1).count();
    if groups[..valid].contains(&-1) {
        return None;
    }
    // (start, end, group, parent)
    let mut runs: Vec<(usize, usize, i64, i64)> = Vec::new();
    for (at, (&group, &parent)) in groups[..valid].iter().zip(parents).enumerate() {
        match runs.last_mut() {
            Some(run) if run.2 == group => {
                if run.3 != parent {
                    return None;
                }
                run.1 = at + 1;
            }
            _ => runs.push((at, at + 1, group, parent)),
        }
    }
    if let Some((last, before)) = runs.split_last() {
        let repeats = before.iter().any(|run| (run.2, run.3) == (last.2, last.3));
        if last.3 < 0 && repeats {
            runs.pop();
        }
    }
    let distinct: BTreeSet<i64> = runs.iter().map(|run| run.2).collect();
    if distinct.len() != runs.len() {
        return None;
    }
    let mut found = Vec::new();
    for (i, &(start, _, group, parent)) in runs.iter().enumerate() {
        found.push(if parent == group || (start == 0 && parent == -1) {
            None
        } else {
            Some(runs[..i].iter().position(|run| run.2 == parent)?)
        });
    }
    Some((
        runs.iter().map(|run| (run.1 - run.0) as i64).collect(),
        found,
    ))
}

/// (query segment, key segment), sorted.
#[must_use]
pub fn slices(parents: &[Option<usize>]) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for segment in 0..parents.len() {
        let mut key = Some(segment);
        while let Some(at) = key {
            found.push((segment as i64, at as i64));
            key = parents[at];
        }
    }
    found.sort_unstable();
    found
}

/// A row in chunks.
struct Row<'a> {
    starts: Vec<usize>,
    slices: Vec<(i64, i64)>,
    chunk: usize,
    /// Tokens of each chunk.
    sizes: Vec<usize>,
    /// Pairs of each query chunk and key chunk.
    pairs: Vec<Vec<i64>>,
    ranks: usize,
    settings: &'a AssignSettings,
}

/// What the assignment answers.
#[derive(Debug)]
pub struct Answer {
    /// Tokens of a chunk.
    pub chunk: i64,
    /// Owner of each chunk.
    pub owners: Vec<u32>,
    /// Fetch stage of each chunk.
    pub stages: Vec<u32>,
    /// Owners at the start of the search.
    pub contiguous: Vec<u32>,
    /// Tokens on each rank.
    pub rank_tokens: Vec<i64>,
    /// The slowest rank.
    pub score: f64,
    /// Forward and backward of each rank; of the answer before any challenge.
    pub times: Vec<(f64, f64)>,
    /// Per rank: the local stage, and per fetch stage its compute and its exchange.
    pub stage_times: Vec<f64>,
    /// With a profile.
    pub work: Option<Work>,
}

/// The assignment of a row; `None` where the work of an indexer leaves 128 bits.
#[must_use]
pub fn assign(
    lengths: &[i64],
    parents: &[Option<usize>],
    ranks: usize,
    settings: &AssignSettings,
) -> Option<Answer> {
    let row = Row::new(lengths, parents, ranks, settings);
    let pair_ms = settings.local_pair_ms + settings.local_backward_pair_ms;
    let weight = |i: usize| {
        row.pairs[i].iter().sum::<i64>() as f64 * pair_ms
            + row.sizes[i] as f64 * settings.owned_token_ms
    };
    let weights: Vec<f64> = (0..row.sizes.len()).map(weight).collect();
    let start = contiguous(&weights, ranks);
    let (generic, stages) = row.search(&start, &weights);
    let (mut score, times) = row.evaluate(&generic, &stages);
    let (mut owners, mut work) = (generic.clone(), None);
    if let Some(profile) = &settings.profile {
        let (chosen, found) = row.profiled_choice(&generic, &stages, profile)?;
        score = found.query_flops as f64;
        owners = chosen;
        work = Some(found);
    }
    Some(Answer {
        chunk: row.chunk as i64,
        rank_tokens: row.rank_tokens(&owners),
        stage_times: row.stage_times(&generic, &stages),
        owners,
        stages,
        contiguous: start,
        score,
        times,
        work,
    })
}

fn chunk_size(tokens: i64, ranks: i64, s: &AssignSettings) -> i64 {
    let (tokens, ranks) = (i128::from(tokens), i128::from(ranks));
    let up = |a: i128, b: i128| (a + b - 1) / b;
    let block = i128::from(s.block);
    let blocks = |size: i128| (up(size, block) * block).min(tokens);
    let mut size = blocks(block.max(i128::from(s.chunk)));
    let base = i128::from(s.chunk_budget_base).max(0);
    let per_rank = i128::from(s.chunk_budget_per_rank).max(0);
    if base > 0 || per_rank > 0 {
        let budget = ranks.max(base + per_rank * ranks);
        if up(tokens, size) > budget {
            size = blocks(size.max(up(tokens, budget)));
        }
    }
    if up(tokens, size) < ranks && ranks <= tokens {
        size = (tokens / ranks).max(1);
    }
    size as i64
}

/// Owners, each cut at the first boundary nearest to its share.
fn contiguous(weights: &[f64], ranks: usize) -> Vec<u32> {
    let chunks = weights.len();
    let mut sums = vec![0.0];
    for weight in weights {
        sums.push(sums[sums.len() - 1] + weight);
    }
    if sums[chunks] <= 0.0 {
        sums = (0..=chunks).map(|i| i as f64).collect();
    }
    let mut owners = vec![0; chunks];
    let mut cut = 0;
    for s in 1..ranks {
        let target = sums[chunks] * s as f64 / ranks as f64;
        let mut nearest = None;
        let room = cut + 1..(chunks + s + 1).saturating_sub(ranks);
        for (at, sum) in sums.iter().enumerate().take(room.end).skip(room.start) {
            let away = (sum - target).abs();
            if nearest.is_none_or(|(_, least)| away < least) {
                nearest = Some((at, away));
            }
        }
        cut = nearest.map_or(cut, |(at, _)| at);
        owners[cut..].fill(s as u32);
    }
    owners
}

fn stages_of(chunks: usize, stages: usize) -> Vec<u32> {
    (0..chunks).map(|i| (i * stages / chunks) as u32).collect()
}

fn runs(chunks: &BTreeSet<usize>) -> usize {
    chunks
        .iter()
        .filter(|&&at| at == 0 || !chunks.contains(&(at - 1)))
        .count()
}

/// What a rank does in one fetch stage.
#[derive(Debug, Default)]
struct Stage {
    pairs: i64,
    queries: usize,
    keys: usize,
    runs: usize,
    moved: usize,
    moved_runs: usize,
}

impl Stage {
    fn active(&self) -> bool {
        self.pairs > 0 || self.keys > 0
    }

    fn ms(&self, pair_ms: f64, s: &AssignSettings, local: bool) -> f64 {
        let missing = |floor: i64, have: i64| {
            if floor > 0 {
                (floor - have).max(0) as f64 / floor as f64
            } else {
                0.0
            }
        };
        let mut underfill = 0.0;
        if !local && (self.pairs > 0 || self.queries > 0 || self.keys > 0) {
            let tokens = missing(s.underfill_tokens, self.queries.min(self.keys) as i64);
            underfill = s.underfill_ms * tokens.max(missing(s.underfill_pairs, self.pairs));
        }
        let time = s.stage_overhead_ms
            + self.pairs as f64 * pair_ms
            + self.queries as f64 * s.merge_token_ms;
        let host = if local { 0.0 } else { s.remote_host_ms };
        time + self.runs as f64 * s.interval_ms + underfill + host
    }

    fn comm(&self, token_ms: f64, s: &AssignSettings) -> f64 {
        if self.moved == 0 && self.moved_runs == 0 {
            return 0.0;
        }
        s.comm_overhead_ms + self.moved as f64 * token_ms + self.moved_runs as f64 * s.interval_ms
    }
}

/// Chunks that a rank owns.
fn held(owners: &[u32], rank: usize) -> BTreeSet<usize> {
    (0..owners.len())
        .filter(|&i| owners[i] as usize == rank)
        .collect()
}

/// Chunks of a rank, and those it attends.
#[derive(Debug)]
struct Held {
    chunks: BTreeSet<usize>,
    wanted: BTreeSet<usize>,
}

fn later(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

impl<'a> Row<'a> {
    fn new(
        lengths: &[i64],
        parents: &[Option<usize>],
        ranks: usize,
        settings: &'a AssignSettings,
    ) -> Self {
        let mut starts = vec![0];
        for &length in lengths {
            starts.push(starts[starts.len() - 1] + length as usize);
        }
        let tokens = starts[lengths.len()];
        let chunk = chunk_size(tokens as i64, ranks as i64, settings) as usize;
        let chunks = tokens.div_ceil(chunk);
        let slices = slices(parents);
        let mut pairs = vec![vec![0; chunks]; chunks];
        for &(q, k) in &slices {
            let (q, k) = (q as usize, k as usize);
            for query in starts[q]..starts[q + 1] {
                for key in starts[k]..starts[k + 1].min(query + 1) {
                    pairs[query / chunk][key / chunk] += 1;
                }
            }
        }
        Self {
            starts,
            slices,
            chunk,
            sizes: (0..chunks).map(|i| chunk.min(tokens - i * chunk)).collect(),
            pairs,
            ranks,
            settings,
        }
    }

    fn rank_tokens(&self, owners: &[u32]) -> Vec<i64> {
        let mut tokens = vec![0; self.ranks];
        for (&owner, &size) in owners.iter().zip(&self.sizes) {
            tokens[owner as usize] += size as i64;
        }
        tokens
    }

    fn size(&self, chunks: &BTreeSet<usize>) -> usize {
        chunks.iter().map(|&i| self.sizes[i]).sum()
    }

    /// Chunks that any of the queries attends.
    fn attended(&self, queries: &BTreeSet<usize>) -> BTreeSet<usize> {
        (0..self.sizes.len())
            .filter(|&k| queries.iter().any(|&q| self.pairs[q][k] > 0))
            .collect()
    }

    /// The local stage and all fetch stages of a rank.
    fn stages(&self, hold: &[Held], stages: &[u32], rank: usize) -> (Stage, Vec<Stage>) {
        let own = &hold[rank].chunks;
        let work = |keys: &BTreeSet<usize>| -> i64 {
            let pairs = own.iter().flat_map(|&q| keys.iter().map(move |&k| (q, k)));
            pairs.map(|(q, k)| self.pairs[q][k]).sum()
        };
        let local = Stage {
            pairs: work(own),
            queries: self.size(own),
            keys: self.size(own),
            runs: 2 * runs(own),
            ..Stage::default()
        };
        let peers: Vec<&Held> = (hold.iter().enumerate())
            .filter(|&(peer, held)| peer != rank && !held.chunks.is_empty())
            .map(|(_, held)| held)
            .collect();
        let count = stages.iter().max().map_or(0, |&last| last + 1);
        let remote = (0..count).map(|stage| {
            let inside = |set: &BTreeSet<usize>, other: &BTreeSet<usize>| -> BTreeSet<usize> {
                let both = set.intersection(other).copied();
                both.filter(|&i| stages[i] == stage).collect()
            };
            let from = peers
                .iter()
                .map(|peer| inside(&hold[rank].wanted, &peer.chunks));
            let from: Vec<_> = from.collect();
            let fetched: BTreeSet<usize> = from.iter().flatten().copied().collect();
            let queries: BTreeSet<usize> = (own.iter().copied())
                .filter(|&q| fetched.iter().any(|&k| self.pairs[q][k] > 0))
                .collect();
            let to = peers.iter().map(|peer| inside(&peer.wanted, own));
            let to: Vec<_> = to.collect();
            let together: BTreeSet<usize> = to.iter().flatten().copied().collect();
            let fetched_runs = from.iter().map(runs).sum::<usize>();
            let sent = to.iter().map(|part| self.size(part)).sum::<usize>() + self.size(&together);
            let sent_runs = to.iter().map(runs).sum::<usize>() + runs(&together);
            Stage {
                pairs: work(&fetched),
                queries: self.size(&queries),
                keys: self.size(&fetched),
                runs: runs(&queries) + fetched_runs,
                moved: sent.max(self.size(&fetched)),
                moved_runs: sent_runs.max(fetched_runs),
            }
        });
        (local, remote.collect())
    }

    /// What each rank holds and wants.
    fn hold(&self, owners: &[u32]) -> Vec<Held> {
        let hold = |rank| {
            let chunks = held(owners, rank);
            let wanted = self.attended(&chunks);
            Held { chunks, wanted }
        };
        (0..self.ranks).map(hold).collect()
    }

    /// Forward and backward milliseconds of one rank.
    fn rank_ms(&self, hold: &[Held], stages: &[u32], rank: usize) -> (f64, f64) {
        let s = self.settings;
        let (local, remote) = self.stages(hold, stages, rank);
        if local.queries == 0 {
            return (0.0, 0.0);
        }
        let mut end = local.ms(s.local_pair_ms, s, true);
        let mut ready = 0.0;
        for stage in remote.iter().filter(|stage| stage.active()) {
            ready += stage.comm(s.fetch_token_ms, s);
            let start = later(end, ready);
            end = start + stage.ms(s.remote_pair_ms, s, false);
            ready = start;
        }
        let forward = end;
        let mut latest = None;
        end = 0.0;
        for stage in remote.iter().filter(|stage| stage.active()) {
            end += stage.ms(s.remote_backward_pair_ms, s, false);
            let reduced = end + stage.comm(s.reduce_token_ms, s);
            latest = Some(later(latest.unwrap_or(0.0), reduced));
        }
        end += local.ms(s.local_backward_pair_ms, s, true);
        let backward = latest.map_or(end, |latest| later(end, latest));
        let owned = local.queries as f64 * s.owned_token_ms;
        (forward + owned / 3.0, backward + owned * (2.0 / 3.0))
    }

    fn evaluate(&self, owners: &[u32], stages: &[u32]) -> (f64, Vec<(f64, f64)>) {
        let hold = self.hold(owners);
        let times: Vec<(f64, f64)> = (0..self.ranks)
            .map(|rank| self.rank_ms(&hold, stages, rank))
            .collect();
        let all = times.iter().map(|(forward, backward)| forward + backward);
        (all.fold(f64::NEG_INFINITY, later), times)
    }

    fn stage_times(&self, owners: &[u32], stages: &[u32]) -> Vec<f64> {
        let s = self.settings;
        let mut times = Vec::new();
        let hold = self.hold(owners);
        for rank in 0..self.ranks {
            let (local, remote) = self.stages(&hold, stages, rank);
            let holds = local.queries > 0;
            times.push(if holds {
                local.ms(s.local_pair_ms, s, true)
            } else {
                0.0
            });
            for stage in remote {
                if holds && stage.active() {
                    times.push(stage.ms(s.remote_pair_ms, s, false));
                    times.push(stage.comm(s.fetch_token_ms, s));
                } else {
                    times.extend([0.0, 0.0]);
                }
            }
        }
        times
    }

    /// Chunks that the rank offers to move.
    fn offered(owners: &[u32], rank: u32, weights: &[f64], limit: i64) -> Vec<usize> {
        let own: Vec<usize> = (0..owners.len()).filter(|&i| owners[i] == rank).collect();
        if limit <= 0 || own.len() as i64 <= limit {
            return own;
        }
        let last = owners.len() - 1;
        let border =
            |&&i: &&usize| i == 0 || i == last || owners[i - 1] != rank || owners[i + 1] != rank;
        let mut heaviest = own.clone();
        heaviest.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        let mut found: Vec<usize> = Vec::new();
        for &i in own.iter().filter(border).chain(&heaviest) {
            if !found.contains(&i) {
                found.push(i);
            }
        }
        found.truncate(limit as usize);
        found
    }

    /// The best improving move of one chunk, and its score.
    fn best_move(
        &self,
        owners: &[u32],
        stages: &[u32],
        weights: &[f64],
        limit: i64,
    ) -> Option<(Vec<u32>, f64)> {
        let (current, times) = self.evaluate(owners, stages);
        let slow = times
            .iter()
            .position(|(forward, backward)| forward + backward >= current)?
            as u32;
        let mut best: Option<(Vec<u32>, f64)> = None;
        for chunk in Self::offered(owners, slow, weights, limit) {
            for beside in [chunk.wrapping_sub(1), chunk + 1] {
                if beside >= owners.len() || owners[beside] == slow {
                    continue;
                }
                let mut moved = owners.to_vec();
                moved[chunk] = owners[beside];
                let holders: BTreeSet<u32> = moved.iter().copied().collect();
                if owners.len() >= self.ranks && holders.len() < self.ranks {
                    continue;
                }
                let score = self.evaluate(&moved, stages).0;
                let beats = best.as_ref().is_none_or(|best| score + TIE_MS < best.1);
                if score + TIE_MS < current && beats {
                    best = Some((moved, score));
                }
            }
        }
        best
    }

    /// (owners, stages) over all numbers of fetch stages.
    fn search(&self, start: &[u32], weights: &[f64]) -> (Vec<u32>, Vec<u32>) {
        let chunks = start.len();
        let s = self.settings;
        let (most, steps, limit) = match chunks {
            128.. => (s.max_stages.min(2), s.steps.min(2), s.candidates.min(4)),
            64.. => (s.max_stages.min(3), s.steps.min(4), s.candidates.min(6)),
            _ => (s.max_stages, s.steps, s.candidates),
        };
        let mut best: Option<(Vec<u32>, Vec<u32>, f64)> = None;
        for count in 1..=most.min(chunks as i64) as usize {
            let stages = stages_of(chunks, count);
            let mut owners = start.to_vec();
            let mut left = if self.ranks >= 8 { 0 } else { steps.max(0) };
            if self.ranks == 4 && left > 0 {
                let before = self.evaluate(&owners, &stages).0;
                match self.best_move(&owners, &stages, weights, limit.min(2)) {
                    Some((moved, score)) if before - score >= 1.0 => {
                        owners = moved;
                        left -= 1;
                    }
                    _ => left = 0,
                }
            }
            for _ in 0..left {
                match self.best_move(&owners, &stages, weights, limit) {
                    Some((moved, _)) => owners = moved,
                    None => break,
                }
            }
            let score = self.evaluate(&owners, &stages).0;
            if best.as_ref().is_none_or(|best| score + TIE_MS < best.2) {
                best = Some((owners, stages, score));
            }
        }
        let (owners, stages, _) = best.unwrap();
        (owners, stages)
    }
}

/// The work of a sparse-indexer model.
#[derive(Debug, Clone)]
pub struct Work {
    /// See the planner's own.
    pub query_flops: i128,
    /// See the planner's own.
    pub network_bytes: i128,
    /// See the planner's own.
    pub hbm_bytes: i128,
    /// See the planner's own.
    pub indexer_flops: i128,
    /// See the planner's own.
    pub memory_bytes: i128,
    /// Most partners of a rank.
    pub peers: usize,
    /// Most ranges of a rank.
    pub ranges: usize,
    /// Per rank.
    pub tile_pairs: Vec<i128>,
    /// Per rank.
    pub key_tokens: Vec<i64>,
    /// Per rank.
    pub sent_tokens: Vec<i64>,
    /// Per rank.
    pub received_tokens: Vec<i64>,
    /// Ranges of each rank.
    pub each_ranges: Vec<usize>,
}

fn tile_pairs(queries: usize, keys: usize, p: &WorkloadProfile) -> Option<i128> {
    let k = (keys as i64).min(p.max_key_tokens);
    let q = (p.workspace_elements / k).max(1);
    let rounded = |length: usize, step: i64, tile: i64| {
        let (step, tile) = (i128::from(step), i128::from(tile));
        let (mut left, mut sum) = (length as i128, 0);
        while left > 0 {
            sum += (left.min(step) + tile - 1) / tile * tile;
            left -= step;
        }
        sum
    };
    rounded(queries, q, p.query_tile).checked_mul(rounded(keys, k, p.key_tile))
}

impl Row<'_> {
    fn span(&self, segment: i64, chunk: usize) -> std::ops::Range<usize> {
        let segment = segment as usize;
        let low = self.starts[segment].max(chunk * self.chunk);
        low..self.starts[segment + 1]
            .min((chunk + 1) * self.chunk)
            .max(low)
    }

    fn profiled_work(&self, owners: &[u32], stages: &[u32], p: &WorkloadProfile) -> Option<Work> {
        let ranks = self.ranks;
        let mut local = vec![BTreeSet::new(); ranks];
        // (rank, source) and the tokens; per stage they differ anyway, as the chunks do.
        let mut received: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
        let mut queries: BTreeMap<(usize, Option<u32>, usize, usize), usize> = BTreeMap::new();
        for &(q, k) in &self.slices {
            for i in 0..owners.len() {
                for j in 0..owners.len() {
                    let (reads, keys) = (self.span(q, i), self.span(k, j));
                    let after = q == k && keys.start >= reads.end;
                    if reads.is_empty() || keys.is_empty() || after {
                        continue;
                    }
                    let (rank, source) = (owners[i] as usize, owners[j] as usize);
                    let stage = (rank != source).then_some(stages[j]);
                    *queries
                        .entry((rank, stage, reads.start, reads.len()))
                        .or_default() += keys.len();
                    if rank == source {
                        local[rank].extend(keys);
                    } else {
                        received.entry((rank, source)).or_default().extend(keys);
                    }
                }
            }
        }
        let mut tiles = vec![0_i128; ranks];
        for (&(rank, _, _, length), &keys) in &queries {
            tiles[rank] = tiles[rank].checked_add(tile_pairs(length, keys, p)?)?;
        }
        let (mut got, mut sent) = (vec![0; ranks], vec![0; ranks]);
        let mut partners = vec![BTreeSet::new(); ranks];
        for (&(rank, source), tokens) in &received {
            got[rank] += tokens.len() as i64;
            sent[source] += tokens.len() as i64;
            partners[rank].insert(source);
            partners[source].insert(rank);
        }
        let own = self.rank_tokens(owners);
        let keys: Vec<i64> = (0..ranks).map(|r| local[r].len() as i64 + got[r]).collect();
        let ranges: Vec<usize> = (0..ranks).map(|r| runs(&held(owners, r))).collect();
        let worst = |of: &dyn Fn(usize, &StageWork) -> Option<i128>| -> Option<i128> {
            let mut most = 0;
            for rank in 0..ranks {
                for stage in &p.stages {
                    most = most.max(of(rank, stage)?);
                }
            }
            Some(most)
        };
        let times = |count: i64, rate: i64| i128::from(count) * i128::from(rate);
        Some(Work {
            query_flops: worst(&|r, w| Some(times(own[r], w.query_flops)))?,
            network_bytes: worst(&|r, w| {
                Some(times(
                    got[r].max(sent[r]),
                    w.fetch_bytes.max(w.reduce_bytes),
                ))
            })?,
            hbm_bytes: worst(&|r, w| Some(times(keys[r], w.key_hbm_bytes)))?,
            indexer_flops: worst(&|r, w| tiles[r].checked_mul(i128::from(w.tile_pair_flops)))?,
            memory_bytes: worst(&|r, w| {
                Some(times(own[r], w.query_memory_bytes) + times(keys[r], w.key_memory_bytes))
            })?,
            peers: partners.iter().map(BTreeSet::len).max().unwrap_or(0),
            ranges: ranges.iter().copied().max().unwrap_or(0),
            tile_pairs: tiles,
            key_tokens: keys,
            sent_tokens: sent,
            received_tokens: got,
            each_ranges: ranges,
        })
    }

    /// The generic answer or a challenger that beats it.
    fn profiled_choice(
        &self,
        generic: &[u32],
        stages: &[u32],
        p: &WorkloadProfile,
    ) -> Option<(Vec<u32>, Work)> {
        let sizes: Vec<f64> = self.sizes.iter().map(|&size| size as f64).collect();
        let mut challengers = vec![contiguous(&sizes, self.ranks)];
        if generic.len() >= 2 * self.ranks {
            let last = 2 * self.ranks as u32 - 1;
            let slabs = contiguous(&sizes, 2 * self.ranks);
            challengers.push(slabs.iter().map(|&slab| slab.min(last - slab)).collect());
        }
        let key = |work: &Work, owners: &[u32]| {
            (
                (work.query_flops, work.network_bytes, work.hbm_bytes),
                (work.indexer_flops, work.peers, work.ranges),
                owners.to_vec(),
            )
        };
        let base = self.profiled_work(generic, stages, p)?;
        let mut best = (generic.to_vec(), base.clone());
        for owners in challengers {
            let ranges: Vec<usize> = (0..self.ranks).map(|r| runs(&held(&owners, r))).collect();
            let many = |&n: &usize| n == 0 || n as i64 > p.max_ranges;
            if owners == generic || ranges.iter().any(many) {
                continue;
            }
            let work = self.profiled_work(&owners, stages, p)?;
            if work.memory_bytes <= base.memory_bytes && key(&work, &owners) < key(&best.1, &best.0)
            {
                best = (owners, work);
            }
        }
        Some(best)
    }
}
