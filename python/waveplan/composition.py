"""Which requests go together: waves composed from the whole pool, and planned one after another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
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


@dataclass(frozen=True, eq=False)
class Composition:
    """Requests of a pool put into waves in any order: the same on every rank.

    W waves of D data-parallel ranks, n requests. Besides the fields here it has those of the
    core's `Composed`: ``waves``, ``requests`` (of each wave and rank), ``permutation``,
    ``inverse``, ``required``, ``packed_tokens`` and ``ms`` [W, D], ``refused``, ``bound`` (waves),
    ``bound_tokens``, ``bound_ms``, ``total_ms``, ``keep_waves``, ``keep_ms``, ``by`` and
    ``fingerprint``.
    """

    pool: Requests = field(repr=False)
    found: core.Composed = field(repr=False)
    refusals: tuple[WaveRefused, ...] = field(repr=False)
    """The refusal of each group that fits in no wave."""
    groups: NDArray[np.int64] = field(repr=False)
    """The groups of the pool that were composed, ascending."""
    given: dict[str, Any] = field(repr=False)
    """Arguments of a new composition of some of the groups."""
    version: int = 1
    """One more with each composition of what is left."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "found":
            raise AttributeError(name)
        return getattr(self.found, name)

    @property
    def gap(self) -> float:
        """Modelled time beyond the bound, as a share of it."""
        return self.found.total_ms / self.found.bound_ms - 1 if self.found.bound_ms else 0.0

    def share(self, dp_rank: int) -> list[NDArray[np.int64]]:
        """Return the requests of a data-parallel rank in each wave."""
        ranks = self.found.required.shape[1]
        if integer("dp_rank", dp_rank) >= ranks:
            raise InputError(f"dp_rank is {dp_rank} of {ranks}: it must be below")
        return [wave[dp_rank] for wave in self.found.requests]

    def __str__(self) -> str:
        found = self.found
        return f"{found.waves} waves (bound {found.bound}; in order {found.keep_waves})"


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
        given = {
            "on_refusal": on_refusal,
            "order": order,
            "fixed_ms": real("fixed_ms", fixed_ms, 0, 1e9),
            "multiple": integer("multiple", multiple, 1, 1 << 20),
            "window": None if window is None else integer("window", window, 0, 1 << 30),
        }
        if window is not None and order != "free":
            raise InputError('window is given: it needs order="free"')
        if window is not None and multiple > 1:
            raise InputError("window: waves of a window come one by one, give no multiple")
        return _compose(planner, pool, np.arange(len(pool.group_sizes)), given, 1)


def _compose(
    planner: Planning,
    pool: Requests,
    groups: NDArray[np.int64],
    given: dict[str, Any],
    version: int,
) -> Composition:
    doubtful = planner.doubtful(pool)
    available = planner.available - planner.kept(planner.available, doubtful)
    available = _agreed(planner, pool, groups, available, given)
    kept, sizes = _kept(planner, pool, groups, available, given["order"])
    engine = planner.make_engine(pool)
    found = engine.compose(
        groups,
        np.concatenate([np.empty(0, np.int64), *kept]),
        np.array(sizes, np.int64),
        available,
        planner.known(pool),
        given["order"] == "free",
        given["fixed_ms"],
        given["multiple"],
        given["window"],
    )
    ends = np.cumsum(pool.group_sizes)
    lost = np.unique(np.searchsorted(ends, found.refused, "right"))
    refusals = [_refusal(planner, pool, engine, int(group), available) for group in lost]
    if refusals and given["on_refusal"] == "raise":
        raise refusals[0]
    return Composition(pool, found, tuple(refusals), groups, given, version)


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
    planner: Planning, pool: Requests, groups: NDArray[np.int64], available: int, order: Order
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Return the groups of each rank of each wave in the pool's order, and how many each has."""
    desk = planner.like(topology=planner.topology, budget=planner.budget, agreement=AllShares())
    waves = Waves(desk, pool, "skip", 0, "keep" if order == "keep" else None)
    waves.fix(groups, available)
    kept: list[NDArray[np.int64]] = []
    for wave in waves:
        shares = wave.shares or (wave,)
        own = {share.dp_rank: share.indices for share in shares}
        nothing = np.empty(0, np.int64)
        kept += [own.get(rank, nothing) for rank in range(planner.topology.dp)]
    return kept, [len(part) for part in kept]


def _refusal(
    planner: Planning, pool: Requests, engine: core.Engine, group: int, available: int
) -> WaveRefused:
    first = int(pool.group_sizes[:group].sum())
    indices = np.arange(first, first + int(pool.group_sizes[group]))
    found = engine.plan(indices, available, planner.known(pool))
    why = ""
    if found.kind != "refused":
        why = "fits in several forwards alone, which a composition does not make: untie the group"
    return refused(planner, pool, found, available, indices=np.array([group]), why=why)


class ComposedWaves(Waves):
    """The waves of a composition, each planned when it is iterated to.

    After an observation bins are priced anew. If one of a wave no longer fits, or the bound of what
    is left falls, it is composed again (`composition` is then the new one). Waves handed out are
    never touched. With other ranks each wave is one gather.
    """

    def __init__(self, planner: Planning, composition: Composition) -> None:
        self.composition = composition
        self.at = 0
        """The next wave of `composition`."""
        self._bounded: Any = None
        """The bytes available and profiles by which what is left was bounded last."""
        super().__init__(planner, composition.pool, composition.given["on_refusal"], 0, "keep")
        self.refused = list(composition.refusals)

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
        self.refused += self.composition.refusals
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
