"""Calls on disk: a JSON file, its arrays beside it, and how to run one again."""

from __future__ import annotations

import enum
import inspect
import itertools
import json
import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan._files import MOST_BYTES, kind, parse_json, read_json, replacing, write_text
from waveplan._load_npz import load_numbers, plain_numbers
from waveplan._loading import said_of
from waveplan._values import shown
from waveplan.errors import InputError, WaveplanError, one_line

from ._classes import field_names, name_of
from ._reader import NeedsRankError, Reader
from ._seams import Declined, Function, Seam
from ._shadow import difference
from ._trees import Trees

FORMAT = 1
KEYS = ("format", "seam", "different", "args", "kwargs")


@dataclass(frozen=True)
class Replay:
    """One saved call, run again on both."""

    seam: str
    recorded: str
    """What differed when it was saved."""
    ours: Any
    """Our result, or the error raised; the original's where ours leaves the call to it."""
    theirs: Any
    """The original's result, or the error raised."""
    difference: str | None
    """What differs now; None if they agree."""

    def __str__(self) -> str:
        agree = "both agree now"
        if isinstance(self.theirs, Exception):
            agree = f"both raise {type(self.theirs).__name__} now"
        return f"{self.seam}: was {self.recorded}; {self.difference or agree}"


class Writer:
    """Arguments as JSON, with arrays beside it."""

    def __init__(self, special: Callable[[Any], dict[str, Any] | None]) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.special = special
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def write(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
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
        if hasattr(value, "detach") or isinstance(value, np.ndarray):
            return self._array(value)
        name = name_of(type(value))
        if isinstance(value, enum.Enum):
            return {"enum": name, "value": value.value} if name else _opaque(value)
        if isinstance(value, Mapping):
            return {"dict": [[self.write(k), self.write(v)] for k, v in value.items()]}
        if isinstance(value, (tuple, list)):
            whole = "tuple" if isinstance(value, tuple) else "list"
            return {whole: [self.write(part) for part in value]}
        if isinstance(value, Set):
            return {"set": [self.write(part) for part in sorted(value)]}
        fields = field_names(type(value))
        if name is None or fields is None:
            return _opaque(value)
        return {"class": name, "fields": {key: self.write(getattr(value, key)) for key in fields}}

    def _array(self, value: Any) -> dict[str, Any]:
        what = "array" if isinstance(value, np.ndarray) else "tensor"
        try:
            array = value if what == "array" else value.detach().cpu().numpy()
        except TypeError:  # of a type that numpy lacks
            return _opaque(value)
        if not plain_numbers(array.dtype):
            return _opaque(value)
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.asarray(array)
        return {what: name}


def _opaque(value: Any) -> dict[str, Any]:
    """What no function here looks into; it comes back as None."""
    return {"opaque": shown(value)}


def save(
    folder: Path, trees: Trees, seam: Seam, args: tuple[Any, ...], kwargs: Any, what: str
) -> Path:
    """Writes a call, whole or not at all; the path of its JSON file.

    Raises:
        OSError: it cannot be written.
        InputError: it is larger than what would be read again.
    """

    def special(value: Any) -> dict[str, Any] | None:
        if type(value) is trees.tree_class:
            return {"tree": value._rows}
        if type(value) is trees.layout_class:
            return {"layout": value._tree, "shared": value._flags}
        return {"rank": True} if type(value).__name__.endswith("Rank") else None

    writer = Writer(special)
    body = {
        "format": FORMAT,
        "seam": seam.name,
        "different": what,
        "args": [writer.write(value) for value in args],
        "kwargs": {key: writer.write(value) for key, value in kwargs.items()},
    }
    text = json.dumps(body)
    if len(text) > MOST_BYTES:
        raise InputError(f"they take more than {MOST_BYTES} bytes of JSON")
    parse_json(text.encode())
    path = _claimed(folder, f"{seam.name.replace(' ', '-')}-{os.getpid()}")
    archive = path.with_suffix(".npz")
    try:
        with replacing(archive) as made:
            np.savez(made, **writer.arrays)  # type: ignore[arg-type]
        write_text(path, text)
    except BaseException:
        archive.unlink(missing_ok=True)
        raise
    return path


def _claimed(folder: Path, stem: str) -> Path:
    """A free name. Its archive is there, empty, so that nobody who shares the folder takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = folder / f"{stem}-{number}.json"
        if path.exists():
            continue
        try:
            path.with_suffix(".npz").touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
    raise AssertionError


def run_again(path: Path, seams: list[Seam], trees: Trees) -> Replay:
    """Runs a saved call through ours and through the function that ours replaces.

    Raises:
        InputError: no such call was saved; the message names the file.
    """
    body, arrays = _load(path)

    def work() -> Replay:
        seam = _seam(body["seam"], seams)
        original = seam.original or seam.find()
        if original is None:
            raise InputError(f"the installed openpipe-art has no {seam.path}")
        return _compare(seam, original, body, lambda: Reader(arrays, trees, _methods(seams)))

    return said_of(str(path), work)


def _load(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A saved call with every key of its kind, and its arrays."""
    body = read_json(path)

    def check() -> None:
        found = body.get("format") if isinstance(body, dict) else None
        if found is None:
            raise InputError("no saved call: give a file that install(shadow=True) saved")
        if type(found) is not int or found != FORMAT:
            raise InputError(f"of format {shown(found)}: this version reads format {FORMAT}")
        if set(body) != set(KEYS):
            raise InputError(f"a saved call has {', '.join(KEYS)}, not {shown(list(body))}")
        if not isinstance(body["different"], str):
            raise InputError(f"different is {shown(body['different'])}: it must be text")
        if not isinstance(body["args"], list) or not isinstance(body["kwargs"], dict):
            raise InputError("args must be a list and kwargs an object")

    said_of(str(path), check)
    archive = path.with_suffix(".npz")
    if kind(archive) == "other":
        raise InputError(f"{archive}: cannot be read: it is no file")
    return body, said_of(str(archive), lambda: load_numbers(archive))


def _seam(name: Any, seams: list[Seam]) -> Seam:
    for seam in seams:
        if seam.name == name:
            return seam
    raise InputError(f"seam is {shown(name)}: it must be one of {', '.join(s.name for s in seams)}")


def _methods(seams: list[Seam]) -> dict[str, Function]:
    """Methods of a rank that are replaced, as they were."""
    found = {}
    for seam in seams:
        cls, _, name = seam.attribute.rpartition(".")
        function = (seam.original or seam.find()) if cls else None
        if function is not None:
            found[name] = function
    return found


def _compare(
    seam: Seam, original: Function, body: dict[str, Any], reader: Callable[[], Reader]
) -> Replay:
    outcomes = []
    for function in (original, seam.ours or seam.make(original)):
        read = reader()  # for each: functions may keep or change what they are given
        args = [read.read(value) for value in body["args"]]
        kwargs = {key: read.read(value) for key, value in body["kwargs"].items()}
        try:
            inspect.signature(original).bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"its arguments are not those of {seam.path}: {error}") from None
        try:
            outcomes.append(function(*args, **kwargs))
        except NeedsRankError as error:
            raise InputError(
                f"{seam.name} cannot run again alone: it reads {error} of its rank, not saved here"
            ) from None
        except Exception as error:
            outcomes.append(error)
    theirs, ours = outcomes
    if isinstance(ours, (Declined, WaveplanError, TypeError, OverflowError)):
        ours = theirs  # as at the seam, the original answers
    what = _differ(seam, ours, theirs)
    return Replay(seam.name, one_line(body["different"]), ours, theirs, what)


def _differ(seam: Seam, ours: Any, theirs: Any) -> str | None:
    if ours is theirs or isinstance(theirs, RecursionError):
        return None
    if isinstance(ours, Exception):
        raised = f"raises {type(ours).__name__}"
        if isinstance(theirs, Exception):
            return None if type(ours) is type(theirs) else f"{raised}, not {type(theirs).__name__}"
        return f"{raised} where the replaced planner answers"
    if isinstance(theirs, Exception):
        return f"an answer where the replaced planner raises {type(theirs).__name__}"
    return (seam.differ or difference)(ours, theirs)
