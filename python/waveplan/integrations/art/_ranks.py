"""Context parallelism: owners of chunks, and tokens of each rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from art.megatron.context_parallel import runtime
from art.megatron.gdn import gdn_prefix_tree as gdn
from art.trainer_rank import _impl as impl

from waveplan import _core

from ._packs import pack_class, planned
from ._seams import Declined, Seam
from ._settings import gdn_settings, ownership_settings
from ._shadow import twin
from ._values import array, holds, once


def seams() -> list[Seam]:
    """Return the seams of ownership and of rank tokens."""
    counts = "context_parallel_rank_model_token_counts"
    return [
        Seam("ownership", runtime, "_runtime_plan_assignment", ownership),
        Seam("rank tokens", runtime, counts, rank_tokens),
        Seam("busiest rank", impl, "TrainerRank._max_rank_model_tokens", busiest_rank),
    ]


def ownership(spec: Any, *, topology: Any, config: Any) -> Any:
    """Return the packed line, its chunks, their owners and the fetch stage of each."""
    if len(spec.rows) != 1:
        raise Declined
    (line,) = spec.rows
    ranks = max(int(topology.cp), 1)
    found = _core.own(_segments(line), ranks, ownership_settings(config))
    tokens, size = found.tokens, found.chunk
    chunks = tuple(
        runtime.TokenRange(start, min(start + size, tokens)) for start in range(0, tokens, size)
    )
    return line, chunks, tuple(found.owners.tolist()), tuple(found.stages.tolist())


def rank_tokens(
    *,
    group_ids: Any,
    parent_ids: Any,
    topology: Any,
    config: Any,
    original_seq_len: int,
    build_gdn_execution_spec: bool,
    gdn_planner_config: Any = None,
) -> tuple[int, ...]:
    """Count the tokens of each rank for a line of group and parent ids."""
    del original_seq_len
    shape = tuple(group_ids.shape)
    if shape != tuple(parent_ids.shape) or len(shape) != 2 or shape[0] != 1:
        raise Declined
    packing = _core.Packing.from_ids(
        *(array(ids.cpu().reshape(-1)) for ids in (group_ids, parent_ids))
    )
    gdn_config = None
    if build_gdn_execution_spec:
        gdn_config = gdn_planner_config or gdn.GdnPlannerConfig()
    return _rank_tokens(packing, max(int(topology.cp), 1), config, gdn_config)


def busiest_rank(rank: Any, batch: Any, *, topology: Any) -> int:
    """Count the tokens of the busiest rank of one of our packs; keep the count with the pack."""
    ranks = int(topology.cp)
    if ranks <= 1:
        return int(batch.tokens.shape[1])
    batch = twin(batch)
    if not holds(batch, pack_class, "_packing"):
        raise Declined
    counted = planned(batch)
    if counted is not None:
        return counted.local_tokens
    known: dict[Any, int] = batch.__dict__.setdefault("_rank_tokens", {})
    key = (ranks, *configurations(rank))
    if key not in known:
        known[key] = max(_rank_tokens(batch._packing, *key))
    return known[key]


def configurations(rank: Any) -> tuple[Any, Any]:
    """Return a rank's configurations of context parallelism and of gdn layers, if it has those."""
    found: tuple[Any, Any] = once(("settings", id(rank.runtime)), lambda: _configurations(rank))
    return found


def _configurations(rank: Any) -> tuple[Any, Any]:
    from art.megatron.training.microbatches import (
        _context_parallel_config_for_provider,
        _gdn_planner_config_for_provider,
    )

    handler, provider = rank.runtime.model_support_handler, rank.runtime.provider
    config = _context_parallel_config_for_provider(provider, rank.device, handler)
    if not handler.build_gdn_execution_spec:
        return config, None
    gdn_config = _gdn_planner_config_for_provider(provider, handler)
    if gdn_config is None:
        raise Declined
    return config, gdn_config


def _rank_tokens(
    packing: _core.Packing, ranks: int, config: Any, gdn_config: Any
) -> tuple[int, ...]:
    """Return the larger of each rank's tokens in attention and in gdn layers."""
    if not len(packing):
        raise Declined
    found = _core.own(packing, ranks, ownership_settings(config))
    if gdn_config is None:
        return tuple(found.rank_tokens.tolist())
    return tuple(_core.gdn(packing, found, gdn_settings(gdn_config)).model_tokens.tolist())


def _segments(line: Any) -> _core.Packing:
    """Read the segments from a line's attention slices; decline a mask of another kind."""
    own: list[tuple[int, int]] = []
    above: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for piece in line.slices:
        q, k = piece.q_range, piece.k_range
        if piece.mask_kind.value == "causal":
            if (q.start, q.end) != (k.start, k.end):
                raise Declined
            own.append((q.start, q.end))
        else:
            above.setdefault((q.start, q.end), set()).add((k.start, k.end))
    index = {span: i for i, span in enumerate(own)}
    parents: list[int] = []
    seen: list[set[tuple[int, int]]] = []
    end = 0
    for span in own:
        if span[0] != end or span[1] <= end:
            raise Declined
        end = span[1]
        mine = above.pop(span, set())
        parent = index.get(max(mine), -1) if mine else -1
        if mine and (not 0 <= parent < len(parents) or mine != seen[parent] | {own[parent]}):
            raise Declined
        parents.append(parent)
        seen.append(mine)
    if above or end != line.valid_tokens or not own:
        raise Declined
    spans = np.asarray(own, dtype=np.int64)
    return _core.Packing.from_segments(spans[:, 1] - spans[:, 0], parents)
