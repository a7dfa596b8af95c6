"""Compare exact with reference layouts on real rollouts and synthetic pools: work saved, time.

Usage: python benches/layouts.py [--data FOLDER] [--repeat N] [--json FILE] [NAME ...]
       python benches/layouts.py --chosen FILE

Waves are runs of consecutive sequences, of several widths. Each is laid out under the scores of
two fitted tables at CP 1, 2 and 4. "saved" is the predicted work that the exact layout saves
over the layout of the reference bounded search. Times are medians of one layout on a tree that
is already built.

`--chosen` writes what is chosen of each wave of the corpora, without times, or compares with the
file if it is there: what a change of the solver changes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import waveplan
from waveplan import _core as core
from waveplan.scoring import from_table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import workloads  # noqa: E402

CORPORA = ("tau_turns_open", "tau_retail_open", "math_grpo_open", "coding_open")
POOLS = {
    "grpo 8x8": lambda: workloads.grpo(8, groups=8, k=8),
    "agentic 3x8": lambda: workloads.agentic(38, trees=3, requests=8),
    "short 1024": lambda: workloads.short(1024, count=1024),
    "wave 779k": workloads.wave_779k,
    "pool 4M": workloads.pool_4m,
    "blocks 200": lambda: workloads.blocks(5, count=200, depth=6),
    "chain 1200": lambda: [np.zeros(n + 1, dtype=np.int64) for n in range(1200)],
}
TABLES = {"dense-h2560": (32, 24), "gdn-moe-h2048": (40, 30)}
WIDTHS = (16, 32, 64, 128, 256, 512)
RANKS = ((1, 1), (2, 1), (4, 1), (8, 1), (3, 1), (6, 2), (8, 2))  # CP, TP
TIMES = ("exact_us", "bounded_us", "reference_us")


def scorings():
    """Yield (name, scoring) of every table and CP size."""
    for table, (layers, gdn) in TABLES.items():
        for cp in (1, 2, 4):
            score = from_table(table, layers=layers, gdn_layers=gdn, cp=cp)
            yield f"{table} cp{cp}", score


def chosen(tree, scoring, method, counts, repeat):
    """Return a layout, and the median microseconds of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        layout = core.choose_layout(tree, scoring, method, counts=counts)
        times.append(time.perf_counter() - start)
    return layout, statistics.median(times) * 1e6


def waves(sequences):
    """Yield the width and the tree of runs of consecutive sequences, and of all."""
    tree = waveplan.tree(sequences)
    count = tree.sequence_count
    for width in WIDTHS:
        if width < count:
            for start in range(0, count - width + 1, width):
                yield width, tree.restrict(np.arange(start, start + width))
    yield count, tree


def measure(sequences, repeat):
    """Return one record a wave and score."""
    records = []
    for width, tree in waves(sequences):
        for name, scoring in scorings():
            exact, exact_us = chosen(tree, scoring, "exact", False, repeat)
            bounded, bounded_us = chosen(tree, scoring, "reference", True, repeat)
            reference, reference_us = chosen(tree, scoring, "reference", False, repeat)
            if reference.score != bounded.score or exact.score > bounded.score:
                raise AssertionError(f"width {width}, {name}: {exact.score} {bounded.score}")
            records.append(
                {
                    "width": width,
                    "score": name,
                    "saved": 1 - exact.score.work / bounded.score.work,
                    "optimal": exact.optimal,
                    "gap": 0.0 if exact.optimal else 1 - exact.bound / exact.score.work,
                    "same": exact.score == bounded.score,
                    "exact_us": exact_us,
                    "bounded_us": bounded_us,
                    "reference_us": reference_us,
                }
            )
    return records


def line(name, records):
    """Return one line of the report."""
    saved = [100 * r["saved"] for r in records]
    most = max(r["width"] for r in records)
    widest = [r for r in records if r["width"] == most]
    times = " ".join(
        f"{key.removesuffix('_us')} {statistics.median(r[key] for r in widest):.1f}"
        for key in TIMES
    )
    unproven = [r["gap"] for r in records if not r["optimal"]]
    proof = f"unproven {len(unproven)} (gap {100 * max(unproven):.2f}%)" if unproven else "proven"
    equal = sum(r["same"] for r in records)
    return (
        f"{name:20s} {len(records):5d} waves, {equal:5d} same; saved % min {min(saved):.3f} "
        f"mean {statistics.mean(saved):.3f} max {max(saved):.3f}; {proof}; all of them, us: {times}"
    )


def corpus(path):
    """Read the sequences of a corpus file."""
    with np.load(path) as data:
        return waveplan.Sequences(data["tokens"].astype(np.int64), data["offsets"])


def choices(folder):
    """Return, by ranks, the work, optimality, gap and decisions of each exact layout."""
    made = {}
    for name in CORPORA:
        for _, tree in waves(corpus(folder / f"{name}.npz")):
            least = tree.packed()
            for table, (layers, gdn) in TABLES.items():
                for cp, tp in RANKS:
                    score = from_table(table, layers=layers, gdn_layers=gdn, cp=cp, tp=tp)
                    limits = (None, least + least // 50) if tp > 1 else (None,)
                    for most in limits:
                        found = core.choose_layout(tree, score, most_tokens=most)
                        key = f"cp {cp} tp {tp}" + (", most_tokens" if most else "")
                        work, bound = found.score.work, found.bound
                        row = [work, found.optimal, 1 - bound / work, found.decisions.tolist()]
                        made.setdefault(key, []).append(row)
    return made


def compare(before, now):
    """Print a line for each number of ranks: how many layouts differ, and how."""
    for key, rows in now.items():
        pairs = list(zip(before[key], rows, strict=True))
        other = sum(old[3] != new[3] for old, new in pairs)
        worse = max(new[0] / old[0] - 1 for old, new in pairs)
        lost = sum(old[1] and not new[1] for old, new in pairs)
        gap = max(new[2] for _, new in pairs)
        print(
            f"{key:24s} {len(pairs):5d} layouts: {other} differ, work up to {worse:.2%} more, "
            f"{lost} no longer optimal, gap up to {gap:.2g}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "tests/data")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chosen", type=Path, metavar="FILE")
    parser.add_argument("names", nargs="*", help="corpora or pools, all by default")
    options = parser.parse_args()
    if options.chosen:
        made = choices(options.data)
        if options.chosen.exists():
            compare(json.loads(options.chosen.read_text()), made)
        else:
            options.chosen.write_text(json.dumps(made))
        return
    pools = dict(POOLS)
    for name in CORPORA:
        pools[name] = lambda name=name: corpus(options.data / f"{name}.npz")
    everything = {}
    for name in options.names or [*CORPORA, *POOLS]:
        records = measure(pools[name](), options.repeat)
        everything[name] = records
        print(line(name, records), flush=True)
        for score in sorted({r["score"] for r in records}):
            of_score = [r for r in records if r["score"] == score]
            print("  " + line(score, of_score), flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
