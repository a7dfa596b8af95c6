"""Full recompute: kept layer inputs, their gradient, first-call buffers."""

from __future__ import annotations

from waveplan.pricing.ruleset import REFERENCE, Definition, Rule

TABLE = [
    Definition("has_gradient", "max_packs(gradient)", "1 if any pack computes gradients"),
    Definition(
        "shard_tokens",
        "ceildiv(local_tokens, sp)",
        "tokens of one tensor-parallel shard of a pack",
        reference="ceildiv(local_tokens, tp)",
    ),
    Definition(
        "recompute_one_layer",
        "recompute_full and recompute_uniform and recompute_num_layers == 1",
        "full recompute, uniform, a boundary before every layer",
    ),
    Definition(
        "tp_sp",
        "tp > 1 and moe_layers == 0",
        "dense models under tensor parallelism",
        reference="(tp == 2 or tp == 4) and sequence_parallel and cp == 1 and moe_layers == 0 and"
        " (attention_layers == 0 or kv_groups >= tp)",
    ),
    Definition(
        "dense_cp",
        "cp > 1 and tp == 1 and moe_layers == 0",
        "dense models under context parallelism",
        reference="(cp == 2 or cp == 4 or cp == 8) and tp == 1 and moe_layers == 0 and lora_fc1",
    ),
    Definition(
        "checkpoint_holds",
        "recompute_one_layer and dtype_bytes == 2 * B and (tp == 1 or tp_sp)",
        "where the saved boundaries of full recompute are priced",
        reference="recompute_one_layer and pp == 1 and dtype_bytes == 2 * B and (tp == 1 or tp_sp)",
    ),
    Definition(
        "traced",
        "pp == 1 and (tp == 1 and (cp == 1 or cp == 2 or cp == 4) and ep <= 2 if moe_layers > 0"
        " else tp == 1 and cp == 2 and lora_fc1 or (tp == 2 or tp == 4) and sequence_parallel and"
        " cp == 1 and (attention_layers == 0 or kv_groups >= tp))",
        "where full recompute was measured: MoE models at CP 1, 2 and 4, dense ones at CP 2, and at"
        " TP 2 and TP 4 with sequence parallelism",
        reference="1",
    ),
    Rule(
        "generic.activations",
        "ceildiv(retained_tokens, sp) * hidden * dtype_bytes * min(16, max(4, layers // 4 + 4))",
        applies="not derived",
        why="a few hidden vectors per local token and four layers",
        source=f"{REFERENCE}, which charges all ranks' tokens to each, and does not divide them"
        " under sequence parallelism; reproduces two public refusals at CP 1",
        reference={
            "bytes": "packed_tokens * hidden * dtype_bytes * min(16, max(4, layers // 4 + 4))"
        },
    ),
    Rule(
        "checkpoint.retained",
        "sum_packs(shard_tokens * held_layers * hidden * dtype_bytes if gradient else 0)",
        where="checkpoint_holds",
        checked="traced",
        applies="recompute_full and not derived",
        lives="retained",
        why="the input of every layer, kept for its recomputation",
        source="traced at TP 2, TP 4 and CP 2, equal to the byte",
        reference={
            "bytes": "sum_packs(shard_tokens * layers * hidden * dtype_bytes if gradient else 0)"
        },
    ),
    Rule(
        "checkpoint.no_grad_tokens",
        "0 if gradient else 4 * local_tokens * hidden * dtype_bytes",
        where="checkpoint_holds",
        checked="traced",
        applies="recompute_full and not derived",
        why="decoder input, layer input, residual and norm output beside a layer's MoE stage",
        source=REFERENCE,
    ),
    Rule(
        "checkpoint.input_gradient",
        "max_packs(shard_tokens * hidden * dtype_bytes if gradient else 0) if moe_layers == 0 or"
        " moe_recomputed else checkpoint.retained",
        where="checkpoint_holds",
        checked="traced",
        applies="recompute_full and backward and not derived",
        lives="gradient",
        why="gradient of one boundary; as large as all where the layer's parts are not priced",
        source="observed peaks grow by one boundary a layer, not two",
        reference={
            "bytes": "checkpoint.retained if tp == 1 and not dense_cp else"
            " max_packs(shard_tokens * hidden * dtype_bytes if gradient else 0)",
            "applies": "recompute_full",
        },
    ),
    Rule(
        "checkpoint.first_call",
        "(64 * MiB if tp == 1 else 96 * MiB) if cold and has_gradient else 0",
        where="checkpoint_holds",
        checked="traced",
        applies="recompute_full and backward and not derived",
        lives="gradient",
        why="rotary tables, a frozen linear output and kernel workspaces of the first call",
        source="measured at 2,000 to 20,000 tokens, CP 2, and under TP x SP",
        reference={"applies": "recompute_full"},
    ),
]
