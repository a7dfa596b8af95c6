//! Packed rows: segments with the rows they belong to, and the walk that packs token rows.

#[cfg(test)]
mod tests;

use crate::cancel;
use crate::error::{Error, Result};
use crate::fields::result;
use crate::rows::Rows;
use crate::segments::{NONE, Segments};
use crate::tree::Tree;

/// Tokens that a packed row without rows may have where something is listed for each: they are
/// declared, not there.
pub const MOST_ABSENT: i64 = 1 << 24;

result! {
    /// One packed row of S segments, in packed order, made of n token rows; a parent comes before
    /// its children. A segment attends itself causally and all its ancestors fully.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Packing as "Packing" {
        /// Per row: the segment that holds its end (`NONE` for an empty row). Its parents hold
        /// the tokens before.
        pub last: Vec<u32>,
        @core
        /// Lengths, parents and packed starts.
        pub segments: Segments,
        /// Where each segment begins inside its rows (S entries).
        pub row_start: Vec<i64>,
        /// Rows of segment `s`: `members[member_offsets[s]..member_offsets[s + 1]]`, ascending.
        pub member_offsets: Vec<u32>,
        /// Row indices, see `member_offsets`.
        pub members: Vec<u32>,
    }
    python {
        /// A packed row made elsewhere, without rows: lengths, and parents (-1: a root).
        #[staticmethod]
        #[pyo3(name = "from_segments")]
        fn py_from_segments(
            py: Python<'_>,
            lengths: &Bound<'_, PyAny>,
            parents: &Bound<'_, PyAny>,
        ) -> PyResult<Self> {
            let (lengths, parents) = (ints("lengths", lengths)?, ints("parents", parents)?);
            let (lengths, parents) =
                (slice(py, "lengths", &lengths)?, slice(py, "parents", &parents)?);
            let segments = detached(py, || Segments::new(lengths, parents))?;
            Ok(Self::from_segments(segments))
        }

        /// The same given as ids per token, [T] or [1, T]: a run of one group id is a segment, its parent id
        /// names the parent's group or its own for a root; group -1 is padding, which is cut off.
        #[staticmethod]
        fn from_ids<'py>(
            py: Python<'py>,
            group_ids: &Bound<'py, PyAny>,
            parent_ids: &Bound<'py, PyAny>,
        ) -> PyResult<Self> {
            let line = |name, ids: &Bound<'py, PyAny>| match ids.getattr("shape") {
                Ok(shape) if shape.extract::<(i64, i64)>().is_ok_and(|shape| shape.0 == 1) => {
                    ints(name, &ids.get_item(0)?)
                }
                _ => ints(name, ids),
            };
            let (groups, parents) = (line("group_ids", group_ids)?, line("parent_ids", parent_ids)?);
            let (groups, parents) =
                (slice(py, "group_ids", &groups)?, slice(py, "parent_ids", &parents)?);
            let segments = detached(py, || crate::attention::parse(groups, parents))?;
            Ok(Self::from_segments(segments))
        }

        fn __len__(&self) -> usize {
            self.segments.len()
        }

        /// Number of rows, n; 0 if only the segments are known.
        #[getter]
        fn row_count(&self) -> usize {
            self.last.len()
        }

        /// Tokens of the packed row.
        #[getter]
        fn packed_tokens(&self) -> i64 {
            self.segments.tokens()
        }

        /// Tokens of each segment, [S].
        #[getter]
        fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            let all = (0..self.segments.len()).map(|s| self.segments.length(s));
            all.collect::<Vec<i64>>().give(py)
        }

        /// Parent of each segment, -1 for a root, [S].
        #[getter]
        fn parents<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.segments.parents.give(py)
        }

        /// Where each segment begins in the packed row, [S].
        #[getter]
        fn packed_starts<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.segments.starts[..self.segments.len()].to_vec().give(py)
        }

        /// Where each segment begins inside its rows, [S].
        #[getter]
        fn row_starts<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            self.row_start.give(py)
        }

        /// Rows of each segment, ascending; S lists.
        #[getter]
        fn members<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            ragged(py, &self.members, &self.member_offsets)
        }

        /// The segments of a row, first to last.
        #[pyo3(name = "path")]
        fn py_path<'py>(&self, py: Python<'py>, row: i64) -> PyResult<Object<'py>> {
            let row = row_indices(py, "row", &[row], self.last.len())?[0];
            self.path(row as usize).give(py)
        }

        /// Where each token of a row lies in the packed row.
        #[pyo3(name = "positions")]
        fn py_positions<'py>(&self, py: Python<'py>, row: i64) -> PyResult<Object<'py>> {
            let row = row_indices(py, "row", &[row], self.last.len())?[0];
            py.detach(|| self.positions(row as usize)).give(py)
        }

        /// Segment number of each packed token, counted from 1, one each.
        #[getter]
        fn group_ids<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            detached(py, || crate::scattered::ids(self))?[0].give(py)
        }

        /// Parent's number of each packed token; a root is its own parent, one each.
        #[getter]
        fn parent_ids<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            detached(py, || crate::scattered::ids(self))?[1].give(py)
        }

        /// Position of each packed token inside its rows, one each.
        #[getter]
        fn position_ids<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            detached(py, || crate::scattered::ids(self))?[2].give(py)
        }

        fn __repr__(&self) -> String {
            let (segments, rows) = (self.segments.len(), self.last.len());
            format!("Packing({segments} segments, {rows} rows, {} tokens)", self.segments.tokens())
        }
    }
}

