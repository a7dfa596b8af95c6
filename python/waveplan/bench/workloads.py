"""Pools of sequences for benchmarks, from seeded generators (numpy PCG64): lists of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WAVES"]

Tokens = NDArray[np.int64]
Sequences = list[Tokens]
Range = tuple[int, int]

VOCAB = 248_000


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _tokens(rng: np.random.Generator, n: Any) -> Tokens:
    return rng.integers(0, VOCAB, size=int(n), dtype=np.int64)


def _lengths(rng: np.random.Generator, count: int, total: int, low: int) -> Tokens:
    """`count` lengths >= low with exact sum `total`, spread 1:4 or so."""
    weights = rng.uniform(0.5, 2.0, size=count)
    lengths = np.maximum(low, np.floor(weights / weights.sum() * total).astype(np.int64))
    lengths[int(lengths.argmax())] += total - int(lengths.sum())
    return np.asarray(lengths, np.int64)


def unique(seed: int, count: int = 10, total: int = 194_753, low: int = 1) -> Sequences:
    """No sharing: distinct random sequences (first tokens distinct by construction)."""
    rng = _rng(seed)
    sequences = [_tokens(rng, n) for n in _lengths(rng, count, total, low)]
    for i, sequence in enumerate(sequences):
        sequence[0] = VOCAB + i
    return sequences


def grpo(
    seed: int,
    groups: int = 4,
    k: int = 8,
    prompt: Range = (500, 4000),
    completion: Range = (200, 8000),
) -> Sequences:
    """GRPO: G groups of k rollouts; one shared prompt per group."""
    rng = _rng(seed)
    sequences: Sequences = []
    for g in range(groups):
        head = _tokens(rng, rng.integers(prompt[0], prompt[1] + 1))
        head[0] = VOCAB + g
        for _ in range(k):
            tail = _tokens(rng, rng.integers(completion[0], completion[1] + 1))
            sequences.append(np.concatenate([head, tail]))
    return sequences


def agentic(
    seed: int,
    trees: int = 2,
    requests: int = 6,
    depth: Range = (3, 8),
    tokens: Range = (20_000, 60_000),
) -> Sequences:
    """Agentic trees: each request extends a random point of its tree's path set,
    so prefix chains branch to depth 3..8; each sequence has 20k..60k tokens."""
    rng = _rng(seed)
    sequences: Sequences = []
    for t in range(trees):
        levels = int(rng.integers(depth[0], depth[1] + 1))
        made: Sequences = []
        for _ in range(requests):
            total = int(rng.integers(tokens[0], tokens[1] + 1))
            if made:
                base = made[int(rng.integers(0, len(made)))]
                cut = int(rng.integers(1, levels)) / levels
                head = base[: max(1, min(int(len(base) * cut), total - 1))]
            else:
                head = np.array([VOCAB + t], dtype=np.int64)
            sequence = np.concatenate([head, _tokens(rng, total - len(head))])
            made.append(sequence)
        sequences.extend(made)
    return sequences


def near_identical(
    seed: int, count: int = 16, length: int = 2000, divergences: int = 3
) -> Sequences:
    """Adversarial: copies of one sequence, each changed at a few late random positions."""
    rng = _rng(seed)
    base = _tokens(rng, length)
    sequences: Sequences = []
    for _ in range(count):
        sequence = base.copy()
        for at in rng.integers(length // 4, length, size=divergences):
            sequence[at] = rng.integers(0, VOCAB)
        sequences.append(sequence)
    return sequences


def one_token(seed: int, count: int = 16, length: int = 512, step: int = 1) -> Sequences:
    """Adversarial comb: sequence i leaves the common sequence after i*step + 1 tokens."""
    rng = _rng(seed)
    base = _tokens(rng, length)
    sequences: Sequences = []
    for i in range(count):
        sequence = base.copy()
        cut = min(length - 1, i * step + 1)
        sequence[cut:] = _tokens(rng, length - cut)
        sequences.append(sequence)
    return sequences


def short(seed: int, count: int = 512, tokens: Range = (8, 96), share: float = 0.5) -> Sequences:
    """Many short sequences; about half start with one of 16 shared 4..32-token prefixes."""
    rng = _rng(seed)
    heads = [_tokens(rng, rng.integers(4, 33)) for _ in range(16)]
    sequences: Sequences = []
    for _ in range(count):
        tail = _tokens(rng, rng.integers(tokens[0], tokens[1] + 1))
        if rng.random() < share:
            tail = np.concatenate([heads[int(rng.integers(0, 16))], tail])
        sequences.append(tail)
    return sequences


def wave_779k(seed: int = 779_067) -> Sequences:
    """779,067 tokens: 48 requests, unique sequences."""
    return unique(seed, count=48, total=779_067, low=2_000)


def pool_4m(seed: int = 4_000_000, requests: int = 1024) -> Sequences:
    """About 4M tokens in 1024 requests: 128 GRPO groups of 8."""
    rng = _rng(seed)
    sequences: Sequences = []
    for g in range(requests // 8):
        head = _tokens(rng, rng.integers(500, 2001))
        head[0] = VOCAB + g
        tails = (_tokens(rng, rng.integers(200, 5111)) for _ in range(8))
        sequences.extend(np.concatenate([head, tail]) for tail in tails)
    return sequences


WAVES: dict[str, tuple[Callable[[], Sequences], int]] = {
    "unique10_195k": (lambda: unique(10), 64 << 30),
    "grpo_8x8": (lambda: grpo(8, groups=8, k=8), 64 << 30),
    "agentic_3x8": (lambda: agentic(38, trees=3, requests=8), 64 << 30),
    "near_identical_64x4k": (lambda: near_identical(64, count=64, length=4000), 64 << 30),
    "one_token_64x2k": (lambda: one_token(65, count=64, length=2048), 64 << 30),
    "short_1024": (lambda: short(1024, count=1024), 64 << 30),
    "wave_779k_48req": (wave_779k, 128 << 30),
    "pool_4m_1024req": (pool_4m, 64 << 30),
}
"""Pools that searches are timed on: their generators, and bytes available for a wave."""
