"""The recomputed layer of a MoE model, by its parts."""

from __future__ import annotations

from waveplan.pricing.ruleset import NOTHING, Definition, Rule, total

TABLE = [
    Definition(
        "gdn_mixer_features",
        "2 * hidden + 2 * gdn_key_heads * gdn_key_dim + 2 * gdn_value_heads * gdn_key_dim"
        " + 7 * gdn_value_heads * gdn_value_dim + 64 * gdn_value_heads if gdn_layers > 0"
        " else 0",
        "a gdn mixer at its widest moment, its exchange between ranks included",
    ),
    Definition(
        "attention_mixer_features",
        "2 * hidden + ((7 if attention_gate else 5) + 3) * heads * head_dim + 5 *"
        " kv_groups * head_dim if attention_layers > 0 else 0",
        "an attention mixer at its widest moment, its exchange between ranks included",
    ),
    total(
        "layer_stage",
        "max(moe_stage + moe.router_state, layer.dense_stage) + (gdn.pending + mixer.recompute +"
        " layer.norms if gradient else checkpoint.no_grad_tokens)",
        "a pack's recomputed layer: experts and router or a dense unit, mixer and norms; without"
        " gradients beside four tokens",
    ),
    Rule(
        "attention.fetched",
        "max(0, fetched_tokens - (local_tokens if moe_recomputed else 0)) * 2 *"
        " ceildiv(kv_groups, tp) * head_dim * dtype_bytes",
        where="mla == 0",
        applies="cp > 1 and attention_layers > 0",
        why="keys and values that a rank fetches from others in its largest stage; the mixer of a"
        " recomputed MoE layer includes those of as many tokens as are local",
        source="the size of the buffers: two vectors of a KV head's width a token and head",
        reference=NOTHING,
    ),
    Rule(
        "layer.dense_stage",
        "local_tokens * ceildiv(fc1_stage, tp) * dtype_bytes",
        checked="0",
        applies="moe_layers > 0 and dense_layers > 0 and recompute_full and not derived",
        why="the feed-forward unit of a dense layer of a MoE model, in place of the experts",
        source="as in dense models; no record measures it",
        reference=NOTHING,
    ),
    Rule(
        "mixer.recompute",
        "max(0, local_tokens * max(gdn_mixer_features, attention_mixer_features) *"
        " dtype_bytes - gdn.pending)",
        where="moe_recomputed",
        checked="mla == 0 and traced",
        applies="moe_layers > 0 and recompute_full and not derived",
        why="the widest mixer while it is recomputed, beyond a gdn layer's pending saves",
        source="traced at CP 2: attention 94 of 95.2 KB a token, gdn 88 of 94.2 KB",
        reference=NOTHING,
    ),
    Rule(
        "layer.norms",
        "local_tokens * ceildiv(13 * hidden, 4) * dtype_bytes",
        where="moe_recomputed",
        checked="traced",
        applies="moe_layers > 0 and recompute_full and not derived",
        why="norm outputs and residuals of the recomputed layer",
        source="traced: 3.22 hidden vectors a token",
        reference=NOTHING,
    ),
    Rule(
        "cold.first_call",
        "max_packs(local_tokens * hidden * 214000 * B // 2048 if gradient else 0) if cold else 0",
        where="moe_recomputed",
        checked="hidden == 2048 and ep == 1 and traced",
        applies="moe_layers > 0 and recompute_full and backward and not derived",
        lives="gradient",
        why="unexplained: the first gradient call peaks 100 to 214 KB a token above later"
        " ones; the largest measured excess is charged, and nothing once a profile exists",
        source="measured at 49,000 to 195,000 tokens a rank, hidden 2,048; cause unknown",
        from_records=True,
        reference=NOTHING,
    ),
    Rule(
        "cold.libraries",
        "5 * (32 * MiB + 1 * KiB) if cold else 0",
        where="moe_holds",
        applies="moe_layers > 0 and not derived",
        why="library workspaces of four grouped streams and one more, allocated on first use",
        source="constant of the libraries on Hopper: 167,777,280 bytes",
        reference=NOTHING,
    ),
]
