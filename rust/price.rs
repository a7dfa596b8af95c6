//! Evaluates a bound price program over a plan's measures.
//!
//! A program is a small graph of integer operations over two tables: the plan's measures and
//! one row of measures per pack. Binding (in Python) has already folded every model and
//! topology fact away and shared equal nodes; here nodes only run in order, all plan nodes
//! once and each pack node once per pack and loop. Integers are checked, never wrapped.

use crate::error::{Error, Result};

/// Declares the named results: a position, a name and a meaning each.
macro_rules! results {
    ($($index:ident $name:literal $meaning:literal;)*) => {
        /// Positions of the named results in [`Values`]; the names are in [`ROOTS`].
        pub mod root {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Index { $($index,)* END }
            $(#[doc = $meaning] pub const $index: usize = Index::$index as usize;)*
            /// How many there are.
            pub const COUNT: usize = Index::END as usize;
        }
        /// Names of the results every bound program has, in the order of [`root`]. Programs may
        /// have more results after these.
        pub const ROOTS: [&str; root::COUNT] = [$($name),*];
    };
}

results! {
    REQUIRED "required" "What a plan must find available: the memory check's price.";
    ESTIMATE "estimate" "The same before the safety factor.";
    STATIC "static" "Compute bytes of the rules alone, without any profile.";
    OUTPUT "output" "Output bytes, counted once.";
    FORWARD_REQUIRED "forward_required" "`REQUIRED` without the backward part and without buffer growth.";
    COST_REQUIRED "cost_required" "Required bytes of one part of a split, buffer growth included.";
    PEAK_INCREMENT "peak_increment" "What that adds to `FORWARD_REQUIRED`, without growth.";
    RETAINED "retained" "Bytes kept from forward to backward.";
    SPLIT_KEPT "split_kept" "Outputs and what one part of a split keeps until the backward.";
    CHECKPOINT_RETAINED "checkpoint_retained" "Retained bytes of the checkpoint floor alone.";
    CHECKPOINT_WORKSPACE "checkpoint_workspace" "Workspace bytes of the checkpoint floor alone.";
    GDN_RETAINED "gdn_retained" "Retained bytes of the gdn floor alone.";
    GDN_WORKSPACE "gdn_workspace" "Workspace bytes of the gdn floor alone.";
    SPLIT_WORKSPACE "split_workspace" "Workspace of one part of a split: the largest one, and first-call charges.";
    INPUT_GRADIENT "input_gradient" "Input gradient of the backward pass.";
    ADAPTER_GRADIENT "adapter_gradient" "Adapter gradients not allocated yet, beyond released boundaries.";
    BUFFERS "buffers" "Growth of communication buffers, before the factor.";
    HEAD "head" "Workspace of the output head.";
    PACKED_PRICED "packed_priced" "1 if a profile prices packed and logical tokens apart.";
    LOGICAL_BYTES "logical_bytes" "Bytes of the logical tokens that a profile keeps apart.";
    APART_BYTES "apart_bytes" "All bytes that a profile keeps apart: of logical tokens and of gdn states.";
    EXECUTED_TOKEN "executed_token" "Bytes a gdn layer saves per executed token; weighs ranks (known before any token).";
    STATE "state" "Bytes of one gdn state; weighs ranks.";
    OUTPUT_TOKEN "output_token" "Bytes a gdn layer saves per packed token; weighs ranks.";
    HEAD_CHUNK "largest_head_chunk" "Tokens of the head's largest chunk (known before any token).";
    MARGIN "margin" "The part of `REQUIRED` that stands in for uncharged rules.";
}

/// One operation. Operands are indices of earlier nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Node {
    /// A number.
    Const(i64),
    /// Measure of the plan.
    Plan(u32),
    /// Measure of the current pack.
    Pack(u32),
    /// a + b
    Add(u32, u32),
    /// a - b
    Sub(u32, u32),
    /// a * b
    Mul(u32, u32),
    /// Division rounded down.
    FloorDiv(u32, u32),
    /// Division rounded up.
    CeilDiv(u32, u32),
    /// The smaller.
    Min(u32, u32),
    /// The larger.
    Max(u32, u32),
    /// 1 if a < b, else 0.
    Less(u32, u32),
    /// 1 if a == b, else 0.
    Equal(u32, u32),
    /// The second if the first is not 0, else the third.
    Choose(u32, u32, u32),
    /// a times a factor in float64, truncated.
    Scale(u32, f64),
    /// Sum over the packs (0 without packs).
    SumPacks(u32),
    /// Largest over the packs (0 without packs, never negative).
    MaxPacks(u32),
    /// The charge of a rule in doubt, which has this number.
    Mark(u32, u32),
}

