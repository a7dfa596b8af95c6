"""Packs: their segments, token counts and tensors."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from art.megatron import prefix_tree_packing as packing
from art.trainer_rank import _prefix_tree_materializer as materializer

from waveplan import _core

from ._seams import Declined, Seam
from ._shadow import twin
from ._trees import layout_class, tree_class
from ._values import SEARCH, Int64, arrays, filled, holds, integers, late, members

_ZERO = torch.zeros(1, dtype=torch.long)


def seams() -> list[Seam]:
    """Return the seams of packs."""
    read = ("sequences", "shareable_lengths")
    tokens = "estimate_prefix_tree_packed_tokens"
    return [
        Seam("packing", packing, "prefix_tree_pack_segments", pack_segments, read),
        Seam("packed tokens", packing, tokens, packed_tokens, read),
        Seam("packed layout", materializer, "materialize_prefix_tree_layout", pack_layout),
    ]


def pack_segments(sequences: Iterable[Sequence[int]], **options: Any) -> tuple[Any, ...]:
    """Pack sequences; return the segments."""
    return _segments(_packing([integers(sequence) for sequence in sequences], **options))


def packed_tokens(sequences: Iterable[Any], **options: Any) -> int:
    """Count the packed tokens of sequences."""
    if options == {"max_depth": 0}:
        return sum(map(len, _lines(sequences)))
    return _packing(_lines(sequences), **options).packed_tokens


def pack_layout(
    sequences: Sequence[Any], tree: Any, layout: Any, *, verify_shared_tokens: bool = True
) -> Any:
    """Pack sequences by one of our layouts."""
    tree, layout = twin(tree), twin(layout)
    if (
        verify_shared_tokens
        or not holds(layout, layout_class, "_tree")
        or not holds(tree, tree_class, "_core")
        or layout._tree is not tree
    ):
        raise Declined
    planned = getattr(layout, "_planned", None)
    if planned is not None and SEARCH.planning:
        pack, packed = planned
        made = make(packed, tree._tokens)
        vars(made)["_planned"] = pack
        return made
    tokens = arrays(sequences)
    if tuple(map(len, tokens)) != tree.sequence_lengths:
        raise Declined
    return make(tree._core.pack(layout._flags), tokens)


def planned(pack: Any) -> _core.Pack | None:
    """Return the pack of our search that a pack of the plan being made is, if it is one."""
    return vars(pack).get("_planned") if SEARCH.planning else None


def _lines(sequences: Iterable[Any]) -> list[Int64]:
    """Return the tokens of one-dimensional tensors; decline anything else."""
    tensors = list(sequences)
    if not all(isinstance(tensor, torch.Tensor) and tensor.ndim == 1 for tensor in tensors):
        raise Declined
    return arrays(tensors)


def _packing(
    tokens: list[Int64],
    *,
    max_depth: int,
    shareable_lengths: Iterable[int] | None = None,
    min_shared_segment_length: int = 1,
) -> _core.Packing:
    """Pack under the other package's options."""
    if not tokens:
        raise Declined
    shareable = None
    if shareable_lengths is not None:
        shareable = np.asarray([int(length) for length in shareable_lengths], dtype=np.int64)
    return _core.pack_sequences(tokens, None, max_depth, min_shared_segment_length, shareable)


def _segments(packed: _core.Packing) -> tuple[Any, ...]:
    starts, own_starts = packed.packed_starts.tolist(), packed.sequence_starts.tolist()
    lengths, parents = packed.lengths.tolist(), packed.parents.tolist()
    cls, made = packing.PrefixTreePackSegment, []
    for i, among in enumerate(members(packed.members.offsets, packed.members.values)):
        segment = cls.__new__(cls)
        segment.__dict__.update(
            sequence_indices=among,
            start=own_starts[i],
            end=own_starts[i] + lengths[i],
            packed_start=starts[i],
            group_id=i + 1,
            parent_id=(i if parents[i] < 0 else parents[i]) + 1,
        )
        made.append(segment)
    return tuple(made)


def make(packed: _core.Packing, tokens: list[Int64]) -> Any:
    """Make the other package's pack of one of our packings."""
    made = filled(pack_class, _packing=packed, _tokens=tokens)
    if not SEARCH.planning:
        made.tokens  # noqa: B018 - gathered now, whatever happens to the sequences later
    return made


def _line(pack: Any) -> Any:
    """Return a line of the right length for a plan in the making."""
    return _ZERO.expand(1, pack._packing.packed_tokens) if SEARCH.planning else None


def _counted(pack: Any) -> Any:
    """Return segments that know their number, for a plan in the making."""
    return Segments(pack._packing) if SEARCH.planning else None


class Segments(Sequence[Any]):
    """Segments of one of our packs, made when one is read."""

    def __init__(self, packing: _core.Packing) -> None:
        self.packing = packing

    def __len__(self) -> int:
        return len(self.packing)

    def __getitem__(self, index: Any) -> Any:
        return self._made[index]

    @functools.cached_property
    def _made(self) -> tuple[Any, ...]:
        return _segments(self.packing)


class Positions(Sequence[Any]):
    """Packed positions of the sequences of one of our packs, computed when first read."""

    def __init__(self, pack: Any) -> None:
        self.packing = pack._packing
        self.counted: tuple[Any, int] | None = None
        """Requests, and how many positions they project."""
        self._pack = pack

    def __len__(self) -> int:
        return int(self.packing.sequence_count)

    def __getitem__(self, index: Any) -> Any:
        return self._pack.positions_by_sequence[index]


class Split(tuple[Any, ...]):
    """The same, computed: a tuple of tensors that knows its pack."""

    packing: _core.Packing
    counted: tuple[Any, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


def _part(pack: Any, name: str) -> Any:
    packed = pack._packing
    if name == "segments":
        return _segments(packed)
    if name == "tokens":
        return torch.from_numpy(_core.gather_tokens(packed, pack._tokens)).unsqueeze(0)
    if name == "positions_by_sequence":
        flat, offsets = _core.packed_positions(packed)
        split = Split(torch.split(torch.from_numpy(flat), np.diff(offsets).tolist()))
        split.packing = packed
        return split
    return torch.from_numpy(getattr(packed, name)).unsqueeze(0)


_NOW = {"tokens": _line, "segments": _counted}
pack_class = late(packing.PrefixTreePack, _part, for_now=_NOW)
