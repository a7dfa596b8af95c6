"""Write docs/accuracy.md: every public measurement that we know, priced from its facts alone.

python docs/accuracy.py > docs/accuracy.md
"""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path
from typing import Any

from waveplan.accuracy import report as reports
from waveplan.accuracy.check import check
from waveplan.accuracy.megatron import BACKENDS
from waveplan.accuracy.report import (
    CLASS_COLUMNS,
    RECORD_COLUMNS,
    STEP,
    STRAIGHT,
    TARGETS,
    Report,
    cause,
)
from waveplan.report.table import Table

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"

_INTRODUCTION = (
    "Every public measurement that we know, priced from its facts alone by `waveplan check`.",
    "`python docs/accuracy.py > docs/accuracy.md` writes this page; a test keeps it equal to the",
    "rules.",
    "",
    "- *estimate*: the sum of the rules over the observed peak; *required*: with the safety factor",
    "  of 1.10 and, in the default rules, the margin of rules outside where they were checked.",
    "  Below 1 the price is below what was measured.",
    "- *withheld*: required with the margin of 10 % that a planner keeps back while a rule in",
    "  doubt matters: without it the price would be another. For other trainers and Megatron's",
    "  tests required includes it.",
    "- Three figures are the least, the median and the largest ratio of a class.",
    "- *reference*: the same records with the rules of the reference planner.",
    "- *if balanced*: expert ranks get equal shares. The default assumes that they do not.",
    "- *resident*: weights, adapters and the allowance against what was allocated before a call.",
)
_IN_SAMPLE = (
    "## What these figures check, and what they do not",
    "",
    "No constant is fitted to a record. But rules were held against these records while they were",
    "written, so all figures here are in-sample; records that no author saw will do worse.",
    "",
    "- Bounds read off records, marked in the table of rules: `cold.first_call`,",
    "  `selective.first_use` and `resident.first_use`. The classes that they decide (full",
    "  recompute of MoE models when cold, below 500 tokens, resident) do not check them.",
    "- Structure chosen after a look at residuals: the order in which Megatron's terms add; the",
    "  attention kernels by platform below; 32 MiB of cuBLAS workspace on Blackwell; fp32 copies",
    "  of scores without softmax fusion; how often logits are copied (`head`: 12 bytes a logit in",
    "  plain PyTorch, 24 where they are upcast, shifted and returned, taken for ms-swift; 8 under",
    "  DeepSpeed).",
    "- The world size of release runs of Megatron's tests was inferred from their states, which",
    "  then agree by construction.",
    "- Gradients of full fine-tuning are charged always, as Megatron and DeepSpeed hold them: the",
    "  first micro-batch of a step in plain PyTorch is charged up to their size too much.",
    "",
    "Targets that are missed are listed below. No field of the records decides them:",
    "",
    "- *Resident.* The listed workspaces (96 MiB, 224 with experts) are all that one rank of",
    "  qwen3.6-35b-a3b holds beside its weights, to 0.7 MB. The other bases hold more: 57 MiB",
    "  (1.7B), 127 and 132 (9B, 4B), 403, 391 and 275 (27B at TP 2, 4 and 8), of hybrid models",
    "  near multiples of 128 MiB, as four more workspaces of 32 MiB would be. None says which",
    "  streams had run. The list alone would put seven of eight below what was allocated, at 0.91",
    "  to 0.99, so that eager jobs keep an allowance.",
    "- *Below 500 tokens.* csv-13 and csv-17 have equal fields and peaks 87 MB apart, as if a",
    "  first use were behind one process. A price that covers it is 1.4 times a peak of 218",
    "  tokens without it. Of the 27 tokens of golden-27, 210 MB are charged by no rule.",
    "- *Balanced routing.* None says how many tokens each expert got.",
)
_TESTS = (
    "## Megatron-LM's functional tests",
    "",
    "`waveplan check tests/data/megatron_tests.json.gz`: arguments and exact bytes of the last",
    "pipeline stage. *States* are held against what is allocated after a step. *Required* is what",
    "a planner must have, the margin of 10 % of the available bytes included where a rule in",
    "doubt matters. Routing is taken as equal shares; the JSON notes what factor would explain a",
    "peak.",
)
_OTHERS = (
    "## Other trainers",
    "",
    "`waveplan check tests/data/other_trainers.json.gz`. Most figures hold allocator slack, so",
    "slopes over tokens count; *allocated* ones are levels. A series is jobs that differ in the",
    "length of one row, or in the number of rows. *Least* and *largest* are slopes between its",
    "neighbours. A ratio checks the rules where all of a job is charged and the series is a line:",
    f"three records or more, their slopes within a factor of {STRAIGHT}, rising. Reserved memory",
    "grows in steps and ends at the size of the device, so that others are none. What the records",
    "do not state, and what follows from the trainers' code:",
    "",
    "- `qlora`: Qwen's script runs it in fp16 under DeepSpeed, without autocast: logits, shifted",
    "  copy, softmax and gradient in 16 bits, 8 bytes a logit; the records say bf16.",
    "- Zephyr grows with the square of the tokens, though the records say flash: with an unfused",
    "  attention its levels are 0.93 to 1.13 of the peaks. Yi 6B jumps at 4,096 tokens by more.",
    "- Baichuan's head is taken as Qwen's.",
)


TESTS = DATA / "megatron_tests.json.gz"


