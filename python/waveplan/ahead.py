"""Planning ahead: the next wave's search in a thread, while the caller works."""

from __future__ import annotations

import atexit
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core

if TYPE_CHECKING:
    from waveplan.planner import Planner
    from waveplan.sequences.requests import Requests
    from waveplan.waves import Waves

__all__ = ["Ahead", "Made"]


@dataclass(frozen=True)
class Made:
    """What was planned ahead: a whole search, or with other ranks its first table."""

    session: core.Session
    found: core.SearchResult | None
    growth: NDArray[np.int64] | None


class Ahead:
    """One search made ahead in a thread, used only if nothing it depends on has changed."""

    def __init__(
        self, planner: Planner, pool: Requests, start: int, width_hint: int | None
    ) -> None:
        self.pool = pool
        self._start = start
        self._state = self._now(planner, planner.available, width_hint)
        self._unwanted = False
        self._made: Made | None = None
        self._thread = threading.Thread(target=self._work, args=(planner,), daemon=True)
        _STARTED.add(self)
        self._thread.start()

    def _work(self, planner: Planner) -> None:
        core.stop_if(lambda: self._unwanted)
        available, width_hint, profiles = self._state
        try:
            session = planner.make_engine(self.pool).session(
                self._start, available, width_hint, profiles
            )
            if planner.ranks.size == 1:
                self._made = Made(session, session.alone(), None)
            else:
                self._made = Made(session, None, session.growth())
        except BaseException:  # cancelled; or an error, which the search that is made again raises
            return
        finally:
            core.stop_if(None)

    def _now(
        self, planner: Planner, available: int, width_hint: int | None
    ) -> tuple[int, int | None, list[tuple[Any, Any]]]:
        """Everything besides the pool that a search depends on."""
        profiles = planner.profiles.columns(planner.context, self.pool.mixes)
        return available, width_hint, profiles

    def stop(self) -> None:
        """Cancel the search: its thread ends soon."""
        self._unwanted = True

    def take(self, waves: Waves) -> Made | None:
        """Return the search, if it is the one that would be made now; cancel it otherwise.

        In a forked child the thread is gone, and there is nothing to wait for.
        """
        try:
            same = waves.pool is self.pool and waves.start == self._start
            if same and self._now(waves.planner, waves.available, waves.width_hint) == self._state:
                self._thread.join()
                return self._made
            return None
        finally:
            self.stop()  # also after Ctrl-C while waiting


_STARTED: weakref.WeakSet[Ahead] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Cancel all searches, and wait for them, before the interpreter ends."""
    running = list(_STARTED)
    for ahead in running:
        ahead.stop()
    for ahead in running:
        if ahead._thread.is_alive():
            ahead._thread.join()
