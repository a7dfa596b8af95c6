"""A sweep for a person: its rows by modelled time, what cannot be, and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from waveplan.budget import format_bytes
from waveplan.desk.step import ASSUMED
from waveplan.desk.sweep import best
from waveplan.report.page import bar, document, origin, section, tiles, unbroken
from waveplan.report.summary import count, milliseconds
from waveplan.report.table import Markup, Table, integer

if TYPE_CHECKING:
    from waveplan.desk.jobs import Job
    from waveplan.desk.sweep import Outcome

__all__ = ["collect", "page", "table"]

LISTED = 4
"""The most configurations that the answer names."""
WIDE = 11
"""The most columns of a page."""
SHOWN = 40
"""Configurations before the rest is left out of a text."""
AXES: Sequence[tuple[str, Callable[[Job], str]]] = (
    ("model", lambda job: job.model),
    ("ranks", lambda job: job.ranks_text()),
    ("recompute", lambda job: job.recompute),
    ("LoRA", lambda job: str(job.lora_rank)),
    ("rules", lambda job: job.rule_set),
    ("memory", lambda job: _memory(job)),
)
"""What configurations differ in; all but the ranks are a column where they take several values."""


def _memory(job: Job) -> str:
    """The memory in few letters."""
    text, device = job.memory_text(), job.device
    return device.name if device is not None and text == str(device) else text


FIGURES: Sequence[tuple[str, Callable[[Outcome, float], str]]] = (
    ("GPUs", lambda out, _: integer(out.gpus)),
    ("us/token", lambda out, _: f"{out.us_per_token:,.1f}" if out.waves else ""),
    ("time", lambda out, slowest: milliseconds(out.step_ms, slowest) if out.waves else ""),
    ("waves", lambda out, _: integer(out.waves)),
    ("requests/GPU", lambda out, _: f"{out.requests_per_gpu:,.2f}" if out.waves else ""),
    ("tokens/GPU", lambda out, _: f"{out.tokens_per_gpu:,.0f}" if out.waves else ""),
    ("required", lambda out, _: format_bytes(out.required) if out.waves else ""),
    ("available", lambda out, _: format_bytes(out.available)),
    ("DP time", lambda out, _: f"{out.dp_time:.2f}" if out.waves else ""),
    ("planned", lambda out, _: f"{out.planned:,} of {out.planned + out.refused:,}"),
    ("doubt", lambda out, _: integer(out.doubtful) if out.waves else ""),
)
"""Columns of an outcome, by it and by the slowest of all."""
OPTIONAL = (
    "doubt",
    "DP time",
    "available",
    "tokens/GPU",
    "requests/GPU",
    "waves",
    "required",
    "time",
    "GPUs",
    "planned",
)
"""Columns that go where the terminal is narrow, the first first."""
ABOUT = {
    "us/token": "modelled microseconds of one GPU for a token",
    "time": "modelled, of all waves",
    "requests/GPU": "of the mean wave",
    "tokens/GPU": "of the mean wave, before prefixes are shared",
    "DP time": "modelled time of the slowest DP rank, over the mean",
    "doubt": "rules unmeasured or uncharged",
}
"""What columns mean."""


def collect(
    results: Sequence[tuple[Job, Outcome]],
    models: Sequence[str],
    provenance: Mapping[str, str] | None = None,
    swept: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the data of a sweep: JSON types only. Rows that plan every request come first, by
    modelled time a token, model by model; the best of each is marked. ``swept`` are the ranks that
    took values of their own."""
    axes = [
        (name, value)
        for name, value in AXES
        if name == "ranks" or len({value(job) for job, _ in results}) > 1
    ]
    chosen = best(results)
    figures = [
        (name, value)
        for name, value in FIGURES
        if (name != "planned" or any(out.refused for _, out in results))
        and (name != "available" or len({out.available for _, out in results if out.gpus}) > 1)
        and (name != "DP time" or any(out.dp_time != 1 for _, out in results))
        and (name not in ("GPUs", "time") or len({out.gpus for _, out in results if out.waves}) > 1)
    ]
    order = [i for i, (_, out) in enumerate(results) if out.status != "impossible"]
    models_ = list(dict.fromkeys(job.model for job, _ in results))
    order.sort(
        key=lambda i: (
            models_.index(results[i][0].model),
            results[i][1].refused,
            results[i][1].us_per_token,
        )
    )
    slowest = max((out.step_ms for _, out in results), default=0.0)
    rows = []
    for i in order:
        job, out = results[i]
        mark = "best" if i in chosen else "" if out.status == "ok" else out.status
        cells = [
            mark,
            *(value(job) for _, value in axes),
            *(value(out, slowest) for _, value in figures),
        ]
        rows.append({"cells": cells, "best": i in chosen, "name": _name(job, axes), **asdict(out)})
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
        "setting": _setting(results),
        "notes": _notes(results, swept),
        "assumed": ASSUMED,
        "models": list(models),
        "provenance": dict(provenance or {}),
    }


