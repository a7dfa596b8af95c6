"""Context parallelism: owners of chunks, rows of each rank, and the recurrent layout."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from waveplan import _core
from waveplan.assignment import OwnershipSettings, StageWork, WorkloadProfile
from waveplan.recurrent import GdnSettings

from ._packs import Packs
from ._seams import Declined, Function, Seam
from ._values import Int64, array

RUNTIME = "art.megatron.context_parallel.runtime"
GDN = "art.megatron.gdn.gdn_prefix_tree"
IMPL = "art.trainer_rank._impl"

ASSIGN_NAMES = {
    "block": "block_size",
    "chunk": "planner_chunk_size",
    "chunk_budget_base": "planner_chunk_budget_base",
    "chunk_budget_per_rank": "planner_chunk_budget_per_cp_rank",
    "max_stages": "planner_max_remote_waves",
    "candidates": "planner_candidate_chunk_limit",
    "steps": "planner_max_search_steps",
    "stage_overhead_ms": "planner_stage_overhead_ms",
    "remote_host_ms": "planner_remote_stage_host_ms",
    "owned_token_ms": "planner_owned_token_ms",
    "comm_overhead_ms": "planner_comm_stage_overhead_ms",
    "interval_ms": "planner_interval_overhead_ms",
    "merge_token_ms": "planner_merge_q_token_ms",
    "fetch_token_ms": "planner_fetch_token_ms",
    "reduce_token_ms": "planner_reduce_token_ms",
    "local_pair_ms": "planner_local_pair_ms",
    "remote_pair_ms": "planner_remote_pair_ms",
    "local_backward_pair_ms": "planner_local_backward_pair_ms",
    "remote_backward_pair_ms": "planner_remote_backward_pair_ms",
    "underfill_ms": "planner_remote_stage_underfill_ms",
    "underfill_tokens": "planner_remote_stage_token_floor",
    "underfill_pairs": "planner_remote_stage_pair_floor",
}
STAGE_NAMES = {
    "query_flops": "query_flops_per_token",
    "tile_pair_flops": "tile_pair_flops",
    "key_hbm_bytes": "k_hbm_bytes_per_token",
    "fetch_bytes": "k_fetch_bytes_per_token",
    "reduce_bytes": "dkv_reduce_bytes_per_token",
    "query_memory_bytes": "query_memory_bytes_per_token",
    "key_memory_bytes": "k_memory_bytes_per_token",
}
PROFILE_NAMES = {
    "query_tile": "query_tile_size",
    "key_tile": "key_tile_size",
    "workspace_elements": "indexer_score_workspace_elements",
    "max_key_tokens": "indexer_max_k_tokens",
    "max_ranges": "max_ownership_ranges_per_rank",
}
RECURRENT_NAMES = {
    "hidden_bytes": "runtime_hidden_bytes_per_token",
    "exchanges": "runtime_layout_exchange_count",
    "exchange_bandwidth": "runtime_layout_bandwidth_bytes_per_ms",
    "local_rate": "runtime_local_recurrent_tokens_per_ms",
    "chain_rate": "runtime_chain_recurrent_tokens_per_ms",
    "dense_rate": "runtime_dense_tokens_per_ms",
    "local_bucket_ms": "runtime_local_bucket_launch_ms",
    "chain_bucket_ms": "runtime_chain_bucket_launch_ms",
    "local_segment_ms": "runtime_local_segment_launch_ms",
    "summary_bytes": "runtime_cp_summary_bytes_per_segment",
    "summary_exchanges": "runtime_cp_summary_exchange_count_per_bucket",
    "summary_bandwidth": "runtime_cp_summary_bandwidth_bytes_per_ms",
    "summary_rate": "runtime_cp_summary_compute_segments_per_ms",
    "scan_bucket_ms": "runtime_cp_suffix_scan_latency_ms",
    "scan_rate": "runtime_cp_suffix_scan_segments_per_ms",
    "parent_bytes": "runtime_parent_state_bytes_per_exchange",
    "parent_bandwidth": "runtime_parent_state_bandwidth_bytes_per_ms",
    "min_gain_ms": "cp_chain_min_runtime_delta_ms",
    "beam_width": "cp_chain_beam_width",
    "branch": "cp_chain_beam_branch_factor",
    "candidates": "cp_chain_beam_candidate_limit",
    "max_steps": "cp_chain_beam_max_steps",
}
# latencies that our model of time does not have, as they are zero everywhere
ZERO = (
    "runtime_layout_collective_latency_ms",
    "runtime_cp_summary_collective_latency_ms",
    "runtime_parent_state_latency_ms",
)


def _named(source: Any, names: dict[str, str]) -> dict[str, Any]:
    return {ours: getattr(source, theirs) for ours, theirs in names.items()}


@functools.lru_cache(maxsize=256)
def assign_settings(config: Any) -> OwnershipSettings:
    """Our settings of one of the other package's frozen configurations."""
    profile = config.workload_profile
    if profile is not None:
        stages = tuple(StageWork(**_named(stage, STAGE_NAMES)) for stage in profile.stages)
        profile = WorkloadProfile(stages=stages, **_named(profile, PROFILE_NAMES))
    return OwnershipSettings(**_named(config, ASSIGN_NAMES), profile=profile)


