//! Layouts of a tree.

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert::one_of;
use super::errors::{detached, refused};
use super::fields::{Give, Take, give_class};
use crate::layout::{Label, Layout, METHODS, Method, Options, Score, Scoring, Version, Workspace};
use crate::tree::Tree;

give_class!(Score, Scoring);

impl Give for Version {
    fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        i64::from(*self as u8).give(py)
    }
}

impl Take for Version {
    fn take(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        match i64::take(name, value)? {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            other => Err(refused(format!("{name} is {other}: it must be 1 or 2"))),
        }
    }
}

impl Give for Vec<Label> {
    fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = |label: &Label| match label {
            Label::None => "none".to_owned(),
            Label::Depth(depth) => format!("depth {depth}"),
            Label::Span(from, Some(to)) if from == to => format!("span {from}"),
            Label::Span(from, Some(to)) => format!("span {from}-{to}"),
            Label::Span(from, None) => format!("span {from}-"),
            Label::Full => "full".to_owned(),
            Label::Saves(percent) => format!("saves {percent}%"),
        };
        self.iter().map(text).collect::<Vec<String>>().give(py)
    }
}

/// Chooses which shared segments of a tree are stored once.
#[pyfunction]
#[pyo3(signature = (tree, scoring, method=None, *, most_tokens=None, budget=None, counts=true))]
pub(super) fn choose_layout(
    py: Python<'_>,
    tree: &Tree,
    scoring: &Scoring,
    method: Option<&Bound<'_, PyString>>,
    most_tokens: Option<&Bound<'_, PyAny>>,
    budget: Option<&Bound<'_, PyAny>>,
    counts: bool,
) -> PyResult<Layout> {
    let method = one_of("method", method, &METHODS)?;
    let most_tokens = most_tokens
        .map(|most| i64::take("most_tokens", most))
        .transpose()?;
    if most_tokens.is_some() && method != Method::Exact {
        return Err(refused("most_tokens needs method \"exact\""));
    }
    let options = Options {
        method,
        budget: budget.map_or(Ok(2000), |budget| usize::take("budget", budget))?,
        counts,
    };
    let layout = detached(py, || {
        let mut workspace = Workspace::default();
        match most_tokens {
            None => workspace.choose(tree, scoring, &options).map(Some),
            Some(most) => workspace.fits(tree, scoring, most),
        }
    })?;
    layout.ok_or_else(|| {
        let (most, least) = (most_tokens.unwrap_or(0), tree.packed_tokens());
        refused(format!(
            "most_tokens is {most}: with everything shared the pack has {least}"
        ))
    })
}
