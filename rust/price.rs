//! Evaluates a bound price program over a plan's measures.
//!
//! A program is a small graph of integer operations over two tables: the plan's measures and
//! one row of measures per group. Binding (in Python) has already folded every model and
//! topology fact away and shared equal nodes; here nodes only run in order, all plan nodes
//! once and each group node once per group and loop. Integers are checked, never wrapped.

use crate::error::{Error, Result};

/// Positions of the named results in [`Values`]; the names are in [`ROOTS`].
pub mod root {
    /// What a plan must find free: the memory check's price.
    pub const REQUIRED: usize = 0;
    /// The same before the safety factor.
    pub const RAW: usize = 1;
    /// Static compute bytes: what the rules say without any profile.
    pub const STATIC: usize = 2;
    /// Output bytes, counted once.
    pub const OUTPUT: usize = 3;
    /// `REQUIRED` without the backward part and without buffer growth.
    pub const FORWARD_REQUIRED: usize = 4;
    /// The ladder's required bytes of a plan, buffer growth included.
    pub const COST_REQUIRED: usize = 5;
    /// What the ladder's required adds to `FORWARD_REQUIRED`, without growth.
    pub const PEAK_INCREMENT: usize = 6;
    /// The larger retained bytes of the checkpoint and the recurrent floor.
    pub const FLOOR_RETAINED: usize = 7;
    /// Retained bytes of the checkpoint floor alone.
    pub const CHECKPOINT_RETAINED: usize = 8;
    /// Workspace bytes of the checkpoint floor alone.
    pub const CHECKPOINT_WORKSPACE: usize = 9;
    /// Retained bytes of the recurrent (gated-delta-net) floor alone.
    pub const GDN_RETAINED: usize = 10;
    /// Workspace bytes of the recurrent floor alone.
    pub const GDN_WORKSPACE: usize = 11;
    /// The ladder's workspace: the largest one, plus the cold transient.
    pub const WORKSPACE: usize = 12;
    /// Input gradient of the backward pass.
    pub const INPUT_GRADIENT: usize = 13;
    /// Adapter gradients not allocated yet, beyond released boundaries.
    pub const ADAPTER_GRADIENT: usize = 14;
    /// Growth of the expert-parallel communication buffer, before the factor.
    pub const HYBRIDEP_GROWTH: usize = 15;
    /// Workspace of the output head.
    pub const HEAD: usize = 16;
    /// Recurrent state bytes of one segment in one layer (a constant of the program).
    pub const SEGMENT_LAYER_BYTES: usize = 17;
    /// The part of `REQUIRED` that stands in for rules outside their coverage.
    pub const MARGIN: usize = 18;
    /// How many rules matter to this plan but are unpriced or unmeasured here.
    pub const UNPRICED: usize = 19;
}

/// Names of the results every bound program has, in the order of [`root`]. Programs may have
/// more results after these.
pub const ROOTS: [&str; 20] = [
    "required",
    "raw",
    "static",
    "output",
    "forward_required",
    "cost_required",
    "peak_increment",
    "floor_retained",
    "checkpoint_retained",
    "checkpoint_workspace",
    "gdn_retained",
    "gdn_workspace",
    "workspace",
    "input_gradient",
    "adapter_gradient",
    "hybridep_growth",
    "head",
    "segment_layer_bytes",
    "margin",
    "unpriced",
];

/// One operation. Operands are indices of earlier nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Node {
    /// A number.
    Const(i64),
    /// Measure of the plan.
    Plan(u32),
    /// Measure of the current group.
    Group(u32),
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
    /// Sum over the groups (0 without groups).
    SumGroups(u32),
    /// Largest over the groups (0 without groups, never negative).
    MaxGroups(u32),
}