@functools.lru_cache(maxsize=256)
def recurrent_settings(config: Any) -> GdnSettings:
    """The same for the recurrent layers."""
    if any(getattr(config, name) for name in ZERO):
        raise Declined
    return GdnSettings(**_named(config, RECURRENT_NAMES))


def parsed(group_ids: Any, parent_ids: Any, torch: Any) -> tuple[Int64, Int64]:
    """Segment lengths and parents of one packed row of ids."""
    shape = tuple(group_ids.shape)
    if shape != tuple(parent_ids.shape) or len(shape) != 2 or shape[0] != 1:
        raise Declined
    packing = _core.Packing.from_ids(
        array(group_ids.cpu().reshape(-1), torch), array(parent_ids.cpu().reshape(-1), torch)
    )
    return packing.lengths, packing.parents


def rank_rows(
    lengths: Int64,
    parents: Int64,
    ranks: int,
    config: Any,
    gdn_config: Any,
) -> tuple[int, ...]:
    """Rows of each rank: the larger of its attention and recurrent tokens."""
    if not len(lengths):
        raise Declined
    packing = _core.Packing.from_segments(lengths, parents)
    found = _core.own(packing, ranks, assign_settings(config))
    if gdn_config is None:
        return tuple(found.rank_tokens.tolist())
    placed = _core.gdn(packing, found, recurrent_settings(gdn_config))
    return tuple(placed.model_rows.tolist())


def spec_segments(row: Any) -> tuple[Int64, Int64]:
    """Lengths and parents behind a packed row's attention slices; declines another mask."""
    own: list[tuple[int, int]] = []
    above: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for piece in row.slices:
        q, k = piece.q_range, piece.k_range
        if piece.mask_kind.value == "causal":
            if (q.start, q.end) != (k.start, k.end):
                raise Declined
            own.append((q.start, q.end))
        else:
            above.setdefault((q.start, q.end), set()).add((k.start, k.end))
    index = {span: i for i, span in enumerate(own)}
    parents: list[int] = []
    ancestors: list[frozenset[tuple[int, int]]] = []
    end = 0
    for span in own:
        if span[0] != end or span[1] <= end:
            raise Declined
        end = span[1]
        mine = frozenset(above.pop(span, ()))
        parent = index.get(max(mine), -1) if mine else -1
        if not 0 <= parent < len(parents) and mine:
            raise Declined
        if mine and mine != ancestors[parent] | {own[parent]}:
            raise Declined
        parents.append(parent)
        ancestors.append(mine)
    if above or end != row.valid_tokens or not own or len(index) != len(own):
        raise Declined
    spans = np.asarray(own, dtype=np.int64)
    return spans[:, 1] - spans[:, 0], np.asarray(parents, dtype=np.int64)


