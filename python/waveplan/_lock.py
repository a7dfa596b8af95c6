"""Locks that a fork cannot leave taken."""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["Lock"]


class Lock:
    """A re-entrant lock; a forked child finds it free, whichever thread of its parent held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _ALL.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _free() -> None:
    for lock in list(_ALL):
        lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
