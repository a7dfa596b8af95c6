"""Waves of the corpora in order, in blocks and composed: how many, how slow, planned how fast.

    python benches/composition.py                       # prints what it measures
    python benches/composition.py --write               # into docs/composition.md and results/
    python benches/composition.py --rules 0.1           # under the rules of 0.1, beside the aims

qwen3.6-35b-a3b, LoRA rank 8, full recompute, every token labelled, no margin. Time is modelled, of
the slowest rank of each wave: as the waves run, by which orders are compared; and linear, with
everything shared and spread evenly over context-parallel ranks, beside its bound. The fewest waves
are those of an order in which every wave takes 100 s besides. Milliseconds of planning are of
processor time, the least of three.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from ownership import DATA, HERE, rules_of

from waveplan import AllShares, Budget, Composition, Planner, Requests, Topology, Training, models
from waveplan.desk.jobs import Source
from waveplan.pricing import RuleSet
from waveplan.report.table import Table

CORPORA = ("tau_retail", "tau_turns", "coding", "math_grpo")
PAGE = HERE.parent / "docs" / "composition.md"
MARKS = {
    "table": "<!-- table: python benches/composition.py --write -->\n",
    "summary": "<!-- summary: python benches/composition.py --write -->\n",
    "aims": "<!-- aims: python benches/composition.py --rules 0.1 --write -->\n",
    "times": "<!-- times: python benches/composition.py --rules 0.1 --write -->\n",
}
AIMS = {
    "tau_retail 24GiB": {1: 31, 2: 16, 4: 8},
    "tau_turns 24GiB": {1: 8, 2: 4, 4: 2},
    "coding 70GiB": {1: 15, 2: 8, 4: 5},
    "coding 24GiB": {1: 19, 2: 17, 4: 12},
    "math_grpo 24GiB": {1: 4, 2: 2, 4: 1},
}
"""Waves at dp 1 by CP, under the rules of 0.1."""
OVER = {
    "tau_retail 24GiB": 1.03,
    "tau_turns 24GiB": 1.06,
    "math_grpo 24GiB": 1.02,
    "coding 70GiB": 1.21,
}
"""Time over the bound at CP 1 and dp 8, under the rules of 0.1."""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the least milliseconds of processor time of three times."""
    took = []
    for _ in range(3):
        start = time.process_time()
        made = work()
        took.append(1e3 * (time.process_time() - start))
    return made, min(took)


def figures(requests: Requests, dp: int, cp: int, available: str, rules: RuleSet) -> dict[str, Any]:
    """What each order takes."""
    planner = Planner(
        models.get("qwen3.6-35b-a3b"),
        Topology(dp=dp, cp=cp),
        Training(recompute="full", lora_rank=8),
        Budget(available=available),
        rules,
        agreement=AllShares(),
        margin=0.0,
    )

    def composed(order: Any) -> Composition:
        return planner.compose(requests, on_refusal="skip", order=order)

    kept, blocks = composed("keep"), composed("blocks")
    fewest = planner.compose(requests, on_refusal="skip", fixed_ms=1e5)
    free, composing = timed(lambda: composed("free"))
    _, planning = timed(lambda: list(planner.waves(requests, on_refusal="skip")))
    orders = {"keep": kept, "blocks": blocks, "free": free, "fewest": fewest}
    return {
        "refused": len(free.refused),
        "bound": {"waves": free.bound, "packed": free.bound_tokens, "ms": free.bound_ms},
        "waves": {name: made.waves for name, made in orders.items()},
        "packed": {name: int(made.packed_tokens.sum()) for name, made in orders.items()},
        "ms": {name: float(made.ms.max(1).sum()) for name, made in orders.items()},
        "linear_ms": {name: float(made.linear_ms.max(1).sum()) for name, made in orders.items()},
        "uneven": {
            name: float(made.ms.max(1).sum() * dp / made.ms.sum()) if made.waves else 1.0
            for name, made in orders.items()
        },
        "by": free.by,
        "planning_ms": planning,
        "composing_ms": composing,
    }


def over(made: dict[str, Any], order: str) -> float:
    """Linear time over the bound."""
    return made["linear_ms"][order] / made["bound"]["ms"] if made["bound"]["ms"] else 1.0


