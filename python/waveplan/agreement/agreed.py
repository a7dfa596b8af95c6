"""One wave planned by all data-parallel ranks: of other processes, by five reductions whatever
the probes (four in reference mode, six where modelled times decide); of this process alone, the
same search without any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.agreement.protocol import Step, digest, halves
from waveplan.plan import Plan, plan_of
from waveplan.planning import Searching
from waveplan.refusal import cheapest

__all__ = ["Outcome", "Settled", "Share", "settle"]

Column = NDArray[np.int64]


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
        available = _available(waves)
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


def _parts(waves: Searching) -> dict[str, int]:
    """Return what must be equal on all processes, each a number of 128 bits by its name."""
    return {
        **waves.content,
        **waves.planner.digests,
        "start": waves.start,
        "order of groups": waves.moved,
        "width_hint": waves.width_hint or 0,
        "on_refusal": digest(waves.on_refusal),
        "order": digest(waves.blocks),
    }


def _available(waves: Searching) -> int:
    """Agree on everything before the search; return the least available bytes of this share."""
    planner, ranks = waves.planner, waves.planner.ranks
    parts = _parts(waves)
    known = digest(sorted(map(repr, planner.known(waves.pool))))
    version, own = digest(core.__version__), digest(sorted(parts.items()))
    mine = [planner.agreement.dp_rank, waves.available, halves(known)[0], halves(version)[0]]
    shown = ranks.gather(Step.WAVE, [*mine, *halves(own)])
    where = f"for the wave at group {waves.start}"
    if odd := np.flatnonzero(shown[:, 3] != shown[0, 3]).tolist():
        ranks.differ(f"process {odd[0]} has another version of waveplan than process 0")
    if (shown[:, 4:6] != shown[0, 4:6]).any():
        ranks.disagree(where, parts)
    shares = shown[:, 0]
    for dp_rank in range(planner.topology.dp):
        members = np.flatnonzero(shares == dp_rank)
        if not len(members):
            ranks.differ(f"no process plans for DP rank {dp_rank} of {planner.topology.dp}")
        profiles = shown[members, 2]
        if (profiles != profiles[0]).any():
            ranks.differ(
                f"processes {members.tolist()} of DP rank {dp_rank} hold different profiles: "
                "load the same ones on each"
            )
    return int(shown[shares == planner.agreement.dp_rank, 1].min())


def _row(waves: Searching, share: Share, available: int) -> list[int]:
    """Return what this process gathers after the search."""
    found, mark = share.found, 0
    if waves.planner.ranks.size > waves.planner.topology.dp:  # several plan the same share
        mark = int(plan_of(found, waves.planner.bound, waves.pool).fingerprint[:15], 16)
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
