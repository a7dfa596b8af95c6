"""A plan: what runs as one forward, or as several whose graphs live together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan._values import choice
from waveplan.assignment import Assignment
from waveplan.assignment import _wrap as wrap
from waveplan.packing import Packing
from waveplan.pricing import BoundRules, Measures, Price
from waveplan.pricing import price as price_of
from waveplan.recurrent import Recurrent
from waveplan.tree import Tree

if TYPE_CHECKING:
    from waveplan.requests import Requests

__all__ = ["Forward", "ForwardGroup", "Plan"]

VERSION = 1
Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ForwardGroup:
    """Requests of one adapter slot and one gradient mode: packed into one row.

    Its parts are made when they are first asked for.
    """

    _core: core.Plan
    _index: int
    adapter: str | None
    """Adapter slot; None for the model's own weights."""
    gradient: bool
    """Computes gradients."""
    routed: bool
    """Replays expert routing."""
    measures: Int64
    """The group's measures, in the order of `waveplan._core.GROUP_MEASURES`."""

    @cached_property
    def requests(self) -> Int64:
        """Its requests, as rows of the pool, in packing order of input."""
        return self._core.group_requests(self._index)

    @cached_property
    def tree(self) -> Tree:
        """The canonical tree of its rows."""
        return Tree(self._core.tree(self._index))

    @cached_property
    def shared(self) -> NDArray[np.bool_]:
        """Which tree segments are stored once."""
        return self._core.shared(self._index)

    @cached_property
    def packing(self) -> Packing:
        """The packed row; rows are numbered within the group."""
        return Packing(self._core.packing(self._index))

    @cached_property
    def assignment(self) -> Assignment | None:
        """Chunks to context-parallel ranks, of the row padded to a multiple of TP; None at CP 1."""
        made = self._core.assignment(self._index)
        return None if made is None else wrap(made)

    @cached_property
    def recurrent(self) -> Recurrent | None:
        """Segments to ranks for recurrent layers; None at CP 1 or without such layers."""
        made = self._core.recurrent(self._index)
        if made is None or self.assignment is None:
            return None
        ranks, owner, chained, shards, cross, score, bound, evaluations = made
        attention = self.assignment.rank_tokens
        return Recurrent(
            rank_tokens=ranks,
            owner=owner,
            chained=chained,
            shards=shards.reshape(-1, len(attention)),
            cross_tokens=cross,
            score=score,
            bound=bound,
            evaluations=evaluations,
            attention_tokens=attention,
        )

    @property
    def packed_tokens(self) -> int:
        """Tokens of the packed row, without padding."""
        return self._measure("pack_tokens")

    @property
    def logical_tokens(self) -> int:
        """Tokens of its requests."""
        return self._measure("pack_logical_tokens")

    @property
    def saved_tokens(self) -> int:
        """Tokens that sharing saves."""
        return self.logical_tokens - self.packed_tokens

    @property
    def decisions(self) -> int:
        """Prefixes that two or more rows share."""
        return int((self.tree.count > 1).sum())

    @property
    def shared_decisions(self) -> int:
        """How many of them are stored once."""
        return int(self.shared.sum())

    @property
    def depth(self) -> int:
        """Segments on the longest path of the packed row."""
        return self._core.layout(self._index)[0]

    @property
    def balance(self) -> float:
        """Rows of the busiest rank over the mean of all ranks; 1 is even."""
        rows = self.rank_rows
        return float(rows.max() / rows.mean()) if rows.sum() else 1.0

    @property
    def rows(self) -> int:
        """Rows of the busiest rank."""
        return self._measure("local_tokens")

    @cached_property
    def rank_rows(self) -> Int64:
        """Rows of each context-parallel rank, the larger of both layouts."""
        if self.assignment is None:
            return np.array([self._measure("padded_tokens")])
        rows = self.assignment.rank_tokens
        return rows if self.recurrent is None else self.recurrent.model_rows

    @property
    def work(self) -> int:
        """Predicted work of the layout, in the units of its score."""
        return self._core.layout(self._index)[1]

    @property
    def work_bound(self) -> int:
        """No layout of these rows has less work."""
        return self._core.layout(self._index)[2]

    @property
    def optimal(self) -> bool:
        """The layout is proven to have the least work."""
        return self._core.layout(self._index)[3]

    def _measure(self, name: str) -> int:
        return int(self.measures[_GROUP[name]])

    def __repr__(self) -> str:
        kind = "gradient" if self.gradient else "forward only"
        return f"ForwardGroup({len(self.requests)} rows, {self.packed_tokens} tokens, {kind})"

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON."""
        packing = self.packing
        made: dict[str, Any] = {
            "adapter": self.adapter,
            "gradient": self.gradient,
            "routed": self.routed,
            "requests": self.requests.tolist(),
            "packed_tokens": self.packed_tokens,
            "saved_tokens": self.saved_tokens,
            "decisions": self.decisions,
            "shared_decisions": self.shared_decisions,
            "depth": self.depth,
            "balance": self.balance,
            "lengths": packing.lengths.tolist(),
            "parents": packing.parents.tolist(),
            "row_starts": packing.row_starts.tolist(),
            "rank_rows": self.rank_rows.tolist(),
        }
        if self.assignment is not None:
            made["chunk"] = self.assignment.chunk
            made["owners"] = self.assignment.owners.tolist()
            made["stages"] = self.assignment.stages.tolist()
        if self.recurrent is not None:
            made["gdn_owner"] = self.recurrent.owner.tolist()
        return made


_GROUP = {name: i for i, (name, _) in enumerate(core.GROUP_MEASURES)}
_PLAN = {name: i for i, (name, _) in enumerate(core.PLAN_MEASURES)}
_ROOT = {name: i for i, name in enumerate(core.PRICE_ROOTS)}
_COST = (
    "required",
    "retained",
    "checkpoint_retained",
    "checkpoint_workspace",
    "checkpoint_input_gradient",
    "checkpoint_peak_increment",
    "hybridep_growth",
    "checkpoint_adapter_gradient",
)


@dataclass(frozen=True, eq=False, repr=False)
class Forward:
    """One forward: all groups of some requests, run one after another."""

    _core: core.Plan
    _bound: BoundRules
    _adapters: tuple[str, ...]

    @property
    def mode(self) -> str:
        """How layouts were chosen: "optimal", "fitting", "full" or "compatible"."""
        return self._core.mode

    @cached_property
    def requests(self) -> Int64:
        """Its requests, as rows of the pool."""
        return self._core.requests

    @cached_property
    def groups(self) -> tuple[ForwardGroup, ...]:
        """Its groups in order of execution."""
        made = []
        for i, row in enumerate(self._core.group_measures):
            slot, gradient, routed = self._core.key(i)
            name = None if slot == 0 else self._adapters[slot - 1]
            made.append(ForwardGroup(self._core, i, name, gradient, routed, row))
        return tuple(made)

    @cached_property
    def measures(self) -> Measures:
        """What its price is made of."""
        rows = self._core.group_measures
        width = len(core.GROUP_MEASURES)
        groups = np.array(rows, np.int64).reshape(len(rows), width)
        return Measures(self._core.measures, groups)

    @cached_property
    def price(self) -> Price:
        """What it needs by itself on the busiest rank."""
        return price_of(self.measures, self._bound)

    @property
    def required(self) -> int:
        """Bytes it needs by itself."""
        return self._core.required

    @property
    def packed_tokens(self) -> int:
        """Packed tokens of all groups, padded to a multiple of TP."""
        return int(self.measures.plan[_PLAN["packed_tokens"]])

    @property
    def logical_tokens(self) -> int:
        """Tokens of all its requests."""
        plan = self.measures.plan
        return int(plan[_PLAN["logical_tokens"]] + plan[_PLAN["inactive_tokens"]])

    @property
    def active_tokens(self) -> int:
        """Tokens of its requests that ask for an output."""
        return int(self.measures.plan[_PLAN["logical_tokens"]])

    @property
    def output_bytes(self) -> int:
        """Bytes of all requested outputs, by the rules `output.*`."""
        return self.result("output")

    @property
    def depth(self) -> int:
        """Segments on the longest path of any group."""
        return max((self._core.layout(i)[0] for i in range(len(self._core))), default=0)

    @property
    def covered(self) -> bool:
        """A profile covers it."""
        return self._core.covered

    @property
    def cost(self) -> dict[str, int]:
        """Its price inside a split, by part."""
        return dict(zip(_COST, self._core.cost, strict=True))

    def result(self, name: str) -> int:
        """A named result of the price, see `waveplan._core.PRICE_ROOTS`."""
        return int(self._core.roots[_ROOT[choice("name", name, _ROOT)]])

    def __repr__(self) -> str:
        return f"Forward({len(self.requests)} rows, {self.packed_tokens} tokens, {self.mode})"


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What a wave, or one call, runs: one forward, or several whose graphs live together.

    Args:
        forwards: in order of execution; one unless the plan is split.
        required: bytes needed on the busiest rank, all forwards together.
    """

    forwards: tuple[Forward, ...]
    required: int
    _part_requests: tuple[Int64, ...] = ()

    @property
    def split(self) -> bool:
        """It runs as more than one forward."""
        return len(self.forwards) > 1

    @property
    def groups(self) -> tuple[ForwardGroup, ...]:
        """The groups of all forwards, in order of execution."""
        return tuple(group for forward in self.forwards for group in forward.groups)

    @property
    def part_requests(self) -> tuple[Int64, ...]:
        """Of a split, each forward's requests, numbered within the wave's own requests."""
        return self._part_requests

    @property
    def largest(self) -> Forward:
        """The forward that needs most by itself."""
        return max(self.forwards, key=lambda forward: forward.required)

    @property
    def measures(self) -> Measures:
        """What the price is made of: of a split, that of its largest forward."""
        return self.largest.measures

    @property
    def price(self) -> Price:
        """The price: of a split, that of its largest forward by itself; see `required`."""
        return self.largest.price

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
        """Tokens of the requests that ask for an output."""
        return sum(forward.active_tokens for forward in self.forwards)

    @property
    def output_bytes(self) -> int:
        """Bytes of all requested outputs."""
        return sum(forward.output_bytes for forward in self.forwards)

    @property
    def requests(self) -> Int64:
        """All requests, as rows of the pool, in order of execution."""
        if not self.forwards:
            return np.empty(0, np.int64)
        return np.concatenate([forward.requests for forward in self.forwards])

    @property
    def rank_rows(self) -> Int64:
        """Most rows of each context-parallel rank over all groups."""
        rows = [group.rank_rows for group in self.groups]
        return np.max(rows, axis=0) if rows else np.zeros(1, np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what runs where: equal on every rank that made the same plan."""
        import hashlib  # slow to import

        digest = hashlib.blake2b(digest_size=16)
        for forward in self.forwards:
            digest.update(b"forward")
            for group in forward.groups:
                digest.update(repr((group.adapter, group.gradient, group.routed)).encode())
                parts = [group.requests, group.packing.lengths, group.packing.parents]
                if group.assignment is not None:
                    parts += [group.assignment.owners, group.assignment.stages]
                if group.recurrent is not None:
                    parts.append(group.recurrent.owner)
                for part in parts:
                    digest.update(np.int64(len(part)).tobytes())
                    digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON with a version."""
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
                    "groups": [group.to_dict() for group in forward.groups],
                    "measures": forward.measures.to_dict(),
                }
                for forward in self.forwards
            ],
        }

    def __repr__(self) -> str:
        parts = f"{len(self.forwards)} forwards, " if self.split else ""
        return (
            f"Plan({parts}{len(self.requests)} rows, {self.packed_tokens} tokens, "
            f"{self.required} bytes)"
        )


def plan_of(
    found: core.Found, bound: BoundRules, requests: Requests, required: int | None = None
) -> Plan:
    """The plan that a search found."""
    forwards = tuple(Forward(made, bound, requests.adapters) for made in found.plans)
    return Plan(
        forwards,
        found.required if required is None else required,
        tuple(found.part_requests),
    )
