"""The report's pictures as PNG, SVG or PDF, by matplotlib (``pip install waveplan[plot]``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waveplan.errors import InputError
from waveplan.files import replacing
from waveplan.report.html import part_colours
from waveplan.report.page import COLOURS

if TYPE_CHECKING:
    from waveplan.accuracy.report import Report

__all__ = ["overview", "predicted_observed", "require_matplotlib"]

GIB = 1 << 30
RED, GREY = "#cc0000", "#e4e8ec"
# More waves than this are drawn as lines: bars would be thinner than a pixel.
BARS = 60


def require_matplotlib() -> None:
    """Raise InputError where matplotlib is not installed."""
    _figure(1, 1)


def _figure(width: float, height: float) -> Any:
    """A figure that draws without a display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'waveplan[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path) -> None:
    try:
        with replacing(path) as made:
            # What is no regular file is written directly, whatever its name ends in.
            figure.savefig(made, dpi=150, format=path.suffix[1:].lower())
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def overview(data: dict[str, Any], path: Path) -> None:
    """Draw the data of `waveplan.report.data.collect`: the card, waves, attention of each rank."""
    ranks = data["owners"]["ranks"] if data["owners"] else []
    timed = [rank for rank in ranks if rank["forward_ms"] is not None]
    heights = [2.2, 2.6, 2.6] + [1.3 + 0.35 * len(timed)] * bool(timed)
    figure = _figure(10, sum(heights) + 0.4)
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    figure.suptitle(f"{data['title']}: {data['answer']}")
    _card(panels[0], data["card"], data["tightest"])
    waves = [wave["shares"] for wave in data["waves"]]
    required = [[share["required"] / GIB for share in shares] for shares in waves]
    _waves(panels[1], required, "GiB", "required by each wave")
    panels[1].axhline(data["available"] / GIB, color=RED, label="available")
    panels[1].set_ylim(0, 1.05 * max([data["available"] / GIB, *map(max, required)]))
    _legend(panels[1])
    times = [[share["time_ms"] for share in shares] for shares in waves]
    _waves(panels[2], times, "ms", "modelled time of each wave")
    if timed:
        sizes = {part: [rank[f"{part}_ms"] for rank in timed] for part in ("forward", "backward")}
        labels = [f"CP rank {rank['rank']}" for rank in timed]
        _stacked(panels[3], labels, sizes, dict(zip(sizes, COLOURS, strict=False)))
        panels[3].set(xlabel="ms, modelled", title="Attention of one layer, the largest pack")
    _save(figure, path)


def _waves(axes: Any, waves: Sequence[Sequence[float]], unit: str, title: str) -> None:
    """A figure of every data-parallel rank, wave by wave."""
    ranks = len(waves[0]) if waves else 0
    width, numbers = 0.8 / max(1, ranks), range(1, len(waves) + 1)
    for rank in range(ranks):
        values = [wave[rank] for wave in waves]
        look = {"color": COLOURS[rank % 8], "label": f"DP rank {rank}" if ranks > 1 else None}
        if len(waves) > BARS:
            axes.plot(numbers, values, linewidth=1, **look)
        else:
            places = [number + (rank - (ranks - 1) / 2) * width for number in numbers]
            axes.bar(places, values, width, **look)
    axes.set(xlabel="wave", ylabel=unit, title=title, ylim=(0, None))
    if len(waves) <= 20:
        axes.set_xticks(numbers)
        axes.set_xlim(0.5, max(6, len(waves)) + 0.5)
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,g}")
    if ranks > 1:
        _legend(axes)


def _legend(axes: Any) -> None:
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _card(axes: Any, card: dict[str, Any], tightest: int | None) -> None:
    """The memory of one GPU, part by part."""
    parts = card["parts"]
    colours = [GREY if one == "transparent" else one for one in part_colours(parts)]
    named = {
        part["kind"] if part["name"] == part["kind"] else f"{part['kind']}: {part['name']}": (
            part["bytes"] / GIB
        )
        for part in parts
    }
    made = {name: [size] for name, size in named.items()}
    _stacked(axes, [""], made, dict(zip(named, colours, strict=True)))
    wave = "" if tightest is None else f" in wave {tightest}, the tightest"
    axes.set(xlabel="GiB", title=f"Memory of one GPU{wave}")
    axes.legend(
        fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1.1), frameon=False, ncol=2
    )


def _stacked(
    axes: Any, labels: Sequence[str], sizes: dict[str, list[float]], colours: dict[str, str]
) -> None:
    """One bar a label, a part a name."""
    left = [0.0] * len(labels)
    for name, parts in sizes.items():
        axes.barh(labels, parts, left=left, color=colours[name], label=name)
        left = [a + b for a, b in zip(left, parts, strict=True)]
    axes.invert_yaxis()
    _legend(axes)


def predicted_observed(report: Report, path: Path) -> None:
    """Draw required over observed bytes of every priced record, against its peak in GiB."""
    classes: dict[str, list[tuple[float, float]]] = {}
    for row in report.rows:
        if row.required is not None and row.observed:
            point = (row.observed / GIB, row.required / row.observed)
            classes.setdefault(row.class_name, []).append(point)
    if not classes:
        raise InputError("no record has a price and an observed peak: there is nothing to draw")
    figure = _figure(10, 5)
    axes = figure.add_subplot()
    for i, (name, points) in enumerate(classes.items()):
        xs, ys = zip(*points, strict=True)
        mark = "os^Dv"[i // len(COLOURS)] if i >= len(COLOURS) else "o"
        axes.scatter(xs, ys, color=COLOURS[i % len(COLOURS)], label=name, s=26, marker=mark)
    axes.axhline(1, color=RED, linewidth=1, label="parity: below it memory runs out")
    axes.set(
        xscale="log",
        xlabel="observed peak, GiB",
        ylabel="required / observed",
        title=f"Rule set {report.rules} against {len(report.rows)} measured peaks",
    )
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    _legend(axes)
    _save(figure, path)
