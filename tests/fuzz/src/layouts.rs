//! Layouts: the proven best against all of them, the bounded search against a slow one, and the
//! pack of any.
use waveplan::layout::{self, Label, Layout, Method, Options, Scoring, Stop, Version, Workspace};
use waveplan::segments::NONE;
use waveplan::sequences::Sequences;
use waveplan::tree::Tree;

use crate::draw::{Draw, flat};
use crate::slow::layout as slow;
use crate::slow::layout::Chosen;

/// One input.
pub fn check(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut sequences = draw.sequences(10);
    if !draw.one_in(20) {
        sequences.retain(|sequence| !sequence.is_empty());
    }
    let (tokens, offsets) = flat(&sequences);
    let view = Sequences::new(&tokens, &offsets).unwrap();
    let tree = Tree::build(&view).unwrap();
    let scoring = scoring(&mut draw);
    assert_eq!(scoring.check().is_ok(), valid(&scoring));
    if !valid(&scoring) {
        return;
    }
    let mut workspace = Workspace::default();
    let usable = !sequences.is_empty() && sequences.iter().all(|sequence| !sequence.is_empty());
    let full = workspace.choose(&tree, &scoring, &with(Method::Full));
    assert_eq!(full.is_ok(), usable);
    let Ok(full) = full else {
        for method in [Method::Exact, Method::Reference, Method::None] {
            assert!(workspace.choose(&tree, &scoring, &with(method)).is_err());
        }
        return;
    };
    let decisions = slow::decisions(&tree);
    same(&tree, &scoring, &full, &decisions.iter().copied().collect());
    let none = workspace
        .choose(&tree, &scoring, &with(Method::None))
        .unwrap();
    same(&tree, &scoring, &none, &Chosen::new());
    check_packed(&tree, &decisions, &mut draw);
    if draw.coin() {
        check_reference(&tree, &scoring, &mut workspace, &mut draw);
    } else if decisions.len() <= 8 {
        check_exact(&tree, &scoring, &mut workspace, &mut draw);
    }
}

fn with(method: Method) -> Options {
    Options {
        method,
        ..Options::default()
    }
}

/// Small facts and coefficients mostly, so that rounding and ties decide.
fn scoring(draw: &mut Draw<'_>) -> Scoring {
    let hostile = draw.one_in(8);
    let layers = draw.pick(&[1, 2, 3, 12, 40]);
    let mut made = Scoring {
        version: draw.pick(&[Version::One, Version::Two, Version::Two]),
        coefficients: [0; 10],
        tp: draw.pick(&[1, 1, 2, 3]),
        cp: draw.pick(&[1, 2, 3, 4, 5, 8]),
        layers,
        gdn_layers: draw.pick(&[0, 1, layers, 50]),
        uses_gdn: Some(draw.coin()),
    };
    for coefficient in &mut made.coefficients {
        *coefficient = draw.pick(&[0, 0, 1, 2, 7, 45, 229, 1_986, 52_742]);
    }
    if hostile {
        let odd = |draw: &mut Draw<'_>| match draw.below(3) {
            0 => draw.wild(),
            1 => draw.pick(&[0, -1, 4_096, 4_097, 65_536, 65_537, 4_093]),
            _ => draw.pick(&[1 << 36, (1 << 36) + 1, (1 << 36) - 5]),
        };
        match draw.below(5) {
            0 => made.tp = odd(draw),
            1 => made.cp = odd(draw),
            2 => made.layers = odd(draw),
            3 => made.gdn_layers = odd(draw),
            _ => made.coefficients[draw.below(10)] = odd(draw),
        }
    }
    made
}

/// What the planner says it takes.
fn valid(scoring: &Scoring) -> bool {
    (1..=4_096).contains(&scoring.tp)
        && (1..=4_096).contains(&scoring.cp)
        && (1..=65_536).contains(&scoring.layers)
        && (0..=65_536).contains(&scoring.gdn_layers)
        && scoring
            .coefficients
            .iter()
            .all(|c| (0..=1 << 36).contains(c))
}