impl Node {
    /// The node of this name and operands; `scale` names its factor by index.
    pub fn named(op: &str, numbers: &[i64], factors: &[f64]) -> Result<Self> {
        let bad = || {
            let op: String = op.chars().take(80).collect();
            let operands = numbers.len();
            Error::input(format!(
                "a price node {op:?} of {operands} numbers does not exist"
            ))
        };
        let at = |i: usize| {
            let number = numbers.get(i).and_then(|&n| u32::try_from(n).ok());
            number.ok_or_else(bad)
        };
        Ok(match (op, numbers.len()) {
            ("const", 1) => Self::Const(numbers[0]),
            ("plan", 1) => Self::Plan(at(0)?),
            ("pack", 1) => Self::Pack(at(0)?),
            ("sum_packs", 1) => Self::SumPacks(at(0)?),
            ("max_packs", 1) => Self::MaxPacks(at(0)?),
            ("+", 2) => Self::Add(at(0)?, at(1)?),
            ("-", 2) => Self::Sub(at(0)?, at(1)?),
            ("*", 2) => Self::Mul(at(0)?, at(1)?),
            ("//", 2) => Self::FloorDiv(at(0)?, at(1)?),
            ("ceildiv", 2) => Self::CeilDiv(at(0)?, at(1)?),
            ("min", 2) => Self::Min(at(0)?, at(1)?),
            ("max", 2) => Self::Max(at(0)?, at(1)?),
            ("<", 2) => Self::Less(at(0)?, at(1)?),
            ("==", 2) => Self::Equal(at(0)?, at(1)?),
            ("choose", 3) => Self::Choose(at(0)?, at(1)?, at(2)?),
            ("scale", 2) => {
                let factor = factors.get(at(1)? as usize).copied();
                Self::Scale(at(0)?, factor.ok_or_else(bad)?)
            }
            ("mark", 2) => Self::Mark(at(0)?, at(1)?),
            _ => return Err(bad()),
        })
    }

    fn operands(self) -> ([u32; 3], usize) {
        match self {
            Self::Const(_) | Self::Plan(_) | Self::Pack(_) => ([0; 3], 0),
            Self::Scale(a, _) | Self::SumPacks(a) | Self::MaxPacks(a) | Self::Mark(a, _) => {
                ([a, 0, 0], 1)
            }
            Self::Add(a, b)
            | Self::Sub(a, b)
            | Self::Mul(a, b)
            | Self::FloorDiv(a, b)
            | Self::CeilDiv(a, b)
            | Self::Min(a, b)
            | Self::Max(a, b)
            | Self::Less(a, b)
            | Self::Equal(a, b) => ([a, b, 0], 2),
            Self::Choose(a, b, c) => ([a, b, c], 3),
        }
    }

    fn folds(self) -> bool {
        matches!(self, Self::SumPacks(_) | Self::MaxPacks(_))
    }

