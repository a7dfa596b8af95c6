"""One wave planned by all ranks of a job: five reductions, whatever the probes; four in reference
mode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.agreement.protocol import Step, digest
from waveplan.budget import format_bytes
from waveplan.plan import plan_of
from waveplan.planning import Searching

__all__ = ["Settled", "settle"]

Column = NDArray[np.int64]

_EQUAL = (
    "start",
    "number of groups",
    "number of requests",
    "number of tokens",
    "width hint",
    "way to take refusals",
    "planner's settings or version",
    "pricing rules",
)
"""Values that must be equal on all ranks, in the order of the first gather."""
_HASHED = 5
"""From here on hashes are gathered."""


@dataclass(frozen=True)
class Settled:
    """The outcome of the search for a wave, on all ranks."""

    found: core.SearchResult
    available: int
    """Bytes available for this rank's share."""
    refused: str | None
    """The wave is refused: by this rank (""), or by another one for this reason."""
    required: int
    """The most bytes required on any rank."""
    cold: bool
    """On some rank no profile covers the plan."""


def settle(waves: Searching) -> Settled:
    """Plan the next wave of a pool together with all other ranks."""
    ranks = waves.planner.ranks
    session = waves.session()
    shown = ranks.gather(Step.WAVE, _inputs(waves))
    available = _available(waves, shown)

    def growth() -> Column:
        session.set_available(available)
        return session.growth()

    first = ranks.reduce(growth, session.growth_len())
    entries = session.agree_growth(first)
    second = ranks.reduce(lambda: session.bisection(), entries)
    entries = session.agree_bisection(second)
    third = np.empty(0, np.int64)
    if not waves.planner.reference:  # the reference planner looks at granules alone
        third = ranks.reduce(lambda: session.refinement(), entries)
    found = session.finish(third)
    mark = 0
    if ranks.size > waves.planner.topology.dp:  # several processes plan the same share
        mark = int(plan_of(found, waves.planner.bound).fingerprint[:15], 16)
    mine = [
        waves.planner.agreement.dp_rank,
        found.width,
        int(found.kind == "refused"),
        found.required,
        available,
        int(found.cold),
        mark,
    ]
    return _outcome(waves, found, available, ranks.gather(Step.OUTCOME, mine))


def _inputs(waves: Searching) -> list[int]:
    """Return what this process gathers before the search."""
    planner, pool = waves.planner, waves.pool
    settings, rules = planner.digests
    return [
        planner.agreement.dp_rank,
        waves.available,
        digest(sorted(map(repr, planner.known(pool)))),
        waves.start,
        waves.groups,
        len(pool),
        int(pool.lengths.sum()),
        waves.width_hint or 0,
        digest(waves.on_refusal),
        settings,
        rules,
    ]


def _available(waves: Searching, shown: Column) -> int:
    """Check what was gathered; return the least available bytes of this data-parallel rank."""
    planner = waves.planner
    differ = planner.ranks.differ
    where = f"for the wave at group {waves.start}"
    for at, what in enumerate(_EQUAL):
        values = shown[:, 3 + at].tolist()
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            figures = f": rank {other} differs from rank 0"
            if at < _HASHED:
                figures = f": rank 0 has {values[0]}, rank {other} has {values[other]}"
            differ(f"the ranks disagree on the {what} {where}{figures}")
    shares = shown[:, 0]
    for dp_rank in range(planner.topology.dp):
        members = np.flatnonzero(shares == dp_rank)
        if not len(members):
            differ(f"no process plans for data-parallel rank {dp_rank} of {planner.topology.dp}")
        profiles = shown[members, 2]
        if (profiles != profiles[0]).any():
            differ(
                f"processes {members.tolist()} of data-parallel rank {dp_rank} hold different "
                "profiles: load the same ones on each"
            )
    return int(shown[shares == planner.agreement.dp_rank, 1].min())


def _outcome(waves: Searching, found: core.SearchResult, available: int, shown: Column) -> Settled:
    """Check that all ranks found the same wave, and return its outcome."""
    planner = waves.planner
    shares, widths, refusals, required, budgets, cold, marks = shown[:, :7].T
    for dp_rank in range(planner.topology.dp):
        members = shares == dp_rank
        if (widths != widths[0]).any() or (marks[members] != marks[members][0]).any():
            planner.ranks.differ(
                f"the ranks made different plans of the wave at group {waves.start}: their "
                "requests or machines differ"
            )
    refused = None
    if refusals.any():
        refused = ""
        if found.kind != "refused":
            first = int(np.argmax(refusals))
            refused = (
                f"data-parallel rank {shares[first]} requires "
                f"{format_bytes(int(required[first]))} of {format_bytes(int(budgets[first]))} "
                "for its share and found no split that fits"
            )
    return Settled(found, available, refused, int(required.max()), bool(cold.any()))
