"""Locks that neither a fork nor Ctrl-C can leave taken."""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["Lock"]


class Lock:
    """A re-entrant lock, held within `with lock.held`; a forked child finds it free, whichever
    thread of its parent held it.

    `held` is the interpreter's own lock: a method `__enter__` in Python would leave it taken
    when Ctrl-C arrives between taking it and returning.
    """

    def __init__(self) -> None:
        self.held = threading.RLock()
        _ALL.add(self)


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _free() -> None:
    for lock in list(_ALL):
        lock.held = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
