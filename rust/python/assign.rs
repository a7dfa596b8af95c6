//! Python classes and functions of the stage `assign`, and the parser of packed ids.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use super::convert::{self, Ints, List, slice};
use super::errors::{detached, to_python};
use crate::assign::{self as core, ProfiledWork, Workspace};
use crate::attention;
use crate::error::{Error, Result};
use crate::segments::{NONE, Segments};

type Column<'py, T> = Bound<'py, PyArray1<T>>;

/// Work of one pipeline stage, read from an object's attributes.
#[derive(FromPyObject)]
struct StageWork {
    query_flops: i64,
    tile_pair_flops: i64,
    key_hbm_bytes: i64,
    fetch_bytes: i64,
    reduce_bytes: i64,
    query_memory_bytes: i64,
    key_memory_bytes: i64,
}

/// A workload profile, read from an object's attributes.
#[derive(FromPyObject)]
struct WorkloadProfile {
    stages: List<StageWork>,
    query_tile: i64,
    key_tile: i64,
    workspace_elements: i64,
    max_key_tokens: i64,
    max_ranges: i64,
}

/// Settings of the assignment, read from an object's attributes.
#[derive(FromPyObject)]
pub(super) struct AssignSettings {
    block: i64,
    chunk: i64,
    chunk_budget_base: i64,
    chunk_budget_per_rank: i64,
    max_stages: i64,
    candidates: i64,
    steps: i64,
    stage_overhead_ms: f64,
    remote_host_ms: f64,
    owned_token_ms: f64,
    comm_overhead_ms: f64,
    interval_ms: f64,
    merge_token_ms: f64,
    fetch_token_ms: f64,
    reduce_token_ms: f64,
    local_pair_ms: f64,
    remote_pair_ms: f64,
    local_backward_pair_ms: f64,
    remote_backward_pair_ms: f64,
    underfill_ms: f64,
    underfill_tokens: i64,
    underfill_pairs: i64,
    profile: Option<WorkloadProfile>,
}

impl From<AssignSettings> for core::AssignSettings {
    fn from(from: AssignSettings) -> Self {
        Self {
            block: from.block,
            chunk: from.chunk,
            chunk_budget_base: from.chunk_budget_base,
            chunk_budget_per_rank: from.chunk_budget_per_rank,
            max_stages: from.max_stages,
            candidates: from.candidates,
            steps: from.steps,
            stage_overhead_ms: from.stage_overhead_ms,
            remote_host_ms: from.remote_host_ms,
            owned_token_ms: from.owned_token_ms,
            comm_overhead_ms: from.comm_overhead_ms,
            interval_ms: from.interval_ms,
            merge_token_ms: from.merge_token_ms,
            fetch_token_ms: from.fetch_token_ms,
            reduce_token_ms: from.reduce_token_ms,
            local_pair_ms: from.local_pair_ms,
            remote_pair_ms: from.remote_pair_ms,
            local_backward_pair_ms: from.local_backward_pair_ms,
            remote_backward_pair_ms: from.remote_backward_pair_ms,
            underfill_ms: from.underfill_ms,
            underfill_tokens: from.underfill_tokens,
            underfill_pairs: from.underfill_pairs,
            profile: from.profile.map(Into::into),
        }
    }
}

impl From<WorkloadProfile> for core::WorkloadProfile {
    fn from(from: WorkloadProfile) -> Self {
        Self {
            stages: from.stages.0.into_iter().map(Into::into).collect(),
            query_tile: from.query_tile,
            key_tile: from.key_tile,
            workspace_elements: from.workspace_elements,
            max_key_tokens: from.max_key_tokens,
            max_ranges: from.max_ranges,
        }
    }
}

impl From<StageWork> for core::StageWork {
    fn from(from: StageWork) -> Self {
        Self {
            query_flops: from.query_flops,
            tile_pair_flops: from.tile_pair_flops,
            key_hbm_bytes: from.key_hbm_bytes,
            fetch_bytes: from.fetch_bytes,
            reduce_bytes: from.reduce_bytes,
            query_memory_bytes: from.query_memory_bytes,
            key_memory_bytes: from.key_memory_bytes,
        }
    }
}

/// Columns of one assignment.
#[pyclass(frozen, module = "waveplan._core", name = "Assignment")]
pub(super) struct PyAssignment(pub(super) core::Assignment);

/// A u32 column as int64, what Python indexes with.
fn wide<'py>(py: Python<'py>, column: &[u32]) -> Column<'py, i64> {
    let wide: Vec<i64> = column.iter().map(|&value| i64::from(value)).collect();
    wide.into_pyarray(py)
}

#[pymethods]
impl PyAssignment {
    #[getter]
    fn ranks(&self) -> usize {
        self.0.ranks
    }

    #[getter]
    fn tokens(&self) -> i64 {
        self.0.tokens
    }

    #[getter]
    fn chunk(&self) -> i64 {
        self.0.chunk
    }

    #[getter]
    fn owners<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        wide(py, &self.0.owners)
    }

    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        wide(py, &self.0.stages)
    }

    #[getter]
    fn contiguous<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        wide(py, &self.0.contiguous)
    }

    #[getter]
    fn rank_tokens<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        PyArray1::from_slice(py, &self.0.rank_tokens)
    }

    #[getter]
    fn score(&self) -> f64 {
        self.0.score
    }

    #[getter]
    fn bound(&self) -> Option<f64> {
        self.0.bound
    }

    #[getter]
    fn forward_ms<'py>(&self, py: Python<'py>) -> Column<'py, f64> {
        PyArray1::from_slice(py, &self.0.forward_ms)
    }

    #[getter]
    fn backward_ms<'py>(&self, py: Python<'py>) -> Column<'py, f64> {
        PyArray1::from_slice(py, &self.0.backward_ms)
    }

    #[getter]
    fn work(&self) -> Option<PyProfiledWork> {
        self.0.work.clone().map(PyProfiledWork)
    }
}

