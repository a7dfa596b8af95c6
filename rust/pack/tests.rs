use proptest::prelude::*;

use super::*;

fn flat(sequences: &[Vec<i64>]) -> (Vec<i64>, Vec<i64>) {
    let mut offsets = vec![0];
    offsets.extend(sequences.iter().scan(0, |at, sequence| {
        *at += sequence.len() as i64;
        Some(*at)
    }));
    (sequences.concat(), offsets)
}

fn packed(sequences: &[Vec<i64>], options: &PackOptions<'_>) -> Packing {
    let (tokens, offsets) = flat(sequences);
    let sequences = Sequences::new(&tokens, &offsets).unwrap();
    pack(&sequences, options).unwrap()
}

fn some_sequences() -> impl Strategy<Value = Vec<Vec<i64>>> {
    prop::collection::vec(prop::collection::vec(-1..2_i64, 0..9), 0..12)
}

proptest! {
    #![proptest_config(crate::testing::cases(256))]

    #[test]
    fn every_row_is_covered_exactly_once(
        sequences in some_sequences(),
        max_depth in prop::option::of(0..5_usize),
        min_shared in 0..5_i64,
        limits in prop::option::of(prop::collection::vec(-1..10_i64, 12)),
    ) {
        let shareable = limits.as_ref().map(|l| &l[..sequences.len()]);
        let packing = packed(&sequences, &PackOptions { max_depth, min_shared, shareable });
        let mut stored = vec![None; packing.segments.tokens() as usize];
        for (r, sequence) in sequences.iter().enumerate() {
            let positions = packing.positions(r);
            prop_assert_eq!(positions.len(), sequence.len());
            for (&at, &token) in positions.iter().zip(sequence) {
                // Sequences that share a packed token agree on it.
                prop_assert_eq!(*stored[at as usize].get_or_insert(token), token);
            }
            for s in packing.path(r) {
                prop_assert!(packing.sequences_of(s as usize).contains(&(r as u32)));
            }
        }
        prop_assert!(stored.iter().all(Option::is_some));
        for s in 0..packing.segments.len() {
            let members = packing.sequences_of(s);
            prop_assert!(!members.is_empty() && members.is_sorted());
            if members.len() > 1 {
                prop_assert!(packing.segments.length(s) >= min_shared.max(1));
            }
        }
    }

    #[test]
    fn full_sharing_is_the_least_and_monotone(sequences in some_sequences(), depth in 0..6_usize) {
        let full = packed(&sequences, &PackOptions::default());
        let limited = packed(&sequences, &PackOptions { max_depth: Some(depth), ..Default::default() });
        prop_assert!(full.segments.tokens() <= limited.segments.tokens());
        let (tokens, offsets) = flat(&sequences);
        let tree = Tree::build(&Sequences::new(&tokens, &offsets).unwrap()).unwrap();
        prop_assert_eq!(&tree.packed_prefixes()[sequences.len()], &full.segments.tokens());
        if let Some((_, fewer)) = sequences.split_last() {
            let fewer = packed(fewer, &PackOptions::default());
            prop_assert!(fewer.segments.tokens() <= full.segments.tokens());
        }
    }
}

#[test]
fn limits_of_another_length_are_refused() {
    let sequences = Sequences::new(&[1, 2], &[0, 1, 2]).unwrap();
    let options = PackOptions {
        shareable: Some(&[1]),
        ..PackOptions::default()
    };
    let refused = pack(&sequences, &options);
    assert!(matches!(refused, Err(Error::Input(m)) if m.contains("1 entries for 2 sequences")));
}

#[test]
fn made_elsewhere() {
    let segments = Segments::new(&[4, 2, 3, 5], &[-1, 0, 1, -1]).unwrap();
    let packing = Packing::from_segments(segments);
    assert_eq!(packing.sequence_start, [0, 4, 6, 0]);
    assert!(packing.sequences_of(2).is_empty());
}