/// Chosen decisions of an answer.
fn chosen(tree: &Tree, layout: &Layout) -> Chosen {
    assert_eq!(layout.shared.len(), tree.len());
    (0..tree.len()).filter(|&s| layout.shared[s]).collect()
}

fn score(layout: &Layout) -> slow::Score {
    let score = &layout.score;
    (score.work, score.tokens, score.segments, score.depth)
}

/// The layout is this set, with its measures.
fn same(tree: &Tree, scoring: &Scoring, layout: &Layout, expected: &Chosen) {
    assert_eq!(&chosen(tree, layout), expected);
    let wanted = slow::score(tree, expected, scoring);
    assert_eq!(score(layout), wanted);
    assert_eq!(
        (layout.packed_tokens, layout.segments, layout.depth),
        (wanted.1, wanted.2, wanted.3)
    );
    assert_eq!(layout.chosen, expected.len());
}

/// The pack of any layout; flags on other segments change nothing.
fn check_packed(tree: &Tree, decisions: &[usize], draw: &mut Draw<'_>) {
    let picked: Chosen = decisions.iter().copied().filter(|_| draw.coin()).collect();
    let noise = draw.coin();
    let shared: Vec<bool> = (0..tree.len())
        .map(|s| picked.contains(&s) || (noise && tree.count[s] == 1))
        .collect();
    let packing = layout::pack(tree, &shared).unwrap();
    let expected = slow::segments(tree, &picked);
    assert_eq!(packing.segments.len(), expected.len());
    for (s, segment) in expected.iter().enumerate() {
        assert_eq!(packing.segments.parent(s), segment.parent);
        assert_eq!(packing.sequence_start[s], segment.start);
        assert_eq!(packing.segments.length(s), segment.end - segment.start);
        let sequences: Vec<usize> = packing
            .sequences_of(s)
            .iter()
            .map(|&r| r as usize)
            .collect();
        assert_eq!(sequences, segment.sequences);
    }
    for (sequence, &last) in packing.last.iter().enumerate() {
        let end = tree.sequence_length(sequence);
        let holder = expected
            .iter()
            .position(|s| s.sequences.contains(&sequence) && s.end == end);
        assert_eq!(last, holder.map_or(NONE, |s| s as u32));
    }
    assert!(layout::shape(tree, &shared[1..]).is_err());
}

/// The best of all layouts, and the best that fits.
fn check_exact(tree: &Tree, scoring: &Scoring, workspace: &mut Workspace, draw: &mut Draw<'_>) {
    let layout = workspace
        .choose(tree, scoring, &Options::default())
        .unwrap();
    let (wanted, list) = slow::best(tree, scoring, i64::MAX).unwrap();
    against_best(tree, scoring, &layout, wanted, list);
    let least = slow::best(tree, scoring, tree.packed_tokens()).unwrap().0.1;
    assert_eq!(least, tree.packed_tokens());
    assert_eq!(workspace.fits(tree, scoring, least - 1), Ok(None));
    let unshared = slow::score(tree, &Chosen::new(), scoring).1;
    let most = match draw.below(8) {
        7 => draw.wild().max(least),
        _ => draw.between(least, unshared),
    };
    let layout = workspace.fits(tree, scoring, most).unwrap().unwrap();
    let (wanted, list) = slow::best(tree, scoring, most).unwrap();
    assert!(layout.packed_tokens <= most);
    against_best(tree, scoring, &layout, wanted, list);
}

fn against_best(
    tree: &Tree,
    scoring: &Scoring,
    layout: &Layout,
    wanted: slow::Score,
    list: Vec<usize>,
) {
    same(tree, scoring, layout, &chosen(tree, layout));
    if layout.optimal {
        assert_eq!(
            chosen(tree, layout),
            list.into_iter().collect(),
            "{scoring:?} {tree:?}"
        );
        assert_eq!(layout.bound, wanted.0);
    } else {
        assert!(layout.bound <= wanted.0 && wanted <= score(layout));
    }
    // Only facts far beyond those of any job leave a small tree without a proof.
    let ordinary = scoring.tp <= 64
        && scoring.cp <= 64
        && scoring.layers <= 1_000
        && scoring.gdn_layers <= 1_000
        && scoring.coefficients.iter().all(|&c| c <= 1 << 24);
    assert!(layout.optimal || !ordinary, "{scoring:?} {tree:?}");
}

