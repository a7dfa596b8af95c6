"""Measure our planner beside the reference one: searches, growth, memory, threads; plot it.

    python benches/peer.py [--repeat N] [--quick]

Writes benches/results/peer.json, docs/speed.svg and the tables between the markers of
docs/speed.md. With --pool it compares
that alone and writes nothing. Needs the reference planner (see docs/speed.md) and matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import scaling

from waveplan.bench import peer, reference
from waveplan.bench.workloads import WAVES
from waveplan.report.table import seconds

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "peer.json"
DOCS = HERE.parent / "docs"


def measure(repeat: int, quick: bool) -> dict[str, Any]:
    """Return all measurements, as JSON."""
    searches = []
    for one in peer.compare(list(WAVES), peer.CPS, repeat, 1.0 if quick else 30.0):
        searches.append(one.to_dict())
        print(f"{one.workload} CP {one.cp}: {one.ratio:,.0f}x", file=sys.stderr, flush=True)
    series = {}
    for name in scaling.SERIES:
        series[name] = scaling.growth(name, True, repeat, 1.0 if quick else 20.0, quick)
        print(f"growth of {name}: done", file=sys.stderr, flush=True)
    return {
        "command": "python benches/peer.py",
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "reference": f"openpipe-art {reference.VERSION}",
        "searches": searches,
        "growth": series,
        "memory": scaling.memory(),
        "threads": [scaling.threads(), scaling.threads(64, 16, searches=10)],
    }


def plot(made: dict[str, Any], path: Path) -> None:
    """Plot planning time against tokens."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "waveplan"
    import matplotlib.pyplot as plt

    table = made["growth"]["tokens"]
    figure, axes = plt.subplots(figsize=(7, 4.2))
    styles = {
        "reference": ("openpipe-art, cold", "#b3261e", "o"),
        "ours": ("waveplan, cold, CPU caches emptied", "#1f5fa8", "o"),
        "warm": ("waveplan, pool known", "#6fa8dc", "s"),
        "read": ("reading the tokens once", "#777777", "."),
    }
    for key, (label, color, marker) in styles.items():
        rows = [row for row in table if key in row]
        x, y = [row["tokens"] for row in rows], [row[key] for row in rows]
        axes.loglog(x, y, color=color, marker=marker, markersize=4, label=label)
    for one in made["searches"]:
        if one["cp"] == scaling.CP:
            axes.plot(one["tokens"], one["reference_cold"], "x", color="#b3261e", markersize=5)
            axes.plot(one["tokens"], one["emptied"], "x", color="#1f5fa8", markersize=5)
    axes.set_xlabel("tokens of the pool")
    axes.set_ylabel("seconds to plan the first wave")
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False, fontsize=9)
    axes.set_title("64 sequences at CP 2; crosses: the eight pools of the table", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def summary(made: dict[str, Any]) -> str:
    """Return the tables of docs/speed.md."""
    exponents = {
        name: scaling.exponent(rows, name, "ours") for name, rows in made["growth"].items()
    }
    theirs = {
        name: scaling.exponent(rows, name, "reference") for name, rows in made["growth"].items()
    }
    memory = made["memory"]
    makes = [one["make"] for one in made["searches"]]
    lines = [
        f"{made['machine']}, CPython {made['python']}, {made['reference']}.",
        "",
        peer.search_table("", made["searches"]).markdown(),
        "",
        f"A planner is made in {seconds(min(makes))} to {seconds(max(makes))}.",
        "",
        "64 sequences, tokens double (CP 2, all fit):",
        "",
        scaling.growth_table("", made["growth"]["tokens"]).markdown(),
        "",
        "Sequences of 2,000 tokens, their number doubles:",
        "",
        scaling.growth_table("", made["growth"]["sequences"]).markdown(),
        "",
        f"Growth exponents over the upper half: with tokens {exponents['tokens']:.2f} (reference "
        f"{theirs['tokens']:.2f}), with sequences {exponents['sequences']:.2f} "
        f"(reference {theirs['sequences']:.2f}).",
        "",
        f"Memory: the input, and {memory['beyond'] / memory['input']:.3f} times as much, for "
        f"{memory['tokens']:,} tokens in {memory['sequences']:,} sequences.",
        "",
        "Two planners that search at the same time, beside one:",
        "",
        scaling.threads_table("", made["threads"]).markdown(),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="write nothing, a minute or two")
    parser.add_argument("--render", action="store_true", help="from the kept results")
    parser.add_argument("--pool", choices=sorted(WAVES), help="this one alone; write nothing")
    parser.add_argument("--cp", type=int, choices=peer.CPS, help="with --pool: at this CP alone")
    args = parser.parse_args()
    if args.pool:
        found = peer.compare([args.pool], [args.cp] if args.cp else peer.CPS, args.repeat)
        print(peer.search_table("", [one.to_dict() for one in found]).plain())
        return
    made = json.loads(RESULTS.read_text()) if args.render else measure(args.repeat, args.quick)
    text = summary(made)
    print(text)
    if args.quick:
        return
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    plot(made, DOCS / "speed.svg")
    page = DOCS / "speed.md"
    marked = re.compile(r"(<!-- measured -->\n).*(\n<!-- end -->)", re.DOTALL)
    page.write_text(marked.sub(lambda m: m[1] + text + m[2], page.read_text()), encoding="utf-8")


if __name__ == "__main__":
    main()
