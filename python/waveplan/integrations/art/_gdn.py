"""Gdn layers: the other package's decision, computed from our owners and chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from art.megatron.gdn import gdn_prefix_tree as gdn
from art.trainer_rank import _gdn_memory as gdn_memory
from art.trainer_rank import _impl as impl
from megatron.core.ssm.gated_delta_net import GatedDeltaNet

from waveplan import _core

from ._packs import Segments
from ._seams import Declined, Function, Seam
from ._settings import gdn_settings
from ._values import Int64, once


def seams() -> list[Seam]:
    """Return the seams of gdn layers: their shapes, what they keep, and where segments run."""
    return [
        Seam("gdn shapes", gdn_memory, "model_shapes", shapes, needs_original=True),
        Seam("gdn floor", gdn_memory, "pending_floor", floor, needs_original=True),
        Seam("gdn decision", gdn, "build_gdn_global_execution_decision", decide),
    ]


def shapes(original: Function, rank: Any, slot_ref: Any = None) -> Any:
    """Read the shapes of a model's gdn layers, once a search."""
    return once(("gdn", id(rank.runtime), slot_ref), lambda: original(rank, slot_ref))


def model_state(rank: Any, slots: Sequence[Any]) -> list[Any]:
    """Return what walks of the model read, to be compared: the attributes of its configurations, of
    its gdn layers and of their parts, and the types of their weights, also by adapter slot."""
    runtime = rank.runtime
    chunk = runtime.model[0]
    tensors = [next(chunk.parameters(), None)]
    handler = runtime.model_support_handler
    state = [rank.device, chunk.training, handler, *getattr(handler, "__dict__", {}).values()]
    state += vars(runtime.provider).values()
    modules: list[Any] = []
    try:
        decoder = impl._language_model(chunk).decoder
        layers = decoder.layers
    except (AttributeError, RuntimeError):
        layers = ()
    else:
        state += vars(decoder.config).values()
        modules.append(decoder)
    for layer in layers:
        mixer = layer._modules.get("self_attention")
        if isinstance(mixer, GatedDeltaNet):
            modules.append(mixer)
            for part in mixer._modules.values():
                if part is not None:
                    modules.append(part)
                    lora = part._modules.get("lora")
                    if lora is not None:
                        modules.append(lora)
                        for ref in slots if "_slot_keys" in vars(lora) else ():
                            tensors += impl._slot_lora_tensors(lora, ref) or ()
    for module in modules:
        held = vars(module)
        state += held.values()
        state += held["_modules"].values()
        state += len(held["_forward_hooks"]), len(held["_forward_pre_hooks"])
        tensors += held["_parameters"].values()
    for tensor in tensors:
        if tensor is not None:
            state += tensor.dtype, tensor.shape
    return state


class _Columns(Sequence[Any]):
    """Columns that execute so many tokens and keep so many states."""

    def __init__(self, schedule: _core.GdnSchedule) -> None:
        self.schedule = schedule

    def __len__(self) -> int:
        return self.schedule.states

    def __getitem__(self, index: Any) -> Any:
        return ((0, -1, self.schedule.executed_tokens),)[index]

    def __iter__(self) -> Any:
        return iter(((0, -1, self.schedule.executed_tokens),))


def floor(
    original: Function, hidden: int, rows: int, layers: int, shapes: Any, segments: Any
) -> tuple[int, int]:
    """Return what layers keep; segments of a plan in the making are scheduled by ours."""
    if type(segments) is not Segments or segments.packing.packed_tokens != rows:
        found: tuple[int, int] = original(hidden, rows, layers, shapes, segments)
        return found
    buckets = (gdn_memory.Bucket(_Columns(_core.gdn_schedule(segments.packing)), False),)
    return rows * layers * hidden * 2, max(shape.pending(rows, buckets) for shape in {*shapes})


def decide(
    spec: Any,
    *,
    cp_size: int = 1,
    attention_token_layout_index: Any = None,
    planner_config: Any = None,
) -> Any:
    """Compute owners, chains and ranges of each rank for one packed line."""
    segments, parents, depths = spec.tree_segments, spec.tree_parent_indices, spec.tree_depths
    if cp_size < 1 or spec.batch_size != 1 or not segments:
        raise Declined
    source = gdn._attention_source_layout(
        spec, cp_size=cp_size, attention_token_layout_index=attention_token_layout_index
    )
    packing = _core.Packing.from_segments([s.end - s.start for s in segments], list(parents))
    attention = _core.Ownership.from_owners(packing, cp_size, *_chunks(source, cp_size))
    found = _core.gdn(packing, attention, gdn_settings(planner_config or gdn.GdnPlannerConfig()))
    chains = np.flatnonzero(found.chained).tolist()
    shard_lengths = dict(zip(chains, found.shards.tolist(), strict=True))
    owners, depth_count = found.owner.tolist(), max(depths) + 1
    children: list[list[int]] = [[] for _ in segments]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)

    ranges: list[list[tuple[int, int, int]]] = [[] for _ in range(cp_size)]
    held = [0] * cp_size
    by_rank: list[list[list[Any]]] = [[[] for _ in range(depth_count)] for _ in range(cp_size)]
    chains_by_depth: list[list[Any]] = [[] for _ in range(depth_count)]

    def run(rank: int, start: int, end: int) -> None:
        ranges[rank].append((start, end, held[rank]))
        held[rank] += end - start

    stack = [node for node, parent in enumerate(parents) if parent < 0][::-1]
    while stack:  # depth first, as packed tokens of a rank follow one another
        node = stack.pop()
        stack += children[node][::-1]
        segment, depth = segments[node], depths[node]
        if node in shard_lengths:
            chains_by_depth[depth].append(segment)
            start = segment.start
            for rank, length in enumerate(shard_lengths[node]):
                run(rank, start, start + length)
                start += length
        else:
            by_rank[owners[node]][depth].append(segment)
            run(owners[node], segment.start, segment.end)

    return gdn.GdnGlobalExecutionDecision(
        cp_size=cp_size,
        source_layout=source,
        depth_count=depth_count,
        gdn_token_counts_by_rank=tuple(found.rank_tokens.tolist()),
        owner_by_node=tuple(owners),
        chained_nodes=tuple(found.chained.tolist()),
        tree_has_children=tuple(map(bool, children)),
        gdn_ranges_by_rank_by_position=tuple(map(tuple, ranges)),
        gdn_ranges_by_rank_by_source=tuple(tuple(sorted(of)) for of in ranges),
        segments_by_rank_depth=tuple(tuple(map(tuple, of)) for of in by_rank),
        chain_segments_by_depth=tuple(map(tuple, chains_by_depth)),
        cross_rank_token_count=found.cross_tokens,
    )


def _chunks(layout: Any, ranks: int) -> tuple[int, Int64]:
    """Return chunk size and owners of a token layout; decline one without equal chunks."""
    pieces = sorted(
        (start, end, rank)
        for rank, ranges in enumerate(layout.ownership_ranges_by_rank)
        for start, end, _ in ranges
    )
    if not pieces or len(layout.ownership_ranges_by_rank) != ranks:
        raise Declined
    starts, ends, owners = np.asarray(pieces, dtype=np.int64).T
    size = int(ends[0])
    if (
        not np.array_equal(starts, np.arange(len(pieces)) * size)
        or not np.array_equal(ends[:-1], starts[1:])
        or not starts[-1] < ends[-1] <= starts[-1] + size
    ):
        raise Declined
    return size, np.ascontiguousarray(owners)
