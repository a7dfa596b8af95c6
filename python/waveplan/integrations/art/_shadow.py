"""Compare both planners at every seam: count equal results, raise or log differences.

The replaced function's result always goes on. Ours is kept beside it, so that the later seams
compare on it.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from waveplan.errors import WaveplanError, one_line

from ._seams import Seam

LOG = logging.getLogger("waveplan.art")
KEPT = 3
"""Differences of one seam that are logged and kept; later ones are counted."""
MOST = 500
"""Characters of one of them."""
NAMES = 1 << 12
"""Names of groups of sequences that are remembered."""


_TWINS: dict[int, tuple[Any, Any]] = {}
_MOST_TWINS = 64
_pairing = threading.Lock()


def pair(theirs: Any, ours: Any) -> None:
    """Remember, in a shadow run, that ours equals a value of the other package that goes on."""
    if isinstance(theirs, tuple):
        for one, other in zip(theirs, ours, strict=True):
            pair(one, other)
    elif dataclasses.is_dataclass(theirs):
        with _pairing:
            _TWINS[id(theirs)] = (theirs, ours)
            while len(_TWINS) > _MOST_TWINS:
                del _TWINS[next(iter(_TWINS))]


def twin(value: Any) -> Any:
    """Return our value that equals one of the other package, if a shadow run has made it."""
    if not _TWINS:
        return value
    with _pairing:
        theirs, ours = _TWINS.get(id(value), (None, None))
    return ours if theirs is value else value


def forget() -> None:
    """Forget all such values."""
    with _pairing:
        _TWINS.clear()


class Difference(WaveplanError):  # noqa: N818 - a finding
    """Ours and the replaced function return different results; the message names the seam."""


class Shadow:
    """Runs the replaced function beside ours; its result goes on."""

    def __init__(self, *, raises: bool) -> None:
        self.raises = raises
        self.equal = 0
        """Equal results so far."""
        self.different: Counter[str] = Counter()
        """Different results so far, by the seam's name."""
        self.found: list[Difference] = []
        """The first three differences of each seam."""
        self._lock = threading.Lock()

    def __str__(self) -> str:
        counts = f"{self.equal} results equal, {self.different.total()} different"
        return "\n".join([counts, *map(str, self.found)])

    def __call__(self, seam: Seam, ours: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            theirs = seam.original(*args, **kwargs)
        except Exception as error:
            self._report(seam, f"a result where the original raises {type(error).__name__}")
            raise
        try:
            what = (seam.differ or difference)(ours, theirs)
        except Exception as error:
            what = f"cannot be compared: {error!r}"
        if what is None:
            with self._lock:
                self.equal += 1
            pair(theirs, ours)
        else:
            self._report(seam, what)
        return theirs

    def _report(self, seam: Seam, what: str) -> None:
        found = Difference(one_line(f"{seam.name}: {what}")[:MOST])
        with self._lock:
            self.different[seam.name] += 1
            first = self.different[seam.name] <= KEPT
            if first:
                self.found.append(found)
        if self.raises:
            raise found
        if first:
            LOG.error("%s", found)


def difference(ours: Any, theirs: Any, at: str = "result") -> str | None:
    """Return where two results differ first, or None. A late class counts as its base."""
    if ours is theirs:
        return None
    fields = _field_names(type(theirs))
    if fields is not None:
        if not isinstance(ours, type(theirs)):
            return f"{at}: a {type(ours).__name__}, not a {type(theirs).__name__}"
        pairs = ((f".{n}", getattr(ours, n, None), getattr(theirs, n)) for n in fields)
        return _first(pairs, at)
    if not isinstance(ours, type(theirs)):
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


def _field_names(cls: type) -> list[str] | None:
    """Fields of a dataclass or a pydantic model; None for any other class."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    fields = getattr(cls, "model_fields", None)
    return None if fields is None else list(fields)


def _first(pairs: Any, at: str) -> str | None:
    for name, a, b in pairs:
        found = difference(a, b, at + name)
        if found is not None:
            return found
    return None


class SameNames:
    """Reports a difference unless names of ours and of the original pair one to one."""

    def __init__(self) -> None:
        self.pairs: dict[Any, Any] = {}

    def __call__(self, ours: Any, theirs: Any) -> str | None:
        for key, value in ((("ours", ours), theirs), (("theirs", theirs), ours)):
            if self.pairs.setdefault(key, value) != value:
                return "two groups of sequences share a name"
        while len(self.pairs) > 2 * NAMES:
            del self.pairs[next(iter(self.pairs))]
        return None
