//! Unit tests of the ownership: against dense counts, invariants, limits.

use proptest::prelude::*;

use super::pairs::ChunkPairs;
use super::*;

/// Forests whose parents are any earlier segment, in tree order or not.
fn forests() -> impl Strategy<Value = Segments> {
    prop::collection::vec((1_i64..30, 0_u32..100), 1..20).prop_map(|drawn| {
        let lengths: Vec<i64> = drawn.iter().map(|&(length, _)| length).collect();
        let parents: Vec<i64> = drawn
            .iter()
            .enumerate()
            .map(|(i, &(_, pick))| i64::from(pick) % (i as i64 + 1) - 1)
            .collect();
        Segments::new(&lengths, &parents).unwrap()
    })
}

/// Pairs of every query chunk with every key chunk, token by token.
fn dense(segments: &Segments, chunk: i64) -> Vec<Vec<i64>> {
    let chunks = settings::ceil_div(segments.tokens(), chunk) as usize;
    let mut pairs = vec![vec![0; chunks]; chunks];
    for s in 0..segments.len() {
        for q in segments.starts[s]..segments.starts[s + 1] {
            let mut key = Some(s);
            while let Some(k) = key {
                let end = segments.starts[k + 1].min(q + 1);
                for at in segments.starts[k]..end {
                    pairs[(q / chunk) as usize][(at / chunk) as usize] += 1;
                }
                key = segments.parent(k);
            }
        }
    }
    pairs
}

/// The matrix that the runs stand for; the diagonal is what the weights leave.
fn expand(pairs: &ChunkPairs) -> Vec<Vec<i64>> {
    let chunks = pairs.len();
    (0..chunks)
        .map(|i| {
            let mut pack = vec![0; chunks];
            let mut above = 0;
            for run in pairs.pack(i) {
                assert!(above <= run.low && run.low < run.high && run.high <= i as u32);
                assert!(run.pairs > 0);
                above = run.high;
                pack[run.low as usize..run.high as usize].fill(run.pairs);
            }
            pack[i] = pairs.weights[i] - pack.iter().sum::<i64>();
            pack
        })
        .collect()
}

fn small(chunk: i64) -> OwnershipSettings {
    OwnershipSettings {
        block: 1,
        chunk,
        remote_host_ms: 0.01,
        local_pair_ms: 0.05,
        owned_token_ms: 0.3,
        ..OwnershipSettings::default()
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(256))]

    #[test]
    fn runs_are_the_dense_matrix(segments in forests(), chunk in 1_i64..40) {
        let mut pairs = ChunkPairs::default();
        // A workspace that held another pack answers like a fresh one.
        for size in [chunk + 3, chunk] {
            pairs.build(&segments, size).unwrap();
        }
        let want = dense(&segments, chunk);
        prop_assert_eq!(expand(&pairs), want.clone());
        for i in 0..pairs.len() {
            let attended = |pack: &Vec<i64>| pack.iter().position(|&n| n > 0).unwrap() as u32;
            let lowest = want[i..].iter().map(attended).min().unwrap();
            prop_assert_eq!(pairs.lowest_after[i], lowest);
            prop_assert_eq!(pairs.weight_sums[i + 1] - pairs.weight_sums[i], pairs.weights[i]);
        }
    }

    #[test]
    fn stopping_early_cuts_the_same(
        weights in prop::collection::vec(prop_oneof![Just(0.0), 0.0..5.0, Just(1.0)], 1..40),
        ranks in 1_usize..12,
    ) {
        let mut sums = vec![0.0];
        for weight in weights {
            sums.push(sums[sums.len() - 1] + weight);
        }
        let (mut early, mut full) = (Vec::new(), Vec::new());
        contiguous::cut(&sums, true, ranks, &mut early);
        contiguous::cut(&sums, false, ranks, &mut full);
        prop_assert_eq!(&early, &full);
        prop_assert!(early.is_sorted());
        if sums.len() > ranks {
            prop_assert!(early.windows(2).all(|cut| cut[0] < cut[1]));
        }
    }

    #[test]
    fn owners_cover_the_pack(segments in forests(), ranks in 1_usize..20, chunk in 1_i64..40) {
        let settings = small(chunk);
        let mut workspace = Workspace::default();
        let made = own(&segments, ranks, &settings, &mut workspace).unwrap();
        prop_assert_eq!(made.rank_tokens.iter().sum::<i64>(), segments.tokens());
        prop_assert!(made.owners.is_sorted());
        prop_assert!(made.owners.iter().all(|&owner| (owner as usize) < ranks));
        if made.owners.len() >= ranks {
            prop_assert!(made.rank_tokens.iter().all(|&tokens| tokens > 0));
        }
        prop_assert!(made.bound.unwrap() <= made.score);
        let still = OwnershipSettings { steps: 0, ..settings.clone() };
        let start = own(&segments, ranks, &still, &mut workspace).unwrap();
        prop_assert!(made.score <= start.score + 1e-9);
        prop_assert_eq!(&start.owners, &made.contiguous);
        let again = own(&segments, ranks, &settings, &mut workspace).unwrap();
        prop_assert_eq!(again, made);
    }

    #[test]
    fn profiles_keep_tokens(segments in forests(), ranks in 1_usize..6, max_ranges in 1_i64..3) {
        let work = StageWork { query_flops: 3, key_hbm_bytes: 1, fetch_bytes: 2, ..StageWork::default() };
        let settings = OwnershipSettings {
            profile: Some(WorkloadProfile {
                stages: vec![work],
                query_tile: 4,
                key_tile: 8,
                workspace_elements: 64,
                max_key_tokens: 32,
                max_ranges,
            }),
            ..small(3)
        };
        let made = own(&segments, ranks, &settings, &mut Workspace::default()).unwrap();
        let work = made.work.unwrap();
        prop_assert_eq!(made.rank_tokens.iter().sum::<i64>(), segments.tokens());
        prop_assert_eq!(
            work.sent_tokens.iter().sum::<i64>(),
            work.received_tokens.iter().sum::<i64>()
        );
        prop_assert!(made.bound.unwrap() <= made.score);
        for (rank, &keys) in work.key_tokens.iter().enumerate() {
            let own = keys - work.received_tokens[rank];
            prop_assert_eq!(own, made.rank_tokens[rank]);
        }
    }
}

