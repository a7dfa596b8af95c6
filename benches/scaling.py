"""Measure how a search grows with sequences and tokens, its memory, and two at the same time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from waveplan.bench import peer
from waveplan.bench.reference import Reference
from waveplan.bench.workloads import Sequences, grpo
from waveplan.report.table import Table, integer, seconds

CP = 2
EVERYTHING = 1 << 60
"""Bytes available in which every pool fits: every search grows to the whole pool."""
SERIES = ("sequences", "tokens")


def series(name: str, smallest: bool = False) -> list[tuple[int, Sequences]]:
    """Return the pools of one series, smallest first: (size, sequences). Eight share a prompt.

    "sequences": 8 to 4,096 of 2,000 tokens; "tokens": 64 with 16 k to 16 M tokens in all.
    """
    if name == "sequences":
        sizes = [8 << i for i in range(10)]
        make: Callable[[int], Sequences] = lambda n: _pool(n, 2_000)  # noqa: E731
    else:
        sizes = [1 << i for i in range(14, 25)]
        make = lambda total: _pool(64, total // 64)  # noqa: E731
    return [(size, make(size)) for size in (sizes[:2] if smallest else sizes)]


def _pool(count: int, length: int) -> Sequences:
    """Return sequences of about one length, a quarter of it shared by eight."""
    quarter = length // 4
    low, high = 3 * quarter - quarter // 8, 3 * quarter + quarter // 8
    return grpo(count, count // 8, 8, (quarter, quarter), (low, high))


def growth(
    name: str, reference: bool, repeat: int = 5, patience: float = 20.0, smallest: bool = False
) -> list[dict[str, Any]]:
    """Return medians along a series: ours, one reading of the tokens, and the reference's.

    Args:
        reference: time the reference planner too, until one search takes `patience` seconds.
    """
    table = []
    for size, sequences in series(name, smallest):
        tokens, offsets = peer.columns(sequences)
        total = len(tokens)
        times, tables = [], []
        for _ in range(repeat):
            ours = peer.Ours(CP, EVERYTHING, total)
            peer.evict()
            times.append(peer.timed(lambda: ours.cold(tokens, offsets))[0])  # noqa: B023
            tables.append(peer.timed(ours.warm)[0])
        made: dict[str, Any] = {
            "size": size,
            "sequences": len(sequences),
            "tokens": total,
            "ours": statistics.median(times),
            "warm": statistics.median(tables),
            "read": peer.read_once(tokens, repeat),
        }
        if reference:
            made["reference"] = _reference(sequences, total)
            reference = made["reference"] < patience
        table.append(made)
    return table


def _reference(sequences: Sequences, total: int) -> float:
    """Return the seconds of a cold search by the reference planner."""
    rank = Reference(CP, EVERYTHING)
    requests = rank.requests(sequences)
    rank.trust(requests, total)
    rank.forget()
    gc.collect()
    return peer.timed(lambda: rank.search(requests))[0]


def exponent(table: Sequence[dict[str, Any]], size: str, time: str) -> float:
    """Fit the slope of the logarithm of time over that of size, in the upper half of a series."""
    known = [row for row in table if time in row]
    upper = known[len(known) // 2 :]
    x = np.log([row[size] for row in upper])
    y = np.log([row[time] for row in upper])
    return float(np.polyfit(x, y, 1)[0])


def memory(tokens: int = 1 << 24, sequences: int = 1024) -> dict[str, int]:
    """Measure the bytes of the input and of a cold search beyond it, in a process of its own.

    Linux only: reads the process's peak of resident memory.
    """
    command = [sys.executable, __file__, str(tokens), str(sequences)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    given, beyond = map(int, done.stdout.split())
    return {"tokens": tokens, "sequences": sequences, "input": given, "beyond": beyond}


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def _measure(tokens: int, sequences: int) -> None:
    """Print the bytes of the input, and of a cold search beyond it."""
    # The first search loads code; only the second's memory is the search's own.
    small, offsets = peer.columns(_pool(8, 100))
    peer.Ours(CP, EVERYTHING, len(small)).cold(small, offsets)
    values, offsets = peer.columns(_pool(sequences, tokens // sequences))
    ours = peer.Ours(CP, EVERYTHING, len(values))
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what was freed must not serve the search unseen
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
    before = _resident("VmRSS")
    ours.cold(values, offsets)
    print(values.nbytes + offsets.nbytes, max(0, _resident("VmHWM") - before))


def threads(groups: int = 8, k: int = 8, searches: int = 30, repeat: int = 60) -> dict[str, Any]:
    """Count cold searches a second of one planner and of two, in threads and in processes.

    Two processes share nothing but the machine, so threads are compared with them. One and two
    take turns in short windows; a rate is the 95th percentile over windows (other load can only
    lower it), `of_processes` the median over pairs of neighbouring windows.

    Args:
        groups: of each planner's pool, `k` sequences each. searches: in one window.
    """
    given = (groups, k, searches)
    ours: list[Connection] = []
    theirs: list[Connection] = []
    spawn = multiprocessing.get_context("spawn")
    for i in range(2):
        for ends, start in (
            (ours, lambda **call: threading.Thread(**call)),
            (theirs, lambda **call: spawn.Process(**call)),
        ):
            here, there = spawn.Pipe()
            start(target=_serve, args=(there, i, *given), daemon=True).start()
            ends.append(here)
    for end in ours + theirs:
        end.recv()

    def rate(ends: Sequence[Connection]) -> float:
        start = time.perf_counter()
        for end in ends:
            end.send(True)
        for end in ends:
            end.recv()
        return len(ends) * searches / (time.perf_counter() - start)

    turns = (ours[:1], theirs[:1], ours, theirs)
    rates = np.array([[rate(ends) for ends in turns] for _ in range(repeat)])
    for end in ours + theirs:
        end.send(False)
    one, process, two, processes = np.quantile(rates, 0.95, axis=0).tolist()
    return {
        "sequences": groups * k,
        "one": one,
        "two": two,
        "ratio": two / one,
        "processes": processes / process,
        "of_processes": float(np.median(rates[:, 2] / rates[:, 3])),
    }


def halves(tokens: int, repeat: int = 40) -> tuple[float, float]:
    """Return the seconds on the clock to read tokens once in one thread, and as halves in two.

    Medians; caches are emptied before each. A search with a second core would gain as much.
    """
    values = np.ones(tokens, np.int64)
    first, second = values[: tokens // 2], values[tokens // 2 :]
    times: list[tuple[float, float]] = []
    for _ in range(repeat):
        peer.evict()
        begin = time.perf_counter()
        values.min()
        middle = time.perf_counter()
        peer.evict()
        again = time.perf_counter()
        other = threading.Thread(target=second.min)
        other.start()
        first.min()
        other.join()
        times.append((middle - begin, time.perf_counter() - again))
    one, two = np.median(times, axis=0).tolist()
    return one, two


def _serve(end: Connection, seed: int, groups: int, k: int, searches: int) -> None:
    """Plan the same pool each time that `end` receives True, until it receives False."""
    tokens, offsets = peer.columns(grpo(8 + seed, groups=groups, k=k))
    ours = peer.Ours(CP, 64 << 30, len(tokens))
    ours.cold(tokens, offsets)
    end.send(True)
    while end.recv():
        for _ in range(searches):
            ours.cold(tokens, offsets)
        end.send(True)


def growth_table(title: str, made: Sequence[dict[str, Any]]) -> Table:
    """Return a table with one line a size."""
    right = (
        "sequences",
        "tokens",
        "reference",
        "ours, emptied",
        "ratio",
        "x reading",
        "ours, warm",
    )
    table = Table(title, right, right=frozenset(right))
    for row in made:
        table.add(
            integer(row["sequences"]),
            integer(row["tokens"]),
            seconds(row["reference"]) if "reference" in row else "",
            seconds(row["ours"]),
            integer(round(row["reference"] / row["ours"])) if "reference" in row else "",
            f"{row['ours'] / row['read']:.1f}",
            seconds(row["warm"]),
        )
    return table


def threads_table(title: str, made: Sequence[dict[str, Any]]) -> Table:
    """Return a table of two planners at the same time beside one: see `threads`."""
    right = (
        "sequences",
        "searches a second",
        "two threads",
        "two processes",
        "threads of processes",
    )
    table = Table(title, right, right=frozenset(right))
    for row in made:
        table.add(
            integer(row["sequences"]),
            integer(round(row["one"])),
            f"{row['ratio']:.2f}",
            f"{row['processes']:.2f}",
            f"{row['of_processes']:.2f}",
        )
    return table


if __name__ == "__main__":
    _measure(*map(int, sys.argv[1:]))
