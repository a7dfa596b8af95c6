"""A sweep for a person: its rows by modelled time, what cannot be, and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from waveplan.budget import format_bytes
from waveplan.desk.step import ASSUMED
from waveplan.desk.sweep import best
from waveplan.report.page import bar, document, folded, origin, section, table, tiles
from waveplan.report.summary import count
from waveplan.report.table import Markup, integer

if TYPE_CHECKING:
    from waveplan.desk.jobs import Job
    from waveplan.desk.sweep import Outcome

__all__ = ["OPTIONAL", "SHOWN", "collect", "page"]

SHOWN = 40
"""Configurations before the rest is left out of a text."""
AXES: Sequence[tuple[str, Callable[[Job], str]]] = (
    ("model", lambda job: job.model),
    ("ranks", lambda job: job.ranks_text()),
    ("recompute", lambda job: job.recompute),
    ("LoRA", lambda job: str(job.lora_rank)),
    ("rules", lambda job: job.rule_set),
    ("memory", lambda job: job.memory_text()),
)
"""What configurations differ in; all but the ranks are a column where they take several values."""
FIGURES: Sequence[tuple[str, Callable[[Outcome], str]]] = (
    ("GPUs", lambda out: integer(out.gpus)),
    ("us/token", lambda out: f"{out.us_per_token:,.1f}" if out.waves else ""),
    ("waves", lambda out: integer(out.waves)),
    ("requests/GPU", lambda out: f"{out.requests_per_gpu:,.2f}"),
    ("tokens/GPU", lambda out: f"{out.tokens_per_gpu:,.0f}"),
    ("required", lambda out: format_bytes(out.required) if out.waves else ""),
    ("DP time", lambda out: f"{out.dp_time:.2f}"),
    ("refused", lambda out: integer(out.refused)),
    ("doubt", lambda out: integer(out.doubtful)),
)
OPTIONAL = (
    "doubt",
    "DP time",
    "GPUs",
    "tokens/GPU",
    "requests/GPU",
    "waves",
    "required",
    "refused",
)
"""Columns that go where the terminal is narrow, the first first."""
ABOUT = {
    "us/token": "modelled microseconds of one GPU for a token",
    "requests/GPU": "of the mean wave",
    "tokens/GPU": "of the mean wave",
    "DP time": "modelled time of the slowest DP rank, over the mean",
    "doubt": "rules unmeasured or uncharged",
}
"""What columns mean."""


def collect(
    results: Sequence[tuple[Job, Outcome]],
    models: Sequence[str],
    provenance: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the data of a sweep: JSON types only. Rows that plan every request come first, by
    modelled time a token; the best is marked."""
    axes = [
        (name, value)
        for name, value in AXES
        if name == "ranks" or len({value(job) for job, _ in results}) > 1
    ]
    chosen = best(results)
    figures = [
        (name, value)
        for name, value in FIGURES
        if (name != "refused" or any(out.refused for _, out in results))
        and (name != "DP time" or any(out.dp_time != 1 for _, out in results))
        and (name != "GPUs" or len({out.gpus for _, out in results if out.waves}) > 1)
    ]
    order = [i for i, (_, out) in enumerate(results) if out.status != "impossible"]
    order.sort(key=lambda i: (results[i][1].refused, results[i][1].us_per_token))
    rows = []
    for i in order:
        job, out = results[i]
        mark = "best" if i == chosen else "" if out.status == "ok" else out.status
        cells = [mark, *(value(job) for _, value in axes), *(value(out) for _, value in figures)]
        rows.append({"cells": cells, "best": i == chosen, "name": _name(job, axes), **asdict(out)})
    impossible: dict[str, dict[str, int]] = {}
    for job, out in results:
        if out.status == "impossible":
            named = impossible.setdefault(out.reason, {})
            name = _name(job, [axis for axis in axes if axis[0] in ("model", "ranks")])
            named[name] = named.get(name, 0) + 1
    return {
        "title": f"waveplan: {', '.join(dict.fromkeys(job.model for job, _ in results))}",
        "answer": _answer(results, chosen, axes),
        "axes": [name for name, _ in axes],
        "columns": ["", *(name for name, _ in axes), *(name for name, _ in figures)],
        "rows": rows,
        "impossible": [
            {
                "reason": reason,
                "number": sum(named.values()),
                "configurations": [f"{n} ({k})" if k > 1 else n for n, k in named.items()],
            }
            for reason, named in impossible.items()
        ],
        "total": len(results),
        "about": {name: ABOUT[name] for name, _ in figures if name in ABOUT},
        "assumed": ASSUMED,
        "models": list(models),
        "provenance": dict(provenance or {}),
    }


