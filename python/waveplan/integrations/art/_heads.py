"""Head tokens: distinct packed positions that the requests of a pack project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from art.trainer_rank import _impl as impl
from art.trainer_rank import _memory as memory

from waveplan import _core

from ._packs import Positions, Split, pack_class, planned
from ._seams import Declined, Function, Seam
from ._shadow import twin
from ._values import Int64, array, holds


def seams() -> list[Seam]:
    """Return the seams that count head tokens: of a plan, of requests, and of the first chunk with
    labels."""
    chunk = "TrainerRank._head_target_chunk_rows"
    return [
        Seam("head bytes", memory, "_plan_head_workspace_bytes", head_bytes),
        Seam("head tokens", impl, "TrainerRank._head_projection_rows", projected),
        Seam("head tokens with targets", impl, chunk, target_chunk, needs_original=True),
    ]


def head_bytes(rank: Any, plan: Any) -> int:
    """Return the largest pack's head bytes, its tokens counted from its layout."""
    most = 0
    for group in plan.groups:
        packed = twin(group.packed)
        if not holds(packed, pack_class, "_packing"):
            raise Declined
        requests = tuple(item.request for item in group.items)
        positions, counted = Positions(packed), planned(packed)
        if counted is not None:
            positions.counted = requests, counted.head_tokens
        tokens = rank._head_projection_rows(requests, positions=positions)
        found = rank._group_head_workspace_bytes(
            tokens, requests, grad_enabled=group.grad_enabled, positions=positions
        )
        most = max(most, found)
    return most


def projected(
    rank: Any,
    requests: Sequence[Any],
    *,
    positions: Sequence[Any] | None = None,
    lower_bound: bool = False,
    uncapped: bool = False,
) -> int:
    """Count packed positions that requests project; without positions, bound them."""
    if not rank._head_workspace_bytes(1):
        return 0
    most = math.inf if uncapped else impl._HEAD_CHUNK_TOKENS
    if isinstance(positions, Positions | Split):
        if positions.counted is None or positions.counted[0] is not requests:
            found = _core.projected_tokens(positions.packing, *_heads(requests))
            positions.counted = (requests, found)
        count = positions.counted[1]
    elif positions is not None:
        raise Declined
    else:
        counts = [_own_tokens(request, lower_bound) for request in requests]
        count = max(counts, default=0) if lower_bound else sum(counts)
    return int(min(most, count))


def target_chunk(
    original: Function,
    rank: Any,
    requests: Sequence[Any],
    *,
    positions: Sequence[Any] | None = None,
    lower_bound: bool = False,
) -> int:
    """Count head tokens of the first chunk that holds a position with a label."""
    if not isinstance(positions, Positions | Split):
        # its bounds, through the counts above
        found: int = original(rank, requests, positions=positions, lower_bound=lower_bound)
        return found
    labels, every = _heads(requests)
    chunk = impl._HEAD_CHUNK_TOKENS
    return _core.target_chunk_tokens(positions.packing, labels, every, chunk)


def _heads(requests: Sequence[Any]) -> tuple[list[Int64 | None], list[bool]]:
    """Return labels, and whether every position is projected, of each request."""
    given = [request.target_tokens for request in requests]
    return (
        [None if labels is None else array(labels) for labels in given],
        [bool(request.logits or request.top_k is not None) for request in requests],
    )


def _own_tokens(request: Any, lower_bound: bool) -> int:
    """Count positions that one request projects; bound them where its labels are on a device."""
    tokens = int(request.input_tokens.numel())
    if request.logits or request.top_k is not None:
        return tokens
    if request.target_tokens is None:
        return 0
    if request.target_tokens.device.type != "cpu":
        return 0 if lower_bound else tokens
    return _core.labelled_tokens(array(request.target_tokens), tokens)
