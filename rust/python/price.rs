//! Python classes and functions of the stage `price`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use std::sync::Arc;

use pyo3::prelude::*;

use super::convert::{List, short};
use crate::error::{Error, Result};
use crate::measures::{Measures, Settings};
use crate::price::{Node, Program, Values};

/// A bound price program, shared with the engine.
#[pyclass(name = "Program", module = "waveplan._core", frozen)]
#[derive(Clone)]
pub(crate) struct PyProgram {
    pub(crate) inner: Arc<Program>,
}

#[pymethods]
impl PyProgram {
    #[new]
    fn new(
        nodes: List<(String, List<i64>)>,
        factors: List<f64>,
        roots: List<u32>,
        safety: f64,
    ) -> PyResult<Self> {
        let one = |(op, numbers): &(String, List<i64>)| node(op, &numbers.0, &factors.0);
        let nodes = nodes.0.iter().map(one).collect::<Result<_>>()?;
        let inner = Arc::new(Program::new(nodes, roots.0, safety)?);
        Ok(Self { inner })
    }

    /// Results over one plan.
    fn evaluate(&self, measures: &Measures) -> PyResult<Vec<i64>> {
        let mut values = Values::default();
        let Measures { plan, packs } = measures;
        self.inner.evaluate(plan, packs, &mut values)?;
        Ok(values.roots().to_vec())
    }

    /// The value of every node over one plan: one entry, or one per pack; `None` where it has no
    /// value.
    fn every(&self, measures: &Measures) -> PyResult<Vec<Vec<Option<i64>>>> {
        Ok(self.inner.every(&measures.plan, &measures.packs)?)
    }

    /// Settings of measures as the rules have them, on `tp` by `cp` ranks.
    fn measure_settings(&self, tp: i64, cp: i64, gdn: bool) -> PyResult<Settings> {
        let of_rules = Settings::of(&self.inner)?;
        let made = Settings {
            tp,
            cp,
            gdn,
            ..of_rules
        };
        made.check()?;
        Ok(made)
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

/// A node from its name and operands; `scale` names its factor by index.
fn node(op: &str, numbers: &[i64], factors: &[f64]) -> Result<Node> {
    let bad = || {
        let (op, numbers) = (short(op), short(numbers));
        Error::input(format!("a price node {op} of {numbers} does not exist"))
    };
    let at = |i: usize| {
        let number = numbers.get(i).and_then(|&n| u32::try_from(n).ok());
        number.ok_or_else(bad)
    };
    Ok(match (op, numbers.len()) {
        ("const", 1) => Node::Const(numbers[0]),
        ("plan", 1) => Node::Plan(at(0)?),
        ("pack", 1) => Node::Pack(at(0)?),
        ("sum_packs", 1) => Node::SumPacks(at(0)?),
        ("max_packs", 1) => Node::MaxPacks(at(0)?),
        ("+", 2) => Node::Add(at(0)?, at(1)?),
        ("-", 2) => Node::Sub(at(0)?, at(1)?),
        ("*", 2) => Node::Mul(at(0)?, at(1)?),
        ("//", 2) => Node::FloorDiv(at(0)?, at(1)?),
        ("ceildiv", 2) => Node::CeilDiv(at(0)?, at(1)?),
        ("min", 2) => Node::Min(at(0)?, at(1)?),
        ("max", 2) => Node::Max(at(0)?, at(1)?),
        ("<", 2) => Node::Less(at(0)?, at(1)?),
        ("==", 2) => Node::Equal(at(0)?, at(1)?),
        ("choose", 3) => Node::Choose(at(0)?, at(1)?, at(2)?),
        ("scale", 2) => {
            let factor = factors.get(at(1)? as usize).copied();
            Node::Scale(at(0)?, factor.ok_or_else(bad)?)
        }
        _ => return Err(bad()),
    })
}
