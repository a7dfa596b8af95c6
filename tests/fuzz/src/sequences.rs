//! Sequences, tree, restrictions, prefixes, packs, and what another package asks of them.

use std::collections::BTreeSet;

use waveplan::attention;
use waveplan::measures::{Labels, Requests};
use waveplan::pack::{self, PackOptions, Packing};
use waveplan::scattered::{self, HeadTokens};
use waveplan::segments::{NONE, Segments};
use waveplan::sequences::Sequences;
use waveplan::tree::{Tree, TreeWorkspace};

use crate::draw::{Draw, flat};
use crate::slow;

/// One input.
pub fn check(data: &[u8]) {
    let mut draw = Draw::new(data);
    if draw.one_in(6) {
        lying_offsets(&mut draw);
        lying_segments(&mut draw);
        return;
    }
    let sequences = draw.sequences(14);
    let tree = check_tree(&sequences);
    check_restrictions(&sequences, &tree, &mut draw);
    check_packing(&sequences, &mut draw);
    check_mixes(&sequences, &mut draw);
}

/// Offsets that need not be offsets.
fn lying_offsets(draw: &mut Draw<'_>) {
    let tokens = draw.list(12, Draw::wild);
    let small = tokens.len() as i64 + 2;
    let offsets = draw.list(6, |draw| match draw.below(5) {
        4 => draw.wild(),
        _ => draw.between(-1, small),
    });
    let valid = offsets.first() == Some(&0)
        && offsets.is_sorted()
        && offsets.last() == Some(&(tokens.len() as i64));
    let sequences = Sequences::new(&tokens, &offsets);
    assert_eq!(sequences.is_ok(), valid, "{offsets:?}");
    if let Ok(sequences) = sequences {
        let listed: Vec<Vec<i64>> = (0..sequences.len())
            .map(|i| sequences.sequence(i).to_vec())
            .collect();
        check_tree(&listed);
        check_negative(&sequences, &listed);
    }
}

/// The first negative token is the one that the error names.
fn check_negative(sequences: &Sequences<'_>, listed: &[Vec<i64>]) {
    let found = sequences.refuse_negative(None);
    let first = (listed.iter().enumerate())
        .find_map(|(r, sequence)| Some((r, sequence.iter().position(|&token| token < 0)?)));
    match (found, first) {
        (Ok(()), None) => {}
        (Err(error), Some((r, i))) => {
            let place = format!("sequences[{r}][{i}] is {}:", listed[r][i]);
            assert!(error.to_string().starts_with(&place), "{error}");
        }
        (found, first) => panic!("{found:?} where the first is {first:?}"),
    }
}

/// Output mixes are numbered in their order, and found with their first request.
fn check_mixes(sequences: &[Vec<i64>], draw: &mut Draw<'_>) {
    let lengths: Vec<i64> = sequences
        .iter()
        .map(|sequence| sequence.len() as i64)
        .collect();
    let count = lengths.len();
    let flags = |draw: &mut Draw<'_>| (0..count).map(|_| draw.coin()).collect::<Vec<bool>>();
    let (targets, logits, hidden) = (flags(draw), flags(draw), flags(draw));
    let numbers = |draw: &mut Draw<'_>, least| {
        let number = |draw: &mut Draw<'_>| match draw.below(12) {
            11 => draw.wild(),
            _ => draw.between(least, least + 2),
        };
        (0..count).map(|_| number(draw)).collect::<Vec<i64>>()
    };
    let (widths, top_k, routed) = (numbers(draw, 1), numbers(draw, 0), numbers(draw, 0));
    let asked = Requests {
        lengths: lengths.clone(),
        targets: targets.clone(),
        target_width: widths.clone(),
        top_k: top_k.clone(),
        logits: logits.clone(),
        hidden: hidden.clone(),
        routed: routed.clone(),
        ..Requests::plain(count)
    };
    let pool = asked.complete(Labels::From(&vec![0; count]));
    let fits = |r: usize, by: i64| lengths[r].checked_mul(by).is_some();
    let valid = (0..count).all(|r| {
        widths[r] >= 1
            && top_k[r] >= 0
            && routed[r] >= 0
            && (!targets[r] || fits(r, widths[r]))
            && fits(r, top_k[r])
    });
    assert_eq!(pool.is_ok(), valid);
    let Ok(pool) = pool else { return };
    let mix = |r: usize| {
        let width = if targets[r] { widths[r] } else { 0 };
        (width, top_k[r], logits[r], hidden[r], routed[r] > 0)
    };
    let distinct: BTreeSet<_> = (0..count).map(mix).collect();
    assert_eq!(pool.mix_first.len(), distinct.len());
    for (number, one) in distinct.iter().enumerate() {
        let of: Vec<usize> = (0..count).filter(|&r| mix(r) == *one).collect();
        assert_eq!(pool.mix_first[number] as usize, of[0]);
        assert!(of.iter().all(|&r| pool.mix[r] as usize == number));
    }
}

