"""The report's pictures as PNG, SVG or PDF, by matplotlib (``pip install waveplan[plot]``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waveplan.errors import InputError
from waveplan.report.html import COLOURS

if TYPE_CHECKING:
    from waveplan.check import Report
    from waveplan.jobs import Job
    from waveplan.sweep import Outcome

__all__ = ["heat_map", "memory", "waves"]

GIB = 1 << 30


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure that draws without a display, and its axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'waveplan[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def waves(data: dict[str, Any], path: Path) -> None:
    """Rows of every rank, wave by wave."""
    items = data["waves"]
    ranks = len(items[0]["rows_per_rank"]) if items else 0
    figure, axes = _figure(9, 4)
    width = 0.8 / max(1, ranks)
    for rank in range(ranks):
        axes.bar(
            [i + 1 + (rank - (ranks - 1) / 2) * width for i in range(len(items))],
            [item["rows_per_rank"][rank] for item in items],
            width,
            color=COLOURS[rank % 8],
            label=f"rank {rank}",
        )
    axes.set(xlabel="wave", ylabel="rows", title="Rows per context-parallel rank")
    if ranks > 1:
        axes.legend(ncols=min(ranks, 8), fontsize="small")
    _save(figure, path)


def memory(data: dict[str, Any], path: Path) -> None:
    """The tightest wave's bytes per rank and term, against the limit."""
    tightest = data["tightest"]
    if tightest is None:
        raise InputError("no wave was planned: there is no memory to draw")
    figure, axes = _figure(9, 1.6 + 0.5 * len(tightest["ranks"]))
    names = list(dict.fromkeys(name for rank in tightest["ranks"] for name, _ in rank["terms"]))
    labels = [f"rank {rank['rank']}" for rank in tightest["ranks"]]
    left = [0.0] * len(labels)
    for i, name in enumerate(names):
        sizes = [dict(rank["terms"]).get(name, 0) / GIB for rank in tightest["ranks"]]
        axes.barh(labels, sizes, left=left, color=COLOURS[min(i, 8)], label=name)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    axes.axvline(data["limit"] / GIB, color="#cc0000", label="limit")
    axes.invert_yaxis()
    axes.set(xlabel="GiB", title=f"Memory of wave {tightest['number']}")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, path)


def heat_map(results: Sequence[tuple[Job, Outcome]], path: Path) -> None:
    """The widest wave of every configuration: ranks and mode down, memory across."""
    several = {job.model for job, _ in results}
    rows: dict[str, None] = {}
    columns: dict[str, None] = {}
    widest: dict[tuple[str, str], float] = {}
    for job, outcome in results:
        row = f"{job.ranks_text()}, {job.recompute}"
        if len(several) > 1:
            row = f"{job.model}: {row}"
        column = job.budget or f"{job.available} free"
        rows[row] = columns[column] = None
        widest[row, column] = math.nan if outcome.status == "impossible" else outcome.widest
    figure, axes = _figure(2.6 + 1.2 * len(columns), 1.4 + 0.4 * len(rows))
    grid = [[widest.get((row, column), math.nan) for column in columns] for row in rows]
    image = axes.imshow(grid, aspect="auto", cmap="viridis", vmin=0)
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set_yticks(range(len(rows)), list(rows))
    top = max((value for line in grid for value in line if not math.isnan(value)), default=0)
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            text = "impossible" if math.isnan(value) else f"{value:,.0f}"
            dark = not math.isnan(value) and value < 0.6 * top
            axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black")
    axes.set_title("Widest wave, requests")
    figure.colorbar(image, ax=axes)
    _save(figure, path)


def predicted_observed(report: Report, path: Path) -> None:
    """Required bytes of every priced record against its observed peak, both in GiB."""
    figure, axes = _figure(7, 6)
    classes: dict[str, list[tuple[float, float]]] = {}
    for row in report.rows:
        if row.required is not None and row.observed:
            classes.setdefault(row.group, []).append((row.observed / GIB, row.required / GIB))
    for i, (name, points) in enumerate(classes.items()):
        xs, ys = zip(*points, strict=True)
        axes.scatter(xs, ys, color=COLOURS[i % 9], label=name, s=22)
    low = min(value for points in classes.values() for point in points for value in point)
    high = max(value for points in classes.values() for point in points for value in point)
    axes.plot([low, high], [low, high], color="#888888", linewidth=1, label="parity")
    axes.set(xscale="log", yscale="log", xlabel="observed peak, GiB", ylabel="required, GiB")
    axes.legend(fontsize="x-small")
    _save(figure, path)
