//! From tokens to the tree: one pass, sequences inserted in input order into a radix trie.

use rustc_hash::FxHashMap;

use super::Tree;
use super::restrict::{self, Links, TreeWorkspace};
use crate::cancel;
use crate::error::{Error, Result};
use crate::segments::NONE;

/// Tokens compared at once: the equality of two slices is one vectorised memory comparison.
const CHUNK: usize = 64;

/// Trie nodes in creation order. A node is the run `start..end` of `rep`, one of its sequences.
struct Trie<'a, R> {
    sequence: R,
    parent: Vec<u32>,
    start: Vec<i64>,
    end: Vec<i64>,
    /// A sequence that runs through the node.
    rep: Vec<u32>,
    /// The child made first; it needs no look-up.
    first_child: Vec<u32>,
    first_root: u32,
    /// All other children by (parent, first token). Never iterated.
    others: FxHashMap<(u32, i64), u32>,
    tokens: std::marker::PhantomData<&'a [i64]>,
}

/// Builds the canonical tree of `sequences`, each cut to its limit if there are limits. Of sequence
/// `i` only the first `shareable[i]` tokens are compared with others, if given.
pub(super) fn build<'a>(
    sequences: usize,
    sequence: impl Fn(usize) -> &'a [i64],
    limits: Option<&[i64]>,
    shareable: Option<&[i64]>,
) -> Result<Tree> {
    // A sequence adds at most two nodes (and a pack one more segment), and `NONE` is no node.
    if sequences >= (NONE / 4) as usize {
        return Err(Error::Overflow("the number of sequences"));
    }
    match limits {
        None => insert_all(sequences, sequence, shareable),
        Some(limits) => {
            let cut = |i: usize| {
                let sequence = sequence(i);
                &sequence[..limits[i].clamp(0, sequence.len() as i64) as usize]
            };
            insert_all(sequences, cut, shareable)
        }
    }
}

fn insert_all<'a>(
    sequences: usize,
    sequence: impl Fn(usize) -> &'a [i64],
    shareable: Option<&[i64]>,
) -> Result<Tree> {
    // First tokens decide most steps. Read up front they miss the cache side by side instead of
    // one after another.
    let mut firsts = Vec::with_capacity(sequences);
    firsts.extend((0..sequences).map(|i| sequence(i).first().copied()));
    let mut trie = Trie::new(sequences, sequence);
    let mut terminal = Vec::with_capacity(sequences);
    // The sequence before and its last node: a new sequence is compared with it first.
    let (mut before, mut last): (&[i64], u32) = (&[], NONE);
    for i in 0..sequences {
        cancel::check_at(i)?;
        let tokens = (trie.sequence)(i);
        if tokens.is_empty() {
            terminal.push(NONE);
            continue;
        }
        // Tokens of others that may not be shared are never compared either: what is compared here
        // ends before the first token that may not.
        let free = match shareable {
            Some(limits) => &tokens[..limits[i].clamp(0, tokens.len() as i64) as usize],
            None => tokens,
        };
        let common = if i > 0 && firsts[i] == firsts[i - 1] {
            common_prefix(free, before)
        } else {
            0
        };
        let (node, shared) = trie.locate(free, common, last);
        last = trie.insert(i as u32, tokens, node, shared);
        terminal.push(last);
        before = free;
    }
    let links = Links {
        parent: &trie.parent,
        start: &trie.start,
        end: &trie.end,
        terminal: &terminal,
    };
    let mut tree = Tree::default();
    restrict::canonical(
        &links,
        0..sequences as u32,
        &mut TreeWorkspace::default(),
        &mut tree,
    )?;
    Ok(tree)
}

