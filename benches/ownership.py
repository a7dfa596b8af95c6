"""Plan real rollouts under context parallelism; write what ownership does to docs/ownership.md.

    python benches/ownership.py                       # all configurations, some minutes
    python benches/ownership.py --write               # the same, and its figures into the page
    python benches/ownership.py --rules current       # under the default rules of this version
    python benches/ownership.py --only coding --json  # one corpus, figures as JSON

LoRA rank 8, full recompute, every token labelled, TP 1 and EP 1, no margin. The rules are those of
0.1 (`rules_0_1.toml`), so that figures compare with the planner of 0.1, whose own are kept in
`results/ownership_0_1.json`: there each rank had the reference planner's ownership, and a wave was
refused or narrower where that did not fit. "time" is modelled, of all layers and waves: none is
measured on a GPU. "equal requests" plans only those requests that 0.1 could run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from waveplan import Budget, Planner, Requests, Topology, Training, models
from waveplan._core import OwnershipSettings
from waveplan.desk.jobs import Source
from waveplan.pricing import RuleSet, default_rules, reference_rules
from waveplan.report.table import Table

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "tests" / "data"
BEFORE = HERE / "results" / "ownership_0_1.json"
PAGE = HERE.parent / "docs" / "ownership.md"
MARKS = ("<!-- measured -->\n", "<!-- end -->")
CORPORA = ("coding", "math_grpo", "tau_retail", "tau_turns")
MODELS = ("qwen3-8b", "qwen3.6-35b-a3b")
SIZES = (2, 4, 8, 16)
MEMORY = ("12GiB", "24GiB", "70GiB")
SHOWN = (  # of the corpus "coding", on the page
    *(("qwen3.6-35b-a3b", "24GiB", 2), ("qwen3-8b", "24GiB", 2)),
    *(("qwen3.6-35b-a3b", "24GiB", cp) for cp in (4, 8)),
    *(("qwen3.6-35b-a3b", "12GiB", cp) for cp in SIZES),
)


def rules_of(name: str) -> RuleSet:
    """Return the rules of 0.1, or those of this version."""
    if name == "current":
        return default_rules()
    return reference_rules().with_file(HERE / "rules_0_1.toml")


def planner(
    model: str,
    cp: int,
    memory: str,
    ranges: int,
    rules: RuleSet,
    objective: Literal["time", "widest"] = "time",
) -> Planner:
    """Return the planner of one configuration."""
    return Planner(
        models.get(model),
        Topology(cp=cp),
        Training(lora_rank=8),
        Budget(available=memory),
        rules,
        ownership=OwnershipSettings(max_ranges=ranges),
        margin=0.0,
        objective=objective,
    )


def figures(plans: Planner, requests: Requests) -> dict[str, Any]:
    """Plan a pool; return what its waves did."""
    start = time.perf_counter()
    run = plans.waves(requests, on_refusal="skip")
    waves = list(run)
    seconds = time.perf_counter() - start
    packs = [pack for wave in waves for pack in wave.plan.packs]
    cuts = [pack.ownership for pack in packs if pack.ownership is not None]
    probes = sum(len(wave.probes) for wave in waves)
    return {
        "waves": len(waves),
        "refused": sorted(int(i) for refusal in run.refused for i in refusal.indices),
        "time_ms": sum(pack.time_ms or 0.0 for pack in packs),
        "packed": sum(pack.packed_tokens for pack in packs),
        "work": sum(pack.work for pack in packs),
        "over_bound": [made.score / made.bound for made in cuts if made.bound],
        "over_even": [made.most_tokens * made.ranks / made.tokens for made in cuts],
        "proven": sum(made.optimal for made in cuts),
        "packs": len(cuts),
        "two_ranges": sum(made.most_ranges > 1 for made in cuts),
        "probe_us": 1e6 * seconds / max(1, probes),
    }


def equal_requests(requests: Requests, known: dict[str, Any]) -> Requests:
    """Return the requests that 0.1 could run; all where it could run none."""
    left = np.setdiff1d(np.arange(len(requests)), known.get("refused", ()))
    return Requests([requests.sequences[i] for i in left]) if len(left) else requests


def measure(only: tuple[str, ...], rules: RuleSet, before: dict[str, Any]) -> Iterator[Any]:
    """Yield configuration, figures of all requests, and of those that 0.1 could run."""
    for corpus in only:
        requests = Source(path=str(DATA / f"{corpus}_open.npz")).requests()
        for model in MODELS:
            for memory in MEMORY:
                for cp in SIZES:
                    known = before.get(f"{corpus} {model} {cp} {memory}", {})
                    for ranges in (1, 2):
                        plans = planner(model, cp, memory, ranges, rules)
                        made = figures(plans, requests)
                        equal = made
                        if known.get("refused"):
                            equal = figures(plans, equal_requests(requests, known))
                        print(corpus, model, memory, cp, ranges, file=sys.stderr, flush=True)
                        yield (corpus, model, memory, cp, ranges), made, equal, known


def main() -> None:
    """Measure, and print the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", choices=("0.1", "current"), default="0.1")
    parser.add_argument("--only", nargs="*", default=CORPORA, choices=CORPORA)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the figures into the page")
    args = parser.parse_args()
    if args.write and (len(args.only) < len(CORPORA) or args.rules != "0.1"):
        parser.error("--write needs all corpora under the rules of 0.1")
    before = json.loads(BEFORE.read_text(encoding="utf-8"))
    rows = list(measure(tuple(args.only), rules_of(args.rules), before))
    if args.json:
        names = ("corpus", "model", "memory", "cp", "max_ranges")
        made = [
            {**dict(zip(names, key, strict=True)), "all": made, "equal": equal, "before": known}
            for key, made, equal, known in rows
        ]
        print(json.dumps(made, indent=1))
        return
    right = (
        "CP",
        "ranges",
        "waves",
        "refused",
        "time",
        "over bound",
        "over even",
        "proven",
        "probe",
    )
    table = Table("", ("rollouts", "model", "memory", *right), right=frozenset(right))
    for (corpus, model, memory, cp, ranges), made, equal, known in rows:
        ratio = equal["time_ms"] / known["time_ms"] if known.get("time_ms") else float("nan")
        table.add(
            *(corpus, model, memory, cp, ranges),
            f"{known.get('waves', '')} > {made['waves']}",
            f"{len(known.get('refused', ()))} > {len(made['refused'])}",
            f"{100 * (ratio - 1):+.1f}%",
            f"{median(made['over_bound'] or [1]):.3f}",
            f"{median(made['over_even'] or [1]):.2f}",
            f"{made['proven']} of {made['packs']}",
            f"{made['probe_us']:.0f} us",
        )
    print(table.markdown())
    text = page(rows, rules_of(args.rules)) if "coding" in args.only else overall(rows)
    print(text)
    if args.write:
        old = PAGE.read_text(encoding="utf-8")
        before_it, after_it = old.split(MARKS[0])[0], old.split(MARKS[1])[1]
        PAGE.write_text(before_it + MARKS[0] + text + MARKS[1] + after_it, encoding="utf-8")