impl Node {
    fn operands(self) -> ([u32; 3], usize) {
        match self {
            Self::Const(_) | Self::Plan(_) | Self::Group(_) => ([0; 3], 0),
            Self::Scale(a, _) | Self::SumGroups(a) | Self::MaxGroups(a) => ([a, 0, 0], 1),
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
        matches!(self, Self::SumGroups(_) | Self::MaxGroups(_))
    }

    /// The same operation over operands 0 and 1; choices are not of this kind.
    fn over_first(self) -> Self {
        match self {
            Self::Add(..) => Self::Add(0, 1),
            Self::Sub(..) => Self::Sub(0, 1),
            Self::Mul(..) => Self::Mul(0, 1),
            Self::FloorDiv(..) => Self::FloorDiv(0, 1),
            Self::CeilDiv(..) => Self::CeilDiv(0, 1),
            Self::Min(..) => Self::Min(0, 1),
            Self::Max(..) => Self::Max(0, 1),
            Self::Less(..) => Self::Less(0, 1),
            Self::Equal(..) => Self::Equal(0, 1),
            Self::Scale(_, factor) => Self::Scale(0, factor),
            Self::SumGroups(_) => Self::SumGroups(0),
            Self::MaxGroups(_) => Self::MaxGroups(0),
            Self::Const(_) | Self::Plan(_) | Self::Group(_) | Self::Choose(..) => self,
        }
    }
}

/// Plan nodes of one level, then the loop over groups that the next level needs.
#[derive(Debug, Clone, Default)]
struct Level {
    plan: Vec<(u32, Node)>,
    each_group: Vec<(u32, Node)>,
    folds: Vec<(u32, Node)>,
}

/// A bound price: nodes in order, the levels in which they run, and the results.
#[derive(Debug, Clone)]
pub struct Program {
    nodes: Vec<Node>,
    levels: Vec<Level>,
    constants: Vec<i64>,
    roots: Vec<u32>,
    plan_width: usize,
    group_width: usize,
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
    pub fn new(nodes: Vec<Node>, roots: Vec<u32>) -> Result<Self> {
        let mut per_group = Vec::with_capacity(nodes.len());
        let mut level_of = Vec::with_capacity(nodes.len());
        let (mut plan_width, mut group_width) = (0_usize, 0_usize);
        for (i, &node) in nodes.iter().enumerate() {
            let (operands, count) = node.operands();
            let operands = &operands[..count];
            if let Some(&late) = operands.iter().find(|&&o| o as usize >= i) {
                return Err(Error::input(format!(
                    "nodes[{i}] uses node {late}: operands must come before their node"
                )));
            }
            let any_group = operands.iter().any(|&o| per_group[o as usize]);
            let level = operands.iter().map(|&o| level_of[o as usize]).max();
            let level: usize = level.unwrap_or(0);
            match node {
                Node::Plan(m) => plan_width = plan_width.max(m as usize + 1),
                Node::Group(m) => group_width = group_width.max(m as usize + 1),
                Node::Scale(_, factor) if !factor.is_finite() => {
                    return Err(Error::input(format!(
                        "nodes[{i}] scales by {factor}: the factor must be finite"
                    )));
                }
                _ => {}
            }
            per_group.push(matches!(node, Node::Group(_)) || (any_group && !node.folds()));
            level_of.push(level + usize::from(node.folds()));
        }
        for (i, &root) in roots.iter().enumerate() {
            match per_group.get(root as usize) {
                None => {
                    return Err(Error::input(format!(
                        "roots[{i}] is {root}: there are {} nodes",
                        nodes.len()
                    )));
                }
                Some(true) => {
                    return Err(Error::input(format!(
                        "roots[{i}] differs per group: sum it or take its largest over groups"
                    )));
                }
                Some(false) => {}
            }
        }
        let levels = schedule(&nodes, &per_group, &level_of);
        let constants = nodes
            .iter()
            .map(|node| {
                if let Node::Const(value) = node {
                    *value
                } else {
                    0
                }
            })
            .collect();
        Ok(Self {
            nodes,
            levels,
            constants,
            roots,
            plan_width,
            group_width,
        })
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

    /// Evaluates over a plan's measures and its groups' (one array each).
    #[inline]
    pub fn evaluate<const G: usize>(
        &self,
        plan: &[i64],
        groups: &[[i64; G]],
        values: &mut Values,
    ) -> Result<()> {
        self.evaluate_flat(plan, groups.as_flattened(), G, values)
    }

    /// The same over groups stored one after another, `width` measures each.
    pub fn evaluate_flat(
        &self,
        plan: &[i64],
        groups: &[i64],
        width: usize,
        values: &mut Values,
    ) -> Result<()> {
        if plan.len() < self.plan_width {
            return Err(Error::input(format!(
                "plan has {} measures, the rules read {}",
                plan.len(),
                self.plan_width
            )));
        }
        if width < self.group_width.max(1) || groups.len() % width != 0 {
            return Err(Error::input(format!(
                "groups has {} entries of width {width}, the rules read {} measures a group",
                groups.len(),
                self.group_width
            )));
        }
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
            for group in groups.chunks_exact(width) {
                for &(at, node) in &level.each_group {
                    slots[at as usize] = faults.step(node, slots, plan, group);
                }
                for &(at, node) in &level.folds {
                    let value = faults.step(node, slots, plan, group);
                    let kept = slots[at as usize];
                    slots[at as usize] = if matches!(node, Node::SumGroups(_)) {
                        faults.keep(kept.overflowing_add(value))
                    } else {
                        kept.max(value)
                    };
                }
            }
        }
        if faults.any() {
            return self.evaluate_chosen(plan, groups, width, values);
        }
        values.roots.clear();
        values
            .roots
            .extend(self.roots.iter().map(|&root| slots[root as usize]));
        Ok(())
    }

