"""The waves of a pool, one after another, alone or in step with other ranks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.agreement.agreed import Settled, Share, settle
from waveplan.agreement.protocol import digest, everywhere
from waveplan.budget import format_bytes
from waveplan.checks import choice, integer
from waveplan.errors import InputError
from waveplan.plan import Plan, plan_of
from waveplan.planning import Planning
from waveplan.pricing import Status
from waveplan.refusal import WaveRefused, refused
from waveplan.sequences.requests import Requests
from waveplan.wave import Stopped, Wave

__all__ = ["Waves"]

Refusals = Literal["raise", "skip", "oversized"]
Order = Literal["keep", "blocks", "free"]


class Waves:
    """The waves of one pool, each planned when it is iterated to.

    With other ranks every rank iterates over its own `Waves` in step; all get the same widths,
    or an error on every rank: its own on the rank that failed, `RankError` on the others.

    Threads may share one `Waves`: each wave goes to one of them, and the waves are those that one
    thread would get.
    """

    pool: Requests
    order: NDArray[np.int64]
    """The groups of the pool, in the order in which waves take them."""
    moved: int
    """With other processes a hash of `order`; 0 while it is the pool's."""
    start: int
    """Position in `order` of the first group not yet planned or refused."""
    refused: list[WaveRefused]
    """With on_refusal="skip": the refusal of each group skipped, in order, whatever its rank."""
    width_hint: int | None
    """Width where the next search starts: the largest so far, at first `Planner.width_hint`."""
    available: int
    """Bytes available when the search at hand began: `Planner.available` less the margin."""
    blocks: bool
    """Ranks may take consecutive blocks of a wave."""
    doubtful: tuple[Status, ...]
    """Rules that matter for these requests and are uncharged or unmeasured."""

    def __init__(
        self,
        planner: Planning,
        requests: Any,
        on_refusal: Refusals,
        start: int,
        order: Order | None = None,
    ) -> None:
        with planner.ranks.broadcasting():
            choice("on_refusal", on_refusal, get_args(Refusals))
            if order is not None:
                choice("order", order, get_args(Order))
            if planner.reference and order == "blocks":
                raise InputError('order is "blocks": reference mode keeps the pool\'s order')
            self.blocks = not planner.reference and order != "keep"
            pool = Requests.from_any(requests, hashed=planner.ranks.size > 1)
            if not len(pool):
                raise InputError("the pool is empty: there is nothing to plan")
            self.groups = len(pool.group_sizes)
            start = integer("start", start)
            if start >= self.groups:
                raise InputError(
                    f"start is {start} of {self.groups} groups: nothing is left to plan"
                )
            self.planner, self.pool, self.start = planner, pool, start
            self.refused = []
            self._fixed: int | None = None
            self._bound: tuple[Any, core.OrderBound] | None = None
            self._refusing: list[WaveRefused] = []
            self.width_hint = planner.width_hint
            self.doubtful = planner.doubtful(pool)
            self.available = planner.available - planner.kept(planner.available, self.doubtful)
            self._turn = threading.RLock()
            self._busy = False
            self.on_refusal: str = on_refusal
            self._take(np.arange(self.groups))
            self.moved = 0

    def __repr__(self) -> str:
        done = f"{self.start} of {len(self.order)} groups planned"
        return f"{type(self).__name__}({done}, {len(self.refused)} refused)"

    def __iter__(self) -> Iterator[Wave]:
        return self

    def __next__(self) -> Wave:
        with self._turn:
            while self.start < self.groups:
                try:
                    return self.plan_next()
                except WaveRefused:
                    if self.on_refusal != "skip":
                        raise
                    self._skip()
            raise StopIteration

    def bound(self) -> core.OrderBound:
        """Return what no order of the groups beats, those refused so far left out."""
        known = self.planner.known(self.pool)
        now = len(self.refused), self.available, sorted(map(repr, known))
        if self._bound is None or self._bound[0] != now:
            refused = [refusal.indices for refusal in self.refused]
            groups = np.setdiff1d(np.arange(self.groups), np.concatenate([[], *refused]))
            engine = self._engines[0]
            found = engine.order_bound(groups.astype(np.int64), self.available, known)
            self._bound = now, found
        return self._bound[1]

    def fix(self, groups: NDArray[np.int64], available: int) -> None:
        """Take these groups alone, within so many bytes whatever the planner has."""
        others = np.setdiff1d(np.arange(self.groups), groups)
        self.start, self._fixed = len(others), available
        self._take(np.concatenate([others, groups]))

    def _take(self, order: NDArray[np.int64]) -> None:
        """Take the groups in this order from now on."""
        self.order = order
        self._engines = [
            self.planner.make_engine(self.pool, dp_rank, order, self.blocks)
            for dp_rank in self.planner.shares
        ]

    def _skip(self) -> None:
        """Put the groups just refused behind those that are done."""
        gone = np.concatenate([refusal.indices for refusal in self._refusing])
        done, rest = np.split(self.order, [self.start])
        if not np.array_equal(rest[: len(gone)], gone):
            self._take(np.concatenate([done, gone, rest[~np.isin(rest, gone)]]))
            if self.planner.ranks.size > 1:
                self.moved = digest(self.order.tolist())
        self.start += len(gone)
        self.refused += self._refusing

    def plan_next(self) -> Wave:
        """Plan the next wave.

        Raises:
            WaveRefused: not even the smallest wave fits; `start` stays where it is.
            RankError: another rank failed, or the ranks do not agree.
        """
        with self._turn:
            if self._busy:  # by a signal handler in the middle of a search
                raise InputError("these waves are being planned already, further up this call")
            self._busy = True
            before = self.start, self.width_hint
            try:
                return self._next()
            except BaseException:
                self.start, self.width_hint = before  # Ctrl-C just before the wave was handed out
                raise
            finally:
                self._busy = False

    def _next(self) -> Wave:
        planner = self.planner
        integer("start", self.start)
        self.available = planner.available - planner.kept(planner.available, self.doubtful)
        if self._fixed is not None:
            self.available = self._fixed
        with planner.ranks.broadcasting():
            settled = settle(self)
            self._refusing = self._refusals(settled)
            if self._refusing and self.on_refusal != "oversized":
                mine = [one for one in self._refusing if one.dp_rank in planner.shares]
                raise everywhere((mine or self._refusing)[0])
            shares = tuple(self._wave(settled, share) for share in settled.shares)
        wave = max(shares, key=lambda share: share.required)
        if len(shares) > 1:
            stops = [share.stopped for share in shares]
            stopped = max(stops, key=lambda stop: stop.required or 0)
            wave = replace(wave, stopped=stopped, shares=shares)
        self.start += settled.width
        self.width_hint = max(settled.width, self.width_hint or 0)
        if planner.reference:
            planner.width_hint = max(self.width_hint, planner.width_hint or 0)
        return wave

    def _wave(self, settled: Settled, share: Share) -> Wave:
        """Return the wave as a data-parallel rank planned here sees it."""
        planner, pool, found = self.planner, self.pool, share.found
        plan, required = plan_of(found, planner.bound, pool), found.required
        if self._refusing:  # the oversized wave
            if share.refused:
                plan = share.cheapest or self._refusal(share.dp_rank, settled).oversized
            required = plan.required
        (own,) = (one for one in settled.outcomes if one.dp_rank == share.dp_rank)
        return Wave(
            indices=found.groups,
            width=found.width,
            start=self.start,
            plan=plan,
            required=required,
            available=own.available,
            probes=found.probes,
            rejected=found.rejected,
            cold=any(one.cold for one in settled.outcomes),
            stopped=self._stopped(share.dp_rank, found, own.available),
            dp_rank=share.dp_rank,
            _sign=lambda: planner.signature_of(pool, np.sort(plan.requests)),
            most_required=max(one.required for one in settled.outcomes),
        )

    def _refusals(self, settled: Settled) -> list[WaveRefused]:
        """Return the refusals of a wave: of each group whose share does not fit, and in reference
        mode of every group of the wave."""
        refused = [one.dp_rank for one in settled.outcomes if one.refused]
        if refused and self.planner.reference:
            refused = list(range(settled.width))
        return [self._refusal(dp_rank, settled) for dp_rank in refused]

    def _refusal(self, dp_rank: int, settled: Settled) -> WaveRefused:
        """Return the refusal of a rank's share of the smallest wave, which is one group."""
        planner, pool, place = self.planner, self.pool, self.start + dp_rank
        own = next((one for one in settled.outcomes if one.dp_rank == dp_rank), None)
        share = next((one for one in settled.shares if one.dp_rank == dp_rank), None)
        why = ""
        if own is None or not own.refused:
            own = next(one for one in settled.outcomes if one.refused)
            why = (
                f"dropped with its wave, as the reference planner does: DP rank {own.dp_rank} "
                f"requires {format_bytes(own.required)} of {format_bytes(own.available)}"
            )
        if share is not None:
            found = share.found
        else:
            first = int(pool.group_sizes[: self.order[place]].sum())
            requests = np.arange(first, first + int(pool.group_sizes[self.order[place]]))
            engine, known = planner.make_engine(pool), planner.known(pool)
            found = engine.plan(requests, own.available, known)
            if not why and found.kind != "refused":  # this rank's profiles know better
                found = engine.plan(requests, 0, known)
        return refused(
            planner,
            pool,
            found,
            own.available,
            indices=self.order[place : place + 1],
            width=settled.width,
            dp_rank=dp_rank if planner.topology.dp > 1 else None,
            required=None if why else own.required,
            why=why,
            oversized=None if share is None else share.cheapest,
        )

    @cached_property
    def content(self) -> dict[str, int]:
        """`Requests.content` of the pool."""
        return self.pool.content

    def sessions(self) -> list[core.Session]:
        """Return a search for the wave that starts at `start`, for each share planned here."""
        known = self.planner.known(self.pool)
        given = self.start, self.available, self.width_hint, known
        return [engine.session(*given) for engine in self._engines]

    def _stopped(self, dp_rank: int, found: core.SearchResult, available: int) -> Stopped:
        planner = self.planner
        kind, width = found.stop, found.stop_width
        plan = None
        if (forward := found.stopped) is not None:
            plan = Plan((forward,), forward.required, planner.bound, pool=self.pool)
        reason = ""
        if kind == "trust":
            reason = "no profile of such a plan yet, and the wave runs as the first of its kind"
            if width != found.width:
                reason = f"width {width} is beyond eight times what the profile has seen"
            elif planner.trust == "rules":
                reason += "; not measured here: " + ", ".join(one.name for one in self.doubtful)
        if kind == "time":
            reason = f"width {width} fits, but does less work in its modelled time"
        several = planner.topology.dp > 1
        tried = [one.required for one in found.probes if one.width == width and not one.fits]
        refused = min(tried, default=0) if kind == "memory" else 0
        return Stopped(kind, width, available, plan, reason, dp_rank if several else None, refused)