def _name(job: Job, axes: Sequence[tuple[str, Callable[[Job], str]]]) -> str:
    words = {"LoRA": f"LoRA {job.lora_rank}", "recompute": f"{job.recompute} recompute"}
    return ", ".join(words.get(name, value(job)) for name, value in axes)


def _setting(results: Sequence[tuple[Job, Outcome]]) -> list[str]:
    """What all configurations have in common: requests, devices, training mode."""
    lines: list[str] = []
    possible = [(job, out) for job, out in results if out.status != "impossible"]
    for _, out in possible:
        if out.status == "ok" or not lines:
            tokens = f" of {count(out.logical_tokens, 'token')} in all" * (out.status == "ok")
            lines = [f"{count(out.planned + out.refused, 'request')}{tokens}"]
    gpus, memory = {out.gpus for _, out in possible}, {job.memory_text() for job, _ in possible}
    if len(gpus) == len(memory) == 1:
        lines.append(f"{count(gpus.pop(), 'GPU')}, each {memory.pop()}")
    training = {job.training_text() for job, _ in possible}
    return ["; ".join(lines)] * bool(lines) + (list(training) if len(training) == 1 else [])


def _notes(results: Sequence[tuple[Job, Outcome]], swept: Sequence[str]) -> list[str]:
    """What to know of these configurations."""
    jobs, lines = [job for job, _ in results], list[str]()
    if swept:
        named = ", ".join(name.upper() for name in swept)
        lines.append(f"{named} took powers of two, where model and GPUs can be divided so")
    if len(jobs) == 1:
        lines.append("--gpus 8, without any ranks, tries TP, CP, PP and EP")
    if any(job.ep > 1 for job in jobs):
        lines.append("EP takes no GPUs of its own: expert ranks span DP, TP and CP ranks")
    if any(job.tp > 1 and not job.sequence_parallel for job in jobs):
        lines.append(
            "TP runs without --sequence-parallel: each of its ranks holds the inputs of all layers"
        )
    if any(job.available is not None for job in jobs):
        lines.append("--available takes for granted that what is resident fits; --gpu checks it")
    return lines


def _answer(
    results: Sequence[tuple[Job, Outcome]],
    chosen: Sequence[int],
    axes: Sequence[tuple[str, Callable[[Job], str]]],
) -> str:
    whole = sum(out.status == "ok" for _, out in results)
    of = count(len(results), "configuration")
    if not chosen:
        return f"none of {of} plans every request"
    several = {name for name, _ in axes}
    found = list[str]()
    for job, out in (results[i] for i in chosen):
        memory = "" if "memory" in several else f" ({job.memory_text()})"
        model = "" if "model" in several or found else f"{job.model} on "
        time = f"{milliseconds(out.step_ms)}, " if len(chosen) > 1 else ""
        found.append(
            f"{model}{count(out.gpus, 'GPU')}{memory}, {_name(job, axes)}: "
            f"{out.us_per_token:,.1f} us a token and GPU, {time}{count(out.waves, 'wave')}"
        )
    more = f"; {len(found) - LISTED} more are marked" if len(found) > LISTED else ""
    return f"best of {of}: {'; '.join(found[:LISTED])}{more}; {whole:,} plan every request"


def table(data: dict[str, Any], most: int | None = None, without: str | None = None) -> Table:
    """Return the table of the data of a sweep, or of its first rows, or without a column."""
    kept = [i for i, name in enumerate(data["columns"]) if name != without]
    names, text = [data["columns"][i] for i in kept], {"", "ranks", *data["axes"]}
    optional = [name for name in OPTIONAL if name in names]
    rows = [[row["cells"][i] for i in kept] for row in data["rows"][:most]]
    return Table("", names, rows, right={*names} - text, optional=optional, about=data["about"])


def page(data: dict[str, Any]) -> str:
    """Return the page of a sweep."""
    return document(data["title"], [_head(data), _times(data), _assumed(data)], data)


