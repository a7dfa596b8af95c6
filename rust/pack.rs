//! Packed sequences: segments with the sequences they belong to, and the walk that packs token sequences.

#[cfg(test)]
mod tests;

use crate::cancel;
use crate::error::{Error, Result};
use crate::fields::result;
use crate::segments::{NONE, Segments};
use crate::sequences::Sequences;
use crate::tree::Tree;

/// Tokens that a pack without sequences may have where something is listed for each: they are
/// declared, not there.
pub const MOST_ABSENT: i64 = 1 << 24;

result! {
    /// One pack of S segments, in packed order, made of n token sequences; a parent comes before
    /// its children. A segment attends itself causally and all its ancestors fully.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Packing as "Packing" {
        /// Per sequence: the segment that holds its end (`NONE` for an empty sequence). Its parents hold
        /// the tokens before.
        pub last: Vec<u32>,
        @core
        /// Lengths, parents and packed starts.
        pub segments: Segments,
        /// First position of each segment inside its sequences (S entries).
        pub sequence_start: Vec<i64>,
        /// Sequences of segment `s`: `members[member_offsets[s]..member_offsets[s + 1]]`, ascending.
        pub member_offsets: Vec<u32>,
        /// Sequence indices, see `member_offsets`.
        pub members: Vec<u32>,
    }
    get {
        /// Number of sequences, n; 0 if only the segments are known.
        sequence_count(self) = self.last.len();
        /// Tokens of the pack.
        packed_tokens(self) = self.segments.tokens();
        /// Tokens of each segment, [S].
        lengths(self) =
            (0..self.segments.len()).map(|s| self.segments.length(s)).collect::<Vec<i64>>();
        /// Parent of each segment, -1 for a root, [S].
        parents(self) = self.segments.parents;
        /// First position of each segment in the pack, [S].
        packed_starts(self) = self.segments.starts[..self.segments.len()].to_vec();
        /// First position of each segment inside its sequences, [S].
        sequence_starts(self) = self.sequence_start;
    }
    python {
        /// A pack made elsewhere, without sequences: lengths, and parents (-1: a root).
        #[staticmethod]
        #[pyo3(name = "from_segments")]
        fn py_from_segments(
            py: Python<'_>,
            lengths: &Bound<'_, PyAny>,
            parents: &Bound<'_, PyAny>,
        ) -> PyResult<Self> {
            let (lengths, parents) = (ints("lengths", lengths)?, ints("parents", parents)?);
            let (lengths, parents) =
                (slice("lengths", &lengths)?, slice("parents", &parents)?);
            let segments = detached(py, || Segments::new(lengths, parents))?;
            Ok(Self::from_segments(segments))
        }

        /// The same given as ids per token, [T] or [1, T]: a run of one pack id is a segment, its parent id
        /// names the parent's pack or its own for a root; pack -1 is padding, which is cut off.
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
            let (ids, parents) = (line("group_ids", group_ids)?, line("parent_ids", parent_ids)?);
            let (ids, parents) = (slice("group_ids", &ids)?, slice("parent_ids", &parents)?);
            let segments = detached(py, || crate::attention::parse(ids, parents))?;
            Ok(Self::from_segments(segments))
        }

        fn __len__(&self) -> usize {
            self.segments.len()
        }

        /// Sequences of each segment, ascending; S lists.
        #[getter]
        fn members<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            ragged(py, &self.members, &self.member_offsets)
        }

        /// The segments of a sequence, first to last.
        #[pyo3(name = "path")]
        fn py_path<'py>(&self, py: Python<'py>, sequence: &Bound<'py, PyAny>) -> PyResult<Object<'py>> {
            self.path(index("sequence", sequence, self.last.len())?).give(py)
        }

        /// Packed position of each token of a sequence.
        #[pyo3(name = "positions")]
        fn py_positions<'py>(&self, py: Python<'py>, sequence: &Bound<'py, PyAny>) -> PyResult<Object<'py>> {
            let sequence = index("sequence", sequence, self.last.len())?;
            py.detach(|| self.positions(sequence)).give(py)
        }

        /// Segment number of each packed token, counted from 1, one each.
        #[getter]
        fn group_ids<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            detached(py, || crate::scattered::ids(self, false))?.give(py)
        }

        /// Parent's number of each packed token; a root is its own parent, one each.
        #[getter]
        fn parent_ids<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            detached(py, || crate::scattered::ids(self, true))?.give(py)
        }

        /// Position of each packed token inside its sequences, one each.
        #[getter]
        fn position_ids<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            detached(py, || crate::scattered::position_ids(self))?.give(py)
        }

        fn __repr__(&self) -> String {
            let (segments, sequences) = (self.segments.len(), self.last.len());
            format!("Packing({segments} segments, {sequences} sequences, {} tokens)", self.segments.tokens())
        }
    }
}