/// The tree of sequences equals its definition; so do its views.
fn check_tree(sequences: &[Vec<i64>]) -> Tree {
    let (tokens, offsets) = flat(sequences);
    let view = Sequences::new(&tokens, &offsets).unwrap();
    let tree = Tree::build(&view).unwrap();
    same_tree(&tree, sequences);
    let apart: Vec<&[i64]> = sequences.iter().map(Vec::as_slice).collect();
    let scattered = Tree::build_scattered(&apart, None).unwrap();
    assert_eq!(scattered, tree);
    assert_eq!(tree.packed_tokens(), slow::tree::packed_tokens(sequences));
    let (offsets, ending) = tree.terminal_sequences();
    for s in 0..tree.len() {
        let ends: Vec<u32> = (0..sequences.len() as u32)
            .filter(|&r| tree.terminal[r as usize] == s as u32)
            .collect();
        assert_eq!(ending[offsets[s] as usize..offsets[s + 1] as usize], ends);
    }
    tree
}

/// Segments and terminals are those of the slow tree.
fn same_tree(tree: &Tree, sequences: &[Vec<i64>]) {
    let (segments, terminal) = slow::tree::tree(sequences);
    assert_eq!(tree.len(), segments.len());
    let wide = |index: Option<usize>| index.map_or(NONE, |i| i as u32);
    for (s, segment) in segments.iter().enumerate() {
        assert_eq!(tree.parent[s], wide(segment.parent));
        assert_eq!(tree.start[s], segment.start as i64);
        assert_eq!(tree.end[s], segment.end as i64);
        assert_eq!(tree.depth[s] as usize, segment.depth);
        assert_eq!(tree.count[s] as usize, segment.sequences.len());
        assert_eq!(tree.first_sequence[s] as usize, segment.sequences[0]);
        assert_eq!(tree.is_decision(s), segment.sequences.len() > 1);
        let below = |mut at: usize| {
            while at > s {
                match segments[at].parent {
                    Some(parent) => at = parent,
                    None => return false,
                }
            }
            at == s
        };
        let end = (s + 1..segments.len()).find(|&t| !below(t));
        assert_eq!(tree.subtree[s] as usize, end.unwrap_or(segments.len()));
    }
    let terminal: Vec<u32> = terminal.into_iter().map(wide).collect();
    assert_eq!(tree.terminal, terminal);
    for (r, sequence) in sequences.iter().enumerate() {
        assert_eq!(tree.sequence_length(r), sequence.len() as i64);
    }
}

