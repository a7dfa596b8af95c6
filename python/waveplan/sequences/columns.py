"""Token ids from lists, arrays, Arrow and torch; imports none of these libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import integers
from waveplan.errors import InputError

__all__ = [
    "Lists",
    "arrow_integers",
    "arrow_lists",
    "check",
    "interleave",
    "is_arrow",
    "join",
    "join_arrays",
    "length_offsets",
    "lists",
    "place",
    "unbound",
]

Int64 = NDArray[np.int64]
Lists: TypeAlias = tuple[Int64, Int64]
"""Tokens of n sequences [T], and where each begins and the last ends [n + 1]."""

_EMPTY = np.empty(0, np.int64)
WANTED = "give a list of sequences of token ids, a 2-D array, or Sequences(tokens, offsets)"


def lists(value: Any) -> Lists:
    """Return the sequences of a value of many forms, see `Sequences.from_any`.

    Raises:
        InputError: another form; the message names the sequence.
    """
    value = unbound(value)
    if is_arrow(value):
        return arrow_lists("sequences", value)
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise InputError(f"sequences is a {type(value).__name__}: {WANTED}")
    if hasattr(value, "__array__"):
        try:
            value = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor on a GPU
            raise InputError(f"sequences cannot be read: {error}") from None
        if value.dtype != object:
            return _matrix(value)
    joined = join_arrays(value, "iu") if isinstance(value, list | tuple) else None
    if joined is not None:
        return integers("sequences", joined[0]), joined[1]
    return join([_one(f"sequence {i}", sequence) for i, sequence in enumerate(value)])


def _one(name: str, sequence: Any) -> Int64:
    """Return one sequence as an array."""
    if is_arrow(sequence):
        return arrow_integers(name, sequence)
    if hasattr(sequence, "as_py"):  # an entry of an Arrow array
        sequence = sequence.as_py()
    listed = isinstance(sequence, Iterable) or hasattr(sequence, "__array__")
    if isinstance(sequence, str | bytes | dict) or not listed:
        raise InputError(f"{name} is a {type(sequence).__name__}: {WANTED}")
    if not hasattr(sequence, "__array__") and not hasattr(sequence, "__len__"):
        sequence = list(sequence)
    return integers(name, sequence)


def _matrix(array: NDArray[Any]) -> Lists:
    if array.ndim != 2:
        raise InputError(f"sequences has shape {array.shape}: {WANTED}")
    count, length = array.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    return integers("sequences", array.reshape(-1)), offsets


def join(parts: Sequence[Int64]) -> Lists:
    """Join sequences, given as one array each."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate([_EMPTY, *parts]), offsets


def length_offsets(rows: Sequence[Any], size: Callable[[Any], int] = len) -> Int64:
    """Return where each of some lists begins and the last ends, [n + 1]."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(size, rows), np.int64, len(rows)), out=offsets[1:])
    return offsets


def join_arrays(rows: Sequence[Any], kinds: str) -> tuple[NDArray[Any], Int64] | None:
    """Join arrays, or tensors of torch, in one call, if they are of one type whose numpy kind is
    one of ``kinds``; None if they must be looked at one by one."""
    classes = set(map(type, rows))
    if len(classes) != 1:
        return None
    kind: Any = classes.pop()
    concatenate: Any = np.concatenate if kind is np.ndarray else None
    size: Any = len
    if kind.__module__.partition(".")[0] == "torch":
        # A tensor's own length takes longer than all the rest.
        concatenate, size = getattr(sys.modules.get("torch"), "cat", None), kind.numel
    if concatenate is None:
        return None
    try:
        if len(set(map(attrgetter("dtype"), rows))) != 1:
            return None
        whole = np.asarray(concatenate(rows))
        found = whole.dtype.kind in kinds and whole.ndim == 1
        return (whole, length_offsets(rows, size)) if found else None
    except (TypeError, ValueError, RuntimeError):  # on a GPU, for example
        return None


def unbound(value: Any) -> Any:
    """Return the tensors of a nested tensor of torch; anything else as it is."""
    return list(value.unbind()) if getattr(value, "is_nested", False) is True else value


def interleave(first: Lists, second: Lists) -> Lists:
    """Join each sequence of one with the same sequence of the other."""
    offsets = first[1] + second[1]
    tokens = np.empty(int(offsets[-1]), np.int64)
    for (values, own), shift in ((first, second[1][:-1]), (second, first[1][1:])):
        tokens[np.arange(len(values)) + np.repeat(shift, np.diff(own))] = values
    return tokens, offsets


def is_arrow(value: Any) -> bool:
    """Whether a value is an array of Arrow, chunked or not."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "null_count")


def arrow_lists(name: str, array: Any) -> Lists:
    """Return the sequences of an Arrow array of lists of integers, chunked or not.

    Raises:
        InputError: another type, or a null; the message names the sequence.
    """
    from pyarrow import types

    kind = array.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        raise InputError(f"{name} has the Arrow type {kind}: give lists of integers")
    if array.null_count:
        at = _first_null(array)
        raise InputError(f"{name}: sequence {at} is null: give a list of token ids")
    chunks = array.chunks if hasattr(array, "chunks") else [array]
    lengths = [np.asarray(chunk.value_lengths(), np.int64) for chunk in chunks]
    offsets = np.append(0, np.cumsum(np.concatenate([_EMPTY, *lengths])))
    parts, start = [], 0
    for chunk in chunks:
        values = chunk.flatten()
        if values.null_count:
            sequence, at = place(offsets, start + _first_null(values))
            raise InputError(f"{name}: sequence {sequence} holds a null at position {at}")
        parts.append(arrow_integers(name, values))
        start += len(values)
    return parts[0] if len(parts) == 1 else np.concatenate([_EMPTY, *parts]), offsets


def arrow_integers(name: str, values: Any) -> Int64:
    """Return a flat Arrow array of integers, without a copy if it is one chunk of int64."""
    from pyarrow import types

    if not types.is_integer(values.type):
        raise InputError(f"{name} holds Arrow values of type {values.type}: give integers")
    if values.null_count:
        raise InputError(f"{name}[{_first_null(values)}] is null: give integers")
    return integers(name, values.to_numpy())


def _first_null(array: Any) -> int:
    return int(np.argmax(np.asarray(array.is_null())))


def place(offsets: Int64, at: int) -> tuple[int, int]:
    """Return the sequence of a token, and its position in there."""
    sequence = int(np.searchsorted(offsets, at, side="right")) - 1
    return sequence, at - int(offsets[sequence])


def check(tokens: Int64, offsets: Int64, columns: Mapping[str, Int64]) -> None:
    """Refuse offsets that do not fit the tokens, and columns of another length.

    Raises:
        InputError: names the first offset, or the column.
    """
    if not len(offsets):
        raise InputError("offsets is empty: give n + 1 offsets for n sequences, starting at 0")
    if offsets[0] != 0:
        raise InputError(f"offsets[0] is {offsets[0]}: it must be 0")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0]) + 1
        raise InputError(
            f"offsets[{at}] is {offsets[at]} after {offsets[at - 1]}: offsets must not fall"
        )
    if offsets[-1] != len(tokens):
        raise InputError(
            f"offsets end at {offsets[-1]}, but there are {len(tokens)} tokens: they must be equal"
        )
    for name, values in columns.items():
        if len(values) != len(offsets) - 1:
            raise InputError(
                f"{name} has {len(values)} entries for {len(offsets) - 1} sequences: give one each"
            )
