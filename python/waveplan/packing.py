"""Packed rows: many rows as one, shared prefixes stored once."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from waveplan import _core as core
from waveplan._values import MOST_ABSENT, countable
from waveplan.errors import InputError
from waveplan.rows import Int64, Ragged, Rows, integers

__all__ = ["Packing", "pack"]


def pack(
    rows: object,
    max_depth: int | None = None,
    min_shared: int = 1,
    shareable: ArrayLike | None = None,
) -> Packing:
    """Packs `rows` (anything `Rows.from_any` takes) into one row by walking their prefix tree.

    Args:
        rows: the rows; empty ones produce nothing.
        max_depth: shared segments above one another, at most. None: no limit (full sharing);
            0: nothing is shared.
        min_shared: the shortest run of tokens that is shared; a shorter one is replayed.
        shareable: how many leading tokens of each row may be shared, clamped to the row.

    Raises:
        InputError: a negative `max_depth` or `min_shared`, or not one limit a row.
    """
    given = Rows.from_any(rows)
    limits = None
    if shareable is not None:
        limits = integers("shareable", shareable)
    depth = None if max_depth is None else _size("max_depth", max_depth)
    made = core.pack_rows(
        given.tokens, given.offsets, depth, _size("min_shared", min_shared), limits
    )
    return Packing(made)


def _size(name: str, value: int) -> int:
    """A whole number, cut to what 64 bits hold; the core refuses negative ones."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: give a whole number") from None
    return max(min(whole, 2**63 - 1), -(2**63))


def _id_row(name: str, ids: ArrayLike) -> Int64:
    """One packed row of ids; a leading axis of length 1 is dropped."""
    countable(name, ids)
    try:
        shape = tuple(np.shape(ids))
    except (ValueError, TypeError, MemoryError):
        shape = ()  # whatever it is, integers() says it
    if len(shape) == 2:
        if shape[0] != 1:
            raise InputError(f"{name} has shape {shape}: give one packed row")
        ids = np.asarray(ids)[0]
    return integers(name, ids)


@dataclass(frozen=True, eq=False, repr=False)
class Packing:
    """One packed row of S segments, in packed order; a parent comes before its children.

    A segment attends itself causally and all its ancestors fully.

    Without rows the tokens are declared, not there: then ids per token are made for at most
    16,777,216 tokens, or for as many as `from_ids` was given.
    """

    _core: core.Packing
    _given: int = 0

    @classmethod
    def from_segments(cls, lengths: ArrayLike, parents: ArrayLike) -> Packing:
        """A packed row made elsewhere, without rows: segment lengths, and parents (-1: a root).

        Raises:
            InputError: a length below 1, or a parent that is not an earlier segment.
        """
        made = core.Packing.from_segments(
            integers("lengths", lengths), integers("parents", parents)
        )
        return cls(made)

    @classmethod
    def from_ids(cls, group_ids: ArrayLike, parent_ids: ArrayLike) -> Packing:
        """A packed row made elsewhere, without rows, given as ids per token, [T] or [1, T].

        A run of one group id is a segment; its parent id names the parent's group, or its own
        for a root. Group -1 is padding, which is cut off.

        Raises:
            InputError: shapes that differ, more than one row, padding that is not a tail, a run
                with two parents, a group in two runs, or a parent that is missing or later.
        """
        groups, parents = _id_row("group_ids", group_ids), _id_row("parent_ids", parent_ids)
        return cls(core.Packing.from_segments(*core.parse_ids(groups, parents)), len(groups))

    def __len__(self) -> int:
        return len(self._core)

    @property
    def row_count(self) -> int:
        """Number of rows, n; 0 if only the segments are known."""
        return self._core.rows

    @property
    def packed_tokens(self) -> int:
        """Tokens of the packed row."""
        return self._core.packed_tokens

    @cached_property
    def lengths(self) -> Int64:
        """Tokens of each segment, [S]."""
        return self._core.lengths

    @cached_property
    def parents(self) -> Int64:
        """Parent of each segment, -1 for a root, [S]."""
        return self._core.parents

    @cached_property
    def packed_starts(self) -> Int64:
        """Where each segment begins in the packed row, [S]."""
        return self._core.packed_starts

    @cached_property
    def row_starts(self) -> Int64:
        """Where each segment begins inside its rows, [S]."""
        return self._core.row_starts

    @cached_property
    def members(self) -> Ragged:
        """Rows of each segment, ascending; S lists."""
        offsets, rows = self._core.members
        return Ragged(rows, offsets)

    @cached_property
    def last(self) -> Int64:
        """The segment that holds the end of each row, -1 for an empty row, [n]."""
        return self._core.last

    def path(self, row: int) -> Int64:
        """The segments of a row, first to last.

        Raises:
            InputError: there is no such row.
        """
        return self._core.path(_size("row", row))

    def positions(self, row: int) -> Int64:
        """Where each token of a row lies in the packed row.

        Raises:
            InputError: there is no such row.
        """
        return self._core.positions(_size("row", row))

    @property
    def group_ids(self) -> Int64:
        """Segment number of each packed token, counted from 1, [packed_tokens]."""
        return self._per_token("group_ids", np.arange(1, len(self) + 1))

    @property
    def parent_ids(self) -> Int64:
        """Parent's number of each packed token; a root is its own parent, [packed_tokens]."""
        own = np.arange(len(self))
        parents = np.where(self.parents < 0, own, self.parents)
        return self._per_token("parent_ids", parents + 1)

    @property
    def position_ids(self) -> Int64:
        """Position of each packed token inside its rows, [packed_tokens]."""
        shift = self.row_starts - self.packed_starts
        made = self._per_token("position_ids", shift)
        made += np.arange(len(made))
        return made

    def _per_token(self, name: str, values: Int64) -> Int64:
        """The value of its segment for each packed token."""
        if not self.row_count and self.packed_tokens > max(MOST_ABSENT, self._given):
            raise InputError(
                f"the packed row has {self.packed_tokens} tokens and no rows: {name} are made "
                f"for at most {MOST_ABSENT}"
            )
        return np.repeat(values, self.lengths)

    def __repr__(self) -> str:
        return (
            f"Packing({len(self):,} segments, {self.row_count:,} rows, "
            f"{self.packed_tokens:,} tokens)"
        )
