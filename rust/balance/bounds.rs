//! Bounds that no way of dealing beats.

/// The fewest parts of at most `cap` that hold these lengths (descending, none above `cap`).
///
/// Martello and Toth's L2: for a size `a` up to half the cap, items longer than `cap - a` stand
/// without one of length `a` or more, items longer than half the cap stand apart, and those from
/// `a` to half the cap must find room beside the latter.
pub(crate) fn fewest_parts(lengths: &[i64], cap: i64) -> usize {
    if lengths.is_empty() {
        return 0;
    }
    let mut sums = vec![0_i128; lengths.len() + 1];
    for (i, &length) in lengths.iter().enumerate() {
        sums[i + 1] = sums[i] + i128::from(length);
    }
    let cap = i128::from(cap);
    let above = |size: i128| lengths.partition_point(|&length| i128::from(length) > size);
    let half = above(cap / 2);
    let needed = |small: i128| {
        let (huge, end) = (above(cap - small), above(small - 1));
        let big = half.max(huge);
        let room = (big - huge) as i128 * cap - (sums[big] - sums[huge]);
        let beyond = sums[end.max(big)] - sums[big] - room;
        let more = if beyond > 0 && cap > 0 {
            (beyond + cap - 1) / cap
        } else {
            0
        };
        big + more as usize
    };
    let small = lengths[half..].iter().map(|&length| i128::from(length));
    small.chain([0]).map(needed).max().unwrap_or(0).max(1)
}

/// The least that the largest of `parts` sums can be, of work in descending order.
pub(super) fn largest(work: &[i64], parts: usize, equal: bool) -> i64 {
    let ceil = |sum: i64| sum / parts as i64 + i64::from(sum % parts as i64 != 0);
    let mut bound = ceil(work.iter().sum()).max(work.first().copied().unwrap_or(0));
    // One of the parts has j + 1 of the first j * parts + 1 items.
    let mut j = 1;
    while j * parts < work.len() {
        let last = j * parts;
        bound = bound.max(work[last - j..=last].iter().sum());
        j += 1;
    }
    if equal && !work.is_empty() {
        let others = work.len() / parts - 1;
        bound = bound.max(work[0] + work[work.len() - others..].iter().sum::<i64>());
    }
    bound
}
