//! Python classes and functions of the stage `measures`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyMapping};

use super::convert::{Flags, index, picked, slice};
use super::errors::refused;
use super::fields::{Take, give_class, unknown, wrong};
use super::prelude::Object;
use crate::fields::{Setting, at_least};
use crate::gdn::Gdn;
use crate::heads::HeadWork;
use crate::layout;
use crate::measures::requests::PyRequests;
use crate::measures::{self, Exact, HeadCount, Measures, Packs, Requests, Settings};
use crate::ownership::Ownership;
use crate::tree::Tree;

give_class!(Measures);

/// Names and meanings of a line of measures.
type Names = [(&'static str, &'static str)];

/// A line of its named measures, in order; the others are 0.
pub(crate) fn line<const N: usize, const W: usize>(
    place: &str,
    named: &[i64; N],
) -> PyResult<[i64; W]> {
    named.check(place, at_least(0))?;
    let mut made = [0; W];
    made[..N].copy_from_slice(named);
    Ok(made)
}

/// Sets measures of a line by name.
pub(crate) fn set_named(
    line: &mut [i64],
    place: &str,
    names: &Names,
    given: &Object<'_>,
) -> PyResult<()> {
    let given = (given.cast::<PyMapping>()).map_err(|_| wrong(given, place, "a dict"))?;
    for item in given.items()? {
        let (name, value): (String, Object<'_>) = item.extract()?;
        let Some(at) = names.iter().position(|known| known.0 == name) else {
            let known = names.iter().map(|known| known.0);
            return Err(unknown(place, "measure", &name, known));
        };
        line[at] = i64::take(&name, &value)?;
        line[at].check(&name, at_least(0))?;
    }
    Ok(())
}

/// A line of measures as a dict.
pub(crate) fn named<'py>(py: Python<'py>, names: &Names, line: &[i64]) -> PyResult<Object<'py>> {
    let names = names.iter().map(|known| known.0);
    Ok(names.zip(line).into_py_dict(py)?.into_any())
}

/// Measures of one plan, filled pack by pack.
#[pyclass(name = "PlanMeasures", module = "waveplan._core")]
pub(crate) struct PyPlanMeasures {
    requests: Arc<Requests>,
    packs: Packs,
    settings: Settings,
    measures: Measures,
    work: HeadWork,
}

#[pymethods]
impl PyPlanMeasures {
    #[new]
    #[pyo3(signature = (requests, indices, settings=None))]
    fn new(
        py: Python<'_>,
        requests: &PyRequests,
        indices: &Bound<'_, PyAny>,
        settings: Option<&Settings>,
    ) -> PyResult<Self> {
        let picked = picked("indices", indices, requests.len())?;
        let settings = settings.cloned().unwrap_or_default();
        let mut packs = Packs::default();
        py.detach(|| packs.form(requests, &picked));
        let mut measures = Measures::default();
        measures::start(requests, &picked, &packs, &settings, &mut measures)?;
        Ok(Self {
            requests: Arc::clone(&requests.0),
            packs,
            settings,
            measures,
            work: HeadWork::default(),
        })
    }

    /// Fills pack `g` from its layout and, under context parallelism, the ownership and the gdn
    /// placement of its pack, padded to a multiple of TP.
    #[pyo3(signature = (g, tree, shared, *, ownership=None, gdn=None))]
    #[allow(clippy::needless_pass_by_value)]
    fn exact(
        &mut self,
        g: &Bound<'_, PyAny>,
        tree: &Tree,
        shared: Flags<'_>,
        ownership: Option<&Ownership>,
        gdn: Option<&Gdn>,
    ) -> PyResult<()> {
        let g = index("g", g, self.packs.len())?;
        let (shared, members) = (slice("shared", &shared)?, self.packs.requests(g));
        let row = self.requests.row(members);
        let length = |&r: &u32| row.unwrap_or(self.requests.lengths[r as usize]);
        let lengths = members.iter().map(length);
        if !lengths.eq((0..tree.sequences()).map(|r| tree.sequence_length(r))) {
            return Err(refused(format!(
                "tree is not of pack {g}'s sequences: restrict the pool's tree to the pack's requests"
            )));
        }
        let shape = layout::shape(tree, shared)?;
        let padded = measures::pad(&shape.segments, self.settings.tp)?;
        let (ranks, tokens) = (self.settings.cp as usize, padded.tokens());
        let other = |made: &Ownership| made.ranks != ranks || made.tokens != tokens;
        let elsewhere = |placed: &Gdn| placed.owner.len() != padded.len();
        if ownership.map_or(ranks > 1, other) || gdn.is_some_and(elsewhere) {
            return Err(refused(format!(
                "ownership and gdn must be of pack {g}'s {tokens} padded tokens on {ranks} ranks"
            )));
        }
        let exact = Exact {
            tree,
            shared,
            segments: &shape.segments,
            ownership,
            gdn,
            head: HeadCount::Union,
        };
        let settings = &self.settings;
        let into = &mut self.measures.packs[g];
        Ok(measures::exact(
            &self.requests,
            members,
            &exact,
            settings,
            &mut self.work,
            into,
        )?)
    }

    /// Sums the packs into the plan's measures.
    fn finish(&mut self) -> PyResult<Measures> {
        measures::finish(&self.settings, false, &mut self.measures)?;
        Ok(self.measures.clone())
    }
}

/// Adds the tables of names to the module.
pub(super) fn tables(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PLAN_MEASURES", measures::plan::NAMED.to_vec())?;
    module.add("PACK_MEASURES", measures::pack::NAMED.to_vec())?;
    module.add("PRICE_ROOTS", crate::price::ROOTS.to_vec())
}
