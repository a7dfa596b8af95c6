"""Planning ahead: the next wave's search in a thread, while the caller works."""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock, start_new_thread
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
    found: core.SearchResult | None
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
        self._ended = allocate_lock()
        self._ended.acquire()
        try:
            # Not a `threading.Thread`: Ctrl-C while that starts can leave it waiting forever, and
            # leaving the program waits for it before it can be told.
            start_new_thread(self._work, (planner,))
        except RuntimeError as error:  # the program is leaving, or has no thread to give
            self._fail(error)
            self._ended.release()
        except BaseException:  # Ctrl-C when it runs already
            self.stop()
            raise

    def _work(self, planner: Planner) -> None:
        _RUNNING.add(self)
        try:
            if _leaving:  # nobody waits for it any more
                raise KeyboardInterrupt
            core.stop_if(lambda: self._unwanted or _leaving)
            limit, widest, profiles = self._state
            session = planner.make_engine(self.pool).session(self._start, limit, widest, profiles)
            if planner.ranks.size == 1:
                self._made = Made(session, session.alone(), None)
            else:
                self._made = Made(session, None, session.growth())
        except BaseException as error:
            self._fail(error)
        finally:
            core.stop_if(None)
            _RUNNING.discard(self)
            self._ended.release()

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

    def wait(self) -> None:
        """Until its thread is done with it. Ctrl-C comes through."""
        self._ended.acquire()
        self._ended.release()

    def take(self, waves: Waves) -> Made | None:
        """The search, if it is the one that would be made now. Its error, if it failed, comes
        again when the search is made again."""
        made = None
        try:
            same = waves.pool is self.pool and waves.start == self._start
            if same and self._now(waves.planner, waves.limit, waves.widest) == self._state:
                self.wait()
                made = self._made
        finally:
            self.stop()  # also after Ctrl-C while waiting
        return made


_RUNNING: set[Ahead] = set()
_leaving = False


def _leave() -> None:
    """The program ends: so do all searches, before the interpreter does."""
    global _leaving
    _leaving = True
    for ahead in list(_RUNNING):
        ahead.wait()


atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)  # their threads stay in the parent
