"""Plan random pools for `--minutes`, observing every wave: does memory or time grow?

`python benches/soak.py --minutes 30` writes benches/results/soak.json and docs/soak.svg:
resident memory, allocated memory, and the processor time of a fixed search beside that of fixed
work without waveplan. Linux with glibc only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from waveplan import Model, Planner, Requests, Topology, Training, WaveRefused, models, pack, tree

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import workloads

HERE = Path(__file__).parent
RESULT = HERE / "results" / "soak.json"
PICTURE = HERE.parent / "docs" / "soak.svg"
MODELS = ("Qwen3.6-35B-A3B", "Qwen3-14B", "Llama-3.1-8B")
EVERY = 10.0
"""Seconds between two readings."""


def pool(rng: np.random.Generator) -> list[np.ndarray]:
    """Return a pool of a random kind and size, up to about half a million tokens."""
    seed = int(rng.integers(1 << 31))
    kind = int(rng.integers(7))
    n = int(rng.integers(2, 120))
    makers = (
        lambda: workloads.grpo(seed, groups=max(1, n // 8), k=8),
        lambda: workloads.agentic(seed),
        lambda: workloads.near_identical(seed, count=n),
        lambda: workloads.one_token(seed, count=n),
        lambda: workloads.short(seed, count=8 * n),
        lambda: workloads.tiny(seed, count=4 * n),
        lambda: workloads.blocks(seed, count=n),
    )
    return [ids % 128_000 for ids in makers[kind]()]  # of the smallest vocabulary


def job(rng: np.random.Generator) -> Planner:
    """Return a planner of a random job, one in three in reference mode."""
    model: Model = models.get(MODELS[int(rng.integers(len(MODELS)))])
    topology = Topology(cp=int(2 ** rng.integers(0, 4)))
    training = Training(recompute="full", lora_rank=8)
    available = f"{int(rng.integers(8, 80))}GiB"
    return Planner(
        model, topology, training, available, mode="reference" if rng.random() < 1 / 3 else "best"
    )


def step(planner: Planner, rng: np.random.Generator) -> int:
    """Plan a pool to its end and observe every wave; return the number of waves."""
    sequences = pool(rng)
    requests = Requests(sequences)
    waves = planner.waves(requests, on_refusal="skip")
    count = 0
    for wave in waves:
        count += 1
        planner.observe(wave, int(wave.required * rng.uniform(0.5, 1.1)))
    if rng.random() < 0.1:
        json.dumps(planner.profiles.to_dict())
        tree(sequences)
        pack(sequences)
    return count


class Fixed:
    """Work that is the same each time: its cost must not grow."""

    def __init__(self) -> None:
        self.requests = Requests(workloads.grpo(7, groups=16, k=8))
        self.numbers = np.arange(1 << 19, dtype=np.float64)

    def search(self) -> None:
        """Plan one pool with a new planner."""
        model = models.get(MODELS[0])
        planner = Planner(model, Topology(cp=2), Training(), "40GiB")
        try:
            for _ in planner.waves(self.requests):
                pass
        except WaveRefused:
            raise SystemExit("the fixed pool no longer fits") from None

    def control(self) -> None:
        """Do arithmetic without waveplan."""
        for _ in range(8):
            float(np.sqrt(self.numbers).sum())

    def cost(self, work: Any) -> float:
        """Return the median processor milliseconds of this thread."""
        times = []
        for _ in range(9):
            start = time.thread_time_ns()
            work()
            times.append(time.thread_time_ns() - start)
        return statistics.median(times) / 1e6


def resident() -> float:
    """Return the resident memory of this process, MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated() -> float:
    """Return what is allocated and not freed, MB: arrays and the core's memory, not objects."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Heap
    heap = mallinfo()
    return (heap.uordblks + heap.hblkhd) / 1e6


def soak(minutes: float, seed: int) -> dict[str, Any]:
    """Plan pools until the time is over, with a reading every `EVERY` seconds."""
    rng = np.random.default_rng(seed)
    fixed, readings = Fixed(), []
    jobs = [job(rng) for _ in range(6)]
    pools = waves = 0
    start = last = time.monotonic()
    while True:
        pools += 1
        i = int(rng.integers(len(jobs)))
        if rng.random() < 0.002:
            jobs[i] = job(rng)
        waves += step(jobs[i], rng)
        now = time.monotonic()
        if now - last < EVERY:
            continue
        last = now
        gc.collect()
        readings.append(
            {
                "minute": (now - start) / 60,
                "resident": resident(),
                "allocated": allocated(),
                "objects": sys.getallocatedblocks(),
                "pools": pools,
                "waves": waves,
                "search": fixed.cost(fixed.search),
                "control": fixed.cost(fixed.control),
                "profiles": sum(len(planner.profiles) for planner in jobs),
            }
        )
        if now - start >= 60 * minutes:
            return {"minutes": minutes, "seed": seed, "readings": readings}


def summary(made: dict[str, Any]) -> str:
    """Return the figures, one a line; the first third of the readings is warm-up."""
    readings = made["readings"]
    warm = readings[len(readings) // 3 :]
    half = len(warm) // 2
    first, second = warm[:half], warm[half:]

    def median(part: list[dict[str, Any]], *names: str) -> float:
        values = [r[names[0]] / r[names[1]] if names[1:] else r[names[0]] for r in part]
        return statistics.median(values)

    def both(name: str, scale: float = 1) -> str:
        return f"{median(first, name) / scale:.1f}, then {median(second, name) / scale:.1f}"

    end = readings[-1]
    most = max(r["resident"] for r in warm)
    relative = median(second, "search", "control") / median(first, "search", "control")
    return "\n".join(
        (
            f"{end['minute']:.1f} minutes, {end['pools']:,} pools, {end['waves']:,} waves",
            "medians of the first and the second half after warm-up:",
            f"  resident memory, MB: {both('resident')}; at most {most:.1f}",
            f"  allocated of it, MB: {both('allocated')}",
            f"  Python's objects, thousands: {both('objects', 1000)}",
            f"  a fixed search, ms of processor time: {both('search')}",
            f"  relative to fixed arithmetic the second half took {relative:.3f} times the first",
            f"profiles at the end: {end['profiles']}",
        )
    )


def draw(made: dict[str, Any], path: Path) -> None:
    """Plot memory, and the cost of the fixed search relative to the control, against time."""
    from matplotlib.figure import Figure

    readings = made["readings"]
    minutes = [r["minute"] for r in readings]
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(minutes, [r["resident"] for r in readings], color="#1f6feb", label="resident")
    above.plot(minutes, [r["allocated"] for r in readings], color="#9a6700", label="allocated")
    above.set_ylabel("memory, MB")
    above.legend(frameon=False)
    above.set_ylim(bottom=0)
    ratio = [r["search"] / r["control"] for r in readings]
    middle = statistics.median(ratio)
    below.plot(minutes, [r / middle for r in ratio], color="#1a7f37", linewidth=0.8)
    below.set_ylabel("fixed search,\nrelative to arithmetic")
    below.set_ylim(bottom=0)
    below.set_xlabel(f"minutes; {readings[-1]['pools']:,} random pools in all")
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run, or draw the kept readings again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--render", action="store_true", help="only draw the kept readings")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.render:
        made = json.loads(options.out.read_text(encoding="utf-8"))
    else:
        made = soak(options.minutes, options.seed)
        options.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if options.out == RESULT:
        draw(made, PICTURE)
    print(summary(made))


if __name__ == "__main__":
    main()
