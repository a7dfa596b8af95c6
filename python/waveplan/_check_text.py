"""The report on measured peaks as plain text and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waveplan.check import CLASSES, TARGETS, ClassSummary, Report, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EXPLAINED", "page", "text"]

_FEW = "a few hundred rows: two first-call allowances of 64 MiB weigh more than the rows"
_SMALL = "the allowance is one sum for all models; small ones hold 160 to 240 MB beside weights"
EXPLAINED = {
    "art-848-golden-27": "27 tokens: 474 MB of fixed first-use buffers, more than any rule charges",
    "art-recompute-csv-15": _FEW,
    "art-recompute-csv-36": _FEW,
    "art-recompute-csv-30": "if balanced just over: what is kept per routed row is a bound",
    "art-recompute-csv-14 (resident)": _SMALL,
    "art-recompute-csv-37 (resident)": _SMALL,
    "art-recompute-csv-12 (resident)": _SMALL,
    "art-recompute-csv-28 (resident)": "EP 4: between 0.63 and 1.96 GB beside the weights, by the "
    "calls before; the allowance is 2 GiB",
}
"""Why a record of the public collection is below parity or outside its class's target."""

_INTRODUCTION = (
    "Every public peak that we know, priced from its facts alone. `waveplan.check` writes this",
    "page; a test keeps it equal to what the rules say.",
    "",
    "- *raw*: the sum of the rules over the observed peak; *required*: with the safety factor",
    "  of 1.10 and, in the default rules, what stands in for rules outside their coverage.",
    "  Below 1 the price is below what was measured.",
    "- Three figures are the least, the median and the largest ratio of a class.",
    "- *published*: the same records with the rules of the published planner.",
    "- *if balanced*: expert ranks get equal rows. The default assumes that they do not.",
    "- *resident*: weights, adapters and the allowance against what was allocated before a call.",
)


def text(report: Report) -> str:
    """Plain tables: classes, records, what is below parity or outside a target, what is left."""
    lines = [f"rules: {report.rules}; ratios to the observed peak", ""]
    head = ("class", "n", *_CLASS_COLUMNS, "below")
    lines += _plain(head, [(*_class(one), str(len(one.below))) for one in report.classes()])
    lines += ["", *_plain(("record", *_RECORD_COLUMNS, "parity"), _records(report))]
    for title, rows in _remarks(report):
        if rows:
            lines += ["", f"{title} ({len(rows)}):"]
            lines += [f"  {row.id}: {_why(row)}" for row in rows]
    if report.unpriced:
        lines += ["", f"not priced ({len(report.unpriced)}):"]
        lines += [f"  {one.id}: {one.reason}" for one in report.unpriced]
    return "\n".join(lines)


def page(report: Report) -> str:
    """The same as Markdown."""
    lines = ["# Accuracy", "", *_INTRODUCTION, ""]
    classes = [(*_class(one), _target(one), ", ".join(one.below)) for one in report.classes()]
    lines += _markdown(("class", "records", *_CLASS_COLUMNS, "target", "below parity"), classes)
    for title, rows in _remarks(report):
        lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        lines += [f"- `{row.id}`: {_why(row)}." for row in rows] or ["None."]
    lines += ["", "## Records", ""]
    details = {row.id: row for row in report.rows}
    lines += _markdown(
        ("record", "model", "ranks", "state", "rows", *_RECORD_COLUMNS, "parity", "assumed"),
        [
            (
                name,
                details[name].model,
                details[name].ranks,
                details[name].state,
                f"{details[name].rows:,}" if details[name].rows else "",
                *rest,
                "; ".join(details[name].assumed),
            )
            for name, *rest in _records(report)
        ],
    )
    lines += ["", "## Not priced", ""]
    lines += [f"- `{one.id}`: {one.reason}." for one in report.unpriced]
    return "\n".join([*lines, ""])


_CLASS_COLUMNS = ("raw", "required", "published required", "required if balanced")
_RECORD_COLUMNS = ("observed GB", "raw GB", "raw", "required", "published required")


def _class(one: ClassSummary) -> tuple[str, ...]:
    spans = (one.raw, one.required, one.published_required, one.balanced_required)
    return (one.name, str(one.count), *(_span(values) for values in spans))


def _target(one: ClassSummary) -> str:
    if one.name not in TARGETS:
        return ""
    kind, least, most = TARGETS[one.name]
    name = {"balanced": "required if balanced"}.get(kind, kind)
    return f"{name} from {least:.2f}" + (f" to {most:.2f}" if most < 100 else "")


def _records(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            row.id,
            f"{row.observed / 1e9:.2f}",
            f"{row.raw / 1e9:.2f}",
            f"{row.raw_ratio:.3f}",
            f"{row.required_ratio:.3f}",
            f"{row.published_required / row.observed:.3f}" if row.published_required else "",
            "below" if row.below else "",
        )
        for name in CLASSES
        for row in report.rows
        if row.group == name
    ]


def _remarks(report: Report) -> list[tuple[str, list[Row]]]:
    outside = [row for row in report.rows if not row.on_target and not row.below]
    return [("below parity", report.below()), ("outside the target", outside)]


def _why(row: Row) -> str:
    ratio = f"raw {row.raw_ratio:.3f}, required {row.required_ratio:.3f}"
    if row.balanced_required is not None:
        ratio += f", if balanced {row.balanced_required / row.observed:.3f}"
    return f"{EXPLAINED.get(row.id, 'not explained')} ({ratio})"


def _span(values: tuple[float, float, float] | None) -> str:
    return " / ".join(f"{value:.3f}" for value in values) if values else ""


def _plain(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *rows]
    ]


def _markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