/// The work that chose between assignments of a sparse-indexer model.
#[pyclass(frozen, module = "waveplan._core", name = "ProfiledWork")]
pub(super) struct PyProfiledWork(ProfiledWork);

#[pymethods]
impl PyProfiledWork {
    #[getter]
    fn query_flops(&self) -> i128 {
        self.0.query_flops
    }

    #[getter]
    fn network_bytes(&self) -> i128 {
        self.0.network_bytes
    }

    #[getter]
    fn hbm_bytes(&self) -> i128 {
        self.0.hbm_bytes
    }

    #[getter]
    fn indexer_flops(&self) -> i128 {
        self.0.indexer_flops
    }

    #[getter]
    fn memory_bytes(&self) -> i128 {
        self.0.memory_bytes
    }

    #[getter]
    fn peers(&self) -> u32 {
        self.0.peers
    }

    #[getter]
    fn ranges(&self) -> u32 {
        self.0.ranges
    }

    #[getter]
    fn tile_pairs(&self) -> Vec<i128> {
        self.0.tile_pairs.clone()
    }

    #[getter]
    fn key_tokens<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        PyArray1::from_slice(py, &self.0.key_tokens)
    }

    #[getter]
    fn sent_tokens<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        PyArray1::from_slice(py, &self.0.sent_tokens)
    }

    #[getter]
    fn received_tokens<'py>(&self, py: Python<'py>) -> Column<'py, i64> {
        PyArray1::from_slice(py, &self.0.received_tokens)
    }
}

/// Assigns the chunks of a packed row to ranks.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
fn assign(
    py: Python<'_>,
    lengths: Ints<'_>,
    parents: Ints<'_>,
    ranks: i64,
    settings: AssignSettings,
) -> PyResult<PyAssignment> {
    let ranks = usize::try_from(ranks).map_err(|_| {
        let wrong = format!("ranks is {ranks}: it must be at least 1");
        to_python(py, &Error::input(wrong))
    })?;
    let settings = settings.into();
    let lengths = slice(py, "lengths", &lengths)?;
    let parents = slice(py, "parents", &parents)?;
    detached(py, || {
        let segments = Segments::new(lengths, parents)?;
        core::assign(&segments, ranks, &settings, &mut Workspace::default())
    })
    .map(PyAssignment)
}

/// Forward milliseconds per rank and stage, and the number of fetch stages.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
fn stage_times<'py>(
    py: Python<'py>,
    lengths: Ints<'py>,
    parents: Ints<'py>,
    ranks: usize,
    settings: AssignSettings,
) -> PyResult<(usize, Column<'py, f64>)> {
    let settings = settings.into();
    let lengths = slice(py, "lengths", &lengths)?;
    let parents = slice(py, "parents", &parents)?;
    let (stages, times) = detached(py, || {
        let segments = Segments::new(lengths, parents)?;
        core::stage_times(&segments, ranks, &settings, &mut Workspace::default())
    })?;
    Ok((stages, times.into_pyarray(py)))
}

/// Lengths and parents (-1 for a root) of a packed row given as ids per token.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
fn parse_ids<'py>(
    py: Python<'py>,
    group_ids: Ints<'py>,
    parent_ids: Ints<'py>,
) -> PyResult<(Column<'py, i64>, Column<'py, i64>)> {
    let group_ids = slice(py, "group_ids", &group_ids)?;
    let parent_ids = slice(py, "parent_ids", &parent_ids)?;
    let (lengths, parents) = detached(py, || -> Result<(Vec<i64>, Vec<i64>)> {
        let segments = attention::parse(group_ids, parent_ids)?;
        let lengths = (0..segments.len()).map(|i| segments.length(i)).collect();
        let signed = |&parent: &u32| {
            if parent == NONE {
                -1
            } else {
                i64::from(parent)
            }
        };
        Ok((lengths, segments.parents.iter().map(signed).collect()))
    })?;
    Ok((lengths.into_pyarray(py), parents.into_pyarray(py)))
}

/// Attention slices of a packed row: query and key segment of each.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands over owned arguments
fn attention_slices<'py>(
    py: Python<'py>,
    lengths: Ints<'py>,
    parents: Ints<'py>,
) -> PyResult<(Column<'py, i64>, Column<'py, i64>)> {
    let lengths = slice(py, "lengths", &lengths)?;
    let parents = slice(py, "parents", &parents)?;
    let (queries, keys) = detached(py, || attention::slices(&Segments::new(lengths, parents)?))?;
    Ok((convert::column(py, queries), convert::column(py, keys)))
}

/// Adds this stage's classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyAssignment>()?;
    module.add_class::<PyProfiledWork>()?;
    module.add_function(wrap_pyfunction!(assign, module)?)?;
    module.add_function(wrap_pyfunction!(stage_times, module)?)?;
    module.add_function(wrap_pyfunction!(parse_ids, module)?)?;
    module.add_function(wrap_pyfunction!(attention_slices, module)?)
}
