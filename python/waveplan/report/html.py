"""The page of a planned pool."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from waveplan.budget import format_bytes
from waveplan.report.page import (
    COLOURS,
    bar,
    chart,
    document,
    folded,
    key,
    origin,
    section,
    tiles,
    unbroken,
)
from waveplan.report.summary import count, milliseconds, share, wave_table
from waveplan.report.table import Markup, Table

__all__ = ["page", "part_colours"]

GIB = 1 << 30
PARTS = ("", "part", "bytes", "share", "for")
TAKEN = ("resident", "colocated", "reserve", "margin")
RESIDENT = ("#34435a", "#7d93ad", "#51657f", "#a9bacd", "#67808f", "#c9d4e0")
FIXED = {
    "smaller charges": "#b9a88f",
    "other forwards": "#7a6a53",
    "safety factor": "#8a7f72",
    "allowance": "#4a5158",
    "colocated": "#3c2f5c",
    "reserve": "#b8bec6",
    "margin": "#d9a9a0",
    "free": "transparent",
}
"""Colours of the parts of a card that are no rule."""
TREE = {
    "shared": ("#0072b2", "shared by several sequences, stored once"),
    "own": ("#56b4e9", "of one sequence alone"),
    "again": ("#999999", "shared, but repeated: cheaper than one more level"),
}
WORDS = {
    "resident": "what a GPU holds between waves",
    "available": "what is left for waves: the device less resident, colocated, reserve and margin",
    "required": "what a wave needs of it, with the safety factor of the rule set",
    "margin": "kept back only while a rule that matters for these requests is in doubt",
    "rule": "a formula for the bytes of one thing; a rule in doubt is unmeasured (used beyond where "
    "it was checked) or uncharged (no formula holds)",
    "wave": "the requests that run between two optimizer steps or weight syncs, split over DP ranks",
    "DP, TP, CP, EP rank": "the parts of data, tensor, context and expert parallelism; a GPU has "
    "one rank of each, and expert ranks span the others",
    "packed": "tokens once shared prefixes are stored once; a pack is one line of them",
    "layout": "which shared prefixes a pack stores once",
    "width": "how many requests (or groups of them) the search puts in a wave",
}
"""What the words of the page mean."""
LAYOUTS = {
    "optimal": "least work",
    "fitting": "least work among those with fewer packed tokens",
    "full": "all prefixes stored once",
    "reference": "the reference planner's",
    "bound:unshared": "a bound without sharing",
    "bound:shared": "a bound with all prefixes stored once",
    "estimate:full": "all prefixes stored once, estimated without a plan",
    "estimate:optimal": "least work, estimated without a plan",
}
"""What the layouts of probes are."""
LABELLED = 0.075, 0.045
"""The least width and height of a box with its label inside."""


def part_colours(parts: Sequence[dict[str, Any]]) -> list[str]:
    """A colour for each part of a card."""
    made, rules, kinds = list[str](), 0, 0
    for part in parts:
        if part["kind"] == "resident":
            made.append(RESIDENT[min(kinds, len(RESIDENT) - 1)])
            kinds += 1
        elif part["name"] in FIXED:
            made.append(FIXED[part["name"]])
        else:
            made.append(COLOURS[min(rules, len(COLOURS) - 1)])
            rules += 1
    return made


def page(data: dict[str, Any]) -> str:
    """Return the page of the data of `waveplan.report.data.collect`."""
    parts = [
        _head(data),
        _card(data),
        _more(data),
        _waves(data),
        _refused(data),
        _owners(data),
        _tree(data),
        _doubtful(data),
        _details(data),
        origin(data["provenance"]),
    ]
    return document(data["title"], parts, data)


def _head(data: dict[str, Any]) -> str:
    waves, bound = data["waves"], data["least_waves"]
    lines = "".join(f"<p>{escape(line)}</p>" for line in data["job"])
    facts = []
    if waves:
        logical = sum(wave["logical_tokens"] for wave in waves)
        packed = sum(wave["packed_tokens"] for wave in waves)
        planned = sum(wave["requests"] for wave in waves)
        widest = max(wave["requests"] for wave in waves)
        least = "" if bound is None else f"; no order needs fewer than {bound:,} waves"
        card = data["card"]
        facts = [
            (
                f"{planned:,} of {data['requests']:,}",
                f"requests fit, in {count(len(waves), 'wave')}",
                f"{widest:,} in the widest{least}",
            ),
            (
                f"{1 - packed / logical if logical else 0:.0%}",
                "fewer tokens by sharing prefixes",
                f"{packed:,} stay of {logical:,}",
            ),
            (
                format_bytes(card["wave"]),
                "required by the tightest wave",
                f"of {format_bytes(data['available'])} available on each GPU",
            ),
            *_next(data["more"]),
        ]
    return (
        f'<header><p class="brand">{escape(unbroken(data["title"]))}, {count(data["gpus"], "GPU")}</p>'
        f"<h1>{escape(data['answer'])}</h1>{tiles(facts)}"
        f'<div class="job">{lines}</div></header>'
    )


def _next(more: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What a wider wave would take, as a figure."""
    fit = [one for one in more["changes"] if one["fits"]]
    if not fit:
        return []
    options = [one["change"] for one in fit if one["change"].startswith("-")]
    what = f"would fit {count(more['width'], more['unit'])} in wave {more['wave']}"
    amount, _, rest = fit[0]["change"].partition(" more ")
    note = f"or {options[0]}" if options else ""
    return [(f"{amount} more", f"{rest} {what}", note)] if rest else [(options[0], what, "")]


