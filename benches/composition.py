"""Waves of the corpora in order, in blocks and composed: how many, how slow, planned how fast.

    python benches/composition.py [--cp 1 2 4] [--dp 1 2 4 8] [--available 12GiB 24GiB 70GiB]

qwen3.6-35b-a3b, LoRA rank 8, full recompute, every token labelled, the default rules. Time is the
slowest rank of each wave, over the bound of any order; milliseconds are those of planning the pool.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from waveplan import AllShares, Planner, Requests, Sequences, Topology, Training, models
from waveplan.plan import Plan
from waveplan.report.table import Table, show
from waveplan.wave import Wave

DATA = Path(__file__).parents[1] / "tests" / "data"
CORPORA = ("tau_retail", "tau_turns", "coding", "math_grpo")


def main() -> None:
    """Print a row a corpus and job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cp", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--dp", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--available", nargs="*", default=["12GiB", "24GiB", "70GiB"])
    args = parser.parse_args()
    orders = ("keep", "blocks", "free")
    right = (
        *("dp", "cp", "refused", *(f"waves {order}" for order in orders), "bound"),
        *(f"time {order}" for order in orders),
        *(f"ms {order}" for order in orders),
    )
    table = Table("", ("corpus", "memory", *right), right=frozenset(right))
    for corpus in CORPORA:
        read = np.load(DATA / f"{corpus}_open.npz")
        requests = Requests(Sequences(read["tokens"].astype(np.int64), read["offsets"]))
        for available in args.available:
            for cp in args.cp:
                for dp in args.dp:
                    table.add(corpus, available, dp, cp, *row(requests, dp, cp, available))
    show(table)


def row(requests: Requests, dp: int, cp: int, available: str) -> list[str]:
    """Refusals, waves of each order, the bound, time over the bound and milliseconds of each."""
    facts = models.get("qwen3.6-35b-a3b"), Topology(dp=dp, cp=cp)
    training = Training(recompute="full", lora_rank=8)
    waves, times, took = [], [], []
    for order in ("keep", "blocks"):
        planner = Planner(*facts, training, available, agreement=AllShares())
        start = time.perf_counter()
        found = planner.waves(requests, on_refusal="skip", order=order)
        made = list(found)
        took.append(1e3 * (time.perf_counter() - start))
        waves.append(len(made))
        slowest = (max(plan.time_ms for plan in plans(wave)) for wave in made)
        times.append(sum(slowest))
    start = time.perf_counter()
    composed = planner.compose(requests, on_refusal="skip")
    took.append(1e3 * (time.perf_counter() - start))
    waves.append(composed.waves)
    run = planner.waves(composed)
    times.append(sum(max(plan.time_ms for plan in plans(wave)) for wave in run))
    over = [f"{time / composed.bound_ms:.2f}" if composed.bound_ms else "" for time in times]
    figures = [str(len(composed.refused)), *map(str, waves), str(composed.bound), *over]
    return [*figures, *(f"{ms:.0f}" for ms in took)]


def plans(wave: Wave) -> list[Plan]:
    """The plan of every rank."""
    return [share.plan for share in wave.shares or (wave,)]


if __name__ == "__main__":
    main()