/// How far rows are shared.
#[derive(Debug, Clone, Copy)]
pub struct PackOptions<'a> {
    /// Shared segments above one another, at most; `None` for no limit, 0 for no sharing.
    pub max_depth: Option<usize>,
    /// The shortest run of tokens worth sharing; 0 means 1.
    pub min_shared: i64,
    /// Per row: how many leading tokens may be shared, clamped to the row.
    pub shareable: Option<&'a [i64]>,
}

impl Default for PackOptions<'_> {
    fn default() -> Self {
        Self {
            max_depth: None,
            min_shared: 1,
            shareable: None,
        }
    }
}

/// Packs `rows`: the tree is built in one pass over the tokens, the rest reads no token.
pub fn pack(rows: &Rows<'_>, options: &PackOptions<'_>) -> Result<Packing> {
    check_limits(rows.len(), options)?;
    let tree = match options.shareable {
        None => Tree::build(rows)?,
        Some(limits) => Tree::build_limited(rows, limits)?,
    };
    let lengths = (0..rows.len()).map(|i| rows.length(i) as i64).collect();
    Walk::new(&tree, lengths, options).run()
}

/// Packs rows that lie apart from each other.
pub fn pack_scattered(rows: &[&[i64]], options: &PackOptions<'_>) -> Result<Packing> {
    check_limits(rows.len(), options)?;
    let tree = Tree::build_scattered(rows, options.shareable)?;
    let lengths = rows.iter().map(|row| row.len() as i64).collect();
    Walk::new(&tree, lengths, options).run()
}

fn check_limits(rows: usize, options: &PackOptions<'_>) -> Result<()> {
    match options.shareable {
        Some(limits) if limits.len() != rows => Err(Error::input(format!(
            "shareable has {} entries for {rows} rows: give one each",
            limits.len()
        ))),
        _ => Ok(()),
    }
}

impl Packing {
    /// Lists the members of each segment from the last segment of each row.
    ///
    /// # Panics
    /// If a `last` segment is not one of `segments`.
    pub fn new(segments: Segments, row_start: Vec<i64>, last: Vec<u32>) -> Result<Self> {
        let (member_offsets, members) = members(&segments.parents, &last)?;
        Ok(Self {
            last,
            segments,
            row_start,
            member_offsets,
            members,
        })
    }

    /// A packed row made elsewhere, of which only the segments are known: it has no rows.
    #[must_use]
    pub fn from_segments(segments: Segments) -> Self {
        let mut row_start = Vec::with_capacity(segments.len());
        for s in 0..segments.len() {
            let start = segments
                .parent(s)
                .map_or(0, |p| row_start[p] + segments.length(p));
            row_start.push(start);
        }
        Self {
            member_offsets: vec![0; segments.len() + 1],
            segments,
            row_start,
            members: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Refuses to list something for each token of a row that only declares very many.
    pub fn refuse_absent(&self) -> Result<()> {
        let tokens = self.segments.tokens();
        if self.last.is_empty() && tokens > MOST_ABSENT {
            return Err(Error::input(format!(
                "the packed row has {tokens} tokens and no rows: at most {MOST_ABSENT} are listed"
            )));
        }
        Ok(())
    }

    /// Rows of segment `s`, ascending.
    #[must_use]
    pub fn rows_of(&self, s: usize) -> &[u32] {
        &self.members[self.member_offsets[s] as usize..self.member_offsets[s + 1] as usize]
    }

    /// The segments of row `row`, from its first token to its last.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn path(&self, row: usize) -> Vec<u32> {
        let mut path = Vec::new();
        let mut segment = self.last[row];
        while segment != NONE {
            path.push(segment);
            segment = self.segments.parents[segment as usize];
        }
        path.reverse();
        path
    }

    /// Where each token of row `row` lies in the packed row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn positions(&self, row: usize) -> Vec<i64> {
        let starts = &self.segments.starts;
        self.path(row)
            .into_iter()
            .flat_map(|s| starts[s as usize]..starts[s as usize + 1])
            .collect()
    }
}