def _card(data: dict[str, Any]) -> str:
    card = data["card"]
    parts, whole = card["parts"], card["whole"]
    over = max(whole, sum(part["bytes"] for part in parts))
    colours = part_colours(parts)
    labels = [
        (f"{part['name']}: {format_bytes(part['bytes'])}", part["bytes"], colour)
        for part, colour in zip(parts, colours, strict=True)
    ]
    sizes = dict[str, int]()
    for part in parts:
        sizes[part["kind"]] = sizes.get(part["kind"], 0) + part["bytes"]
    names = "".join(
        f'<span style="width:{100 * size / over:.3f}%">'
        f"{f'<b>{kind}</b> {format_bytes(size)}' if size > 0.09 * over else ''}</span>"
        for kind, size in sizes.items()
    )
    several = {part["kind"] for part in parts if part["kind"] != part["name"]}
    lines, begun = list[tuple[str, str, int, str]](), set[str]()
    for part, colour in zip(parts, colours, strict=True):
        kind, dot = part["kind"], Markup(f'<b class="dot" style="background:{colour}"></b>')
        bold = Markup(f"<b>{kind}</b>")
        if kind in several - begun:
            whose = "of which" if kind == "wave" else "between waves, of which"
            lines.append(("", bold, sizes[kind], whose))
            begun.add(kind)
        lines.append((dot, part["name"] if kind in several else bold, part["bytes"], part["why"]))
    rows = [(*a, format_bytes(size), share(size, whole), why) for *a, size, why in lines]
    tightest = data["tightest"]
    text = f"A GPU of {'' if card['device'] else 'at least '}{format_bytes(whole)}. "
    if tightest is not None:
        place = f"DP rank {card['dp_rank']}, which requires most" if data["dp"] > 1 else ""
        rank = "its busiest CP rank" if data["cp"] > 1 else ""
        where = ", and there on ".join(part for part in (place, rank) if part)
        text += f"The bar is wave {tightest}, the tightest{f', on {where}' if where else ''}. "
    off = [f" - {kind} {format_bytes(sizes[kind])}" for kind in TAKEN if kind in sizes]
    text += (
        f"Available: device {format_bytes(whole)}{''.join(off)} = "
        f"{format_bytes(card['available'])}."
        if card["device"]
        else f"Available: {format_bytes(card['available'])}, as stated."
    )
    return section(
        "Memory of one GPU",
        text,
        f'<div class="card"><div class="over">{names}</div>{bar(labels, over)}</div>',
        Table("", PARTS, rows, right=PARTS[2:4]).html("parts", len(rows)),
    )


def _more(data: dict[str, Any]) -> str:
    more = data["more"]
    if more is None:
        return ""
    one = count(more["width"], more["unit"])
    wave = f"wave {more['wave']}"
    available = format_bytes(more["available"])
    title = "Why not one more"
    current = count(more["current"], more["unit"])
    if more["binding"] is None:
        also = {"time": "; --objective widest takes it", "composed": f": {more['composed']}"}
        why = f"{more['text']}{also.get(more['kind'], '')}"
        required = f"It requires {format_bytes(more['now'])} of {available}."
        return section(title, f"{wave.capitalize()} has {current}: {why}. {required}")
    binding = more["binding"]
    full = max(more["required"], more["available"]) * 1.06
    lacks = more["required"] - more["available"]
    now, then = (
        "" if rank is None or data["dp"] == 1 else f", on DP rank {rank}"
        for rank in (more["now_dp_rank"], more["dp_rank"])
    )
    rows = [
        (current, more["now"], "#009e73", f"fits{now}"),
        (one, more["required"], "#d55e00", f"{format_bytes(lacks)} too much{then}"),
    ]
    bars = "".join(
        f'<div class="row"><span>{escape(name)}</span>{bar([(name, size, colour)], full, more["available"])}'
        f'<span class="v">{format_bytes(size)}<small>{escape(verdict)}</small></span></div>'
        for name, size, colour, verdict in rows
    )
    step = more["width"] - more["current"]
    each = (
        f" (a wave grows by a request for each of the {data['dp']} DP ranks, so not "
        f"{more['current'] + 1:,})"
        if data["dp"] > 1 and step == data["dp"]
        else ""
    )
    rank = f", on CP rank {binding['rank']}" if data["cp"] > 1 else ""
    text = (
        f"{wave.capitalize()} has {current}. The next width, {one}{each}, requires "
        f"{format_bytes(more['required'])}{then}; {available} are available. It would peak in the "
        f"{binding['phase']}{rank}."
    )
    lines = [
        (
            Markup(f"<code>{escape(one['rule'])}</code>") if "." in one["rule"] else one["rule"],
            format_bytes(one["now"]),
            format_bytes(one["then"]),
            ("+" if one["then"] >= one["now"] else "-")
            + format_bytes(abs(one["then"] - one["now"])),
        )
        for one in more["grown"]
    ]
    head = ("rule", f"at {more['current']:,}", f"at {more['width']:,}", "change")
    place = then.removeprefix(", ")
    return section(
        title,
        text,
        bars,
        key([(f"available: {available}", "var(--red)")]),
        _changes(more["changes"], one),
        f"<h3>What grows from {current} to {more['width']:,}{f' {place}' if place else ''}</h3>",
        Table("", head, lines, right=head[1:]).html("records"),
    )


