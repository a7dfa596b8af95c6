//! Price programs: node tables that lie, and every value of those that do not.

use std::array::from_fn;

use waveplan::Error;
use waveplan::price::{Node, Program, Values};

use crate::draw::Draw;
use crate::slow::price::{Fault, Slow};

/// One input.
pub fn check(data: &[u8]) {
    let mut draw = Draw::new(data);
    let hostile = draw.one_in(4);
    let nodes: Vec<Node> = (0..draw.below(40))
        .map(|i| node(&mut draw, i as u32, hostile))
        .collect();
    let roots = draw.list(6, |draw| index(draw, nodes.len() as u32, hostile));
    let per_pack = per_pack(&nodes);
    let program = Program::new(nodes.clone(), roots.clone(), 1.1);
    let valid = per_pack.as_ref().is_some_and(|per_pack| {
        (roots.iter()).all(|&root| per_pack.get(root as usize) == Some(&false))
    });
    assert_eq!(program.is_ok(), valid, "{nodes:?} {roots:?}");
    let Ok(program) = program else {
        return;
    };
    assert_eq!(
        (program.len(), program.results()),
        (nodes.len(), roots.len())
    );
    let numbers = |draw: &mut Draw<'_>, most: usize| {
        draw.list(most, |draw| match draw.below(6) {
            5 => draw.wild(),
            _ => draw.between(-3, 9_000),
        })
    };
    let plan = numbers(&mut draw, 5);
    let width = draw.below(5);
    let packs: Vec<i64> = match draw.below(8) {
        7 => numbers(&mut draw, 11),
        _ => (0..draw.below(4) * width)
            .flat_map(|_| numbers(&mut draw, 1).into_iter().chain([1]).take(1))
            .collect(),
    };
    let line = |pack: &[i64]| from_fn(|i| pack.get(i).copied().unwrap_or(0));
    let packs: Vec<[i64; 4]> = packs.chunks_exact(width.max(1)).map(line).collect();
    let mut values = Values::default();
    // A second evaluation over used memory answers the same.
    let first = program.evaluate(&plan, &packs, &mut values);
    let roots_found = first.clone().map(|()| values.roots().to_vec());
    program.evaluate(&[1; 9], &[[2; 9]; 2], &mut values).ok();
    let again = program.evaluate(&plan, &packs, &mut values);
    assert_eq!(again, first);
    let read = |kind: fn(&Node) -> Option<u32>| {
        let measures = nodes.iter().filter_map(kind);
        measures.map(|m| m as usize + 1).max().unwrap_or(0)
    };
    let plan_width = read(|node| match node {
        Node::Plan(m) => Some(*m),
        _ => None,
    });
    let pack_width = read(|node| match node {
        Node::Pack(m) => Some(*m),
        _ => None,
    });
    let fits = plan.len() >= plan_width && pack_width <= 4;
    if !fits {
        assert!(matches!(first, Err(Error::Input(_))));
        return;
    }
    let mut slow = Slow::new(
        &nodes,
        &plan,
        packs.iter().map(<[i64; 4]>::as_slice).collect(),
    );
    match slow.values(&roots) {
        Ok(expected) => assert_eq!(roots_found, Ok(expected), "{nodes:?}"),
        Err(Fault::Overflow) => assert_eq!(first, Err(Error::Overflow("a price")), "{nodes:?}"),
        Err(Fault::Zero) => assert_eq!(first, Err(Error::input("a rule divides by 0"))),
    }
}

/// Whether each node has one value a pack; `None` if a node uses a later one, or scales by what
/// is no number.
fn per_pack(nodes: &[Node]) -> Option<Vec<bool>> {
    let mut found: Vec<bool> = Vec::new();
    for node in nodes {
        let used: Vec<u32> = match *node {
            Node::Const(_) | Node::Plan(_) | Node::Pack(_) => vec![],
            Node::Scale(a, _) | Node::SumPacks(a) | Node::MaxPacks(a) | Node::Mark(a, _) => vec![a],
            Node::Choose(a, b, c) => vec![a, b, c],
            Node::Add(a, b)
            | Node::Sub(a, b)
            | Node::Mul(a, b)
            | Node::FloorDiv(a, b)
            | Node::CeilDiv(a, b)
            | Node::Min(a, b)
            | Node::Max(a, b)
            | Node::Less(a, b)
            | Node::Equal(a, b) => vec![a, b],
        };
        let mut any = matches!(node, Node::Pack(_));
        for operand in used {
            any |= *found.get(operand as usize)?;
        }
        match *node {
            Node::Scale(_, factor) if !factor.is_finite() => return None,
            Node::SumPacks(_) | Node::MaxPacks(_) => found.push(false),
            _ => found.push(any),
        }
    }
    Some(found)
}

/// An earlier node, or any when hostile.
fn index(draw: &mut Draw<'_>, before: u32, hostile: bool) -> u32 {
    if hostile && draw.one_in(12) {
        return draw.pick(&[before, before + 1, u32::MAX]);
    }
    match before {
        0 => 0,
        // Late nodes are used more, so that programs get deep.
        _ if draw.coin() => before - 1 - draw.below(before.min(4) as usize) as u32,
        _ => draw.below(before as usize) as u32,
    }
}

fn node(draw: &mut Draw<'_>, i: u32, hostile: bool) -> Node {
    let measure = |draw: &mut Draw<'_>| match draw.below(40) {
        39 if hostile => u32::MAX,
        n => n as u32 % 4,
    };
    let kind = if i == 0 {
        draw.below(3)
    } else {
        draw.below(19)
    };
    let mut at = || index(draw, i, hostile);
    match kind {
        3 => Node::Add(at(), at()),
        4 => Node::Sub(at(), at()),
        5 | 6 => Node::Mul(at(), at()),
        7 => Node::FloorDiv(at(), at()),
        8 => Node::CeilDiv(at(), at()),
        9 => Node::Min(at(), at()),
        10 => Node::Max(at(), at()),
        11 => Node::Less(at(), at()),
        12 => Node::Equal(at(), at()),
        13 | 14 => Node::Choose(at(), at(), at()),
        15 => {
            let a = at();
            let factor = match draw.below(4) {
                0 if hostile => draw.wild_float(),
                1 => draw.pick(&[0.0, -1.1, 1e300, 0.5]),
                _ => 1.1,
            };
            Node::Scale(a, factor)
        }
        16 => Node::SumPacks(at()),
        17 => Node::MaxPacks(at()),
        18 => {
            let a = at();
            Node::Mark(a, draw.below(3) as u32)
        }
        0 => match draw.below(4) {
            3 => Node::Const(draw.wild()),
            _ => Node::Const(draw.between(-4, 1_000)),
        },
        1 => Node::Plan(measure(draw)),
        _ => Node::Pack(measure(draw)),
    }
}
