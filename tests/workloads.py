"""The row generators that golden vectors name: those of the benchmarks, and smaller ones.

Every generator is `name(seed, **params)`; `make(spec)` rebuilds sequences from the JSON form of the
vectors: {"gen": name, "seed": s, "params": {...}}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from waveplan.bench.workloads import (
    Range,
    Sequences,
    Tokens,
    _rng,
    _tokens,
    agentic,
    grpo,
    near_identical,
    one_token,
    pool_4m,
    short,
    unique,
    wave_779k,
)


def prefixes(seed: int, count: int = 12, length: int = 900) -> Sequences:
    """Sequences that are prefixes (and duplicates) of one another."""
    rng = _rng(seed)
    base = _tokens(rng, length)
    return [base[: int(n)].copy() for n in rng.integers(1, length + 1, size=count)]


def tiny(seed: int, count: int = 8, length: Range = (1, 12), vocab: int = 4) -> Sequences:
    """Small-alphabet sequences: dense random tries (ties, prefixes, duplicates)."""
    rng = _rng(seed)
    return [
        rng.integers(0, vocab, size=int(rng.integers(length[0], length[1] + 1)), dtype=np.int64)
        for _ in range(count)
    ]


def blocks(
    seed: int, count: int = 12, depth: int = 4, block: Range = (16, 700), branch: int = 3
) -> Sequences:
    """Random trees of token blocks: medium sequences with real multi-level sharing."""
    rng = _rng(seed)
    pool: dict[tuple[int, ...], Tokens] = {}

    def node(path: tuple[int, ...]) -> Tokens:
        if path not in pool:
            pool[path] = _tokens(rng, rng.integers(block[0], block[1] + 1))
        return pool[path]

    sequences: Sequences = []
    for _ in range(count):
        levels = int(rng.integers(1, depth + 1))
        path: tuple[int, ...] = ()
        parts = []
        for _level in range(levels):
            path = (*path, int(rng.integers(0, branch)))
            parts.append(node(path))
        parts.append(_tokens(rng, rng.integers(block[0], block[1] + 1)))
        sequences.append(np.concatenate(parts))
    return sequences


GENERATORS: dict[str, Callable[..., Sequences]] = {
    f.__name__: f
    for f in (
        unique,
        grpo,
        agentic,
        near_identical,
        one_token,
        prefixes,
        short,
        tiny,
        blocks,
        wave_779k,
        pool_4m,
    )
}


def make(spec: dict[str, Any]) -> Sequences:
    """The sequences that a golden vector names."""
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.get("params", {}).items()}
    return GENERATORS[spec["gen"]](spec["seed"], **params)
