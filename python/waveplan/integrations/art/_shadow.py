"""Running both planners: the first difference is raised or logged, its inputs saved."""

from __future__ import annotations

import dataclasses
import enum
import logging
import threading
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from waveplan.errors import WaveplanError

from ._seams import Function, Seam

LOG = logging.getLogger("waveplan.art")


class Difference(WaveplanError):  # noqa: N818 - a finding
    """Ours and the replaced planner gave different results; ``saved`` holds the inputs."""

    def __init__(self, seam: str, what: str, saved: Path | None) -> None:
        self.seam, self.what, self.saved = seam, what, saved
        kept = f"; inputs in {saved}, see waveplan.integrations.art.replay" if saved else ""
        super().__init__(f"{seam}: {what}{kept}")


def difference(ours: Any, theirs: Any, at: str = "result") -> str | None:
    """Where two results differ first, or None. Classes count, late ones as their base."""
    if ours is theirs:
        return None
    fields = _fields(theirs)
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
    if hasattr(theirs, "numpy") and hasattr(theirs, "device"):
        same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return None if same and bool((ours == theirs).all()) else f"{at}: tensors differ"
    return None if ours == theirs else f"{at}: {ours!r:.80} is not {theirs!r:.80}"


def _fields(value: Any) -> list[str] | None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value)]
    if hasattr(type(value), "model_fields"):
        return list(type(value).model_fields)
    return None


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
            saved = self.save(seam, args, kwargs, what)
            found = Difference(seam.name, what, saved)
            self.found.append(found)
        if self.raises:
            raise found
        LOG.error("%s", found)


class Writer:
    """Arguments as JSON, with arrays beside it."""

    def __init__(self, special: Callable[[Any], dict[str, Any] | None]) -> None:
        self.arrays: dict[str, Any] = {}
        self.special = special
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def array(self, value: Any) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.asarray(value)
        return name

    def write(self, value: Any) -> Any:
        if value is None or (
            isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum)
        ):
            return value
        if id(value) in self.seen:
            return {"again": self.seen[id(value)]}
        made = self._made(value)
        if "number" in made:
            self.seen[id(value)] = made["number"]
        return made

    def _made(self, value: Any) -> dict[str, Any]:
        special = self.special(value)
        if special is not None:
            made = {name: self.write(part) for name, part in special.items()}
            made["number"] = len(self.kept)
            self.kept.append(value)
            return made
        if hasattr(value, "detach"):
            return {"tensor": self.array(value.detach().cpu().numpy())}
        if isinstance(value, np.ndarray):
            return {"array": self.array(value)}
        if isinstance(value, enum.Enum):
            return {"enum": _class_of(value), "value": value.value}
        if isinstance(value, Mapping):
            return {"dict": [[self.write(k), self.write(v)] for k, v in value.items()]}
        if isinstance(value, (tuple, list)):
            return {type(value).__name__: [self.write(part) for part in value]}
        if isinstance(value, Set):
            return {"set": [self.write(part) for part in sorted(value)]}
        fields = _fields(value)
        if fields is not None and type(value).__module__.split(".")[0] == "art":
            parts = {name: self.write(getattr(value, name)) for name in fields}
            return {"class": _class_of(value), "fields": parts}
        return {"opaque": f"{value!r:.200}"}


def _class_of(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"