/// Trees and counts of lists of the sequences, from the tree alone.
fn check_restrictions(sequences: &[Vec<i64>], tree: &Tree, draw: &mut Draw<'_>) {
    let prefixes = tree.packed_prefixes();
    assert_eq!(prefixes.len(), sequences.len() + 1);
    for (k, &packed) in prefixes.iter().enumerate() {
        assert_eq!(packed, slow::tree::packed_tokens(&sequences[..k]));
    }
    let (mut workspace, mut into) = (TreeWorkspace::default(), Tree::default());
    for _ in 0..2 {
        let picked: Vec<u32> = match sequences.len() {
            0 => Vec::new(),
            n => draw.list(12, |draw| draw.below(n) as u32),
        };
        let listed: Vec<Vec<i64>> = picked
            .iter()
            .map(|&r| sequences[r as usize].clone())
            .collect();
        tree.restrict_into(&picked, &mut workspace, &mut into)
            .unwrap();
        same_tree(&into, &listed);
    }
}

/// Packed sequences equal the definition, under every option and way to ask.
fn check_packing(sequences: &[Vec<i64>], draw: &mut Draw<'_>) {
    let max_depth = match draw.below(5) {
        0 => Some(0),
        1 => Some(draw.below(4)),
        2 => Some(usize::MAX),
        _ => None,
    };
    let min_shared = match draw.below(6) {
        4 => draw.wild(),
        5 => i64::MAX,
        _ => draw.between(0, 80),
    };
    let shareable = draw.one_in(3).then(|| {
        let count = sequences.len() + usize::from(draw.one_in(8));
        let limit = |draw: &mut Draw<'_>| match draw.below(6) {
            5 => draw.wild(),
            _ => draw.between(0, 90),
        };
        (0..count).map(|_| limit(draw)).collect::<Vec<_>>()
    });
    let options = PackOptions {
        max_depth,
        min_shared,
        shareable: shareable.as_deref(),
    };
    let (tokens, offsets) = flat(sequences);
    let view = Sequences::new(&tokens, &offsets).unwrap();
    let packing = pack::pack(&view, &options);
    let apart: Vec<&[i64]> = sequences.iter().map(Vec::as_slice).collect();
    let scattered = pack::pack_scattered(&apart, &options);
    assert_eq!(scattered, packing);
    if shareable
        .as_ref()
        .is_some_and(|limits| limits.len() != sequences.len())
    {
        assert!(packing.is_err());
        return;
    }
    let packing = packing.unwrap();
    let expected = slow::pack::pack(sequences, max_depth, min_shared, shareable.as_deref());
    same_packing(&packing, &expected, sequences);
    check_views(sequences, &packing, draw);
}

fn same_packing(packing: &Packing, expected: &[slow::pack::Segment], sequences: &[Vec<i64>]) {
    let segments = &packing.segments;
    assert_eq!(segments.len(), expected.len());
    let mut at = 0;
    for (s, segment) in expected.iter().enumerate() {
        assert_eq!(segments.parent(s), segment.parent);
        assert_eq!(segments.starts[s], at);
        assert_eq!(packing.sequence_start[s], segment.start as i64);
        assert_eq!(segments.length(s), (segment.end - segment.start) as i64);
        let members: Vec<usize> = packing
            .sequences_of(s)
            .iter()
            .map(|&r| r as usize)
            .collect();
        assert_eq!(members, segment.sequences);
        at += segments.length(s);
    }
    assert_eq!(segments.tokens(), at);
    for (r, sequence) in sequences.iter().enumerate() {
        let holder = expected
            .iter()
            .position(|s| s.sequences.contains(&r) && s.end == sequence.len());
        assert_eq!(packing.last[r], holder.map_or(NONE, |s| s as u32));
    }
}

