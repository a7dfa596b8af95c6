"""Running both planners: the first difference is raised or logged, its inputs saved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from waveplan.errors import WaveplanError, one_line

from ._classes import field_names
from ._seams import Function, Seam

LOG = logging.getLogger("waveplan.art")


class Difference(WaveplanError):  # noqa: N818 - a finding
    """Ours and the replaced planner gave different results; ``saved`` holds the inputs.

    If they could not be saved, ``unsaved`` says why.
    """

    def __init__(self, seam: str, what: str, saved: Path | None, unsaved: str = "") -> None:
        self.seam, self.what, self.saved, self.unsaved = seam, what, saved, unsaved
        kept = f"; inputs in {saved}, see waveplan.integrations.art.replay" if saved else ""
        if unsaved:
            kept = f"; its inputs could not be saved: {unsaved}"
        super().__init__(one_line(f"{seam}: {what}{kept}"))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seam, self.what, self.saved, self.unsaved)


def difference(ours: Any, theirs: Any, at: str = "result") -> str | None:
    """Where two results differ first, or None. Classes count, late ones as their base."""
    if ours is theirs:
        return None
    fields = field_names(type(theirs))
    if fields is not None:
        if not isinstance(ours, type(theirs)):
            return f"{at}: a {type(ours).__name__}, not a {type(theirs).__name__}"
        pairs = ((f".{n}", getattr(ours, n, None), getattr(theirs, n)) for n in fields)
        return _first(pairs, at)
    if type(ours) is not type(theirs):
        return f"{at}: {ours!r:.80} is not {theirs!r:.80}"
    if isinstance(theirs, Mapping):
        if set(ours) != set(theirs):
            return f"{at}: keys differ"
        return _first(((f"[{k!r}]", ours[k], theirs[k]) for k in theirs), at)
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{at}: {len(ours)} entries, not {len(theirs)}"
        pairs = ((f"[{i}]", a, b) for i, (a, b) in enumerate(zip(ours, theirs, strict=True)))
        return _first(pairs, at)
    if hasattr(theirs, "dtype") and hasattr(theirs, "shape"):
        same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return None if same and bool((ours == theirs).all()) else f"{at}: arrays differ"
    return None if ours == theirs else f"{at}: {ours!r:.80} is not {theirs!r:.80}"


def _first(pairs: Any, at: str) -> str | None:
    for name, a, b in pairs:
        found = difference(a, b, at + name)
        if found is not None:
            return found
    return None


class SameNames:
    """Two namings agree if each name of one goes with one name of the other."""

    def __init__(self) -> None:
        self.pairs: dict[Any, Any] = {}

    def __call__(self, ours: Any, theirs: Any) -> str | None:
        for key, value in ((("ours", ours), theirs), (("theirs", theirs), ours)):
            if self.pairs.setdefault(key, value) != value:
                return "two groups of rows share a name"
        return None


class Shadow:
    """Makes wrappers that run both; counts what agreed."""

    def __init__(self, *, raises: bool, save: Callable[[Seam, Any, Any, str], Path | None]) -> None:
        self.raises, self.save = raises, save
        self.equal = 0
        self.found: list[Difference] = []
        self._lock = threading.Lock()

    def __call__(self, seam: Seam) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            args = seam.spread(args, kwargs)
            answered, ours = seam.attempt(args, kwargs)
            assert seam.original is not None
            if not answered:
                return seam.original(*args, **kwargs)
            try:
                theirs = seam.original(*args, **kwargs)
            except RecursionError:
                return ours  # their walk ran out of stack; ours has none
            except Exception as error:
                raised = f"an answer where the replaced planner raises {type(error).__name__}"
                self._report(seam, args, kwargs, raised)
                raise
            what = (seam.differ or difference)(ours, theirs)
            if what is None:
                with self._lock:
                    self.equal += 1
                return ours
            self._report(seam, args, kwargs, what)
            return theirs

        return call

    def _report(self, seam: Seam, args: Any, kwargs: Any, what: str) -> None:
        with self._lock:
            try:
                saved, unsaved = self.save(seam, args, kwargs, what), ""
            except (OSError, WaveplanError) as error:  # a full disk must not end the training
                saved, unsaved = None, one_line(str(error))
            found = Difference(seam.name, what, saved, unsaved)
            self.found.append(found)
        if self.raises:
            raise found
        LOG.error("%s", found)
