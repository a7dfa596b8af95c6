"""The second layout, slow and readable: the differential target of gdn placement.

Everything is recomputed from the segments for each set of chained segments; owners come from
comparing whole tuples. Only the integers of a set walk are shared with nothing else: see
`set_order`.
"""

from __future__ import annotations

from dataclasses import dataclass

from slow.set_order import walk_order

MODEL = {
    "hidden": 2048,
    "key_heads": 16,
    "value_heads": 32,
    "key_dim": 128,
    "value_dim": 128,
    "conv": 4,
    "tp": 1,
}
"""The layer's shape where a golden vector names none."""


@dataclass
class Pack:
    """A group and its attention chunks."""

    lengths: list[int]
    parents: list[int]
    ranks: int
    chunk: int
    owners: list[int]

    def __post_init__(self):
        self.count = len(self.lengths)
        self.starts = [sum(self.lengths[:i]) for i in range(self.count)]
        self.tokens = sum(self.lengths)
        self.children = [[] for _ in self.lengths]
        self.depths = []
        for i, parent in enumerate(self.parents):
            self.depths.append(0 if parent < 0 else self.depths[parent] + 1)
            if parent >= 0:
                self.children[parent].append(i)
        self.roots = [i for i, parent in enumerate(self.parents) if parent < 0]

    def subtree(self, segment):
        """The segment and all below it, depth first."""
        found, stack = [], [segment]
        while stack:
            at = stack.pop()
            found.append(at)
            stack += reversed(self.children[at])
        return found

    def pieces(self, start, end):
        """(owner, tokens) of each chunk that `start..end` touches."""
        found = []
        for index, owner in enumerate(self.owners):
            low = max(start, index * self.chunk)
            high = min(end, (index + 1) * self.chunk)
            if low < high:
                found.append((owner, high - low))
        return found

    def on_ranks(self, start, end):
        """Tokens of `start..end` on each rank."""
        tokens = [0] * self.ranks
        for owner, held in self.pieces(start, end):
            tokens[owner] += held
        return tokens

    def shards(self, segment):
        """(tokens per rank, tokens moved) if the segment is chained, None if it may not be."""
        start, length = self.starts[segment], self.lengths[segment]
        if self.ranks == 1 or length // 64 < self.ranks:
            return None
        own = self.pieces(start, start + length)
        if [owner for owner, _ in own] == list(range(self.ranks)) and all(
            tokens % 64 == 0 for _, tokens in own[:-1]
        ):
            return [tokens for _, tokens in own], 0
        cut = [64 * (length // 64 // self.ranks) for _ in range(self.ranks)]
        for rank in range(length // 64 % self.ranks):
            cut[rank] += 64
        cut[-1] += length % 64
        moved, at = 0, start
        for rank, tokens in enumerate(cut):
            moved += tokens - self.on_ranks(at, at + tokens)[rank]
            at += tokens
        return cut, moved


@dataclass
class Placement:
    """Where everything is."""

    loads: list[int]
    owner: list[int]
    moved: int


def exchange_ms(settings, moved):
    return (
        0.0
        if moved == 0
        else (moved * settings.hidden_bytes * settings.exchanges / settings.exchange_bandwidth)
    )


def place(pack, settings, chained):
    """The placement with this set of segments chained."""
    placed = Placement([0] * pack.ranks, [-1] * pack.count, 0)
    limit = max(1, int(pack.tokens / pack.ranks))

    def own(group):
        tokens = sum(pack.lengths[s] for s in group)
        here = [0] * pack.ranks
        for s in group:
            held = pack.on_ranks(pack.starts[s], pack.starts[s] + pack.lengths[s])
            here = [a + b for a, b in zip(here, held, strict=True)]

        def price(rank):
            loads = list(placed.loads)
            loads[rank] += tokens
            moved = tokens - here[rank]
            exchange = exchange_ms(settings, moved)
            slowest = max(load / settings.local_rate for load in loads)
            return slowest + exchange, exchange, moved, -here[rank], rank

        owner = min(range(pack.ranks), key=price)
        placed.loads[owner] += tokens
        placed.moved += tokens - here[owner]
        for s in group:
            placed.owner[s] = owner

    stack = list(reversed(pack.roots))
    while stack:
        segment = stack.pop()
        below = pack.subtree(segment)
        if segment in chained:
            cut, moved = pack.shards(segment)
            placed.loads = [a + b for a, b in zip(placed.loads, cut, strict=True)]
            placed.moved += moved
        elif sum(pack.lengths[s] for s in below) <= limit and not chained & set(below):
            own(below)
            continue
        else:
            own([segment])
        stack += reversed(pack.children[segment])
    return placed


def score(pack, settings, chained):
    """Predicted milliseconds with this set of segments chained."""
    placed = place(pack, settings, chained)
    levels = range(max(pack.depths) + 1)
    on_level = [[s for s in sorted(chained) if pack.depths[s] == level] for level in levels]
    slowest = 0.0
    for rank in range(pack.ranks):
        work = buckets = segments = chain = 0
        for level in levels:
            owned = [
                pack.lengths[s]
                for s in range(pack.count)
                if pack.depths[s] == level and placed.owner[s] == rank
            ]
            if owned:
                work += max(owned) * len(owned)
                buckets += 1
                segments += len(owned)
            if on_level[level]:
                longest = max(pack.shards(s)[0][rank] for s in on_level[level])
                chain += longest * len(on_level[level])
        time = work / settings.local_rate + buckets * settings.local_bucket_ms
        time += segments * settings.local_segment_ms
        time += chain / settings.chain_rate
        time += placed.loads[rank] / settings.dense_rate
        slowest = max(slowest, time)
    chain_ms = 0.0
    if chained:
        buckets, segments = sum(1 for level in on_level if level), len(chained)
        chain_ms = buckets * settings.chain_bucket_ms
        summaries = segments * settings.summary_bytes * settings.summary_exchanges
        chain_ms += summaries / settings.summary_bandwidth
        chain_ms += segments / settings.summary_rate
        chain_ms += buckets * settings.scan_bucket_ms
        chain_ms += segments / settings.scan_rate
    handed = 0
    for s, parent in enumerate(pack.parents):
        if parent >= 0 and parent not in chained:
            handed += s in chained or placed.owner[s] != placed.owner[parent]
    parents = handed * settings.parent_bytes / settings.parent_bandwidth if handed else 0.0
    return slowest + chain_ms + exchange_ms(settings, placed.moved) + parents


def candidate_groups(pack, settings, legal):
    """Groups of segments to toggle, most promising first."""

    def priority(group):
        relief = length = missed = locality = 0
        for s in group:
            held = max(pack.on_ranks(pack.starts[s], pack.starts[s] + pack.lengths[s]))
            relief += pack.lengths[s] - max(pack.shards(s)[0])
            length += pack.lengths[s]
            missed += held - pack.lengths[s]
            locality = max(locality, held)
        return relief, length, locality, missed, len(group)

    filled = [frozenset([s]) for s in legal]
    for parent in dict.fromkeys(pack.parents[s] for s in legal):
        together = frozenset(s for s in legal if pack.parents[s] == parent)
        if parent >= 0 and len(together) > 1:
            filled.append(together)
    triples = [
        [(0, pack.starts[s], pack.starts[s] + pack.lengths[s]) for s in group] for group in filled
    ]
    walked = [filled[i] for i in walk_order(triples)]
    walked.sort(key=priority, reverse=True)
    groups = []
    for group in (
        frozenset(legal),
        frozenset(s for s in legal if pack.parents[s] < 0),
        frozenset(s for s in legal if pack.parents[s] >= 0),
        *walked,
    ):
        if group and group not in groups:
            groups.append(group)
    return groups[: max(1, settings.candidates)]


def neighbours(chained, groups, branch):
    """The groups to toggle from this set."""
    picked = [group for group in groups if not group <= chained][:branch]
    for group in reversed(groups):
        if len(picked) < branch and group & chained and group not in picked:
            picked.append(group)
    return picked


def chained_segments(pack, settings):
    """The set that the beam search settles on."""
    legal = [s for s in range(pack.count) if pack.shards(s)]
    if not legal:
        return frozenset()
    known = {}

    def key(chained):
        if chained not in known:
            known[chained] = score(pack, settings, chained)
        return known[chained], len(chained), sorted(chained)

    none, everything = frozenset(), frozenset(legal)
    best = everything if key(none)[0] - key(everything)[0] > settings.min_gain_ms else none
    width = max(1, settings.beam_width)
    beam = sorted([none, everything], key=key)[:width]
    groups = candidate_groups(pack, settings, legal)
    stale = 0
    for _ in range(settings.max_steps):
        made = {}
        for chained in beam:
            for group in neighbours(chained, groups, max(1, settings.branch)):
                made[chained - group if group <= chained else chained | group] = True
        beam = sorted([*beam, *made], key=key)[:width]
        if key(best)[0] - key(beam[0])[0] > settings.min_gain_ms:
            best, stale = beam[0], 0
        else:
            stale += 1
            if stale == 2:
                break
    return best


def gdn(pack, settings):
    """(rank tokens, owner or -1, chained, tokens moved, score)."""
    chained = chained_segments(pack, settings)
    placed = place(pack, settings, chained)
    flags = [s in chained for s in range(pack.count)]
    return placed.loads, placed.owner, flags, placed.moved, score(pack, settings, chained)


def schedule(pack, held):
    """(executed tokens, state tokens, groups) of the rank that holds `held`: {segment: tokens}."""
    executed = 0
    buckets = {}
    for s, tokens in held.items():
        parent = pack.parents[s]
        hands_on = bool(pack.children[s])
        bucket = ("root", hands_on) if parent < 0 else ("depth", pack.depths[s])
        if parent < 0 and any(child in held for child in pack.children[s]):
            tokens -= tokens % 64
        if parent >= 0 and parent in held and pack.parents[parent] < 0:
            tokens += held[parent] % 64
        executed += tokens
        if tokens:
            buckets.setdefault(bucket, []).append(hands_on)
    states = sum(len(columns) * (2 if any(columns) else 1) for columns in buckets.values())
    return executed, states, sum(held.values())