def table(rows: dict[str, dict[str, Any]], dps: list[int]) -> Table:
    """Waves (in blocks, composed, bound) and linear time over the bound (in blocks, composed)."""
    right = tuple(name for dp in dps for name in (f"dp {dp}", "time"))
    made = Table("", ("corpus", "memory", "CP", *right), right=right)
    for job in dict.fromkeys(key.rsplit(" dp ", 1)[0] for key in rows):
        cells = []
        for dp in dps:
            one = rows[f"{job} dp {dp}"]
            waves = one["waves"]["blocks"], one["waves"]["free"], one["bound"]["waves"]
            cells += [
                ", ".join(map(str, waves)),
                f"{over(one, 'blocks'):.2f}, {over(one, 'free'):.2f}",
            ]
        corpus, memory, _, cp = job.split(" ")
        made.add(corpus, memory, cp, *cells)
    return made


def summary(rows: dict[str, dict[str, Any]]) -> str:
    """Figures over all jobs."""
    lines = []
    for dp in dict.fromkeys(key.rsplit(" ", 1)[1] for key in rows):
        of = [one for key, one in rows.items() if key.endswith(f" dp {dp}")]
        waves = (sum(one["waves"][name] for one in of) for name in ("keep", "blocks", "free"))
        saved = [
            1 - sum(one["ms"]["free"] for one in of) / sum(one["ms"][name] for one in of)
            for name in ("keep", "blocks")
        ]
        uneven = (median(one["uneven"][name] for one in of) for name in ("keep", "blocks", "free"))
        ratio = [one["composing_ms"] / one["planning_ms"] for one in of]
        lines.append(
            f"- dp {dp}: {', '.join(map(str, waves))} waves dealt in turn, in blocks, composed; "
            f"bound {sum(one['bound']['waves'] for one in of)}. Composed takes {saved[0]:.1%} less "
            f"modelled time than dealt in turn, {saved[1]:.1%} less than blocks. Slowest over mean "
            f"rank, median: {', '.join(f'{one:.2f}' for one in uneven)}. Composing over planning "
            f"in order: {median(ratio):.1f} times in the median, {max(ratio):.1f} at most."
        )
    return "\n".join(lines)


def aims(rows: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """What was aimed at under the rules of 0.1, and what was reached."""
    made = Table("", ("job", "aim", "fewest", "bound", "fastest", "time of the fewest"))
    for job, waves in AIMS.items():
        for cp, most in waves.items():
            if one := rows.get(f"{job} CP {cp} dp 1"):
                count, ms = one["waves"], one["ms"]
                more = f"{ms['fewest'] / ms['free'] - 1:+.1%}"
                bound = one["bound"]["waves"]
                made.add(f"{job} CP {cp}", most, count["fewest"], bound, count["free"], more)
    over_bound = Table("", ("job", "aim", "linear time over the bound"))
    for job, most_over in OVER.items():
        if one := rows.get(f"{job} CP 1 dp 8"):
            over_bound.add(f"{job} CP 1 dp 8", most_over, f"{over(one, 'free'):.3f}")
    return made.markdown(), over_bound.markdown()


def put(text: str, name: str, made: str) -> str:
    """The page with what stands under a mark, up to the next empty line, replaced."""
    before, mark, after = text.partition(MARKS[name])
    assert mark, name
    return f"{before}{mark}{made.rstrip()}\n\n{after.partition(chr(10) * 2)[2]}"


def main() -> None:
    """Print or write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cp", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--dp", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--available", nargs="*", default=["12GiB", "24GiB", "70GiB"])
    parser.add_argument("--rules", choices=("0.1", "current"), default="current")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rules, rows = rules_of(args.rules), {}
    for corpus in CORPORA:
        requests = Source(path=str(DATA / f"{corpus}_open.npz")).requests()
        for available in args.available:
            for cp in args.cp:
                for dp in args.dp:
                    key = f"{corpus} {available} CP {cp} dp {dp}"
                    print(key, file=sys.stderr, flush=True)
                    rows[key] = figures(requests, dp, cp, available, rules)
    parts = {"table": table(rows, args.dp).markdown(), "summary": summary(rows)}
    if args.rules == "0.1":
        parts = dict(zip(("aims", "times"), aims(rows), strict=True))
    print("\n\n".join(parts.values()))
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        for name, made in parts.items():
            page = put(page, name, made)
        PAGE.write_text(page, encoding="utf-8")
        name = "composition_0_1.json" if args.rules == "0.1" else "composition.json"
        lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(one)}" for key, one in rows.items())
        (HERE / "results" / name).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
