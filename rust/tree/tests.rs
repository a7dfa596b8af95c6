use proptest::prelude::*;

use super::*;

/// Sequences as owned tokens and offsets.
fn flat(sequences: &[Vec<i64>]) -> (Vec<i64>, Vec<i64>) {
    let mut offsets = vec![0];
    let mut tokens = Vec::new();
    for sequence in sequences {
        tokens.extend_from_slice(sequence);
        offsets.push(tokens.len() as i64);
    }
    (tokens, offsets)
}

fn built(sequences: &[Vec<i64>]) -> Tree {
    let (tokens, offsets) = flat(sequences);
    let sequences = Sequences::new(&tokens, &offsets).unwrap();
    Tree::build(&sequences).unwrap()
}

/// A set of segments found from the definition: a segment ends where sequences with one prefix part
/// or where one of them ends.
fn by_definition(sequences: &[Vec<i64>]) -> Tree {
    let mut tree = Tree {
        terminal: vec![NONE; sequences.len()],
        ..Tree::default()
    };
    let all: Vec<usize> = (0..sequences.len())
        .filter(|&i| !sequences[i].is_empty())
        .collect();
    let mut pending = vec![(all, 0, NONE)];
    while let Some((members, at, parent)) = pending.pop() {
        let mut packs: Vec<Vec<usize>> = Vec::new();
        for i in members {
            let found = packs
                .iter_mut()
                .find(|g| sequences[g[0]][at] == sequences[i][at]);
            match found {
                Some(pack) => pack.push(i),
                None => packs.push(vec![i]),
            }
        }
        // The last pushed is visited first, so a lone pack goes on, others wait in order.
        for pack in packs.into_iter().rev() {
            pending.push((pack, at, parent));
        }
        let Some((pack, at, parent)) = pending.pop() else {
            break;
        };
        let shortest = pack.iter().map(|&i| sequences[i].len()).min().unwrap();
        let mut end = at;
        while end < shortest
            && pack
                .iter()
                .all(|&i| sequences[i][end] == sequences[pack[0]][end])
        {
            end += 1;
        }
        let segment = tree.parent.len() as u32;
        tree.parent.push(parent);
        tree.start.push(at as i64);
        tree.end.push(end as i64);
        tree.depth.push(match parent {
            NONE => 1,
            p => tree.depth[p as usize] + 1,
        });
        tree.count.push(pack.len() as u32);
        tree.first_sequence.push(pack[0] as u32);
        let (ended, below): (Vec<_>, Vec<_>) =
            pack.into_iter().partition(|&i| sequences[i].len() == end);
        for i in ended {
            tree.terminal[i] = segment;
        }
        if !below.is_empty() {
            pending.push((below, end, segment));
        }
    }
    for s in 0..tree.parent.len() {
        let below = (s + 1..tree.parent.len()).find(|&t| tree.depth[t] <= tree.depth[s]);
        tree.subtree.push(below.unwrap_or(tree.parent.len()) as u32);
    }
    tree
}

fn some_sequences() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let sequence = prop_oneof![
        prop::collection::vec(0..3_i64, 0..10),
        // Long equal runs cross the comparison's chunks.
        (0..200_usize, prop::collection::vec(0..2_i64, 0..3)).prop_map(|(n, tail)| {
            let mut sequence = vec![7; n];
            sequence.extend(tail);
            sequence
        }),
    ];
    prop::collection::vec(sequence, 0..14)
}

proptest! {
    #![proptest_config(crate::testing::cases(256))]

    #[test]
    fn build_follows_the_definition(sequences in some_sequences()) {
        prop_assert_eq!(built(&sequences), by_definition(&sequences));
    }

    #[test]
    fn restricting_equals_building(
        sequences in some_sequences(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let tree = built(&sequences);
        let mut workspace = TreeWorkspace::default();
        let mut small = Tree::default();
        let picks: Vec<u32> = if sequences.is_empty() {
            Vec::new()
        } else {
            picks.iter().map(|p| p.index(sequences.len()) as u32).collect()
        };
        // The second call runs on used workspaces.
        for k in [picks.len() / 2, picks.len()] {
            let chosen: Vec<_> = picks[..k].iter().map(|&r| sequences[r as usize].clone()).collect();
            let expected = built(&chosen);
            tree.restrict_into(&picks[..k], &mut workspace, &mut small).unwrap();
            prop_assert_eq!(&small, &expected);
            prop_assert_eq!(&tree.restrict(&picks[..k]).unwrap(), &expected);
        }
    }

    #[test]
    fn prefix_counts_equal_the_trees_of_the_prefixes(sequences in some_sequences()) {
        let prefixes = built(&sequences).packed_prefixes();
        prop_assert_eq!(prefixes.len(), sequences.len() + 1);
        for n in 0..=sequences.len() {
            prop_assert_eq!(prefixes[n], built(&sequences[..n]).packed_tokens());
        }
    }

    #[test]
    fn sequences_of_a_subtree_are_contiguous(sequences in some_sequences()) {
        let tree = built(&sequences);
        let (offsets, ended) = tree.terminal_sequences();
        for s in 0..tree.len() {
            let through = &ended[offsets[s] as usize..offsets[tree.subtree[s] as usize] as usize];
            prop_assert_eq!(through.len(), tree.count[s] as usize);
            prop_assert_eq!(through.iter().min(), Some(&tree.first_sequence[s]));
        }
    }
}

#[test]
fn deep_and_wide_trees_are_cheap() {
    // A comb: sequence i leaves a common run after i tokens; every level is a segment.
    let comb: Vec<Vec<i64>> = (0..1_500)
        .map(|i| (0..=i).map(|at| if at == i { -1 } else { at }).collect())
        .collect();
    let tree = built(&comb);
    assert_eq!(tree.len(), 2 * comb.len() - 2);
    assert_eq!(tree.depth.iter().max(), Some(&1_499));
    // Siblings by the thousand, and equal sequences.
    let wide: Vec<Vec<i64>> = (0..50_000).map(|i| vec![i % 25_000, 1]).collect();
    let tree = built(&wide);
    assert_eq!((tree.len(), tree.count[7]), (25_000, 2));
    let backwards: Vec<u32> = (0..50_000).rev().collect();
    assert_eq!(tree.restrict(&backwards).unwrap().terminal[0], 0);
}

proptest! {
    /// Tokens that may not be shared count as if they were different in every sequence.
    #[test]
    fn what_may_not_be_shared_differs_from_everything(
        sequences in prop::collection::vec(prop::collection::vec(0_i64..3, 0..8), 0..8),
        none in any::<bool>(),
    ) {
        let limit = |s: &Vec<i64>| s.iter().position(|&t| none || t == 2).unwrap_or(s.len()) as i64;
        let limits: Vec<i64> = sequences.iter().map(limit).collect();
        let mut apart = sequences.clone();
        for (i, sequence) in apart.iter_mut().enumerate() {
            for token in &mut sequence[limits[i] as usize..] {
                *token = 100 + i as i64;
            }
        }
        let (tokens, offsets) = flat(&sequences);
        let sequences = Sequences::new(&tokens, &offsets).unwrap();
        let wanted = built(&apart);
        prop_assert_eq!(Tree::build_shareable(&sequences, &limits).unwrap(), wanted);
    }
}
