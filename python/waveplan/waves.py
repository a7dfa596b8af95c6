"""The waves of a pool, one after another, alone or in step with other ranks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np

from waveplan import _core as core
from waveplan.agreement.agreed import Settled, settle
from waveplan.agreement.protocol import everywhere
from waveplan.checks import choice, integer
from waveplan.errors import InputError
from waveplan.plan import Plan, plan_of
from waveplan.planning import Planning
from waveplan.refusal import WaveRefused, refused
from waveplan.sequences.requests import Requests
from waveplan.wave import Stopped, Wave

__all__ = ["Waves"]

Refusals = Literal["raise", "skip", "oversized"]


class Waves:
    """The waves of one pool, each planned when it is iterated to.

    With other ranks every rank iterates over its own `Waves` in step; all get the same widths,
    or an error on every rank: its own on the rank that failed, `RankError` on the others.

    Threads may share one `Waves`: each wave goes to one of them, and the waves are those that one
    thread would get.
    """

    pool: Requests
    start: int
    """First group not yet planned."""
    refused: list[WaveRefused]
    """With on_refusal="skip": the refusals of the groups skipped, in order."""
    width_hint: int | None
    """Width where the next search starts: the largest so far, at first `Planner.width_hint`."""
    available: int
    """`Planner.available` when the search at hand began."""

    def __init__(self, planner: Planning, requests: Any, on_refusal: Refusals, start: int) -> None:
        with planner.ranks.broadcasting():
            choice("on_refusal", on_refusal, get_args(Refusals))
            pool = Requests.from_any(requests)
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
            self.width_hint = planner.width_hint
            self.available = planner.available
            self._turn = threading.RLock()
            self._busy = False
            self.on_refusal: str = on_refusal
            self.engine = planner.make_engine(pool)

    def __iter__(self) -> Iterator[Wave]:
        return self

    def __next__(self) -> Wave:
        with self._turn:
            while self.start < self.groups:
                try:
                    return self.plan_next()
                except WaveRefused as refusal:
                    if self.on_refusal != "skip":
                        raise
                    self.refused.append(refusal)
                    self.start += refusal.width
            raise StopIteration

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
        planner, pool, start = self.planner, self.pool, integer("start", self.start)
        self.available = planner.available
        if planner.ranks.size == 1:
            settled = self._alone()
        else:
            with planner.ranks.broadcasting():
                settled = settle(self)
        found, available = settled.found, settled.available
        if settled.refused is not None:
            refusal = refused(planner, pool, found, available, elsewhere=settled.refused)
            if self.on_refusal != "oversized":
                raise everywhere(refusal)
            plan = refusal.oversized if found.kind == "refused" else refusal.plan
        else:
            plan = plan_of(found, planner.bound)
        wave = Wave(
            indices=found.groups,
            width=found.width,
            start=start,
            plan=plan,
            required=found.required if settled.refused is None else plan.required,
            available=available,
            probes=found.probes,
            rejected=found.rejected,
            cold=settled.cold,
            stopped=self._stopped(found, available),
            _sign=lambda: planner.signature_of(pool, np.sort(plan.requests)),
            most_required=settled.required,
        )
        self.start += found.width
        self.width_hint = max(found.width, self.width_hint or 0)
        if planner.reference:
            planner.width_hint = max(self.width_hint, planner.width_hint or 0)
        return wave

    def _alone(self) -> Settled:
        found = self.session().alone()
        why = "" if found.kind == "refused" else None
        return Settled(found, self.available, why, found.required, found.cold)

    def session(self) -> core.Session:
        """Return a search for the wave that starts at `start`."""
        profiles = self.planner.known(self.pool)
        return self.engine.session(self.start, self.available, self.width_hint, profiles)

    def _stopped(self, found: core.SearchResult, available: int) -> Stopped:
        planner = self.planner
        kind, width = found.stop, found.stop_width
        plan = None
        if (forward := found.stopped) is not None:
            plan = Plan((forward,), forward.required, planner.bound)
        reason = ""
        if kind == "trust":
            reason = "no profile of such a plan yet, and the wave runs as the first of its kind"
            if width != found.width:
                reason = f"width {width} is beyond eight times what the profile has seen"
            elif planner.trust == "rules":
                states = (*planner.bound.uncharged, *planner.bound.unmeasured)
                reason += "; not measured here: " + ", ".join(state.name for state in states)
        return Stopped(kind, width, available, plan, reason)