def _name(job: Job, axes: Sequence[tuple[str, Callable[[Job], str]]]) -> str:
    words = {"LoRA": f"LoRA {job.lora_rank}", "recompute": f"{job.recompute} recompute"}
    return ", ".join(words.get(name, value(job)) for name, value in axes)


def _answer(
    results: Sequence[tuple[Job, Outcome]],
    chosen: int | None,
    axes: Sequence[tuple[str, Callable[[Job], str]]],
) -> str:
    whole = sum(out.status == "ok" for _, out in results)
    of = count(len(results), "configuration")
    if chosen is None:
        return f"none of {of} plans every request"
    job, out = results[chosen]
    several = {name for name, _ in axes}
    memory = "" if "memory" in several else f" ({job.memory_text()})"
    model = "" if "model" in several else f"{job.model} on "
    return (
        f"best of {of}: {model}{count(out.gpus, 'GPU')}{memory}, {_name(job, axes)}: "
        f"{out.us_per_token:,.1f} us a token and GPU, {count(out.waves, 'wave')}; {whole:,} plan "
        "every request"
    )


def page(data: dict[str, Any]) -> str:
    """Return the page of a sweep."""
    return document(
        data["title"],
        [_head(data), _times(data), _impossible(data), _assumed(data)],
        data,
    )


def _head(data: dict[str, Any]) -> str:
    first = next((row for row in data["rows"] if row["best"]), None)
    facts = []
    if first is not None:
        facts = [
            (
                f"{first['us_per_token']:,.1f} us",
                "of one GPU a token",
                "modelled, the least of all",
            ),
            (
                f"{first['waves']:,}",
                "waves" if first["waves"] != 1 else "wave",
                "for every request",
            ),
            (
                f"{first['requests_per_gpu']:,.2f}",
                "requests a wave and GPU",
                f"{first['tokens_per_gpu']:,.0f} tokens",
            ),
            (
                format_bytes(first["required"]),
                "for its tightest wave",
                f"of {format_bytes(first['available'])} available on each GPU",
            ),
        ]
    whole = sum(row["status"] == "ok" for row in data["rows"])
    title = (
        f"Best: {first['name']}" if first is not None else "No configuration plans every request"
    )
    lines = "".join(f"<p>{escape(line)}</p>" for line in data["models"])
    of = f"{whole:,} of {count(data['total'], 'configuration')} plan every request"
    return (
        f'<header><p class="brand">{escape(data["title"])}: {of}</p>'
        f"<h1>{escape(title)}</h1>{tiles(facts)}"
        f'<div class="job">{lines}</div></header>'
    )


def _times(data: dict[str, Any]) -> str:
    names = data["columns"]
    whole = [row for row in data["rows"] if row["status"] == "ok"] or data["rows"]
    slowest = max((row["us_per_token"] for row in whole), default=0) or 1
    full = max((row["available"] for row in data["rows"]), default=0) or 1
    at = names.index("us/token"), names.index("required")
    head = list(names)
    head[at[0] + 1 : at[0] + 1] = [" "]
    head[at[1] + 2 : at[1] + 2] = ["  "]
    rows = []
    for row in data["rows"]:
        colour = "#009e73" if row["best"] else "#0072b2" if row["status"] == "ok" else "#999999"
        cells: list[object] = list(row["cells"])
        if row["best"]:
            cells[0] = Markup('<span class="yes">best</span>')
        elif cells[0]:
            cells[0] = Markup(f'<span class="no">{cells[0]}</span>')
        shown = min(slowest, row["us_per_token"])
        time = bar([(row["cells"][at[0]], shown, colour)], slowest)
        held = bar([(row["cells"][at[1]], row["required"], colour)], full, row["available"])
        cells[at[0] + 1 : at[0] + 1] = [time]
        cells[at[1] + 2 : at[1] + 2] = [held]
        rows.append(cells)
    right = {*names} - {"", "ranks", *data["axes"]}
    return section(
        "Configurations",
        "Fastest first; those that leave requests unplanned last, in grey. The red line is what is "
        "available to waves. "
        + "; ".join(f"{name}: {text}" for name, text in data["about"].items())
        + ".",
        f'<div class="sweep">{table(head, rows, tuple(right))}</div>',
    )


def _impossible(data: dict[str, Any]) -> str:
    if not data["impossible"]:
        return ""
    rows = [("; ".join(item["configurations"]), item["reason"]) for item in data["impossible"]]
    number = sum(item["number"] for item in data["impossible"])
    return folded(
        f"{count(number, 'configuration')} cannot be",
        "Each with its reason.",
        f'<div class="long">{table(("configurations", "why"), rows, ())}</div>',
    )


def _assumed(data: dict[str, Any]) -> str:
    return section("Assumed", f"{data['assumed']}.") + origin(data["provenance"])
