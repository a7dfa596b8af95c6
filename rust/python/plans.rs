//! Python classes of what a search found: waves, refusals and their plans.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use super::assign::PyAssignment;
use super::convert::{column, indices};
use super::errors::{detached, to_python};
use super::pack::PyPacking;
use super::tree::PyTree;
use super::width::stop_name;
use crate::engine::{Engine, FlatPlan, Found, GroupPlan, Planned, Tried};
use crate::error::Error;
use crate::layout;
use crate::split::Cost;
use crate::width::Stop;

type Column<'py> = Bound<'py, PyArray1<i64>>;

/// A price inside a split: required, retained, checkpoint retained, workspace, input gradient,
/// peak increment, buffer growth, adapter gradient.
pub(super) fn cost_columns(cost: &Cost) -> [i64; 8] {
    [
        cost.required,
        cost.retained,
        cost.checkpoint_retained,
        cost.checkpoint_workspace,
        cost.input_gradient,
        cost.peak_increment,
        cost.hybridep_growth,
        cost.adapter_gradient,
    ]
}

/// What a search ended with.
#[pyclass(frozen, name = "Found", module = "waveplan._core")]
pub(super) struct PyFound {
    pub(super) engine: Arc<Engine>,
    pub(super) found: Found,
}

impl PyFound {
    fn plan_of(&self, plan: &Arc<FlatPlan>) -> PyPlan {
        PyPlan {
            engine: Arc::clone(&self.engine),
            plan: Arc::clone(plan),
        }
    }
}

#[pymethods]
impl PyFound {
    /// "wave", "split" or "refused".
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.found {
            Found::Refused(..) => "refused",
            Found::Wave(wave) => match wave.planned {
                Planned::Whole(_) => "wave",
                Planned::Split(_) => "split",
            },
        }
    }

    #[getter]
    fn width(&self) -> usize {
        match &self.found {
            Found::Wave(wave) => wave.width,
            Found::Refused(width, ..) => *width,
        }
    }

    #[getter]
    fn items<'py>(&self, py: Python<'py>) -> Column<'py> {
        let items = match &self.found {
            Found::Wave(wave) => &wave.items,
            Found::Refused(_, items, _) => items,
        };
        column(py, items.iter().map(|&item| item as i64).collect())
    }

    #[getter]
    fn required(&self) -> i64 {
        match &self.found {
            Found::Wave(wave) => wave.required,
            Found::Refused(_, _, refusal) => refusal.required,
        }
    }

    #[getter]
    fn cold(&self) -> bool {
        match &self.found {
            Found::Wave(wave) => wave.cold,
            Found::Refused(..) => true,
        }
    }

    /// Why the wave is not wider, and at which width that was seen.
    #[getter]
    fn stop(&self) -> (&'static str, usize) {
        match &self.found {
            Found::Wave(wave) => stop_name(wave.stop),
            Found::Refused(width, ..) => stop_name(Stop::Memory(*width)),
        }
    }

    /// The plan at the width where the search stopped.
    #[getter]
    fn stopped(&self) -> Option<PyPlan> {
        match &self.found {
            Found::Wave(wave) => wave.stopped.as_ref().map(|plan| self.plan_of(plan)),
            Found::Refused(..) => None,
        }
    }

    /// The plans that run, in order; of a refusal the fully shared one.
    #[getter]
    fn plans(&self) -> Vec<PyPlan> {
        match &self.found {
            Found::Wave(wave) => match &wave.planned {
                Planned::Whole(plan) => vec![self.plan_of(plan)],
                Planned::Split(rung) => rung.parts.iter().map(|p| self.plan_of(p)).collect(),
            },
            Found::Refused(_, _, refusal) => vec![self.plan_of(&refusal.plan)],
        }
    }

    /// Per part of a split, its requests, numbered within the wave's share.
    #[getter]
    fn part_requests<'py>(&self, py: Python<'py>) -> Vec<Column<'py>> {
        match &self.found {
            Found::Wave(wave) => match &wave.planned {
                Planned::Split(rung) => rung.requests.iter().map(|r| indices(py, r)).collect(),
                Planned::Whole(_) => Vec::new(),
            },
            Found::Refused(..) => Vec::new(),
        }
    }

    /// What the ladder tried: parts, layouts ("bound" where a lower bound said no), bytes.
    #[getter]
    fn tried(&self) -> Vec<(usize, &'static str, i64)> {
        let row = |t: &Tried| (t.parts, t.mode.map_or("bound", |m| m.name()), t.required);
        match &self.found {
            Found::Refused(_, _, refusal) => refusal.tried.iter().map(row).collect(),
            Found::Wave(_) => Vec::new(),
        }
    }

    #[getter]
    fn unsplittable(&self) -> bool {
        matches!(&self.found, Found::Refused(_, _, refusal) if refusal.unsplittable)
    }
}

