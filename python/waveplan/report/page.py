"""The frame of a page and what it is made of: tables, bars, charts, folded parts.

One self-contained file: no script, no network, readable on a phone, on paper and in the dark.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from waveplan.report.table import Markup

__all__ = [
    "COLOURS",
    "bar",
    "chart",
    "document",
    "folded",
    "key",
    "origin",
    "section",
    "tiles",
    "unbroken",
]

# Okabe-Ito, which stays apart for colour-blind readers; the last is for everything else.
COLOURS = tuple(
    "#0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #8c6d1f #6f4fa0 #999999".split()  # noqa: SIM905
)
NUMBERED = 10
"""Bars of a chart that still have their numbers over them."""
LETTERS = 0.1
"""The height of such a number in a chart."""
STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def document(title: str, body: Iterable[str], data: Mapping[str, Any]) -> str:
    """Return a page. The data travels along, so that a program can read the page later."""
    embedded = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # Whatever a label holds, nothing is loaded and nothing runs.
        '<meta http-equiv="Content-Security-Policy" content="'
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>\n{STYLE}</style></head><body><main>"
        + "".join(body)
        + f'</main><script type="application/json" id="waveplan-data">{embedded}</script>'
        "</body></html>\n"
    )


def section(title: str, text: str, *parts: str) -> str:
    """Return a part of the page under a heading; the text is escaped unless it is `Markup`."""
    shown = text if isinstance(text, Markup) else escape(text)
    lead = f"<p>{shown}</p>" if text else ""
    return f"<section><h2>{escape(title)}</h2>{lead}{''.join(parts)}</section>"


def folded(title: str, text: str, *parts: str) -> str:
    """Return a part that opens at a click."""
    inside = f"<p>{escape(text)}</p>{''.join(parts)}"
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def origin(names: Mapping[str, str]) -> str:
    """Return the foot of a page: where it comes from, by name."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in names.items()
    )
    return f"<footer><dl>{rows}</dl></footer>" if rows else ""


def tiles(facts: Iterable[tuple[str, str, str]]) -> str:
    """Return the figures that matter: a number, what it is, and a remark."""
    made = (
        f"<div><b>{escape(number)}</b><span>{escape(what)}</span><small>{escape(note)}</small></div>"
        for number, what, note in facts
    )
    return f'<div class="tiles">{"".join(made)}</div>'


def bar(parts: Iterable[tuple[str, float, str]], full: float, mark: float | None = None) -> Markup:
    """Return a stacked bar of parts (label, value, colour); ``full`` is what its width means."""
    made = "".join(
        f'<i style="width:{100 * value / full:.3f}%;background:{colour}" '
        f'title="{escape(label)}"></i>'
        for label, value, colour in parts
        if value > 0
    )
    line = f'<b style="left:{100 * mark / full:.3f}%"></b>' if mark else ""
    return Markup(f'<div class="bar">{made}{line}</div>')


def unbroken(text: str) -> str:
    """Return a text in which ranks such as DP 8 TP 2 SP stay on one line."""
    ranks = r"\b[CDEPT]P \d+(?: [CDEPT]P \d+)*(?: SP)?"
    return re.sub(ranks, lambda found: found[0].replace(" ", "\u00a0"), text)


def key(items: Iterable[tuple[str, str]]) -> str:
    """Return the names of colours."""
    spans = (f'<span><b style="background:{c}"></b>{escape(name)}</span>' for name, c in items)
    return f'<div class="key">{"".join(spans)}</div>'


def chart(
    name: str,
    groups: Sequence[Sequence[float]],
    text: Callable[[float], str],
    *,
    line: tuple[str, float] | None = None,
) -> str:
    """Return columns with an axis: one group a wave, one bar a rank; ``line`` is a limit.

    ``text`` writes a value of the axis and, where the columns are few, over each.
    """
    top = max([*(value for group in groups for value in group), line[1] if line else 0.0]) or 1.0
    step = nice(top * (1.1 if line is None else 1.02) / 4)
    full = step * math.ceil(top * 1.02 / step)
    ticks = "".join(
        f'<u style="bottom:{100 * step * i / full:.2f}%"><span>{escape(text(step * i))}</span></u>'
        for i in range(round(full / step) + 1)
    )
    bars = sum(map(len, groups))
    limit = line[1] if line else 0.0

    def over(value: float) -> str:
        """A number over its bar, and over the limit where that would strike it through."""
        lift = 100 * limit / value if value and 0 <= limit - value < LETTERS * full else 100
        return f'<span style="bottom:{lift:.2f}%">{escape(text(value))}</span>'

    every = max(1, math.ceil(len(groups) / 12))
    columns = ""
    for i, group in enumerate(groups):
        drawn = "".join(
            f'<i style="height:{100 * value / full:.2f}%;background:{COLOURS[rank % 8]}" '
            f'title="{escape(text(value))}">' + (over(value) if bars <= NUMBERED else "") + "</i>"
            for rank, value in enumerate(group)
        )
        number = f"<em>{i + 1}</em>" if i % every == 0 else ""
        columns += f"<div>{drawn}{number}</div>"
    drawn = f'<s style="bottom:{100 * limit / full:.2f}%"></s>' if line else ""
    named = f"; <b>{escape(line[0])}</b>" if line else ""
    few = " few" if len(groups) <= 6 else " many" if bars > 80 else ""
    return (
        f'<figure><figcaption>{escape(name)}{named}</figcaption><div class="chart" role="img" '
        f'aria-label="{escape(name)}">{ticks}{drawn}<div class="columns{few}">{columns}</div>'
        "</div></figure>"
    )


def nice(step: float) -> float:
    """Return the next of 1, 2, 2.5 and 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= step * 0.999)