    /// The same operation over other operands; those it does not take are ignored.
    fn over(self, [a, b, c]: [u32; 3]) -> Self {
        match self {
            Self::Const(_) | Self::Plan(_) | Self::Pack(_) => self,
            Self::Add(..) => Self::Add(a, b),
            Self::Sub(..) => Self::Sub(a, b),
            Self::Mul(..) => Self::Mul(a, b),
            Self::FloorDiv(..) => Self::FloorDiv(a, b),
            Self::CeilDiv(..) => Self::CeilDiv(a, b),
            Self::Min(..) => Self::Min(a, b),
            Self::Max(..) => Self::Max(a, b),
            Self::Less(..) => Self::Less(a, b),
            Self::Equal(..) => Self::Equal(a, b),
            Self::Choose(..) => Self::Choose(a, b, c),
            Self::Scale(_, factor) => Self::Scale(a, factor),
            Self::Mark(_, rule) => Self::Mark(a, rule),
            Self::SumPacks(_) => Self::SumPacks(a),
            Self::MaxPacks(_) => Self::MaxPacks(a),
        }
    }
}

/// Plan nodes of one level, then the loop over packs that the next level needs.
#[derive(Debug, Clone, Default)]
struct Level {
    plan: Vec<(u32, Node)>,
    each_pack: Vec<(u32, Node)>,
    folds: Vec<(u32, Node)>,
}

/// A bound price: nodes in order, the levels in which those run that the results need, and the
/// safety factor.
#[derive(Debug, Clone, Default)]
pub struct Program {
    nodes: Vec<Node>,
    roots: Vec<u32>,
    safety: f64,
    levels: Vec<Level>,
    constants: Vec<i64>,
    results: Vec<u32>,
    plan_width: usize,
    pack_width: usize,
}

/// Reusable memory of an evaluation, and its results.
#[derive(Debug, Clone, Default)]
pub struct Values {
    slots: Vec<i64>,
    roots: Vec<i64>,
}

impl Values {
    /// Result `root` (see [`root`]) of the last evaluation.
    ///
    /// # Panics
    /// Before any evaluation: there is no result yet.
    #[must_use]
    pub fn root(&self, root: usize) -> i64 {
        self.roots[root]
    }

    /// All results of the last evaluation.
    #[must_use]
    pub fn roots(&self) -> &[i64] {
        &self.roots
    }
}

impl Program {
    /// Checks the graph (operands come first, results are per plan) and plans its loops.
    pub fn new(nodes: Vec<Node>, roots: Vec<u32>, safety: f64) -> Result<Self> {
        if !(safety.is_finite() && safety >= 0.0) {
            return Err(Error::input(format!(
                "safety is {safety}: it must be finite and at least 0"
            )));
        }
        let (mut plan_width, mut pack_width) = (0_usize, 0_usize);
        for (i, &node) in nodes.iter().enumerate() {
            let (operands, count) = node.operands();
            let operands = &operands[..count];
            if let Some(&late) = operands.iter().find(|&&o| o as usize >= i) {
                return Err(Error::input(format!(
                    "nodes[{i}] uses node {late}: operands must come before their node"
                )));
            }
            match node {
                Node::Plan(m) => plan_width = plan_width.max(m as usize + 1),
                Node::Pack(m) => pack_width = pack_width.max(m as usize + 1),
                Node::Scale(_, factor) if !factor.is_finite() => {
                    return Err(Error::input(format!(
                        "nodes[{i}] scales by {factor}: the factor must be finite"
                    )));
                }
                _ => {}
            }
        }
        let per_pack = per_pack(&nodes);
        for (i, &root) in roots.iter().enumerate() {
            match per_pack.get(root as usize) {
                None => {
                    return Err(Error::input(format!(
                        "roots[{i}] is {root}: there are {} nodes",
                        nodes.len()
                    )));
                }
                Some(true) => {
                    return Err(Error::input(format!(
                        "roots[{i}] differs per pack: sum it or take its largest over packs"
                    )));
                }
                Some(false) => {}
            }
        }
        let mut made = Self {
            nodes,
            safety,
            plan_width,
            pack_width,
            ..Self::default()
        };
        made.plan_loops(roots);
        Ok(made)
    }

