"""The row generators that golden vectors name."""

from waveplan.bench.workloads import (
    GENERATORS,
    agentic,
    blocks,
    grpo,
    make,
    near_identical,
    one_token,
    pool_4m,
    prefixes,
    short,
    tiny,
    unique,
    wave_779k,
)

__all__ = [
    "GENERATORS",
    "agentic",
    "blocks",
    "grpo",
    "make",
    "near_identical",
    "one_token",
    "pool_4m",
    "prefixes",
    "short",
    "tiny",
    "unique",
    "wave_779k",
]
