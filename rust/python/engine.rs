//! Python classes of the engine: a planner's pool, searches over it, and the plans found.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use super::assign::{AssignSettings, PyAssignment};
use super::convert::{Ints, List, column, indices, row_indices, slice};
use super::errors::{detached, to_python};
use super::measures::PyPool;
use super::pack::PyPacking;
use super::price::PyProgram;
use super::recurrent::settings_from;
use super::tree::PyTree;
use super::width::stop_name;
use crate::engine::{
    Curve, Engine, FlatPlan, Found, GroupPlan, Kind, Observed, Planned, Probe, Profile, Profiles,
    Rates, Session, Settings, Signature, Tried, Trust,
};
use crate::error::{Error, Result};
use crate::layout::{self, Scoring, Version};
use crate::measures;
use crate::split::Cost;
use crate::width::{Quote, Stop};

type Column<'py> = Bound<'py, PyArray1<i64>>;

/// Facts of a planner, read from an object's attributes.
#[derive(FromPyObject)]
#[allow(clippy::struct_excessive_bools)] // facts, read by name
struct EngineFacts<'py> {
    compatible: bool,
    trust_rules: bool,
    margin: bool,
    dp: usize,
    dp_rank: usize,
    tp: i64,
    cp: i64,
    split: bool,
    moe: bool,
    gdn_pending: bool,
    adapter_pending: bool,
    has_recurrent: bool,
    scoring: ScoringFacts,
    forward_scoring: ScoringFacts,
    assign: AssignSettings,
    recurrent: Option<Bound<'py, PyAny>>,
}

/// A layout score, read from an object's attributes.
#[derive(FromPyObject)]
struct ScoringFacts {
    version: i64,
    coefficients: List<i64>,
    tp: i64,
    cp: i64,
    layers: i64,
    gdn_layers: i64,
    uses_gdn: bool,
}

impl ScoringFacts {
    fn scoring(&self) -> Result<Scoring> {
        let version = match self.version {
            1 => Version::One,
            2 => Version::Two,
            other => {
                return Err(Error::input(format!(
                    "scoring.version is {other}: it must be 1 or 2"
                )));
            }
        };
        let wrong = |_| Error::input("scoring.coefficients holds ten numbers");
        Ok(Scoring {
            version,
            coefficients: <[i64; 10]>::try_from(self.coefficients.0.as_slice()).map_err(wrong)?,
            tp: self.tp,
            cp: self.cp,
            layers: self.layers,
            gdn_layers: self.gdn_layers,
            uses_gdn: self.uses_gdn,
        })
    }
}

type SignatureColumns = (List<u32>, List<bool>, List<(bool, i64)>);
type ProfileRows = List<(SignatureColumns, ProfileColumns)>;

/// Bytes per token, tokens, sharing, retained rate, warm (rate, tokens, sharing).
type RateColumns = (f64, i64, f64, Option<f64>, Option<(f64, i64, f64)>);
type Points = List<(i64, i64)>;
/// Peak points, fixed bytes, sharing, retained points, retained sharing, and a sixth entry that
/// tells the two kinds apart.
type CurveColumns = (Points, i64, f64, Points, f64, bool);

/// A profile as Python holds it.
enum ProfileColumns {
    Rates(RateColumns),
    Observed(CurveColumns),
}

impl<'py> FromPyObject<'_, 'py> for ProfileColumns {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.len()? {
            5 => object.extract().map(Self::Rates),
            _ => object.extract().map(Self::Observed),
        }
    }
}

fn profiles_from(columns: ProfileRows) -> Result<Arc<Profiles>> {
    let made = columns.0.into_iter().map(|(signature, profile)| {
        let (List(mut mixes), List(mut gradients), List(mut adapters)) = signature;
        mixes.sort_unstable();
        gradients.sort_unstable();
        adapters.sort_unstable();
        let signature = Signature {
            mixes,
            gradients,
            adapters,
        };
        let profile = match profile {
            ProfileColumns::Rates((bytes, tokens, sharing, retained, warm)) => {
                Profile::Rates(Rates {
                    bytes_per_token: bytes,
                    packed_tokens: tokens,
                    logical_per_packed: sharing,
                    retained,
                    warm,
                })
            }
            ProfileColumns::Observed((peak, fixed, sharing, retained, kept, _)) => {
                Profile::Observed(Observed {
                    peak: Curve { points: peak.0 },
                    fixed,
                    sharing,
                    retained: Curve { points: retained.0 },
                    retained_sharing: kept,
                })
            }
        };
        profile.check()?;
        Ok((signature, profile))
    });
    made.collect::<Result<Profiles>>().map(Arc::new)
}

/// A pool with everything needed to plan waves of it.
#[pyclass(frozen, name = "Engine", module = "waveplan._core")]
struct PyEngine {
    engine: Arc<Engine>,
}

