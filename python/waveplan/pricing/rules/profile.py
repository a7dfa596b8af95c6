"""Bytes that a profile keeps apart from the rates it learns."""

from __future__ import annotations

from waveplan.pricing.ruleset import Definition

TABLE = [
    Definition(
        "packed_priced",
        "recompute_one_layer and packed_priceable",
        "1 where a profile prices packed and logical tokens apart",
    ),
    Definition("logical_token_bytes", "6144 * B", "head and caller memory of one logical token"),
    Definition(
        "logical_bytes",
        "logical_tokens * logical_token_bytes if packed_priced else 0",
        "bytes of the logical tokens, beside a profile's rate",
    ),
    Definition(
        "apart_bytes",
        "logical_bytes + (sum_packs(segments if gradient else 0) * segment_layer"
        " if packed_priced else 0)",
        "all bytes beside a profile's rate: those of logical tokens and of gdn states",
    ),
]
