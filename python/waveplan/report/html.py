"""One self-contained page: no script from elsewhere, no network, readable on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from waveplan.budget import format_bytes
from waveplan.report.table import Markup, Table

__all__ = ["page"]

# Okabe-Ito, which stays apart for colour-blind readers; the last is for everything else.
COLOURS = tuple(
    "#0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #8c6d1f #6f4fa0 #999999".split()  # noqa: SIM905
)

REST = {"smaller terms": "#b5bbc1", "safety factor": "#6b747d", "margin": "#4a5158"}
"""Colours of the parts of a price that are no rule."""


def term_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each term of a price."""
    rules = [name for name in names if name not in REST]
    made = {name: COLOURS[min(i, len(COLOURS) - 1)] for i, name in enumerate(rules)}
    return {name: made.get(name) or REST[name] for name in names}


SHOWN = 60
"""Rows of a table before the rest is folded away."""


STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def page(data: dict[str, Any]) -> str:
    """Return the page of the data of `waveplan.report.data.collect`."""
    sections = [
        _head(data),
        _waves(data),
        _refused(data),
        _memory(data),
        _icicle(data),
        _attention(data),
        _probes(data),
        _doubtful(data),
    ]
    # The data itself travels along, so that a page can be read by a program later.
    embedded = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # Whatever a label holds, nothing is loaded and nothing runs.
        '<meta http-equiv="Content-Security-Policy" content="'
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        '<link rel="icon" href="data:,">'
        f"<title>{escape(data['title'])}</title><style>\n{STYLE}</style></head><body>"
        + "".join(sections)
        + f'<script type="application/json" id="waveplan-data">{embedded}</script>'
        "</body></html>\n"
    )


def _head(data: dict[str, Any]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in (*data["job"], data["summary"]))
    return f"<h1>{escape(data['title'])}</h1>{lines}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str]) -> str:
    """A table of at most `SHOWN` rows, the others folded away; cells are escaped but `Markup`."""
    made = Table("", head, rows, right)
    more = len(made.rows) - SHOWN
    shown = made.html(made.rows[:SHOWN])
    if more <= 0:
        return shown
    return (
        f"{shown}<details><summary>{more:,} more</summary>{made.html(made.rows[SHOWN:])}</details>"
    )


def _bar(
    parts: Sequence[tuple[str, float, str]], full: float, available: float | None = None
) -> str:
    """A stacked bar; parts are (label, value, colour), ``full`` is what the whole width means."""
    made = "".join(
        f'<i style="width:{100 * value / full:.3f}%;background:{colour}" title="{escape(label)}"></i>'
        for label, value, colour in parts
        if value > 0
    )
    mark = (
        f'<b class="available" style="left:{100 * available / full:.3f}%"></b>' if available else ""
    )
    return f'<div class="bar">{made}{mark}</div>'


def _line(rank: int, bar: str, value: str) -> str:
    return f'<div class="row"><span>CP rank {rank}</span>{bar}<span class="v">{value}</span></div>'


def _key(items: Iterable[tuple[str, str]]) -> str:
    spans = (f'<span><b style="background:{c}"></b>{escape(name)}</span>' for name, c in items)
    return f'<div class="key">{"".join(spans)}</div>'


def _waves(data: dict[str, Any]) -> str:
    waves = data["waves"]
    if not waves:
        return "<h2>Waves</h2><p>No wave was planned.</p>"
    several = len(waves[0]["rank_tokens"]) > 1
    right = ["wave", "requests", "tokens", "packed", "required", "busiest"]
    if data["dp"] > 1:
        right += ["DP rank", "DP tokens", "DP time"]
    head = (*right, *(["tokens per CP rank"] if several else []), "not wider because")
    full = max(max(wave["rank_tokens"]) for wave in waves) or 1
    rows = [
        [
            wave["number"],
            f"{wave['requests']:,}",
            f"{wave['logical_tokens']:,}",
            f"{wave['packed_tokens']:,}",
            format_bytes(wave["required"]),
            f"{wave['busiest']:,}",
            *(
                (wave["dp_rank"], f"{wave['dp_tokens']:.2f}", f"{wave['dp_time']:.2f}")
                if data["dp"] > 1
                else ()
            ),
            *([_rank_bars(wave["rank_tokens"], full)] if several else []),
            wave["stopped"],
        ]
        for wave in waves
    ]
    note = ""
    if data["dp"] > 1:
        note = (
            f"<p>Requests and tokens are over all {data['dp']} DP ranks, the rest is of the one "
            "that requires most; DP tokens and DP time: packed tokens and modelled time of the "
            "busiest DP rank over the mean.</p>"
        )
    return "<h2>Waves</h2>" + note + _prices(waves, data["available"]) + _table(head, rows, right)


def _rank_bars(rank_tokens: Sequence[int], full: int) -> Markup:
    return Markup(
        "".join(
            _bar([(f"CP rank {rank}: {count:,} tokens", count, COLOURS[rank % 8])], full)
            for rank, count in enumerate(rank_tokens)
        )
    )


