"""Packed rows: many rows as one, shared prefixes stored once."""

from __future__ import annotations

from numpy.typing import ArrayLike

from waveplan import _core as core
from waveplan._core import Packing
from waveplan.checks import integer
from waveplan.sequences.sequences import Rows, integers

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
    return core.pack_rows(
        given.tokens,
        given.offsets,
        None if max_depth is None else integer("max_depth", max_depth),
        integer("min_shared", min_shared),
        None if shareable is None else integers("shareable", shareable),
    )
