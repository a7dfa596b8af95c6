"""Dense layers: stages without gradients, and the recomputed layer under TP x SP and CP."""

from __future__ import annotations

from waveplan.rules.checkpoint import PUBLISHED
from waveplan.rules.ruleset import Rule

DEFINITIONS = {
    "attention_width": (
        "(7 if attention_gate else 5) * heads * head_dim + 3 * kv_groups * head_dim",
        "features of an attention layer's projections and their copies",
    ),
    "gdn_width": (
        "4 * gdn_key_heads * gdn_key_dim + 8 * gdn_value_heads * gdn_value_dim",
        "features of a recurrent layer's projections and their copies",
    ),
    "fc1_stage": ("max(6, activation) * ffn", "features live in the MLP's first stage"),
    "attention_peak": (
        "rows * ceildiv(attention_width, tp) + (1 - attention_gap) * shard_rows * hidden"
        " if attention_layers > 0 else 0",
        "the highest attention layer: its projections, and boundaries still held below it",
    ),
    "gdn_peak": (
        "rows * ceildiv(gdn_width, tp) + (1 - gdn_gap) * shard_rows * hidden"
        " if gdn_layers > 0 else 0",
        "the highest recurrent layer",
    ),
    "layer_features": (
        "rows * (2 * hidden + ceildiv(fc1_stage, tp)) + shard_rows * ceildiv(13 * hidden, 4)"
        " + max(attention_peak, gdn_peak)"
        " + (2 * rows * head_dim if attention_layers > 0 else 0)",
        "the recomputed layer: gathered norm and FC1 stage, norms, mixer, rotary cache",
    ),
    "mixer_modules": (
        "max(3 * lora_attention_qkv + lora_attention_proj if attention_layers > 0 else 0,"
        " 2 * lora_gdn_in + lora_gdn_out if gdn_layers > 0 else 0)",
        "adapted modules of one mixer",
    ),
    "layer_modules": (
        "mixer_modules + lora_fc1_modules + lora_fc2",
        "adapted modules of one dense layer",
    ),
}

RULES = [
    Rule(
        "dense.no_grad_stage",
        "max_groups(0 if gradient else"
        " rows * dtype_bytes * (max(6, activation) * ffn + 4 * hidden))",
        covers="dense models, TP=CP=1, FC1 adapters",
        coverage="tp == 1 and cp == 1 and lora_fc1",
        needed="experts == 0 and ffn > 0",
        why="FC1 base, adapter and sum beside residual pair, embedding and norm output",
        source="traced at TP 1, CP 1 from 7,000 to 174,000 rows: 6 ffn + 4 hidden",
    ),
    Rule(
        "sequence_parallel.workspace",
        "layer_features * dtype_bytes if gradient else 0",
        covers="full recompute, dense models: TP=2 or 4 with sequence parallelism at CP=1, or "
        "CP=2, 4 or 8 with FC1 adapters",
        coverage="checkpoint_covered and (tp_sp or dense_cp)",
        needed="moe_layers == 0 and recompute_full and (tp > 1 or cp > 1)",
        why="the recomputed layer at its FC1 stage",
        source="traced at TP 4 (25,728 rows) and TP 2 (20,816 to 66,284 rows), cold and warm",
    ),
    Rule(
        "sequence_parallel.adapter_rows",
        "max_groups(rows * layer_modules * slot_rank * dtype_bytes * (2 if dense_cp else 1)"
        " if gradient else 0)",
        covers="full recompute, dense models: TP=2 or 4 with sequence parallelism at CP=1, or "
        "CP=2, 4 or 8 with FC1 adapters",
        coverage="checkpoint_covered and (tp_sp or dense_cp)",
        needed="lora and moe_layers == 0 and recompute_full and (tp > 1 or cp > 1)",
        why="rank-wide intermediates of the recomputed layer's adapters; under CP their "
        "gradients as well",
        source="measured: 16 bytes a row for FC1 gate and up at rank 4",
    ),
]

__all__ = ["DEFINITIONS", "PUBLISHED", "RULES"]
