"""Plan real rollouts under context parallelism; write what ownership does to docs/ownership.md.

    python benches/ownership.py                       # all configurations, some minutes
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
from typing import Any

import numpy as np

from waveplan import Budget, Planner, Requests, Topology, Training, models
from waveplan._core import OwnershipSettings
from waveplan.desk.jobs import Source
from waveplan.pricing import RuleSet, default_rules, reference_rules
from waveplan.report.table import Table

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "tests" / "data"
BEFORE = HERE / "results" / "ownership_0_1.json"
CORPORA = ("coding", "math_grpo", "tau_retail", "tau_turns")
MODELS = ("qwen3-8b", "qwen3.6-35b-a3b")
SIZES = (2, 4, 8, 16)
MEMORY = ("12GiB", "24GiB", "70GiB")


def rules_of(name: str) -> RuleSet:
    """Return the rules of 0.1, or those of this version."""
    if name == "current":
        return default_rules()
    return reference_rules().with_file(HERE / "rules_0_1.toml")


def planner(model: str, cp: int, memory: str, ranges: int, rules: RuleSet) -> Planner:
    """Return the planner of one configuration."""
    return Planner(
        models.get(model),
        Topology(cp=cp),
        Training(lora_rank=8),
        Budget(available=memory),
        rules,
        ownership=OwnershipSettings(max_ranges=ranges),
        margin=0.0,
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
                        if refused := set(known.get("refused", ())):
                            left = [i for i in range(len(requests)) if i not in refused]
                            kept = [requests.sequences[i] for i in left]
                            equal = figures(plans, Requests(kept)) if kept else made
                        print(corpus, model, memory, cp, ranges, file=sys.stderr, flush=True)
                        yield (corpus, model, memory, cp, ranges), made, equal, known


def main() -> None:
    """Measure, and print the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", choices=("0.1", "current"), default="0.1")
    parser.add_argument("--only", nargs="*", default=CORPORA, choices=CORPORA)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
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
    print(summary(rows))


def summary(rows: list[Any]) -> str:
    """Return the figures over all configurations, by ranges allowed."""
    lines = []
    for ranges in (1, 2):
        of = [row for row in rows if row[0][4] == ranges]
        packs = sum(made["packs"] for _, made, _, _ in of)
        proven = sum(made["proven"] for _, made, _, _ in of)
        gaps = [gap for _, made, _, _ in of for gap in made["over_bound"]]
        even = [over for _, made, _, _ in of for over in made["over_even"]]
        both = [(equal, known) for _, _, equal, known in of if known.get("time_ms")]
        ratios = [equal["time_ms"] / known["time_ms"] - 1 for equal, known in both]
        alike = [
            ratio
            for ratio, (equal, known) in zip(ratios, both, strict=True)
            if abs(equal["packed"] / known["packed"] - 1) <= 0.01
        ]
        wider = sum(
            ratio > 0.01 and equal["work"] < known["work"]
            for ratio, (equal, known) in zip(ratios, both, strict=True)
        )
        lines.append(
            f"{ranges} range{'s' * (ranges > 1)}: {proven} of {packs} packs proven "
            f"({100 * proven / max(1, packs):.0f}%); score over bound {np.mean(gaps):.4f} in the "
            f"mean, {max(gaps):.3f} at most; tokens over the even share {np.mean(even):.3f} in the "
            f"mean; modelled time at equal requests {100 * float(np.mean(ratios)):+.1f}% in the "
            f"mean, {100 * max(ratios):+.1f}% at worst, {sum(ratio > 0.01 for ratio in ratios)} of "
            f"{len(ratios)} configurations more than 1% slower, in {wider} of them with layouts of "
            f"less predicted work; where packed tokens are within 1%, {len(alike)} of them, "
            f"{100 * float(np.mean(alike)):+.1f}% in the mean and {100 * max(alike):+.1f}% at worst"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
