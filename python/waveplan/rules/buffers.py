"""Expert-parallel communication buffers."""

from __future__ import annotations

from waveplan.rules.checkpoint import PUBLISHED
from waveplan.rules.ruleset import Rule

DEFINITIONS = {
    "hybridep_ranks": ("ep * etp", "ranks of the communication group"),
    "longest_group": ("max_groups(group_tokens)", "longest padded group"),
    "hybridep_tokens": (
        "max(min(longest_group, 1024 * ceildiv(longest_group, 512 * cp)), max_groups(rows))",
        "tokens one rank must be able to send",
    ),
    "hybridep_step": (
        "1 if hybridep_ranks // 4 * 4 == hybridep_ranks else"
        " 2 if hybridep_ranks // 2 * 2 == hybridep_ranks else 4",
        "rows are aligned so that ranks times rows are a multiple of 4",
    ),
    "hybridep_rows": (
        "ceildiv(max(ceildiv(hybridep_tokens, hybridep_step) * hybridep_step, 512), 64) * 64",
        "rows per rank: aligned, at least 512, in chunks of 64",
    ),
    "hybridep_size": (
        "hybridep_rows * hybridep_ranks"
        " * (2 B * hidden + 5 B * experts * etp + 4 B * (hidden // 128))",
        "bf16 tokens, fp32 probabilities and a byte of map per expert column, fp32 scales",
    ),
}

RULES = [
    Rule(
        "hybridep.buffer",
        "hybridep_size if longest_group > 0 and hybridep_size > hybridep_buffer else 0",
        covers="EP>1 with the HybridEP dispatcher",
        coverage="dispatcher_hybridep",
        needed="ep > 1 and moe_layers > 0",
        lives="buffer",
        why="a larger buffer is allocated beside the held one, outside the tensor allocator",
        source=f"{PUBLISHED}; 111,411,200 bytes for 5,120 tokens, 4 ranks, 2,048 x 256",
    ),
    Rule(
        "hybridep.combine",
        "ceildiv(max_groups(rows), 4) * 4 * hidden * dtype_bytes if has_gradient else 0",
        covers="full recompute at TP=1, CP=2, EP=2, ETP=1",
        coverage="checkpoint_covered and moe_covered and tp == 1 and cp == 2 and ep == 2"
        " and etp == 1",
        needed="ep > 1 and moe_layers > 0 and recompute_full",
        why="a fresh combine buffer during recomputation",
        source=PUBLISHED,
    ),
]
