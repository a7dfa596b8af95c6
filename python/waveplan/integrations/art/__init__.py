"""Plans inside a running ``openpipe-art`` with waveplan, seam by seam.

Every function that the published planner spends its time in is replaced by ours at its own
place, so that its prices, its search and its tests stay as they are. Results are the
package's own classes with equal values; only the parts that nobody may read are made late.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from waveplan._values import choice, flag
from waveplan.errors import InputError

from ._saved import Replay, run_again
from ._saved import save as save_call
from ._seams import Seam, release, take
from ._shadow import Difference, SameNames, Shadow

__all__ = [
    "VERSIONS",
    "Difference",
    "Replay",
    "Report",
    "install",
    "installed",
    "replay",
    "uninstall",
]

VERSIONS = ("0.5.23",)
"""Versions of ``openpipe-art`` that ours was compared with."""

DISTRIBUTION = "openpipe-art"


@dataclass(frozen=True, eq=False)
class Report:
    """What an installation took. ``str()`` lists the seams with their calls so far."""

    version: str
    seams: Sequence[Seam]
    """Taken; each has `name`, `stage`, `path`, `places`, `calls` and `declined`."""
    absent: Sequence[str]
    """Functions that this version does not have."""
    shadow: Shadow | None
    """With ``shadow=True``: `equal` results so far and the differences `found`."""

    def __str__(self) -> str:
        mode = "" if self.shadow is None else ", beside the original (shadow)"
        lines = [f"waveplan plans {DISTRIBUTION} {self.version}{mode}: {len(self.seams)} seams"]
        for seam in self.seams:
            used = f"{seam.calls} calls"
            if seam.declined:
                used += f", {seam.declined} left to the original"
            lines.append(f"  {seam.name} ({seam.stage}): {seam.path}; {used}")
        lines += [f"  not taken, absent here: {path}" for path in self.absent]
        if self.shadow is not None:
            found = len(self.shadow.found)
            lines.append(f"  {self.shadow.equal} results equal, {found} different")
        return "\n".join(lines)


_current: Report | None = None


def install(
    shadow: bool = False,
    on_difference: Literal["raise", "log"] = "raise",
    *,
    force: bool = False,
    save: str | Path | None = None,
) -> Report:
    """Takes every seam of the installed ``openpipe-art`` and reports which.

    Args:
        shadow: Run both planners at every seam and compare.
        on_difference: "raise" a `Difference` at the first one, or "log" each as an error
            (logger ``waveplan.art``) and go on with the original's result.
        force: Try a version that ours was not compared with; functions it lacks stay absent.
        save: Folder for the inputs of differences; default ``waveplan-differences`` here.

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
    trees, seams = _seams(keep_rows=shadow)
    around = None
    if shadow:
        folder = Path("waveplan-differences" if save is None else save)
        around = Shadow(
            raises=on_difference == "raise",
            save=lambda seam, args, kwargs, what: save_call(
                folder, trees, seam, args, kwargs, what
            ),
        )
    taken, absent = [], []
    for seam in seams:
        if seam.prepare(around):
            taken.append(seam)
        else:
            absent.append(seam.path)
    take(taken)
    _current = Report(found, tuple(taken), tuple(absent), around)
    return _current


def uninstall() -> None:
    """Gives every seam back; nothing happens if none was taken."""
    global _current
    if _current is not None:
        release(_current.seams)
    _current = None


def installed() -> Report | None:
    """The report of the installation that is in force, if any."""
    return _current


def replay(path: str | Path) -> Replay:
    """Runs the call of a saved difference again, on ours and on the original.

    The file is data: of the classes it names, only those that arguments of the seams are made
    of are looked up.

    Raises:
        ImportError: the package cannot be imported.
        InputError: the file or its arrays are missing, damaged or of another version.
    """
    trees, seams = _seams(keep_rows=False)
    taken = {seam.name: seam for seam in _current.seams} if _current else {}
    for seam in seams:
        if seam.name in taken:
            seam.original = taken[seam.name].original
    return run_again(Path(path), seams, trees)


def version() -> str:
    """Version of the package as installed; of the wheel beside it if it only lies on the path."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        pass
    spec = importlib.util.find_spec("art.trainer_rank")
    if spec is None or spec.origin is None:
        raise ImportError(f"{DISTRIBUTION} is not installed: there is no module art.trainer_rank")
    beside = Path(spec.origin).resolve().parent.parent.parent
    for folder in sorted(beside.glob("openpipe_art-*.dist-info")):
        return folder.name.removesuffix(".dist-info").partition("-")[2]
    return "of unknown version"


def _seams(*, keep_rows: bool) -> tuple[Any, list[Seam]]:
    """All seams, over one set of late classes."""
    import torch

    from . import _heads, _packs, _ranks, _trees

    impl = importlib.import_module(_trees.IMPL)
    trees = _trees.Trees(
        torch,
        importlib.import_module(_trees.PLANNER),
        importlib.import_module(_trees.SEARCH),
        keep_rows=keep_rows,
    )
    packs = _packs.Packs(trees, importlib.import_module(_packs.PACKING))
    seams = _trees.seams(trees, impl, importlib.import_module(_trees.STEPS))
    seams += _packs.seams(packs)
    seams += _ranks.seams(
        packs,
        importlib.import_module(_ranks.RUNTIME),
        importlib.import_module(_ranks.GDN),
    )
    seams += _heads.seams(torch, impl)
    for seam in seams:
        if seam.attribute.endswith("_layout_cache_key"):
            seam.differ = SameNames()
    return trees, seams
