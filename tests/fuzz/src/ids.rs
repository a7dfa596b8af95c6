//! Group and parent ids, the parser, attention slices, and the assignment of chunks to ranks.

use waveplan::Error;
use waveplan::assign::{
    AssignSettings, Assignment, MOST_RANKS, StageWork, WorkloadProfile, Workspace, assign,
    stage_times,
};
use waveplan::attention;
use waveplan::segments::{NONE, Segments};

use crate::draw::Draw;
use crate::slow::assign as slow;

/// One input.
pub fn check(data: &[u8]) {
    let mut draw = Draw::new(data);
    match draw.below(8) {
        0 | 1 => any_ids(&mut draw),
        2 => hostile_assignment(&mut draw),
        _ => {
            let (groups, parents) = forest_ids(&mut draw);
            let segments = parsed(&groups, &parents);
            if let Some(segments) = segments.filter(|row| row.tokens() <= 240) {
                compare(&mut draw, &segments);
            }
        }
    }
}

/// Ids that mostly describe nothing.
fn any_ids(draw: &mut Draw<'_>) {
    let of = draw.pick(&[2, 3, 5]);
    let one = |draw: &mut Draw<'_>| match draw.below(16) {
        15 => draw.wild(),
        _ => draw.between(-2, of),
    };
    let mut groups = Vec::new();
    let mut parents = Vec::new();
    for _ in 0..draw.below(10) {
        let times = 1 + draw.below(3);
        groups.extend(vec![one(draw); times]);
        parents.extend(vec![one(draw); times]);
    }
    if draw.one_in(8) {
        parents.pop();
    }
    parsed(&groups, &parents);
}

/// Ids of a forest: groups are any distinct numbers; a padding tail now and then.
fn forest_ids(draw: &mut Draw<'_>) -> (Vec<i64>, Vec<i64>) {
    let longest = draw.pick(&[1, 4, 30, 70]);
    let (lengths, above) = draw.forest(10, longest);
    let (step, first) = (
        draw.pick(&[1, 1, -1, 1 << 40]),
        draw.pick(&[1, 0, -9, 1 << 61]),
    );
    let name = |i: i64| first + i * step;
    let (mut groups, mut parents) = (Vec::new(), Vec::new());
    for (i, (&length, &parent)) in lengths.iter().zip(&above).enumerate() {
        let own = name(i as i64);
        let parent = match parent {
            -1 if i == 0 && draw.coin() => -1,
            -1 => own,
            parent => name(parent),
        };
        groups.extend(vec![own; length as usize]);
        parents.extend(vec![parent; length as usize]);
    }
    let padding = if draw.one_in(4) { draw.below(9) } else { 0 };
    groups.extend(vec![-1; padding]);
    parents.extend(vec![draw.pick(&[-1, 0, 7]); padding]);
    (groups, parents)
}

/// The parser's answer, which is the slow parser's.
fn parsed(groups: &[i64], parents: &[i64]) -> Option<Segments> {
    let made = attention::parse(groups, parents);
    let expected = slow::parse(groups, parents);
    let Some((lengths, above)) = expected else {
        assert!(
            matches!(made, Err(Error::Input(_))),
            "{groups:?} {parents:?}"
        );
        return None;
    };
    let segments = made.unwrap();
    let found: Vec<i64> = (0..segments.len()).map(|s| segments.length(s)).collect();
    assert_eq!(found, lengths);
    assert_eq!(parents_of(&segments), above);
    let (queries, keys) = attention::slices(&segments).unwrap();
    let pairs: Vec<(i64, i64)> = queries.into_iter().zip(keys).collect();
    assert_eq!(pairs, slow::slices(&above));
    assert_eq!(attention::slice_count(&segments), Ok(pairs.len() as i64));
    Some(segments)
}

fn parents_of(segments: &Segments) -> Vec<Option<usize>> {
    (0..segments.len()).map(|s| segments.parent(s)).collect()
}

