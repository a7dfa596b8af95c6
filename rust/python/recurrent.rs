//! Python functions of the stage `recurrent`.

// PyO3 hands extracted arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::convert::{Ints, short, slice};
use super::errors::{detached, to_python};
use crate::assign::{Assignment, MOST_RANKS};
use crate::error::{Error, Result};
use crate::recurrent::{
    MOST_CELLS, Recurrent, RecurrentSettings, Schedule, Shape, Workspace, gdn_schedule,
    gdn_schedule_per_rank, recurrent,
};
use crate::segments::{NONE, Segments};

/// Reads and writes the settings by name, so that Python can hold them as a frozen dataclass.
macro_rules! by_name {
    ($($name:ident),* $(,)?) => {
        /// The settings held by an object with these attributes.
        pub(super) fn settings_from(object: &Bound<'_, PyAny>) -> PyResult<RecurrentSettings> {
            Ok(RecurrentSettings { $($name: object.getattr(stringify!($name))?.extract()?),* })
        }

        fn settings_to_dict<'py>(
            py: Python<'py>,
            settings: &RecurrentSettings,
        ) -> PyResult<Bound<'py, PyDict>> {
            let dict = PyDict::new(py);
            $(dict.set_item(stringify!($name), settings.$name)?;)*
            Ok(dict)
        }
    };
}

by_name!(
    hidden_bytes,
    exchanges,
    exchange_bandwidth,
    local_rate,
    chain_rate,
    dense_rate,
    local_bucket_ms,
    chain_bucket_ms,
    local_segment_ms,
    summary_bytes,
    summary_exchanges,
    summary_bandwidth,
    summary_rate,
    scan_bucket_ms,
    scan_rate,
    parent_bytes,
    parent_bandwidth,
    min_gain_ms,
    beam_width,
    branch,
    candidates,
    max_steps,
);

type Columns<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<bool>>,
    Bound<'py, PyArray1<i64>>,
    i64,
    f64,
    f64,
    usize,
);

/// The settings of a layer of this shape, by name: hidden, key heads, value heads, key size,
/// value size, taps, tensor-parallel ranks.
#[pyfunction]
fn recurrent_settings(py: Python<'_>, shape: [i64; 7]) -> PyResult<Bound<'_, PyDict>> {
    let [hidden, key_heads, value_heads, key_dim, value_dim, conv, tp] = shape;
    let shape = Shape {
        hidden,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        conv,
        tp,
    };
    let settings = RecurrentSettings::from_shape(&shape).map_err(|e| to_python(py, &e))?;
    settings_to_dict(py, &settings)
}

/// The settings without a model, by name.
#[pyfunction]
fn recurrent_defaults(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    settings_to_dict(py, &RecurrentSettings::default())
}

/// Places the segments of a packed row: (rank tokens, owner, chained, shards, cross tokens,
/// score, bound, evaluations).
#[pyfunction(name = "recurrent")]
fn place<'py>(
    py: Python<'py>,
    lengths: Ints<'py>,
    parents: Ints<'py>,
    ranks: usize,
    chunk: i64,
    owners: Ints<'py>,
    settings: &Bound<'py, PyAny>,
) -> PyResult<Columns<'py>> {
    let settings = settings_from(settings)?;
    let lengths = slice(py, "lengths", &lengths)?;
    let parents = slice(py, "parents", &parents)?;
    let owners = slice(py, "owners", &owners)?;
    let answer = detached(py, || {
        let segments = Segments::new(lengths, parents)?;
        let assignment = Assignment {
            ranks,
            tokens: segments.tokens(),
            chunk,
            owners: ranks_of("owners", owners)?,
            ..Assignment::default()
        };
        recurrent(&segments, &assignment, &settings, &mut Workspace::default())
    })?;
    let owner: Vec<i64> = (answer.owner.iter())
        .map(|&owner| if owner == NONE { -1 } else { i64::from(owner) })
        .collect();
    Ok((
        answer.rank_tokens.into_pyarray(py),
        owner.into_pyarray(py),
        answer.chained.into_pyarray(py),
        answer.shards.into_pyarray(py),
        answer.cross_tokens,
        answer.score,
        answer.bound,
        answer.evaluations,
    ))
}

/// Rows executed, states kept and rows packed of a whole row on one rank.
#[pyfunction(name = "gdn_schedule")]
fn schedule<'py>(
    py: Python<'py>,
    lengths: Ints<'py>,
    parents: Ints<'py>,
) -> PyResult<(i64, i64, i64)> {
    let lengths = slice(py, "lengths", &lengths)?;
    let parents = slice(py, "parents", &parents)?;
    let schedule = detached(py, || Ok(gdn_schedule(&Segments::new(lengths, parents)?)))?;
    Ok(counts(schedule))
}

