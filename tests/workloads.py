"""Deterministic request-row generators (numpy PCG64, seeded): lists of int64 rows.

Every generator is `name(seed, **params)`; `make(spec)` rebuilds rows from the
JSON form used in the goldens: {"gen": name, "seed": s, "params": {...}}.
"""

import numpy as np

VOCAB = 248_000


def _rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


def _tokens(rng, n):
    return rng.integers(0, VOCAB, size=int(n), dtype=np.int64)


def _lengths(rng, count, total, low):
    """`count` lengths >= low with exact sum `total`, spread 1:4 or so."""
    weights = rng.uniform(0.5, 2.0, size=count)
    lengths = np.maximum(low, np.floor(weights / weights.sum() * total).astype(np.int64))
    lengths[int(lengths.argmax())] += total - int(lengths.sum())
    return lengths


def unique(seed, count=10, total=194_753, low=1):
    """No sharing: distinct random rows (first tokens distinct by construction)."""
    rng = _rng(seed)
    rows = [_tokens(rng, n) for n in _lengths(rng, count, total, low)]
    for i, row in enumerate(rows):
        row[0] = VOCAB + i
    return rows


def grpo(seed, groups=4, k=8, prompt=(500, 4000), completion=(200, 8000)):
    """GRPO: G groups of k rollouts; one shared prompt per group."""
    rng = _rng(seed)
    rows = []
    for g in range(groups):
        head = _tokens(rng, rng.integers(prompt[0], prompt[1] + 1))
        head[0] = VOCAB + g
        for _ in range(k):
            tail = _tokens(rng, rng.integers(completion[0], completion[1] + 1))
            rows.append(np.concatenate([head, tail]))
    return rows


def agentic(seed, trees=2, requests=6, depth=(3, 8), tokens=(20_000, 60_000)):
    """Agentic trees: each request extends a random point of its tree's path set,
    so prefix chains branch to depth 3..8; each row has 20k..60k tokens."""
    rng = _rng(seed)
    rows = []
    for t in range(trees):
        levels = int(rng.integers(depth[0], depth[1] + 1))
        made = []
        for _ in range(requests):
            total = int(rng.integers(tokens[0], tokens[1] + 1))
            if made:
                base = made[int(rng.integers(0, len(made)))]
                cut = int(rng.integers(1, levels)) / levels
                head = base[: max(1, min(int(len(base) * cut), total - 1))]
            else:
                head = np.array([VOCAB + t], dtype=np.int64)
            row = np.concatenate([head, _tokens(rng, total - len(head))])
            made.append(row)
        rows.extend(made)
    return rows


def near_identical(seed, count=16, length=2000, divergences=3):
    """Adversarial: copies of one row, each changed at a few late random positions."""
    rng = _rng(seed)
    base = _tokens(rng, length)
    rows = []
    for _ in range(count):
        row = base.copy()
        for at in rng.integers(length // 4, length, size=divergences):
            row[at] = rng.integers(0, VOCAB)
        rows.append(row)
    return rows


def one_token(seed, count=16, length=512, step=1):
    """Adversarial comb: row i leaves the common row after i*step + 1 tokens."""
    rng = _rng(seed)
    base = _tokens(rng, length)
    rows = []
    for i in range(count):
        row = base.copy()
        cut = min(length - 1, i * step + 1)
        row[cut:] = _tokens(rng, length - cut)
        rows.append(row)
    return rows


def prefixes(seed, count=12, length=900):
    """Rows that are prefixes (and duplicates) of one another."""
    rng = _rng(seed)
    base = _tokens(rng, length)
    return [base[: int(n)].copy() for n in rng.integers(1, length + 1, size=count)]


def short(seed, count=512, tokens=(8, 96), share=0.5):
    """Many short rows; about half start with one of 16 shared 4..32-token prefixes."""
    rng = _rng(seed)
    heads = [_tokens(rng, rng.integers(4, 33)) for _ in range(16)]
    rows = []
    for _ in range(count):
        tail = _tokens(rng, rng.integers(tokens[0], tokens[1] + 1))
        if rng.random() < share:
            tail = np.concatenate([heads[int(rng.integers(0, 16))], tail])
        rows.append(tail)
    return rows


def tiny(seed, count=8, length=(1, 12), vocab=4):
    """Small-alphabet rows: dense random tries (ties, prefixes, duplicates)."""
    rng = _rng(seed)
    return [
        rng.integers(0, vocab, size=int(rng.integers(length[0], length[1] + 1)), dtype=np.int64)
        for _ in range(count)
    ]


def blocks(seed, count=12, depth=4, block=(16, 700), branch=3):
    """Random trees of token blocks: medium rows with real multi-level sharing."""
    rng = _rng(seed)
    pool = {}

    def node(path):
        if path not in pool:
            pool[path] = _tokens(rng, rng.integers(block[0], block[1] + 1))
        return pool[path]

    rows = []
    for _ in range(count):
        levels = int(rng.integers(1, depth + 1))
        path, parts = (), []
        for _level in range(levels):
            path = (*path, int(rng.integers(0, branch)))
            parts.append(node(path))
        parts.append(_tokens(rng, rng.integers(block[0], block[1] + 1)))
        rows.append(np.concatenate(parts))
    return rows


def wave_779k(seed=779_067):
    """779,067 tokens: 48 requests, unique rows."""
    return unique(seed, count=48, total=779_067, low=2_000)


def pool_4m(seed=4_000_000, requests=1024):
    """About 4M tokens in 1024 requests: 128 GRPO groups of 8."""
    rng = _rng(seed)
    rows = []
    for g in range(requests // 8):
        head = _tokens(rng, rng.integers(500, 2001))
        head[0] = VOCAB + g
        tails = (_tokens(rng, rng.integers(200, 5111)) for _ in range(8))
        rows.extend(np.concatenate([head, tail]) for tail in tails)
    return rows


GENERATORS = {
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


def make(spec):
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.get("params", {}).items()}
    return GENERATORS[spec["gen"]](spec["seed"], **params)


if __name__ == "__main__":
    for name, f in GENERATORS.items():
        rows = f(1) if name not in ("wave_779k", "pool_4m") else f()
        print(f"{name:15s} rows={len(rows):5d} tokens={sum(map(len, rows)):8d}")
