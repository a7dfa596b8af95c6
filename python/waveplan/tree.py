"""The prefix tree of token rows: which tokens they share, and what sharing saves."""

from __future__ import annotations

from waveplan import _core as core
from waveplan._core import Tree
from waveplan.sequences.sequences import Rows

__all__ = ["Tree", "tree"]


def tree(rows: object) -> Tree:
    """The canonical radix tree of `rows` (anything `Rows.from_any` takes).

    One pass over the tokens; the unshared tail of a row is not read. Everything the tree answers
    afterwards reads no token.

    Raises:
        InputError: no rows, or an empty row.
    """
    given = Rows.from_any(rows)
    return core.build_tree(given.tokens, given.offsets)
