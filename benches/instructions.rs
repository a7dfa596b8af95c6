//! Six fixed pieces of work for `benches/instructions.py`, which counts their instructions.
//!
//! Without Python, randomness or time: the same program does the same work everywhere.

use std::sync::Arc;

use waveplan::Result;
use waveplan::gdn::{self, GdnSettings, gdn};
use waveplan::layout::{self, Method, Scoring, Version};
use waveplan::measures::{Labels, Requests, plan};
use waveplan::ownership::{self, Asked, OwnershipSettings, own, own_by};
use waveplan::price::{Node, Program, ROOTS, root};
use waveplan::search::{Ending, Engine, Session, Settings};
use waveplan::sequences::Sequences;
use waveplan::tree::Tree;

/// Numbers that look random (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn within(&mut self, low: u64, high: u64) -> usize {
        (low + self.next() % (high - low + 1)) as usize
    }

    fn tokens(&mut self, count: usize) -> Vec<i64> {
        (0..count).map(|_| (self.next() % 248_000) as i64).collect()
    }
}

/// Tokens and offsets of `packs` times eight sequences. Every sequence takes a random part of an earlier
/// sequence of its pack and goes on by itself.
fn pool(seed: u64, packs: usize, length: (u64, u64)) -> (Vec<i64>, Vec<i64>) {
    let mut numbers = Numbers(seed);
    let (mut tokens, mut offsets) = (Vec::new(), vec![0]);
    for _ in 0..packs {
        let mut made: Vec<Vec<i64>> = Vec::new();
        for sequence in 0..8_usize {
            let mut next = Vec::new();
            if sequence > 0 {
                let other = &made[numbers.within(0, sequence as u64 - 1)];
                next.extend_from_slice(&other[..numbers.within(1, other.len() as u64)]);
            }
            let more = numbers.within(length.0, length.1);
            next.extend(numbers.tokens(more));
            tokens.extend_from_slice(&next);
            offsets.push(tokens.len() as i64);
            made.push(next);
        }
    }
    (tokens, offsets)
}

fn scoring(cp: i64) -> Scoring {
    Scoring {
        version: Version::Two,
        coefficients: [
            3152, 36, 727, 364, 0, 360_723, 255_082, 6_023_815, 8_553_228, 0,
        ],
        tp: 1,
        cp,
        layers: 40,
        gdn_layers: 30,
        uses_gdn: Some(true),
    }
}

/// Requests of random outputs, plain labels for most and a dozen other mixes; and a mask of labels.
fn asked(seed: u64, offsets: &[i64]) -> (Requests, Vec<bool>) {
    let mut numbers = Numbers(seed);
    let (mut made, mut mask) = (Requests::plain(offsets.len() - 1), Vec::new());
    made.adapters.push("adapter".to_owned());
    for (r, pair) in offsets.windows(2).enumerate() {
        let mut one_in = |count| numbers.within(1, count) == 1;
        made.lengths.push(pair[1] - pair[0]);
        made.targets[r] = !one_in(8);
        made.target_width[r] = 1 + i64::from(one_in(16));
        made.top_k[r] = 4 * i64::from(one_in(32));
        made.logits[r] = one_in(32);
        made.hidden[r] = one_in(32);
        made.gradient[r] = !one_in(8);
        made.slot[r] = u32::from(one_in(4));
        made.routed[r] = i64::from(one_in(64));
    }
    let tokens = made.lengths.iter().sum::<i64>() as usize;
    while mask.len() < tokens {
        let end = mask.len() + numbers.within(1, 64);
        let labelled = numbers.within(0, 1) == 1;
        mask.resize(end.min(tokens), labelled);
    }
    (made, mask)
}

/// Sequences checked, no token negative, and the columns of their requests.
#[inline(never)]
fn measured_requests(
    tokens: &[i64],
    offsets: &[i64],
    asked: Requests,
    mask: &[bool],
) -> Result<i64> {
    Sequences::new(tokens, offsets)?.refuse_negative(None)?;
    let pool = asked.complete(Labels::Mask(mask))?;
    let numbers: i64 = pool.mix.iter().map(|&mix| i64::from(mix)).sum();
    Ok(numbers + pool.runs.len() as i64 + pool.projected.iter().sum::<i64>())
}

/// The pool's tree, packed tokens of every prefix, and the trees of sixteen waves.
#[inline(never)]
fn measured_tree(tokens: &[i64], offsets: &[i64]) -> Result<i64> {
    let tree = Tree::build(&Sequences::new(tokens, offsets)?)?;
    let mut sum: i64 = tree.packed_prefixes().iter().sum();
    for wave in 0..16 {
        let sequences: Vec<u32> = (0..tree.sequences() as u32)
            .filter(|r| r % 16 <= wave)
            .collect();
        sum += tree.restrict(&sequences)?.packed_tokens();
    }
    Ok(sum)
}