/// The same for each rank of a placement.
#[pyfunction(name = "gdn_schedule_per_rank")]
fn schedule_per_rank<'py>(
    py: Python<'py>,
    lengths: Ints<'py>,
    parents: Ints<'py>,
    ranks: usize,
    owner: Ints<'py>,
    shards: Ints<'py>,
) -> PyResult<Vec<(i64, i64, i64)>> {
    let lengths = slice(py, "lengths", &lengths)?;
    let parents = slice(py, "parents", &parents)?;
    let owner = slice(py, "owner", &owner)?;
    let shards = slice(py, "shards", &shards)?;
    let schedules = detached(py, || {
        let segments = Segments::new(lengths, parents)?;
        let placed = placed(&segments, ranks, owner, shards)?;
        Ok(gdn_schedule_per_rank(&segments, &placed))
    })?;
    Ok(schedules.into_iter().map(counts).collect())
}

fn counts(schedule: Schedule) -> (i64, i64, i64) {
    (
        schedule.executed_rows,
        schedule.state_rows,
        schedule.packed_rows,
    )
}

/// Rank numbers as they are kept inside.
fn ranks_of(name: &str, values: &[i64]) -> Result<Vec<u32>> {
    let narrow = |(at, &value): (usize, &i64)| {
        (u32::try_from(value).ok())
            .filter(|&rank| rank != NONE)
            .ok_or_else(|| Error::input(format!("{name}[{at}] is {value}: it must be a rank")))
    };
    values.iter().enumerate().map(narrow).collect()
}

/// A placement from its columns, checked; `owner` is -1 where a segment is chained.
pub(super) fn placed(
    segments: &Segments,
    ranks: usize,
    owner: &[i64],
    shards: &[i64],
) -> Result<Recurrent> {
    if owner.len() != segments.len() {
        return Err(Error::input(format!(
            "owner has {} entries for {} segments: give one each",
            owner.len(),
            segments.len()
        )));
    }
    if ranks > MOST_RANKS || ranks.saturating_mul(owner.len()) > MOST_CELLS {
        return Err(Error::input(format!(
            "ranks is {ranks} for {} segments: at most {MOST_RANKS}, and {MOST_CELLS} pairs of both",
            owner.len()
        )));
    }
    let chained: Vec<bool> = owner.iter().map(|&owner| owner == -1).collect();
    let wanted = chained.iter().filter(|c| **c).count().checked_mul(ranks);
    if ranks == 0 || wanted != Some(shards.len()) {
        return Err(Error::input(format!(
            "shards has {} entries: give one per chained segment and rank, of {ranks} ranks",
            shards.len()
        )));
    }
    let mut rank_tokens = vec![0; ranks];
    let mut cuts = shards.chunks_exact(ranks);
    for (s, &owner) in owner.iter().enumerate() {
        let length = segments.length(s);
        if chained[s] {
            let cut = cuts.next().unwrap_or_default();
            let total = (cut.iter()).try_fold(0_i64, |sum, &shard| sum.checked_add(shard));
            if total != Some(length) || cut.iter().any(|&shard| shard < 1) {
                return Err(Error::input(format!(
                    "shards of segment {s} are {}: they must be positive and sum to {length}",
                    short(cut)
                )));
            }
            for (tokens, &shard) in rank_tokens.iter_mut().zip(cut) {
                *tokens += shard;
            }
        } else {
            let tokens = usize::try_from(owner)
                .ok()
                .and_then(|rank| rank_tokens.get_mut(rank));
            let Some(tokens) = tokens else {
                return Err(Error::input(format!(
                    "owner[{s}] is {owner}: it must be -1 or below {ranks}, the number of ranks"
                )));
            };
            *tokens += length;
        }
    }
    let owner = (owner.iter())
        .map(|&owner| u32::try_from(owner).unwrap_or(NONE))
        .collect();
    Ok(Recurrent {
        rank_tokens,
        owner,
        chained,
        shards: shards.to_vec(),
        ..Recurrent::default()
    })
}

/// Adds this stage's functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(recurrent_settings, module)?)?;
    module.add_function(wrap_pyfunction!(recurrent_defaults, module)?)?;
    module.add_function(wrap_pyfunction!(place, module)?)?;
    module.add_function(wrap_pyfunction!(schedule, module)?)?;
    module.add_function(wrap_pyfunction!(schedule_per_rank, module)?)
}
