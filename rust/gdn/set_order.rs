//! The order in which a `CPython` set of frozensets of integer triples is walked.
//!
//! The reference planner breaks ties between batches of segments by the walk order of a Python
//! set. Only integers are hashed, so it is a fixed function of what was inserted, and of
//! nothing else: tuples hash by the xxHash scheme, frozensets by a symmetric mix of their
//! members' hashes, and the table probes ten neighbours before it jumps.

const PRIME_1: u64 = 11_400_714_785_074_694_791;
const PRIME_2: u64 = 14_029_467_366_897_019_727;
const PRIME_5: u64 = 2_870_177_450_012_600_261;
/// Slots looked at one after another from where a probe lands.
const RUN: usize = 10;
const FREE: u32 = u32::MAX;

/// Hash of the tuple `(0, start, end)`; both are below 2^61 - 1, where an int is its own hash.
fn triple(start: i64, end: i64) -> u64 {
    let mut mixed = PRIME_5;
    for item in [0, start as u64, end as u64] {
        mixed = mixed
            .wrapping_add(item.wrapping_mul(PRIME_2))
            .rotate_left(31)
            .wrapping_mul(PRIME_1);
    }
    mixed = mixed.wrapping_add(3 ^ (PRIME_5 ^ 0x0035_d373));
    if mixed == u64::MAX {
        1_546_275_796
    } else {
        mixed
    }
}

/// Hash of the frozenset of the triples of `ranges`.
pub(super) fn set_hash(ranges: impl Iterator<Item = (i64, i64)>) -> u64 {
    let (mut mixed, mut count) = (0_u64, 0_u64);
    for (start, end) in ranges {
        let hash = triple(start, end);
        mixed ^= ((hash ^ 0x055b_4db3) ^ (hash << 16)).wrapping_mul(3_644_798_167);
        count += 1;
    }
    mixed ^= (count + 1).wrapping_mul(1_927_868_237);
    mixed ^= (mixed >> 11) ^ (mixed >> 25);
    mixed = mixed.wrapping_mul(69_069).wrapping_add(907_133_923);
    if mixed == u64::MAX {
        590_923_713
    } else {
        mixed
    }
}

/// Where each of some distinct members, inserted in order, comes in the walk of the set.
pub(super) fn walk_ranks(hashes: &[u64]) -> Vec<u32> {
    let mut table = vec![FREE; 8];
    for (member, &hash) in hashes.iter().enumerate() {
        let slot = free_slot(&table, hash);
        table[slot] = member as u32;
        let used = member + 1;
        if used * 5 >= (table.len() - 1) * 3 {
            table = grow(&table, used, hashes);
        }
    }
    let mut ranks = vec![0; hashes.len()];
    let walked = table.iter().filter(|&&member| member != FREE);
    for (rank, &member) in walked.enumerate() {
        ranks[member as usize] = rank as u32;
    }
    ranks
}

/// The first free slot on the probe sequence of `hash`.
fn free_slot(table: &[u32], hash: u64) -> usize {
    let mask = table.len() as u64 - 1;
    let (mut at, mut perturb) = (hash & mask, hash);
    loop {
        let first = at as usize;
        let last = if first + RUN <= table.len() {
            first + RUN
        } else {
            first + 1
        };
        if let Some(slot) = (first..last).find(|&slot| table[slot] == FREE) {
            return slot;
        }
        perturb >>= 5;
        at = (at.wrapping_mul(5).wrapping_add(1).wrapping_add(perturb)) & mask;
    }
}

/// A table for more members; they move in walk order.
fn grow(table: &[u32], used: usize, hashes: &[u64]) -> Vec<u32> {
    let want = if used > 50_000 { used * 2 } else { used * 4 };
    let mut size = 8;
    while size <= want {
        size *= 2;
    }
    let mut larger = vec![FREE; size];
    for &member in table.iter().filter(|&&member| member != FREE) {
        let slot = free_slot(&larger, hashes[member as usize]);
        larger[slot] = member;
    }
    larger
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[list(s).index(g) for g in batches]` of `CPython` 3.11 and 3.12, s filled in order.
    #[test]
    fn walks_as_cpython_does() {
        let batches: Vec<Vec<(i64, i64)>> = WALKED.iter().map(|(g, _)| g.to_vec()).collect();
        let hashes: Vec<u64> = (batches.iter())
            .map(|batch| set_hash(batch.iter().copied()))
            .collect();
        let expected: Vec<u32> = WALKED.iter().map(|(_, rank)| *rank).collect();
        assert_eq!(walk_ranks(&hashes), expected);
    }

    #[test]
    fn every_member_has_its_own_place() {
        for count in [0, 1, 4, 5, 6, 100, 70_000] {
            let hashes: Vec<u64> = (0..count)
                .map(|i| set_hash(std::iter::once((i * 7, i * 7 + 3))))
                .collect();
            let mut ranks = walk_ranks(&hashes);
            ranks.sort_unstable();
            assert!(ranks.iter().enumerate().all(|(i, &rank)| i as u32 == rank));
        }
    }

    #[rustfmt::skip]
    const WALKED: &[(&[(i64, i64)], u32)] = &[
        (&[(7, 4088), (759, 6634), (988_230, 996_915)], 24),
        (&[(14, 6106)], 5),
        (&[(9, 4095), (48, 8957)], 25),
        (&[(227_257, 233_945)], 10),
        (&[(98, 6479)], 13),
        (&[(2, 7291)], 30),
        (&[(0, 88)], 3),
        (&[(21, 2749)], 22),
        (&[(984, 4243)], 38),
        (&[(88, 3314), (4895, 5249), (656_125, 659_481)], 32),
        (&[(2719, 5107)], 2),
        (&[(5, 4943)], 19),
        (&[(4, 5827), (443, 5980), (492, 5666)], 23),
        (&[(7742, 10_628)], 21),
        (&[(998, 1373)], 31),
        (&[(296, 9292)], 17),
        (&[(385, 534), (765, 3730)], 0),
        (&[(15, 4047), (914, 9511), (5642, 14_039)], 28),
        (&[(1770, 7788)], 39),
        (&[(6, 1500)], 37),
        (&[(525, 6467)], 6),
        (&[(282, 9214)], 26),
        (&[(702, 5893)], 14),
        (&[(10, 2450)], 15),
        (&[(2646, 3442)], 4),
        (&[(69_930, 76_581)], 20),
        (&[(94, 5728)], 27),
        (&[(6910, 9296)], 12),
        (&[(34_310, 42_397)], 18),
        (&[(16, 2192)], 7),
        (&[(2, 7122), (152, 1115)], 33),
        (&[(144, 7569), (22_189, 30_745)], 35),
        (&[(298, 8000), (5205, 13_054)], 29),
        (&[(14, 6191), (23_513, 31_694)], 8),
        (&[(11, 8070)], 1),
        (&[(71_840, 80_079)], 16),
        (&[(5, 568)], 36),
        (&[(572, 5174)], 9),
        (&[(665, 3592), (788, 5603)], 34),
        (&[(7, 8969), (333, 4818), (4732, 12_930)], 11),
    ];
}
