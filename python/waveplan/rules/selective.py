"""Selective recompute and none: activations of every layer kept until backward."""

from __future__ import annotations

from waveplan.rules.checkpoint import PUBLISHED
from waveplan.rules.ruleset import Rule

# Features are multiplied by TP throughout, so that only the last division rounds.
DEFINITIONS = {
    "kept_common": (
        "2 * hidden * (tp // sp) + (hidden * tp if sp > 1 else 0)",
        "TP times the features both halves of a layer keep: input and norm, gathered under SP",
    ),
    "kept_attention": (
        "kept_common + (7 if attention_gate else 5) * heads * head_dim + 3 * kv_groups * head_dim"
        " + (((2 if attention_gate else 1) * heads * head_dim + 2 * kv_groups * head_dim)"
        " * (tp - 1) if kv_groups < tp else 0)",
        "TP times the features an attention layer keeps; replicated QKV below one group a rank",
    ),
    "kept_gdn": (
        "kept_common + 4 * gdn_key_heads * gdn_key_dim + 8 * gdn_value_heads * gdn_value_dim",
        "TP times the features a recurrent layer keeps",
    ),
    "moe_ffn_width": (
        "topk * expert_ffn + shared_ffn if topk * expert_ffn + shared_ffn > 0 else ffn",
        "expert features of one token",
    ),
    "kept_mlp": (
        "kept_common + (tp * (6 * moe_ffn_width + 2 * hidden * max(0, topk - 1))"
        " if experts > 0 else activation * ffn)",
        "TP times the features an MLP or MoE layer keeps",
    ),
    "recomputed_mlps": (
        "(moe_layers if recompute_moe else 0) if experts > 0 else (layers if recompute_mlp else 0)",
        "layers whose MLP is recomputed in backward",
    ),
    "kept_features": (
        "(layers - min(layers, gdn_layers)) * kept_attention + min(layers, gdn_layers) * kept_gdn"
        " + layers * kept_mlp - max(0, recomputed_mlps - 1)"
        " * (kept_mlp - (2 if experts > 0 else 1) * hidden * (tp // sp))",
        "TP times the features of all layers; recomputed MLPs but one keep their input only",
    ),
    "kept_rows": (
        "packed_tokens if experts > 0 else retained_rows",
        "rows of the busiest rank; all packed tokens with experts, whose routing is unknown",
    ),
}

RULES = [
    Rule(
        "selective.activations",
        "ceildiv(kept_rows * kept_features, tp) * dtype_bytes if has_gradient else 0",
        covers="dense and MoE models, PP=1",
        coverage="pp == 1",
        measured="pp == 1 and (experts == 0 or ep == 1)",
        needed="not recompute_full",
        lives="retained",
        why="what every layer keeps for its backward",
        source="held against eager and compiled runs of dense models at TP 1, 2 and 4",
    ),
    Rule(
        "selective.first_call",
        "64 MiB if has_gradient else 0",
        covers="dense and MoE models, PP=1",
        coverage="pp == 1",
        needed="not recompute_full",
        lives="workspace",
        why="kernel initialization of the first eager call",
        source="measured: 58 MiB",
    ),
    Rule(
        "selective.segment_states",
        "sum_groups(segments if gradient else 0) * gdn_layers * segment_layer",
        covers="dense and MoE models, PP=1",
        coverage="pp == 1",
        needed="not recompute_full and gdn_layers > 0",
        lives="retained",
        why="initial and final recurrent state of every segment in every recurrent layer",
        source=PUBLISHED,
    ),
]
