"""Measures of a plan, counted one position at a time: the readable twin of rust/measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request: its length, which positions are labelled, what else it asks for."""

    length: int
    labels: frozenset[int] | None = frozenset()  # None: no targets
    width: int = 1
    top_k: int = 0
    logits: bool = False
    hidden: bool = False
    gradient: bool = True
    slot: int = 0
    routed: int = 0

    @property
    def active(self) -> bool:
        return self.labels is not None or self.top_k > 0 or self.logits or self.hidden

    @property
    def projected(self) -> frozenset[int]:
        """Positions that the output head projects."""
        if self.top_k or self.logits:
            return frozenset(range(self.length))
        return self.labels or frozenset()


@dataclass
class Tree:
    """The columns of a canonical tree."""

    parent: Sequence[int]  # -1 at a root
    end: Sequence[int]
    terminal: Sequence[int]  # per sequence, -1 for an empty one
    chain: dict[int, list[int]] = field(default_factory=dict)

    def ancestors(self, segment: int) -> list[int]:
        """The segment and its ancestors, deepest first."""
        found = []
        while segment >= 0:
            found.append(segment)
            segment = self.parent[segment]
        return found


def places(tree: Tree, shared: Sequence[bool], sequence: int, length: int) -> list[Any]:
    """Where each position of a sequence is stored: equal places are one packed position."""
    terminal = tree.terminal[sequence]
    chosen = [s for s in tree.ancestors(terminal) if shared[s]][::-1] if terminal >= 0 else []
    made: list[Any] = []
    for segment in chosen:
        made += [(segment, position) for position in range(len(made), tree.end[segment])]
    return made + [("sequence", sequence, position) for position in range(len(made), length)]


def head_tokens(tree: Tree, shared: Sequence[bool], requests: Sequence[Request]) -> int:
    """Distinct packed positions that the head projects."""
    union = set()
    for sequence, request in enumerate(requests):
        stored = places(tree, shared, sequence, request.length)
        union |= {stored[position] for position in request.projected}
    return len(union)


def packed_tokens(tree: Tree, shared: Sequence[bool], requests: Sequence[Request]) -> int:
    union: set[Any] = set()
    for sequence, request in enumerate(requests):
        union |= set(places(tree, shared, sequence, request.length))
    return len(union)


def packs(requests: Sequence[Request]) -> list[tuple[tuple[int, bool, bool], list[int]]]:
    """(slot, gradient, routed) and members, in the order of the first members."""
    found: dict[tuple[int, bool, bool], list[int]] = {}
    for index, request in enumerate(requests):
        if request.active:
            key = (request.slot, request.gradient, request.routed > 0)
            found.setdefault(key, []).append(index)
    return list(found.items())


def ceil_to(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def plan_start(requests: Sequence[Request]) -> dict[str, int]:
    """The plan's measures that need no layout."""
    active = [r for r in requests if r.active]
    entries = sum(r.length * r.width for r in active if r.labels is not None)
    top_k = sum(r.length * r.top_k for r in active)
    logits = sum(r.length for r in active if r.logits)
    states = sum(r.length for r in active if r.hidden)
    routed = sum(r.routed for r in requests)

    def mix(request: Request) -> tuple[Any, ...]:
        width = 0 if request.labels is None else request.width
        return (width, request.top_k, request.logits, request.hidden, request.routed > 0)

    priceable = (
        bool(active)
        and all(r.gradient for r in active)
        and all(
            mix(r) == (0, 0, False, False, False)
            or (mix(r) == (1, 0, False, False, False) and r.length >= 64)
            for r in requests
        )
    )
    return {
        "logical_tokens": sum(r.length for r in active),
        "target_entries": entries,
        "top_k_entries": top_k,
        "logits_tokens": logits,
        "hidden_tokens": states,
        "routed_entries": routed,
        "packed_priceable": int(priceable),
    }


def pack_start(requests: Sequence[Request]) -> dict[str, int]:
    """A pack's measures that need no layout."""
    targets = [r for r in requests if r.labels is not None]
    return {
        "gradient": int(requests[0].gradient),
        "head_target_tokens": max((len(r.labels or ()) for r in requests), default=0),
        "head_labels": sum(r.length * r.width for r in targets),
        "head_topk": sum(r.length * r.top_k for r in requests),
        "head_width": sum(r.width for r in targets if r.length) + sum(r.top_k for r in requests),
        "head_targets": int(bool(targets)),
        "head_statistics": int(bool(targets) or any(r.top_k for r in requests)),
        "head_logits": int(any(r.logits for r in requests)),
    }


def pack_exact(
    tree: Tree,
    shared: Sequence[bool],
    requests: Sequence[Request],
    tp: int,
) -> dict[str, int]:
    """A pack's measures from its layout, at CP 1."""
    packed = packed_tokens(tree, shared, requests)
    padded = ceil_to(packed, tp)
    return pack_start(requests) | {
        "padded_tokens": padded,
        "local_tokens": padded,
        "head_tokens": head_tokens(tree, shared, requests),
        "head_bound": 0,
    }


def gdn_schedule(lengths: Sequence[int], parents: Sequence[int]) -> tuple[int, int, int]:
    """Executed, state and packs of the gdn bucket schedule on one rank."""
    children = [[c for c, p in enumerate(parents) if p == s] for s in range(len(lengths))]
    depth = [0] * len(lengths)
    buckets: dict[Any, list[tuple[int, bool]]] = {}
    for s, (length, parent) in enumerate(zip(lengths, parents, strict=True)):
        has_children = bool(children[s])
        if parent >= 0:
            depth[s] = depth[parent] + 1
            tail = lengths[parent] % 64 if parents[parent] < 0 else 0
            buckets.setdefault(depth[s], []).append((tail + length, has_children))
        elif not has_children:
            buckets.setdefault("lone roots", []).append((length, False))
        elif length >= 64:
            buckets.setdefault("roots", []).append((length // 64 * 64, True))
    executed = sum(tokens for bucket in buckets.values() for tokens, _ in bucket)
    states = sum(
        len(bucket) * (2 if any(hands_on for _, hands_on in bucket) else 1)
        for bucket in buckets.values()
    )
    return executed, states, sum(lengths)
