"""What full recompute keeps and recomputes: layer inputs, their gradient, first-call buffers."""

from __future__ import annotations

from waveplan.rules.ruleset import Rule

PUBLISHED = "published planner (openpipe-art 0.5.23)"

DEFINITIONS = {
    "has_gradient": ("max_groups(gradient)", "1 if any group computes gradients"),
    "shard_rows": ("ceildiv(rows, tp)", "rows of one tensor-parallel shard of a group"),
    "recompute_one_layer": (
        "recompute_full and recompute_uniform and recompute_num_layers == 1",
        "full recompute, uniform, a boundary before every layer",
    ),
    "tp_sp": (
        "(tp == 2 or tp == 4) and sequence_parallel and cp == 1 and moe_layers == 0"
        " and (attention_layers == 0 or kv_groups >= tp)",
        "dense models under tensor and sequence parallelism, as traced at TP 2 and TP 4",
    ),
    "dense_cp": (
        "(cp == 2 or cp == 4 or cp == 8) and tp == 1 and moe_layers == 0 and lora_fc1",
        "dense models with FC1 adapters under context parallelism",
    ),
    "checkpoint_covered": (
        "recompute_one_layer and pp == 1 and dtype_bytes == 2 B and (tp == 1 or tp_sp)",
        "where the saved boundaries of full recompute are measured",
    ),
}

_COVERS = (
    "full recompute (uniform, one layer), PP=1, bf16, TP=1 at any CP and EP, or a dense model "
    "at TP=2 or 4 with sequence parallelism, CP=1 and at least TP KV groups"
)

RULES = [
    Rule(
        "generic.activations",
        "packed_tokens * hidden * dtype_bytes * min(16, max(4, layers // 4 + 4))",
        covers="any model, as a rough floor",
        why="a few hidden vectors per packed token and four layers",
        source=f"{PUBLISHED}; reproduces two public refusals",
    ),
    Rule(
        "checkpoint.retained",
        "sum_groups(shard_rows * layers * hidden * dtype_bytes if gradient else 0)",
        covers=_COVERS,
        coverage="checkpoint_covered",
        needed="recompute_full",
        lives="retained",
        why="the input of every layer, kept for its recomputation",
        source="traced at TP 2, TP 4 and CP 2, equal to the byte",
    ),
    Rule(
        "checkpoint.no_grad_rows",
        "0 if gradient else 4 * rows * hidden * dtype_bytes",
        covers=_COVERS,
        coverage="checkpoint_covered",
        needed="recompute_full",
        why="decoder input, layer input, residual and norm output beside a layer's MoE stage",
        source=PUBLISHED,
    ),
    Rule(
        "checkpoint.input_gradient",
        "checkpoint.retained if tp == 1 and not dense_cp else"
        " max_groups(shard_rows * hidden * dtype_bytes if gradient else 0)",
        covers=_COVERS,
        coverage="checkpoint_covered",
        needed="recompute_full",
        lives="gradient",
        why="gradients of the boundaries; one shard where the workspace is priced by its parts",
        source=PUBLISHED,
    ),
    Rule(
        "checkpoint.first_call",
        "(64 MiB if tp == 1 else 96 MiB) if cold and has_gradient else 0",
        covers=_COVERS,
        coverage="checkpoint_covered",
        needed="recompute_full",
        lives="gradient",
        why="rotary tables, a frozen linear output and kernel workspaces of the first call",
        source="measured at 2,000 to 20,000 tokens, CP 2, and under TP x SP",
    ),
]