    /// The same nodes with only some of the results, by position.
    #[must_use]
    pub fn part(&self, results: &[usize]) -> Self {
        let mut made = self.clone();
        made.plan_loops(results.iter().map(|&root| self.roots[root]).collect());
        made
    }

    /// Plans the loops that give some nodes as results.
    fn plan_loops(&mut self, roots: Vec<u32>) {
        let (kept, results) = reached(&self.nodes, &roots);
        let constant = |node: &Node| match node {
            Node::Const(value) => *value,
            _ => 0,
        };
        self.constants = kept.iter().map(constant).collect();
        self.levels = schedule(&kept);
        (self.roots, self.results) = (roots, results);
    }

    /// A result that measures depend on, so it must be the same for every plan.
    pub fn known(&self, at: usize) -> Result<i64> {
        match self.roots.get(at).map(|&i| self.nodes[i as usize]) {
            Some(Node::Const(value)) => Ok(value),
            _ => Err(Error::input(format!(
                "{} is used before there is a plan: it may read facts only",
                ROOTS[at]
            ))),
        }
    }

    /// The safety factor of the rules.
    #[must_use]
    pub fn safety(&self) -> f64 {
        self.safety
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True without any node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of results.
    #[must_use]
    pub fn results(&self) -> usize {
        self.roots.len()
    }

    /// Evaluates over a plan's measures and its packs' (one array each).
    pub fn evaluate<const G: usize>(
        &self,
        plan: &[i64],
        packs: &[[i64; G]],
        values: &mut Values,
    ) -> Result<()> {
        self.check(plan, G)?;
        values.slots.clear();
        values.slots.extend_from_slice(&self.constants);
        let slots = values.slots.as_mut_slice();
        let mut faults = Faults::default();
        for level in &self.levels {
            for &(at, node) in &level.plan {
                slots[at as usize] = faults.step(node, slots, plan, &[]);
            }
            if level.folds.is_empty() {
                continue;
            }
            for pack in packs {
                for &(at, node) in &level.each_pack {
                    slots[at as usize] = faults.step(node, slots, plan, pack);
                }
                for &(at, node) in &level.folds {
                    let value = faults.step(node, slots, plan, pack);
                    let kept = slots[at as usize];
                    slots[at as usize] = if matches!(node, Node::SumPacks(_)) {
                        faults.keep(kept.overflowing_add(value))
                    } else {
                        kept.max(value)
                    };
                }
            }
        }
        values.roots.clear();
        if faults.any() {
            return self.evaluate_chosen(plan, packs, &mut values.roots);
        }
        values
            .roots
            .extend(self.results.iter().map(|&result| slots[result as usize]));
        Ok(())
    }

    fn check(&self, plan: &[i64], pack_width: usize) -> Result<()> {
        for (place, width, read) in [
            ("plan", plan.len(), self.plan_width),
            ("a pack", pack_width, self.pack_width),
        ] {
            if width < read {
                let wrong = format!("{place} has {width} measures, the rules read {read}");
                return Err(Error::input(wrong));
            }
        }
        Ok(())
    }

    /// The results where some node has no value: a fault counts only where a result needs it, so
    /// a choice can stand before a division that its other branch must not make.
    #[cold]
    fn evaluate_chosen<const G: usize>(
        &self,
        plan: &[i64],
        packs: &[[i64; G]],
        results: &mut Vec<i64>,
    ) -> Result<()> {
        let columns = self.columns(plan, packs, |_| true);
        let mut faults = Faults::default();
        for &root in &self.roots {
            match columns[root as usize][0] {
                Ok(value) => results.push(value),
                Err(fault) => faults = faults.with(fault),
            }
        }
        faults.check()
    }

    /// Every node's value: one entry, or one per pack; `None` where it has no value.
    pub fn every<const G: usize>(
        &self,
        plan: &[i64],
        packs: &[[i64; G]],
    ) -> Result<Vec<Vec<Option<i64>>>> {
        self.check(plan, G)?;
        let known = |column: Vec<Value>| column.into_iter().map(Value::ok).collect();
        Ok((self.columns(plan, packs, |_| true).into_iter())
            .map(known)
            .collect())
    }

    /// Which rules in doubt matter to a plan, by their numbers: without its charge the last result
    /// is another. With `smaller` to any plan of its kind, for which eighths of it stand.
    pub fn matter<const G: usize>(
        &self,
        plan: &[i64],
        packs: &[[i64; G]],
        smaller: bool,
    ) -> Result<Vec<bool>> {
        self.check(plan, G)?;
        let (charge, mut found) = self.matter_here(plan, packs)?;
        let (mut plan, mut packs) = (plan.to_vec(), packs.to_vec());
        while smaller && found != charge {
            let mut largest = 0;
            for value in plan.iter_mut().chain(packs.as_flattened_mut()) {
                *value = (*value / 8).max((*value).min(1));
                largest = largest.max(*value);
            }
            for (known, now) in found.iter_mut().zip(self.matter_here(&plan, &packs)?.1) {
                *known |= now;
            }
            if largest <= 1 {
                break;
            }
        }
        Ok(found)
    }

    /// Which rules in doubt charge, and which of them matter; all that charge, where none alone
    /// but they together change the result.
    fn matter_here<const G: usize>(
        &self,
        plan: &[i64],
        packs: &[[i64; G]],
    ) -> Result<(Vec<bool>, Vec<bool>)> {
        let columns = self.columns(plan, packs, |_| true);
        let mut charge = Vec::new();
        for (node, column) in self.nodes.iter().zip(&columns) {
            if let &Node::Mark(_, rule) = node {
                charge.resize(charge.len().max(rule as usize + 1), false);
                charge[rule as usize] |= column.iter().any(|&value| value != Ok(0));
            }
        }
        let none = vec![false; charge.len()];
        let (Some(&last), true) = (self.roots.last(), charge.contains(&true)) else {
            return Ok((none.clone(), none));
        };
        let whole = columns[last as usize][0];
        if let Err(faults) = whole {
            faults.check()?;
        }
        let other = |charges: &dyn Fn(u32) -> bool| {
            self.columns(plan, packs, charges)[last as usize][0] != whole
        };
        if !other(&|_| false) {
            return Ok((charge, none));
        }
        let alone = |(rule, &charges)| charges && other(&|one| one as usize != rule);
        let found: Vec<bool> = charge.iter().enumerate().map(alone).collect();
        let found = if found.contains(&true) {
            found
        } else {
            charge.clone()
        };
        Ok((charge, found))
    }

    /// The column of every node; rules in doubt count where `charges` says so.
    fn columns<const G: usize>(
        &self,
        plan: &[i64],
        packs: &[[i64; G]],
        charges: impl Fn(u32) -> bool,
    ) -> Vec<Vec<Value>> {
        let mut made: Vec<Vec<Value>> = Vec::with_capacity(self.nodes.len());
        let per_pack = per_pack(&self.nodes);
        let zero = |node| match node {
            Node::Mark(_, rule) if !charges(rule) => Node::Const(0),
            _ => node,
        };
        for node in self.nodes.iter().copied().map(zero) {
            let (operands, _) = node.operands();
            let value = |operand: u32, pack: usize| {
                let shift = if per_pack[operand as usize] { pack } else { 0 };
                made[operand as usize][shift]
            };
            let column = if node.folds() {
                let mut kept = Ok(0);
                for pack in 0..packs.len() {
                    kept = folded(node, kept, value(operands[0], pack));
                }
                vec![kept]
            } else if per_pack[made.len()] {
                let step = |(i, pack): (usize, &[i64; G])| {
                    step_checked(node, |at| value(at, i), plan, pack)
                };
                packs.iter().enumerate().map(step).collect()
            } else {
                vec![step_checked(node, |at| value(at, 0), plan, &[])]
            };
            made.push(column);
        }
        made
    }
}

/// Whether each node has one value per pack, or one per plan.
fn per_pack(nodes: &[Node]) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(nodes.len());
    for &node in nodes {
        let (operands, count) = node.operands();
        let any = operands[..count].iter().any(|&o| found[o as usize]);
        found.push(matches!(node, Node::Pack(_)) || (any && !node.folds()));
    }
    found
}

