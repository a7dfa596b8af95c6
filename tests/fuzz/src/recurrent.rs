//! Recurrent layers: placements, and what each rank executes.

use std::collections::BTreeMap;

use waveplan::assign::{Assignment, MOST_RANKS};
use waveplan::recurrent::{
    Recurrent, RecurrentSettings, Schedule, Shape, Workspace, gdn_schedule, gdn_schedule_per_rank,
    recurrent,
};
use waveplan::segments::{NONE, Segments};

use crate::draw::Draw;
use crate::slow::recurrent as slow;

/// One input.
pub fn check(data: &[u8]) {
    let mut draw = Draw::new(data);
    if draw.one_in(6) {
        hostile(&mut draw);
        shapes(&mut draw);
        return;
    }
    let longest = draw.pick(&[20_000, 300, 3_000]);
    let (lengths, parents) = draw.forest(11, longest);
    let segments = Segments::new(&lengths, &parents).unwrap();
    let assignment = assignment(&mut draw, &segments);
    let settings = settings(&mut draw);
    let row = slow::Row {
        lengths,
        parents: (0..segments.len()).map(|s| segments.parent(s)).collect(),
        ranks: assignment.ranks,
        chunk: assignment.chunk,
        owners: assignment.owners.clone(),
    };
    let mut workspace = Workspace::default();
    if draw.coin() {
        // What an earlier row left behind changes nothing.
        let other = Segments::new(&[900, 4_000, 30], &[-1, 0, 0]).unwrap();
        let chunks = Assignment {
            ranks: 2,
            tokens: 4_930,
            chunk: 2_465,
            owners: vec![0, 1],
            ..Assignment::default()
        };
        recurrent(&other, &chunks, &settings, &mut workspace).unwrap();
    }
    let made = recurrent(&segments, &assignment, &settings, &mut workspace).unwrap();
    same(&row, &settings, &made);
    check_schedules(&row, &segments, &made);
}

/// Chunks of the row with owners in any order.
fn assignment(draw: &mut Draw<'_>, segments: &Segments) -> Assignment {
    let tokens = segments.tokens();
    let ranks = 1 + draw.below(6);
    let chunk = draw.pick(&[64, 100, 128, 1_024]).max(tokens / 40 / 64 * 64);
    let chunks = ((tokens - 1) / chunk + 1) as usize;
    let mut owners: Vec<u32> = (0..chunks).map(|i| (i * ranks / chunks) as u32).collect();
    let contiguous = draw.coin();
    if !contiguous {
        owners.fill_with(|| draw.below(ranks) as u32);
        if draw.coin() {
            owners.sort_unstable();
        }
    }
    Assignment {
        ranks,
        tokens,
        chunk,
        owners,
        ..Assignment::default()
    }
}

/// Settings under which chains pay, mostly.
fn settings(draw: &mut Draw<'_>) -> RecurrentSettings {
    let mut made = RecurrentSettings::default();
    if draw.coin() {
        made.chain_bucket_ms = 0.01;
        made.scan_bucket_ms = 0.01;
        made.scan_rate = 900.0;
        made.min_gain_ms = 0.0;
    }
    if draw.coin() {
        made.beam_width = draw.between(-1, 4);
        made.branch = draw.between(-1, 5);
        made.candidates = draw.pick(&[16, 0, 1, 2, 5, 100, -3]);
        made.max_steps = draw.between(-1, 6);
        made.exchange_bandwidth = draw.pick(&[448e6, 1e5, 1e7]);
        made.min_gain_ms = draw.pick(&[0.0, 0.5, 2.0]);
        made.parent_bytes = draw.pick(&[262_144, 0, 1 << 30]);
        made.local_bucket_ms = draw.pick(&[2.2, 0.0]);
        made.hidden_bytes = draw.pick(&[4_096, 4_096, 0, 1]);
        made.local_rate = draw.pick(&[1_500.0, 1e12, 3.0]);
    }
    made
}

fn same(row: &slow::Row, settings: &RecurrentSettings, made: &Recurrent) {
    let chained = slow::chained_segments(row, settings);
    let placed = slow::place(row, settings, &chained);
    assert_eq!(made.rank_tokens, placed.loads);
    let owner: Vec<u32> = (placed.owner.iter())
        .map(|owner| owner.map_or(NONE, |rank| rank as u32))
        .collect();
    assert_eq!(made.owner, owner);
    let flags: Vec<bool> = (0..owner.len()).map(|s| chained.contains(&s)).collect();
    assert_eq!(made.chained, flags);
    assert_eq!(made.cross_tokens, placed.moved);
    let score = slow::score(row, settings, &chained);
    assert!(
        made.score.total_cmp(&score).is_eq(),
        "{} {score}",
        made.score
    );
    assert!(made.bound <= made.score);
    let shards: Vec<i64> = chained
        .iter()
        .flat_map(|&s| row.shards(s).unwrap().0)
        .collect();
    assert_eq!(made.shards, shards);
}

