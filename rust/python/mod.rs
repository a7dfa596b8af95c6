//! The border to Python: array views in, columns out, errors mapped once.

mod balance;
mod convert;
pub(crate) mod errors;
pub(crate) mod fields;
mod gdn;
mod layout;
pub(crate) mod measures;
mod ownership;
mod price;
mod search;
mod sequences;

use pyo3::prelude::*;

/// Imports of the pymethods beside the core's types.
pub(crate) mod prelude {
    pub(crate) use super::convert::{Flags, Ints, List, index, ints, picked, ragged, slice};
    pub(crate) use super::errors::{FEW_SEQUENCES, FEW_TOKENS, detached, detached_unless, refused};
    pub(crate) use super::fields::{Give, Take};
    pub(crate) use super::ownership::ranks;
    pub(crate) use super::sequences::{Arrays, optional, refuse_empty, slices};
    pub(crate) use pyo3::prelude::*;

    pub(crate) type Object<'py> = Bound<'py, PyAny>;
}

/// The extension module `waveplan._core`: its classes and functions, nothing else.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::balance::balance;
    #[pymodule_export]
    use super::gdn::{gdn, schedule, schedule_per_rank};
    #[pymodule_export]
    use super::layout::choose_layout;
    #[pymodule_export]
    use super::measures::PyPlanMeasures;
    #[pymodule_export]
    use super::ownership::{attention_slices, own, stage_times};
    #[pymodule_export]
    use super::price::PyProgram;
    #[pymodule_export]
    use super::search::{PyEngine, PySession};
    #[pymodule_export]
    use super::sequences::{
        build_tree, gather_tokens, hash_sequences, labelled_tokens, pack_sequences,
        packed_positions, projected_tokens, target_chunk_tokens,
    };
    #[pymodule_export]
    use crate::balance::Balance;
    #[pymodule_export]
    use crate::gdn::{Gdn, GdnSettings, Schedule, Shape as GdnShape};
    #[pymodule_export]
    use crate::layout::{Layout, Score, Scoring};
    #[pymodule_export]
    use crate::measures::requests::{PackRequests, PyRequests};
    #[pymodule_export]
    use crate::measures::{Measures, Settings as MeasureSettings};
    #[pymodule_export]
    use crate::ownership::{
        Ownership, OwnershipSettings, ProfiledWork, StageTimes, StageWork, WorkloadProfile,
    };
    #[pymodule_export]
    use crate::pack::Packing;
    #[pymodule_export]
    use crate::search::compose::{Composition, OrderBound};
    #[pymodule_export]
    use crate::search::split::Cost;
    #[pymodule_export]
    use crate::search::{Attempt, ForwardPlan, Pack, Probe, SearchResult, Settings};
    #[pymodule_export]
    use crate::search::{Observation, Observed, Rates, Signature};
    #[pymodule_export]
    use crate::tree::Tree;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::errors::install_interrupt_hook();
        super::measures::tables(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
