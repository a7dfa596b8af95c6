use proptest::prelude::*;

use super::*;
use crate::ownership::MOST_RANKS;

/// An ownership of `segments` in chunks of `chunk`, owners given.
fn assigned(segments: &Segments, ranks: usize, chunk: i64, owners: &[u32]) -> Ownership {
    let tokens = segments.tokens();
    let mut rank_tokens = vec![0; ranks];
    for (i, &owner) in owners.iter().enumerate() {
        let start = i as i64 * chunk;
        rank_tokens[owner as usize] += (start + chunk).min(tokens) - start;
    }
    Ownership {
        ranks,
        tokens,
        chunk,
        owners: owners.to_vec(),
        rank_tokens,
        ..Ownership::default()
    }
}

/// Contiguous owners, about equal numbers of chunks each.
fn even(segments: &Segments, ranks: usize, chunk: i64) -> Ownership {
    let chunks = (segments.tokens() - 1) / chunk + 1;
    let owners: Vec<u32> = (0..chunks)
        .map(|i| (i * ranks as i64 / chunks) as u32)
        .collect();
    assigned(segments, ranks, chunk, &owners)
}

fn run(segments: &Segments, ownership: &Ownership) -> Gdn {
    let settings = GdnSettings::default();
    gdn(
        segments,
        ownership,
        &settings,
        None,
        &mut Workspace::default(),
    )
    .unwrap()
}

#[test]
fn constants_of_a_model_shape() {
    let shape = Shape {
        hidden: 2048,
        key_heads: 16,
        value_heads: 32,
        key_dim: 128,
        value_dim: 128,
        conv: 4,
        tp: 1,
    };
    let settings = GdnSettings::from_shape(&shape).unwrap();
    assert_eq!(
        settings,
        GdnSettings {
            dense_rate: 771.845_361_138_132_3,
            parent_bytes: 2_146_304,
            parent_bandwidth: 458_500_000.0,
            ..GdnSettings::default()
        }
    );
    for broken in [
        Shape { hidden: 0, ..shape },
        Shape { conv: -1, ..shape },
        Shape { tp: 3, ..shape },
        Shape { tp: 32, ..shape },
    ] {
        let refused = GdnSettings::from_shape(&broken);
        assert!(matches!(refused, Err(Error::Input(_))));
    }
    let huge = Shape {
        value_dim: i64::MAX,
        ..shape
    };
    let refused = GdnSettings::from_shape(&huge);
    assert!(matches!(refused, Err(Error::Overflow(_))));
}

#[test]
fn refuses_what_does_not_fit_together() {
    let pack = Segments::new(&[100, 28], &[-1, 0]).unwrap();
    let good = even(&pack, 2, 64);
    let settings = GdnSettings::default();
    let mut workspace = Workspace::default();
    let longer = even(&Segments::new(&[127], &[-1]).unwrap(), 2, 64);
    let none = Segments::default();
    for (pack, ownership) in [
        (&none, &good),
        (&pack, &Ownership::default()),
        (&pack, &longer),
    ] {
        let refused = gdn(pack, ownership, &settings, None, &mut workspace);
        assert!(matches!(refused, Err(Error::Input(text)) if !text.contains('\n')));
    }
    for change in [
        |s: &mut GdnSettings| s.local_rate = 0.0,
        |s: &mut GdnSettings| s.dense_rate = f64::NAN,
        |s: &mut GdnSettings| s.scan_bucket_ms = -1.0,
        |s: &mut GdnSettings| s.hidden_bytes = -1,
    ] {
        let mut changed = settings.clone();
        change(&mut changed);
        assert!(matches!(changed.check(), Err(Error::Input(text)) if !text.contains('\n')));
    }
    let endless = Segments::new(&[i64::MAX - 1], &[-1]).unwrap();
    let ownership = assigned(&endless, 2, i64::MAX, &[1]);
    let refused = gdn(&endless, &ownership, &settings, None, &mut workspace);
    assert!(matches!(refused, Err(Error::Overflow(_))));
}

#[test]
fn refuses_more_counts_than_memory_holds() {
    let count = MOST_CELLS / MOST_RANKS + 1;
    let pack = Segments::new(&vec![1; count], &vec![-1; count]).unwrap();
    let wide = assigned(&pack, MOST_RANKS, 64, &[0, 1]);
    let settings = GdnSettings::default();
    let refused = gdn(&pack, &wide, &settings, None, &mut Workspace::default());
    assert!(matches!(refused, Err(Error::Input(text)) if text.contains("16385 segments")));
}

#[test]
fn one_long_row_is_chained() {
    let pack = Segments::new(&[100_003], &[-1]).unwrap();
    let answer = run(&pack, &even(&pack, 4, 512));
    assert_eq!(answer.chained, [true]);
    assert_eq!(answer.owner, [NONE]);
    assert_eq!(answer.rank_tokens, answer.shards);
    let (last, others) = answer.shards.split_last().unwrap();
    assert!(others.iter().all(|shard| shard % KERNEL_CHUNK == 0) && *last > 0);
    assert_eq!(answer.rank_tokens.iter().sum::<i64>(), 100_003);
    assert!(answer.bound <= answer.score);
}

