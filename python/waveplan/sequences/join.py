"""Parts of files put together: sequences with labels, columns and the place that each came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan.errors import InputError
from waveplan.sequences.reader import Found

__all__ = ["Joined", "Origin"]

Int64 = NDArray[np.int64]

_EMPTY = np.empty(0, np.int64)
_LARGE = 1 << 23
"""Tokens of an array that the system gets back as soon as it is let go."""


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where n sequences were read, and how.

    Attributes:
        files: names of the files. file: index of each sequence's file, [n]. row: its line, counted
            from 1, or its row, counted from 0, [n]. units: "line" or "row", one a file.
        pads: pad tokens dropped. used: what each column was read as. unused: columns not read.
        odd: remarks, one line each.
    """

    files: tuple[str, ...]
    file: NDArray[np.int32]
    row: Int64
    units: tuple[str, ...]
    pads: int = 0
    used: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()

    def place(self, sequence: int) -> str:
        """Name the place of a sequence, such as ``rollouts.jsonl: line 3``."""
        file = int(self.file[sequence])
        return f"{self.files[file]}: {self.units[file]} {self.row[sequence]}"

    def take(self, picked: Int64) -> Origin:
        """Return the origin of some of the sequences."""
        return Origin(
            self.files,
            self.file[picked],
            self.row[picked],
            self.units,
            self.pads,
            self.used,
            self.unused,
            self.odd,
        )


class Joined:
    """Parts, one after another.

    Attributes, once it has ended: ``tokens`` [T], ``offsets`` [n + 1], ``labelled`` [T] or None,
    ``columns`` of one integer a sequence, ``origin``.
    """

    tokens: Int64
    offsets: Int64
    labelled: NDArray[np.bool_] | None
    columns: dict[str, Int64]
    origin: Origin

    def __init__(self) -> None:
        self._files: list[str] = []
        self._units: list[str] = []
        self._counts: list[int] = []
        self._parts: list[Found] = []
        self._chunks: list[Int64] = []
        self._whole = self._loose = 0
        self._used: dict[str, str] = {}
        self._seen: dict[str, None] = {}
        self._odd: dict[str, None] = {}
        self._first: dict[str, str] = {}
        """Which kinds of columns the first part has, and where it was."""

    def begin(self, name: str) -> None:
        """Begin a file."""
        self._files.append(name)
        self._units.append("row")
        self._counts.append(0)

    def add(self, part: Found) -> None:
        """Add a part.

        Raises:
            InputError: it has labels or groups and those before have not, or the reverse.
        """
        self._seen |= dict.fromkeys(part.names)
        self._used |= part.used
        self._odd |= dict.fromkeys(part.odd)
        if not len(part.rows):
            return
        self._units[-1] = part.unit
        has = {"labels": part.labelled is not None or "first_target" in part.columns}
        has["group"] = "group" in part.columns
        if not self._parts:
            self._first = {name: self._files[-1] for name in has if has[name]}
        where = f"{part.unit} {part.rows[0]}: "
        for name, given in has.items():
            if given != (name in self._first):
                words = _names(part, self._parts[0], name)
                state = "was missing before" if given else "is missing here"
                other = self._files[0] if len(self._files) > 1 else ""
                raise InputError(
                    f"{where}{words} {state}{f', unlike {other}' if other else ''}: give it on "
                    f"every line or on none, or leave it out: --column {words}="
                )
        self._chunks.append(part.tokens)
        part.tokens = _EMPTY
        self._loose += len(self._chunks[-1])
        if self._loose >= _LARGE:
            # Joined early, as a reader's buffers are larger than what they hold, and small arrays
            # are not given back to the system when they are let go.
            small = [self._chunks.pop() for _ in range(len(self._chunks) - self._whole)]
            self._chunks.append(np.concatenate(small[::-1]))
            self._whole, self._loose = len(self._chunks), 0
        self._parts.append(part)
        self._counts[-1] += len(part.rows)

    def end(self, pad: int | None = None) -> Joined:
        """Put the parts together; with ``pad`` drop runs of that id at both ends of each."""
        parts = self._parts
        self.labelled = _labels(parts)
        columns: dict[str, Int64] = {}
        if parts and self.labelled is None and all("first_target" in p.columns for p in parts):
            columns["first_target"] = np.concatenate(
                [np.asarray(part.columns["first_target"], np.int64) for part in parts]
            )
        if parts and "group" in parts[0].columns:
            columns["group"] = _numbered([part.columns["group"] for part in parts])
        lengths = [np.diff(part.offsets) for part in parts]
        rows = [part.rows for part in parts]
        pads = sum(part.pads for part in parts)
        self.offsets = np.zeros(sum(map(len, lengths)) + 1, np.int64)
        if lengths:
            np.cumsum(np.concatenate(lengths), out=self.offsets[1:])
        if len(self._chunks) == 1:
            self.tokens = self._chunks[0]
        else:  # filled chunk by chunk, each of which is let go
            self.tokens = np.empty(int(self.offsets[-1]), np.int64)
            at = 0
            self._chunks.reverse()
            while self._chunks:
                chunk = self._chunks.pop()
                self.tokens[at : at + len(chunk)] = chunk
                at += len(chunk)
        self.columns = columns
        if pad is not None:
            pads += self._strip(pad)
        file = np.repeat(np.arange(len(self._files), dtype=np.int32), self._counts)
        row = np.concatenate([np.empty(0, np.int64), *rows])
        unused = tuple(name for name in self._seen if name not in self._used)
        self.origin = Origin(
            tuple(self._files),
            file,
            row,
            tuple(self._units),
            pads,
            self._used,
            unused,
            tuple(self._odd),
        )
        self._parts = []
        return self

    def _strip(self, pad: int) -> int:
        """Drop runs of an id at both ends of each sequence; return how many tokens."""
        real = np.flatnonzero(self.tokens != pad)
        first = np.searchsorted(real, self.offsets[:-1])
        last = np.searchsorted(real, self.offsets[1:]) - 1
        some = first <= last
        keep = np.zeros(len(self.tokens) + 1, np.int64)
        np.add.at(keep, real[first[some]], 1)
        np.add.at(keep, real[last[some]] + 1, -1)
        kept = np.flatnonzero(np.cumsum(keep)[:-1])
        before = self.offsets
        lengths = np.zeros(len(before) - 1, np.int64)
        lengths[some] = real[last[some]] + 1 - real[first[some]]
        if "first_target" in self.columns:
            lead = (
                np.where(some, real[np.minimum(first, max(len(real) - 1, 0))] - before[:-1], 0)
                if (len(real))
                else np.zeros(len(lengths), np.int64)
            )
            target = self.columns["first_target"] - lead
            self.columns["first_target"] = np.clip(target, 0, lengths)
        dropped = len(self.tokens) - len(kept)
        self.tokens = self.tokens[kept]
        if self.labelled is not None:
            self.labelled = self.labelled[kept]
        self.offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
        return dropped


