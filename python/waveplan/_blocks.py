"""Long array work in blocks, so that Ctrl-C is noticed in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "blocks",
    "first_negative",
    "int64",
    "listed",
    "repeated",
]

Int64 = NDArray[np.int64]

BLOCK = 1 << 19
"""Entries of one block: a few milliseconds of the cheapest step, some tens of the dearest."""


def blocks(count: int) -> Iterator[slice]:
    """Consecutive parts of `count` entries."""
    return (slice(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK))


def first_negative(values: NDArray[Any]) -> int | None:
    """Index of the first entry below zero."""
    for part in blocks(len(values)):
        if values[part].min() < 0:
            at: int = part.start + int(np.argmax(values[part] < 0))
            return at
    return None


def int64(values: NDArray[Any]) -> Int64:
    """One-dimensional integers that fit, as a contiguous, aligned, native int64 array."""
    flags = values.flags
    ready = values.dtype == np.int64 and flags.c_contiguous and flags.aligned
    if len(values) <= BLOCK or ready:
        return np.require(values, np.int64, ["C_CONTIGUOUS", "ALIGNED", "ENSUREARRAY"])
    made = np.empty(len(values), np.int64)
    for part in blocks(len(values)):
        made[part] = values[part]
    return made


def listed(values: Sequence[Any]) -> tuple[NDArray[Any], int]:
    """`numpy.asarray` of a sequence, and 0; or the first part that holds no integers, and where
    it begins, for those who then refuse the whole."""
    if not isinstance(values, list | tuple) or len(values) <= BLOCK:
        return np.asarray(values), 0
    made = np.empty(len(values), np.int64)
    for part in blocks(len(values)):
        try:
            entries = np.asarray(values[part])
        except (ValueError, TypeError, OverflowError):
            return np.asarray(values), 0  # the error of the whole
        if entries.ndim == 1 and entries.dtype.kind not in "iu":
            return entries, part.start
        if entries.dtype != np.int64 or entries.ndim != 1:
            return np.asarray(values), 0
        made[part] = entries
    return made, 0


def repeated(values: Int64, lengths: Int64) -> Int64:
    """Each value as often as its length says."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total <= BLOCK:
        return np.repeat(values, lengths)
    made = np.empty(total, np.int64)
    for part in blocks(total):
        first, last = np.searchsorted(ends, [part.start, part.stop - 1], side="right").tolist()
        here = slice(first, last + 1)
        begin = np.maximum(ends[here] - lengths[here], part.start)
        made[part] = np.repeat(values[here], np.minimum(ends[here], part.stop) - begin)
    return made
