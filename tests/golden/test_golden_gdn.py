"""Every golden placement: tokens, owners, chained segments and moved tokens, exactly."""

from __future__ import annotations

import pytest
from conftest import golden_cases
from slow.gdn import MODEL
from test_golden_ownership import packed
from test_golden_ownership import settings_of as assign_settings

import waveplan
from waveplan import GdnSettings, InputError

NAMES = {
    "cp_chain_beam_width": "beam_width",
    "cp_chain_beam_branch_factor": "branch",
    "cp_chain_beam_candidate_limit": "candidates",
    "cp_chain_beam_max_steps": "max_steps",
    "cp_chain_min_runtime_delta_ms": "min_gain_ms",
    "runtime_layout_bandwidth_bytes_per_ms": "exchange_bandwidth",
    "runtime_local_bucket_launch_ms": "local_bucket_ms",
    "runtime_chain_bucket_launch_ms": "chain_bucket_ms",
    "runtime_cp_suffix_scan_latency_ms": "scan_bucket_ms",
    "runtime_cp_suffix_scan_segments_per_ms": "scan_rate",
}


def settings_of(given: dict) -> GdnSettings:
    """Our settings from the vectors' names."""
    overrides = {NAMES[name]: value for name, value in (given["gdn_planner"] or {}).items()}
    return GdnSettings.from_shape(**(given.get("gdn_shape") or MODEL)).replace(**overrides)


def placed(given: dict):
    """The pack, its ownership and its placement."""
    row = packed(given)
    ownership = waveplan.own(row, given["cp"], assign_settings(given["config"]))
    return row, ownership, waveplan.gdn(row, ownership, settings_of(given))


def test_golden_recurrent():
    cases = golden_cases("b*_gdn_counts.json")
    wrong = {}
    for case in cases:
        given, want = case["input"], case["output"]
        if "error" in want:
            with pytest.raises(InputError):
                placed(given)
            continue
        row, ownership, made = placed(given)
        found = {
            "model_counts": made.model_tokens.tolist(),
            "attention_counts": ownership.rank_tokens.tolist(),
            "gdn_counts": made.rank_tokens.tolist(),
            "owner_by_node": made.owner.tolist(),
            "chained_nodes": made.chained.astype(int).tolist(),
            "cross_rank_tokens": made.cross_tokens,
        }
        if "cp1_executed_rows" in want:
            schedule = waveplan.gdn_schedule(row)
            found["cp1_executed_rows"] = schedule.executed_tokens
            found["cp1_state_rows"] = schedule.states
        differ = [name for name, value in found.items() if value != want[name]]
        if differ:
            wrong[case["id"]] = differ
    assert not wrong, f"{len(wrong)} of {len(cases)} cases differ: {wrong}"
    print(f"{len(cases)} cases equal")