/// The nodes that some results need, renumbered, and those results.
fn reached(nodes: &[Node], roots: &[u32]) -> (Vec<Node>, Vec<u32>) {
    let mut needed = vec![false; nodes.len()];
    for &root in roots {
        needed[root as usize] = true;
    }
    for i in (0..nodes.len()).rev() {
        let (operands, count) = nodes[i].operands();
        for &operand in &operands[..count] {
            needed[operand as usize] |= needed[i];
        }
    }
    let mut place = vec![0_u32; nodes.len()];
    let mut kept = Vec::new();
    for (i, &node) in nodes.iter().enumerate().filter(|&(i, _)| needed[i]) {
        place[i] = kept.len() as u32;
        let (operands, _) = node.operands();
        kept.push(node.over(operands.map(|operand| place[operand as usize])));
    }
    (
        kept,
        roots.iter().map(|&root| place[root as usize]).collect(),
    )
}

/// Sorts checked nodes into levels. A fold's result belongs to the level after its operand's,
/// and the loop of a level runs every pack node that its folds reach.
fn schedule(nodes: &[Node]) -> Vec<Level> {
    let per_pack = per_pack(nodes);
    let mut level_of: Vec<usize> = Vec::with_capacity(nodes.len());
    for &node in nodes {
        let (operands, count) = node.operands();
        let level = operands[..count]
            .iter()
            .map(|&o| level_of[o as usize])
            .max();
        level_of.push(level.unwrap_or(0) + usize::from(node.folds()));
    }
    let depth = level_of.iter().copied().max().unwrap_or(0) + 1;
    let mut levels = vec![Level::default(); depth];
    for (i, &node) in nodes.iter().enumerate() {
        if node.folds() {
            levels[level_of[i] - 1].folds.push((i as u32, node));
        } else if !per_pack[i] && !matches!(node, Node::Const(_)) {
            levels[level_of[i]].plan.push((i as u32, node));
        }
    }
    for level in &mut levels {
        let mut needed = vec![false; nodes.len()];
        for (_, fold) in &level.folds {
            needed[fold.operands().0[0] as usize] = true;
        }
        for i in (0..nodes.len()).rev() {
            if !(needed[i] && per_pack[i]) {
                needed[i] = false;
                continue;
            }
            let (operands, count) = nodes[i].operands();
            for &operand in &operands[..count] {
                needed[operand as usize] = true;
            }
        }
        level.each_pack = (0..nodes.len())
            .filter(|&i| needed[i])
            .map(|i| (i as u32, nodes[i]))
            .collect();
    }
    levels
}

