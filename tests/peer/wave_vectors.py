"""Write e3_wave.json and e4_wave.json of tests/golden: width searches on seeded inputs.

In an environment of tests/art/setup that has waveplan:

    python tests/peer/wave_vectors.py 500 tests/golden/e3_wave.json
    python tests/peer/wave_vectors.py 100 tests/golden/e4_wave.json 500

The first argument is the number of cases, the third (0) the first seed. Cases mix generators,
context-parallel and data-parallel ranks, groups of several requests, outputs, partial labels,
gradient modes, profiles and hints; available bytes lie around the required bytes of the probes.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "art"))

import conftest  # noqa: F401 - loads the reference

# isort: split
import wave

import workloads

SPLITS_FROM = 500
"""From this seed on, cases aim at splits."""


def spec(rng: random.Random, seed: int) -> dict[str, Any]:
    """Draw sequences so small that the reference planner takes well under a second."""
    kind = rng.choice(
        ("unique", "grpo", "agentic", "near_identical", "one_token", "short", "blocks", "prefixes")
    )
    params: dict[str, Any] = {
        "unique": lambda: {"count": rng.randint(3, 14), "total": rng.randint(4000, 60_000)},
        "grpo": lambda: {
            "groups": rng.randint(1, 6),
            "k": rng.randint(2, 8),
            "prompt": [50, 1200],
            "completion": [10, 600],
        },
        "agentic": lambda: {
            "trees": rng.randint(1, 3),
            "requests": rng.randint(2, 6),
            "tokens": [800, 6000],
        },
        "near_identical": lambda: {"count": rng.randint(4, 24), "length": rng.randint(200, 3000)},
        "one_token": lambda: {
            "count": rng.randint(3, 20),
            "length": rng.randint(200, 1500),
            "step": rng.choice((1, 17, 60)),
        },
        "short": lambda: {"count": rng.randint(20, 280), "tokens": [8, 200]},
        "blocks": lambda: {"count": rng.randint(6, 36), "block": [32, 900], "depth": 4},
        "prefixes": lambda: {"count": rng.randint(3, 16), "length": rng.randint(50, 900)},
    }[kind]()
    return {"gen": kind, "seed": 7_000_000 + seed, "params": params}


def outputs(rng: random.Random, sequences: list[Any]) -> dict[str, Any]:
    """Draw outputs: one choice for all sequences, or one per sequence."""
    count = len(sequences)
    given: dict[str, Any] = {}
    draw = rng.random()
    if draw < 0.35:
        return given
    if draw < 0.5:
        given["labels"] = [rng.choice((0, 1, len(r) // 3, 510, 513, len(r))) for r in sequences]
        given["labels"] = [min(n, len(r)) for n, r in zip(given["labels"], sequences, strict=True)]
        return given
    if draw < 0.6:
        given["top_k"] = rng.choice((1, 4, 20))
        return given
    if draw < 0.7:
        given["hidden"] = True
        given["target"] = rng.random() < 0.5
        return given
    if draw < 0.75:
        given["logits"] = True
        given["target"] = rng.random() < 0.5
        return given
    period = rng.randint(2, 4)
    given["target"] = [i % period != 1 for i in range(count)]
    given["hidden"] = [i % period == 1 and rng.random() < 0.7 for i in range(count)]
    given["top_k"] = [5 if i % period == 0 and rng.random() < 0.4 else None for i in range(count)]
    if rng.random() < 0.3:
        given["logits"] = [i % period == 1 and rng.random() < 0.2 for i in range(count)]
    if rng.random() < 0.5:
        given["labels"] = [rng.choice((None, len(r) // 2, 1)) for r in sequences]
    return given


def profile(rng: random.Random, tokens: int) -> dict[str, Any] | None:
    """Draw a learned profile, or none."""
    if rng.random() < 0.12:
        return None
    made: dict[str, Any] = {
        "bytes_per_token": rng.choice((0.0, 0.0, 0.0, 60_000.5, 250_000.0, 400_000.0)),
        "packed_tokens": max(1, int(tokens * rng.choice((0.005, 0.03, 0.2, 1.0, 1.0, 1.0)))),
        "logical_per_packed": rng.choice((1.0, 1.2, 2.0, 4.0)),
    }
    if rng.random() < 0.35:
        made["retained"] = rng.choice((500.0, 2000.0, 60_000.0, 160_000.0))
    if made["bytes_per_token"] and rng.random() < 0.4:
        made["warm_bytes_per_token"] = rng.choice((30_000.0, 90_000.0))
        made["warm_packed_tokens"] = max(1, tokens // rng.choice((10, 40)))
        made["warm_logical_per_packed"] = rng.choice((1.0, 1.5))
        made["caller_plans"] = 3
    return made


def draw(seed: int) -> dict[str, Any]:
    """Draw the input of one case, without its available bytes."""
    rng = random.Random(seed)
    given: dict[str, Any] = {"spec": spec(rng, seed), "cp": rng.choice((1, 1, 1, 2, 2, 3, 4, 8))}
    sequences = workloads.make(given["spec"])
    given |= outputs(rng, sequences)
    given["profile"] = profile(rng, sum(map(len, sequences)))
    mode = rng.random()
    if mode < 0.15:
        given["no_grad"] = True
    elif mode < 0.4:
        period = rng.randint(2, 5)
        given["no_grad"] = [i % period == 0 for i in range(len(sequences))]
    if rng.random() < 0.4:
        given["item_size"] = rng.randint(2, max(2, min(9, len(sequences) // 2)))
    groups = -(-len(sequences) // given.get("item_size", 1))
    if rng.random() < 0.3:
        size = rng.randint(2, 6)
        given["dp"] = [rng.randrange(size), size]
    if rng.random() < 0.15 and groups > 2:
        given["start"] = rng.randint(1, groups - 1)
    if rng.random() < 0.3:
        given["last_width"] = rng.randint(1, groups)
    if rng.random() < 0.25:
        given["gdn"] = False
    if rng.random() < 0.2:
        given["head"] = False
        given.pop("logits", None)
    given["scoring"] = rng.choice(("h200", "h200", "cpu", "v1"))
    return given


def split(rng: random.Random, given: dict[str, Any]) -> dict[str, Any]:
    """Return the same case with a minimum wave that has to be split: groups of many requests, and a
    profile with the bytes that a forward retains."""
    sequences = workloads.make(given["spec"])
    given = {key: value for key, value in given.items() if key not in ("dp", "start")}
    given["item_size"] = rng.randint(2, min(12, len(sequences)))
    tokens = sum(map(len, sequences[: given["item_size"]]))
    given["profile"] = {
        "bytes_per_token": 0.0,
        "packed_tokens": max(1, int(tokens * rng.choice((0.05, 0.3, 1.0)))),
        "logical_per_packed": rng.choice((1.0, 1.3, 3.0)),
        "retained": rng.choice((500.0, 30_000.0, 160_000.0)),
    }
    return given


def answer(given: dict[str, Any], available: int) -> dict[str, Any]:
    """Return the reference planner's answer."""
    found, *_ = wave.run({**given, "available": available}, workloads.make(given["spec"]))
    return found