#[pymethods]
impl PyEngine {
    #[new]
    fn new(
        py: Python<'_>,
        pool: &PyPool,
        adapter_ranks: List<i64>,
        program: &PyProgram,
        facts: EngineFacts<'_>,
    ) -> PyResult<Self> {
        let recurrent = facts.recurrent.as_ref().map(settings_from).transpose()?;
        let trust = if facts.trust_rules {
            Trust::Rules {
                margin: facts.margin,
            }
        } else {
            Trust::Profile
        };
        let scoring = facts.scoring.scoring().map_err(|e| to_python(py, &e))?;
        let forward = facts.forward_scoring.scoring();
        let settings = Settings {
            compatible: facts.compatible,
            trust,
            dp: facts.dp,
            dp_rank: facts.dp_rank,
            split: facts.split,
            moe: facts.moe,
            gdn_pending: facts.gdn_pending,
            adapter_pending: facts.adapter_pending,
            scoring,
            forward_scoring: forward.map_err(|e| to_python(py, &e))?,
            assign: facts.assign.into(),
            recurrent,
            measures: measures::Settings {
                tp: facts.tp,
                cp: facts.cp,
                recurrent: facts.has_recurrent,
                gdn_weights: [0; 3], // the engine reads those of the program
                adapter_ranks: adapter_ranks.0,
            },
            program: Arc::clone(&program.inner),
        };
        let (pool, tree) = (Arc::clone(&pool.pool), Arc::clone(&pool.tree));
        let engine = Engine::new(settings, pool, tree).map_err(|e| to_python(py, &e))?;
        Ok(Self {
            engine: Arc::new(engine),
        })
    }

    /// A search for the wave that starts at item `start`.
    #[pyo3(signature = (start, available, hint, profiles))]
    fn session(
        &self,
        py: Python<'_>,
        start: usize,
        available: i64,
        hint: Option<usize>,
        profiles: ProfileRows,
    ) -> PyResult<PySession> {
        let engine = Arc::clone(&self.engine);
        let session = profiles_from(profiles)
            .and_then(|profiles| Session::new(engine, profiles, start, available, hint))
            .map_err(|error| to_python(py, &error))?;
        Ok(PySession {
            engine: Arc::clone(&self.engine),
            session: Mutex::new(session),
            holder: Mutex::new(None),
        })
    }

    /// The split ladder's lower bound on the price of these requests as one part, and their
    /// price with cost-optimal and with full-sharing layouts.
    fn part_costs(
        &self,
        py: Python<'_>,
        requests: Ints<'_>,
        profiles: ProfileRows,
    ) -> PyResult<[[i64; 8]; 3]> {
        let count = self.engine.pool().requests();
        let requests = row_indices(py, "requests", slice(py, "requests", &requests)?, count)?;
        let profiles = profiles_from(profiles).map_err(|error| to_python(py, &error))?;
        let engine = Arc::clone(&self.engine);
        let costs = detached(py, move || {
            crate::engine::part_costs(engine, profiles, &requests)
        })?;
        Ok(costs.map(|cost| cost_columns(&cost)))
    }

    /// Plans these requests as one forward, split if it must be; with what was tried.
    fn plan(
        &self,
        py: Python<'_>,
        requests: Ints<'_>,
        available: i64,
        profiles: ProfileRows,
    ) -> PyResult<(PyFound, Vec<ProbeColumns>)> {
        let count = self.engine.pool().requests();
        let requests = row_indices(py, "requests", slice(py, "requests", &requests)?, count)?;
        let profiles = profiles_from(profiles).map_err(|error| to_python(py, &error))?;
        let engine = Arc::clone(&self.engine);
        let (found, probes) = detached(py, move || {
            crate::engine::plan(engine, profiles, &requests, available)
        })?;
        let found = PyFound {
            engine: Arc::clone(&self.engine),
            found,
        };
        Ok((found, probes.iter().map(probe_columns).collect()))
    }
}

