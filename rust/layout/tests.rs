use super::trees::{Dice, tree};
use super::*;
use crate::segments::NONE;

fn chosen(tree: &Tree, forest: &Forest, dice: &mut Dice) -> (Vec<bool>, Vec<bool>) {
    let flags: Vec<bool> = (0..forest.len()).map(|_| dice.roll(2) == 1).collect();
    let mut shared = vec![false; tree.parent.len()];
    for (i, &flag) in flags.iter().enumerate() {
        shared[forest.tree_segment[i] as usize] = flag;
    }
    (flags, shared)
}

#[test]
fn measures_are_those_of_the_packed_sequence() {
    let mut dice = Dice(7);
    for round in 0..400 {
        let sequences = dice.sequences(1 + round % 17, 5, 3, 90);
        let tree = tree(&sequences);
        let forest = Forest::new(&tree, 64).unwrap();
        let (flags, shared) = chosen(&tree, &forest, &mut dice);
        let m = forest.measure(&flags);
        let packing = pack(&tree, &shared).unwrap();
        let s = &packing.segments;
        let mut depth = vec![0_i64; s.len()];
        for i in 0..s.len() {
            depth[i] = 1 + s.parent(i).map_or(0, |p| depth[p]);
        }
        assert_eq!(m.tokens, s.tokens());
        assert_eq!(m.segments, s.len() as i64);
        assert_eq!(m.depth, depth.iter().copied().max().unwrap());
        let tiny = (0..s.len()).filter(|&i| s.length(i) < 64).count();
        assert_eq!(m.tiny, tiny as i64);
    }
}

#[test]
fn a_packed_row_spells_every_sequence() {
    let mut dice = Dice(11);
    for round in 0..200 {
        let sequences = dice.sequences(1 + round % 13, 6, 2, 4);
        let tree = tree(&sequences);
        let forest = Forest::new(&tree, 0).unwrap();
        let (_, shared) = chosen(&tree, &forest, &mut dice);
        let p = pack(&tree, &shared).unwrap();
        let mut spelled = vec![0_i64; sequences.len()];
        for i in 0..p.segments.len() {
            let range = p.member_offsets[i] as usize..p.member_offsets[i + 1] as usize;
            let members = &p.members[range];
            assert!(!members.is_empty() && members.is_sorted());
            for &sequence in members {
                assert_eq!(spelled[sequence as usize], p.sequence_start[i]);
                spelled[sequence as usize] += p.segments.length(i);
            }
            let parent = p.segments.parents[i];
            assert!(parent == NONE || (parent as usize) < i);
        }
        let lengths: Vec<i64> = sequences.iter().map(|r| r.len() as i64).collect();
        assert_eq!(spelled, lengths);
    }
}

#[test]
fn refuses_what_has_no_layout() {
    let scoring = Scoring {
        version: Version::One,
        coefficients: [0; 10],
        tp: 1,
        cp: 1,
        layers: 1,
        gdn_layers: 0,
        uses_gdn: Some(false),
    };
    let empty = Tree::default();
    assert!(choose(&empty, &scoring, Method::Full).is_err());
    let mut one = tree(&[vec![1], vec![1, 2]]);
    assert!(choose(&one, &scoring, Method::Full).is_ok());
    one.terminal.push(NONE);
    assert!(choose(&one, &scoring, Method::Full).is_err());
    assert!(shape(&one, &[true]).is_err());
}

/// A scoring with facts and coefficients at random, small ones and zeros among them.
fn any_scoring(dice: &mut Dice) -> Scoring {
    let pick = |dice: &mut Dice, of: &[i64]| of[dice.roll(of.len() as u64) as usize];
    let layers = pick(dice, &[1, 2, 3, 12, 40]);
    let version = if dice.roll(3) == 0 {
        Version::One
    } else {
        Version::Two
    };
    let mut coefficients = [0; 10];
    for coefficient in &mut coefficients {
        *coefficient = pick(dice, &[0, 0, 1, 2, 7, 45, 229, 1986, 52_742]);
    }
    if coefficients[..5].iter().all(|&c| c == 0) {
        coefficients[0] = 3;
    }
    Scoring {
        version,
        coefficients,
        tp: pick(dice, &[1, 1, 2, 3]),
        cp: pick(dice, &[1, 2, 3, 4, 5, 8]),
        layers,
        gdn_layers: pick(dice, &[0, 1, layers]),
        uses_gdn: Some(dice.roll(2) == 1),
    }
}