def seams(packs: Packs, runtime: Any, gdn: Any) -> list[Seam]:
    """Assignment, rank rows and the recurrent decision."""
    torch = packs.torch

    def assignment(_: Function) -> Function:
        def ours(spec: Any, *, topology: Any, config: Any) -> Any:
            if len(spec.rows) != 1:
                raise Declined
            row = spec.rows[0]
            lengths, parents = spec_segments(row)
            ranks = max(int(topology.cp), 1)
            packing = _core.Packing.from_segments(lengths, parents)
            found = _core.own(packing, ranks, assign_settings(config))
            tokens, size = found.tokens, found.chunk
            chunks = tuple(
                runtime.TokenRange(start, min(start + size, tokens))
                for start in range(0, tokens, size)
            )
            return row, chunks, tuple(found.owners.tolist()), tuple(found.stages.tolist())

        return ours

    def counts(_: Function) -> Function:
        def ours(
            *,
            group_ids: Any,
            parent_ids: Any,
            topology: Any,
            config: Any,
            original_seq_len: int,
            build_gdn_execution_spec: bool,
            gdn_planner_config: Any = None,
        ) -> tuple[int, ...]:
            del original_seq_len
            lengths, parents = parsed(group_ids, parent_ids, torch)
            recurrent = None
            if build_gdn_execution_spec:
                recurrent = gdn_planner_config or gdn.GdnPlannerConfig()
            return rank_rows(lengths, parents, max(int(topology.cp), 1), config, recurrent)

        return ours

    def busiest(original: Function) -> Function:
        def ours(self: Any, batch: Any, *, topology: Any) -> int:
            ranks = int(topology.cp)
            if ranks <= 1 or type(batch) is not packs.pack_class:
                found: int = original(self, batch, topology=topology)
                return found
            return _busiest_rows(self, batch, ranks)

        return ours

    def decision(_: Function) -> Function:
        def ours(
            spec: Any,
            *,
            cp_size: int = 1,
            attention_token_layout_index: Any = None,
            planner_config: Any = None,
        ) -> Any:
            config = planner_config or gdn.GdnPlannerConfig()
            return _decide(gdn, spec, int(cp_size), attention_token_layout_index, config)

        return ours

    return [
        Seam("assignment", RUNTIME, "_runtime_plan_assignment", assignment, "assignment"),
        Seam(
            "rows of each rank",
            RUNTIME,
            "context_parallel_rank_model_token_counts",
            counts,
            "rank rows",
        ),
        Seam("busiest rank", IMPL, "TrainerRank._max_rank_model_tokens", busiest, "rank rows"),
        Seam(
            "recurrent decision", GDN, "build_gdn_global_execution_decision", decision, "recurrent"
        ),
    ]


def _busiest_rows(rank: Any, batch: Any, ranks: int) -> int:
    """Rows of the busiest rank of one of our packed rows, remembered with it."""
    from art.megatron.training.microbatches import (
        _context_parallel_config_for_provider,
        _gdn_planner_config_for_provider,
    )

    handler, provider = rank.runtime.model_support_handler, rank.runtime.provider
    config = _context_parallel_config_for_provider(provider, rank.device, handler)
    recurrent = None
    if handler.build_gdn_execution_spec:
        recurrent = _gdn_planner_config_for_provider(provider, handler)
        if recurrent is None:
            raise Declined
    known = batch.__dict__.setdefault("_rank_rows", {})
    key = (ranks, config, recurrent)
    if key not in known:
        packing = batch._packing
        known[key] = max(rank_rows(packing.lengths, packing.parents, *key))
    found: int = known[key]
    return found


