"""Head tokens: distinct packed positions that the requests of a pack project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from art.trainer_rank import _impl as impl

from waveplan import _core

from ._seams import Declined, Function, Seam
from ._values import array

_ALL = 1 << 62


def seams() -> list[Seam]:
    """Return the seams that count head tokens: all, and those of the first chunk with labels."""
    chunk = "TrainerRank._head_target_chunk_rows"
    return [
        Seam("head tokens", impl, "TrainerRank._head_projection_rows", projected),
        Seam("head tokens with targets", impl, chunk, target_chunk, needs_original=True),
    ]


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
    most = _ALL if uncapped else impl._HEAD_CHUNK_TOKENS
    if _on_cpu(positions):
        return _core.projected_tokens(**_head_tokens(requests, positions), most=most)
    counts = [_own_tokens(request, lower_bound) for request in requests]
    return min(most, max(counts, default=0) if lower_bound else sum(counts))


def target_chunk(
    original: Function,
    rank: Any,
    requests: Sequence[Any],
    *,
    positions: Sequence[Any] | None = None,
    lower_bound: bool = False,
) -> int:
    """Count head tokens of the first chunk that holds a position with a label."""
    if not _on_cpu(positions):
        # its bounds, through the counts above
        found: int = original(rank, requests, positions=positions, lower_bound=lower_bound)
        return found
    heads, chunk = _head_tokens(requests, positions), impl._HEAD_CHUNK_TOKENS
    return _core.target_chunk_tokens(**heads, chunk=chunk)


def _on_cpu(positions: Sequence[Any] | None) -> bool:
    return positions is not None and all(of.device.type == "cpu" for of in positions)


def _head_tokens(requests: Sequence[Any], positions: Any) -> dict[str, list[Any]]:
    """Return positions, labels, and whether every position is projected, of each request."""
    places = [array(of) for of in positions]
    if [request.input_tokens.numel() for request in requests] != list(map(len, places)):
        raise Declined
    labels = [request.target_tokens for request in requests]
    return {
        "positions": places,
        "labels": [None if given is None else array(given) for given in labels],
        "every": [bool(request.logits or request.top_k is not None) for request in requests],
    }


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
