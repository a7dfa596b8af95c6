//! Python classes of the engine: a planner's pool, searches over it, and the plans found.

// Borrowed arrays arrive by value; that is how PyO3 hands them over.
#![allow(clippy::needless_pass_by_value)]

use std::sync::{Arc, Mutex, TryLockError};

use pyo3::prelude::*;

use super::convert::{Ints, List, picked, slice};
use super::errors::{detached, refused};
use super::fields::{Give, Take, give_class};
use super::price::PyProgram;
use crate::error::{Error, Result};
use crate::measures::Measures;
use crate::measures::requests::PyRequests;
use crate::search::compose::{Asked, Composition, Kept, OrderBound, Priced, compose, order_bound};
use crate::search::split::Cost;
use crate::search::{
    Attempt, Curves, Ending, Engine, ForwardPlan, Mode, Observed, Pack, Probe, Profile, Profiles,
    Rates, SearchResult, Session, Settings, Signature,
};

/// A profile as Python holds it.
#[derive(FromPyObject)]
enum Held<'py> {
    Rates(PyRef<'py, Rates>),
    Observed(PyRef<'py, Observed>),
}

/// Profiles by signature, as Python holds them.
type HeldProfiles<'py> = List<(PyRef<'py, Signature>, Held<'py>)>;

/// Waves of parts with their prices, as Python holds them.
type HeldWaves<'py> = List<List<(Bound<'py, PyAny>, Option<(i64, i64, f64)>)>>;

fn profiles_from(held: HeldProfiles<'_>) -> Arc<Profiles> {
    let made = held.0.into_iter().map(|(signature, profile)| {
        let profile = match profile {
            Held::Rates(rates) => Profile::Rates(rates.clone()),
            Held::Observed(seen) => Profile::Observed(Curves::from(&*seen)),
        };
        (signature.clone().sorted(), profile)
    });
    Arc::new(made.collect())
}

/// Every number below `count` once.
fn permutation(name: &str, given: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<u32>> {
    let order = picked(name, given, count)?;
    let mut seen = vec![false; count];
    let twice = |&&group: &&u32| std::mem::replace(&mut seen[group as usize], true);
    let twice = order.iter().find(twice).copied();
    if twice.is_some() || order.len() != count {
        return Err(refused(format!(
            "{name} holds {} of {count} groups: give every group once",
            order.len() - usize::from(twice.is_some())
        )));
    }
    Ok(order)
}

/// A pool with everything needed to plan waves of it.
#[pyclass(frozen, name = "Engine", module = "waveplan._core")]
pub(super) struct PyEngine(Arc<Engine>);

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (requests, settings, program, order=None))]
    fn new(
        requests: &PyRequests,
        settings: &Settings,
        program: &PyProgram,
        order: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let pool = Arc::clone(&requests.0);
        let program = Arc::clone(&program.inner);
        let order = order.map(|order| permutation("order", order, pool.groups()));
        let engine = Engine::new(settings.clone(), program, pool, order.transpose()?)?;
        Ok(Self(Arc::new(engine)))
    }

    /// This rank's share of the requests of `width` groups from position `start` of the order on.
    fn share<'py>(
        &self,
        py: Python<'py>,
        start: &Bound<'_, PyAny>,
        width: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let groups = self.0.pool().groups();
        let start = usize::take("start", start)?.min(groups);
        let width = usize::take("width", width)?.min(groups - start);
        self.0.share(start, width).give(py)
    }

    /// The measures of the whole pool as one forward that shares nothing.
    fn unshared(&self, py: Python<'_>) -> PyResult<Measures> {
        let engine = Arc::clone(&self.0);
        detached(py, move || crate::search::unshared(engine))
    }

    /// Starts the search for the wave from position `start` of the order on.
    #[pyo3(signature = (start, available, hint, profiles))]
    fn session(
        &self,
        start: &Bound<'_, PyAny>,
        available: &Bound<'_, PyAny>,
        hint: Option<&Bound<'_, PyAny>>,
        profiles: HeldProfiles<'_>,
    ) -> PyResult<PySession> {
        let (start, available) = (
            usize::take("start", start)?,
            i64::take("available", available)?,
        );
        let hint = (hint.map(|hint| usize::take("hint", hint))).transpose()?;
        let engine = Arc::clone(&self.0);
        let session = Session::new(engine, profiles_from(profiles), start, available, hint)?;
        Ok(PySession(Mutex::new(session)))
    }

    /// Computes the signature by which a profile of these requests is kept.
    fn signature(&self, py: Python<'_>, requests: &Bound<'_, PyAny>) -> PyResult<Signature> {
        let requests = picked("requests", requests, self.0.pool().len())?;
        let engine = Arc::clone(&self.0);
        detached(py, move || crate::search::sign(engine, &requests))
    }

    /// Composes groups of the pool, ascending. `keep` are the groups of each rank of each wave in
    /// the pool's order, and the bytes, packed tokens and milliseconds of those in one forward.
    #[pyo3(signature = (pool, groups, keep, available, profiles, given, version))]
    #[allow(clippy::too_many_arguments)] // those of the composition, by name
    fn compose<'py>(
        &self,
        py: Python<'py>,
        pool: Bound<'py, PyAny>,
        groups: &Bound<'py, PyAny>,
        keep: HeldWaves<'py>,
        available: i64,
        profiles: HeldProfiles<'py>,
        given: Bound<'py, PyAny>,
        version: usize,
    ) -> PyResult<Composition> {
        let count = self.0.pool().groups();
        let groups = picked("groups", groups, count)?;
        let part = |(part, price): (_, Option<(i64, i64, f64)>)| {
            let price = price.map(|(required, packed, ms)| Priced::new(required, packed, ms));
            Ok((picked("keep", &part, count)?, price))
        };
        let wave = |wave: List<_>| wave.0.into_iter().map(part).collect::<PyResult<Kept>>();
        let keep = keep.0.into_iter().map(wave).collect::<PyResult<_>>()?;
        let (engine, profiles) = (Arc::clone(&self.0), profiles_from(profiles));
        let asked: Asked = given.extract()?;
        let mut made = detached(py, move || {
            compose(&engine, profiles, &groups, keep, available, &asked)
        })?;
        made.version = version;
        made.held = Some(Arc::new([pool.unbind(), given.unbind()]));
        Ok(made)
    }

    /// Computes what no order of groups beats, all of which fit in some wave.
    fn order_bound(
        &self,
        py: Python<'_>,
        groups: &Bound<'_, PyAny>,
        available: i64,
        profiles: HeldProfiles<'_>,
    ) -> PyResult<OrderBound> {
        let groups = picked("groups", groups, self.0.pool().groups())?;
        let (engine, profiles) = (Arc::clone(&self.0), profiles_from(profiles));
        detached(py, move || {
            order_bound(&engine, profiles, &groups, available)
        })
    }

    /// Plans these requests as one forward, split where it must be; with everything priced.
    fn plan(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        available: i64,
        profiles: HeldProfiles<'_>,
    ) -> PyResult<SearchResult> {
        let requests = picked("requests", requests, self.0.pool().len())?;
        let profiles = profiles_from(profiles);
        let engine = Arc::clone(&self.0);
        detached(py, move || {
            crate::search::plan(engine, profiles, &requests, available)
        })
    }
}