def _head(data: dict[str, Any]) -> str:
    first = [row for row in data["rows"] if row["best"]]
    facts = [
        (
            f"{row['us_per_token']:,.1f} us",
            "of GPU time for a token, modelled",
            "the least of all"
            if len(first) == 1
            else f"{row['name']}, on {count(row['gpus'], 'GPU')}",
        )
        for row in first[:LISTED]
    ]
    for row in first if len(first) == 1 else ():
        facts += [
            (
                count(row["waves"], "wave"),
                f"for {count(row['planned'], 'request')}",
                f"on {count(row['gpus'], 'GPU')}",
            ),
            (
                f"{row['requests_per_gpu']:,.2f}",
                "requests for each GPU in a wave",
                f"{row['tokens_per_gpu']:,.0f} tokens, before prefixes are shared",
            ),
            (
                format_bytes(row["required"]),
                "required by its tightest wave",
                f"of {format_bytes(row['available'])} available on each GPU",
            ),
        ]
    whole = sum(row["status"] == "ok" for row in data["rows"])
    totals = len({row["gpus"] for row in first}) > 1
    best = "; ".join(row["name"] + f" on {row['gpus']} GPUs" * totals for row in first[:LISTED])
    title = f"Best: {best}" if first else "No configuration plans every request"
    lines = "".join(f"<p>{escape(line)}</p>" for line in (*data["setting"], *data["models"]))
    of = f"{whole:,} of {count(data['total'], 'configuration')} plan every request"
    return (
        f'<header><p class="brand">{escape(data["title"])}: {of}</p>'
        f"<h1>{escape(unbroken(title))}</h1>{tiles(facts)}"
        f'<div class="job">{lines}</div></header>'
    )


def _times(data: dict[str, Any]) -> str:
    whole = [row for row in data["rows"] if row["status"] == "ok"]
    refused = [row for row in data["rows"] if row["status"] != "ok"]
    below = "".join(f"<p>{escape(line)}</p>" for line in data["notes"])
    part = f"<h3>{count(len(refused), 'configuration')} cannot plan every request</h3>"
    return section(
        "Configurations",
        "Fastest first. Bars under us/token go from 0 to the slowest that plans every request; the "
        "red line over what is required is what is available.",
        _rows(data, whole) if whole else "",
        part + _rows({**data, "about": {} if whole else data["about"]}, refused) if refused else "",
        f'<div class="job">{below}</div>',
        _impossible(data),
    )


def _rows(data: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Some rows with their bars, drawn by the scales of all."""
    # Where there are many columns, what is available stands under what is required.
    made = table(
        {**data, "rows": rows}, without="available" if len(data["columns"]) > WIDE else None
    )
    names = [*made.columns]
    slowest = max((row["us_per_token"] for row in data["rows"] if row["status"] == "ok"), default=0)
    full = 1.03 * max((row["available"] for row in data["rows"]), default=0) or 1
    time, held = names.index("us/token"), names.index("required")
    for row, cells in zip(rows, made.rows, strict=True):
        whole = row["status"] == "ok"
        colour = "#009e73" if row["best"] else "#0072b2" if whole else "#999999"
        if cells[0]:
            kind = "yes" if row["best"] else "no"
            cells[0] = Markup(f'<span class="{kind}">{cells[0]}</span>')
        if whole:
            drawn = bar([("", row["us_per_token"], colour)], slowest)
            cells[time] = Markup(f"{cells[time]}{drawn}")
        else:
            # A row of its own under the row.
            cells[-1] = Markup(
                f'{cells[-1]}</td></tr><tr class="note"><td></td><td colspan="{len(names) - 1}">'
                f"{escape(row['reason'])}"
            )
        if row["waves"]:
            drawn = bar([("", row["required"], colour)], full, row["available"])
            limit = f"<small>of {format_bytes(row['available'])}</small>"
            limit = "" if "available" in names else limit
            cells[held] = Markup(f"{cells[held]}{drawn}{limit}")
    return made.html("sweep records", SHOWN)


def _impossible(data: dict[str, Any]) -> str:
    if not data["impossible"]:
        return ""
    rows = [("; ".join(item["configurations"]), item["reason"]) for item in data["impossible"]]
    number = sum(item["number"] for item in data["impossible"])
    text = f"<h3>{count(number, 'configuration')} cannot be</h3>"
    return text + Table("", ("configurations", "why"), rows).html("long records")


def _assumed(data: dict[str, Any]) -> str:
    return section("Assumed", f"{data['assumed']}.") + origin(data["provenance"])
