"""Gated-delta-net layers: what one layer saves until its backward, and segment states."""

from __future__ import annotations

from waveplan.rules.checkpoint import PUBLISHED
from waveplan.rules.ruleset import Rule

DEFINITIONS = {
    "conv": (
        "2 * gdn_key_heads * gdn_key_dim + gdn_value_heads * gdn_value_dim",
        "channels of the short convolution",
    ),
    "state": (
        "4 B * gdn_value_heads * gdn_key_dim * gdn_value_dim"
        " + dtype_bytes * conv * max(0, gdn_conv - 1)",
        "one recurrent state (fp32) with its convolution history",
    ),
    "segment_layer": (
        "ceildiv(2 * state, tp) if gdn_layers > 0 else 0",
        "initial and final state of one segment in one layer",
    ),
    "executed_row": (
        "dtype_bytes * (2 * gdn_value_heads * gdn_key_dim + gdn_value_heads * gdn_value_dim"
        " + gdn_value_heads + 64 * gdn_value_heads + conv) + 12 B * gdn_value_heads",
        "saved per executed row: q, k, v, gates, chunk matrix, convolution input, norms",
    ),
    "output_row": (
        "dtype_bytes * gdn_value_heads * gdn_value_dim + 4 B * gdn_value_heads"
        " + (dtype_bytes * (gdn_value_heads * gdn_value_dim + output_lora_rank)"
        " if output_lora_rank > 0 else 0)",
        "saved per packed row: the output norm and the output adapter's input and rank",
    ),
    "gdn_covered": (
        "recompute_one_layer and dtype_bytes == 2 B and tp == 1 and cp == 1 and pp == 1"
        " and ep == 1 and etp == 1 and (moe_layers == 0 or moe_covered)",
        "where the recurrent layers' pending saves are priced",
    ),
}

RULES = [
    Rule(
        "gdn.pending",
        "gdn_executed_rows * executed_row + gdn_packed_rows * output_row + gdn_state_rows * state",
        covers="full recompute (uniform, one layer), bf16, TP=CP=PP=EP=ETP=1",
        coverage="gdn_covered",
        needed="gdn_layers > 0 and recompute_full and not (tp_sp or dense_cp)",
        why="saves of the recurrent mixer being recomputed, beside its MoE stage",
        source=f"{PUBLISHED}; bucket schedule of 64-row chunks, tails replayed in every child",
    ),
    Rule(
        "gdn.segment_states",
        "(sum_groups(segments if gradient else 0) + (tp - 1) * sum_groups(gradient))"
        " * segment_layer if has_gradient else 0",
        covers="full recompute, dense models: TP x SP at TP=2 or 4 and CP=1, or CP=2, 4 or 8 with "
        "FC1 adapters",
        coverage="checkpoint_covered and (tp_sp or dense_cp)",
        needed="gdn_layers > 0 and recompute_full and moe_layers == 0 and (tp > 1 or cp > 1)",
        why="recurrent states of each segment in the layer being recomputed; padding adds roots",
        source=PUBLISHED,
    ),
]