/// How far sequences are shared.
#[derive(Debug, Clone, Copy)]
pub struct PackOptions<'a> {
    /// Shared segments above one another, at most; `None` for no limit, 0 for no sharing.
    pub max_depth: Option<usize>,
    /// The shortest run of tokens worth sharing; 0 means 1.
    pub min_shared: i64,
    /// Per sequence: how many leading tokens may be shared, clamped to the sequence.
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

/// Packs `sequences`: the tree is built in one pass over the tokens, the rest reads no token.
pub fn pack(sequences: &Sequences<'_>, options: &PackOptions<'_>) -> Result<Packing> {
    check_limits(sequences.len(), options)?;
    let tree = match options.shareable {
        None => Tree::build(sequences)?,
        Some(limits) => Tree::build_limited(sequences, limits)?,
    };
    let lengths = (0..sequences.len())
        .map(|i| sequences.length(i) as i64)
        .collect();
    Walk::new(&tree, lengths, options).run()
}

/// Packs sequences in arrays of their own.
pub fn pack_scattered(sequences: &[&[i64]], options: &PackOptions<'_>) -> Result<Packing> {
    check_limits(sequences.len(), options)?;
    let tree = Tree::build_scattered(sequences, options.shareable)?;
    let lengths = sequences
        .iter()
        .map(|sequence| sequence.len() as i64)
        .collect();
    Walk::new(&tree, lengths, options).run()
}

fn check_limits(sequences: usize, options: &PackOptions<'_>) -> Result<()> {
    match options.shareable {
        Some(limits) if limits.len() != sequences => Err(Error::input(format!(
            "shareable has {} entries for {sequences} sequences: give one each",
            limits.len()
        ))),
        _ => Ok(()),
    }
}

impl Packing {
    /// Lists the members of each segment from the last segment of each sequence.
    ///
    /// # Panics
    /// If a `last` segment is not one of `segments`.
    pub fn new(segments: Segments, sequence_start: Vec<i64>, last: Vec<u32>) -> Result<Self> {
        let (member_offsets, members) = members(&segments.parents, &last)?;
        Ok(Self {
            last,
            segments,
            sequence_start,
            member_offsets,
            members,
        })
    }

    /// A pack made elsewhere, of which only the segments are known: it has no sequences.
    #[must_use]
    pub fn from_segments(segments: Segments) -> Self {
        let mut sequence_start = Vec::with_capacity(segments.len());
        for s in 0..segments.len() {
            let start = segments
                .parent(s)
                .map_or(0, |p| sequence_start[p] + segments.length(p));
            sequence_start.push(start);
        }
        Self {
            member_offsets: vec![0; segments.len() + 1],
            segments,
            sequence_start,
            members: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Refuses to list something for each token of a sequence that only declares very many.
    pub fn refuse_absent(&self) -> Result<()> {
        let tokens = self.segments.tokens();
        if self.last.is_empty() && tokens > MOST_ABSENT {
            return Err(Error::input(format!(
                "the pack has {tokens} tokens and no sequences: at most {MOST_ABSENT} are listed"
            )));
        }
        Ok(())
    }

    /// Sequences of segment `s`, ascending.
    #[must_use]
    pub fn sequences_of(&self, s: usize) -> &[u32] {
        &self.members[self.member_offsets[s] as usize..self.member_offsets[s + 1] as usize]
    }

    /// The segments of sequence `sequence`, from its first token to its last.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[must_use]
    pub fn path(&self, sequence: usize) -> Vec<u32> {
        let mut path = Vec::new();
        let mut segment = self.last[sequence];
        while segment != NONE {
            path.push(segment);
            segment = self.segments.parents[segment as usize];
        }
        path.reverse();
        path
    }

    /// Packed position of each token of sequence `sequence`.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[must_use]
    pub fn positions(&self, sequence: usize) -> Vec<i64> {
        let starts = &self.segments.starts;
        self.path(sequence)
            .into_iter()
            .flat_map(|s| starts[s as usize]..starts[s as usize + 1])
            .collect()
    }
}

/// Lists the sequences that run through each segment, ascending, from the segment each sequence ends in:
/// those of `s` are `sequences[offsets[s]..offsets[s + 1]]`.
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
            .map_err(|_| Error::Overflow("the number of sequences over all segments"))?;
        offsets.push(offset);
    }
    let mut next = offsets.clone();
    let mut sequences = vec![0; total as usize];
    for (sequence, &end) in last.iter().enumerate() {
        cancel::check_at(sequence)?;
        let mut segment = end;
        while segment != NONE {
            let at = &mut next[segment as usize];
            sequences[*at as usize] = sequence as u32;
            *at += 1;
            segment = parents[segment as usize];
        }
    }
    Ok((offsets, sequences))
}

