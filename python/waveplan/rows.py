"""Ragged token rows: what every plan starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waveplan._blocks import BLOCK, blocks, first_negative, int64, listed
from waveplan._values import countable, mapping, present, text
from waveplan.errors import InputError

__all__ = ["Ragged", "Rows", "integers"]

Int64 = NDArray[np.int64]


def integers(name: str, values: ArrayLike) -> Int64:
    """`values` as a one-dimensional, contiguous, aligned, native int64 array.

    An array that is one already comes back as it is, without a copy; other integers are
    converted once.

    Raises:
        InputError: not integers (floats, bools, objects), another rank, or a value past 2^63 - 1.
    """
    if type(values) is np.ndarray and values.ndim == 1 and values.dtype == np.int64:
        flags = values.flags
        if flags.c_contiguous and flags.aligned:
            return values
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: give a plain array of integers")
    countable(name, values)
    at = 0
    try:
        if isinstance(values, list | tuple):
            array, at = listed(values)
        else:
            array = np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name} is not an array of integers: {error}") from None
    except MemoryError:
        raise InputError(f"{name} has more entries than fit in memory") from None
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: give one dimension")
    present(name, array)
    if array.size == 0 and not isinstance(values, np.ndarray):
        return np.empty(0, np.int64)  # an empty list says nothing about its type
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size:
        worst = int(array.argmax())
        if int(array[worst]) >= 1 << 63:
            raise InputError(f"{name}[{worst}] is {array[worst]}: it must be below 2**63")
    if array.dtype.kind not in "iu":
        if not isinstance(values, np.ndarray):
            some = values[at : at + len(array)] if isinstance(values, list | tuple) else values
            raise InputError(f"{_first_wrong(name, some, at)}: give integers below 2**63")
        raise InputError(f"{name} has dtype {array.dtype}: give integers")
    try:
        return int64(array)
    except MemoryError:
        raise InputError(f"{name} has {len(array)} entries: more than fit in memory") from None


def _first_wrong(name: str, values: ArrayLike, start: int = 0) -> str:
    """Names the first element that is no 64-bit integer; they are numbered from `start`."""
    for index, value in enumerate(np.array(values, object).tolist(), start):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not -(1 << 63) <= value < 1 << 63:
            return f"{name}[{index}] is {_short(value)}"
    return f"{name} has mixed types"


def _short(value: object) -> str:
    text = repr(value).partition("\n")[0]
    return text if len(text) <= 40 else f"{text[:37]}..."


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ragged:
    """Lists of integers of different lengths: list `i` is `values[offsets[i]:offsets[i + 1]]`."""

    values: Int64
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int64:
        at = range(len(self))[index]
        return self.values[self.offsets[at] : self.offsets[at + 1]]

    @property
    def lengths(self) -> Int64:
        """Length of each list, [n]."""
        return np.diff(self.offsets)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} lists, {len(self.values)} values)"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """Token ids of n requests, T in all: row `i` is `tokens[offsets[i]:offsets[i + 1]]`.

    A contiguous int64 array is viewed, not copied; other integers are converted once. Any int64
    is taken as an id here; `check_tokens` refuses negative ones.

    Attributes:
        tokens: [T] int64, read-only view.
        offsets: [n + 1] int64, from 0 to T, never falling.
        columns: further columns with one entry a row, such as ``first_target`` and ``group``.

    Raises:
        InputError: an array is not one-dimensional integers, or the offsets do not fit the tokens.
    """

    tokens: Int64
    offsets: Int64
    columns: Mapping[str, Int64] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tokens, offsets = integers("tokens", self.tokens), integers("offsets", self.offsets)
        _check_offsets(offsets, len(tokens))
        given = mapping("columns", self.columns)
        columns = {text("a column's name", key): integers(key, given[key]) for key in given}
        for name, values in columns.items():
            if len(values) != len(offsets) - 1:
                raise InputError(
                    f"{name} has {len(values)} entries for {len(offsets) - 1} rows: give one each"
                )
        object.__setattr__(self, "tokens", _frozen(tokens))
        # Copied: what was checked must stay true whatever the caller does to the array.
        object.__setattr__(self, "offsets", _frozen(offsets.copy()))
        frozen = {name: _frozen(values) for name, values in columns.items()}
        object.__setattr__(self, "columns", MappingProxyType(frozen))

    @classmethod
    def from_any(cls, rows: object) -> Rows:
        """Rows from lists or arrays of ids, a 2-D array, an Arrow list array, or torch CPU tensors.

        A `Rows` comes back as it is.

        Raises:
            InputError: something else; the message names the row.
        """
        from waveplan import _gather

        return rows if isinstance(rows, Rows) else _gather.rows_from(rows)

    @classmethod
    def load(cls, path: str | Path) -> Rows:
        """Rows of a file: .npz, .jsonl, .parquet or .arrow; ``"-"`` reads JSON lines from stdin.

        - ``.npz``: arrays ``tokens`` and ``offsets``; further arrays with one integer a row
          become columns.
        - ``.jsonl``: an object a line with ``input_ids``, or ``tokens``, or ``prompt_ids`` and
          ``completion_ids`` (then the column ``first_target`` is the prompt's length);
          ``first_target`` and ``group`` become columns.
        - ``.parquet``, ``.arrow``: columns of these names. Needs pyarrow.

        Raises:
            InputError: the file is missing, damaged or of another form; names the file and line.
        """
        from waveplan import _loading

        return _loading.load(path)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int64:
        at = range(len(self))[index]
        return self.tokens[self.offsets[at] : self.offsets[at + 1]]

    @property
    def lengths(self) -> Int64:
        """Tokens of each row, [n]."""
        return np.diff(self.offsets)

    def take(self, indices: ArrayLike) -> Self:
        """A copy of some of the rows, in the order given; negative indices count from the end."""
        picked = integers("indices", indices)
        wrong = np.flatnonzero((picked < -len(self)) | (picked >= len(self)))
        if wrong.size:
            raise InputError(
                f"indices[{wrong[0]}] is {picked[wrong[0]]}: there are {len(self)} rows"
            )
        offsets = np.zeros(len(picked) + 1, np.int64)
        np.cumsum(self.lengths[picked], out=offsets[1:])
        parts = [self[int(i)] for i in picked]
        tokens = _joined("the rows taken", parts, offsets)
        columns = {name: values[picked] for name, values in self.columns.items()}
        return type(self)(tokens, offsets, columns)

    def check_tokens(self) -> Self:
        """Returns itself if no token id is negative.

        Raises:
            InputError: names the first row and position with a negative id.
        """
        at = first_negative(self.tokens)
        if at is not None:
            row = int(np.searchsorted(self.offsets, at, side="right")) - 1
            raise InputError(
                f"row {row} has token {self.tokens[at]} at position {at - self.offsets[row]}: "
                "token ids are at least 0"
            )
        return self

    def __repr__(self) -> str:
        return f"Rows({len(self):,} rows, {len(self.tokens):,} tokens)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tokens, self.offsets, dict(self.columns))


def _check_offsets(offsets: Int64, tokens: int) -> None:
    if not len(offsets):
        raise InputError("offsets is empty: give n + 1 offsets for n rows, starting at 0")
    if offsets[0] != 0:
        raise InputError(f"offsets[0] is {offsets[0]}: it must be 0")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0]) + 1
        raise InputError(
            f"offsets[{at}] is {offsets[at]} after {offsets[at - 1]}: offsets must not fall"
        )
    if offsets[-1] != tokens:
        raise InputError(
            f"offsets end at {offsets[-1]}, but there are {tokens} tokens: they must be equal"
        )


def _joined(name: str, parts: list[Int64], offsets: Int64) -> Int64:
    """The parts one after another, in blocks."""
    try:
        tokens = np.empty(int(offsets[-1]), np.int64)
    except MemoryError:
        raise InputError(f"{name} have {offsets[-1]} tokens: more than fit in memory") from None
    at = 0
    while at < len(parts):
        # As many as make a block, but at least one.
        most = int(np.searchsorted(offsets, offsets[at] + BLOCK, side="right")) - 1
        end = min(max(most, at + 1), at + 4096)
        into = tokens[offsets[at] : offsets[end]]
        if end == at + 1:
            for part in blocks(len(into)):
                into[part] = parts[at][part]
        else:
            np.concatenate(parts[at:end], out=into)
        at = end
    return tokens


def concatenate(parts: Iterable[Int64], columns: Mapping[str, ArrayLike] | None = None) -> Rows:
    """Rows from one int64 array each."""
    kept = list(parts)
    offsets = np.zeros(len(kept) + 1, np.int64)
    if kept:
        np.cumsum([len(part) for part in kept], out=offsets[1:])
    tokens = _joined("the rows", kept, offsets)
    return Rows(tokens, offsets, dict(columns or {}))  # type: ignore[arg-type]
