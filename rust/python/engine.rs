//! Python classes of the engine: a planner's pool, searches over it, and the plans found.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::assign::AssignSettings;
use super::convert::{column, row_indices, slice};
use super::errors::{detached, to_python};
use super::measures::PyPool;
use super::plans::{PyFound, PyPlan, cost_columns};
use super::price::PyProgram;
use super::recurrent::settings_from;
use crate::engine::{
    Curve, Engine, Found, Kind, Observed, Probe, Profile, Profiles, Rates, Session, Settings,
    Signature, Trust,
};
use crate::error::Error;
use crate::interrupt::Ticker;
use crate::layout::{Scoring, Version};
use crate::measures;
use crate::rows::Rows;
use crate::width::Quote;

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
    one_layer_recompute: bool,
    segment_layer_bytes: i64,
    vocab: i64,
    hidden: i64,
    element_bytes: i64,
    gdn_weights: [i64; 3],
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
    coefficients: Vec<i64>,
    tp: i64,
    cp: i64,
    layers: i64,
    gdn_layers: i64,
    uses_gdn: bool,
}

impl ScoringFacts {
    fn scoring(&self) -> crate::Result<Scoring> {
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
            coefficients: <[i64; 10]>::try_from(self.coefficients.clone()).map_err(wrong)?,
            tp: self.tp,
            cp: self.cp,
            layers: self.layers,
            gdn_layers: self.gdn_layers,
            uses_gdn: self.uses_gdn,
        })
    }
}

type SignatureColumns = (Vec<u32>, Vec<bool>, Vec<(bool, i64)>);

/// Bytes per token, tokens, sharing, retained rate, warm (rate, tokens, sharing).
type RateColumns = (f64, i64, f64, Option<f64>, Option<(f64, i64, f64)>);
type Points = Vec<(i64, i64)>;
/// Peak points, fixed bytes, sharing, retained points, retained sharing, and a sixth entry that
/// tells the two kinds apart.
type CurveColumns = (Points, i64, f64, Points, f64, bool);

/// A profile as Python holds it.
#[derive(FromPyObject)]
enum ProfileColumns {
    #[pyo3(transparent)]
    Rates(RateColumns),
    #[pyo3(transparent)]
    Observed(CurveColumns),
}

fn profiles_from(columns: Vec<(SignatureColumns, ProfileColumns)>) -> Arc<Profiles> {
    let made = columns.into_iter().map(|(signature, profile)| {
        let (mut mixes, mut gradients, mut adapters) = signature;
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
                    peak: Curve { points: peak },
                    fixed,
                    sharing,
                    retained: Curve { points: retained },
                    retained_sharing: kept,
                })
            }
        };
        (signature, profile)
    });
    Arc::new(made.collect())
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
        tokens: PyReadonlyArray1<'_, i64>,
        offsets: PyReadonlyArray1<'_, i64>,
        pool: &PyPool,
        adapter_ranks: Vec<i64>,
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
        let tokens = slice(py, "tokens", &tokens)?;
        let offsets = slice(py, "offsets", &offsets)?.to_vec();
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
            one_layer_recompute: facts.one_layer_recompute,
            segment_layer_bytes: facts.segment_layer_bytes,
            scoring,
            forward_scoring: forward.map_err(|e| to_python(py, &e))?,
            assign: facts.assign.into(),
            recurrent,
            measures: measures::Settings {
                tp: facts.tp,
                cp: facts.cp,
                vocab: facts.vocab,
                hidden: facts.hidden,
                element_bytes: facts.element_bytes,
                recurrent: facts.has_recurrent,
                gdn_weights: facts.gdn_weights,
                adapter_ranks,
            },
            program: Arc::clone(&program.inner),
        };
        let pool = Arc::clone(&pool.pool);
        let engine = detached(py, || {
            let tree = crate::tree::Tree::build(&Rows::new(tokens, &offsets)?, &mut Ticker::new())?;
            Engine::new(settings, pool, tree)
        })?;
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
        profiles: Vec<(SignatureColumns, ProfileColumns)>,
    ) -> PyResult<PySession> {
        let engine = Arc::clone(&self.engine);
        let session = Session::new(engine, profiles_from(profiles), start, available, hint);
        Ok(PySession {
            engine: Arc::clone(&self.engine),
            session: Mutex::new(session.map_err(|error| to_python(py, &error))?),
        })
    }

    /// The split ladder's lower bound on the price of these requests as one part, and their
    /// price with cost-optimal and with full-sharing layouts.
    fn part_costs(
        &self,
        py: Python<'_>,
        requests: PyReadonlyArray1<'_, i64>,
        profiles: Vec<(SignatureColumns, ProfileColumns)>,
    ) -> PyResult<[[i64; 8]; 3]> {
        let count = self.engine.pool().requests();
        let requests = row_indices(py, "requests", slice(py, "requests", &requests)?, count)?;
        let profiles = profiles_from(profiles);
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
        requests: PyReadonlyArray1<'_, i64>,
        available: i64,
        profiles: Vec<(SignatureColumns, ProfileColumns)>,
    ) -> PyResult<(PyFound, Vec<ProbeColumns>)> {
        let count = self.engine.pool().requests();
        let requests = row_indices(py, "requests", slice(py, "requests", &requests)?, count)?;
        let profiles = profiles_from(profiles);
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
}

impl PySession {
    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
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
        let found = detached(py, || self.lock().alone())?;
        Ok(self.found(found))
    }

    /// Sets the bytes free for this rank's share, before anything is priced.
    fn set_available(&self, available: i64) {
        self.lock().set_available(available);
    }

    /// Entries of the first table, known before anything is priced.
    fn growth_len(&self) -> usize {
        self.lock().growth_len()
    }

    /// First table of quotes of this rank.
    fn growth<'py>(&self, py: Python<'py>) -> PyResult<Column<'py>> {
        let flags = detached(py, || self.lock().growth())?;
        Ok(column(py, flags))
    }

    /// Takes the first agreed table; entries of the second.
    fn agree_growth(&self, py: Python<'_>, agreed: PyReadonlyArray1<'_, i64>) -> PyResult<usize> {
        let agreed = slice(py, "agreed", &agreed)?.to_vec();
        detached(py, || self.lock().agree_growth(&agreed))
    }

    /// Second table of quotes of this rank.
    fn bisection<'py>(&self, py: Python<'py>) -> PyResult<Column<'py>> {
        let flags = detached(py, || self.lock().bisection())?;
        Ok(column(py, flags))
    }

    /// One quote of this rank, as bits.
    fn quote(&self, py: Python<'_>, width: usize, kind: usize) -> PyResult<u8> {
        detached(py, || self.lock().quote(width, kind))
    }

    /// Takes the second agreed table; ends the search on this rank.
    fn finish(&self, py: Python<'_>, agreed: PyReadonlyArray1<'_, i64>) -> PyResult<PyFound> {
        let agreed = slice(py, "agreed", &agreed)?.to_vec();
        let found = detached(py, || self.lock().finish(&agreed))?;
        Ok(self.found(found))
    }

    #[getter]
    fn rejected(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().rejected())
    }

    #[getter]
    fn probes(&self, py: Python<'_>) -> Vec<ProbeColumns> {
        py.detach(|| self.lock().probes().iter().map(probe_columns).collect())
    }
}

/// Adds the engine's classes to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyEngine>()?;
    module.add_class::<PySession>()?;
    module.add_class::<PyFound>()?;
    module.add_class::<PyPlan>()
}
