"""Locks that neither a fork nor Ctrl-C can leave taken."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from waveplan import _core as core

__all__ = ["Lock"]

T = TypeVar("T")


class Lock:
    """A re-entrant lock; a forked child finds it free, whichever thread of its parent held it."""

    def __init__(self) -> None:
        self.held = threading.RLock()
        _ALL.add(self)

    def run(self, work: Callable[[], T]) -> T:
        """What ``work()`` gives, called with the lock held."""
        return core.locked(self.held, work)


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _free() -> None:
    for lock in list(_ALL):
        lock.held = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
