"""Plan inside a running ``openpipe-art`` with waveplan, seam by seam.

Every function that the reference planner spends its time in is replaced by ours in every module
that holds it; its prices, its search and its tests stay. Results are the package's own classes
with equal values; parts that planning rarely reads are computed when first read.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from waveplan.checks import choice, flag
from waveplan.errors import InputError

from ._seams import Seam, release, take
from ._shadow import Difference, Shadow, forget

__all__ = ["VERSIONS", "Difference", "Report", "install", "installed", "uninstall"]

VERSIONS = ("0.5.23",)
"""Versions of ``openpipe-art`` that ours was compared with."""

DISTRIBUTION = "openpipe-art"


@dataclass(frozen=True, eq=False)
class Report:
    """Seams that an installation took. ``str()`` lists them with their calls so far."""

    version: str
    seams: Sequence[Seam]
    """Replaced functions; each has `name`, `path`, `calls` and `declined`."""
    absent: Sequence[str]
    """Functions that this version does not have."""
    shadow: Shadow | None
    """With ``shadow=True``: counts of `equal` and `different` results, and the first `found`."""

    def __str__(self) -> str:
        mode = "" if self.shadow is None else ", beside the original (shadow)"
        lines = [f"waveplan plans {DISTRIBUTION} {self.version}{mode}: {len(self.seams)} seams"]
        for seam in self.seams:
            used = f"{seam.calls} calls"
            if seam.declined:
                used += f", {seam.declined} left to the original"
            if self.shadow is not None and self.shadow.different[seam.name]:
                used += f", {self.shadow.different[seam.name]} different"
            lines.append(f"  {seam.name}: {seam.path}; {used}")
        lines += [f"  not taken, absent here: {path}" for path in self.absent]
        if self.shadow is not None:
            different = self.shadow.different.total()
            lines.append(f"  {self.shadow.equal} results equal, {different} different")
            lines += [f"  {found}" for found in self.shadow.found]
        return "\n".join(lines)


_current: Report | None = None


def install(
    shadow: bool = False,
    on_difference: Literal["raise", "log"] = "raise",
    *,
    force: bool = False,
) -> Report:
    """Replace every seam of the installed ``openpipe-art``; return a report of them.

    Args:
        shadow: Run both planners at every seam and compare.
        on_difference: "raise" a `Difference` at each one, or "log" the first three of a seam as
            errors (logger ``waveplan.art``), count the others, and use the original's result.
        force: Try a version that ours was not compared with; functions it lacks stay absent.

    Raises:
        ImportError: the package cannot be imported.
        InputError: an unknown version without `force`, or another `on_difference`.
    """
    global _current
    choice("on_difference", on_difference, ("raise", "log"))
    flag("shadow", shadow)
    flag("force", force)
    found = version()
    if found not in VERSIONS and not force:
        known = ", ".join(VERSIONS)
        raise InputError(
            f"{DISTRIBUTION} {found} is not among the versions waveplan was compared with "
            f"({known}); install(force=True) tries it all the same"
        )
    uninstall()
    around = Shadow(raises=on_difference == "raise") if shadow else None
    seams = _seams()
    taken = tuple(seam for seam in seams if seam.prepare(around))
    take(taken)
    absent = tuple(seam.path for seam in seams if seam not in taken)
    _current = Report(found, taken, absent, around)
    return _current


def uninstall() -> None:
    """Put every replaced function back, if any is replaced."""
    global _current
    if _current is not None:
        release(_current.seams)
        if _current.shadow is not None:
            forget()
    _current = None


def installed() -> Report | None:
    """Return the report of the installation in force, if any."""
    return _current


def version() -> str:
    """Return the version of the package; without a distribution, "of unknown version"."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        importlib.import_module("art.trainer_rank")
        return "of unknown version"


def _seams() -> list[Seam]:
    """Return all seams. These modules import torch and the package."""
    from . import _gdn, _heads, _packs, _ranks, _search, _trees

    return [
        seam for part in (_search, _trees, _packs, _ranks, _gdn, _heads) for seam in part.seams()
    ]
