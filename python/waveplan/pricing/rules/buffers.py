"""Expert-parallel communication buffers."""

from __future__ import annotations

from waveplan.pricing.ruleset import REFERENCE, Definition, Rule

TABLE = [
    Definition("hybridep_ranks", "ep * etp", "ranks that exchange tokens"),
    Definition("longest_pack", "max_packs(padded_tokens)", "longest padded pack"),
    Definition(
        "hybridep_tokens",
        "max(min(longest_pack, 1024 * ceildiv(longest_pack, 512 * cp)), max_packs(local_tokens))",
        "tokens one rank must be able to send",
    ),
    Definition(
        "hybridep_step",
        "1 if hybridep_ranks // 4 * 4 == hybridep_ranks else 2 if hybridep_ranks // 2 * 2"
        " == hybridep_ranks else 4",
        "tokens are aligned so that ranks times tokens are a multiple of 4",
    ),
    Definition(
        "hybridep_aligned",
        "ceildiv(max(ceildiv(hybridep_tokens, hybridep_step) * hybridep_step, 512), 64) * 64",
        "tokens per rank: aligned, at least 512, in chunks of 64",
    ),
    Definition(
        "hybridep_size",
        "hybridep_aligned * hybridep_ranks * (2 * B * hidden + 5 * B * experts * etp + 4 * B"
        " * (hidden // 128))",
        "bf16 tokens, fp32 probabilities and a byte of map per expert column, fp32 scales",
    ),
    Rule(
        "hybridep.buffer",
        "hybridep_size if longest_pack > 0 and hybridep_size > hybridep_buffer else 0",
        applies="ep > 1 and moe_layers > 0 and dispatcher_hybridep",
        lives="buffer",
        why="a larger buffer is allocated beside the held one, outside the tensor allocator",
        source=f"{REFERENCE}; 111,411,200 bytes for 5,120 tokens, 4 ranks, 2,048 x 256",
        reference={"where": "dispatcher_hybridep", "applies": "ep > 1 and moe_layers > 0"},
    ),
    Rule(
        "hybridep.combine",
        "ceildiv(max_packs(local_tokens), 4) * 4 * hidden * dtype_bytes if has_gradient else 0",
        where="checkpoint_holds and moe_holds",
        checked="pp == 1 and cp == 2 and ep == 2",
        applies="ep > 1 and moe_layers > 0 and recompute_full and not derived",
        why="a fresh combine buffer during recomputation",
        source=REFERENCE,
        reference={
            "where": "checkpoint_holds and moe_holds and tp == 1 and cp == 2 and ep == 2 and etp"
            " == 1",
            "checked": "1",
        },
    ),
]