/// A price inside a split: required, retained, checkpoint retained, workspace, input gradient,
/// peak increment, buffer growth, adapter gradient.
fn cost_columns(cost: &Cost) -> [i64; 8] {
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

/// Width, requests, what was priced, packed tokens, bytes, fits, trusted.
type ProbeColumns = (usize, usize, &'static str, i64, i64, bool, bool);

fn probe_columns(probe: &Probe) -> ProbeColumns {
    let kind = match probe.kind {
        Kind::Plan(mode) => mode.name(),
        Kind::Estimate(Quote::Unshared) => "bound:unshared",
        Kind::Estimate(Quote::Shared) => "bound:shared",
        Kind::Estimate(Quote::Full | Quote::PlanFull) => "estimate:full",
        Kind::Estimate(_) => "estimate:optimal",
    };
    (
        probe.width,
        probe.requests,
        kind,
        probe.packed,
        probe.required,
        probe.fits,
        probe.trusted,
    )
}

/// One search, alone or in step with other ranks.
#[pyclass(frozen, name = "Session", module = "waveplan._core")]
struct PySession {
    engine: Arc<Engine>,
    session: Mutex<Session>,
    /// The thread in whose calls the session is.
    holder: Mutex<Option<ThreadId>>,
}

impl PySession {
    /// Work with the session. Only with the interpreter released: who holds the session may be
    /// waiting for the interpreter. A signal handler may ask in the middle of a search.
    fn with<T>(&self, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let here = Some(thread::current().id());
        if *self.holder() == here {
            return Err(Error::input(
                "this session is being searched already, further up this call",
            ));
        }
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        *self.holder() = here;
        let made = work(&mut session);
        *self.holder() = None;
        made
    }

    fn holder(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A few microseconds' work with the session: the interpreter is released only to wait.
    fn briefly<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&mut Session) -> T,
    ) -> PyResult<T> {
        match self.session.try_lock() {
            Ok(mut session) => Ok(work(&mut session)),
            Err(_) => detached(py, || self.with(|session| Ok(work(session)))),
        }
    }

    fn found(&self, found: Found) -> PyFound {
        PyFound {
            engine: Arc::clone(&self.engine),
            found,
        }
    }
}

#[pymethods]
impl PySession {
    /// The whole search, for one data-parallel rank.
    fn alone(&self, py: Python<'_>) -> PyResult<PyFound> {
        let found = detached(py, || self.with(Session::alone))?;
        Ok(self.found(found))
    }

    /// Sets the bytes free for this rank's share, before anything is priced.
    fn set_available(&self, py: Python<'_>, available: i64) -> PyResult<()> {
        self.briefly(py, |session| session.set_available(available))
    }

    /// Entries of the first table, known before anything is priced.
    fn growth_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.briefly(py, |session| session.growth_len())
    }

    /// First table of quotes of this rank.
    fn growth<'py>(&self, py: Python<'py>) -> PyResult<Column<'py>> {
        let flags = detached(py, || self.with(Session::growth))?;
        Ok(column(py, flags))
    }

    /// Takes the first agreed table; entries of the second.
    fn agree_growth(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<usize> {
        let agreed = slice(py, "agreed", &agreed)?.to_vec();
        detached(py, || self.with(|session| session.agree_growth(&agreed)))
    }

    /// Second table of quotes of this rank.
    fn bisection<'py>(&self, py: Python<'py>) -> PyResult<Column<'py>> {
        let flags = detached(py, || self.with(Session::bisection))?;
        Ok(column(py, flags))
    }

    /// One quote of this rank, as bits.
    fn quote(&self, py: Python<'_>, width: usize, kind: usize) -> PyResult<u8> {
        detached(py, || self.with(|session| session.quote(width, kind)))
    }

    /// Takes the second agreed table; entries of the third.
    fn agree_bisection(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<usize> {
        let agreed = slice(py, "agreed", &agreed)?.to_vec();
        detached(py, || self.with(|session| session.agree_bisection(&agreed)))
    }

    /// Third table of quotes of this rank.
    fn refinement<'py>(&self, py: Python<'py>) -> PyResult<Column<'py>> {
        let flags = detached(py, || self.with(Session::refinement))?;
        Ok(column(py, flags))
    }

    /// Takes the third agreed table; ends the search on this rank.
    fn finish(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<PyFound> {
        let agreed = slice(py, "agreed", &agreed)?.to_vec();
        let found = detached(py, || self.with(|session| session.finish(&agreed)))?;
        Ok(self.found(found))
    }

    #[getter]
    fn rejected(&self, py: Python<'_>) -> PyResult<usize> {
        self.briefly(py, |session| session.rejected())
    }

    #[getter]
    fn probes(&self, py: Python<'_>) -> PyResult<Vec<ProbeColumns>> {
        self.briefly(py, |session| {
            session.probes().iter().map(probe_columns).collect()
        })
    }
}

/// What a search ended with.
#[pyclass(frozen, name = "Found", module = "waveplan._core")]
struct PyFound {
    engine: Arc<Engine>,
    found: Found,
}

impl PyFound {
    fn plan_of(&self, plan: &FlatPlan) -> PyPlan {
        PyPlan {
            engine: Arc::clone(&self.engine),
            plan: plan.clone(),
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
struct PyPlan {
    engine: Arc<Engine>,
    plan: FlatPlan,
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
            tree: detached(py, || self.engine.tree().restrict(rows))?,
        })
    }

    /// The packed row of group `g`.
    fn packing(&self, py: Python<'_>, g: usize) -> PyResult<PyPacking> {
        let group = self.group(py, g)?;
        let packing = detached(py, || {
            layout::pack(
                &self.engine.tree().restrict(&group.requests)?,
                &group.shared,
            )
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

/// Adds the engine's classes to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyEngine>()?;
    module.add_class::<PySession>()?;
    module.add_class::<PyFound>()?;
    module.add_class::<PyPlan>()
}