/// Sequences in one of several shapes: dense tries, chains, long runs.
pub(super) fn any_sequences(dice: &mut Dice) -> Vec<Vec<i64>> {
    let count = 2 + dice.roll(18);
    match dice.roll(4) {
        0 => dice.sequences(count, 6, 2, 1),
        1 => dice.sequences(count, 5, 3, 200),
        2 => {
            let most = 1 + dice.roll(60);
            let length = |dice: &mut Dice| 1 + dice.roll(most);
            (0..count).map(|_| vec![1; length(dice) as usize]).collect()
        }
        _ => dice.sequences(count, 8, 2, 40),
    }
}

/// The best layout by trying all of them.
fn exhaustive(forest: &Forest, weights: &Weights, most_tokens: i64) -> Option<(Score, Vec<usize>)> {
    let n = forest.len();
    (0..1_u32 << n)
        .filter_map(|set| {
            let flags: Vec<bool> = (0..n).map(|i| set >> i & 1 == 1).collect();
            let measures = forest.measure(&flags);
            let score = weights.score(&measures);
            (measures.tokens <= most_tokens)
                .then(|| (score, (0..n).filter(|&i| flags[i]).collect()))
        })
        .min()
}

fn listed(tree: &Tree, forest: &Forest, layout: &Layout) -> Vec<usize> {
    assert_eq!(layout.shared.len(), tree.len());
    let shared = |&i: &usize| layout.shared[forest.tree_segment[i] as usize];
    (0..forest.len()).filter(shared).collect()
}

#[test]
fn the_two_forms_of_a_score_agree() {
    let mut dice = Dice(3);
    for _ in 0..3000 {
        let scoring = any_scoring(&mut dice);
        let weights = scoring.weights();
        let m = Measures {
            tokens: dice.roll(1 << 30) as i64,
            segments: dice.roll(5000) as i64,
            chosen: dice.roll(5000) as i64,
            depth: 1 + dice.roll(40) as i64,
            tiny: dice.roll(5000) as i64,
        };
        assert_eq!(scoring.score(&m), weights.score(&m), "{scoring:?} {m:?}");
        let (least, most) = weights.rounding_range();
        assert!((least..=most).contains(&weights.rounding(m.tokens)));
    }
}

#[test]
fn exact_is_what_trying_all_layouts_finds() {
    let mut dice = Dice(5);
    let mut workspace = Workspace::default();
    let mut tried = 0;
    while tried < 1500 {
        let tree = tree(&any_sequences(&mut dice));
        let scoring = any_scoring(&mut dice);
        let weights = scoring.weights();
        let forest = Forest::new(&tree, weights.tiny_below).unwrap();
        if forest.len() > 14 {
            continue;
        }
        tried += 1;
        let (score, list) = exhaustive(&forest, &weights, i64::MAX).unwrap();
        // Narrow sums, wide ones, and narrow sums of the work alone.
        let most = exact::Unit::new(&forest, &weights).unwrap().most;
        for narrow_below in [1 << 61, 0, most] {
            workspace.tables.narrow_below = narrow_below;
            let layout = workspace
                .choose(&tree, &scoring, &Options::default())
                .unwrap();
            let best = (layout.score, listed(&tree, &forest, &layout));
            assert!(layout.optimal);
            assert_eq!(layout.bound, score.work);
            assert_eq!(best, (score, list.clone()), "{scoring:?} {tree:?}");
        }
    }
}

#[test]
fn exact_is_never_worse_than_the_reference() {
    let mut dice = Dice(9);
    for round in 0..400 {
        let tree = tree(&dice.sequences(2 + round % 60, 9, 3, 1 + round % 50));
        let scoring = any_scoring(&mut dice);
        let exact = choose(&tree, &scoring, Method::Exact).unwrap();
        let reference = choose(&tree, &scoring, Method::Reference).unwrap();
        assert!(exact.optimal);
        assert!(exact.score <= reference.score);
        assert!(reference.bound <= exact.score.work);
    }
}