/// Lists the rows that run through each segment, ascending, from the segment each row ends in:
/// those of `s` are `rows[offsets[s]..offsets[s + 1]]`.
pub(crate) fn members(parents: &[u32], last: &[u32]) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut counts = vec![0_u64; parents.len()];
    for &end in last.iter().filter(|&&end| end != NONE) {
        counts[end as usize] += 1;
    }
    // Parents come first, so backwards each count is complete when it is handed up.
    for s in (0..parents.len()).rev() {
        if parents[s] != NONE {
            counts[parents[s] as usize] += counts[s];
        }
    }
    let mut offsets = Vec::with_capacity(counts.len() + 1);
    let mut total = 0_u64;
    offsets.push(0);
    for count in counts {
        total += count;
        let offset = u32::try_from(total)
            .map_err(|_| Error::Overflow("the number of rows over all segments"))?;
        offsets.push(offset);
    }
    let mut next = offsets.clone();
    let mut rows = vec![0; total as usize];
    for (row, &end) in last.iter().enumerate() {
        cancel::check_at(row)?;
        let mut segment = end;
        while segment != NONE {
            let at = &mut next[segment as usize];
            rows[*at as usize] = row as u32;
            *at += 1;
            segment = parents[segment as usize];
        }
    }
    Ok((offsets, rows))
}

/// Rows below `node`, still to be packed from position `from`.
#[derive(Clone, Copy)]
struct Visit {
    node: u32,
    from: i64,
    /// Shared segments above.
    depth: usize,
    parent: u32,
}

/// The packing walk over the tree of the rows' shareable parts.
struct Walk<'a> {
    tree: &'a Tree,
    lengths: Vec<i64>,
    max_depth: usize,
    min_shared: i64,
    /// Rows by the tree segment that they end in.
    offsets: Vec<u32>,
    rows: Vec<u32>,
    segments: Segments,
    row_start: Vec<i64>,
    last: Vec<u32>,
    pending: Vec<Visit>,
}

impl<'a> Walk<'a> {
    fn new(tree: &'a Tree, lengths: Vec<i64>, options: &PackOptions<'_>) -> Self {
        let (offsets, rows) = tree.terminal_rows();
        Self {
            tree,
            last: vec![NONE; lengths.len()],
            lengths,
            max_depth: options.max_depth.unwrap_or(usize::MAX),
            min_shared: options.min_shared.max(1),
            offsets,
            rows,
            segments: Segments {
                starts: vec![0],
                parents: Vec::new(),
            },
            row_start: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Packing> {
        let tree = self.tree;
        // Rows that may share nothing come first, like any rows that end at a node.
        for row in 0..self.lengths.len() {
            if tree.terminal[row] == NONE && self.lengths[row] > 0 {
                self.alone(row as u32, 0, NONE);
            }
        }
        if self.max_depth == 0 {
            self.all_alone(0..tree.len(), 0, NONE);
        } else {
            self.branch(0..tree.len(), 0, 0, NONE);
        }
        while let Some(visit) = self.pending.pop() {
            cancel::check_at(self.segments.len())?;
            self.visit(visit);
        }
        Packing::new(self.segments, self.row_start, self.last)
    }

    fn visit(&mut self, visit: Visit) {
        let Visit {
            node,
            from,
            depth,
            parent,
        } = visit;
        let n = node as usize;
        let (end, below) = (self.tree.end[n], n + 1..self.tree.subtree[n] as usize);
        let ended = self.offsets[n] as usize..self.offsets[n + 1] as usize;
        if self.tree.count[n] == 1 {
            let row = self.rows[self.offsets[n] as usize];
            self.alone(row, from, parent);
        } else if end - from >= self.min_shared {
            let segment = self.emit(from, end, parent);
            let going_on = self.tree.count[n] as usize - ended.len();
            for at in ended {
                let row = self.rows[at];
                self.last[row as usize] = segment;
                if self.lengths[row as usize] > end {
                    self.alone(row, end, segment);
                }
            }
            if going_on == 1 || depth + 1 >= self.max_depth {
                self.all_alone(below, end, segment);
            } else {
                self.branch(below, end, depth + 1, segment);
            }
        } else {
            // Too short to share: the run is replayed by whoever goes on.
            for at in ended {
                self.alone(self.rows[at], from, parent);
            }
            self.branch(below, from, depth, parent);
        }
    }

    /// Visits the topmost of the tree segments `below`, in order.
    fn branch(&mut self, below: std::ops::Range<usize>, from: i64, depth: usize, parent: u32) {
        let first = self.pending.len();
        let mut node = below.start;
        while node < below.end {
            self.pending.push(Visit {
                node: node as u32,
                from,
                depth,
                parent,
            });
            node = self.tree.subtree[node] as usize;
        }
        self.pending[first..].reverse();
    }

    /// Emits the rest of every row that ends in the tree segments `below`, in input order.
    fn all_alone(&mut self, below: std::ops::Range<usize>, from: i64, parent: u32) {
        let ended = self.offsets[below.start] as usize..self.offsets[below.end] as usize;
        let mut rows = self.rows[ended].to_vec();
        rows.sort_unstable();
        for row in rows {
            self.alone(row, from, parent);
        }
    }

    fn alone(&mut self, row: u32, from: i64, parent: u32) {
        let segment = self.emit(from, self.lengths[row as usize], parent);
        self.last[row as usize] = segment;
    }

    fn emit(&mut self, from: i64, end: i64, parent: u32) -> u32 {
        let segment = self.segments.len() as u32;
        let start = self.segments.tokens();
        self.segments.starts.push(start + (end - from));
        self.segments.parents.push(parent);
        self.row_start.push(from);
        segment
    }
}
