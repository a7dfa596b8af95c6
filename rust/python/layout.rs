//! Python classes and functions of the stage `layout`.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use super::convert::{Flags, short};
use super::errors::{detached, to_python};
use super::pack::PyPacking;
use super::tree::PyTree;
use crate::error::Error;
use crate::layout::{self, Label, Layout, Method, Options, Scoring, Stop, Version, Workspace};

/// A chosen layout.
#[pyclass(frozen, name = "Layout", module = "waveplan._core")]
struct PyLayout {
    layout: Layout,
}

#[pymethods]
impl PyLayout {
    #[getter]
    fn shared<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<bool>> {
        self.layout.shared.clone().into_pyarray(py)
    }

    #[getter]
    fn score(&self) -> (i128, i64, i64, i64) {
        let score = &self.layout.score;
        (score.work, score.tokens, score.segments, score.depth)
    }

    #[getter]
    fn bound(&self) -> i128 {
        self.layout.bound
    }

    #[getter]
    fn optimal(&self) -> bool {
        self.layout.optimal
    }

    #[getter]
    fn packed_tokens(&self) -> i64 {
        self.layout.packed_tokens
    }

    #[getter]
    fn depth(&self) -> i64 {
        self.layout.depth
    }

    #[getter]
    fn segments(&self) -> i64 {
        self.layout.segments
    }

    #[getter]
    fn labels(&self) -> Vec<String> {
        let text = |label: &Label| match label {
            Label::None => "none".to_owned(),
            Label::Depth(depth) => format!("depth {depth}"),
            Label::Span(from, Some(to)) if from == to => format!("span {from}"),
            Label::Span(from, Some(to)) => format!("span {from}-{to}"),
            Label::Span(from, None) => format!("span {from}-"),
            Label::Full => "full".to_owned(),
            Label::Saves(percent) => format!("saves {percent}%"),
        };
        self.layout.labels.iter().map(text).collect()
    }

    #[getter]
    fn mandatory_candidates(&self) -> usize {
        self.layout.mandatory_candidates
    }

    #[getter]
    fn refinement_work(&self) -> usize {
        self.layout.refinement_work
    }

    #[getter]
    fn evaluated_refinements(&self) -> usize {
        self.layout.evaluated_refinements
    }

    #[getter]
    fn stop_reason(&self) -> Option<&'static str> {
        match self.layout.stop {
            Stop::NotSearched => None,
            Stop::NoDecisions => Some("no_shareable_decisions"),
            Stop::BudgetExhausted => Some("refinement_budget_exhausted"),
            Stop::Complete => Some("search_complete"),
        }
    }
}

/// Chooses a layout; `None` when no layout holds at most `most_tokens`.
#[pyfunction]
#[pyo3(signature = (tree, version, coefficients, tp, cp, layers, gdn_layers, uses_gdn, method, budget, most_tokens=None, counts=true))]
#[allow(clippy::too_many_arguments)] // a score is ten numbers
fn choose_layout(
    py: Python<'_>,
    tree: PyRef<'_, PyTree>,
    version: i64,
    coefficients: [i64; 10],
    tp: i64,
    cp: i64,
    layers: i64,
    gdn_layers: i64,
    uses_gdn: bool,
    method: &str,
    budget: usize,
    most_tokens: Option<i64>,
    counts: bool,
) -> PyResult<Option<PyLayout>> {
    let scoring = Scoring {
        version: if version == 1 {
            Version::One
        } else {
            Version::Two
        },
        coefficients,
        tp,
        cp,
        layers,
        gdn_layers,
        uses_gdn,
    };
    let method = match method {
        "exact" => Method::Exact,
        "compatible" => Method::Reference,
        "full" => Method::Full,
        "none" => Method::None,
        other => {
            let message = format!(
                "method is {}: it must be one of exact, compatible, full, none",
                short(other)
            );
            return Err(to_python(py, &Error::Input(message)));
        }
    };
    let options = Options {
        method,
        budget,
        counts,
    };
    let tree = &tree.tree;
    let layout = detached(py, || {
        let mut workspace = Workspace::default();
        match most_tokens {
            None => workspace.choose(tree, &scoring, &options).map(Some),
            Some(most) => workspace.fits(tree, &scoring, most),
        }
    })?;
    Ok(layout.map(|layout| PyLayout { layout }))
}

/// The packed row of a layout.
#[pyfunction]
fn pack_layout(py: Python<'_>, tree: PyRef<'_, PyTree>, shared: Flags<'_>) -> PyResult<PyPacking> {
    // Copied, so that what is checked stays true while other threads run.
    let shared = shared.as_array().to_vec();
    let tree = &tree.tree;
    detached(py, || layout::pack(tree, &shared)).map(PyPacking::from)
}

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLayout>()?;
    module.add_function(wrap_pyfunction!(choose_layout, module)?)?;
    module.add_function(wrap_pyfunction!(pack_layout, module)?)
}