fn counts(schedule: &Schedule) -> (i64, i64, i64) {
    (
        schedule.executed_rows,
        schedule.state_rows,
        schedule.packed_rows,
    )
}

fn check_schedules(row: &slow::Row, segments: &Segments, made: &Recurrent) {
    let whole: BTreeMap<usize, i64> = row.lengths.iter().copied().enumerate().collect();
    assert_eq!(counts(&gdn_schedule(segments)), slow::schedule(row, &whole));
    let mut held = vec![BTreeMap::new(); row.ranks];
    let mut cuts = made.shards.chunks_exact(row.ranks);
    for (s, &length) in row.lengths.iter().enumerate() {
        if made.chained[s] {
            for (rank, &shard) in cuts.next().unwrap().iter().enumerate() {
                held[rank].insert(s, shard);
            }
        } else {
            held[made.owner[s] as usize].insert(s, length);
        }
    }
    let schedules: Vec<_> = (gdn_schedule_per_rank(segments, made).iter())
        .map(counts)
        .collect();
    let expected: Vec<_> = held.iter().map(|held| slow::schedule(row, held)).collect();
    assert_eq!(schedules, expected);
}

/// Rows, assignments and settings of any size: an error, or a placement of every token.
fn hostile(draw: &mut Draw<'_>) {
    let Some(segments) = draw.wild_segments() else {
        return;
    };
    let mut settings = settings(draw);
    let integers = [
        &mut settings.hidden_bytes,
        &mut settings.exchanges,
        &mut settings.summary_bytes,
        &mut settings.summary_exchanges,
        &mut settings.parent_bytes,
        &mut settings.beam_width,
        &mut settings.branch,
        &mut settings.candidates,
    ];
    for value in integers {
        if draw.one_in(8) {
            *value = draw.wild();
        }
    }
    let floats = [
        &mut settings.exchange_bandwidth,
        &mut settings.local_rate,
        &mut settings.chain_rate,
        &mut settings.dense_rate,
        &mut settings.summary_bandwidth,
        &mut settings.scan_rate,
        &mut settings.local_bucket_ms,
        &mut settings.scan_bucket_ms,
        &mut settings.min_gain_ms,
    ];
    for value in floats {
        if draw.one_in(8) {
            *value = draw.wild_float();
        }
    }
    let tokens = segments.tokens();
    let ranks = draw.pick(&[
        2,
        1,
        3,
        8,
        0,
        100,
        MOST_RANKS,
        NONE as usize - 1,
        usize::MAX,
    ]);
    let least = tokens / 50 + 1;
    let mut chunk = least + draw.below(3) as i64;
    let mut owners: Vec<u32> = (0..=(tokens - 1) / chunk)
        .map(|i| (i as usize % ranks.max(1)) as u32)
        .collect();
    match draw.below(8) {
        0 => chunk = draw.wild(),
        1 => owners.truncate(draw.below(owners.len())),
        2 => owners[0] = draw.any(),
        3 => owners.fill(0),
        _ => {}
    }
    let assignment = Assignment {
        ranks,
        tokens: if draw.one_in(8) { draw.wild() } else { tokens },
        chunk,
        owners,
        ..Assignment::default()
    };
    let made = recurrent(&segments, &assignment, &settings, &mut Workspace::default());
    let Ok(made) = made else {
        return;
    };
    assert_eq!(made.rank_tokens.iter().sum::<i64>(), tokens);
    assert!((0..=tokens).contains(&made.cross_tokens));
    for (schedule, &rows) in gdn_schedule_per_rank(&segments, &made)
        .iter()
        .zip(&made.rank_tokens)
    {
        assert_eq!(schedule.packed_rows, rows);
        assert!(schedule.executed_rows >= rows);
    }
    assert!(gdn_schedule(&segments).executed_rows >= tokens);
}

/// Layer shapes of any size: an error, or constants that every row can be placed with.
fn shapes(draw: &mut Draw<'_>) {
    let mut size = |of: &[i64]| match draw.below(8) {
        7 => draw.wild(),
        _ => draw.pick(of),
    };
    let shape = Shape {
        hidden: size(&[2_048, 1, 5_120]),
        key_heads: size(&[16, 4, 1]),
        value_heads: size(&[32, 4, 1]),
        key_dim: size(&[128, 1]),
        value_dim: size(&[128, 1]),
        conv: size(&[4, 1]),
        tp: size(&[1, 2, 4]),
    };
    let Ok(settings) = RecurrentSettings::from_shape(&shape) else {
        return;
    };
    let segments = Segments::new(&[300, 50, 640], &[-1, 0, -1]).unwrap();
    let assignment = Assignment {
        ranks: 2,
        tokens: 990,
        chunk: 495,
        owners: vec![0, 1],
        ..Assignment::default()
    };
    if let Ok(made) = recurrent(&segments, &assignment, &settings, &mut Workspace::default()) {
        assert_eq!(made.rank_tokens.iter().sum::<i64>(), 990);
    }
}