def _decide(gdn: Any, spec: Any, ranks: int, layout: Any, config: Any) -> Any:
    """The other package's decision, from our placement of its segments."""
    segments, parents = spec.tree_segments, spec.tree_parent_indices
    count = len(segments)
    if (
        ranks < 1
        or spec.batch_size != 1
        or not count
        or len(parents) != count
        or len(spec.tree_depths) != count
        or any(s.family_index != i for i, s in enumerate(segments))
    ):
        raise Declined
    source = gdn._attention_source_layout(spec, cp_size=ranks, attention_token_layout_index=layout)
    chunk, owners = _chunks(source, ranks)
    packing = _core.Packing.from_segments([s.end - s.start for s in segments], list(parents))
    ownership = _core.Ownership.from_owners(packing, ranks, chunk, owners)
    made = _core.gdn(packing, ownership, recurrent_settings(config))
    tokens, owner, chained = made.rank_tokens, made.owner, made.chained
    parts = _Parts(segments, spec.tree_depths, ranks, owner.tolist(), chained.tolist())
    parts.fill(parents, made.shards.ravel().tolist())
    return gdn.GdnGlobalExecutionDecision(
        cp_size=ranks,
        source_layout=source,
        depth_count=parts.depth_count,
        gdn_token_counts_by_rank=tuple(tokens.tolist()),
        owner_by_node=tuple(owner.tolist()),
        chained_nodes=tuple(chained.tolist()),
        tree_has_children=tuple(parts.has_children),
        gdn_ranges_by_rank_by_position=tuple(map(tuple, parts.ranges)),
        gdn_ranges_by_rank_by_source=tuple(tuple(sorted(ranges)) for ranges in parts.ranges),
        segments_by_rank_depth=tuple(tuple(map(tuple, depths)) for depths in parts.local),
        chain_segments_by_depth=tuple(map(tuple, parts.chains)),
        cross_rank_token_count=made.cross_tokens,
    )


def _chunks(layout: Any, ranks: int) -> tuple[int, Int64]:
    """Chunk size and owners behind a token layout; declines one without equal chunks."""
    pieces = sorted(
        (start, end, rank)
        for rank, ranges in enumerate(layout.ownership_ranges_by_rank)
        for start, end, _ in ranges
    )
    if not pieces or len(layout.ownership_ranges_by_rank) != ranks:
        raise Declined
    size = pieces[0][1] - pieces[0][0]
    last = len(pieces) - 1
    for i, (start, end, _) in enumerate(pieces):
        if start != i * size or (
            end != start + size and (i < last or not start < end < start + size)
        ):
            raise Declined
    return size, np.asarray([rank for _, _, rank in pieces], dtype=np.int64)


class _Parts:
    """What each rank runs, listed in depth-first order of the segments."""

    def __init__(
        self,
        segments: Sequence[Any],
        depths: Sequence[int],
        ranks: int,
        owner: list[int],
        chained: list[bool],
    ) -> None:
        self.segments, self.depths, self.ranks = segments, depths, ranks
        self.owner, self.chained = owner, chained
        self.depth_count = max(depths) + 1
        self.has_children = [False] * len(segments)
        self.ranges: list[list[tuple[int, int, int]]] = [[] for _ in range(ranks)]
        self.held = [0] * ranks
        self.local: list[list[list[Any]]] = [
            [[] for _ in range(self.depth_count)] for _ in range(ranks)
        ]
        self.chains: list[list[Any]] = [[] for _ in range(self.depth_count)]

    def fill(self, parents: Sequence[int], shards: list[int]) -> None:
        children: list[list[int]] = [[] for _ in self.segments]
        roots = []
        for node, parent in enumerate(parents):
            if parent < 0:
                roots.append(node)
            else:
                children[parent].append(node)
                self.has_children[parent] = True
        first_shard: dict[int, int] = {}
        for node in range(len(self.segments)):
            if self.chained[node]:
                first_shard[node] = len(first_shard) * self.ranks
        stack = roots[::-1]
        while stack:
            node = stack.pop()
            stack += children[node][::-1]
            segment, depth = self.segments[node], self.depths[node]
            if not self.chained[node]:
                rank = self.owner[node]
                self.local[rank][depth].append(segment)
                self._run(rank, segment.start, segment.end)
                continue
            self.chains[depth].append(segment)
            start = segment.start
            for rank in range(self.ranks):
                end = start + shards[first_shard[node] + rank]
                self._run(rank, start, end)
                start = end

    def _run(self, rank: int, start: int, end: int) -> None:
        self.ranges[rank].append((start, end, self.held[rank]))
        self.held[rank] += end - start