def page(peaks: Report, tests: Report, others: Report) -> str:
    """The whole page, from the reports over the three files of records."""
    parts = ["# Accuracy", "\n".join(_INTRODUCTION), "\n".join(_IN_SAMPLE), _classes(peaks)]
    for title, rows in peaks.remarks()[:2]:
        lines = [f"- `{row.id}`: {cause(row)} ({reports.ratios(row)})." for row in rows]
        parts += [f"### {title[0].upper()}{title[1:]}", "\n".join(lines or ["None."])]
    parts += ["\n".join(_TESTS), *_megatron(tests), "\n".join(_OTHERS), *_trainers(others)]
    parts += ["## Records of the first table", _records(peaks)]
    for name, report in (("peaks", peaks), ("other trainers", others)):
        unpriced = "\n".join(f"- `{one.id}`: {one.reason}." for one in report.unpriced)
        parts += [f"### Not priced, {name}", unpriced or "None."]
    return "\n\n".join(parts)


def _classes(report: Report) -> str:
    rows = [
        (*reports.class_figures(one), _target(one.name), ", ".join(one.below))
        for one in report.classes()
    ]
    head = ("class", "records", *CLASS_COLUMNS, "target", "below parity")
    return Table("", head, rows).markdown()


def _records(report: Report) -> str:
    rows = [
        (
            *(row.id, row.model, row.ranks, row.state),
            f"{row.local_tokens:,}" if row.local_tokens else "",
            *reports.figures(row),
            "; ".join(row.assumed),
        )
        for row in report.ordered()
    ]
    head = ("record", "model", "ranks", "state", "local tokens", *RECORD_COLUMNS, "assumed")
    return Table("", head, rows).markdown()


def _theirs() -> Any:
    path = ROOT / "benches" / "megatron_report.py"
    spec = importlib.util.spec_from_file_location("megatron_report", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _within(ratios: list[float], most: float) -> str:
    return f"{sum(abs(ratio - 1) <= most for ratio in ratios) / len(ratios):.0%}"


def _megatron(report: Report) -> list[str]:
    theirs = {line[0]: line for line in _theirs().compared(str(TESTS), report)}
    lines = []
    for one in report.classes():
        peaks = [row.estimate / row.observed for row in one.rows]
        states = [(row.states or 0) / (row.states_observed or 1) for row in one.rows]
        required = [row.required_ratio for row in one.rows]
        lines.append(
            (
                *(one.name.partition(", ")[2], len(one.rows)),
                *(_within(peaks, 0.05), _within(peaks, 0.1), _within(states, 0.02)),
                *(f"{statistics.median(required):.2f}", sum(ratio < 1 for ratio in required)),
                *theirs[one.name][4:],
            )
        )
    head = ("class", "records", "within 5 %", "within 10 %", "states within 2 %", "required")
    head += ("required below", "Megatron's own 5 %", "own 10 %", "own below")
    kernels = [
        (
            part or "others",
            gpu,
            kernel,
            "" if sure else "not by all: `required` is of an unfused one",
        )
        for part, gpu, kernel, sure in BACKENDS
    ]
    far = [row for row in report.rows if abs(row.estimate / row.observed - 1) > 0.1]
    covered = [row for row in far if not row.uncharged]
    listed = [f"- `{row.id}`: {reports.ratios(row)}; {cause(row)}." for row in covered]
    priced = sum(not row.uncharged for row in report.rows)
    return [
        Table("", head, lines).markdown(),
        f"Of {len(report.rows)} tests {priced} are covered: nothing of theirs is uncharged. What"
        " Megatron's own report says is restated by `benches/megatron_report.py`, its activations"
        " added everywhere.",
        "Where the arguments state no attention kernel, `check` takes it from the platform, the"
        " first row that matches (a planner without that fact prices an unfused one and says so):",
        Table("", ("platform", "GPU", "kernel", "runs agree"), kernels).markdown(),
        f"### Covered and further than 10 % off ({len(covered)})",
        "\n".join(listed),
    ]


def _trainers(report: Report) -> list[str]:
    slopes = [
        (
            *(one.name, one.records, f"{one.observed:,.0f}"),
            *(f"{slope:,.0f}" for slope in one.spread),
            *(f"{one.estimate:,.0f}", f"{one.ratio:.3f}", one.no_check),
        )
        for one in report.slopes()
    ]
    levels = [
        (row.id, *reports.figures(row)[:4], ", ".join(row.uncharged))
        for row in report.rows
        if row.class_name == "other trainers, allocated"
    ]
    steps = [
        f"- `{row.id}`: estimate {row.estimate / row.observed:.3f}."
        for row in report.rows
        if STEP in row.assumed
    ]
    head = ("records", "number", "observed, bytes a token", "least", "largest")
    head += ("estimate", "ratio", "no check")
    lines = [one.ratio for one in report.slopes() if not one.no_check]
    every = [one.ratio for one in report.slopes()]
    return [
        Table("", head, slopes).markdown(),
        f"{len(lines)} of {len(slopes)} series are lines: within 5 % {_within(lines, 0.05)}, within"
        f" 10 % {_within(lines, 0.1)}. Whether a series is a line is seen on its peaks, not stated"
        f" by its records: of all {len(slopes)}, {_within(every, 0.1)} are within 10 %.",
        Table("", ("record", *RECORD_COLUMNS[:4], "uncharged"), levels).markdown(),
        f"### {STEP[0].upper()}{STEP[1:]} ({len(steps)})",
        "Their figures say nothing of tokens.",
        "\n".join(steps),
    ]


def _target(name: str) -> str:
    if name not in TARGETS:
        return ""
    kind, least, most = TARGETS[name]
    ratio = {"balanced": "required if balanced"}.get(kind, kind)
    return f"{ratio} from {least:.2f}" + (f" to {most:.2f}" if most < 100 else "")


if __name__ == "__main__":
    files = DATA / "peaks.json", TESTS, DATA / "other_trainers.json.gz"
    print(page(*map(check, files)))