/// A node's value, or why it has none.
type Value = std::result::Result<i64, Faults>;

/// Two values; what is wrong with either.
fn both(a: Value, b: Value) -> std::result::Result<(i64, i64), Faults> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(a.with(b)),
        (Err(fault), _) | (_, Err(fault)) => Err(fault),
    }
}

/// The value of one operation, unless it goes wrong.
fn checked(operation: impl FnOnce(&mut Faults) -> i64) -> Value {
    let mut faults = Faults::default();
    let value = operation(&mut faults);
    if faults.any() { Err(faults) } else { Ok(value) }
}

/// A fold's value with one more pack in it.
fn folded(node: Node, kept: Value, value: Value) -> Value {
    let (kept, value) = both(kept, value)?;
    if matches!(node, Node::SumPacks(_)) {
        checked(|faults| faults.keep(kept.overflowing_add(value)))
    } else {
        Ok(kept.max(value))
    }
}

/// One node over operands that may have no value.
fn step_checked(node: Node, at: impl Fn(u32) -> Value, plan: &[i64], pack: &[i64]) -> Value {
    if let Node::Choose(a, b, c) = node {
        return at(a).and_then(|a| at(if a == 0 { c } else { b }));
    }
    let (operands, count) = node.operands();
    let known = match count {
        0 => [0; 2],
        1 => [at(operands[0])?, 0],
        _ => both(at(operands[0]), at(operands[1])).map(|(a, b)| [a, b])?,
    };
    checked(|faults| faults.step(node.over([0, 1, 2]), &known, plan, pack))
}