def _changes(changes: Sequence[dict[str, Any]], what: str) -> str:
    """What would let requests fit, one change a row."""
    if not changes:
        return ""
    verdicts = {
        True: '<span class="yes">fits</span>',
        False: '<span class="no">does not fit</span>',
    }
    rows = [
        (
            Markup(f"<code>{escape(one['change'])}</code>")
            if one["change"].startswith("-")
            else one["change"],
            Markup(verdicts[one["fits"]]),
            format_bytes(one["required"]),
            format_bytes(one["available"]),
            f"{one['gpus']:,}",
        )
        for one in changes
    ]
    head = ("change", f"{what} then", "required", "available", "GPUs")
    title = f"What would let {what} fit, one change at a time"
    return f"<h3>{escape(title)}</h3>{Table('', head, rows, right=head[2:]).html('records')}"


def _waves(data: dict[str, Any]) -> str:
    waves, dp = data["waves"], data["dp"]
    if not waves:
        return section("Waves", "No wave was planned.")
    ranks = [(f"DP rank {rank}", COLOURS[rank % 8]) for rank in range(min(dp, 8))]
    shares = (
        [wave["shares"] for wave in waves]
        if dp <= 8
        else [[max(w["shares"], key=lambda s: s["required"])] for w in waves]
    )
    slowest = max(wave["time_ms"] for wave in waves)
    unit, scale = ("s", 1000) if slowest >= 1000 else ("ms", 1)
    parts = [
        chart(
            "required by each wave, GiB",
            [[share["required"] / GIB for share in wave] for wave in shares],
            lambda value: f"{value:.3g}",
            line=(f"available {format_bytes(data['available'])}", data["available"] / GIB),
        ),
        chart(
            f"modelled time of each wave, {unit}",
            [[share["time_ms"] / scale for share in wave] for wave in shares],
            lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}",
        ),
    ]
    both = f'<div class="two">{"".join(parts)}</div>' + (key(ranks) if 1 < dp <= 8 else "")
    folds = ""
    if dp > 1:
        lines = [
            (
                wave["number"],
                share["dp_rank"],
                f"{share['requests']:,}",
                f"{share['packed_tokens']:,}",
                format_bytes(share["required"]),
                milliseconds(share["time_ms"], slowest),
            )
            for wave in waves
            for share in wave["shares"]
        ]
        columns = ("wave", "DP rank", "requests", "packed", "required", "time")
        folds = folded(
            "Share of each DP rank",
            "What every data-parallel rank runs of each wave.",
            Table("", columns, lines, right=columns).html("records"),
        )
    return section("Waves", "", both, wave_table(waves).html("records"), folds)


def _owners(data: dict[str, Any]) -> str:
    owners = data["owners"]
    if not owners:
        return ""
    strip = bar(
        (
            (f"CP rank {rank}: {size:,} tokens", size, COLOURS[rank % 8])
            for rank, size in owners["runs"]
        ),
        owners["tokens"],
    )
    ranks = owners["ranks"]
    most = max(rank["tokens"] for rank in ranks) or 1
    slowest = max((rank["forward_ms"] or 0) + (rank["backward_ms"] or 0) for rank in ranks)
    rows = []
    for rank in ranks:
        colour = COLOURS[rank["rank"] % 8]
        both = (rank["forward_ms"] or 0) + (rank["backward_ms"] or 0)
        tokens = f"{rank['tokens']:,}"
        times = [
            ("forward", rank["forward_ms"], colour),
            ("backward", rank["backward_ms"], f"{colour}99"),
        ]
        rows.append(
            (
                rank["rank"],
                tokens,
                bar([(tokens, rank["tokens"], colour)], most),
                format_bytes(rank["required"]),
                *((milliseconds(both, slowest), bar(times, slowest)) if slowest else ()),
            )
        )
    head = ["CP rank", "local tokens", "", "required"]
    if slowest:
        head += ["attention", " "]
    where = f" of DP rank {data['card']['dp_rank']}" if data["dp"] > 1 else ""
    return section(
        "Owners",
        f"The largest pack of wave {data['tightest']}{where}: {owners['tokens']:,} tokens in chunks of "
        f"{owners['chunk']:,}, from first to last, by the CP rank that owns them. Attention is the "
        "modelled time of one layer, forward (dark) and backward (light), with communication.",
        f'<div class="strip">{strip}</div>',
        Table("", head, rows, right={*head} - {"", " "}).html("ranks records"),
    )