/// One search, alone or in step with other ranks.
#[pyclass(frozen, name = "Session", module = "waveplan._core")]
pub(super) struct PySession(Mutex<Session>);

impl PySession {
    /// Works with the session while the interpreter is released. A thread or signal handler that
    /// asks in the middle of a search is refused, so nobody waits for itself.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&mut Session) -> Result<T>,
    ) -> PyResult<T> {
        detached(py, || match self.0.try_lock() {
            Ok(mut session) => work(&mut session),
            Err(TryLockError::Poisoned(_)) => Err(Error::Internal("a search broke off")),
            Err(TryLockError::WouldBlock) => {
                Err(Error::input("this session is being searched already"))
            }
        })
    }

    /// Takes an agreed table.
    fn agree<T: Send>(
        &self,
        py: Python<'_>,
        agreed: &Ints<'_>,
        work: impl Send + FnOnce(&mut Session, &[i64]) -> Result<T>,
    ) -> PyResult<T> {
        let agreed = slice("agreed", agreed)?.to_vec();
        self.run(py, |session| work(session, &agreed))
    }
}

#[pymethods]
impl PySession {
    /// The whole search, for one data-parallel rank.
    fn alone(&self, py: Python<'_>) -> PyResult<SearchResult> {
        self.run(py, Session::alone)
    }

    /// Sets the bytes available for this rank's share, before anything is priced.
    fn set_available(&self, py: Python<'_>, available: i64) -> PyResult<()> {
        self.run(py, |session| {
            session.set_available(available);
            Ok(())
        })
    }

    /// Entries of the first table, known before anything is priced.
    fn growth_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |session| Ok(session.growth_len()))
    }

    /// First table of probes of this rank.
    fn growth<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, Session::growth)?.give(py)
    }

    /// Takes the first agreed table; entries of the second.
    fn agree_growth(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<usize> {
        self.agree(py, &agreed, Session::agree_growth)
    }

    /// Second table of probes of this rank.
    fn bisection<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, Session::bisection)?.give(py)
    }

    /// Takes the second agreed table; entries of the third.
    fn agree_bisection(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<usize> {
        self.agree(py, &agreed, Session::agree_bisection)
    }

    /// Third table of probes of this rank.
    fn refinement<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, Session::refinement)?.give(py)
    }

    /// Takes the third agreed table; entries of the fourth.
    fn agree_refinement(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<usize> {
        self.agree(py, &agreed, Session::agree_refinement)
    }

    /// Fourth table, of modelled times.
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.run(py, Session::times)?.give(py)
    }

    /// Takes the fourth agreed table; ends the search on this rank.
    fn finish(&self, py: Python<'_>, agreed: Ints<'_>) -> PyResult<SearchResult> {
        self.agree(py, &agreed, Session::finish)
    }
}

give_class!(Cost, ForwardPlan, Pack, Attempt, Probe);

/// Enumerations by name.
macro_rules! give_name {
    ($($enum:ty),*) => {
        $(impl Give for $enum {
            fn give<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.name().give(py)
            }
        })*
    };
}

give_name!(Ending, Mode);
