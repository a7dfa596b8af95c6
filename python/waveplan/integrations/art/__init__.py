"""Plan inside a running ``openpipe-art`` with waveplan, seam by seam.

Every function that the reference planner spends its time in is replaced by ours in every module
that holds it; its prices, its search and its tests stay. Results are the package's own classes
with equal values; parts that planning rarely reads are computed when first read.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from waveplan.checks import choice, flag
from waveplan.errors import InputError, one_line

from ._seams import Seam, release, take
from ._shadow import Difference, Shadow, forget

__all__ = ["VERSIONS", "Difference", "Report", "install", "installed", "uninstall"]

VERSIONS = ("0.5.22", "0.5.23")
"""Versions of ``openpipe-art`` whose planning ours was compared with. Others are known by content:
each function is taken if it and all that it stands on is as it was there."""

DISTRIBUTION = "openpipe-art"


@dataclass(frozen=True, eq=False)
class Report:
    """Seams that an installation took. ``str()`` lists them with their calls so far."""

    version: str
    seams: Sequence[Seam]
    """Replaced functions; each has `name`, `path`, `calls` and `declined`."""
    absent: Sequence[str]
    """Functions that this version does not have."""
    refused: Mapping[str, str]
    """Functions left alone because they, or what they stand on, changed: why, by path."""
    shadow: Shadow | None
    """With ``shadow=True``: counts of `equal` and `different` results, and the first `found`."""

    @property
    def summary(self) -> str:
        """One line."""
        mode = "" if self.shadow is None else ", beside the original (shadow)"
        left = len(self.absent) + len(self.refused)
        count = f"{len(self.seams)} of {len(self.seams) + left}" if left else len(self.seams)
        text = f"waveplan plans {DISTRIBUTION} {self.version}{mode}: {count} seams"
        reasons = [f"{path} {why}" for path, why in self.refused.items()]
        return "; not ".join((text, *self.absent, *reasons))

    def __str__(self) -> str:
        lines = [self.summary.partition("; not ")[0]]
        for seam in self.seams:
            used = f"{seam.calls} calls"
            if seam.declined:
                used += f", {seam.declined} left to the original"
            if seam.disagreed:
                used += f" ({seam.disagreed} priced differently)"
            if seam.failed:
                used += f", {seam.failed} failed"
            if self.shadow is not None and self.shadow.different[seam.name]:
                used += f", {self.shadow.different[seam.name]} different"
            lines.append(f"  {seam.name}: {seam.path}; {used}")
        lines += [f"  not taken, absent here: {path}" for path in self.absent]
        lines += [f"  not taken, {why}: {path}" for path, why in self.refused.items()]
        if self.shadow is not None:
            lines += [f"  {line}" for line in str(self.shadow).split("\n")]
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
        shadow: Run both planners at every seam and compare; the original's results go on.
        on_difference: "raise" a `Difference` at each one, or "log" the first three of a seam as
            errors (logger ``waveplan.art``) and count the others.
        force: Take functions that changed, too, where their parameters are as ours knows them.

    Raises:
        ImportError: the package is not installed, or cannot be imported; in one line.
        InputError: no function is as ours knows it, without `force`; or another `on_difference`.
    """
    global _current
    choice("on_difference", on_difference, ("raise", "log"))
    flag("shadow", shadow)
    flag("force", force)
    found = version()
    uninstall()
    around = Shadow(raises=on_difference == "raise") if shadow else None
    seams = _seams()
    there = [seam for seam in seams if seam.prepare(around)]
    absent = tuple(seam.path for seam in seams if seam not in there)
    refused = _refused(there, force)
    taken = tuple(seam for seam in there if seam.path not in refused)
    if not taken:
        raise InputError(
            f"{DISTRIBUTION} {found} plans by other functions than those of "
            f"{' and '.join(VERSIONS)}: {next(iter(refused.values()), 'all are absent')}"
        )
    take(taken)
    _current = Report(found, taken, absent, refused, around)
    return _current


def _refused(seams: Sequence[Seam], force: bool) -> dict[str, str]:
    """Return why seams may not be taken."""
    from . import _content

    differing = _content.changed()
    reasons = {}
    for seam in seams:
        known = _content.table()["seams"].get(seam.path, {"parameters": None})
        if _content.parameters(seam.original) != known["parameters"]:
            reasons[seam.path] = "has other parameters"
        elif seam.path in differing and not force:
            names = differing[seam.path]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            reasons[seam.path] = f"changed in {', '.join(names[:3])}{more}"
    return reasons


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
        if importlib.util.find_spec("art") is None:
            message = f"there is no {DISTRIBUTION} in this environment to install into"
            raise ImportError(message) from None
        return "of unknown version"


def _seams() -> list[Seam]:
    """Return all seams. These modules import torch and the package."""
    try:
        from . import _gdn, _heads, _packs, _ranks, _search, _trees
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}")
        raise ImportError(f"{DISTRIBUTION} cannot be imported here: {why}") from None
    return [
        seam for part in (_search, _trees, _packs, _ranks, _gdn, _heads) for seam in part.seams()
    ]
