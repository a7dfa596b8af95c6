//! The measures of a plan: the integers that its price depends on.
//!
//! A price program reads nothing else of a plan. The names here are the whole vocabulary of
//! measures; rules that name anything else are refused when they are bound.

mod fill;
mod mixes;
mod packs;
pub(crate) mod requests;

pub use fill::{Bound, Exact, HeadCount, Settings, bound, exact, finish, owned, pad, start};
pub use packs::{PackKey, Packs};
pub use requests::{Labels, NO_SLOT, PackRequests, Requests};

use crate::fields::result;
#[cfg(feature = "python")]
use crate::python::{
    fields::entries,
    measures::{line, named, set_named},
};

/// Declares a table of measures: an index constant, a name and a meaning each. Those behind
/// `@core` have no name: no rule reads them.
macro_rules! columns {
    ($(#[$doc:meta])* $module:ident {
        $($index:ident $name:literal $meaning:literal;)*
        @core
        $($inner:ident $inner_meaning:literal;)*
    }) => {
        $(#[$doc])*
        pub mod $module {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Index { $($index,)* $($inner,)* END }
            $(#[doc = $meaning] pub const $index: usize = Index::$index as usize;)*
            $(#[doc = $inner_meaning] pub const $inner: usize = Index::$inner as usize;)*
            /// How many there are.
            pub const COUNT: usize = Index::END as usize;
            /// Name and meaning of those that rules read, which come first.
            pub const NAMED: &[(&str, &str)] = &[$(($name, $meaning)),*];
        }
    };
}

columns! {
    /// Measures of a whole plan.
    plan {
        PACKED "packed_tokens" "packed tokens, each pack padded to a multiple of TP, summed";
        LOGICAL "logical_tokens" "tokens of the requests that join a pack";
        RETAINED_TOKENS "retained_tokens" "local tokens of the busiest rank, summed over packs; in a lower bound ceil(packed tokens / CP)";
        TARGET_ENTRIES "target_entries" "target entries, ignored ones included";
        TOP_K_ENTRIES "top_k_entries" "tokens times k over requests with top-k";
        LOGITS_TOKENS "logits_tokens" "tokens of requests that return logits (a vocabulary of values each)";
        HIDDEN_TOKENS "hidden_tokens" "tokens of requests that return hidden states (a hidden vector each)";
        ROUTED_ENTRIES "routed_entries" "entries of routed-expert replay";
        PACKED_PRICEABLE "packed_priceable" "1 if there is a pack, every pack has gradients, and every request has single-label targets of at least 64 tokens or no output";
        COLD "cold" "1 without a profile of this plan's signature";
        LEARNED "learned_bytes" "compute bytes learned from the profile, truncated; 0 without one";
        ADAPTER_PENDING "adapter_pending" "1 if adapter gradients are still to be allocated";
        @core
        INACTIVE "tokens of the requests without any output";
        UNSHARED "tokens of the packs without any sharing, each padded to a multiple of TP, summed";
    }
}

columns! {
    /// Measures of one pack of a plan; "busiest" is per CP rank.
    pack {
        GRADIENT "gradient" "1 if the pack computes gradients";
        PADDED "padded_tokens" "packed tokens padded to a multiple of TP";
        SEGMENTS "segments" "segments of the pack; in bounds 2 per request (no sharing), 1 (full sharing), 0 (split)";
        LOCAL "local_tokens" "tokens of the busiest rank, padded to TP: all at CP 1; max(attention, gdn), at least 1, at CP > 1; ceil(padded / CP) in a lower bound";
        FETCHED "fetched_tokens" "most tokens whose keys and values a context-parallel rank fetches in one stage; 0 at CP 1 and in bounds";
        HEAD_TOKENS "head_tokens" "projected tokens to price, uncapped: the packed union of an exact layout, else the sum, or the longest request's in a rejection bound";
        HEAD_TARGET_TOKENS "head_target_tokens" "labelled tokens of the request with the most";
        HEAD_BOUND "head_bound" "1 in a rejection bound: of the head, only what every layout needs may be charged";
        HEAD_LABELS "head_labels" "target entries, ignored ones included";
        HEAD_TOPK "head_topk" "top-k entries: tokens times k over its requests with top-k";
        HEAD_WIDTH "head_width" "sum over its requests of ceil(target entries / tokens) + k";
        HEAD_TARGETS "head_targets" "1 if a request has targets";
        HEAD_STATISTICS "head_statistics" "1 if a request has targets or top-k";
        HEAD_LOGITS "head_logits" "1 if a request returns logits";
        GDN_EXECUTED "gdn_executed_tokens" "tokens executed by the gdn bucket schedule, all ranks' work on one; 0 in bounds";
        GDN_STATES "gdn_states" "states of that schedule; 0 in bounds";
        GDN_PACKED "gdn_packed_tokens" "packed tokens of that schedule, unpadded; 0 in bounds";
        GDN_RANK_EXECUTED "gdn_rank_executed_tokens" "tokens executed by the schedule of the rank with the most pending bytes; of one rank at CP 1";
        GDN_RANK_STATES "gdn_rank_states" "states of that rank";
        GDN_RANK_PACKED "gdn_rank_packed_tokens" "packed tokens of that rank";
        ADAPTER_RANK "adapter_rank" "rank of the pack's adapter slot; 0 if unnamed or unknown";
        @core
        REQUESTS "its requests";
        PACKED "packed tokens, unpadded";
        LOGICAL "tokens of its requests";
        HEAD_SUM "projected tokens summed over requests";
        HEAD_LONGEST "projected tokens of the request with the most";
    }
}

result! {
    /// The integers a price program reads.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Measures as "Measures" {
        @core
        /// Indexed by the constants of [`plan`].
        pub plan: [i64; plan::COUNT],
        /// One entry per pack in order, indexed by the constants of [`pack`].
        pub packs: Vec<[i64; pack::COUNT]>,
    }
    get {
        /// Those of the plan, in the order of `PLAN_MEASURES`.
        plan(self) = self.plan[..plan::NAMED.len()].to_vec();
        /// Those of each pack, in the order of `PACK_MEASURES`.
        packs(self) = {
            let named = pack::NAMED.len();
            let flat: Vec<i64> = (self.packs.iter()).flat_map(|one| &one[..named]).copied().collect();
            (flat, [self.packs.len(), named])
        };
    }
    python {
        /// Measures in the order of `PLAN_MEASURES`, and of `PACK_MEASURES` a pack.
        #[new]
        fn py_new(plan: &Object<'_>, packs: &Object<'_>) -> PyResult<Self> {
            let plan = <[i64; plan::NAMED.len()]>::take("plan", plan)?;
            let packs = Vec::<[i64; pack::NAMED.len()]>::take("packs", packs)?;
            let pack = |(i, named)| line(&format!("packs[{i}]"), named);
            let packs = packs.iter().enumerate().map(pack).collect::<PyResult<_>>()?;
            Ok(Self { plan: line("plan", &plan)?, packs })
        }

        /// Measures by name; what is not named is 0, except `cold`, which is 1.
        #[staticmethod]
        #[pyo3(name = "of", signature = (plan=None, packs=None))]
        fn py_of(plan: Option<Object<'_>>, packs: Option<Object<'_>>) -> PyResult<Self> {
            let mut made = Self::default();
            made.plan[plan::COLD] = 1;
            if let Some(given) = plan {
                set_named(&mut made.plan, "plan", plan::NAMED, &given)?;
            }
            let packs = packs.map_or(Ok(vec![]), |packs| entries("packs", &packs))?;
            for (i, given) in packs.iter().enumerate() {
                made.packs.push([0; pack::COUNT]);
                set_named(&mut made.packs[i], &format!("packs[{i}]"), pack::NAMED, given)?;
            }
            Ok(made)
        }

        fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
            let packs: PyResult<Vec<_>> =
                self.packs.iter().map(|one| named(py, pack::NAMED, one)).collect();
            let made = [("plan", named(py, plan::NAMED, &self.plan)?), ("packs", packs?.into_pyobject(py)?)];
            Ok(pyo3::types::IntoPyDict::into_py_dict(made, py)?.into_any())
        }
    }
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            plan: [0; plan::COUNT],
            packs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_index_order() {
        for named in [plan::NAMED, pack::NAMED] {
            let mut sorted: Vec<_> = named.iter().map(|one| one.0).collect();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), named.len());
        }
        assert_eq!(plan::NAMED[plan::LEARNED].0, "learned_bytes");
        assert_eq!(pack::NAMED[pack::HEAD_TOKENS].0, "head_tokens");
    }
}
