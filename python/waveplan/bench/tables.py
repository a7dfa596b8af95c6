"""Measurements as tables for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from waveplan.cli.render import Table, integer, seconds

__all__ = ["growth_table", "search_table", "threads_table"]


def search_table(title: str, made: Iterable[dict[str, Any]]) -> Table:
    """One line a workload and CP: see `waveplan.bench.peer.Comparison.to_dict`."""
    right = (
        "CP",
        "width",
        "reference",
        "ours",
        "ratio",
        "ours, emptied",
        "ratio, emptied",
        "x reading",
        "reference, warm",
        "ours, warm",
        "ratio, warm",
    )
    table = Table(title, ("workload", *right), right=frozenset(right))
    for row in made:
        table.add(
            row["workload"],
            row["cp"],
            integer(row["width"]),
            seconds(row["reference_cold"]),
            seconds(row["cold"]),
            integer(round(row["ratio"])),
            seconds(row["emptied"]),
            integer(round(row["emptied_ratio"])),
            f"{row['passes']:.1f}",
            seconds(row["reference_warm"]),
            seconds(row["warm"]),
            integer(round(row["warm_ratio"])),
        )
    return table


def growth_table(title: str, made: Sequence[dict[str, Any]]) -> Table:
    """One line a size."""
    right = ("rows", "tokens", "reference", "ours, emptied", "ratio", "x reading", "ours, warm")
    table = Table(title, right, right=frozenset(right))
    for row in made:
        table.add(
            integer(row["rows"]),
            integer(row["tokens"]),
            seconds(row["reference"]) if "reference" in row else "",
            seconds(row["ours"]),
            integer(round(row["reference"] / row["ours"])) if "reference" in row else "",
            f"{row['ours'] / row['read']:.1f}",
            seconds(row["warm"]),
        )
    return table


def threads_table(title: str, made: Sequence[dict[str, Any]]) -> Table:
    """Two planners at the same time beside one: see `waveplan.bench.scaling.threads`."""
    right = ("rows", "searches a second", "two threads", "two processes", "threads of processes")
    table = Table(title, right, right=frozenset(right))
    for row in made:
        table.add(
            integer(row["rows"]),
            integer(round(row["one"])),
            f"{row['ratio']:.2f}",
            f"{row['processes']:.2f}",
            f"{row['of_processes']:.2f}",
        )
    return table