/// Tokens, ids, positions and head tokens of a pack.
fn check_views(sequences: &[Vec<i64>], packing: &Packing, draw: &mut Draw<'_>) {
    let apart: Vec<&[i64]> = sequences.iter().map(Vec::as_slice).collect();
    let tokens = scattered::gather(packing, &apart).unwrap();
    assert_eq!(tokens.len() as i64, packing.segments.tokens());
    let (positions, offsets) = scattered::positions(packing).unwrap();
    for (r, sequence) in sequences.iter().enumerate() {
        let own = packing.positions(r);
        assert_eq!(positions[offsets[r] as usize..offsets[r + 1] as usize], own);
        let spelled: Vec<i64> = own.iter().map(|&at| tokens[at as usize]).collect();
        assert_eq!(&spelled, sequence);
    }
    let [packs, parents] = [false, true].map(|parents| scattered::ids(packing, parents).unwrap());
    let at = scattered::position_ids(packing).unwrap();
    assert_eq!(
        attention::parse(&packs, &parents),
        Ok(packing.segments.clone())
    );
    for (r, sequence) in sequences.iter().enumerate() {
        let places = packing.positions(r).into_iter().map(|p| at[p as usize]);
        assert!(places.eq(0..sequence.len() as i64));
    }
    check_heads(sequences, packing, draw);
    // Sequences that are not those of the pack: an error or tokens, no panic.
    let mut other = draw.sequences(sequences.len());
    other.resize(sequences.len(), Vec::new());
    let other: Vec<&[i64]> = other.iter().map(Vec::as_slice).collect();
    if let Ok(tokens) = scattered::gather(packing, &other) {
        assert_eq!(tokens.len() as i64, packing.segments.tokens());
    }
    let fewer = &apart[..apart.len().saturating_sub(1)];
    assert_eq!(scattered::gather(packing, fewer).is_ok(), apart.is_empty());
}

/// head tokens are a set of positions.
fn check_heads(sequences: &[Vec<i64>], packing: &Packing, draw: &mut Draw<'_>) {
    let positions: Vec<Vec<i64>> = (0..sequences.len()).map(|r| packing.positions(r)).collect();
    let labels: Vec<Option<Vec<i64>>> = (sequences.iter())
        .map(|sequence| {
            let width = draw.pick(&[0, 1, 1, 2]);
            let label = |draw: &mut Draw<'_>| draw.pick(&[-100, -100, 5]);
            (width > 0).then(|| (0..sequence.len() * width).map(|_| label(draw)).collect())
        })
        .collect();
    let requests: Vec<HeadTokens<'_>> = (labels.iter())
        .map(|labels| HeadTokens {
            labels: labels.as_deref(),
            every: draw.one_in(4),
        })
        .collect();
    let (mut projected, mut targeted) = (BTreeSet::new(), BTreeSet::new());
    for (request, positions) in requests.iter().zip(&positions) {
        for (i, &position) in positions.iter().enumerate() {
            let width = request.labels.map_or(0, |l| l.len() / positions.len());
            let asked = request
                .labels
                .is_some_and(|l| l[i * width..(i + 1) * width].iter().any(|&x| x != -100));
            if request.every || asked {
                projected.insert(position);
            }
            if request.labels.is_some() {
                targeted.insert(position);
            }
        }
    }
    let counted = scattered::projected_tokens(packing, &requests);
    assert_eq!(counted, Ok(projected.len()));
    let chunk = 1 + draw.below(40);
    let ordered: Vec<i64> = projected.iter().copied().collect();
    let sequences = ordered
        .chunks(chunk)
        .find(|sequences| sequences.iter().any(|sequence| targeted.contains(sequence)))
        .map_or(0, <[i64]>::len);
    assert_eq!(
        scattered::target_chunk(packing, &requests, chunk),
        Ok(sequences)
    );
}

/// Segments that no pack has.
fn lying_segments(draw: &mut Draw<'_>) {
    let (lengths, parents) = (draw.list(5, Draw::wild), draw.list(5, |d| d.between(-2, 4)));
    let sum = lengths.iter().map(|&n| i128::from(n)).sum::<i128>();
    let valid = lengths.len() == parents.len()
        && lengths.iter().all(|&n| n > 0)
        && sum <= i128::from(i64::MAX)
        && (parents.iter().enumerate()).all(|(i, &p)| p >= -1 && p < i as i64);
    let segments = Segments::new(&lengths, &parents);
    assert_eq!(segments.is_ok(), valid);
    if let Ok(segments) = segments {
        let packing = Packing::from_segments(segments);
        assert!(packing.last.is_empty());
    }
}