/// The bounded search: answer, counters and labels.
fn check_reference(tree: &Tree, scoring: &Scoring, workspace: &mut Workspace, draw: &mut Draw<'_>) {
    let budget = match draw.below(8) {
        0 => 0,
        1 => layout::BUDGET,
        2 => draw.below(4),
        _ => draw.below(200),
    };
    let mut options = Options {
        method: Method::Reference,
        budget,
        counts: true,
    };
    let searched = workspace.choose(tree, scoring, &options).unwrap();
    let wanted = slow::refine(tree, scoring, budget);
    same(tree, scoring, &searched, &wanted.chosen);
    assert_eq!(searched.refinement_work, wanted.work);
    assert_eq!(searched.evaluated_refinements, wanted.evaluated);
    let stop = match wanted.stop {
        slow::Stop::NoDecisions => Stop::NoDecisions,
        slow::Stop::Exhausted => Stop::BudgetExhausted,
        slow::Stop::Complete => Stop::Complete,
    };
    assert_eq!(searched.stop, stop);
    check_labels(tree, scoring, &searched, &wanted.chosen);
    options.counts = false;
    let quick = workspace.choose(tree, scoring, &options).unwrap();
    same(tree, scoring, &quick, &wanted.chosen);
    if quick.optimal && slow::decisions(tree).len() <= 8 {
        let best = slow::best(tree, scoring, i64::MAX).unwrap();
        assert_eq!((score(&quick), quick.bound), (best.0, best.0.0));
    }
}

/// Every policy that gives the layout names it, and no other.
fn check_labels(tree: &Tree, scoring: &Scoring, layout: &Layout, chosen: &Chosen) {
    let family = slow::family(tree);
    assert_eq!(layout.mandatory_candidates, family.len());
    assert_eq!(!layout.labels.is_empty(), family.contains(chosen));
    let decisions = slow::decisions(tree);
    let deepest = decisions.iter().map(|&s| tree.depth[s]).max().unwrap_or(0);
    let longest = decisions.iter().map(|&s| tree.end[s]).max().unwrap_or(0);
    let mut wanted = Vec::new();
    if chosen.is_empty() {
        wanted.push(Label::None);
    }
    let depth = (0..=deepest).find(|&depth| &slow::by_depth(tree, depth) == chosen);
    wanted.extend(depth.map(Label::Depth));
    let spans: Vec<i64> = (1..=longest + 1)
        .filter(|&least| &slow::by_span(tree, least) == chosen)
        .collect();
    if let (Some(&first), Some(&last)) = (spans.first(), spans.last()) {
        wanted.push(Label::Span(first, (last <= longest).then_some(last)));
    }
    if chosen.len() == decisions.len() {
        wanted.push(Label::Full);
    }
    let unshared = slow::score(tree, &Chosen::new(), scoring).1;
    let most = unshared - tree.packed_tokens();
    for percent in [90, 95, 99] {
        let winner = (family.iter())
            .map(|member| {
                let (_, tokens, segments, depth) = slow::score(tree, member, scoring);
                let list: Vec<usize> = member.iter().copied().collect();
                (
                    (member.len(), depth, segments, tokens, list),
                    unshared - tokens,
                )
            })
            .filter(|(_, saved)| most == 0 || saved * 100 >= most * percent)
            .min();
        if winner.is_some_and(|(key, _)| key.4.iter().copied().eq(chosen.iter().copied())) {
            wanted.push(Label::Saves(percent));
        }
    }
    assert_eq!(layout.labels, wanted, "{tree:?}");
}