/// Sequences below `node`, still to be packed from position `from`.
#[derive(Clone, Copy)]
struct Visit {
    node: u32,
    from: i64,
    /// Shared segments above.
    depth: usize,
    parent: u32,
}

/// The packing walk over the tree of the sequences' shareable parts.
struct Walk<'a> {
    tree: &'a Tree,
    lengths: Vec<i64>,
    max_depth: usize,
    min_shared: i64,
    /// Sequences by the tree segment that they end in.
    offsets: Vec<u32>,
    sequences: Vec<u32>,
    segments: Segments,
    sequence_start: Vec<i64>,
    last: Vec<u32>,
    pending: Vec<Visit>,
}

impl<'a> Walk<'a> {
    fn new(tree: &'a Tree, lengths: Vec<i64>, options: &PackOptions<'_>) -> Self {
        let (offsets, sequences) = tree.terminal_sequences();
        Self {
            tree,
            last: vec![NONE; lengths.len()],
            lengths,
            max_depth: options.max_depth.unwrap_or(usize::MAX),
            min_shared: options.min_shared.max(1),
            offsets,
            sequences,
            segments: Segments {
                starts: vec![0],
                parents: Vec::new(),
            },
            sequence_start: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Packing> {
        let tree = self.tree;
        // Sequences that may share nothing come first, like any sequences that end at a node.
        for sequence in 0..self.lengths.len() {
            if tree.terminal[sequence] == NONE && self.lengths[sequence] > 0 {
                self.alone(sequence as u32, 0, NONE);
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
        Packing::new(self.segments, self.sequence_start, self.last)
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
            let sequence = self.sequences[self.offsets[n] as usize];
            self.alone(sequence, from, parent);
        } else if end - from >= self.min_shared {
            let segment = self.emit(from, end, parent);
            let going_on = self.tree.count[n] as usize - ended.len();
            for at in ended {
                let sequence = self.sequences[at];
                self.last[sequence as usize] = segment;
                if self.lengths[sequence as usize] > end {
                    self.alone(sequence, end, segment);
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
                self.alone(self.sequences[at], from, parent);
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

    /// Emits the rest of every sequence that ends in the tree segments `below`, in input order.
    fn all_alone(&mut self, below: std::ops::Range<usize>, from: i64, parent: u32) {
        let ended = self.offsets[below.start] as usize..self.offsets[below.end] as usize;
        let mut sequences = self.sequences[ended].to_vec();
        sequences.sort_unstable();
        for sequence in sequences {
            self.alone(sequence, from, parent);
        }
    }

    fn alone(&mut self, sequence: u32, from: i64, parent: u32) {
        let segment = self.emit(from, self.lengths[sequence as usize], parent);
        self.last[sequence as usize] = segment;
    }

    fn emit(&mut self, from: i64, end: i64, parent: u32) -> u32 {
        let segment = self.segments.len() as u32;
        let start = self.segments.tokens();
        self.segments.starts.push(start + (end - from));
        self.segments.parents.push(parent);
        self.sequence_start.push(from);
        segment
    }
}
