"""Token sequences, and other lists of different lengths, as two flat arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waveplan.checks import integers, mapping, text
from waveplan.errors import InputError
from waveplan.sequences.columns import check, lists
from waveplan.sequences.tables import table_of

if TYPE_CHECKING:
    from waveplan.sequences.join import Joined, Origin

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
        labelled: [T] bool, which tokens are trained on; None where nothing tells, or where
            ``first_target`` does.
        origin: the file and line of each sequence, and how its columns were read; None for arrays.

    Raises:
        InputError: an array is not one-dimensional integers, or the offsets do not fit the tokens.
    """

    tokens: Int64
    offsets: Int64
    columns: Mapping[str, Int64] = field(default_factory=dict)
    labelled: NDArray[np.bool_] | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        tokens, offsets = integers("tokens", self.tokens), integers("offsets", self.offsets)
        given = mapping("columns", self.columns)
        columns = {text("a column's name", key): integers(key, given[key]) for key in given}
        check(tokens, offsets, columns)
        if self.labelled is not None:
            flags = np.asarray(self.labelled)
            if flags.dtype != np.bool_ or flags.shape != tokens.shape:
                raise InputError(
                    f"labelled is {flags.dtype} of shape {flags.shape}: give one boolean for each "
                    f"of the {len(tokens)} tokens"
                )
            object.__setattr__(self, "labelled", _frozen(flags))
        object.__setattr__(self, "tokens", _frozen(tokens))
        # Copied: what was checked must stay true whatever the caller does to the array.
        object.__setattr__(self, "offsets", _frozen(offsets.copy()))
        frozen = {name: _frozen(values) for name, values in columns.items()}
        object.__setattr__(self, "columns", MappingProxyType(frozen))

    @classmethod
    def from_any(
        cls,
        sequences: object,
        attention_mask: object = None,
        *,
        columns: Mapping[str, str] | None = None,
    ) -> Sequences:
        """Return sequences of what a trainer holds in memory.

        - lists or arrays of token ids, a 2-D array, Arrow lists, torch tensors on the CPU, one,
          nested or a list of them: every id is a token;
        - columns as in `load`, by name: a dict of arrays or tensors ([sequences, tokens] with an
          ``attention_mask``, for example), an Arrow table, a Hugging Face dataset, a data frame,
          dicts or objects with these attributes, in a list or one after another. ``columns``
          renames them.

        ``attention_mask`` is that of sequences given without names, [sequences, tokens].

        A `Sequences` comes back as it is.

        Raises:
            InputError: something else; the message names the sequence, or the row and the column.
        """
        if isinstance(sequences, Sequences):
            return sequences
        if attention_mask is not None:
            sequences = {"input_ids": sequences, "attention_mask": attention_mask}
        if isinstance(sequences, Iterable) and not hasattr(sequences, "__len__"):
            sequences = list(sequences)  # a generator, or a dataset that streams
        from waveplan.sequences.files import named
        from waveplan.sequences.formats import read_table
        from waveplan.sequences.join import Joined

        joined = Joined()
        with named("sequences"):
            table = table_of(sequences)
            if table is not None:
                joined.begin("sequences")
                joined.add(read_table(table, columns))
                return cls.of(joined.end())
        return Sequences(*lists(sequences))

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        columns: Mapping[str, str] | None = None,
        *,
        skip_empty: bool = False,
        pad: int | None = None,
    ) -> Sequences:
        """Read sequences from files, by their suffix; ``"-"`` reads JSON lines from stdin.

        - ``.jsonl``, ``.ndjson``, ``.json``: an object a sequence, one a line or in one list; also
          behind ``.gz``, ``.zst`` (needs pyarrow), ``.bz2``, ``.xz``.
        - ``.parquet``, ``.arrow``, ``.feather``: needs pyarrow.
        - ``.npz``: flat ``tokens`` and ``offsets``, or 2-D arrays; ``.npy``: a 2-D array of ids.
        - a folder: its files, or the shards of a saved dataset. Several names: one after another.

        Columns are known by the names that trainers give them: see docs/sequences.md. Pads are
        dropped where a mask or lengths say so, packed lines are cut, labels become ``labelled`` or
        the column ``first_target``, and whatever names a group the column ``group``.

        Args:
            columns: other names of columns, for example ``{"input_ids": "ids"}``; an empty name
                leaves a column out.
            skip_empty: leave out sequences without a token.
            pad: id of pads that no mask tells; runs of it at both ends of a sequence are dropped.

        Raises:
            InputError: a file is missing, damaged or of another form; names the file, the line or
                row, and the column.
        """
        from waveplan.sequences.files import read

        made = cls.of(read(path, columns, None, pad))
        return made.take(np.flatnonzero(made.lengths)) if skip_empty else made

    @classmethod
    def of(cls, joined: Joined) -> Sequences:
        """Return the sequences of files that were read."""
        origin = joined.origin
        return cls(joined.tokens, joined.offsets, joined.columns, joined.labelled, origin)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int64:
        at = range(len(self))[index]
        return self.tokens[self.offsets[at] : self.offsets[at + 1]]

    @property
    def lengths(self) -> Int64:
        """Tokens of each sequence, [n]."""
        return np.diff(self.offsets)

    def place(self, sequence: int) -> str:
        """Name where a sequence was read, such as ``rollouts.jsonl: line 3``."""
        return f"sequence {sequence}" if self.origin is None else self.origin.place(sequence)

    def take(self, indices: ArrayLike) -> Self:
        """Copy some of the sequences, in the order given; negative indices count from the end."""
        picked = integers("indices", indices)
        wrong = np.flatnonzero((picked < -len(self)) | (picked >= len(self)))
        if wrong.size:
            raise InputError(
                f"indices[{wrong[0]}] is {picked[wrong[0]]}: there are {len(self)} sequences"
            )
        picked = np.where(picked < 0, picked + len(self), picked)
        lengths = self.lengths[picked]
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[picked] - offsets[:-1], lengths)
        columns = {name: values[picked] for name, values in self.columns.items()}
        labelled = None if self.labelled is None else self.labelled[at]
        origin = None if self.origin is None else self.origin.take(picked)
        return type(self)(self.tokens[at], offsets, columns, labelled, origin)

    def __repr__(self) -> str:
        return f"Sequences({len(self):,} sequences, {len(self.tokens):,} tokens)"

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.tokens, self.offsets, dict(self.columns), self.labelled, self.origin)
        return type(self), given
