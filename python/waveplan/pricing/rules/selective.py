"""Selective recompute and none: activations of every layer kept until backward."""

from __future__ import annotations

from waveplan.pricing.ruleset import NOTHING, REFERENCE, Definition, Rule

TABLE = [
    Definition(
        "kept_common",
        "(1 if recompute_layernorm else 2) * hidden * (tp // sp) + (hidden * tp if sp > 1 else 0)",
        "TP times the features both halves of a layer keep: input and norm, gathered under SP",
        reference="2 * hidden * (tp // sp) + (hidden * tp if sp > 1 else 0)",
    ),
    Definition(
        "kept_grouped",
        "kept_common + (7 if attention_gate else 5) * heads * head_dim + 3 * kv_groups *"
        " head_dim + (((2 if attention_gate else 1) * heads * head_dim + 2 * kv_groups *"
        " head_dim) * (tp - 1) if kv_groups < tp else 0)",
        "TP times the features a grouped-query layer keeps; replicated QKV below one KV head a"
        " rank",
    ),
    Definition(
        "kept_attention",
        "kept_common + tp * (2 * q_lora_rank + 2 * kv_lora_rank + qk_rope_head_dim) + heads *"
        " ((0 if recompute_mla_up_proj else 2 * (qk_nope_head_dim + qk_rope_head_dim) +"
        " v_head_dim) + v_head_dim) if mla else kept_grouped",
        "TP times the features an attention layer keeps; of a latent one as `kept.latent`",
        reference="kept_grouped",
    ),
    Definition(
        "kept_gdn",
        "kept_common + 4 * gdn_key_heads * gdn_key_dim + 8 * gdn_value_heads * gdn_value_dim",
        "TP times the features a gdn layer keeps",
    ),
    Definition(
        "kept_expert",
        "(fc1_widths if recompute_moe_act else 3 * fc1_widths) * topk * expert_ffn + 2 * hidden *"
        " max(0, topk - 1)",
        "features that the routed experts keep of one token",
    ),
    Definition(
        "kept_shared",
        "0 if recompute_shared_experts else 3 * fc1_widths * shared_ffn",
        "features that the shared expert keeps of one token",
    ),
    Definition(
        "kept_moe",
        "kept_common + (tp // sp * etp * kept_expert + kept_shared if routing_balanced else tp *"
        " (kept_expert + kept_shared))",
        "TP times the features a MoE layer keeps",
    ),
    Definition(
        "kept_mlp",
        "kept_common + kept_activation * ffn",
        "TP times the features an MLP keeps",
        reference="kept_common + (tp * (6 * (topk * expert_ffn + shared_ffn if topk * expert_ffn +"
        " shared_ffn > 0 else ffn) + 2 * hidden * max(0, topk - 1)) if experts > 0 else activation"
        " * ffn)",
    ),
    Definition(
        "recomputed_mlps",
        "held_dense_layers if recompute_mlp else 0",
        "layers whose MLP is recomputed in backward",
        reference="(moe_layers if recompute_moe else 0) if experts > 0 else (layers if"
        " recompute_mlp else 0)",
    ),
    Definition(
        "kept_mlps",
        "held_dense_layers * kept_mlp - max(0, recomputed_mlps - 1) * (kept_mlp - hidden *"
        " (tp // sp))",
        "TP times the features of all MLPs; recomputed ones but one keep their input only",
        reference="layers * kept_mlp - max(0, recomputed_mlps - 1) * (kept_mlp - (2 if"
        " experts > 0 else 1) * hidden * (tp // sp))",
    ),
    Definition(
        "kept_moes",
        "held_moe_layers * kept_moe - (max(0, held_moe_layers - 1) * (kept_moe - 2 * hidden *"
        " (tp // sp)) if recompute_moe else 0)",
        "TP times the features of all MoE layers; recomputed ones but one keep twice their input",
    ),
    Definition(
        "kept_tokens",
        "packed_tokens if ep > 1 and not routing_balanced else retained_tokens",
        "tokens of the busiest expert rank; all packed tokens where routing is unknown",
        reference="packed_tokens if experts > 0 else retained_tokens",
    ),
    Definition(
        "kept_activation",
        "(3 if compiled and activation == 5 else activation) if gated_mlp else 2",
        "FFN widths that a dense unit keeps: gate, up and product, and what an eager one makes on"
        " the way, which a compiled one does not; without a gate its input and result",
    ),
    Definition(
        "kept_mixers",
        "held_attention_layers * kept_attention + held_gdn_layers * kept_gdn",
        "TP times the features of all mixers, which see a rank's own tokens whatever experts do",
        reference="(layers - min(layers, gdn_layers)) * kept_attention + min(layers, gdn_layers) *"
        " kept_gdn",
    ),
    Rule(
        "selective.activations",
        "ceildiv(retained_tokens * (kept_mixers + kept_mlps) + kept_tokens * kept_moes, tp) *"
        " dtype_bytes if has_gradient else 0",
        checked="pp == 1 and mla == 0 and gated_mlp and cp <= 2 and (tp == 1 or sequence_parallel"
        " and cp == 1) and (experts == 0 or ep > 1 and tp == ep and dense_layers == 0)",
        applies="not recompute_full and not derived",
        lives="retained",
        why="what every layer keeps for its backward",
        source="held against eager and compiled runs: dense models at TP 1 with CP 2, and at"
        " TP 2, 4 and 8 with sequence parallelism; MoE models at TP 4 with EP 4",
        reference={
            "bytes": "ceildiv(kept_tokens * (kept_mixers + kept_mlps), tp) * dtype_bytes"
            " if has_gradient else 0",
            "where": "pp == 1",
            "checked": "pp == 1 and (experts == 0 or ep == 1)",
        },
    ),
    Definition(
        "scores",
        "layer_tokens * row_tokens * ceildiv(heads, tp)",
        "attention scores of a layer and pack",
    ),
    Definition(
        "eager_scores_layer",
        "scores * (dtype_bytes + 4 * B + (dtype_bytes + B if attention_dropout else 0))",
        "what plain PyTorch keeps of them",
    ),
    Rule(
        "eager.scores",
        "eager_scores_layer * held_attention_layers if gradient else 0",
        checked="0",
        applies="attention_unfused and attention_layers > 0 and not derived and not (recompute_full"
        " or recompute_core_attn)",
        lives="retained",
        why="softmax of the scores in fp32 and in 16 bits, with dropout also its mask and result",
        source="what plain PyTorch keeps; no record measures it",
        reference=NOTHING,
    ),
    Rule(
        "eager.score_layer",
        "8 * B * scores + (eager_scores_layer if recompute_full or recompute_core_attn else 0) if"
        " gradient else 0",
        checked="0",
        applies="attention_unfused and attention_layers > 0 and not derived",
        why="the layer that runs backward: gradients of its scores on both sides of the softmax,"
        " fp32; its scores where they are recomputed",
        source="what plain PyTorch keeps; no record measures it",
        reference=NOTHING,
    ),
    Rule(
        "eager.dropout",
        "2 * B * shard_tokens * hidden * (1 if recompute_full else held_layers) if gradient else 0",
        checked="0",
        applies="hidden_dropout and not derived",
        lives="retained",
        why="masks of the dropout of both residuals, a byte each",
        source="what plain PyTorch keeps; no record measures it",
        reference=NOTHING,
    ),
    Rule(
        "selective.first_call",
        "64 * MiB if has_gradient else 0",
        checked="pp == 1",
        applies="not recompute_full and not derived",
        why="kernel initialization of the first eager call",
        source="measured: 58 MiB",
        reference={"where": "pp == 1", "checked": "1"},
    ),
    Rule(
        "selective.segment_states",
        "sum_packs(segments if gradient else 0) * held_gdn_layers * segment_layer",
        checked="pp == 1",
        applies="not recompute_full and gdn_layers > 0 and not derived",
        lives="retained",
        why="initial and final gdn state of every segment in every gdn layer",
        source=REFERENCE,
        reference={
            "bytes": "sum_packs(segments if gradient else 0) * gdn_layers * segment_layer",
            "where": "pp == 1",
            "checked": "1",
        },
    ),
    Rule(
        "selective.first_use",
        "64 * MiB if cold and has_gradient else 0",
        checked="pp == 1",
        applies="not recompute_full and not derived",
        why="buffers of a first backward, visible below 500 tokens",
        source="first calls of 110 to 256 tokens peak by up to one more such block",
        from_records=True,
        reference=NOTHING,
    ),
]
