"""The waves of a pool, one after another, alone or in step with other ranks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from waveplan import _core as core
from waveplan.errors import InputError, WaveRefused
from waveplan.plan import Forward, Plan, plan_of
from waveplan.refusal import refused
from waveplan.requests import Requests
from waveplan.together import Ranks, Settled
from waveplan.wave import Probe, Stopped, Wave

if TYPE_CHECKING:
    from waveplan.planner import Planner

__all__ = ["Waves"]

Refusals = Literal["raise", "skip", "oversized"]

Question: TypeAlias = "tuple[int, int, int | None, list[tuple[Any, Any]]]"
"""Start, free bytes, widest width and profiles: what a wave of a pool depends on."""

_STOPS: dict[str, Literal["memory", "trust", "end"]] = {
    "memory": "memory",
    "trust": "trust",
    "end": "end",
}


class Waves:
    """The waves of one pool, planned one after another as they are asked for.

    With other ranks every rank iterates over its own `Waves` in step; all get the same widths,
    or an error on every rank: its own on the rank that failed, `RankError` on the others.
    """

    pool: Requests
    start: int
    """First item not yet planned."""
    refused: list[WaveRefused]
    """With on_refusal="skip": the refusal of every item skipped, in order."""

    def __init__(self, planner: Planner, requests: Any, on_refusal: Refusals, start: int) -> None:
        self.planner = planner
        self.refused = []
        self.start = 0
        self._alone = planner.agreement.size == 1
        self._failure: Exception | None = None
        self.ahead: Ahead | None = None
        try:
            self._prepare(requests, on_refusal, start)
        except Exception as error:
            if self._alone:
                raise
            self._failure = error  # told to the other ranks by the first reduction

    def _prepare(self, requests: Any, on_refusal: Refusals, start: int) -> None:
        if on_refusal not in ("raise", "skip", "oversized"):
            raise InputError(
                f'on_refusal is {on_refusal!r}: it must be "raise", "skip" or "oversized"'
            )
        self._mode = on_refusal
        pool = requests if isinstance(requests, Requests) else Requests(requests)
        if not len(pool):
            raise InputError("the pool is empty: there is nothing to plan")
        self.items = len(pool.item_sizes)
        if not 0 <= start < self.items:
            raise InputError(f"start is {start} of {self.items} items: nothing is left to plan")
        self.pool, self.start = pool, start
        self._engine = self.planner._engine(pool)

    def __iter__(self) -> Iterator[Wave]:
        return self

    def __next__(self) -> Wave:
        while self._failure is not None or self.start < self.items:
            try:
                return self.plan_next()
            except WaveRefused as refusal:
                if self._mode != "skip":
                    raise
                self.refused.append(refusal)
                self.start += refusal.width
        raise StopIteration

    def plan_next(self) -> Wave:
        """The next wave.

        Raises:
            WaveRefused: not even the smallest wave fits; `start` stays where it is.
            RankError: another rank failed, or the ranks do not agree.
        """
        planner = self.planner
        limit = planner.limit
        if self._alone:
            session, found = self._ahead_or_now(limit)
            settled = Settled(found, found.kind == "refused", found.required)
        else:
            session, settled, limit = self._together()
            found = settled.found
        if settled.refused:
            refusal = refused(planner, self.pool, found, _probes(session), limit)
            if self._mode != "oversized":
                raise refusal
            plan = refusal.oversized
        else:
            plan = plan_of(found, planner.bound, self.pool)
        wave = Wave(
            indices=found.items,
            width=found.width,
            start=self.start,
            plan=plan,
            required=plan.required if settled.refused else found.required,
            limit=limit,
            probes=_probes(session),
            rejected=session.rejected,
            cold=found.cold,
            stopped=self._stopped(found, limit),
            signature=planner.signature_of(self.pool, np.sort(plan.requests)),
            most_required=settled.required,
        )
        self.start += found.width
        planner.widest = max(found.width, planner.widest or 0)
        return wave

    def prefetch(self) -> None:
        """Starts to plan the next wave in a thread, with the interpreter released.

        The wave that is asked for later is the same with or without it: what was planned ahead
        is used only if start, free bytes, widest width and profiles are then what they are now.
        With other ranks it does nothing.
        """
        if self._alone and self.start < self.items:
            self.ahead = Ahead(self._question(self.planner.limit), self._engine)

    def _question(self, limit: int) -> Question:
        planner = self.planner
        profiles = planner.profiles.columns(planner.context, self.pool.mixes)
        return self.start, limit, planner.widest, profiles

    def _session(self, limit: int) -> core.Session:
        return self._engine.session(*self._question(limit))

    def _ahead_or_now(self, limit: int) -> tuple[core.Session, core.Found]:
        question = self._question(limit)
        ahead, self.ahead = self.ahead, None
        answer = None if ahead is None else ahead.answer(question)
        if answer is not None:
            return answer
        session = self._engine.session(*question)
        return session, session.alone()

    def _together(self) -> tuple[core.Session, Settled, int]:
        planner = self.planner
        dp = planner.topology.dp
        ranks = Ranks(planner.agreement, dp, f"planning the wave at item {self.start}")

        def facts() -> tuple[int, ...]:
            if self._failure is not None:
                raise self._failure
            modes = ("raise", "skip", "oversized")
            mode = 3 * planner.compatible + modes.index(self._mode)
            tokens = int(self.pool.lengths.sum())
            return self.start, self.items, len(self.pool), tokens, planner.widest or 0, mode

        names = ("start", "items", "requests", "tokens", "widest", "mode")
        limit = ranks.same(names, planner.limit, facts)
        session, settled = ranks.settle(
            core.growth_entries(self.items, self.start, dp, planner.widest),
            lambda: self._session(limit),
            self._fingerprint,
        )
        return session, settled, limit

    def _fingerprint(self, found: core.Found) -> int:
        """62 bits of the plan's fingerprint."""
        plan = plan_of(found, self.planner.bound, self.pool)
        return int(plan.fingerprint[:15], 16)

    def _stopped(self, found: core.Found, limit: int) -> Stopped:
        planner = self.planner
        kind, width = found.stop
        plan = None
        if found.stopped is not None:
            forward = Forward(found.stopped, planner.bound, self.pool.adapters)
            plan = Plan((forward,), forward.required)
        reason = ""
        if kind == "trust":
            reason = "no profile of such a plan yet, and the wave runs as the first of its kind"
            if width != found.width:
                reason = f"{width} items are beyond eight times what the profile has seen"
            elif planner.trust == "rules":
                states = (*planner.bound.off, *planner.bound.unmeasured)
                reason += "; not measured here: " + ", ".join(state.name for state in states)
        return Stopped(_STOPS[kind], width, limit, plan, reason)


class Ahead:
    """A wave being planned before it is asked for."""

    def __init__(self, question: Question, engine: core.Engine) -> None:
        self.question = question
        self._found: tuple[core.Session, core.Found] | None = None
        self._thread = threading.Thread(target=self._plan, args=(engine,), daemon=True)
        self._thread.start()

    def _plan(self, engine: core.Engine) -> None:
        with contextlib.suppress(Exception):  # asked again, it raises where it can be caught
            session = engine.session(*self.question)
            self._found = session, session.alone()

    def answer(self, question: Question) -> tuple[core.Session, core.Found] | None:
        """What was planned, if it was this."""
        if question != self.question:
            return None
        self._thread.join()
        return self._found


def _probes(session: core.Session) -> tuple[Probe, ...]:
    return tuple(Probe(*row) for row in session.probes)