def page(rows: list[Any], rules: RuleSet) -> str:
    """Return the page's figures: of the corpus "coding", then over all configurations."""
    found = {key: row for key, *row in rows}
    requests = Source(path=str(DATA / "coding_open.npz")).requests()
    widest = "waves, `widest`, 2 ranges"
    right = ("CP", "available", "refused, 0.1", "refused", "waves, 0.1", "waves", widest)
    right = (*right, "time at equal requests", "2 ranges", "`widest`, 2 ranges")
    table = Table("", ("coding rollouts", *right), right=frozenset(right))
    for model, memory, cp in SHOWN:
        one, two = (found["coding", model, memory, cp, ranges] for ranges in (1, 2))
        made, _, known = one
        plans = planner(model, cp, memory, 2, rules, "widest")
        alike = figures(plans, equal_requests(requests, known))
        table.add(
            *(model, cp, memory.replace("GiB", " GiB"), len(known["refused"])),
            *(len(made["refused"]), known["waves"], made["waves"]),
            figures(plans, requests)["waves"],
            *(f"{100 * slower(*of):+.1f}%" for of in (one, two, ({}, alike, known))),
        )
    return f"{table.markdown().rstrip()}\n\n{overall(rows)}\n"


def slower(_: dict[str, Any], equal: dict[str, Any], known: dict[str, Any]) -> float:
    """Return the modelled time at equal requests over that of 0.1, less one."""
    return float(equal["time_ms"] / known["time_ms"]) - 1


def overall(rows: list[Any]) -> str:
    """Return a table of the figures over all configurations, and those slower than in 0.1."""
    columns: list[list[str]] = []
    late: list[str] = []
    for ranges in (1, 2):
        of = {key: row for key, *row in rows if key[4] == ranges}
        all_made = [made for made, _, _ in of.values()]
        packs = sum(made["packs"] for made in all_made)
        proven = sum(made["proven"] for made in all_made)
        ratios = {key: slower(*row) for key, row in of.items() if row[2].get("time_ms")}
        alike = [
            ratio
            for key, ratio in ratios.items()
            if abs(of[key][1]["packed"] / of[key][2]["packed"] - 1) <= 0.01
        ]
        columns.append(
            [
                f"{100 * proven / max(1, packs):.0f}%",
                f"{np.mean([gap for made in all_made for gap in made['over_bound']]):.3f}",
                f"{np.mean([over for made in all_made for over in made['over_even']]):.2f}",
                f"{100 * np.mean(list(ratios.values())):+.1f}%",
                f"{len(alike)}: {100 * np.mean(alike):+.1f}%, {100 * max(alike):+.1f}%",
                f"{sum(ratio > 0.01 for ratio in ratios.values())} of {len(ratios)}",
            ]
        )
        late += [
            f"{corpus}, {model}, {memory}, CP {cp} ({ranges}): {100 * ratio:+.1f}%"
            for (corpus, model, memory, cp, _), ratio in ratios.items()
            if ratio > 0.01
        ]
    names = (
        "packs whose owners are proven fastest within their limit",
        "score over bound, mean",
        "tokens of the busiest rank over the even share, mean",
        "modelled time at equal requests, mean",
        "the same where packed tokens are within 1% of those of 0.1: configurations, mean, worst",
        "slower than 0.1 by more than 1%",
    )
    table = Table("", ("", "one range", "two ranges"), right=frozenset(("one range", "two ranges")))
    for row in zip(names, *columns, strict=True):
        table.add(*row)
    scope = "Over all configurations (corpora, models, CP 2 to 16, 12, 24 and 70 GiB):"
    slow = "Slower than 0.1 in modelled time by more than 1% (ranges):"
    listed = "\n".join(f"- {one}" for one in late or ["none"])
    text = table.markdown().rstrip()
    return f"More waves run where more requests do. {scope}\n\n{text}\n\n{slow}\n\n{listed}"


if __name__ == "__main__":
    main()