def _names(part: Found, first: Found, kind: str) -> str:
    """Name the column that one of two parts lacks."""
    found = [n for p in (part, first) for n, use in p.used.items() if use.startswith(kind)]
    return found[0] if found else kind


def _labels(parts: list[Found]) -> NDArray[np.bool_] | None:
    """Return one flag a token where a part has masks; boundaries alone stay a column."""
    if not any(part.labelled is not None for part in parts):
        return None
    made = []
    for part in parts:
        flags = part.labelled
        if flags is None:
            within = np.arange(int(part.offsets[-1])) - np.repeat(
                part.offsets[:-1], np.diff(part.offsets)
            )
            first = np.asarray(part.columns["first_target"], np.int64)
            flags = within >= np.repeat(first, np.diff(part.offsets))
        made.append(flags)
    return made[0] if len(made) == 1 else np.concatenate(made)


def _numbered(parts: list[Any]) -> Int64:
    """Return groups as integers: as they are, or counted by their first places."""
    if all(isinstance(part, np.ndarray) and part.dtype.kind in "iu" for part in parts):
        return np.concatenate(parts).astype(np.int64)
    numbers: dict[Any, int] = {}
    every = [
        value for part in parts for value in (part.tolist() if hasattr(part, "tolist") else part)
    ]
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in every):
        return np.array(every, np.int64)
    return np.array([numbers.setdefault(value, len(numbers)) for value in every], np.int64)
