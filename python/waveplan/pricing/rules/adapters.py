"""Gradients of adapters that the next backward allocates."""

from __future__ import annotations

from waveplan.pricing.ruleset import Definition, Rule

TABLE = [
    Definition(
        "attention_adapters",
        "lora_attention_qkv * (3 * hidden + ceildiv((1 + attention_gate) * heads *"
        " head_dim + 2 * kv_groups * head_dim, tp)) + lora_attention_proj * (ceildiv(heads"
        " * head_dim, tp) + hidden)",
        "adapter parameters of an attention layer, per rank of the adapter; TP divides the"
        " side that the projection divides",
    ),
    Definition(
        "gdn_adapters",
        "lora_gdn_in * (2 * hidden + ceildiv(conv + gdn_value_heads * gdn_value_dim, tp))"
        " + lora_gdn_out * (ceildiv(gdn_value_heads * gdn_value_dim, tp) + hidden)",
        "adapter parameters of a gdn layer",
    ),
    Definition(
        "mlp_adapters",
        "lora_fc1_modules * (hidden + ceildiv(ffn, tp)) + lora_fc2 * (ceildiv(ffn, tp) + hidden)",
        "adapter parameters of a dense MLP",
    ),
    Definition(
        "expert_adapters",
        "experts_per_rank * (lora_expert_fc1 * (hidden + fc1_out) + lora_expert_fc2"
        " * (expert_ffn + hidden)) + 2 * lora_shared_fc1 * (hidden + shared_ffn) +"
        " lora_shared_fc2 * (shared_ffn + hidden)",
        "adapter parameters of an expert layer",
    ),
    Definition(
        "layer_adapters",
        "(max(attention_adapters if attention_layers > 0 else 0, gdn_adapters if"
        " gdn_layers > 0 else 0) + max(mlp_adapters if dense_layers > 0 else 0,"
        " expert_adapters if moe_layers > 0 else 0)) * slot_rank * dtype_bytes",
        "adapter gradients of the largest layer",
    ),
    Definition(
        "layer_boundary", "shard_tokens * hidden * dtype_bytes", "one saved boundary of a pack"
    ),
    Definition(
        "adapter_net",
        "stage_layers * (layer_adapters - layer_boundary) if gradient else 0",
        "all adapter gradients of a pack less all its boundaries",
        reference="layers * (layer_adapters - layer_boundary) if gradient else 0",
    ),
    Definition(
        "adapter_walk",
        "max(layer_adapters, stage_layers * layer_adapters - (stage_layers - 1) *"
        " layer_boundary) if gradient else 0",
        "the worst layer of a pack's backward: gradients so far less boundaries released",
        reference="max(layer_adapters, layers * layer_adapters - (layers - 1) * layer_boundary) if"
        " gradient else 0",
    ),
    Rule(
        "adapter.gradient",
        "max_packs(adapter_walk - max(0, adapter_net)) + sum_packs(max(0, adapter_net)) if"
        " adapter_pending else 0",
        where="checkpoint_holds",
        checked="traced",
        applies="lora and recompute_full and backward and not derived",
        lives="gradient",
        why="gradients allocated during the first backward, beyond boundaries already released",
        source="measured: 830 to 900 MB at layer 0 (256 experts, rank 8: 23.07 MB a layer)",
        reference={"applies": "lora and recompute_full"},
    ),
]
