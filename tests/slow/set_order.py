"""The order in which CPython walks a set of frozensets of integer triples (64 bit).

Checked on 3.11 and 3.12.

Only integers are hashed, so the order does not depend on PYTHONHASHSEED: it is a fixed function
of the inserts.
"""

M64 = (1 << 64) - 1
P1, P2, P5 = 11400714785074694791, 14029467366897019727, 2870177450012600261


def triple_hash(values):
    """Hash of a tuple of non-negative integers below 2**61 - 1."""
    acc = P5
    for v in values:
        acc = (acc + v * P2) & M64
        acc = ((acc << 31) | (acc >> 33)) & M64
        acc = (acc * P1) & M64
    acc = (acc + (len(values) ^ (P5 ^ 3527539))) & M64
    return 1546275796 if acc == M64 else acc


def group_hash(triples):
    """Hash of a frozenset of such tuples."""
    h = 0
    for t in triples:
        x = triple_hash(t)
        h ^= (((x ^ 89869747) ^ (x << 16)) * 3644798167) & M64
    h ^= ((len(triples) + 1) * 1927868237) & M64
    h ^= (h >> 11) ^ (h >> 25)
    h = (h * 69069 + 907133923) & M64
    return 590923713 if h == M64 else h


def place(table, h):
    """Slot where a new hash goes: runs of ten neighbours, then a jump."""
    mask = len(table) - 1
    i, perturb = h & mask, h
    while True:
        for j in range(i, i + 10 if i + 9 <= mask else i + 1):
            if table[j] is None:
                return j
        perturb >>= 5
        i = (i * 5 + 1 + perturb) & mask


def walk_order(packs):
    """Indices of `packs` (distinct lists of triples) as a set filled in this order is walked."""
    table = [None] * 8
    for n, g in enumerate(packs):
        h, used = group_hash(g), n + 1
        table[place(table, h)] = (h, n)
        if used * 5 >= (len(table) - 1) * 3:
            size, want = 8, used * 2 if used > 50_000 else used * 4
            while size <= want:
                size *= 2
            old, table = table, [None] * size
            for entry in old:
                if entry is not None:
                    table[place(table, entry[0])] = entry
    return [entry[1] for entry in table if entry is not None]
