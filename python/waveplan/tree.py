"""The prefix tree of token rows: which tokens they share, and what sharing saves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from waveplan import _core as core
from waveplan._values import LARGEST, integer
from waveplan.errors import InputError
from waveplan.rows import Int64, Ragged, Rows, integers

__all__ = ["Tree", "tree"]


def tree(rows: object) -> Tree:
    """The canonical radix tree of `rows` (anything `Rows.from_any` takes).

    One pass over the tokens; the unshared tail of a row is not read. Everything the tree answers
    afterwards reads no token.

    Raises:
        InputError: no rows, or an empty row.
    """
    given = Rows.from_any(rows)
    return Tree(core.build_tree(given.tokens, given.offsets))


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """S segments of n rows, parents before children (depth first), siblings first-seen.

    A segment is a run of tokens that the same rows share; it ends where they part or where one
    of them ends.
    """

    _core: core.Tree

    def __len__(self) -> int:
        return len(self._core)

    @property
    def row_count(self) -> int:
        """Number of rows, n."""
        return self._core.rows

    @cached_property
    def parent(self) -> Int64:
        """Parent segment, -1 for a root, [S]."""
        return self._core.parent

    @cached_property
    def start(self) -> Int64:
        """First position of the segment in its rows, [S]."""
        return self._core.start

    @cached_property
    def end(self) -> Int64:
        """One past the last position of the segment in its rows, [S]."""
        return self._core.end

    @cached_property
    def depth(self) -> Int64:
        """Segments from the root down to this one, 1 at a root, [S]."""
        return self._core.depth

    @cached_property
    def subtree(self) -> Int64:
        """One past the last segment below: those below `s` are ``s + 1 .. subtree[s] - 1``, [S]."""
        return self._core.subtree

    @cached_property
    def count(self) -> Int64:
        """Rows that run through the segment, [S]."""
        return self._core.count

    @cached_property
    def first_row(self) -> Int64:
        """The first row that runs through the segment, [S]."""
        return self._core.first_row

    @cached_property
    def terminal(self) -> Int64:
        """The segment in which each row ends, [n]."""
        return self._core.terminal

    @cached_property
    def rows(self) -> Ragged:
        """Rows that run through each segment, ascending; S lists."""
        offsets, rows = self._core.members()
        return Ragged(rows, offsets)

    @property
    def decisions(self) -> Int64:
        """Segments of two or more rows: those that may be stored once or replayed."""
        return np.flatnonzero(self.count >= 2).astype(np.int64, copy=False)

    @cached_property
    def _prefixes(self) -> tuple[Int64, Int64]:
        return self._core.prefixes()

    @property
    def packed_prefixes(self) -> Int64:
        """Full-sharing tokens of the first 0, 1, ... n rows, [n + 1]."""
        return self._prefixes[0]

    @property
    def shared_prefixes(self) -> Int64:
        """Leading tokens of each row that an earlier row already holds, [n]."""
        return self._prefixes[1]

    def packed(self, rows: int | None = None) -> int:
        """Packed tokens of the first `rows` rows (all by default) with everything shared."""
        n = self.row_count if rows is None else integer("rows", rows, -LARGEST)
        if not 0 <= n <= self.row_count:
            raise InputError(f"rows is {n}: the tree has {self.row_count}")
        return int(self.packed_prefixes[n])

    def restrict(self, rows: ArrayLike) -> Tree:
        """The tree of some of the rows, in the order given and numbered anew; reads no token.

        Raises:
            InputError: no rows, or a number that is not a row.
        """
        return Tree(self._core.restrict(integers("rows", rows)))

    def __repr__(self) -> str:
        return f"Tree({len(self):,} segments, {self.row_count:,} rows, {self.packed():,} tokens)"
