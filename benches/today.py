"""The rollouts of tests/data as trainers deal them today, under a token cap, and as waves.

    python benches/today.py [--model qwen3.6-35b-a3b] [--gpu H200] [--cp 2]

The cap is the largest at which any micro-batch of so many tokens fits by the same prices, which no
user knows beforehand; micro-batches under it are dealt by `waveplan.balance`, which needs no more
of them than verl's dynamic batch (benches/balance.py). They run every sequence by itself. Waves
store shared prefixes once, in the pool's order and in any. Time is modelled: the slowest rank of
each micro-batch or wave, added up.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from waveplan import Requests, Sequences, balance
from waveplan.desk.jobs import Job, Source
from waveplan.planner import Planner
from waveplan.report.table import Table, integer

DATA = Path(__file__).parents[1] / "tests" / "data"
CORPORA = ("tau_turns", "tau_retail", "math_grpo", "coding")


def largest_cap(planner: Planner, most: int) -> int:
    """The most tokens of one unshared line that fit, in steps of 1,024."""
    low, high = 0, most // 1024 + 1
    while high - low > 1:
        middle = (low + high) // 2
        line = Requests(Sequences.from_any([np.zeros(1024 * middle, np.int64)]), sharing=False)
        fits = planner.plan_shares(line, available=1 << 62)[0].required <= planner.available
        low, high = (middle, high) if fits else (low, middle)
    return 1024 * low


def capped(planner: Planner, pool: Requests) -> tuple[int, int, float]:
    """Micro-batches, tokens and modelled seconds under the largest cap."""
    lengths = pool.lengths
    cap = max(largest_cap(planner, int(lengths.sum())), int(lengths.max()))
    parts = balance(lengths, lengths, cap).parts
    plans = [
        planner.plan_shares(Requests(pool.sequences.take(part), sharing=False), available=1 << 62)[
            0
        ]
        for part in parts
    ]
    return len(plans), int(lengths.sum()), sum(plan.time_ms for plan in plans) / 1e3


def main() -> None:
    """Print a row a corpus and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3.6-35b-a3b")
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--cp", type=int, default=2)
    args = parser.parse_args()
    right = ("forwards", "tokens run", "modelled seconds", "of the cap's")
    table = Table("", ("rollouts", "dealt", *right), right=frozenset(right))
    for corpus in CORPORA:
        source = Source(path=str(DATA / f"{corpus}_open.npz"), targets="all")
        planner = Job(model=args.model, gpu=args.gpu, cp=args.cp).planner()
        pool = source.requests()
        count, tokens, base = capped(planner, pool)
        table.add(corpus, "token cap", count, integer(tokens), f"{base:.1f}", "1.00")
        for order in ("keep", "free"):
            waves = list(planner.waves(pool, order=order))
            plans = [wave.plan for wave in waves]
            time = sum(plan.time_ms for plan in plans) / 1e3
            tokens = sum(plan.packed_tokens for plan in plans)
            forwards = sum(len(plan.forwards) for plan in plans)
            name = "waves" if order == "keep" else "waves, any order"
            table.add(corpus, name, forwards, integer(tokens), f"{time:.1f}", f"{time / base:.2f}")
    print(table.markdown())


if __name__ == "__main__":
    main()