/// One forward's plan.
#[pyclass(frozen, name = "Plan", module = "waveplan._core")]
pub(super) struct PyPlan {
    engine: Arc<Engine>,
    plan: Arc<FlatPlan>,
}

impl PyPlan {
    fn group(&self, py: Python<'_>, g: usize) -> PyResult<&GroupPlan> {
        self.plan.groups.get(g).ok_or_else(|| {
            let groups = self.plan.groups.len();
            to_python(
                py,
                &Error::input(format!("group {g} of {groups}: count from 0")),
            )
        })
    }
}

#[pymethods]
impl PyPlan {
    fn __len__(&self) -> usize {
        self.plan.groups.len()
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.plan.mode.name()
    }

    #[getter]
    fn requests<'py>(&self, py: Python<'py>) -> Column<'py> {
        indices(py, &self.plan.requests)
    }

    #[getter]
    fn required(&self) -> i64 {
        self.plan.required()
    }

    #[getter]
    fn covered(&self) -> bool {
        self.plan.covered
    }

    #[getter]
    fn trusted(&self) -> bool {
        self.plan.trusted
    }

    #[getter]
    fn profiled(&self) -> bool {
        self.plan.profiled
    }

    /// Measures of the plan, in the order of `PLAN_MEASURES`.
    #[getter]
    fn measures<'py>(&self, py: Python<'py>) -> Column<'py> {
        PyArray1::from_slice(py, &self.plan.measures.plan)
    }

    /// Measures of each group, in the order of `GROUP_MEASURES`.
    #[getter]
    fn group_measures<'py>(&self, py: Python<'py>) -> Vec<Column<'py>> {
        let groups = self.plan.measures.groups.iter();
        groups.map(|row| PyArray1::from_slice(py, row)).collect()
    }

    /// Results of the price, in the order of `PRICE_ROOTS`.
    #[getter]
    fn roots<'py>(&self, py: Python<'py>) -> Column<'py> {
        PyArray1::from_slice(py, &self.plan.roots)
    }

    /// Its price inside a split.
    #[getter]
    fn cost(&self) -> [i64; 8] {
        cost_columns(&self.plan.cost)
    }

    /// Adapter slot, gradient, routed of group `g`.
    fn key(&self, py: Python<'_>, g: usize) -> PyResult<(u32, bool, bool)> {
        let key = self.group(py, g)?.key;
        Ok((key.slot, key.gradient, key.routed))
    }

    fn group_requests<'py>(&self, py: Python<'py>, g: usize) -> PyResult<Column<'py>> {
        Ok(indices(py, &self.group(py, g)?.requests))
    }

    fn shared<'py>(&self, py: Python<'py>, g: usize) -> PyResult<Bound<'py, PyArray1<bool>>> {
        Ok(self.group(py, g)?.shared.clone().into_pyarray(py))
    }

    /// Depth, predicted work, a bound on any layout's work, proven.
    fn layout(&self, py: Python<'_>, g: usize) -> PyResult<(i64, i128, i128, bool)> {
        let group = self.group(py, g)?;
        Ok((group.depth, group.work.0, group.work.1, group.proven))
    }

    /// The canonical tree of group `g`.
    fn tree(&self, py: Python<'_>, g: usize) -> PyResult<PyTree> {
        let rows = &self.group(py, g)?.requests;
        Ok(PyTree {
            tree: py.detach(|| self.engine.tree().restrict(rows)),
        })
    }

    /// The packed row of group `g`.
    fn packing(&self, py: Python<'_>, g: usize) -> PyResult<PyPacking> {
        let group = self.group(py, g)?;
        let packing = detached(py, || {
            layout::pack(&self.engine.tree().restrict(&group.requests), &group.shared)
        })?;
        Ok(packing.into())
    }

    fn assignment(&self, py: Python<'_>, g: usize) -> PyResult<Option<PyAssignment>> {
        Ok(self.group(py, g)?.assignment.clone().map(PyAssignment))
    }

    /// Rank tokens, owner, chained, shards, cross tokens, score, bound, evaluations of group
    /// `g`'s recurrent layout.
    fn recurrent<'py>(&self, py: Python<'py>, g: usize) -> PyResult<Option<RecurrentColumns<'py>>> {
        let Some(made) = self.group(py, g)?.recurrent.as_ref() else {
            return Ok(None);
        };
        Ok(Some((
            PyArray1::from_slice(py, &made.rank_tokens),
            indices(py, &made.owner),
            made.chained.clone().into_pyarray(py),
            PyArray1::from_slice(py, &made.shards),
            made.cross_tokens,
            made.score,
            made.bound,
            made.evaluations,
        )))
    }
}

type RecurrentColumns<'py> = (
    Column<'py>,
    Column<'py>,
    Bound<'py, PyArray1<bool>>,
    Column<'py>,
    i64,
    f64,
    f64,
    usize,
);
