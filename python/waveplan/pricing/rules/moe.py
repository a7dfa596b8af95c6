"""Mixture-of-experts layers: routed tokens, shared experts, converted adapter slots."""

from __future__ import annotations

from waveplan.pricing.ruleset import NOTHING, REFERENCE, Definition, Rule

TABLE = [
    Definition(
        "moe_holds",
        "tp == 1 and etp == 1 and (dispatcher_alltoall if ep == 1 else dispatcher_hybridep)",
        "where the routed working set is measured",
    ),
    Definition(
        "routed_per_token",
        "topk if ep == 1 or routing_balanced else topk * ep if routing_worst else ceildiv(3 *"
        " topk, 2)",
        "routed tokens of one token on its rank: at EP > 1 its share, one and a half times that,"
        " or those of all ranks",
        reference="topk if ep == 1 else ceildiv(3 * topk, 2)",
    ),
    Definition(
        "routed_width",
        "expert_ffn + 5 * hidden + fc1_out if fused_fc1 else expert_ffn + 3 *"
        " hidden if expert_path_known else 2 * hidden",
        "features live at the FC2 sum: input, base, adapter and sum; both dispatched inputs"
        " and the gate/up sum when FC1 is the fused adapter path",
    ),
    Definition(
        "routed_size",
        "routed_per_token * dtype_bytes",
        "bytes of one feature of a token's routed tokens",
    ),
    Definition(
        "slot_rank",
        "adapter_rank if adapter_rank > 0 else lora_rank",
        "rank of the pack's adapter slot",
    ),
    Definition("kernel_rank", "max(8, slot_rank)", "rank after padding for the grouped kernel"),
    Definition(
        "fc1_kernel_rank",
        "kernel_rank if expert_fc1_known else 0",
        "padded rank of the fused FC1 adapter; 0 if it is not known",
    ),
    Definition(
        "fc1_out",
        "fc1_widths * expert_ffn",
        "width of the fused gate/up output",
        reference="2 * expert_ffn",
    ),
    Definition(
        "fc2_transposes",
        "experts_per_rank * kernel_rank * (expert_ffn + hidden) * dtype_bytes",
        "transposed copies of FC2's adapter weights",
    ),
    Definition("fc2_padding", "0 if slot_rank >= 8 else fc2_transposes", "padded copies of them"),
    Definition(
        "fc1_transposes",
        "experts_per_rank * kernel_rank * (hidden + fc1_out) * dtype_bytes",
        "transposed copies of FC1's adapter weights",
    ),
    Definition("fc1_padding", "0 if slot_rank >= 8 else fc1_transposes", "padded copies of them"),
    Definition(
        "saved_rank",
        "fc1_kernel_rank if gradient else 0",
        "rank temporary of FC1 that a gradient pack keeps",
    ),
    Definition(
        "saved_padding",
        "fc1_padding if gradient and expert_fc1_known else 0",
        "padded FC1 weights that a gradient pack keeps",
    ),
    Definition(
        "moe_routed",
        "moe.routed_tokens + moe.shared_expert_return",
        "expert tokens and the shared expert's result",
    ),
    Definition(
        "fc1_stages",
        "max(local_tokens * routed_size * (2 * hidden + 2 * fc1_out + fc1_kernel_rank) +"
        " moe.shared_expert_return + fc1_padding + fc1_transposes, local_tokens *"
        " routed_size * (2 * hidden + 3 * fc1_out + saved_rank) + moe.shared_expert_return"
        " + saved_padding)",
        "the fused FC1 adapter while it runs, then while its sum is formed",
    ),
    Definition(
        "fc2_running",
        "moe_routed + local_tokens * routed_size * (kernel_rank + saved_rank - hidden) +"
        " fc2_padding + fc2_transposes + saved_padding",
        "FC2's adapter while it runs: the sum does not exist yet, its temporaries do",
    ),
    Definition(
        "fc2_returned",
        "moe_routed + local_tokens * routed_size * (kernel_rank + saved_rank) +"
        " fc2_padding + saved_padding",
        "after FC2 returned, with what backward keeps",
    ),
    Definition(
        "fc2_backward",
        "local_tokens * routed_size * (2 * expert_ffn + 2 * hidden + 2 * kernel_rank +"
        " fc1_kernel_rank) + fc2_padding + fc2_transposes + saved_padding +"
        " experts_per_rank * slot_rank * dtype_bytes * (expert_ffn + (hidden if"
        " experts_per_rank > 1 else 0)) + 8 * B * (experts_per_rank + 1)",
        "FC2's backward with padded ranks: nominal beside padded gradients",
    ),
    Definition(
        "slot_rank_known",
        "lora_rank > 0 and lora_rank < 8 or lora_rank // 8 * 8 == lora_rank",
        "the grouped kernel takes ranks below 8 or multiples of 8",
    ),
    Definition(
        "moe_recomputed",
        "recompute_one_layer and dtype_bytes == 2 * B and moe_layers > 0 and moe_holds",
        "where the parts of a recomputed MoE layer are priced",
        reference="recompute_one_layer and pp == 1 and dtype_bytes == 2 * B and moe_layers > 0 and"
        " moe_holds",
    ),
    Rule(
        "moe.routed_tokens",
        "local_tokens * routed_per_token * routed_width * dtype_bytes",
        where="moe_holds",
        checked="pp == 1 and (cp == 1 or cp == 2 or cp == 4) and ep <= 2",
        applies="moe_layers > 0 and not derived",
        why="one expert layer at its widest: dispatched inputs, FC1 sum, FC2 base, adapter, sum",
        source="measured at 11,792 of 11,776 priced features a routed token (CP 2); 1.35 times"
        " balanced tokens on the busiest rank of a pretrained CP 2 / EP 2 run, charged"
        " 1.5",
    ),
    Rule(
        "moe.shared_expert_return",
        "local_tokens * hidden * dtype_bytes * (2 if shared_gate and gradient else 1)",
        where="tp == 1 and etp == 1 and gated_mlp and silu and not shared_overlap and not"
        " shared_recompute",
        checked="pp == 1 and (cp == 1 or cp == 2 or cp == 4) and ep <= 2",
        applies="shared_ffn > 0 and not derived",
        why="the shared expert's result, held across the routed compute; a gate saves it twice",
        source="measured at CP 1, CP 2 and CP 2 / EP 2: the same bytes per local token",
        reference={
            "where": "tp == 1 and pp == 1 and etp == 1 and gated_mlp and silu and not"
            " shared_overlap and not shared_recompute",
        },
    ),
    Rule(
        "moe.slot_stages",
        "max(fc2_running, fc1_stages if fused_fc1 and expert_fc1_known else 0, fc2_returned"
        " if gradient else 0, fc2_backward if gradient and expert_fc1_known and slot_rank <"
        " 8 else 0) if local_tokens > 0 else 0",
        where="moe_holds and slot_rank_known",
        applies="moe_layers > 0 and expert_slots and not derived",
        why="expert adapters converted for the grouped kernel: transposed and padded copies",
        source=REFERENCE,
    ),
    Rule(
        "moe.router_state",
        "local_tokens * (4 * B * experts + B * experts + 4 * B * (2 * experts + 1) + 3 *"
        " shared_ffn * dtype_bytes)",
        where="moe_holds",
        checked="ep == 1 and (cp == 1 or cp == 2 or cp == 4)",
        applies="moe_layers > 0 and not derived",
        why="router scores (fp32), routing map, token map; shared FC1 sum and unit output",
        source="traced: 3,332 bytes a token at 256 experts, and 3,072 of the shared expert",
        reference=NOTHING,
    ),
]
