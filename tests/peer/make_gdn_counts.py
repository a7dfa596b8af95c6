"""Write tests/golden/b3_gdn_counts.json: answers of the reference planner on seeded inputs.

In an environment of tests/art/setup that has waveplan:

    python tests/peer/make_gdn_counts.py 500 > tests/golden/b3_gdn_counts.json

The first argument is the number of cases, the second (0) the first seed.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "art"))

import conftest  # noqa: F401 - loads the reference
import rank as stub
from art.trainer_rank import _gdn_memory

SHAPES = [
    None,
    None,
    (2048, 16, 32, 128, 128, 4, 1),
    (2048, 16, 32, 128, 128, 4, 4),
    (5120, 16, 48, 128, 128, 4, 1),
    (2560, 16, 32, 128, 128, 4, 2),
    (896, 4, 8, 32, 64, 2, 1),
    (7168, 32, 96, 192, 64, 5, 8),
    (1536, 12, 12, 64, 256, 1, 3),
    (4000, 5, 15, 80, 112, 3, 5),
]
CHEAP_CHAINS = {
    "runtime_chain_bucket_launch_ms": 0.01,
    "runtime_cp_suffix_scan_latency_ms": 0.01,
    "runtime_cp_suffix_scan_segments_per_ms": 1000.0,
    "cp_chain_min_runtime_delta_ms": 0.0,
}
KINDS = ("small", "medium", "equal", "siblings", "deep", "tokens", "split", "long", "levels")


def draw(seed: int) -> dict:
    """Draw the input of one case."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    cp = rng.choice((2, 2, 3, 4, 4, 5, 6, 7, 8))
    lengths, parents, config = SEGMENTS[kind](rng, cp)
    if kind != "split" and rng.random() < 0.4:
        block = rng.choice((32, 64, 96, 128))
        config = {"block_size": block, "planner_chunk_size": block * rng.randint(1, 12)}
    planner: dict = dict(CHEAP_CHAINS) if rng.random() < (0.8 if kind == "split" else 0.35) else {}
    for name, values in (
        ("cp_chain_beam_width", (1, 3, 5)),
        ("cp_chain_beam_branch_factor", (1, 2, 6)),
        ("cp_chain_beam_candidate_limit", (1, 2, 5, 40)),
        ("cp_chain_beam_max_steps", (0, 1, 9)),
        ("runtime_layout_bandwidth_bytes_per_ms", (3e5, 5e6)),
        ("runtime_local_bucket_launch_ms", (0.0, 0.7)),
        ("cp_chain_min_runtime_delta_ms", (0.0, 0.25, 10.0)),
    ):
        if rng.random() < 0.12:
            planner[name] = rng.choice(values)
    shape = rng.choice(SHAPES)
    names = ("hidden", "key_heads", "value_heads", "key_dim", "value_dim", "conv", "tp")
    return {
        "kind": kind,
        "seed": seed,
        "lengths": lengths,
        "parents": parents,
        "cp": cp,
        "config": config,
        "gdn_planner": planner or None,
        "gdn_shape": dict(zip(names, shape, strict=True)) if shape else None,
    }


def _forest(rng: random.Random, count: int, roots: float) -> list[int]:
    """Parents in depth-first order."""
    parents: list[int] = []
    path: list[int] = []
    for i in range(count):
        keep = 0 if rng.random() < roots else rng.randint(0, len(path))
        del path[keep:]
        parents.append(path[-1] if path else -1)
        path.append(i)
    return parents


def _small(rng, _cp):
    count = rng.randint(1, 14)
    return [rng.randint(1, 900) for _ in range(count)], _forest(rng, count, 0.4), {}


def _medium(rng, _cp):
    count, top = rng.randint(2, 40), rng.choice((2_000, 20_000))
    return [rng.randint(1, top) for _ in range(count)], _forest(rng, count, 0.3), {}


def _equal(rng, _cp):
    count = rng.randint(2, 40)
    values = [rng.choice((64, 512, 1000, 4096, 9000)) for _ in range(rng.randint(1, 2))]
    return [rng.choice(values) for _ in range(count)], _forest(rng, count, 0.5), {}


