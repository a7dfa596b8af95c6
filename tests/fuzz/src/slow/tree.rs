//! The prefix tree by its definition.

/// One segment of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Index of the parent.
    pub parent: Option<usize>,
    /// First position in its rows.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// 1 at a root.
    pub depth: usize,
    /// Sequences that run through it, in input order.
    pub rows: Vec<usize>,
}

/// Segments depth first, siblings first-seen, and the segment that each row ends in.
#[must_use]
pub fn tree(rows: &[Vec<i64>]) -> (Vec<Segment>, Vec<Option<usize>>) {
    let mut segments = Vec::new();
    let mut terminal = vec![None; rows.len()];
    let all = (0..rows.len()).filter(|&i| !rows[i].is_empty()).collect();
    grow(rows, all, 0, None, &mut segments, &mut terminal);
    (segments, terminal)
}

fn grow(
    rows: &[Vec<i64>],
    members: Vec<usize>,
    start: usize,
    parent: Option<usize>,
    segments: &mut Vec<Segment>,
    terminal: &mut [Option<usize>],
) {
    for branch in branches(rows, members, start) {
        let end = common_end(rows, &branch, start);
        let number = segments.len();
        segments.push(Segment {
            parent,
            start,
            end,
            depth: parent.map_or(1, |p: usize| segments[p].depth + 1),
            rows: branch.clone(),
        });
        let (ended, going_on): (Vec<_>, Vec<_>) =
            branch.into_iter().partition(|&i| rows[i].len() == end);
        for row in ended {
            terminal[row] = Some(number);
        }
        grow(rows, going_on, end, Some(number), segments, terminal);
    }
}

/// Members by their token at a position, first-seen first.
#[must_use]
pub fn branches(rows: &[Vec<i64>], members: Vec<usize>, at: usize) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for i in members {
        match found.iter_mut().find(|b| rows[b[0]][at] == rows[i][at]) {
            Some(branch) => branch.push(i),
            None => found.push(vec![i]),
        }
    }
    found
}

/// Where the members' common run from `start` ends.
fn common_end(rows: &[Vec<i64>], members: &[usize], start: usize) -> usize {
    let mut end = start;
    while members
        .iter()
        .all(|&i| rows[i].get(end).is_some() && rows[i].get(end) == rows[members[0]].get(end))
    {
        end += 1;
    }
    end
}

/// Distinct non-empty prefixes, each one token stored once: those of a row that no row before it
/// has.
#[must_use]
pub fn packed_tokens(rows: &[Vec<i64>]) -> i64 {
    let shared = |a: &[i64], b: &[i64]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let fresh = |i: usize| {
        let known = rows[..i].iter().map(|before| shared(&rows[i], before));
        rows[i].len() - known.max().unwrap_or(0)
    };
    (0..rows.len()).map(|i| fresh(i) as i64).sum()
}
