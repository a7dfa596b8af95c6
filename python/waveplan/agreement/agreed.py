"""One wave planned by all data-parallel ranks: of other processes, five reductions whatever the
probes (four in reference mode); of this process, the same search without any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.agreement.protocol import Step, digest
from waveplan.plan import Plan, plan_of
from waveplan.planning import Searching
from waveplan.refusal import cheapest

__all__ = ["Outcome", "Settled", "Share", "settle"]

Column = NDArray[np.int64]

_EQUAL = (
    "start",
    "number of groups",
    "number of requests",
    "number of tokens",
    "width hint",
    "way to take refusals or the order",
    "planner's settings or version",
    "pricing rules",
)
"""Values that must be equal on all ranks, in the order of the first gather."""
_HASHED = 5
"""From here on hashes are gathered."""


@dataclass(frozen=True)
class Share:
    """A share planned in this process."""

    dp_rank: int
    found: core.SearchResult
    cheapest: Plan | None
    """In best mode: the plan of a refused share that requires least."""

    @property
    def refused(self) -> bool:
        """Whether nothing that was tried fits."""
        return self.found.kind == "refused"

    @property
    def required(self) -> int:
        """Bytes that it requires; refused in reference mode, those of the last attempt."""
        return self.found.required if self.cheapest is None else self.cheapest.required


@dataclass(frozen=True)
class Outcome:
    """What every process knows of one data-parallel rank's share."""

    dp_rank: int
    refused: bool
    required: int
    available: int
    cold: bool


@dataclass(frozen=True)
class Settled:
    """The outcome of the search for a wave."""

    width: int
    shares: list[Share]
    """Those planned in this process, by rank."""
    outcomes: list[Outcome]
    """Those known, by rank: all of the wave's, or the only one planned without the others."""


def settle(waves: Searching) -> Settled:
    """Plan the next wave of a pool together with all other ranks."""
    planner, ranks = waves.planner, waves.planner.ranks
    sessions = waves.sessions()
    available = waves.available
    if ranks.size > 1:
        available = _available(waves, ranks.gather(Step.WAVE, _inputs(waves)))
    if ranks.size == len(sessions) == 1:
        found = [sessions[0].alone()]
    else:
        found = _by_tables(waves, sessions, available)
    shares = []
    for dp_rank, result in zip(planner.shares, found, strict=True):
        least = None
        if result.kind == "refused" and not planner.reference:
            requests = np.sort(np.concatenate([plan.requests for plan in result.plans]))
            least = cheapest(planner, waves.pool, requests)
        shares.append(Share(dp_rank, result, least))
    rows = np.array([_row(waves, share, available) for share in shares], np.int64)
    if ranks.size > 1:
        rows = ranks.gather(Step.OUTCOME, rows[0].tolist())
    return Settled(found[0].width, shares, _outcomes(waves, rows))


def _by_tables(
    waves: Searching, sessions: list[core.Session], available: int
) -> list[core.SearchResult]:
    """Search over tables of probes, each the least over this process's shares and the others."""
    ranks = waves.planner.ranks

    def reduced(step: str, entries: int) -> Column:
        def least() -> Column:
            tables = [getattr(session, step)() for session in sessions]
            return np.min(tables, axis=0)  # type: ignore[no-any-return]

        return ranks.reduce(least, entries)

    for session in sessions:
        session.set_available(available)
    first = reduced("growth", sessions[0].growth_len())
    (entries,) = {session.agree_growth(first) for session in sessions}
    second = reduced("bisection", entries)
    (entries,) = {session.agree_bisection(second) for session in sessions}
    third = np.empty(0, np.int64)
    if not waves.planner.reference:  # the reference planner looks at granules alone
        third = reduced("refinement", entries)
    (entries,) = {session.agree_refinement(third) for session in sessions}
    times = reduced("times", entries) if entries else np.empty(0, np.int64)
    return [session.finish(times) for session in sessions]


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
        digest((waves.on_refusal, waves.blocks)),
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
            differ(f"no process plans for DP rank {dp_rank} of {planner.topology.dp}")
        profiles = shown[members, 2]
        if (profiles != profiles[0]).any():
            differ(
                f"processes {members.tolist()} of DP rank {dp_rank} hold different profiles: "
                "load the same ones on each"
            )
    return int(shown[shares == planner.agreement.dp_rank, 1].min())


def _row(waves: Searching, share: Share, available: int) -> list[int]:
    """Return what this process gathers after the search."""
    found, mark = share.found, 0
    if waves.planner.ranks.size > waves.planner.topology.dp:  # several plan the same share
        mark = int(plan_of(found, waves.planner.bound).fingerprint[:15], 16)
    flags = int(share.refused), share.required, available, int(found.cold)
    return [share.dp_rank, found.width, *flags, mark]


def _outcomes(waves: Searching, rows: Column) -> list[Outcome]:
    """Check that all ranks found the same wave; return the outcome of each share, by rank."""
    known: dict[int, tuple[int, ...]] = {}
    for dp_rank, width, refused, required, available, cold, mark in rows[:, :7].tolist():
        row = width, refused, required, available, cold, mark
        if known.setdefault(dp_rank, row) != row or width != rows[0, 1]:
            waves.planner.ranks.differ(
                f"the processes made different plans of the wave at group {waves.start}: their "
                "machines differ"
            )
    return [
        Outcome(dp_rank, bool(refused), required, available, bool(cold))
        for dp_rank, (_, refused, required, available, cold, _) in sorted(known.items())
    ]
