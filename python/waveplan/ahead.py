"""Planning ahead: the next wave's search in a thread, while the caller works."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
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

    def __init__(
        self,
        planner: Planner,
        pool: Requests,
        start: int,
        widest: int | None,
        thread: ThreadPoolExecutor,
    ) -> None:
        self.pool = pool
        self._start = start
        self._state = self._now(planner, planner.limit, widest)
        limit, widest, profiles = self._state
        alone = planner.ranks.size == 1

        def work() -> Made:
            session = planner.make_engine(pool).session(start, limit, widest, profiles)
            if alone:
                return Made(session, session.alone(), None)
            return Made(session, None, session.growth())

        self._made: Future[Made] = thread.submit(work)

    def _now(
        self, planner: Planner, limit: int, widest: int | None
    ) -> tuple[int, int | None, list[tuple[Any, Any]]]:
        """Everything besides the pool that a search depends on."""
        profiles = planner.profiles.columns(planner.context, self.pool.mixes)
        return limit, widest, profiles

    def take(self, waves: Waves) -> Made | None:
        """The search, if it is the one that would be made now. Its error, if it failed, comes
        again when the search is made again."""
        same = waves.pool is self.pool and waves.start == self._start
        if not same or self._now(waves.planner, waves.limit, waves.widest) != self._state:
            return None
        return None if self._made.exception() is not None else self._made.result()