/// Settings of any size that a job could have, costs below zero included.
fn settings(draw: &mut Draw<'_>) -> AssignSettings {
    let block = draw.pick(&[1, 1, 2, 3, 16, 128]);
    let chunk = draw.pick(&[1, 2, 3, 5, 8, 16, 33, 512]);
    let few = |draw: &mut Draw<'_>| draw.between(-1, 9);
    let mut made = AssignSettings {
        block,
        chunk,
        chunk_budget_base: draw.pick(&[128, 0, -1, 1, 5, 1_000]),
        chunk_budget_per_rank: draw.pick(&[16, 0, -1, 1, 3, 1_000]),
        max_stages: 1 + few(draw).max(0),
        candidates: few(draw),
        steps: few(draw),
        ..AssignSettings::default()
    };
    if draw.coin() {
        // Times at which moves and stages pay in rows as short as these.
        made.remote_host_ms = draw.pick(&[0.01, 0.0, 1.2]);
        made.stage_overhead_ms = draw.pick(&[0.0, 0.02, 0.287_151]);
        made.local_pair_ms = draw.pick(&[0.05, 0.003, 0.0]);
        made.remote_pair_ms = draw.pick(&[0.06, 0.003, 0.0]);
        made.local_backward_pair_ms = draw.pick(&[0.1, 0.003]);
        made.remote_backward_pair_ms = draw.pick(&[0.12, 0.001]);
        made.owned_token_ms = draw.pick(&[0.3, 0.0, 2.0]);
        made.fetch_token_ms = draw.pick(&[0.01, 0.3]);
        made.interval_ms = draw.pick(&[0.0, 0.1]);
    }
    made.underfill_tokens = draw.pick(&[4096, 0, -5, 1, 40]);
    made.underfill_pairs = draw.pick(&[4_000_000, 0, -5, 1, 400]);
    if draw.one_in(6) {
        let cost = draw.pick(&[-0.1, -3.0]);
        match draw.below(4) {
            0 => made.interval_ms = cost,
            1 => made.local_pair_ms = cost,
            2 => made.owned_token_ms = cost,
            _ => made.underfill_ms = cost,
        }
    }
    if draw.one_in(3) {
        made.profile = Some(profile(draw));
    }
    made
}

fn profile(draw: &mut Draw<'_>) -> WorkloadProfile {
    let rate = |draw: &mut Draw<'_>| match draw.below(8) {
        6 => draw.any::<i64>().max(0),
        7 => i64::MAX,
        _ => draw.between(0, 4),
    };
    let stage = |draw: &mut Draw<'_>| StageWork {
        query_flops: rate(draw),
        tile_pair_flops: rate(draw),
        key_hbm_bytes: rate(draw),
        fetch_bytes: rate(draw),
        reduce_bytes: rate(draw),
        query_memory_bytes: rate(draw),
        key_memory_bytes: rate(draw),
    };
    let stages = (0..=draw.below(2)).map(|_| stage(draw)).collect();
    let size = |draw: &mut Draw<'_>| match draw.below(8) {
        7 => draw.wild().max(1),
        _ => draw.pick(&[1, 2, 4, 8, 64, 1_000]),
    };
    WorkloadProfile {
        stages,
        query_tile: size(draw),
        key_tile: size(draw),
        workspace_elements: size(draw),
        max_key_tokens: size(draw),
        max_ranges: draw.pick(&[2, 1, 3, i64::MAX]),
    }
}

/// The assignment is the slow one, to the last bit; so are its times by stage.
fn compare(draw: &mut Draw<'_>, segments: &Segments) {
    let settings = settings(draw);
    let ranks = draw.pick(&[1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 16, 70]);
    let mut workspace = Workspace::default();
    if draw.coin() {
        // What an earlier row left behind changes nothing.
        let other = Segments::new(&[9, 40, 3], &[-1, 0, 0]).unwrap();
        assign(&other, 3, &settings, &mut workspace).ok();
    }
    let made = assign(segments, ranks, &settings, &mut workspace);
    if segments.is_empty() {
        let made = made.unwrap();
        assert_eq!((made.owners.len(), made.chunk), (0, 0));
        assert_eq!(made.rank_tokens, vec![0; ranks]);
        return;
    }
    let lengths: Vec<i64> = (0..segments.len()).map(|s| segments.length(s)).collect();
    let Some(slow) = slow::assign(&lengths, &parents_of(segments), ranks, &settings) else {
        assert_eq!(made, Err(Error::Overflow("the indexer's work")));
        return;
    };
    let made = made.unwrap();
    same(&made, &slow);
    if let Some(bound) = made.bound {
        assert!(bound <= made.score, "{bound} {}", made.score);
    }
    let (stages, times) = stage_times(segments, ranks, &settings, &mut workspace).unwrap();
    assert_eq!(times.len(), ranks * (1 + 2 * stages));
    assert_eq!(times, slow.stage_times);
}

