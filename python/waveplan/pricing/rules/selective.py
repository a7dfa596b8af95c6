"""Selective recompute and none: activations of every layer kept until backward."""

from __future__ import annotations

from waveplan.pricing.ruleset import NOTHING, REFERENCE, Definition, Rule

TABLE = [
    Definition(
        "kept_common",
        "2 * hidden * (tp // sp) + (hidden * tp if sp > 1 else 0)",
        "TP times the features both halves of a layer keep: input and norm, gathered under SP",
    ),
    Definition(
        "kept_attention",
        "kept_common + (7 if attention_gate else 5) * heads * head_dim + 3 * kv_groups *"
        " head_dim + (((2 if attention_gate else 1) * heads * head_dim + 2 * kv_groups *"
        " head_dim) * (tp - 1) if kv_groups < tp else 0)",
        "TP times the features an attention layer keeps; replicated QKV below one KV head a rank",
    ),
    Definition(
        "kept_gdn",
        "kept_common + 4 * gdn_key_heads * gdn_key_dim + 8 * gdn_value_heads * gdn_value_dim",
        "TP times the features a gdn layer keeps",
    ),
    Definition(
        "moe_ffn_width",
        "topk * expert_ffn + shared_ffn if topk * expert_ffn + shared_ffn > 0 else ffn",
        "expert features of one token",
    ),
    Definition(
        "kept_mlp",
        "kept_common + ((tp // sp * etp * (6 * topk * expert_ffn + 2 * hidden * max(0,"
        " topk - 1)) + 6 * shared_ffn if routing_balanced else tp * (6 * moe_ffn_width + 2"
        " * hidden * max(0, topk - 1))) if experts > 0 else kept_activation * ffn)",
        "TP times the features an MLP or MoE layer keeps",
        reference="kept_common + (tp * (6 * moe_ffn_width + 2 * hidden * max(0, topk - 1))"
        " if experts > 0 else activation * ffn)",
    ),
    Definition(
        "recomputed_mlps",
        "(moe_layers if recompute_moe else 0) if experts > 0 else (layers if recompute_mlp else 0)",
        "layers whose MLP is recomputed in backward",
    ),
    Definition(
        "kept_mlps",
        "layers * kept_mlp - max(0, recomputed_mlps - 1) * (kept_mlp - (2 if"
        " experts > 0 else 1) * hidden * (tp // sp))",
        "TP times the features of all MLPs; recomputed ones but one keep their input only",
    ),
    Definition(
        "kept_tokens",
        "packed_tokens if experts > 0 and ep > 1 and not routing_balanced else retained_tokens",
        "tokens of the busiest rank; all packed tokens with experts, whose routing is unknown",
        reference="packed_tokens if experts > 0 else retained_tokens",
    ),
    Definition(
        "kept_activation",
        "3 if compiled and activation == 5 else activation",
        "FFN widths that a dense unit keeps: a compiled one fuses its parts and keeps gate, up"
        " and product, as a native one does",
    ),
    Definition(
        "kept_mixers",
        "(layers - min(layers, gdn_layers)) * kept_attention + min(layers, gdn_layers) * kept_gdn",
        "TP times the features of all mixers, which see a rank's own tokens whatever experts do",
    ),
    Rule(
        "selective.activations",
        "ceildiv(retained_tokens * kept_mixers + kept_tokens * kept_mlps, tp) * dtype_bytes"
        " if has_gradient else 0",
        where="pp == 1",
        checked="mla == 0 and cp <= 2 and (tp == 1 or sequence_parallel and cp == 1) and"
        " (experts == 0 or ep > 1 and tp == ep)",
        applies="not recompute_full",
        lives="retained",
        why="what every layer keeps for its backward",
        source="held against eager and compiled runs: dense models at TP 1 with CP 2, and at"
        " TP 2, 4 and 8 with sequence parallelism; MoE models at TP 4 with EP 4",
        reference={
            "bytes": "ceildiv(kept_tokens * (kept_mixers + kept_mlps), tp) * dtype_bytes"
            " if has_gradient else 0",
            "checked": "pp == 1 and (experts == 0 or ep == 1)",
        },
    ),
    Rule(
        "selective.first_call",
        "64 * MiB if has_gradient else 0",
        where="pp == 1",
        applies="not recompute_full",
        why="kernel initialization of the first eager call",
        source="measured: 58 MiB",
    ),
    Rule(
        "selective.segment_states",
        "sum_packs(segments if gradient else 0) * gdn_layers * segment_layer",
        where="pp == 1",
        applies="not recompute_full and gdn_layers > 0",
        lives="retained",
        why="initial and final gdn state of every segment in every gdn layer",
        source=REFERENCE,
    ),
    Rule(
        "selective.first_use",
        "64 * MiB if cold and has_gradient else 0",
        where="pp == 1",
        applies="not recompute_full",
        why="buffers of a first backward, visible below 500 tokens",
        source="first calls of 110 to 256 tokens peak by up to one more such block",
        reference=NOTHING,
    ),
]