#[test]
fn the_attention_layout_serves_as_shards_where_it_can() {
    let pack = Segments::new(&[200_000], &[-1]).unwrap();
    let split = assigned(&pack, 2, 128 * 800, &[0, 1]);
    let answer = run(&pack, &split);
    assert_eq!(answer.shards, [102_400, 97_600]);
    assert_eq!(answer.cross_tokens, 0);
    // Two chunks on one rank are two pieces; the other order is none of ours.
    for (chunk, owners) in [(128 * 400, &[0, 0, 1, 1][..]), (128 * 800, &[1, 0])] {
        let answer = run(&pack, &assigned(&pack, 2, chunk, owners));
        assert_eq!(answer.shards, [100_032, 99_968]);
        assert!(answer.cross_tokens > 0);
    }
}

#[test]
fn schedule_of_a_tree() {
    // Root of 130 with two children, one of which has a child; a childless root.
    let pack = Segments::new(&[130, 10, 7, 20, 50], &[-1, 0, 1, 0, -1]).unwrap();
    let expected = Schedule {
        executed_tokens: 128 + (2 + 10) + 7 + (2 + 20) + 50,
        // The root twice, the bucket of its children twice each, the grandchild, the lone root.
        states: 2 + 2 * 2 + 1 + 1,
        packed_tokens: 217,
    };
    assert_eq!(gdn_schedule(&pack), expected);
    let answer = run(&pack, &even(&pack, 1, 64));
    assert_eq!(gdn_schedule_per_rank(&pack, &answer), [expected]);
}

#[test]
fn schedule_of_shards_costs_what_whole_rows_cost() {
    let one = Segments::new(&[64_000], &[-1]).unwrap();
    let four = Segments::new(&[256_000], &[-1]).unwrap();
    let answer = run(&four, &even(&four, 4, 512));
    assert_eq!(answer.chained, [true]);
    assert_eq!(
        gdn_schedule_per_rank(&four, &answer),
        [gdn_schedule(&one); 4]
    );
}

#[test]
fn a_tail_runs_once_where_no_child_replays_it() {
    let pack = Segments::new(&[100, 30], &[-1, 0]).unwrap();
    let apart = Gdn {
        rank_tokens: vec![100, 30],
        owner: vec![0, 1],
        chained: vec![false, false],
        ..Gdn::default()
    };
    let expected =
        [(100, 2, 100), (30, 1, 30)].map(|(executed_tokens, states, packed_tokens)| Schedule {
            executed_tokens,
            states,
            packed_tokens,
        });
    assert_eq!(gdn_schedule_per_rank(&pack, &apart), expected);
}

#[test]
fn walk_order_is_depth_first_whatever_the_packed_order() {
    // Breadth first: two roots, then their children in turns.
    let mixed = Segments::new(&[40, 30, 5, 6, 7, 8], &[-1, -1, 0, 1, 0, 1]).unwrap();
    let answer = run(&mixed, &even(&mixed, 2, 16));
    assert_eq!(answer.rank_tokens.iter().sum::<i64>(), 96);
    // The limit is 48: both subtrees are larger or not, and their parts follow their root.
    assert_eq!(answer.owner.len(), 6);
    assert_eq!(answer.owner[1], answer.owner[3]);
    assert_eq!(answer.owner[1], answer.owner[5]);
}

/// Random forests with some long segments.
fn forests() -> impl Strategy<Value = Segments> {
    let segment = (prop_oneof![1..100_i64, 1..20_000_i64], any::<u32>());
    prop::collection::vec(segment, 1..40).prop_map(|drawn| {
        let lengths: Vec<i64> = drawn.iter().map(|(length, _)| *length).collect();
        let parents: Vec<i64> = (drawn.iter().enumerate())
            .map(|(i, (_, pick))| i64::from(pick % (i as u32 + 1)) - 1)
            .collect();
        Segments::new(&lengths, &parents).unwrap()
    })
}

proptest! {
    #![proptest_config(crate::testing::cases(64))]

    #[test]
    fn every_token_has_one_rank(pack in forests(), ranks in 1..9_usize, chunk in 1..9_i64) {
        let ownership = even(&pack, ranks, (chunk * 128).min(pack.tokens()));
        let mut workspace = Workspace::default();
        let settings = GdnSettings::default();
        let answer = gdn(&pack, &ownership, &settings, None, &mut workspace).unwrap();
        let mut tokens = vec![0; ranks];
        let mut shards = answer.shards.chunks(ranks);
        for s in 0..pack.len() {
            if answer.chained[s] {
                let cut = shards.next().unwrap();
                prop_assert_eq!(cut.iter().sum::<i64>(), pack.length(s));
                prop_assert!(cut.iter().all(|&shard| shard > 0));
                prop_assert!(cut[..ranks - 1].iter().all(|shard| shard % KERNEL_CHUNK == 0));
                prop_assert_eq!(answer.owner[s], NONE);
                for (total, shard) in tokens.iter_mut().zip(cut) {
                    *total += shard;
                }
            } else {
                tokens[answer.owner[s] as usize] += pack.length(s);
            }
        }
        prop_assert!(shards.next().is_none());
        prop_assert_eq!(&tokens, &answer.rank_tokens);
        prop_assert!((0..=pack.tokens()).contains(&answer.cross_tokens));
        prop_assert!(answer.bound <= answer.score);
        // A used workspace changes nothing.
        let again = gdn(&pack, &ownership, &settings, None, &mut workspace).unwrap();
        prop_assert_eq!(&again, &answer);

        let schedules = gdn_schedule_per_rank(&pack, &answer);
        for (schedule, &tokens) in schedules.iter().zip(&answer.rank_tokens) {
            prop_assert_eq!(schedule.packed_tokens, tokens);
            prop_assert!(schedule.executed_tokens >= tokens);
        }
        if ranks == 1 {
            prop_assert_eq!(schedules[0], gdn_schedule(&pack));
        }
    }
}
