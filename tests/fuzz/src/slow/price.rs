//! Price programs by their definition: every node is asked for its value, in integers twice as
//! wide as a price, and what leaves 64 bits is an error.

use std::collections::HashMap;

use waveplan::price::Node;

/// Why a program has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A number leaves 64 bits.
    Overflow,
    /// A division by zero.
    Zero,
}

/// A plan, its packs, and the nodes asked so far.
#[derive(Debug)]
pub struct Slow<'a> {
    nodes: &'a [Node],
    plan: &'a [i64],
    packs: Vec<&'a [i64]>,
    known: HashMap<(u32, Option<usize>), Result<i64, Fault>>,
}

impl<'a> Slow<'a> {
    /// Of checked nodes.
    #[must_use]
    pub fn new(nodes: &'a [Node], plan: &'a [i64], packs: Vec<&'a [i64]>) -> Self {
        Self {
            nodes,
            plan,
            packs,
            known: HashMap::new(),
        }
    }

    /// The value of a node of the plan, or of one pack.
    pub fn value(&mut self, node: u32, pack: Option<usize>) -> Result<i64, Fault> {
        if let Some(known) = self.known.get(&(node, pack)) {
            return *known;
        }
        let value = self.fresh(node, pack);
        self.known.insert((node, pack), value);
        value
    }

    fn fresh(&mut self, node: u32, pack: Option<usize>) -> Result<i64, Fault> {
        let node = self.nodes[node as usize];
        let mut two = |a: u32, b: u32| match (self.value(a, pack), self.value(b, pack)) {
            (Ok(a), Ok(b)) => Ok((i128::from(a), i128::from(b))),
            (Err(Fault::Overflow), _) | (_, Err(Fault::Overflow)) => Err(Fault::Overflow),
            _ => Err(Fault::Zero),
        };
        let exact = match node {
            Node::Const(value) => i128::from(value),
            Node::Plan(measure) => i128::from(self.plan[measure as usize]),
            Node::Pack(measure) => {
                i128::from(self.packs[pack.expect("only inside a fold")][measure as usize])
            }
            Node::Add(a, b) => two(a, b).map(|(a, b)| a + b)?,
            Node::Sub(a, b) => two(a, b).map(|(a, b)| a - b)?,
            Node::Mul(a, b) => two(a, b).map(|(a, b)| a * b)?,
            Node::FloorDiv(a, b) | Node::CeilDiv(a, b) => {
                let (a, b) = two(a, b)?;
                if b == 0 {
                    return Err(Fault::Zero);
                }
                // Rounded down: what is left has the sign of the divisor.
                let down = |a: i128, b: i128| {
                    (a - a.rem_euclid(b.abs())) / b
                        - i128::from(b < 0 && a.rem_euclid(b.abs()) != 0)
                };
                if matches!(node, Node::FloorDiv(..)) {
                    down(a, b)
                } else {
                    -down(-a, b)
                }
            }
            Node::Min(a, b) => two(a, b).map(|(a, b)| a.min(b))?,
            Node::Max(a, b) => two(a, b).map(|(a, b)| a.max(b))?,
            Node::Less(a, b) => two(a, b).map(|(a, b)| i128::from(a < b))?,
            Node::Equal(a, b) => two(a, b).map(|(a, b)| i128::from(a == b))?,
            Node::Choose(a, b, c) => {
                let picked = if self.value(a, pack)? == 0 { c } else { b };
                i128::from(self.value(picked, pack)?)
            }
            Node::Scale(a, factor) => {
                let product = self.value(a, pack)? as f64 * factor;
                if product.abs() >= 2.0_f64.powi(63) {
                    return Err(Fault::Overflow);
                }
                product.trunc() as i128
            }
            Node::Mark(a, _) => i128::from(self.value(a, pack)?),
            Node::SumPacks(a) => {
                let mut sum = 0_i64;
                for value in self.each(a)? {
                    sum = sum.checked_add(value).ok_or(Fault::Overflow)?;
                }
                i128::from(sum)
            }
            Node::MaxPacks(a) => {
                let largest = self.each(a)?.into_iter().max();
                i128::from(largest.unwrap_or(0).max(0))
            }
        };
        i64::try_from(exact).map_err(|_| Fault::Overflow)
    }

    /// The value of a node in each pack; an overflow comes before a division by zero.
    fn each(&mut self, node: u32) -> Result<Vec<i64>, Fault> {
        let all: Vec<_> = (0..self.packs.len())
            .map(|pack| self.value(node, Some(pack)))
            .collect();
        if all.contains(&Err(Fault::Overflow)) {
            return Err(Fault::Overflow);
        }
        all.into_iter().collect()
    }

    /// The values of some nodes of the plan; an overflow comes before a division by zero.
    pub fn values(&mut self, nodes: &[u32]) -> Result<Vec<i64>, Fault> {
        let all: Vec<_> = nodes.iter().map(|&node| self.value(node, None)).collect();
        if all.contains(&Err(Fault::Overflow)) {
            return Err(Fault::Overflow);
        }
        all.into_iter().collect()
    }
}
