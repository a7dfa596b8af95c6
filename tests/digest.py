"""One hash of everything that plans of fixed pools say, equal wherever it is made.

Run as a program it prints the hash, for comparing builds, interpreters and environments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import workloads

from waveplan import Planner, Topology, Training, Wave, models

__all__ = ["digest", "planner", "pools", "text"]

MODEL = models.get("Qwen3.6-35B-A3B")


def planner(cp: int, free: str = "6GiB", **options: Any) -> Planner:
    """A planner in which the pools below take several waves."""
    return Planner(MODEL, Topology(cp=cp), Training(recompute="full", lora_rank=8), free, **options)


def pools() -> dict[str, list[np.ndarray]]:
    """Pools of every shape: shared prompts, trees, equal sequences, ties, many short sequences."""
    return {
        "grpo": workloads.grpo(1, groups=6, k=4, prompt=(100, 500), completion=(50, 400)),
        "agentic": workloads.agentic(2),
        "near": workloads.near_identical(3),
        "comb": workloads.one_token(4, count=24),
        "prefixes": workloads.prefixes(5),
        "short": workloads.short(6, count=200),
        "ties": workloads.tiny(7, count=40),
        "blocks": workloads.blocks(8, count=40),
    }


def text(waves: Iterable[Wave]) -> str:
    """Waves as JSON with everything that is said of them, down to positions and local tokens."""
    made = []
    for wave in waves:
        positions = [
            [pack.packing.positions(i).tolist() for i in range(len(pack.requests))]
            for pack in wave.packs
        ]
        price = wave.price.to_dict()
        made.append({"wave": wave.to_dict(), "positions": positions, "price": price})
    return json.dumps(made, sort_keys=True)


def digest() -> str:
    """Of every pool, at several context-parallel sizes, in both modes."""
    kept = hashlib.sha256()
    for name, sequences in pools().items():
        for cp in (1, 2, 4):
            for reference in (False, True):
                plans = planner(cp, mode="reference" if reference else "best")
                kept.update(f"{name} {cp} {reference}".encode())
                kept.update(text(plans.waves(sequences, on_refusal="skip")).encode())
    return kept.hexdigest()


if __name__ == "__main__":
    print(digest())
