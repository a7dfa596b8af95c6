"""Convert the other package's configurations to our settings of ownership and of gdn layers."""

from __future__ import annotations

import functools
from typing import Any

from waveplan._core import GdnSettings, OwnershipSettings, StageWork, WorkloadProfile

from ._seams import Declined

OWNERSHIP_NAMES = {
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
GDN_NAMES = {
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
ZERO = (
    "runtime_layout_collective_latency_ms",
    "runtime_cp_summary_collective_latency_ms",
    "runtime_parent_state_latency_ms",
)
"""Latencies that our model of time lacks; the package's own configurations set them to zero."""


def _named(source: Any, names: dict[str, str]) -> dict[str, Any]:
    return {ours: getattr(source, theirs) for ours, theirs in names.items()}


@functools.lru_cache(maxsize=256)
def ownership_settings(config: Any) -> OwnershipSettings:
    """Convert a frozen configuration of context parallelism."""
    profile = config.workload_profile
    if profile is not None:
        stages = tuple(StageWork(**_named(stage, STAGE_NAMES)) for stage in profile.stages)
        profile = WorkloadProfile(stages=stages, **_named(profile, PROFILE_NAMES))
    return OwnershipSettings(**_named(config, OWNERSHIP_NAMES), profile=profile)


@functools.lru_cache(maxsize=256)
def gdn_settings(config: Any) -> GdnSettings:
    """Convert a configuration of gdn layers; decline one with a latency of `ZERO`."""
    if any(getattr(config, name) for name in ZERO):
        raise Declined
    return GdnSettings(**_named(config, GDN_NAMES))
