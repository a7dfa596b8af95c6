"""Which requests go together: waves composed from the whole pool, and planned one after another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan._core import Composition
from waveplan.agreement.adapters import AllShares
from waveplan.agreement.protocol import Step, digest, halves
from waveplan.checks import choice, integer, real
from waveplan.errors import InputError
from waveplan.plan import plan_of
from waveplan.planning import Planning
from waveplan.refusal import WaveRefused, refused
from waveplan.sequences.requests import Requests
from waveplan.wave import Stopped, Wave
from waveplan.waves import Order, Waves

__all__ = ["ComposedWaves", "Composition", "compose"]

OnRefusal = Literal["raise", "skip"]
Part = tuple[NDArray[np.int64], tuple[int, int, float] | None]
"""Groups of one rank, with their bytes, packed tokens and milliseconds if they are one forward."""


def compose(
    planner: Planning,
    requests: Any,
    on_refusal: OnRefusal,
    order: Order,
    fixed_ms: float,
    multiple: int,
    window: int | None,
) -> Composition:
    """See `Planner.compose`."""
    with planner.ranks.broadcasting():
        choice("on_refusal", on_refusal, get_args(OnRefusal))
        choice("order", order, get_args(Order))
        if planner.reference:
            raise InputError("compose: reference mode keeps the pool's order")
        pool = Requests.from_any(requests)
        if not len(pool):
            raise InputError("the pool is empty: there is nothing to compose")
        if window is not None and order != "free":
            raise InputError('window is given: it needs order="free"')
        given = {
            "on_refusal": on_refusal,
            "order": order,
            "fixed_ms": real("fixed_ms", fixed_ms, 0, 1e9),
            "multiple": integer("multiple", multiple, 1, 1 << 20),
            "window": None if window is None else integer("window", window, 0, 1 << 30),
        }
        if window is not None and multiple > 1:
            raise InputError("window: waves of a window come one by one, give no multiple")
        return _compose(planner, pool, np.arange(len(pool.group_sizes)), given)


def _compose(
    planner: Planning,
    pool: Requests,
    groups: NDArray[np.int64],
    given: dict[str, Any],
    version: int = 1,
) -> Composition:
    available = planner.available - planner.kept(planner.available, planner.doubtful(pool))
    available = _agreed(planner, pool, groups, available, given)
    made = planner.make_engine(pool).compose(
        pool,
        groups,
        _kept(planner, pool, groups, available, given["order"]),
        available,
        planner.known(pool),
        given,
        version,
    )
    if len(made.refused) and given["on_refusal"] == "raise":
        raise _refusals(planner, made, available)[0]
    return made


def _agreed(
    planner: Planning,
    pool: Requests,
    groups: NDArray[np.int64],
    available: int,
    given: dict[str, Any],
) -> int:
    """Return the least bytes available over all processes, which compose the same pool alike."""
    ranks = planner.ranks
    if ranks.size == 1:
        return available
    parts = {
        **pool.content,
        **planner.digests,
        "profiles": digest(sorted(map(repr, planner.known(pool)))),
        "arguments": digest((sorted(given.items()), groups.tolist())),
    }
    own = digest((core.__version__, sorted(parts.items())))
    shown = ranks.gather(Step.COMPOSE, [available, *halves(own)])
    if (shown[:, 1:3] != shown[0, 1:3]).any():
        ranks.disagree("on a composition", parts)
    return int(shown[:, 0].min())


def _kept(
    planner: Planning, pool: Requests, groups: NDArray[np.int64], available: int, order: str
) -> list[list[Part]]:
    """Return the groups of each rank of each wave in the pool's order."""
    desk = planner.like(topology=planner.topology, budget=planner.budget, agreement=AllShares())
    waves = Waves(desk, pool, "skip", 0, "keep" if order == "keep" else None)
    waves.fix(groups, available)
    ranks = range(planner.topology.dp)
    kept = []
    for wave in waves:
        own = {share.dp_rank: _part(share) for share in wave.shares or (wave,)}
        kept.append([own.get(rank, (np.empty(0, np.int64), (0, 0, 0.0))) for rank in ranks])
    return kept


def _part(share: Wave) -> Part:
    plan = share.plan
    price = None if plan.split else (plan.required, plan.packed_tokens, plan.time_ms or 0.0)
    return share.indices, price


def _refusals(planner: Planning, made: Composition, available: int) -> list[WaveRefused]:
    """Return the refusal of each group that fits in no wave of a composition."""
    pool, engine, refusals = made.pool, planner.make_engine(made.pool), []
    sizes = pool.group_sizes
    ends = np.cumsum(sizes)
    for group in np.unique(np.searchsorted(ends, made.refused, "right")):
        requests = np.arange(ends[group] - sizes[group], ends[group])
        found = engine.plan(requests, available, planner.known(pool))
        why = ""
        if found.kind != "refused":
            why = "fits in several forwards alone, which a composition does not make: untie it"
        own = np.array([group])
        refusals.append(refused(planner, pool, found, available, indices=own, why=why))
    return refusals