/// Faults of an evaluation, read once at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Faults {
    overflow: bool,
    zero: bool,
}

impl Faults {
    #[inline]
    fn keep(&mut self, (value, overflow): (i64, bool)) -> i64 {
        self.overflow |= overflow;
        value
    }

    fn any(self) -> bool {
        self.overflow || self.zero
    }

    /// Both: what went wrong in two places.
    fn with(self, other: Self) -> Self {
        Self {
            overflow: self.overflow || other.overflow,
            zero: self.zero || other.zero,
        }
    }

    fn check(self) -> Result<()> {
        // An overflowed divisor may be a false zero: the overflow is the cause.
        if self.overflow {
            Err(Error::Overflow("a price"))
        } else if self.zero {
            Err(Error::input("a rule divides by 0"))
        } else {
            Ok(())
        }
    }

    /// Quotient rounded towards minus infinity, or plus infinity with `up`.
    #[inline]
    fn divide(&mut self, a: i64, b: i64, up: bool) -> i64 {
        if b == 0 {
            self.zero = true;
            return 0;
        }
        let quotient = self.keep(a.overflowing_div(b));
        let exact = a.wrapping_rem(b) == 0;
        let negative = (a < 0) != (b < 0);
        match (exact, negative, up) {
            (false, true, false) => quotient - 1,
            (false, false, true) => quotient + 1,
            _ => quotient,
        }
    }

    /// A float64 product, truncated towards 0.
    #[inline]
    fn scale(&mut self, value: i64, factor: f64) -> i64 {
        let product = value as f64 * factor;
        // 2^63 is exact in float64; everything below it truncates into range.
        self.overflow |= product.abs() >= 9_223_372_036_854_775_808.0;
        product as i64
    }

