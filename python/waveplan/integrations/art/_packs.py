"""Packed rows: segments, token counts, and the packed tensors of a layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from waveplan import _core

from ._seams import Declined, Function, Seam
from ._trees import Trees
from ._values import Int64, filled, integers, late, members, token_rows

PACKING = "art.megatron.prefix_tree_packing"
MATERIALIZER = "art.trainer_rank._prefix_tree_materializer"


class Packs:
    """Packed rows whose tensors, but for the tokens, are written when first read."""

    def __init__(self, trees: Trees, packing: Any) -> None:
        self.trees, self.torch = trees, trees.torch
        self.segment_class = packing.PrefixTreePackSegment
        self.pack_class: Any = late(packing.PrefixTreePack, self._part, ())

    def segments(self, packing: _core.Packing) -> tuple[Any, ...]:
        """The segments of a packed row."""
        starts, row_starts = packing.packed_starts.tolist(), packing.row_starts.tolist()
        lengths, parents = packing.lengths.tolist(), packing.parents.tolist()
        cls, made = self.segment_class, []
        for i, rows in enumerate(members(packing.members.offsets, packing.members.values)):
            segment = cls.__new__(cls)
            segment.__dict__.update(
                sequence_indices=rows,
                start=row_starts[i],
                end=row_starts[i] + lengths[i],
                packed_start=starts[i],
                group_id=i + 1,
                parent_id=(i if parents[i] < 0 else parents[i]) + 1,
            )
            made.append(segment)
        return tuple(made)

    def pack(self, packing: _core.Packing, rows: list[Int64]) -> Any:
        """A packed row of these rows."""
        tokens = self.torch.from_numpy(_core.gather_tokens(packing, rows)).unsqueeze(0)
        return filled(self.pack_class, tokens=tokens, _packing=packing)

    def _part(self, pack: Any, name: str) -> Any:
        packing, torch = pack._packing, self.torch
        if name == "segments":
            return self.segments(packing)
        if name == "positions_by_sequence":
            flat, offsets = _core.packed_positions(packing)
            return torch.split(torch.from_numpy(flat), np.diff(offsets).tolist())
        ids = [torch.from_numpy(column).unsqueeze(0) for column in _core.packed_ids(packing)]
        columns = dict(zip(("group_ids", "parent_ids", "position_ids"), ids, strict=True))
        for other, value in columns.items():
            object.__setattr__(pack, other, value)
        return columns[name]

    def tensors(self, sequences: Iterable[Any]) -> list[Int64]:
        """Rows given as one-dimensional CPU tensors."""
        rows = list(sequences)
        if not all(
            isinstance(row, self.torch.Tensor) and row.ndim == 1 and row.device.type == "cpu"
            for row in rows
        ):
            raise Declined
        return token_rows(rows, self.torch)


def packed(
    rows: list[Int64],
    max_depth: int,
    shareable: Iterable[int] | None,
    min_shared: int,
) -> _core.Packing:
    """Our packing under the other package's options; its refusals stay its own."""
    if max_depth < 0 or min_shared < 0:
        raise Declined
    limits = None
    if shareable is not None:
        limits = np.asarray([int(length) for length in shareable], dtype=np.int64)
        if len(limits) != len(rows):
            raise Declined
    return _core.pack_of(rows, max_depth, min_shared, limits)


def seams(packs: Packs) -> list[Seam]:
    """Packing and what it costs, and packed tensors of a layout."""

    def segments(_: Function) -> Function:
        def ours(
            sequences: Iterable[Sequence[int]],
            *,
            max_depth: int,
            shareable_lengths: Iterable[int] | None = None,
            min_shared_segment_length: int = 1,
        ) -> tuple[Any, ...]:
            rows = [integers(row) for row in sequences]
            if not rows:
                raise Declined
            return packs.segments(
                packed(rows, max_depth, shareable_lengths, min_shared_segment_length)
            )

        return ours

    def estimate(_: Function) -> Function:
        def ours(
            sequences: Iterable[Any],
            *,
            max_depth: int,
            shareable_lengths: Iterable[int] | None = None,
            min_shared_segment_length: int = 1,
        ) -> int:
            rows = packs.tensors(sequences)
            if not rows:
                raise Declined
            if max_depth == 0 and shareable_lengths is None and min_shared_segment_length >= 0:
                return sum(map(len, rows))
            return packed(
                rows, max_depth, shareable_lengths, min_shared_segment_length
            ).packed_tokens

        return ours

    def pack(_: Function) -> Function:
        def ours(
            sequences: Iterable[Any],
            *,
            max_depth: int,
            shareable_lengths: Iterable[int] | None = None,
            min_shared_segment_length: int = 1,
        ) -> Any:
            rows = packs.tensors(sequences)
            if not any(map(len, rows)):
                raise Declined
            packing = packed(rows, max_depth, shareable_lengths, min_shared_segment_length)
            return packs.pack(packing, rows)

        return ours

    def materialize(_: Function) -> Function:
        def ours(
            sequences: Sequence[Any],
            tree: Any,
            layout: Any,
            *,
            verify_shared_tokens: bool = True,
        ) -> Any:
            if (
                verify_shared_tokens
                or type(layout) is not packs.trees.layout_class
                or layout._tree is not tree
            ):
                raise Declined
            rows = token_rows(sequences, packs.torch)
            if tuple(map(len, rows)) != tree.sequence_lengths:
                raise Declined
            return packs.pack(tree._core.pack(layout._flags), rows)

        return ours

    rows = ("sequences", "shareable_lengths")
    return [
        Seam("packing", PACKING, "prefix_tree_pack_segments", segments, "packing", rows),
        Seam(
            "packed tokens",
            PACKING,
            "estimate_prefix_tree_packed_tokens",
            estimate,
            "packing",
            rows,
        ),
        Seam("packed tensors", PACKING, "prefix_tree_pack", pack, "packing", rows),
        Seam(
            "packed layout", MATERIALIZER, "materialize_prefix_tree_layout", materialize, "packing"
        ),
    ]