#[allow(clippy::float_cmp)] // to the last bit
fn same(made: &Assignment, slow: &slow::Answer) {
    assert_eq!(made.chunk, slow.chunk);
    assert_eq!(made.contiguous, slow.contiguous);
    assert_eq!(made.stages, slow.stages);
    assert_eq!(made.owners, slow.owners);
    assert_eq!(made.rank_tokens, slow.rank_tokens);
    assert_eq!(made.score, slow.score);
    match (&made.work, &slow.work) {
        (None, None) => {
            let times: Vec<(f64, f64)> = (made.forward_ms.iter().copied())
                .zip(made.backward_ms.iter().copied())
                .collect();
            assert_eq!(times, slow.times);
        }
        (Some(made), Some(slow)) => {
            assert_eq!(made.query_flops, slow.query_flops);
            assert_eq!(made.network_bytes, slow.network_bytes);
            assert_eq!(made.hbm_bytes, slow.hbm_bytes);
            assert_eq!(made.indexer_flops, slow.indexer_flops);
            assert_eq!(made.memory_bytes, slow.memory_bytes);
            assert_eq!(made.peers as usize, slow.peers);
            assert_eq!(made.ranges as usize, slow.ranges);
            assert_eq!(made.tile_pairs, slow.tile_pairs);
            assert_eq!(made.key_tokens, slow.key_tokens);
            assert_eq!(made.sent_tokens, slow.sent_tokens);
            assert_eq!(made.received_tokens, slow.received_tokens);
        }
        (made, _) => panic!("work {made:?}"),
    }
}

/// Rows and settings of any size: an error, or owners that cover the row.
fn hostile_assignment(draw: &mut Draw<'_>) {
    let Some(segments) = draw.wild_segments() else {
        return;
    };
    let mut settings = settings(draw);
    let one = |draw: &mut Draw<'_>, value: &mut i64| {
        if draw.one_in(4) {
            *value = draw.wild();
        }
    };
    one(draw, &mut settings.block);
    one(draw, &mut settings.chunk);
    one(draw, &mut settings.chunk_budget_base);
    one(draw, &mut settings.chunk_budget_per_rank);
    one(draw, &mut settings.max_stages);
    one(draw, &mut settings.candidates);
    one(draw, &mut settings.steps);
    one(draw, &mut settings.underfill_tokens);
    one(draw, &mut settings.underfill_pairs);
    if let Some(profile) = &mut settings.profile {
        one(draw, &mut profile.query_tile);
        one(draw, &mut profile.key_tile);
        one(draw, &mut profile.workspace_elements);
        one(draw, &mut profile.max_key_tokens);
        one(draw, &mut profile.max_ranges);
        if draw.one_in(6) {
            profile.stages.clear();
        }
    }
    let mut costs = [
        &mut settings.stage_overhead_ms,
        &mut settings.remote_host_ms,
        &mut settings.owned_token_ms,
        &mut settings.interval_ms,
        &mut settings.local_pair_ms,
        &mut settings.remote_backward_pair_ms,
        &mut settings.underfill_ms,
    ];
    for cost in &mut costs {
        if draw.one_in(5) {
            **cost = draw.wild_float();
        }
    }
    let ranks = draw.pick(&[1, 2, 3, 4, 8, 0, 300, MOST_RANKS + 1, usize::MAX]);
    // Rows of many chunks are allowed, and too slow to look for faults in.
    let few = |chunk: i64| segments.tokens() / chunk.max(1) <= 3_000;
    let most = settings.block >= 1 && ranks <= MOST_RANKS;
    if most && ranks > 0 && !few(settings.chunk_size(segments.tokens(), ranks)) {
        return;
    }
    let Ok(made) = assign(&segments, ranks, &settings, &mut Workspace::default()) else {
        return;
    };
    let chunks = (segments.tokens() - 1) / made.chunk + 1;
    assert_eq!(made.owners.len() as i64, chunks);
    assert!(made.owners.iter().all(|&owner| (owner as usize) < ranks));
    assert!(made.owners.iter().all(|&owner| owner != NONE));
    let total: i64 = made.rank_tokens.iter().sum();
    assert_eq!(total, segments.tokens());
    let again = assign(&segments, ranks, &settings, &mut Workspace::default()).unwrap();
    assert_eq!(again.owners, made.owners);
}
