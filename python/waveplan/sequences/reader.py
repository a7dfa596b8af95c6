"""Tables read column by column: what was used, where something is wrong, and what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import shown
from waveplan.errors import InputError
from waveplan.sequences.columns import Lists
from waveplan.sequences.names import GIVEN
from waveplan.sequences.tables import Kind, Table, entry, ints, refuse

__all__ = [
    "Found",
    "Reader",
    "Renamed",
    "at_end",
    "at_start",
    "changes",
    "refuse_all",
    "seen",
    "sums",
    "within",
]

Int64 = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass
class Found:
    """What was understood of some rows: n sequences of T tokens, pads dropped.

    Attributes:
        tokens: [T]. offsets: [n + 1]. rows: row of each sequence, [n].
        labelled: [T], None where no column says which tokens are trained on.
        columns: one entry a sequence: ``first_target`` and ``group``, of any hashable values.
        pads: tokens dropped. used: what each column was read as. names: all columns seen.
        odd: remarks, one line each. unit: "row", or "line" of JSON lines.
    """

    tokens: Int64
    offsets: Int64
    rows: Int64
    labelled: Flags | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    pads: int = 0
    used: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    unit: str = "row"


class Renamed:
    """A table with some columns under other names; an empty name drops the column.

    Raises:
        InputError: a name that is not read, or a column that the table lacks.
    """

    def __init__(self, table: Table, columns: Mapping[str, str]) -> None:
        self.table = table
        self.theirs = {name: name for name in table.names}
        for ours, theirs in columns.items():
            if ours not in GIVEN:
                raise InputError(f"columns: {shown(ours)} is not read: {', '.join(GIVEN)}")
            if theirs and theirs not in table.names:
                raise InputError(f"has no column {theirs}: {seen(table)}")
        for ours, theirs in columns.items():
            self.theirs.pop(theirs, None)
            self.theirs.pop(ours, None)
        self.theirs |= {ours: theirs for ours, theirs in columns.items() if theirs}
        self.names, self.rows = list(self.theirs), table.rows
        self.place = table.place

    def kind(self, name: str) -> Kind:
        """Return the kind of a column."""
        return self.table.kind(self.theirs[name])

    def lists(self, name: str, *, integer: bool = False) -> Any:
        """Return the lists of numbers of a column."""
        return self.table.lists(self.theirs[name], integer=integer)

    def nested(self, name: str) -> Any:
        """Return the inner lists of a column of lists of lists."""
        return self.table.nested(self.theirs[name])

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        return self.table.values(self.theirs[name])

    def messages(self, name: str) -> Any:
        """Return the lists of objects of a column."""
        return self.table.messages(self.theirs[name])


def seen(table: Table) -> str:
    """List the columns of a table, and those that look like token ids."""
    names = table.names[:20]
    text = f"the columns are {', '.join(names)}" if names else "there are no columns"
    tokens = []
    for name in names:
        if table.kind(name) == "lists":
            numbers = table.lists(name)[0]
            if numbers.dtype.kind in "iu" and numbers.size and numbers.max() > 1:
                tokens.append(name)
    return text + (f"; {' and '.join(tokens)} may be token ids" if tokens else "")


def refuse_all(table: Table, text: str) -> NoReturn:
    """Refuse the columns: of lines, which differ, with the place of the first."""
    place = table.place(0) if table.rows else ""
    raise InputError(f"{place}: {text}" if place.startswith("line") else text)


class Reader:
    """Reads one table; remembers what each column was read as."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.used: dict[str, str] = {}
        self.odd: list[str] = []
        self.ids: Int64 = np.empty(0, np.int64)
        self.offsets: Int64 = np.zeros(1, np.int64)
        self.segments: Int64 | None = None
        """Number of the packed sequence of each token, where a mask counts them."""
        self.told: tuple[str, bool, Int64] | None = None
        """A column with the tokens, pads apart, of each row's prompt (True) or response."""
        self.prompts: Int64 | None = None
        """Tokens of each row before its response, pads among them."""
        self.responses: Int64 | None = None

    def has(self, name: str, kind: str) -> bool:
        """Whether there is a column of a kind."""
        return name in self.table.names and self.table.kind(name) == kind

    def find(self, names: Sequence[str], kind: str = "lists") -> str | None:
        """Return the first of some names that is a column of a kind."""
        return next((name for name in names if self.has(name, kind)), None)

    def find_number(self, names: Sequence[str]) -> str | None:
        """Return the first of some names that is a column of numbers, or of text to refuse."""
        return self.find(names, "value") or self.find(names, "text")

    def take(self, name: str, use: str) -> Lists:
        """Read a column of integers."""
        self.used[name] = use
        return ints(self.table, name)

    def integers(self, name: str, use: str) -> Int64:
        self.used[name] = use
        values = self.table.values(name)
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            return values.astype(np.int64)
        for row, value in enumerate(values):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not -(2**63) <= value < 2**63:
                refuse(self.table, row, f"{name} is {shown(value)}: give an integer")
        return np.asarray(values, np.int64)

    def same(self, name: str, offsets: Int64) -> None:
        """Refuse a mask whose rows are not as long as the ids."""
        wrong = np.flatnonzero(np.diff(offsets) != np.diff(self.offsets))
        if wrong.size:
            row = int(wrong[0])
            have, need = np.diff(offsets)[row], np.diff(self.offsets)[row]
            refuse(self.table, row, f"{name} has {have} entries for {need} tokens: give one each")

    def turns(self, name: str) -> Lists:
        """Join the turns of each row, a column of lists of lists."""
        self.used.setdefault(name, "token ids of the response")
        (values, inner), outer = self.table.nested(name)
        if values.dtype.kind not in "iub":
            raise InputError(f"{name} holds {values.dtype}: give lists of lists of integers")
        return values, inner[outer]

    def flags(self, name: str, numbers: Any = None, *, both: bool = False) -> Any:
        """Read a mask of 0 and 1."""
        if numbers is None:
            numbers = self.turns(name) if self.has(name, "nested") else self.table.lists(name)
        values, self._last = numbers
        if values.dtype.kind != "b":
            wrong = (values != 0) & (values != 1)
            if wrong.any():
                entry(self.table, name, numbers, int(np.argmax(wrong)), "a mask holds 0 and 1")
            values = values != 0
        return (values, self._last) if both else values


def sums(values: NDArray[Any]) -> Int64:
    """Return the sums of the first values, for every number of them."""
    made = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=made[1:])
    return made


def within(offsets: Int64) -> Int64:
    """Return the position of each token in its row."""
    return np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], np.diff(offsets))


def at_end(offsets: Int64, part: Int64) -> Int64:
    """Return where the last tokens of each row are, as many as its part has."""
    return np.arange(int(part[-1])) + np.repeat(offsets[1:] - part[1:], np.diff(part))


def at_start(offsets: Int64, part: Int64) -> Int64:
    """Return where the first tokens of each row are, as many as its part has."""
    return np.arange(int(part[-1])) + np.repeat(offsets[:-1] - part[:-1], np.diff(part))


def changes(values: Int64, offsets: Int64) -> Flags:
    marks = np.zeros(len(values), np.bool_)
    marks[1:] = values[1:] != values[:-1]
    marks[offsets[:-1][np.diff(offsets) > 0]] = False
    return marks