#[test]
fn fits_is_what_trying_all_layouts_under_the_limit_finds() {
    let mut dice = Dice(13);
    let (mut proven, mut tried, mut between) = (0, 0, [0; 4]);
    while tried < 500 {
        let tree = tree(&any_sequences(&mut dice));
        let scoring = any_scoring(&mut dice);
        let weights = scoring.weights();
        let forest = Forest::new(&tree, weights.tiny_below).unwrap();
        if forest.len() > 10 {
            continue;
        }
        tried += 1;
        let full = tree.packed_tokens();
        let room = forest.unshared_tokens - full;
        let most = full + dice.roll(room as u64 + 1) as i64;
        let mut workspace = Workspace::default();
        assert_eq!(workspace.fits(&tree, &scoring, full - 1).unwrap(), None);
        let layout = workspace.fits(&tree, &scoring, most).unwrap().unwrap();
        let (score, list) = exhaustive(&forest, &weights, most).unwrap();
        assert!(layout.packed_tokens <= most);
        assert!(layout.bound <= score.work);
        proven += usize::from(layout.optimal);
        if layout.optimal {
            assert_eq!(
                (layout.score, listed(&tree, &forest, &layout)),
                (score, list)
            );
        }
        // Those that a price finds are the cheapest of their tokens, up to rounding.
        let parts = workspace.between(&tree, &scoring).unwrap();
        let cheapest = workspace.fits(&tree, &scoring, full + room).unwrap();
        let most = cheapest.unwrap().packed_tokens;
        assert!(parts.is_sorted_by(|a, b| a.packed_tokens < b.packed_tokens));
        for part in &parts {
            assert!(full < part.packed_tokens && part.packed_tokens < most);
            let (score, _) = exhaustive(&forest, &weights, part.packed_tokens).unwrap();
            assert!(!weights.is_linear() || part.score.work == score.work);
        }
        between[parts.len()] += 1;
    }
    assert_eq!(proven, tried);
    assert!(between.iter().all(|&trees| trees > 10), "{between:?}");
}

#[test]
fn a_proven_reference_answer_is_the_searched_one() {
    let mut dice = Dice(17);
    let mut workspace = Workspace::default();
    for round in 0..600 {
        let tree = tree(&any_sequences(&mut dice));
        let scoring = any_scoring(&mut dice);
        let mut options = Options {
            method: Method::Reference,
            budget: [0, 7, 100, BUDGET][round % 4],
            counts: true,
        };
        let searched = workspace.choose(&tree, &scoring, &options).unwrap();
        options.counts = false;
        let proven = workspace.choose(&tree, &scoring, &options).unwrap();
        assert_eq!(
            (searched.score, searched.shared),
            (proven.score, proven.shared)
        );
        assert!(!searched.labels.is_empty() || searched.refinement_work > 0);
    }
}

#[test]
fn rounding_is_settled_in_every_branch() {
    // Two branches: a chain, then a lone decision less deep than the chain's end.
    let sequences: Vec<Vec<i64>> = [
        (77, 17, 35, 1),
        (77, 17, 35, 1),
        (77, 17, 0, 1),
        (77, 0, 0, 1),
    ]
    .iter()
    .map(|&(a, b, c, first)| [vec![first; a], vec![2; b], vec![3; c]].concat())
    .chain([[vec![4; 4], vec![5; 66]].concat(), vec![4; 4]])
    .collect();
    let tree = tree(&sequences);
    let mut coefficients = [0; 10];
    coefficients[..4].copy_from_slice(&[1, 52_742, 45, 2]);
    let scoring = Scoring {
        version: Version::Two,
        coefficients,
        tp: 3,
        cp: 1,
        layers: 12,
        gdn_layers: 1,
        uses_gdn: Some(true),
    };
    let weights = scoring.weights();
    let forest = Forest::new(&tree, weights.tiny_below).unwrap();
    for most in forest_limits(&tree, &forest) {
        let layout = Workspace::default()
            .fits(&tree, &scoring, most)
            .unwrap()
            .unwrap();
        let (score, list) = exhaustive(&forest, &weights, most).unwrap();
        assert!(layout.optimal);
        assert_eq!(
            (layout.score, listed(&tree, &forest, &layout)),
            (score, list)
        );
    }
}

/// Every number of tokens that a layout can have.
fn forest_limits(tree: &Tree, forest: &Forest) -> std::ops::RangeInclusive<i64> {
    tree.packed_tokens()..=forest.unshared_tokens
}
