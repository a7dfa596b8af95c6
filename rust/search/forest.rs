//! The prefix trees of a pool, one for each kind of pack, with tokens and modelled time of each
//! segment: the size of any set of its requests with everything shared.

use crate::error::Result;
use crate::measures::Requests;
use crate::search::Settings;
use crate::segments::{NONE, Segments};
use crate::tree::{Tree, TreeWorkspace};

/// Picoseconds. Times are whole, so that sums have no order.
pub(super) const MILLISECOND: f64 = 1e9;

/// Segments, parents before children. Requests share within one pack alone.
#[derive(Debug, Clone, Default)]
pub struct Forest {
    /// The segment above, `NONE` at a root.
    pub parent: Vec<u32>,
    /// Tokens of the segment.
    pub tokens: Vec<i64>,
    /// Picoseconds of the segment, forward and backward, over all layers, even over CP ranks.
    pub time: Vec<i64>,
    /// One past the last position of the segment.
    pub end: Vec<i64>,
    /// Per request: where it ends; `NONE` if it joins no pack.
    pub terminal: Vec<u32>,
}

impl Forest {
    /// The trees of a pool; times by the constants of the ownership: pairs of the attention layers,
    /// tokens of all layers, forward alone in packs without gradients.
    pub fn new(pool: &Requests, settings: &Settings) -> Result<Self> {
        let mut keys: Vec<(u32, bool, bool, u32)> = (0..pool.len())
            .filter(|&r| pool.active(r))
            .map(|r| (pool.slot[r], pool.gradient[r], pool.routed[r] > 0, r as u32))
            .collect();
        keys.sort_unstable();
        let mut made = Self {
            terminal: vec![NONE; pool.len()],
            ..Self::default()
        };
        let (mut tree, mut work) = (Tree::default(), TreeWorkspace::default());
        for pack in keys.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
            let requests: Vec<u32> = pack.iter().map(|key| key.3).collect();
            (pool.tree).restrict_into(&requests, &mut work, &mut tree)?;
            made.append(&tree, &requests, &Costs::new(settings, pack[0].1));
        }
        Ok(made)
    }

    fn append(&mut self, tree: &Tree, requests: &[u32], costs: &Costs) {
        let first = self.parent.len() as u32;
        let moved = |s: u32| if s == NONE { NONE } else { s + first };
        self.parent.extend(tree.parent.iter().map(|&s| moved(s)));
        self.end.extend_from_slice(&tree.end);
        for s in 0..tree.len() {
            self.tokens.push(tree.length(s));
            self.time.push(costs.time(tree.start[s], tree.length(s)));
        }
        for (&request, &s) in requests.iter().zip(&tree.terminal) {
            self.terminal[request as usize] = moved(s);
        }
    }

    /// Picoseconds of the requests of the groups from each place of an order on, everything shared:
    /// what is left to do before each, and 0 at the end.
    #[must_use]
    pub fn left<G: IntoIterator<Item = u32>>(
        &self,
        groups: impl DoubleEndedIterator<Item = G>,
    ) -> Vec<i64> {
        let (mut cover, mut left) = (Cover::new(self), vec![0]);
        for group in groups.rev() {
            group.into_iter().for_each(|request| cover.add(request));
            left.push(cover.time);
        }
        left.reverse();
        left
    }

    /// Number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// True without any segment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }

    /// The segments of a request, the deepest first.
    pub fn path(&self, request: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.terminal[request as usize]).filter(|&s| s != NONE);
        std::iter::successors(first, |&s| {
            Some(self.parent[s as usize]).filter(|&s| s != NONE)
        })
    }
}

/// Picoseconds of a token and of a query-key pair over all layers.
pub(super) struct Costs {
    token: f64,
    pair: f64,
}

impl Costs {
    pub(super) fn new(settings: &Settings, gradient: bool) -> Self {
        let (own, scoring) = (&settings.ownership, &settings.scoring);
        let attention = (scoring.layers - scoring.gdn_layers).max(0) as f64;
        let (mut token, mut pair) = (own.owned_token_ms / 3.0, own.local_pair_ms);
        if gradient {
            (token, pair) = (own.owned_token_ms, pair + own.local_backward_pair_ms);
        }
        let scale = MILLISECOND / settings.cp as f64;
        Self {
            token: scoring.layers as f64 * token * scale,
            pair: attention * pair * scale,
        }
    }

    pub(super) fn time(&self, start: i64, tokens: i64) -> i64 {
        let (before, tokens) = (start as f64, tokens as f64);
        let pairs = tokens * before + tokens * (tokens + 1.0) / 2.0;
        (self.token * tokens + self.pair * pairs).round() as i64
    }

    /// Picoseconds of a line of tokens.
    pub(super) fn of(&self, line: &Segments) -> i64 {
        let (mut total, mut ends) = (0, Vec::with_capacity(line.len()));
        for (s, &parent) in line.parents.iter().enumerate() {
            let start = ends.get(parent as usize).copied().unwrap_or(0);
            total += self.time(start, line.length(s));
            ends.push(start + line.length(s));
        }
        total
    }
}

/// A set of requests that only grows.
#[derive(Debug)]
pub struct Cover<'a> {
    forest: &'a Forest,
    seen: Vec<u32>,
    epoch: u32,
    /// Packed tokens, everything shared.
    pub tokens: i64,
    /// Picoseconds.
    pub time: i64,
}

impl<'a> Cover<'a> {
    /// The empty set.
    #[must_use]
    pub fn new(forest: &'a Forest) -> Self {
        Self {
            forest,
            seen: vec![0; forest.len()],
            epoch: 1,
            tokens: 0,
            time: 0,
        }
    }

    /// Starts anew with the empty set.
    pub fn clear(&mut self) {
        self.epoch += 1;
        (self.tokens, self.time) = (0, 0);
    }

    /// Adds a request.
    pub fn add(&mut self, request: u32) {
        for s in self.forest.path(request) {
            let s = s as usize;
            if self.seen[s] == self.epoch {
                return;
            }
            self.seen[s] = self.epoch;
            self.tokens += self.forest.tokens[s];
            self.time += self.forest.time[s];
        }
    }
}
