"""Planning ahead: the next wave's search in a thread, while the caller works."""

from __future__ import annotations

import threading
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
        self._made: Made | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        # Not of an executor: leaving the program would wait for it before it can be told.
        thread = threading.Thread(
            target=self._work, args=(planner,), name="waveplan-prefetch", daemon=False
        )
        try:
            thread.start()
        except RuntimeError as error:  # the program is leaving, or has no thread to give
            self._fail(error)
            self._ended.set()
        except BaseException:  # Ctrl-C when it runs already
            self.stop()
            raise

    def _work(self, planner: Planner) -> None:
        main = threading.main_thread()
        try:
            core.stop_if(lambda: self._unwanted or not main.is_alive())
            limit, widest, profiles = self._state
            session = planner.make_engine(self.pool).session(self._start, limit, widest, profiles)
            if planner.ranks.size == 1:
                self._made = Made(session, session.alone(), None)
            else:
                self._made = Made(session, None, session.growth())
        except BaseException as error:
            self._fail(error)
        finally:
            self._ended.set()
            core.stop_if(None)

    def _fail(self, error: BaseException) -> None:
        # A traceback would keep the half-made search, in a cycle of references.
        self._error = error.with_traceback(None)

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
        made = None
        try:
            same = waves.pool is self.pool and waves.start == self._start
            if same and self._now(waves.planner, waves.limit, waves.widest) == self._state:
                self._ended.wait()
                made = self._made
        finally:
            self.stop()  # also after Ctrl-C while waiting
        return made