/// The best layout and the reference planner's, under two scores.
#[inline(never)]
fn measured_layout(tree: &Tree) -> Result<i64> {
    let mut sum = 0;
    for cp in [1, 2] {
        for method in [Method::Exact, Method::Reference] {
            sum += layout::choose(tree, &scoring(cp), method)?.packed_tokens;
        }
    }
    Ok(sum)
}

/// Chunks and segments of one pack to four and to eight ranks.
#[inline(never)]
fn measured_ownership(tree: &Tree, shared: &[bool]) -> Result<i64> {
    let segments = layout::shape(tree, shared)?.segments;
    let mut work = (ownership::Workspace::default(), gdn::Workspace::default());
    let mut sum = 0;
    for ranks in [4, 8] {
        let made = own(&segments, ranks, &OwnershipSettings::default(), &mut work.0)?;
        let settings = GdnSettings::default();
        sum += gdn(&segments, &made, &settings, None, &mut work.1)?.cross_tokens;
        sum += made.rank_tokens.iter().max().copied().unwrap_or(0);
    }
    Ok(sum)
}

/// The same pack owned by the other methods, without a limit and within the even share.
#[inline(never)]
fn measured_fastest(tree: &Tree, shared: &[bool]) -> Result<i64> {
    let segments = layout::shape(tree, shared)?.segments;
    let (mut work, settings) = (
        ownership::Workspace::default(),
        OwnershipSettings::default(),
    );
    let mut sum = 0;
    for ranks in [4, 8] {
        let free = Asked::new(&segments, ranks, &settings);
        let even = Asked {
            most_tokens: Some(free.even_tokens()),
            ..free
        };
        for asked in [&free, &even] {
            sum += own_by(ownership::FASTEST, asked, &mut work)?.most_tokens;
        }
        let folded = own_by(ownership::EVEN_FOLD, &even, &mut work)?;
        sum += (1e6 * folded.score) as i64;
    }
    Ok(sum)
}

/// A whole width search at CP 2, a fixed price for every packed token.
#[inline(never)]
fn measured_search(engine: Engine) -> Result<i64> {
    let mut session = Session::new(Arc::new(engine), Arc::default(), 0, 32 << 30, None)?;
    let found = session.alone()?;
    Ok(match found.kind {
        Ending::Refused => found.width as i64,
        _ => found.required,
    })
}

fn engine(tokens: &[i64], offsets: &[i64]) -> Result<Engine> {
    let count = offsets.len() - 1;
    let asked = Requests {
        lengths: offsets.windows(2).map(|pair| pair[1] - pair[0]).collect(),
        tree: Arc::new(Tree::build(&Sequences::new(tokens, offsets)?)?),
        ..Requests::plain(count)
    };
    let pool = asked.complete(Labels::From(&vec![0; count]))?;
    let nodes = vec![
        Node::Const(0),
        Node::Plan(plan::PACKED as u32),
        Node::Const(192_512),
        Node::Mul(1, 2),
        Node::Const(1),
    ];
    let mut roots = vec![0; ROOTS.len()];
    roots[root::REQUIRED] = 3;
    roots[root::EXECUTED_TOKEN..=root::OUTPUT_TOKEN].fill(4);
    let settings = Settings {
        reference: true,
        margin: true,
        cp: 2,
        moe: true,
        gdn_pending: true,
        scoring: scoring(2),
        gdn: Some(GdnSettings::default()),
        ..Settings::default()
    };
    let program = Arc::new(Program::new(nodes, roots, 1.1)?);
    Engine::new(settings, program, Arc::new(pool), None)
}

fn run(name: &str) -> Result<i64> {
    let (packs, length) = match name {
        "tree" | "requests" => (128, (20, 600)),
        _ => (8, (200, 3000)),
    };
    let (tokens, offsets) = pool(7, packs, length);
    if name == "tree" {
        return measured_tree(&tokens, &offsets);
    }
    if name == "requests" {
        let (asked, mask) = asked(8, &offsets);
        return measured_requests(&tokens, &offsets, asked, &mask);
    }
    if name == "search" {
        return measured_search(engine(&tokens, &offsets)?);
    }
    let tree = Tree::build(&Sequences::new(&tokens, &offsets)?)?;
    if name == "layout" {
        return measured_layout(&tree);
    }
    let shared = layout::choose(&tree, &scoring(2), Method::Full)?.shared;
    if name == "fastest" {
        return measured_fastest(&tree, &shared);
    }
    measured_ownership(&tree, &shared)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;

    let name = std::env::args().nth(1).unwrap_or_default();
    let names = [
        "requests",
        "tree",
        "layout",
        "ownership",
        "fastest",
        "search",
    ];
    if !names.contains(&name.as_str()) {
        return Err(format!("give one of {}", names.join(", ")).into());
    }
    let answer = run(&name).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{name} {answer}")?;
    Ok(())
}
