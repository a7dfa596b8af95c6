"""Measure agreement by content: its hashes beside one reading of the tokens and one cold search.

    python benches/content.py [FILE.npz ...]

One line for each pool: the time to read its tokens once (their sum), to make `Requests` without
and with hashes, to hash requests made without, and to plan the first wave from nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from waveplan import Planner, Requests, Sequences, Topology, Training, models
from waveplan.bench.workloads import WAVES
from waveplan.report.table import Table, integer, seconds, show

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
REPEAT = 15


def least(work: Callable[[], object]) -> float:
    """Return the shortest of some runs."""
    times = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measure the workloads of `waveplan bench`, and files of sequences."""
    pools = {name: Sequences.from_any(make()) for name, (make, *_) in WAVES.items()}
    for path in map(Path, sys.argv[1:] or sorted(map(str, DATA.glob("*_open.npz")))):
        pools[path.stem] = Sequences.load(path)
    names = ("tokens", "read once", "requests", "with hashes", "hashed later", "first wave")
    table = Table("", ("pool", *names), right=frozenset(names))
    planner = Planner(models.get("qwen3.6-35b-a3b"), Topology(cp=2), Training(), "70GiB")
    for name, sequences in pools.items():
        made = iter([Requests(sequences) for _ in range(REPEAT)])
        times = [
            least(lambda s=sequences: np.sum(s.tokens)),  # type: ignore[misc]
            least(lambda s=sequences: Requests(s)),  # type: ignore[misc]
            least(lambda s=sequences: Requests(s, hashed=True).content),  # type: ignore[misc]
            least(lambda m=made: next(m).content),  # type: ignore[misc]
            least(lambda s=sequences: next(planner.waves(Requests(s), "oversized"))),  # type: ignore[misc]
        ]
        table.add(name, integer(int(sequences.lengths.sum())), *map(seconds, times))
    show(table)


if __name__ == "__main__":
    main()
