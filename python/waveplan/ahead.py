"""Planning ahead: the next wave's search in a thread, while the caller works."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core

__all__ = ["Ahead", "Made"]


class Made(NamedTuple):
    """A whole search, or with other ranks its first table."""

    session: core.Session
    found: core.SearchResult | None
    growth: NDArray[np.int64] | None


class Ahead:
    """One search that runs in a thread.

    Args:
        work: runs it.
        inputs: everything that it depends on; only a search with equal inputs may use it.
    """

    def __init__(self, work: Callable[[], Made], inputs: Any) -> None:
        self._inputs = inputs
        self._unwanted = False
        self._made: Made | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        _STARTED.add(self)
        self._thread.start()

    def _run(self, work: Callable[[], Made]) -> None:
        core.stop_if(lambda: self._unwanted)
        try:
            self._made = work()
        except BaseException:  # cancelled; or an error, which the search that is made again raises
            return
        finally:
            core.stop_if(None)

    def stop(self) -> None:
        """Cancel the search: its thread ends soon."""
        self._unwanted = True

    def take(self, inputs: Any) -> Made | None:
        """Return the search, if its inputs are these; cancel it otherwise.

        In a forked child the thread is gone, and there is nothing to wait for.
        """
        try:
            if inputs != self._inputs:
                return None
            self._thread.join()
            return self._made
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
