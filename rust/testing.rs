//! Helpers of tests.

use proptest::prelude::ProptestConfig;

/// So many pseudo-random cases; a hundred times as many with `WAVEPLAN_DEEP=1`.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let deep = std::env::var_os("WAVEPLAN_DEEP").is_some();
    ProptestConfig::with_cases(if deep { 100 * cases } else { cases })
}
