"""How a search grows with rows and tokens, what memory it takes, and what two threads do."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from waveplan.bench import peer
from waveplan.bench.reference import Reference
from waveplan.bench.workloads import Rows, grpo

__all__ = ["exponent", "growth", "memory", "series", "threads"]

CP = 2
EVERYTHING = 1 << 60
"""Bytes in which every pool fits, so that every search grows to the whole pool."""
SERIES = ("rows", "tokens")


def series(name: str, smallest: bool = False) -> list[tuple[int, Rows]]:
    """Pools of one series, smallest first: (size, rows). Groups of eight share a prompt.

    "rows": 8 to 4,096 rows of 2,000 tokens; "tokens": 64 rows with 16 k to 16 M tokens in all.
    """
    if name == "rows":
        sizes = [8 << i for i in range(10)]
        make: Callable[[int], Rows] = lambda n: _pool(n, 2_000)  # noqa: E731
    else:
        sizes = [1 << i for i in range(14, 25)]
        make = lambda total: _pool(64, total // 64)  # noqa: E731
    return [(size, make(size)) for size in (sizes[:2] if smallest else sizes)]


def _pool(rows: int, length: int) -> Rows:
    """Rows of about one length, a quarter of it shared by eight."""
    quarter = length // 4
    low, high = 3 * quarter - quarter // 8, 3 * quarter + quarter // 8
    return grpo(rows, rows // 8, 8, (quarter, quarter), (low, high))


def growth(
    name: str, reference: bool, repeat: int = 5, patience: float = 20.0, smallest: bool = False
) -> list[dict[str, Any]]:
    """Medians along a series: ours, one reading of the tokens, and the reference's.

    Args:
        reference: time the published planner too, until one search takes `patience` seconds.
    """
    table = []
    for size, rows in series(name, smallest):
        tokens, offsets = peer.columns(rows)
        total = len(tokens)
        times, tables = [], []
        for _ in range(repeat):
            ours = peer.Ours(CP, EVERYTHING, total)
            peer.evict()
            times.append(peer.timed(lambda: ours.cold(tokens, offsets))[0])  # noqa: B023
            tables.append(peer.timed(ours.warm)[0])
        made: dict[str, Any] = {
            "size": size,
            "rows": len(rows),
            "tokens": total,
            "ours": statistics.median(times),
            "warm": statistics.median(tables),
            "read": peer.read_once(tokens, repeat),
        }
        if reference:
            made["reference"] = _reference(rows, total)
            reference = made["reference"] < patience
        table.append(made)
    return table


def _reference(rows: Rows, total: int) -> float:
    rank = Reference(CP, EVERYTHING)
    requests = rank.requests(rows)
    rank.trust(requests, total)
    rank.forget()
    gc.collect()
    return peer.timed(lambda: rank.search(requests))[0]


def exponent(table: Sequence[dict[str, Any]], size: str, seconds: str) -> float:
    """Slope of the logarithm of time over that of size, over the upper half of a series."""
    known = [row for row in table if seconds in row]
    upper = known[len(known) // 2 :]
    x = np.log([row[size] for row in upper])
    y = np.log([row[seconds] for row in upper])
    return float(np.polyfit(x, y, 1)[0])


def memory(tokens: int = 1 << 24, rows: int = 1024) -> dict[str, int]:
    """Bytes of the input, and the most a cold search takes beyond it, in a process of its own.

    Linux only: reads the process's peak of resident memory.
    """
    code = f"from waveplan.bench.scaling import _measure; _measure({tokens}, {rows})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    given, beyond = map(int, done.stdout.split())
    return {"tokens": tokens, "rows": rows, "input": given, "beyond": beyond}


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def _measure(tokens: int, rows: int) -> None:
    # The first search loads code; only the second's memory is the search's own.
    small, offsets = peer.columns(_pool(8, 100))
    peer.Ours(CP, EVERYTHING, len(small)).cold(small, offsets)
    values, offsets = peer.columns(_pool(rows, tokens // rows))
    ours = peer.Ours(CP, EVERYTHING, len(values))
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what was freed must not serve the search unseen
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
    before = _resident("VmRSS")
    ours.cold(values, offsets)
    print(values.nbytes + offsets.nbytes, max(0, _resident("VmHWM") - before))


def threads(count: int = 2, repeat: int = 150, searches: int = 8) -> dict[str, float]:
    """Searches a second of one thread and of several with a planner each, in turn.

    Many short windows, of which the best count: other load on the machine can only take away.
    "control" is the same for threads that never hold the interpreter: what the machine allows.
    "waiting" is the share of their time in which threads neither ran nor were ready to run, so
    waited for each other, whatever else the machine does (Linux only, else 0).
    """
    arrays = [peer.columns(grpo(8 + i, groups=8, k=8)) for i in range(count)]
    planners = [peer.Ours(CP, 64 << 30, len(tokens)) for tokens, _ in arrays]
    values = [np.ones(1 << 16) for _ in range(count)]
    gate = threading.Barrier(count)
    spent = np.zeros((count, 2))

    def work(i: int) -> None:
        for _ in range(searches):
            planners[i].cold(*arrays[i])

    def control(i: int) -> None:
        for _ in range(20 * searches):
            values[i].sum()

    def watched(i: int) -> None:
        gate.wait()
        start, ready = time.perf_counter_ns(), _ready()
        for _ in range(repeat):
            work(i)
        spent[i] = time.perf_counter_ns() - start, _ready() - ready

    def rate(work: Callable[[int], None], together: int) -> float:
        start = time.perf_counter()
        _crew(work, together)
        return together * searches / (time.perf_counter() - start)

    work(0)
    rates: list[list[float]] = [[], [], [], []]
    for _ in range(repeat):
        for kept, (job, together) in zip(
            rates, ((work, 1), (work, count), (control, 1), (control, count)), strict=True
        ):
            kept.append(rate(job, together))
    _crew(watched, count)
    one, many, *idle = map(_best, rates)
    wall, ready = spent.sum(axis=0).tolist()
    return {
        "threads": count,
        "one": one,
        "several": many,
        "ratio": many / one,
        "control": idle[1] / idle[0],
        "waiting": max(0.0, 1 - ready / wall) if ready else 0.0,
    }


def _crew(work: Callable[[int], None], together: int) -> None:
    crew = [threading.Thread(target=work, args=(i,)) for i in range(together)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()


def _ready() -> int:
    """Nanoseconds in which this thread ran or was ready to run."""
    try:
        ran, queued, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(ran) + int(queued)


def _best(rates: Sequence[float]) -> float:
    """The rate that one window in twenty reaches."""
    return float(np.quantile(rates, 0.95))
