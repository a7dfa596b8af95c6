"""Calls on disk: a JSON file, its arrays beside it, and how to run one again."""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._seams import Seam
from ._shadow import Writer, difference
from ._trees import Trees
from ._values import filled


class StandIn:
    """In place of the rank whose method was saved: what the counting methods ask of it."""

    def _head_workspace_bytes(self, rows: int) -> int:
        return rows


@dataclass(frozen=True)
class Replay:
    """One saved call, run again on both."""

    seam: str
    recorded: str
    """What differed when it was saved."""
    ours: Any
    theirs: Any
    difference: str | None
    """What differs now; None if they agree."""

    def __str__(self) -> str:
        now = self.difference or "both agree now"
        return f"{self.seam}: was {self.recorded}; {now}"


def save(
    folder: Path, trees: Trees, seam: Seam, args: tuple[Any, ...], kwargs: Any, what: str
) -> Path:
    """Writes a call; the path of its JSON file."""
    name = seam.name
    if seam.replays is not None:
        name, args, kwargs = seam.replays(*args, **kwargs)

    def special(value: Any) -> dict[str, Any] | None:
        if type(value) is trees.tree_class:
            return {"tree": value._rows}
        if type(value) is trees.layout_class:
            return {"layout": value._tree, "shared": value._flags}
        return {"rank": True} if type(value).__name__.endswith("Rank") else None

    writer = Writer(special)
    body = {
        "seam": name,
        "different": what,
        "args": [writer.write(value) for value in args],
        "kwargs": {key: writer.write(value) for key, value in kwargs.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    stem = f"{name.replace(' ', '-')}-{os.getpid()}"
    while (folder / f"{stem}-{number}.json").exists():
        number += 1
    path = folder / f"{stem}-{number}.json"
    np.savez(path.with_suffix(".npz"), **writer.arrays)
    path.write_text(json.dumps(body))
    return path


class Reader:
    """Arguments back from a file."""

    def __init__(self, arrays: Any, trees: Trees) -> None:
        self.arrays, self.trees = arrays, trees
        self.made: dict[int, Any] = {}

    def read(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "again" in value:
            return self.made[value["again"]]
        found = self._read(value)
        if "number" in value:
            self.made[value["number"]] = found
        return found

    def _read(self, value: dict[str, Any]) -> Any:
        kind = next(iter(value))
        content = value[kind]
        if kind == "tensor":
            return self.trees.torch.from_numpy(np.array(self.arrays[content]))
        if kind == "array":
            return np.array(self.arrays[content])
        if kind == "enum":
            return _class(content)(value["value"])
        if kind == "dict":
            return {self.read(k): self.read(v) for k, v in content}
        if kind in ("tuple", "list", "set"):
            parts = [self.read(part) for part in content]
            return {"tuple": tuple, "list": list, "set": frozenset}[kind](parts)
        if kind == "class":
            fields = {name: self.read(part) for name, part in value["fields"].items()}
            cls = _class(content)
            return cls(**fields) if hasattr(cls, "model_fields") else filled(cls, **fields)
        if kind == "tree":
            return self.trees.tree(self.read(content))
        if kind == "layout":
            return self._layout(self.read(content), self.read(value["shared"]))
        return StandIn() if kind == "rank" else None

    def _layout(self, tree: Any, shared: Any) -> Any:
        plain = self.trees.planner.plan_prefix_tree_layout(tree, np.flatnonzero(shared).tolist())
        return filled(
            self.trees.layout_class,
            packed_tokens=plain.packed_tokens,
            maximum_depth=plain.maximum_depth,
            _tree=tree,
            _flags=shared,
            _count=len(plain.segments),
        )


def _class(path: str) -> Any:
    module, name = path.split(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def run_again(path: Path, seams: list[Seam], trees: Trees) -> Replay:
    """Runs a saved call through ours and through the function that ours replaces."""
    body = json.loads(path.read_text())
    seam = next(seam for seam in seams if seam.name == body["seam"])
    original = seam.original or seam.find()
    assert original is not None
    ours = seam.ours or seam.make(original)
    results: list[Any] = []
    with np.load(path.with_suffix(".npz")) as arrays:
        for function in (ours, original):
            reader = Reader(arrays, trees)
            args = [reader.read(value) for value in body["args"]]
            kwargs = {key: reader.read(value) for key, value in body["kwargs"].items()}
            results.append(function(*args, **kwargs))
    what = (seam.differ or difference)(*results)
    return Replay(seam.name, body["different"], results[0], results[1], what)
