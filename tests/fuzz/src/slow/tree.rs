//! The prefix tree by its definition.

/// One segment of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Index of the parent.
    pub parent: Option<usize>,
    /// First position in its sequences.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// 1 at a root.
    pub depth: usize,
    /// Sequences that run through it, in input order.
    pub sequences: Vec<usize>,
}

/// Segments depth first, siblings first-seen, and the segment that each sequence ends in.
#[must_use]
pub fn tree(sequences: &[Vec<i64>]) -> (Vec<Segment>, Vec<Option<usize>>) {
    let mut segments = Vec::new();
    let mut terminal = vec![None; sequences.len()];
    let all = (0..sequences.len())
        .filter(|&i| !sequences[i].is_empty())
        .collect();
    grow(sequences, all, 0, None, &mut segments, &mut terminal);
    (segments, terminal)
}

fn grow(
    sequences: &[Vec<i64>],
    members: Vec<usize>,
    start: usize,
    parent: Option<usize>,
    segments: &mut Vec<Segment>,
    terminal: &mut [Option<usize>],
) {
    for branch in branches(sequences, members, start) {
        let end = common_end(sequences, &branch, start);
        let number = segments.len();
        segments.push(Segment {
            parent,
            start,
            end,
            depth: parent.map_or(1, |p: usize| segments[p].depth + 1),
            sequences: branch.clone(),
        });
        let (ended, going_on): (Vec<_>, Vec<_>) =
            branch.into_iter().partition(|&i| sequences[i].len() == end);
        for sequence in ended {
            terminal[sequence] = Some(number);
        }
        grow(sequences, going_on, end, Some(number), segments, terminal);
    }
}

/// Members by their token at a position, first-seen first.
#[must_use]
pub fn branches(sequences: &[Vec<i64>], members: Vec<usize>, at: usize) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for i in members {
        match found
            .iter_mut()
            .find(|b| sequences[b[0]][at] == sequences[i][at])
        {
            Some(branch) => branch.push(i),
            None => found.push(vec![i]),
        }
    }
    found
}

/// Where the members' common run from `start` ends.
fn common_end(sequences: &[Vec<i64>], members: &[usize], start: usize) -> usize {
    let mut end = start;
    while members.iter().all(|&i| {
        sequences[i].get(end).is_some() && sequences[i].get(end) == sequences[members[0]].get(end)
    }) {
        end += 1;
    }
    end
}

/// Distinct non-empty prefixes, each one token stored once: those of a sequence that no sequence before it
/// has.
#[must_use]
pub fn packed_tokens(sequences: &[Vec<i64>]) -> i64 {
    let shared = |a: &[i64], b: &[i64]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let fresh = |i: usize| {
        let known = sequences[..i]
            .iter()
            .map(|before| shared(&sequences[i], before));
        sequences[i].len() - known.max().unwrap_or(0)
    };
    (0..sequences.len()).map(|i| fresh(i) as i64).sum()
}