    #[inline]
    fn step(&mut self, node: Node, slots: &[i64], plan: &[i64], pack: &[i64]) -> i64 {
        let at = |i: u32| slots[i as usize];
        match node {
            Node::Const(value) => value,
            Node::Plan(m) => plan[m as usize],
            Node::Pack(m) => pack[m as usize],
            Node::Add(a, b) => self.keep(at(a).overflowing_add(at(b))),
            Node::Sub(a, b) => self.keep(at(a).overflowing_sub(at(b))),
            Node::Mul(a, b) => self.keep(at(a).overflowing_mul(at(b))),
            Node::FloorDiv(a, b) => self.divide(at(a), at(b), false),
            Node::CeilDiv(a, b) => self.divide(at(a), at(b), true),
            Node::Min(a, b) => at(a).min(at(b)),
            Node::Max(a, b) => at(a).max(at(b)),
            Node::Less(a, b) => i64::from(at(a) < at(b)),
            Node::Equal(a, b) => i64::from(at(a) == at(b)),
            Node::Choose(a, b, c) => at(if at(a) != 0 { b } else { c }),
            Node::Scale(a, factor) => self.scale(at(a), factor),
            // Folds run in their own place, after each pack.
            Node::SumPacks(a) | Node::MaxPacks(a) | Node::Mark(a, _) => at(a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LARGE: Error = Error::Overflow("a price");

    fn run(nodes: Vec<Node>, root: u32, plan: &[i64], packs: &[[i64; 2]]) -> Result<i64> {
        let program = Program::new(nodes, vec![root], 1.1)?;
        let mut values = Values::default();
        program.evaluate(plan, packs, &mut values)?;
        Ok(values.root(0))
    }

    #[test]
    fn folds_feed_later_folds() {
        // largest pack's share of the sum, rounded up: max over packs of ceil(100 x / sum)
        let nodes = vec![
            Node::Pack(1),
            Node::SumPacks(0),
            Node::Const(100),
            Node::Mul(0, 2),
            Node::CeilDiv(3, 1),
            Node::MaxPacks(4),
            Node::Plan(0),
            Node::Add(5, 6),
        ];
        let got = run(nodes, 7, &[1000], &[[0, 1], [0, 2], [0, 4]]);
        assert_eq!(got, Ok(1058));
    }

    #[test]
    fn divides_as_python_does() {
        let mut faults = Faults::default();
        for (a, b, down, up) in [(7, 2, 3, 4), (-7, 2, -4, -3), (7, -2, -4, -3), (6, 3, 2, 2)] {
            assert_eq!(faults.divide(a, b, false), down);
            assert_eq!(faults.divide(a, b, true), up);
        }
        assert_eq!(faults.check(), Ok(()));
        faults.divide(1, 0, false);
        assert!(matches!(faults.check(), Err(Error::Input(_))));
        faults.divide(i64::MIN, -1, false);
        assert_eq!(faults.check(), Err(TOO_LARGE));
    }

    #[test]
    fn refuses_instead_of_wrapping() {
        let nodes = vec![Node::Plan(0), Node::Mul(0, 0), Node::Scale(1, 1.1)];
        assert_eq!(run(nodes.clone(), 2, &[10], &[]), Ok(110));
        assert_eq!(run(nodes.clone(), 2, &[1 << 32], &[]), Err(TOO_LARGE));
        assert_eq!(
            run(nodes, 2, &[(1 << 31) + 900_000_000], &[]),
            Err(TOO_LARGE)
        );
    }

    #[test]
    fn a_branch_not_taken_may_have_no_value() {
        // choose(x == 0, 7, 100 // x), and a division that nothing reads
        let nodes = vec![
            Node::Plan(0),
            Node::Const(0),
            Node::Equal(0, 1),
            Node::Const(7),
            Node::Const(100),
            Node::FloorDiv(4, 0),
            Node::Choose(2, 3, 5),
            Node::CeilDiv(4, 1),
        ];
        assert_eq!(run(nodes.clone(), 6, &[0], &[]), Ok(7));
        assert_eq!(run(nodes.clone(), 6, &[9], &[]), Ok(11));
        assert!(matches!(run(nodes, 5, &[0], &[]), Err(Error::Input(_))));
        // The same within packs, and an overflow that only one pack would make.
        let nodes = vec![
            Node::Pack(0),
            Node::Pack(1),
            Node::Mul(0, 0),
            Node::Choose(1, 2, 0),
            Node::SumPacks(3),
        ];
        let huge = 1 << 40;
        assert_eq!(
            run(nodes.clone(), 4, &[], &[[huge, 0], [3, 1]]),
            Ok(huge + 9)
        );
        assert_eq!(run(nodes, 4, &[], &[[huge, 1], [3, 1]]), Err(TOO_LARGE));
    }

    #[test]
    fn refuses_a_broken_graph() {
        let late = vec![Node::Add(0, 1), Node::Const(1)];
        assert!(matches!(
            Program::new(late, vec![0], 1.1),
            Err(Error::Input(_))
        ));
        let per_pack = vec![Node::Pack(0)];
        assert!(matches!(
            Program::new(per_pack, vec![0], 1.1),
            Err(Error::Input(_))
        ));
        assert!(matches!(
            Program::new(vec![], vec![0], 1.1),
            Err(Error::Input(_))
        ));
        let short = vec![Node::Plan(3)];
        assert!(matches!(run(short, 0, &[1, 2], &[]), Err(Error::Input(_))));
    }
}
