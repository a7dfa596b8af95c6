//! The tree of some of the sequences, in any order, from node arrays alone.

use super::Tree;
use crate::cancel;
use crate::error::Result;
use crate::segments::NONE;

/// The input of the canonical order: nodes in any order, unary ones allowed.
pub(super) struct Links<'a> {
    pub(super) parent: &'a [u32],
    pub(super) start: &'a [i64],
    pub(super) end: &'a [i64],
    pub(super) terminal: &'a [u32],
}

/// Marks on the nodes of the larger tree; kept between calls so that a restriction costs only
/// the nodes that its sequences run through.
#[derive(Debug, Clone, Default)]
pub struct TreeWorkspace {
    epoch: u32,
    marks: Vec<Mark>,
    /// Siblings still to visit, with their parent in the new tree.
    pending: Vec<(u32, u32)>,
}

/// One node as the chosen sequences see it. Valid if `epoch` is the current one.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    epoch: u32,
    first_child: u32,
    last_child: u32,
    next_sibling: u32,
    /// Chosen sequences that end here.
    ends: u32,
    first_sequence: u32,
    /// Segment of the new tree.
    segment: u32,
}

impl TreeWorkspace {
    /// Starts a call over `nodes` nodes: forgets all marks without touching them.
    fn begin(&mut self, nodes: usize) {
        if self.marks.len() < nodes {
            self.marks.resize(nodes, Mark::default());
        }
        self.pending.clear();
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.marks.fill(Mark::default());
            self.epoch = 1;
        }
    }

    fn is_marked(&self, node: u32) -> bool {
        self.marks[node as usize].epoch == self.epoch
    }

    fn mark(&mut self, node: u32, child: u32, ends: u32, first_sequence: u32) {
        self.marks[node as usize] = Mark {
            epoch: self.epoch,
            first_child: child,
            last_child: child,
            next_sibling: NONE,
            ends,
            first_sequence,
            segment: NONE,
        };
    }
}

impl Tree {
    /// The canonical tree of `sequences` of this tree, in the order given and numbered anew from 0:
    /// equal to the tree built from those sequences, but no token is read. A sequence may repeat.
    ///
    /// # Panics
    /// If a sequence is not one of this tree.
    pub fn restrict(&self, sequences: &[u32]) -> Result<Self> {
        let mut tree = Self::default();
        self.restrict_into(sequences, &mut TreeWorkspace::default(), &mut tree)?;
        Ok(tree)
    }

    /// [`Tree::restrict`] into an existing tree, reusing its arrays and the workspace: the cost
    /// is that of the nodes the sequences run through.
    ///
    /// # Panics
    /// If a sequence is not one of this tree.
    pub fn restrict_into(
        &self,
        sequences: &[u32],
        workspace: &mut TreeWorkspace,
        into: &mut Self,
    ) -> Result<()> {
        let links = Links {
            parent: &self.parent,
            start: &self.start,
            end: &self.end,
            terminal: &self.terminal,
        };
        canonical(&links, sequences.iter().copied(), workspace, into)?;
        if self.padding > 0 {
            into.pad(self.padding);
        }
        Ok(())
    }

    /// Full-sharing packed tokens of the first k sequences, for every k: a wave is a prefix of the
    /// pool. Costs one look at each segment.
    #[must_use]
    pub fn packed_prefixes(&self) -> Vec<i64> {
        let mut fresh = vec![0_i64; self.sequences()];
        for (s, &sequence) in self.first_sequence.iter().enumerate() {
            fresh[sequence as usize] += self.length(s);
        }
        let mut packed = vec![0];
        for fresh in fresh {
            packed.push(packed[packed.len() - 1] + fresh);
        }
        packed
    }
}

/// Writes the canonical tree of `sequences` into `tree`.
pub(super) fn canonical(
    links: &Links<'_>,
    sequences: impl Iterator<Item = u32>,
    workspace: &mut TreeWorkspace,
    tree: &mut Tree,
) -> Result<()> {
    workspace.begin(links.parent.len());
    tree.clear();
    let first_root = link(links, sequences, workspace, &mut tree.terminal)?;
    emit(links, first_root, workspace, tree)?;
    for end in tree.terminal.iter_mut().filter(|end| **end != NONE) {
        *end = workspace.marks[*end as usize].segment;
    }
    // Children come after their parents, so one backward pass sums up the subtrees.
    for s in (0..tree.len()).rev() {
        let parent = tree.parent[s];
        if parent != NONE {
            let p = parent as usize;
            tree.count[p] += tree.count[s];
            tree.subtree[p] = tree.subtree[p].max(tree.subtree[s]);
        }
    }
    Ok(())
}

/// Marks the paths of the sequences and links children in first-seen order; returns the first root.
/// A sequence walks up only as far as no sequence before it went.
fn link(
    links: &Links<'_>,
    sequences: impl Iterator<Item = u32>,
    workspace: &mut TreeWorkspace,
    terminal: &mut Vec<u32>,
) -> Result<u32> {
    let (mut first_root, mut last_root) = (NONE, NONE);
    for (i, sequence) in sequences.enumerate() {
        cancel::check_at(i)?;
        let mut node = links.terminal[sequence as usize];
        terminal.push(node);
        if node == NONE {
            continue;
        }
        if workspace.is_marked(node) {
            workspace.marks[node as usize].ends += 1;
            continue;
        }
        workspace.mark(node, NONE, 1, i as u32);
        loop {
            let parent = links.parent[node as usize];
            let last = if parent == NONE {
                &mut last_root
            } else if workspace.is_marked(parent) {
                &mut workspace.marks[parent as usize].last_child
            } else {
                workspace.mark(parent, node, 0, i as u32);
                node = parent;
                continue;
            };
            let before = std::mem::replace(last, node);
            if before != NONE {
                workspace.marks[before as usize].next_sibling = node;
            } else if parent == NONE {
                first_root = node;
            } else {
                workspace.marks[parent as usize].first_child = node;
            }
            break;
        }
    }
    Ok(first_root)
}

/// Walks the marked nodes depth first and writes segments; a node where no sequence ends or leaves
/// becomes part of its only child.
fn emit(
    links: &Links<'_>,
    first_root: u32,
    workspace: &mut TreeWorkspace,
    tree: &mut Tree,
) -> Result<()> {
    let mut next = (first_root != NONE).then_some((first_root, NONE));
    while let Some((top, parent)) = next {
        cancel::check_at(tree.parent.len())?;
        let mark = workspace.marks[top as usize];
        if mark.next_sibling != NONE {
            workspace.pending.push((mark.next_sibling, parent));
        }
        let (mut node, mut here) = (top, mark);
        while here.ends == 0 && here.first_child == here.last_child {
            node = here.first_child;
            here = workspace.marks[node as usize];
        }
        let segment = tree.parent.len() as u32;
        workspace.marks[node as usize].segment = segment;
        tree.parent.push(parent);
        tree.start.push(links.start[top as usize]);
        tree.end.push(links.end[node as usize]);
        tree.depth.push(match parent {
            NONE => 1,
            p => tree.depth[p as usize] + 1,
        });
        tree.subtree.push(segment + 1);
        tree.count.push(here.ends);
        tree.first_sequence.push(here.first_sequence);
        next = if here.first_child == NONE {
            workspace.pending.pop()
        } else {
            Some((here.first_child, segment))
        };
    }
    Ok(())
}

impl Tree {
    fn clear(&mut self) {
        self.parent.clear();
        self.start.clear();
        self.end.clear();
        self.depth.clear();
        self.subtree.clear();
        self.count.clear();
        self.first_sequence.clear();
        self.terminal.clear();
    }
}