class ComposedWaves(Waves):
    """The waves of a composition, each planned when it is iterated to.

    After an observation bins are priced anew. If one of a wave no longer fits, or the bound of what
    is left falls, it is composed again (`composition` is then the new one). Waves handed out are
    never touched. With other ranks each wave is one gather.
    """

    def __init__(self, planner: Planning, composition: Composition) -> None:
        dp = composition.required.shape[1]
        if planner.reference or dp != planner.topology.dp:
            raise InputError(
                f"requests is a composition for dp {dp}, best mode: this planner has dp "
                f"{planner.topology.dp}{', reference mode' * planner.reference}"
            )
        self.composition = composition
        self.at = 0
        """The next wave of `composition`."""
        self._bounded: Any = None
        """The bytes available and profiles by which what is left was bounded last."""
        super().__init__(planner, composition.pool, composition.given["on_refusal"], 0, "keep")
        self.refused = _refusals(planner, composition, self.available)

    def __next__(self) -> Wave:
        with self._turn:
            if self.at >= self.composition.waves:
                raise StopIteration
            return self.plan_next()

    def _next(self) -> Wave:
        job = self.planner
        ranks, shares = job.ranks, job.shares
        self.available = job.available - job.kept(job.available, self.doubtful)
        with ranks.broadcasting():
            found = [self._planned(dp_rank) for dp_rank in shares]
            if not self._stays(found):
                self._compose_rest()
                found = [self._planned(dp_rank) for dp_rank in shares]
                self._stays(found)
        made = [self._made(dp_rank, one) for dp_rank, one in zip(shares, found, strict=True)]
        wave = max(made, key=lambda share: share.required)
        if len(made) > 1:
            wave = replace(wave, shares=tuple(made))
        self.start += wave.width
        self.at += 1
        return wave

    def _stays(self, found: list[core.SearchResult]) -> bool:
        """Whether all bins of this wave fit and no fewer waves are in sight, on every rank."""
        stays = all(one.kind == "wave" for one in found) and not self._shortens()
        ranks = self.planner.ranks
        if ranks.size > 1:
            mark = halves(digest((self.composition.fingerprint, self.composition.version)))
            shown = ranks.gather(Step.COMPOSED, [int(stays), self.at, *mark])
            if (shown[:, 1:4] != shown[0, 1:4]).any():
                ranks.differ("the processes iterate over different compositions")
            stays = bool(shown[:, 0].all())
        return stays

    def _shortens(self) -> bool:
        """Whether the waves left are further above their bound than those of the composition."""
        composed = self.composition
        known = self.planner.known(self.pool)
        now = self.available, sorted(map(repr, known))
        if self._bounded in (None, now):
            self._bounded = now
            return False
        self._bounded = now
        bound = self._engines[0].order_bound(self._rest(), self.available, known).waves
        multiple = composed.given["multiple"]
        bound = -(-bound // multiple) * multiple
        return bool(composed.waves - self.at - bound > composed.waves - composed.bound)

    def _rest(self) -> NDArray[np.int64]:
        """The groups of the waves left."""
        rest = [part for wave in self.composition.requests[self.at :] for part in wave]
        ends = np.cumsum(self.pool.group_sizes)
        return np.unique(np.searchsorted(ends, np.concatenate(rest), "right"))

    def _planned(self, dp_rank: int) -> core.SearchResult:
        if self.at >= self.composition.waves:
            raise StopIteration
        requests = self.composition.requests[self.at][dp_rank]
        return self._engines[0].plan(requests, self.available, self.planner.known(self.pool))

    def _compose_rest(self) -> None:
        old = self.composition
        self.composition = _compose(
            self.planner, old.pool, self._rest(), old.given, old.version + 1
        )
        self.refused += _refusals(self.planner, self.composition, self.available)
        self.at = 0

    def _made(self, dp_rank: int, found: core.SearchResult) -> Wave:
        """Return the wave as a data-parallel rank planned here sees it."""
        job, pool, composed = self.planner, self.pool, self.composition
        ends = np.cumsum(pool.group_sizes)
        parts = composed.requests[self.at]
        groups = [np.unique(np.searchsorted(ends, part, "right")) for part in parts]
        plan = plan_of(found, job.bound, pool)
        several = dp_rank if job.topology.dp > 1 else None
        return Wave(
            indices=groups[dp_rank],
            width=sum(map(len, groups)),
            start=self.start,
            plan=plan,
            required=found.required,
            available=self.available,
            probes=tuple(found.probes),
            rejected=0,
            cold=found.cold,
            stopped=Stopped("composed", 0, self.available, None, str(composed), several),
            dp_rank=dp_rank,
            _sign=lambda: job.signature_of(pool, np.sort(plan.requests)),
            most_required=int(composed.required[self.at].max()),
            parts=tuple(parts),
            _sign_part=lambda rank: job.signature_of(pool, parts[rank]),
        )
