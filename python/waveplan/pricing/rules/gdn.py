"""Gated-delta-net layers: what one layer saves until its backward, and segment states."""

from __future__ import annotations

from waveplan.pricing.ruleset import REFERENCE, Definition, Rule

TABLE = [
    Definition(
        "conv",
        "2 * gdn_key_heads * gdn_key_dim + gdn_value_heads * gdn_value_dim",
        "channels of the short convolution",
    ),
    Definition(
        "state",
        "4 * B * gdn_value_heads * gdn_key_dim * gdn_value_dim + dtype_bytes * conv *"
        " max(0, gdn_conv - 1)",
        "one gdn state (fp32) with its convolution history",
    ),
    Definition(
        "segment_layer",
        "ceildiv(2 * state, tp) if gdn_layers > 0 else 0",
        "initial and final state of one segment in one layer",
    ),
    Definition(
        "executed_token",
        "dtype_bytes * (2 * gdn_value_heads * gdn_key_dim + gdn_value_heads *"
        " gdn_value_dim + gdn_value_heads + 64 * gdn_value_heads + conv) + 12 * B *"
        " gdn_value_heads",
        "saved per executed token: q, k, v, gates, chunk matrix, convolution input, norms",
    ),
    Definition(
        "output_token",
        "dtype_bytes * gdn_value_heads * gdn_value_dim + 4 * B * gdn_value_heads +"
        " (dtype_bytes * (gdn_value_heads * gdn_value_dim + output_lora_rank) if"
        " output_lora_rank > 0 else 0)",
        "saved per packed token: the output norm and the output adapter's input and rank",
    ),
    Definition(
        "gdn_holds",
        "recompute_one_layer and dtype_bytes == 2 * B and tp == 1 and (moe_layers == 0 or"
        " moe_holds)",
        "where the gdn layers' pending saves are priced",
        reference="recompute_one_layer and dtype_bytes == 2 * B and tp == 1 and cp == 1 and"
        " pp == 1 and ep == 1 and etp == 1 and (moe_layers == 0 or moe_holds)",
    ),
    Rule(
        "gdn.pending",
        "gdn_rank_executed_tokens * executed_token + gdn_rank_packed_tokens * output_token +"
        " gdn_rank_states * state",
        where="gdn_holds",
        checked="traced",
        applies="gdn_layers > 0 and recompute_full and not (tp_sp or dense_cp) and not derived",
        why="saves of the gdn mixer being recomputed, beside its MoE stage",
        source="saves of the reference at CP 1, over the segments and chain pieces of each rank",
        reference={
            "bytes": "gdn_executed_tokens * executed_token + gdn_packed_tokens * output_token +"
            " gdn_states * state",
            "where": "gdn_holds",
        },
    ),
    Rule(
        "gdn.segment_states",
        "(sum_packs(segments if gradient else 0) + (tp - 1) * sum_packs(gradient)) *"
        " segment_layer if has_gradient else 0",
        where="checkpoint_holds and (tp_sp or dense_cp)",
        checked="traced",
        applies="gdn_layers > 0 and recompute_full and moe_layers == 0 and (tp > 1 or cp > 1) and"
        " not derived",
        why="gdn states of each segment in the layer being recomputed; padding adds roots",
        source=REFERENCE,
    ),
]
