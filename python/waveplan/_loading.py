"""Errors that begin with a name, for saved calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from waveplan.sequences.files import _named

T = TypeVar("T")


def said_of(name: str, work: Callable[[], T]) -> T:
    """Return what `work` reads; errors begin with the name."""
    with _named(name):
        return work()