    /// The same where some node has no value: a fault counts only where a result needs it, so a
    /// choice can stand before a division that its other branch must not make.
    #[cold]
    fn evaluate_chosen(
        &self,
        plan: &[i64],
        groups: &[i64],
        width: usize,
        values: &mut Values,
    ) -> Result<()> {
        let mut slots: Vec<Value> = self.constants.iter().map(|&value| Ok(value)).collect();
        for level in &self.levels {
            for &(at, node) in &level.plan {
                slots[at as usize] = step_checked(node, &slots, plan, &[]);
            }
            for group in groups.chunks_exact(width) {
                for &(at, node) in &level.each_group {
                    slots[at as usize] = step_checked(node, &slots, plan, group);
                }
                for &(at, node) in &level.folds {
                    let value = step_checked(node, &slots, plan, group);
                    let kept = slots[at as usize];
                    slots[at as usize] = both(kept, value).and_then(|(kept, value)| {
                        if matches!(node, Node::SumGroups(_)) {
                            checked(|faults| faults.keep(kept.overflowing_add(value)))
                        } else {
                            Ok(kept.max(value))
                        }
                    });
                }
            }
        }
        let mut faults = Faults::default();
        values.roots.clear();
        for &root in &self.roots {
            match slots[root as usize] {
                Ok(value) => values.roots.push(value),
                Err(fault) => faults = faults.with(fault),
            }
        }
        faults.check()
    }
}

/// Sorts the nodes into levels. A fold's result belongs to the level after its operand's, and
/// the loop of a level runs every group node that its folds reach.
fn schedule(nodes: &[Node], per_group: &[bool], level_of: &[usize]) -> Vec<Level> {
    let depth = level_of.iter().copied().max().unwrap_or(0) + 1;
    let mut levels = vec![Level::default(); depth];
    for (i, &node) in nodes.iter().enumerate() {
        if node.folds() {
            levels[level_of[i] - 1].folds.push((i as u32, node));
        } else if !per_group[i] && !matches!(node, Node::Const(_)) {
            levels[level_of[i]].plan.push((i as u32, node));
        }
    }
    for level in &mut levels {
        let mut needed = vec![false; nodes.len()];
        for (_, fold) in &level.folds {
            let (operands, _) = fold.operands();
            needed[operands[0] as usize] = true;
        }
        for i in (0..nodes.len()).rev() {
            if !(needed[i] && per_group[i]) {
                needed[i] = false;
                continue;
            }
            let (operands, count) = nodes[i].operands();
            for &operand in &operands[..count] {
                needed[operand as usize] = true;
            }
        }
        level.each_group = (0..nodes.len())
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

/// One node over operands that may have no value.
fn step_checked(node: Node, slots: &[Value], plan: &[i64], group: &[i64]) -> Value {
    let at = |i: u32| slots[i as usize];
    if let Node::Choose(a, b, c) = node {
        return at(a).and_then(|a| at(if a == 0 { c } else { b }));
    }
    let (operands, count) = node.operands();
    let known = match count {
        0 => [0; 2],
        1 => [at(operands[0])?, 0],
        _ => both(at(operands[0]), at(operands[1])).map(|(a, b)| [a, b])?,
    };
    checked(|faults| faults.step(node.over_first(), &known, plan, group))
}

/// What went wrong in an evaluation; looked at once, at its end.
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
    fn step(&mut self, node: Node, slots: &[i64], plan: &[i64], group: &[i64]) -> i64 {
        let at = |i: u32| slots[i as usize];
        match node {
            Node::Const(value) => value,
            Node::Plan(m) => plan[m as usize],
            Node::Group(m) => group[m as usize],
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
            // Folds run in their own place, after each group.
            Node::SumGroups(a) | Node::MaxGroups(a) => at(a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LARGE: Error = Error::Overflow("a price");

    fn run(nodes: Vec<Node>, root: u32, plan: &[i64], groups: &[[i64; 2]]) -> Result<i64> {
        let program = Program::new(nodes, vec![root])?;
        let mut values = Values::default();
        program.evaluate(plan, groups, &mut values)?;
        Ok(values.root(0))
    }

    #[test]
    fn folds_feed_later_folds() {
        // largest group's share of the sum, rounded up: max over groups of ceil(100 x / sum)
        let nodes = vec![
            Node::Group(1),
            Node::SumGroups(0),
            Node::Const(100),
            Node::Mul(0, 2),
            Node::CeilDiv(3, 1),
            Node::MaxGroups(4),
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
        // The same within groups, and an overflow that only one group would make.
        let nodes = vec![
            Node::Group(0),
            Node::Group(1),
            Node::Mul(0, 0),
            Node::Choose(1, 2, 0),
            Node::SumGroups(3),
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
        assert!(matches!(Program::new(late, vec![0]), Err(Error::Input(_))));
        let per_group = vec![Node::Group(0)];
        assert!(matches!(
            Program::new(per_group, vec![0]),
            Err(Error::Input(_))
        ));
        assert!(matches!(
            Program::new(vec![], vec![0]),
            Err(Error::Input(_))
        ));
        let short = vec![Node::Plan(3)];
        assert!(matches!(run(short, 0, &[1, 2], &[]), Err(Error::Input(_))));
    }
}