def _prices(waves: Sequence[dict[str, Any]], available: int) -> str:
    """The price of every wave beside what is available, as one small chart."""
    if len(waves) < 2:
        return ""
    width, height = 1000, 100
    full = max([available, *(wave["required"] for wave in waves)]) * 1.05
    step = width / len(waves)
    bars = "".join(
        f'<rect x="{i * step + step * 0.1:.2f}" y="{height * (1 - wave["required"] / full):.2f}" '
        f'width="{step * 0.8:.2f}" height="{height * wave["required"] / full:.2f}" '
        f'fill="{COLOURS[0]}"><title>wave {wave["number"]}: '
        f"{format_bytes(wave['required'])}</title></rect>"
        for i, wave in enumerate(waves)
    )
    line = height * (1 - available / full)
    return (
        f"<p>Price of each wave; the red line is what is available, {format_bytes(available)}.</p>"
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="price of each wave">{bars}<line x1="0" x2="{width}" y1="{line:.2f}" '
        f'y2="{line:.2f}" stroke="#c00" stroke-width="2" vector-effect="non-scaling-stroke"/></svg>'
    )


def _memory(data: dict[str, Any]) -> str:
    tightest = data["tightest"]
    if tightest is None:
        return ""
    available = data["available"]
    names = list(dict.fromkeys(name for rank in tightest["ranks"] for name, _ in rank["terms"]))
    colour = term_colours(names)
    full = max([available, *(rank["required"] for rank in tightest["ranks"])]) * 1.04
    bars = ""
    for rank in tightest["ranks"]:
        parts = [(f"{name}: {format_bytes(v)}", v, colour[name]) for name, v in rank["terms"]]
        bars += _line(rank["rank"], _bar(parts, full, available), format_bytes(rank["required"]))
    return (
        f"<h2>Memory of the tightest wave (wave {tightest['number']}{_of_dp(data)})</h2>"
        f"<p>Bytes per CP rank and term; the red line is what is available, {escape(format_bytes(available))}.</p>"
        + bars
        + _key(colour.items())
        + f"<pre>{escape(tightest['explain'])}</pre>"
    )


def _of_dp(data: dict[str, Any]) -> str:
    return f", DP rank {data['tightest']['dp_rank']}" if data["dp"] > 1 else ""


def _icicle(data: dict[str, Any]) -> str:
    tree = data["tree"]
    if not tree["nodes"]:
        return ""
    levels = 1 + max(node["depth"] for node in tree["nodes"])
    height = 1.25
    boxes = "".join(
        f'<span style="left:{100 * node["left"]:.4f}%;width:{100 * node["width"]:.4f}%;'
        f"top:{node['depth'] * height:.2f}rem;height:{height}rem;"
        f'{f"background:{COLOURS[0]}" if node["shared"] else ""}"'
        f'{"" if node["shared"] else chr(32) + "class=again"} title="{escape(node["label"])}">'
        f"{escape(node['label']) if node['width'] > 0.05 else ''}</span>"
        for node in tree["nodes"]
    )
    hidden = tree["hidden"]
    note = f" Segments narrower than a hair ({hidden:,}) are left out." if hidden else ""
    return (
        "<h2>Prefix tree</h2><p>Each box is a run of tokens, as wide as the sequences that run through it; "
        f"what hangs below continues it. Blue is stored once, grey is repeated in each sequence.{note}</p>"
        f'<div class="ice" style="height:{levels * height:.2f}rem">{boxes}</div>'
    )


def _attention(data: dict[str, Any]) -> str:
    attention = data["attention"]
    if not attention:
        return ""
    stages = attention["stages"]
    full = max(sum(rank["stage_ms"]) for rank in attention["ranks"]) or 1.0
    bars = ""
    for rank in attention["ranks"]:
        times = zip(stages, rank["stage_ms"], strict=True)
        parts = [(f"{name}: {ms:.3f} ms", ms, COLOURS[i % 8]) for i, (name, ms) in enumerate(times)]
        both = rank["forward_ms"] + rank["backward_ms"]
        bars += _line(rank["rank"], _bar(parts, full), f"{both:.2f} ms")
    return (
        "<h2>Attention per CP rank</h2><p>Modelled forward compute of one layer of the tightest wave's "
        "largest pack: on the rank's own keys, then on the keys of each fetch from other ranks. The "
        "number is forward and backward together, with communication.</p>"
        + bars
        + _key((name, COLOURS[i % 8]) for i, name in enumerate(stages))
    )


def _probes(data: dict[str, Any]) -> str:
    right = ("wave", "width", "packed", "required")
    rows = [
        (
            probe["wave"],
            f"{probe['width']:,}",
            probe["layout"],
            f"{probe['packed_tokens']:,}",
            format_bytes(probe["required"]),
            "yes" if probe["fits"] else Markup('<span class="no">no</span>'),
        )
        for probe in data["probes"]
    ]
    head = ("wave", "width", "layout", "packed", "required", "fits")
    return "<h2>Probes of the search</h2>" + _table(head, rows, right) if rows else ""


def _doubtful(data: dict[str, Any]) -> str:
    title = "<h2>Rules unmeasured or uncharged</h2>"
    if not data["doubtful"]:
        return f"{title}<p>None: every rule that matters is measured for this job.</p>"
    rows = [(item["rule"], item["state"], item["reason"]) for item in data["doubtful"]]
    return (
        f"{title}<p>Uncharged rules charge nothing; unmeasured ones charge beyond where they were checked. "
        f"{escape(data['margin'])}</p>"
        f'<div class="long">{_table(("rule", "state", "why"), rows, ())}</div>'
    )


def _refused(data: dict[str, Any]) -> str:
    if not data["refused"]:
        return ""
    rows = [
        (
            ", ".join(map(str, item["requests"])),
            f"{item['tokens']:,}",
            format_bytes(item["required"]),
            item["why"],
        )
        for item in data["refused"]
    ]
    right = ("requests", "tokens", "required")
    made = _table((*right, "why"), rows, right)
    return f"<h2>Refused requests</h2><p>These do not run; the rest is planned.</p>{made}"
