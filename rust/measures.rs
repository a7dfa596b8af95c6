//! What a plan's price depends on: integers known once a plan exists.
//!
//! A price program reads nothing else of a plan. The names here are the whole vocabulary of
//! measures; rules that name anything else are refused when they are bound.

mod fill;
mod groups;
mod mixes;
pub(crate) mod pool;

pub use fill::{Bound, Exact, HeadCount, Settings, bound, exact, finish, pad, start};
pub use groups::{GroupKey, Groups};
pub use pool::{Columns, Labels, NO_SLOT, Pool};

/// Declares a table of measures: an index constant, a name and a meaning each.
macro_rules! columns {
    ($(#[$doc:meta])* $module:ident { $($index:ident $name:literal $meaning:literal;)* }) => {
        $(#[$doc])*
        pub mod $module {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Index { $($index,)* END }
            $(#[doc = $meaning] pub const $index: usize = Index::$index as usize;)*
            /// How many there are.
            pub const COUNT: usize = Index::END as usize;
            /// Their names, by index.
            pub const NAMES: [&str; COUNT] = [$($name),*];
            /// One line on each, by index.
            pub const MEANINGS: [&str; COUNT] = [$($meaning),*];
        }
    };
}

columns! {
    /// Measures of a whole plan.
    plan {
        PACKED "packed_tokens" "packed tokens, each group padded to a multiple of TP, summed";
        LOGICAL "logical_tokens" "tokens of the requests that join a group";
        INACTIVE "inactive_tokens" "tokens of the requests that ask for no output";
        UNSHARED "unshared_tokens" "tokens of the groups without any sharing, each padded to a multiple of TP, summed";
        REQUESTS "requests" "requests that join a group";
        RETAINED_ROWS "retained_rows" "rows of the busiest rank, summed over groups; in a lower bound ceil(packed tokens / CP)";
        OUTPUT "output_bytes" "bytes of all requested outputs";
        TARGET_ENTRIES "target_entries" "target entries, ignored ones included (4 output bytes each)";
        TOP_K_ENTRIES "top_k_entries" "tokens times k over requests with top-k (12 output bytes each)";
        LOGITS_TOKENS "logits_tokens" "tokens of requests that return logits (a vocabulary of values each)";
        HIDDEN_TOKENS "hidden_tokens" "tokens of requests that return hidden states (a hidden vector each)";
        ROUTED_ENTRIES "routed_entries" "entries of routed-expert replay (16 output bytes each)";
        PACKED_PRICEABLE "packed_priceable" "1 if there is a group, every group has gradients, and every request asks for single-label targets of at least 64 tokens or for nothing";
        COLD "cold" "1 without a profile of this plan's signature";
        LEARNED "learned_bytes" "compute bytes learned from the profile, truncated; 0 without one";
        RETAINED_KNOWN "retained_known" "1 if the profile knows a retained rate and the plan lies inside its windows";
        PROFILE_RETAINED "profile_retained_bytes" "retained bytes the profile predicts, with the safety factor; 0 if not known";
        ADAPTER_PENDING "adapter_pending" "1 if adapter gradients are still to be allocated";
    }
}

columns! {
    /// Measures of one group of a plan. Rows and tokens are per group; "busiest" is per CP rank.
    group {
        GRADIENT "gradient" "1 if the group computes gradients";
        REQUESTS "group_requests" "its requests";
        PACKED "group_packed" "packed tokens, unpadded";
        PADDED "group_tokens" "packed tokens padded to a multiple of TP";
        LOGICAL "group_logical" "tokens of its requests";
        SEGMENTS "segments" "segments of the packed row; in bounds 2 per request (no sharing), 1 (full sharing), 0 (ladder)";
        DEPTH "depth" "most segments on one row's path; 0 in bounds";
        ROWS "rows" "rows of the busiest rank, padded to TP: all at CP 1; max(attention, recurrent), at least 1, at CP > 1; ceil(padded / CP) in a lower bound";
        ATTENTION_ROWS "attention_rows" "most attention rows of one rank; padded tokens at CP 1; as rows in a lower bound";
        GDN_ROWS "gdn_rows" "most recurrent-layout rows of one rank; padded tokens at CP 1; 0 if not laid out";
        HEAD_ROWS "head_rows" "projected head rows to price, uncapped: the packed union of an exact layout, else the sum, or the longest request's in a rejection bound";
        HEAD_SUM "head_sum" "projected rows summed over requests";
        HEAD_LONGEST "head_longest" "projected rows of the request with the most";
        HEAD_TARGET_ROWS "head_target_rows" "labelled rows of the request with the most";
        HEAD_BOUND "head_bound" "1 in a rejection bound: of the head, only what every layout needs may be charged";
        HEAD_LABELS "head_labels" "target entries, ignored ones included";
        HEAD_TOPK "head_topk" "top-k entries: tokens times k over its requests with top-k";
        HEAD_WIDTH "head_width" "sum over its requests of ceil(target entries / tokens) + k";
        HEAD_TARGETS "head_targets" "1 if a request has targets";
        HEAD_STATISTICS "head_statistics" "1 if a request has targets or top-k";
        HEAD_LOGITS "head_logits" "1 if a request returns logits";
        HIDDEN "hidden_states" "1 if a request returns hidden states";
        GDN_EXECUTED "gdn_executed_rows" "rows executed by the recurrent bucket schedule, all ranks' work on one; 0 in bounds";
        GDN_STATES "gdn_state_rows" "state rows of that schedule; 0 in bounds";
        GDN_PACKED "gdn_packed_rows" "packed rows of that schedule, unpadded; 0 in bounds";
        GDN_RANK_EXECUTED "gdn_rank_executed_rows" "rows executed by the schedule of the rank with the most pending bytes; of one rank at CP 1";
        GDN_RANK_STATES "gdn_rank_state_rows" "state rows of that rank";
        GDN_RANK_PACKED "gdn_rank_packed_rows" "packed rows of that rank";
        ADAPTER "adapter" "1 for a named adapter slot, 0 for the model's own weights";
        ADAPTER_RANK "adapter_rank" "rank of the group's adapter slot; 0 if unnamed or unknown";
        ROUTED "routed" "1 if its requests replay expert routing";
    }
}

/// Names of the plan measures, by index.
pub const PLAN: &[&str] = &plan::NAMES;
/// Names of the group measures, by index.
pub const GROUP: &[&str] = &group::NAMES;

/// The integers a price program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measures {
    /// Indexed by the constants of [`plan`].
    pub plan: [i64; plan::COUNT],
    /// One entry per group in order, indexed by the constants of [`group`].
    pub groups: Vec<[i64; group::COUNT]>,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            plan: [0; plan::COUNT],
            groups: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_index_order() {
        for names in [PLAN, GROUP] {
            let mut sorted = names.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), names.len());
        }
        assert_eq!(PLAN[plan::LEARNED], "learned_bytes");
        assert_eq!(GROUP[group::HEAD_ROWS], "head_rows");
    }
}
