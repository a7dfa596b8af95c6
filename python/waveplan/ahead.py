"""Planning ahead: the next wave's search in a thread, while the caller works."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core

if TYPE_CHECKING:
    from waveplan.planner import Planner
    from waveplan.requests import Requests
    from waveplan.waves import Waves

__all__ = ["Ahead", "Made"]


@dataclass(frozen=True)
class Made:
    """What was planned ahead: a whole search, or with other ranks its first table."""

    session: core.Session
    found: core.Found | None
    growth: NDArray[np.int64] | None


class Ahead:
    """One search made ahead in a thread, used only if nothing it depends on has changed."""

    def __init__(self, planner: Planner, pool: Requests, start: int, widest: int | None) -> None:
        self.pool = pool
        self._start = start
        self._state = self._now(planner, planner.limit, widest)
        self._unwanted = False
        self._made: Future[Made] = Future()
        try:
            # Not of an executor: leaving the program would wait for it before it can be told.
            threading.Thread(
                target=self._work, args=(planner,), name="waveplan-prefetch", daemon=False
            ).start()
        except RuntimeError as error:  # the program is leaving, or has no thread to give
            self._made.set_exception(error)

    def _work(self, planner: Planner) -> None:
        main = threading.main_thread()
        core.stop_if(lambda: self._unwanted or not main.is_alive())
        try:
            limit, widest, profiles = self._state
            session = planner.make_engine(self.pool).session(self._start, limit, widest, profiles)
            if planner.ranks.size == 1:
                self._made.set_result(Made(session, session.alone(), None))
            else:
                self._made.set_result(Made(session, None, session.growth()))
        except BaseException as error:
            self._made.set_exception(error)
        finally:
            core.stop_if(None)

    def _now(
        self, planner: Planner, limit: int, widest: int | None
    ) -> tuple[int, int | None, list[tuple[Any, Any]]]:
        """Everything besides the pool that a search depends on."""
        profiles = planner.profiles.columns(planner.context, self.pool.mixes)
        return limit, widest, profiles

    def stop(self) -> None:
        """Nobody wants it any more: its thread ends soon."""
        self._unwanted = True

    def take(self, waves: Waves) -> Made | None:
        """The search, if it is the one that would be made now. Its error, if it failed, comes
        again when the search is made again."""
        same = waves.pool is self.pool and waves.start == self._start
        if not same or self._now(waves.planner, waves.limit, waves.widest) != self._state:
            self.stop()
            return None
        try:
            return None if self._made.exception() is not None else self._made.result()
        except BaseException:  # Ctrl-C while waiting
            self.stop()
            raise