impl<'a, R: Fn(usize) -> &'a [i64]> Trie<'a, R> {
    fn new(sequences: usize, sequence: R) -> Self {
        let nodes = sequences + sequences / 4;
        Self {
            sequence,
            parent: Vec::with_capacity(nodes),
            start: Vec::with_capacity(nodes),
            end: Vec::with_capacity(nodes),
            rep: Vec::with_capacity(nodes),
            first_child: Vec::with_capacity(nodes),
            first_root: NONE,
            others: FxHashMap::with_capacity_and_hasher(sequences, rustc_hash::FxBuildHasher),
            tokens: std::marker::PhantomData,
        }
    }

    /// Where `tokens` leaves the trie: the node in which its longest known prefix ends, and that
    /// prefix's length (`NONE` and 0 if nothing is shared). The first `common` tokens are known
    /// to lie on the path to the node `last`.
    fn locate(&self, tokens: &[i64], common: usize, last: u32) -> (u32, usize) {
        let mut node = if common == 0 { NONE } else { last };
        while node != NONE && self.start[node as usize] >= common as i64 {
            node = self.parent[node as usize];
        }
        let mut at = common;
        // Only at a node's end can another branch go on with the sequence.
        while at < tokens.len() && (node == NONE || self.end[node as usize] == at as i64) {
            let child = self.child(node, tokens[at]);
            // The parent differs only if another thread wrote into the tokens meanwhile: the
            // answer is then of no use, but must not be a panic.
            if child == NONE || self.parent[child as usize] != node {
                break;
            }
            let c = child as usize;
            let run = &(self.sequence)(self.rep[c] as usize)[at..self.end[c] as usize];
            // The look-up compared the first token already.
            at += 1 + common_prefix(&tokens[at + 1..], &run[1..]);
            node = child;
        }
        (node, at)
    }

    /// Adds sequence `i`, which leaves the trie inside or at the end of `node`; returns its last node.
    fn insert(&mut self, i: u32, tokens: &[i64], node: u32, shared: usize) -> u32 {
        let node = if node == NONE || self.end[node as usize] == shared as i64 {
            node
        } else {
            self.split(node, shared)
        };
        if shared == tokens.len() {
            return node;
        }
        let leaf = self.push(node, shared as i64, tokens.len() as i64, i, NONE);
        match self.first_child_of(node) {
            slot if *slot == NONE => *slot = leaf,
            _ => {
                self.others.insert((node, tokens[shared]), leaf);
            }
        }
        leaf
    }

    /// Cuts `node` at `at`. The upper part is the new node, so that children stay where they are.
    fn split(&mut self, node: u32, at: usize) -> u32 {
        let n = node as usize;
        let (parent, start, rep) = (self.parent[n], self.start[n], self.rep[n]);
        let upper = self.push(parent, start, at as i64, rep, node);
        self.start[n] = at as i64;
        self.parent[n] = upper;
        match self.first_child_of(parent) {
            slot if *slot == node => *slot = upper,
            _ => {
                let token = (self.sequence)(rep as usize)[start as usize];
                self.others.insert((parent, token), upper);
            }
        }
        upper
    }

    fn push(&mut self, parent: u32, start: i64, end: i64, rep: u32, first_child: u32) -> u32 {
        self.parent.push(parent);
        self.start.push(start);
        self.end.push(end);
        self.rep.push(rep);
        self.first_child.push(first_child);
        self.parent.len() as u32 - 1
    }

    fn first_child_of(&mut self, node: u32) -> &mut u32 {
        match node {
            NONE => &mut self.first_root,
            n => &mut self.first_child[n as usize],
        }
    }

    /// The child of `node` (a root for `NONE`) whose run begins with `token`, or `NONE`.
    fn child(&self, node: u32, token: i64) -> u32 {
        let first = match node {
            NONE => self.first_root,
            n => self.first_child[n as usize],
        };
        if first == NONE {
            return NONE;
        }
        let f = first as usize;
        if (self.sequence)(self.rep[f] as usize)[self.start[f] as usize] == token {
            return first;
        }
        self.others.get(&(node, token)).copied().unwrap_or(NONE)
    }
}

/// Counts the leading tokens that `a` and `b` share.
fn common_prefix(a: &[i64], b: &[i64]) -> usize {
    let most = a.len().min(b.len());
    let (a, b) = (&a[..most], &b[..most]);
    let mut at = 0;
    while at + CHUNK <= most && a[at..at + CHUNK] == b[at..at + CHUNK] {
        at += CHUNK;
    }
    let differs = a[at..].iter().zip(&b[at..]).position(|(x, y)| x != y);
    differs.map_or(most, |tail| at + tail)
}