def _tree(data: dict[str, Any]) -> str:
    tree = data["tree"]
    if not tree["nodes"]:
        return ""
    boxes = "".join(
        f'<span style="left:{100 * node["left"]:.3f}%;width:{100 * node["width"]:.3f}%;'
        f"top:{100 * node['top']:.3f}%;height:{100 * node['height']:.3f}%;"
        f'background:{TREE[node["kind"]][0]}" class="{node["kind"]}" title="{escape(node["label"])}">'
        + (
            escape(node["label"])
            if node["width"] > LABELLED[0] and node["height"] > LABELLED[1]
            else ""
        )
        + "</span>"
        for node in tree["nodes"]
    )
    hidden = f" The smallest {tree['hidden']:,} boxes are left out." if tree["hidden"] else ""
    where = f" of DP rank {data['card']['dp_rank']}" if data["dp"] > 1 else ""
    text = (
        f"The largest pack of wave {data['tightest']}{where}, {tree['sequences']:,} sequences one "
        "under another, tokens from left to right. A box is a run of tokens, as wide as it is long and as high as the "
        f"sequences that run through it: a large box is much work. Sharing saves {tree['saved']:,} "
        f"tokens here.{hidden}"
    )
    named = [
        (f"{words} ({tree['tokens'][kind]:,} tokens)", colour)
        for kind, (colour, words) in TREE.items()
        if tree["tokens"][kind]
    ]
    return section(
        "Prefix tree",
        text,
        f'<div class="ice">{boxes}</div>'
        f'<div class="axis"><span>token 0</span><span>{tree["longest"] // 2:,}</span>'
        f"<span>{tree['longest']:,}</span></div>",
        key(named),
    )


def _details(data: dict[str, Any]) -> str:
    parts = []
    if data["explain"]:
        lines = "".join(f"<span>{escape(line)}</span>" for line in data["explain"].split("\n"))
        parts.append(
            folded(
                "How the price adds up",
                f"Every charge of wave {data['tightest']}. A line is the sum or the largest of those "
                "indented below it; * marks what decides.",
                f"<pre>{lines}</pre>",
            )
        )
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
    if rows:
        head = ("wave", "width", "layout", "packed", "required", "fits")
        share = "the share of the DP rank that requires most in the wave" if data["dp"] > 1 else ""
        even = "an even share of tokens on each CP rank" if data["cp"] > 1 else ""
        what = ", at ".join(part for part in (share, even) if part) or "one layout of a width"
        runs = "owners and layout" if even else "layout"
        layouts = {probe["layout"]: LAYOUTS[probe["layout"]] for probe in data["probes"]}
        named = "; ".join(f"{name}, {text}" for name, text in layouts.items())
        parts.append(
            folded(
                "Widths that were tried",
                "The search prices a width, then a wider one while it fits, then those between. A "
                f"figure here is of {what}; the wave that runs is priced with the {runs} that it runs "
                f"with, so it may require more or less. Layouts: {named}.",
                Table("", head, rows, right=right).html(),
            )
        )
    named = "".join(f"<dt>{word}</dt><dd>{text}</dd>" for word, text in WORDS.items())
    parts.append(folded("Words", "", f"<dl>{named}</dl>"))
    return section("Details", "", *parts)


def _doubtful(data: dict[str, Any]) -> str:
    if not data["doubtful"]:
        return section("Rules in doubt", "Every rule that matters is measured for this job.")
    rows = [(item["rule"], item["state"], item["reason"]) for item in data["doubtful"]]
    return section(
        "Rules in doubt",
        "Uncharged rules charge nothing; unmeasured ones charge beyond where they were checked. "
        + data["margin"],
        Table("", ("rule", "state", "why"), rows).html("long records"),
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
    return section(
        "Refused requests",
        "These do not run; the rest is planned.",
        Table("", (*right, "why"), rows, right=right).html("records"),
        _changes(data["refused_changes"], "the hardest of them"),
    )
