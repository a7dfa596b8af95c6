"""A plan: one forward, or several whose graphs live together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan._core import ForwardPlan, Pack, SearchResult
from waveplan.budget import format_bytes
from waveplan.pricing import BoundRules, Measures, Price
from waveplan.pricing import price as price_of
from waveplan.sequences.requests import Requests

__all__ = ["ForwardPlan", "Pack", "Plan"]

VERSION = 1
Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """One forward, or several whose graphs live together until one backward.

    Args:
        forwards: in order of execution; one unless the plan is split.
        required: bytes required on the busiest rank, all forwards together.
    """

    forwards: tuple[ForwardPlan, ...]
    required: int
    bound: BoundRules
    """The rules that priced it."""
    part_requests: tuple[Int64, ...] = ()
    """Of a split, the requests of each forward, numbered within the wave."""
    pool: Requests | None = None
    """The pool that its requests are of."""

    @property
    def split(self) -> bool:
        """Whether it has more than one forward."""
        return len(self.forwards) > 1

    @cached_property
    def packs(self) -> tuple[Pack, ...]:
        """The packs of all forwards, in order of execution."""
        return tuple(pack for forward in self.forwards for pack in forward.packs)

    @cached_property
    def largest(self) -> ForwardPlan:
        """The forward that requires most by itself."""
        return max(self.forwards, key=lambda forward: forward.required)

    @property
    def measures(self) -> Measures:
        """The measures that are priced: of a split, those of its largest forward."""
        return self.largest.measures

    @cached_property
    def price(self) -> Price:
        """The price: of a split, that of its largest forward by itself; see `required`."""
        return price_of(self.measures, self.bound)

    @property
    def packed_tokens(self) -> int:
        """Packed tokens of all forwards."""
        return sum(forward.packed_tokens for forward in self.forwards)

    @property
    def logical_tokens(self) -> int:
        """Tokens of all requests."""
        return sum(forward.logical_tokens for forward in self.forwards)

    @property
    def active_tokens(self) -> int:
        """Tokens of the requests with an output."""
        return sum(forward.active_tokens for forward in self.forwards)

    @property
    def output_bytes(self) -> int:
        """Bytes of all requested outputs."""
        return sum(forward.output_bytes for forward in self.forwards)

    @property
    def time_ms(self) -> float:
        """Modelled milliseconds of all forwards, forward and backward over all layers, on the
        slowest context-parallel rank; see `ForwardPlan.time_ms`."""
        return sum(forward.time_ms or 0.0 for forward in self.forwards)

    @property
    def requests(self) -> Int64:
        """Requests of the pool, in order of execution."""
        if not self.forwards:
            return np.empty(0, np.int64)
        return np.concatenate([forward.requests for forward in self.forwards])

    @property
    def rank_tokens(self) -> Int64:
        """Most tokens of each context-parallel rank over all packs [C]."""
        tokens = [pack.rank_tokens for pack in self.packs]
        return np.max(tokens, axis=0) if tokens else np.zeros(1, np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pool's content, packs, ownership and gdn shards, equal on every rank with
        the same plan of the same requests."""
        import hashlib  # slow to import

        digest = hashlib.blake2b(digest_size=16)
        if self.pool is not None:
            digest.update(repr(self.pool.content).encode())
        for forward in self.forwards:
            digest.update(b"forward")
            for pack in forward.packs:
                digest.update(repr((pack.adapter, pack.gradient, pack.routed)).encode())
                packing = pack.packing
                parts = [pack.requests, packing.lengths, packing.parents]
                if (ownership := pack.ownership) is not None:
                    parts += [ownership.owners, ownership.stages]
                if (gdn := pack.gdn) is not None:
                    parts.append(gdn.owner)
                for part in parts:
                    digest.update(np.int64(len(part)).tobytes())
                    digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as stable JSON with a version."""
        return {
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "required": self.required,
            "packed_tokens": self.packed_tokens,
            "logical_tokens": self.logical_tokens,
            "output_bytes": self.output_bytes,
            "forwards": [
                {
                    "mode": forward.mode,
                    "required": forward.required,
                    "requests": forward.requests.tolist(),
                    "packs": [pack_to_dict(pack) for pack in forward.packs],
                    "measures": forward.measures.to_dict(),
                }
                for forward in self.forwards
            ],
        }

    def __repr__(self) -> str:
        parts = f"{len(self.forwards)} forwards, " if self.split else ""
        return (
            f"Plan({parts}{len(self.requests)} requests, {self.packed_tokens} tokens, "
            f"{format_bytes(self.required)})"
        )


def plan_of(found: SearchResult, bound: BoundRules, pool: Requests) -> Plan:
    """Return the plan of a search result over a pool."""
    return Plan(found.plans, found.required, bound, found.part_requests, pool)


def pack_to_dict(pack: Pack) -> dict[str, Any]:
    """Return a pack as stable JSON."""
    packing = pack.packing
    made: dict[str, Any] = {
        "adapter": pack.adapter,
        "gradient": pack.gradient,
        "routed": pack.routed,
        "requests": pack.requests.tolist(),
        "packed_tokens": pack.packed_tokens,
        "saved_tokens": pack.saved_tokens,
        "decisions": pack.decisions,
        "shared_decisions": pack.shared_decisions,
        "depth": pack.depth,
        "balance": pack.balance,
        "lengths": packing.lengths.tolist(),
        "parents": packing.parents.tolist(),
        "sequence_starts": packing.sequence_starts.tolist(),
        "rank_tokens": pack.rank_tokens.tolist(),
    }
    if (ownership := pack.ownership) is not None:
        made["chunk"] = ownership.chunk
        made["owners"] = ownership.owners.tolist()
        made["stages"] = ownership.stages.tolist()
        said = ("method", "score", "bound", "optimal", "most_ranges", "most_tokens")
        made["ownership"] = {name: getattr(ownership, name) for name in said}
        made["time_ms"] = pack.time_ms
    if (gdn := pack.gdn) is not None:
        made["gdn_owner"] = gdn.owner.tolist()
    return made
