"""Dense layers: stages without gradients, and the recomputed layer under TP x SP and CP."""

from __future__ import annotations

from waveplan.pricing.ruleset import Definition, Rule

TABLE = [
    Definition(
        "attention_width",
        "(7 if attention_gate else 5) * heads * head_dim + 3 * key_features",
        "features of an attention layer's projections and their copies",
        reference="(7 if attention_gate else 5) * heads * head_dim + 3 * kv_groups * head_dim",
    ),
    Definition(
        "gdn_width",
        "4 * gdn_key_heads * gdn_key_dim + 8 * gdn_value_heads * gdn_value_dim",
        "features of a gdn layer's projections and their copies",
    ),
    Definition(
        "fc1_stage",
        "(max(7 if dense_cp else 6, activation) if gated_mlp else 4 if dense_cp else 3) * ffn",
        "features live in the MLP's first stage",
        reference="max(6, activation) * ffn",
    ),
    Definition(
        "attention_peak",
        "local_tokens * ceildiv(attention_width, tp) + (1 - attention_gap) * shard_tokens"
        " * hidden if attention_layers > 0 else 0",
        "the highest attention layer: its projections, and boundaries still held below it",
    ),
    Definition(
        "gdn_peak",
        "local_tokens * ceildiv(gdn_width, tp) + (1 - gdn_gap) * shard_tokens * hidden if"
        " gdn_layers > 0 else 0",
        "the highest gdn layer",
    ),
    Definition(
        "layer_features",
        "local_tokens * (2 * hidden + ceildiv(fc1_stage, tp)) + shard_tokens * ceildiv(13"
        " * hidden, 4) + max(attention_peak, gdn_peak) + (2 * local_tokens * head_dim if"
        " attention_layers > 0 else 0) + (local_tokens * ceildiv(hidden, 4) if dense_cp"
        " else 0)",
        "the recomputed layer: gathered norm and FC1 stage, norms, mixer, rotary cache",
        reference="local_tokens * (2 * hidden + ceildiv(fc1_stage, tp)) + shard_tokens *"
        " ceildiv(13 * hidden, 4) + max(attention_peak, gdn_peak) + (2 *"
        " local_tokens * head_dim if attention_layers > 0 else 0)",
    ),
    Definition(
        "mixer_modules",
        "max(3 * lora_attention_qkv + lora_attention_proj if attention_layers > 0 else 0,"
        " 2 * lora_gdn_in + lora_gdn_out if gdn_layers > 0 else 0)",
        "adapted modules of one mixer",
    ),
    Definition(
        "layer_modules",
        "mixer_modules + lora_fc1_modules + lora_fc2",
        "adapted modules of one dense layer",
    ),
    Definition(
        "dense_alone",
        "tp == 1 and cp == 1 and moe_layers == 0",
        "dense models whose layers no rank shares",
    ),
    Rule(
        "dense.no_grad_stage",
        "max_packs(0 if gradient else local_tokens * dtype_bytes * (ceildiv((max(6, activation)"
        " if gated_mlp else 3) * ffn, tp) + (4 * hidden if cp == 1 else ceildiv(17 * hidden, 4))))",
        checked="tp == 1 and cp <= 2 and pp == 1 and lora_fc1 and moe_layers == 0",
        applies="dense_layers > 0 and not derived",
        why="FC1 base, adapter and sum beside residual pair, embedding and norm output",
        source="traced at CP 1: 6 ffn + 4 hidden; at CP 2: 4.04 hidden beside 6 ffn",
        reference={
            "bytes": "max_packs(0 if gradient else local_tokens * dtype_bytes * (max(6,"
            " activation) * ffn + 4 * hidden))",
            "where": "tp == 1 and cp == 1 and lora_fc1",
            "checked": "1",
            "applies": "experts == 0 and ffn > 0",
        },
    ),
    Rule(
        "sequence_parallel.workspace",
        "layer_features * dtype_bytes if gradient else 0",
        where="checkpoint_holds and (tp_sp or dense_cp or dense_alone)",
        checked="mla == 0 and gated_mlp and traced",
        applies="moe_layers == 0 and recompute_full and not derived",
        why="the recomputed layer at its FC1 stage",
        source="traced at TP 4 (25,728 tokens) and TP 2 (20,816 to 66,284 tokens), cold and warm",
        reference={
            "where": "checkpoint_holds and (tp_sp or dense_cp)",
            "checked": "1",
            "applies": "moe_layers == 0 and recompute_full and (tp > 1 or cp > 1)",
        },
    ),
    Rule(
        "sequence_parallel.adapter_tokens",
        "max_packs(local_tokens * layer_modules * slot_rank * dtype_bytes * (2 if dense_cp"
        " else 1) if gradient else 0)",
        where="checkpoint_holds and (tp_sp or dense_cp or dense_alone)",
        checked="traced",
        applies="lora and moe_layers == 0 and recompute_full and not derived",
        why="rank-wide intermediates of the recomputed layer's adapters; under CP their"
        " gradients as well",
        source="measured: 16 bytes a token for FC1 gate and up at rank 4",
        reference={
            "where": "checkpoint_holds and (tp_sp or dense_cp)",
            "checked": "1",
            "applies": "lora and moe_layers == 0 and recompute_full and (tp > 1 or cp > 1)",
        },
    ),
]
