"""The old path of `waveplan.checks`, with three checks that are no more."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from waveplan.checks import *  # noqa: F403

MOST_ABSENT = 1 << 24


def countable(_name: str, _value: object) -> None:
    """Accept any collection."""


def present(_name: str, _array: Any) -> None:
    """Accept any array."""


def size(_name: str, value: Sized) -> int:
    """Return the number of entries."""
    return len(value)
