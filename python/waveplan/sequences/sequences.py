"""Token sequences, and other lists of different lengths, as two flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waveplan.checks import integers, mapping, text
from waveplan.errors import InputError
from waveplan.sequences.columns import check, join, lists

__all__ = ["Ragged", "Sequences", "integers"]

Int64 = NDArray[np.int64]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view."""
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
class Sequences:
    """Token ids of n sequences, T in all: sequence `i` is `tokens[offsets[i]:offsets[i + 1]]`.

    A contiguous int64 array is viewed, not copied; other integers are converted once. Any int64
    is taken as an id here; files with a negative one are refused.

    Attributes:
        tokens: [T] int64, read-only view.
        offsets: [n + 1] int64, from 0 to T, never falling.
        columns: further columns with one entry a sequence, such as ``first_target`` and ``group``.

    Raises:
        InputError: an array is not one-dimensional integers, or the offsets do not fit the tokens.
    """

    tokens: Int64
    offsets: Int64
    columns: Mapping[str, Int64] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tokens, offsets = integers("tokens", self.tokens), integers("offsets", self.offsets)
        given = mapping("columns", self.columns)
        columns = {text("a column's name", key): integers(key, given[key]) for key in given}
        check(tokens, offsets, columns)
        object.__setattr__(self, "tokens", _frozen(tokens))
        # Copied: what was checked must stay true whatever the caller does to the array.
        object.__setattr__(self, "offsets", _frozen(offsets.copy()))
        frozen = {name: _frozen(values) for name, values in columns.items()}
        object.__setattr__(self, "columns", MappingProxyType(frozen))

    @classmethod
    def from_any(cls, sequences: object) -> Sequences:
        """Return sequences of lists or arrays, a 2-D array, Arrow lists or torch CPU tensors.

        A `Sequences` comes back as it is.

        Raises:
            InputError: something else; the message names the sequence.
        """
        return sequences if isinstance(sequences, Sequences) else Sequences(*lists(sequences))

    @classmethod
    def load(cls, path: str | Path) -> Sequences:
        """Read sequences from a file, by its suffix; ``"-"`` reads JSON lines from stdin.

        - ``.npz``: arrays ``tokens`` and ``offsets``; ``first_target`` and ``group``, one integer
          a sequence, become columns. ``.npy``: a 2-D array of ids.
        - ``.jsonl``: an object a line with ``input_ids``, or ``tokens``, or ``prompt_ids`` and
          ``completion_ids`` (then the column ``first_target`` is the prompt's length);
          ``first_target`` and ``group`` become columns.
        - ``.parquet``, ``.arrow``: columns of these names. Needs pyarrow.

        Raises:
            InputError: the file is missing, damaged or of another form; names the file and line.
        """
        from waveplan.sequences.files import read

        return read(path, cls)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int64:
        at = range(len(self))[index]
        return self.tokens[self.offsets[at] : self.offsets[at + 1]]

    @property
    def lengths(self) -> Int64:
        """Tokens of each sequence, [n]."""
        return np.diff(self.offsets)

    def take(self, indices: ArrayLike) -> Self:
        """Copy some of the sequences, in the order given; negative indices count from the end."""
        picked = integers("indices", indices)
        wrong = np.flatnonzero((picked < -len(self)) | (picked >= len(self)))
        if wrong.size:
            raise InputError(
                f"indices[{wrong[0]}] is {picked[wrong[0]]}: there are {len(self)} sequences"
            )
        tokens, offsets = join([self[int(i)] for i in picked])
        columns = {name: values[picked] for name, values in self.columns.items()}
        return type(self)(tokens, offsets, columns)

    def __repr__(self) -> str:
        return f"Sequences({len(self):,} sequences, {len(self.tokens):,} tokens)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tokens, self.offsets, dict(self.columns))
