//! The distinct mixes of outputs of a pool's requests.

use std::collections::BTreeMap;
use std::fmt;

use super::Requests;

/// Labels per token, k, logits, hidden states, replay: in this order mixes are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mix(i64, i64, bool, bool, bool);

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(width, k, logits, hidden, routed) = self;
        let target = match width {
            1 => "target:single".to_owned(),
            _ => format!("target:{width}"),
        };
        let parts = [
            (width > 0).then_some(target),
            (k > 0).then(|| format!("top_k:{k}")),
            logits.then(|| "logits".to_owned()),
            hidden.then(|| "hidden".to_owned()),
            routed.then(|| "routes".to_owned()),
        ];
        let named: Vec<_> = parts.into_iter().flatten().collect();
        match named.as_slice() {
            [] => f.write_str("inactive"),
            named => f.write_str(&named.join("+")),
        }
    }
}

/// Number of each request's mix, mixes in ascending order, and each mix's first request.
pub(super) fn mixes(columns: &Requests) -> (Vec<u32>, Vec<u32>) {
    let count = columns.targets.len();
    // Most pools are runs of one mix: one is looked up where it differs from the one before.
    let mut runs: Vec<(usize, Mix)> = Vec::new();
    let mut first: BTreeMap<Mix, (u32, u32)> = BTreeMap::new();
    for r in 0..count {
        let mix = mix_of(columns, r);
        if runs.last().is_none_or(|&(_, last)| last != mix) {
            runs.push((r, mix));
            first.entry(mix).or_insert((r as u32, 0));
        }
    }
    for (number, entry) in first.values_mut().enumerate() {
        entry.1 = number as u32;
    }
    let mut numbers = Vec::with_capacity(count);
    for (i, (_, mix)) in runs.iter().enumerate() {
        let end = runs.get(i + 1).map_or(count, |next| next.0);
        numbers.resize(end, first[mix].1);
    }
    (numbers, first.into_values().map(|(r, _)| r).collect())
}

pub(super) fn mix_of(columns: &Requests, r: usize) -> Mix {
    Mix(
        if columns.targets[r] {
            columns.target_width[r]
        } else {
            0
        },
        columns.top_k[r],
        columns.logits[r],
        columns.hidden[r],
        columns.routed[r] > 0,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Labels;
    use super::*;

    proptest! {
        #![proptest_config(crate::testing::cases(256))]

        #[test]
        fn numbers_follow_the_order_of_mixes(
            requests in prop::collection::vec(
                (any::<bool>(), 1i64..3, 0i64..3, any::<bool>(), any::<bool>(), 0i64..2), 0..40),
        ) {
            let count = requests.len();
            let asked = Requests {
                lengths: vec![0; count],
                targets: requests.iter().map(|r| r.0).collect(),
                target_width: requests.iter().map(|r| r.1).collect(),
                top_k: requests.iter().map(|r| r.2).collect(),
                logits: requests.iter().map(|r| r.3).collect(),
                hidden: requests.iter().map(|r| r.4).collect(),
                routed: requests.iter().map(|r| r.5).collect(),
                ..Requests::plain(count)
            };
            let pool = asked.complete(Labels::From(&vec![0; count])).unwrap();
            let keys: Vec<Mix> = requests
                .iter()
                .map(|r| Mix(if r.0 { r.1 } else { 0 }, r.2, r.3, r.4, r.5 > 0))
                .collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            sorted.dedup();
            for (key, &number) in keys.iter().zip(&pool.mix) {
                prop_assert_eq!(key, &sorted[number as usize]);
            }
            let places: Vec<u32> = sorted
                .iter()
                .map(|mix| keys.iter().position(|key| key == mix).unwrap() as u32)
                .collect();
            prop_assert_eq!(pool.mix_first, places);
        }
    }
}