def case(seed: int) -> dict[str, Any]:
    """Make one case, with available bytes at a random point between its least and most price."""
    given = draw(seed)
    rng = random.Random(seed + 1_000_003)
    if seed >= SPLITS_FROM:
        given = split(rng, given)
    wide = {**given, "profile": {"bytes_per_token": 0.0, "packed_tokens": 1 << 40}}
    most = answer(wide, 1 << 60)["required"]
    least = answer({**wide, "profile": None}, 1 << 60)["required"]
    point = rng.choice((rng.uniform(0, 1.05), rng.uniform(0, 0.3), rng.uniform(-0.1, 0.02)))
    available = max(1, int(least + point * (most - least)))
    if seed >= SPLITS_FROM:
        available = max(1, int(answer(given, 1 << 60)["required"] * rng.uniform(0.3, 0.98)))
    elif rng.random() < 0.12:
        available = max(1, int(least * rng.uniform(0.3, 1.0)))
    output = answer(given, available)
    return {"id": f"e3-{seed:03d}", "input": {**given, "available": available}, "output": output}


def main() -> None:
    """Write the cases."""
    count, path = int(sys.argv[1]), sys.argv[2]
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    cases = [case(seed) for seed in range(first, first + count)]
    head = {"art": "openpipe-art 0.5.23", "function": "wave", "seeds": [first, first + count - 1]}
    lines = ",\n".join(json.dumps(made, separators=(",", ":")) for made in cases)
    opening = json.dumps({**head, "cases": []})[:-2]
    Path(path).write_text(f"{opening}\n{lines}\n]}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
