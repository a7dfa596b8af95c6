//! The order in which `CPython` (64 bit) walks a set of frozensets of integer triples: a fixed
//! function of the inserts, as only integers are hashed.

const P1: u64 = 11_400_714_785_074_694_791;
const P2: u64 = 14_029_467_366_897_019_727;
const P5: u64 = 2_870_177_450_012_600_261;

const SALT: u64 = 0x0035_d373;
const SHUFFLE: u64 = 0x055b_4db3;

/// Hash of a tuple of small non-negative integers.
fn triple_hash(values: [i64; 3]) -> u64 {
    let mut hash = P5;
    for value in values {
        hash = hash.wrapping_add((value as u64).wrapping_mul(P2));
        hash = hash.rotate_left(31).wrapping_mul(P1);
    }
    hash = hash.wrapping_add(3 ^ P5 ^ SALT);
    if hash == u64::MAX {
        1_546_275_796
    } else {
        hash
    }
}

/// Hash of a frozenset of such tuples.
fn group_hash(triples: &[[i64; 3]]) -> u64 {
    let mut hash = 0_u64;
    for &triple in triples {
        let x = triple_hash(triple);
        hash ^= ((x ^ SHUFFLE) ^ (x << 16)).wrapping_mul(3_644_798_167);
    }
    hash ^= (triples.len() as u64 + 1).wrapping_mul(1_927_868_237);
    hash ^= (hash >> 11) ^ (hash >> 25);
    hash = hash.wrapping_mul(69_069).wrapping_add(907_133_923);
    if hash == u64::MAX { 590_923_713 } else { hash }
}

type Table = Vec<Option<(u64, usize)>>;

/// Slot where a new hash goes: runs of ten neighbours, then a jump.
fn place(table: &Table, hash: u64) -> usize {
    let mask = table.len() - 1;
    let (mut i, mut perturb) = (hash as usize & mask, hash);
    loop {
        let run = if i + 9 <= mask { 10 } else { 1 };
        if let Some(free) = (i..i + run).find(|&j| table[j].is_none()) {
            return free;
        }
        perturb >>= 5;
        i = (i
            .wrapping_mul(5)
            .wrapping_add(1)
            .wrapping_add(perturb as usize))
            & mask;
    }
}

/// Indices of the groups, all distinct, as a set filled in this order is walked.
#[must_use]
pub fn walk_order(groups: &[Vec<[i64; 3]>]) -> Vec<usize> {
    let mut table: Table = vec![None; 8];
    for (n, group) in groups.iter().enumerate() {
        let hash = group_hash(group);
        let at = place(&table, hash);
        table[at] = Some((hash, n));
        let used = n + 1;
        if used * 5 >= (table.len() - 1) * 3 {
            let want = if used > 50_000 { used * 2 } else { used * 4 };
            let mut size = 8;
            while size <= want {
                size *= 2;
            }
            let old = std::mem::replace(&mut table, vec![None; size]);
            for entry in old.into_iter().flatten() {
                let at = place(&table, entry.0);
                table[at] = Some(entry);
            }
        }
    }
    table.into_iter().flatten().map(|(_, n)| n).collect()
}
