//! Python classes and functions of the stage `price`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use std::sync::Arc;

use pyo3::prelude::*;

use super::convert::List;
use crate::error::Result;
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
        let one = |(op, numbers): &(String, List<i64>)| Node::named(op, &numbers.0, &factors.0);
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

    /// Which rules in doubt matter to a plan, by their numbers: without its charge the last result
    /// is another. With `smaller` to any smaller plan of its kind, too.
    fn matter(&self, measures: &Measures, smaller: bool) -> PyResult<Vec<bool>> {
        let Measures { plan, packs } = measures;
        Ok(self.inner.matter(plan, packs, smaller)?)
    }

    /// Settings of measures as the rules have them.
    fn measure_settings(&self) -> PyResult<Settings> {
        Ok(Settings::of(&self.inner)?)
    }
}