def _siblings(rng, _cp):
    lengths, parents = [], []
    for _ in range(rng.randint(1, 6)):
        root = len(lengths)
        each = rng.choice((300, 1024, 6000))
        lengths.append(rng.choice((64, 700, each)))
        parents.append(-1)
        for _child in range(rng.randint(2, 9)):
            lengths.append(each)
            parents.append(root)
    return lengths, parents, {}


def _deep(rng, _cp):
    count = rng.randint(10, 90)
    lengths = [rng.choice((1, 5, 64, 200, 3000)) for _ in range(count)]
    parents = [i - 1 if rng.random() < 0.85 else rng.randint(-1, i - 1) for i in range(count)]
    # A parent that is not the last on the path breaks depth-first order: a case of its own.
    return lengths, parents, {}


def _tokens(rng, _cp):
    count = rng.randint(1, 120)
    lengths = [1 if rng.random() < 0.9 else rng.randint(2, 3000) for _ in range(count)]
    return lengths, _forest(rng, count, 0.3), {}


def _split(rng, cp):
    """Segments that begin and end on or near the borders of large chunks."""
    chunk = 64 * rng.choice((2, 3, 8, 40, 200)) + (32 if rng.random() < 0.1 else 0)
    lengths, at = [], 0
    for _ in range(rng.randint(1, 4)):
        lead = rng.choice((0, 0, 64, 128, rng.randint(0, chunk)))
        if lead:
            lengths.append(lead)
            at += lead
        end = (at // chunk + cp) * chunk - rng.choice((0, 0, 1, 63, 64, 65))
        if end > at:
            lengths.append(end - at)
            at = end
    parents = [rng.choice((-1, -1, i - 1)) for i in range(len(lengths))]
    return lengths, parents, {"block_size": 32, "planner_chunk_size": chunk}


def _long(rng, _cp):
    count = rng.randint(1, 8)
    lengths = [rng.choice((rng.randint(1, 500), rng.randint(9_000, 90_000))) for _ in range(count)]
    return lengths, _forest(rng, count, 0.6), {}


def _levels(rng, _cp):
    """Breadth first: packed order is not the walk order."""
    lengths, parents = [], []
    previous = [-1]
    for _level in range(rng.randint(2, 4)):
        made = []
        for parent in previous:
            for _child in range(rng.randint(1, 3)):
                made.append(len(lengths))
                lengths.append(rng.choice((rng.randint(1, 300), rng.randint(1000, 9000))))
                parents.append(parent)
        previous = made
    return lengths, parents, {}


SEGMENTS = {
    "small": _small,
    "medium": _medium,
    "equal": _equal,
    "siblings": _siblings,
    "deep": _deep,
    "tokens": _tokens,
    "split": _split,
    "long": _long,
    "levels": _levels,
}


def answer(case: dict) -> dict:
    """Return the reference planner's answer."""
    ids = stub.packed_ids(case["lengths"], case["parents"])
    counts = stub.placed(*ids, case["cp"], stub.gdn_config(case), **case["config"])
    stub.forget()
    assigned = stub.assigned(*ids, case["cp"], **case["config"])
    start, segments = 0, []
    for i, (length, parent) in enumerate(zip(case["lengths"], case["parents"], strict=True)):
        identity = {"group_id": i + 1, "parent_id": i + 1 if parent < 0 else parent + 1}
        segments.append(SimpleNamespace(start=0, end=length, packed_start=start, **identity))
        start += length
    buckets = _gdn_memory.cp1_buckets(segments)
    return {
        **counts,
        "assigned": {"chunk": assigned["chunk_size"], "owners": assigned["owners"]},
        "cp1_executed_rows": sum(column[2] for b in buckets for column in b.columns),
        "cp1_state_rows": sum(len(b.columns) * (1 + b.final) for b in buckets),
    }


def main(count: int, first: int = 0) -> None:
    """Print the file."""
    header = {
        "reference": "openpipe-art 0.5.23",
        "function": "gdn_counts",
        "generator": f"tests/peer/make_gdn_counts.py {count} {first}",
    }
    print(json.dumps(header)[:-1] + ', "cases": [')
    for seed in range(first, first + count):
        case = draw(seed)
        line = {"id": f"b3-{seed:04d}", "input": case, "output": answer(case)}
        print(json.dumps(line, separators=(",", ":")) + ("," if seed + 1 < first + count else ""))
    print("]}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