#[test]
fn chunk_sizes() {
    let default = OwnershipSettings::default();
    assert_eq!(default.chunk_size(100_000, 2), 640);
    assert_eq!(default.chunk_size(700, 1), 512);
    assert_eq!(default.chunk_size(300, 1), 300);
    // Fewer chunks than ranks: an even share, not in blocks.
    assert_eq!(default.chunk_size(1000, 3), 333);
    assert_eq!(default.chunk_size(7, 4), 1);
    // Fewer tokens than ranks: one chunk.
    assert_eq!(default.chunk_size(5, 8), 5);
    let unlimited = OwnershipSettings {
        chunk_budget_base: -1,
        chunk_budget_per_rank: 0,
        ..default.clone()
    };
    assert_eq!(unlimited.chunk_size(1_000_000, 2), 512);
    let huge = OwnershipSettings {
        block: i64::MAX,
        chunk: i64::MAX,
        chunk_budget_base: i64::MAX,
        chunk_budget_per_rank: i64::MAX,
        ..default
    };
    assert_eq!(huge.chunk_size(1000, 2), 500);
    assert_eq!(huge.chunk_size(i64::MAX, 1), i64::MAX);
}

#[test]
fn refuses_in_one_line() {
    let with = |change: fn(&mut OwnershipSettings)| {
        let mut settings = OwnershipSettings::default();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    let ranks = |ranks| check_ranks(ranks).unwrap_err().to_string();
    assert!(ranks(0).contains("cp is 0"));
    assert!(ranks(MOST_RANKS + 1).contains("cp is 4097"));
    assert!(with(|s| s.block = 0).contains("block is 0"));
    assert!(with(|s| s.max_stages = 0).contains("max_stages is 0"));
    assert!(with(|s| s.fetch_token_ms = f64::NAN).contains("fetch_token_ms is NaN"));
    let empty = WorkloadProfile {
        stages: Vec::new(),
        query_tile: 1,
        key_tile: 1,
        workspace_elements: 1,
        max_key_tokens: 1,
        max_ranges: 1,
    };
    let settings = OwnershipSettings {
        profile: Some(empty),
        ..OwnershipSettings::default()
    };
    let refused = settings.check().unwrap_err().to_string();
    assert!(refused.contains("profile.stages"));
}

#[test]
fn refuses_rows_of_too_many_chunks() {
    let pack = Segments::new(&[1 << 30], &[-1]).unwrap();
    let settings = OwnershipSettings {
        block: 1,
        chunk: 1,
        chunk_budget_base: 0,
        chunk_budget_per_rank: 0,
        ..OwnershipSettings::default()
    };
    let made = own(&pack, 2, &settings, &mut Workspace::default());
    assert!(made.unwrap_err().to_string().contains("chunks of 1"));
}

#[test]
fn a_chain_of_single_tokens_is_one_segment() {
    let n = 5000;
    let chain = Segments::new(&vec![1; n], &(-1..n as i64 - 1).collect::<Vec<_>>()).unwrap();
    let whole = Segments::new(&[n as i64], &[-1]).unwrap();
    let settings = OwnershipSettings::default();
    let mut workspace = Workspace::default();
    let made = own(&chain, 3, &settings, &mut workspace).unwrap();
    assert_eq!(made, own(&whole, 3, &settings, &mut workspace).unwrap());
}
