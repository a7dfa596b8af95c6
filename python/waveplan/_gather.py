"""Rows from whatever holds token ids: lists, arrays, Arrow, torch. Imports none of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan._blocks import blocks
from waveplan._values import MOST_ABSENT, present
from waveplan.errors import InputError
from waveplan.rows import Rows, concatenate, integers

__all__ = ["row_from", "rows_from"]

WANTED = "give a list of rows of token ids, a 2-D array, or Rows(tokens, offsets)"


def rows_from(rows: Any) -> Rows:
    """Rows from a value of many forms, see `Rows.from_any`."""
    if _is_arrow(rows):
        return rows_from_arrow(rows, "rows")
    if _is_torch(rows):
        rows = _from_torch(rows, "rows")
    if isinstance(rows, np.ndarray) and rows.dtype != object:
        return _from_matrix(rows)
    if isinstance(rows, str | bytes | dict) or not isinstance(rows, Iterable):
        raise InputError(f"rows is a {type(rows).__name__}: {WANTED}")
    return concatenate(row_from(row, f"row {i}") for i, row in enumerate(rows))


def row_from(row: Any, name: str) -> NDArray[np.int64]:
    """One row as an int64 array."""
    if isinstance(row, list | tuple):
        kinds: set[type] = set()
        for part in blocks(len(row)):
            kinds.update(map(type, row[part]))
        if bool in kinds:
            at = next(i for i, token in enumerate(row) if isinstance(token, bool))
            raise InputError(f"{name}[{at}] is {row[at]}: give integers")
    elif _is_torch(row):
        row = _from_torch(row, name)
    elif _is_arrow(row):
        row = _arrow_values(row, name)
    elif hasattr(row, "as_py"):
        return row_from(row.as_py(), name)
    elif isinstance(row, str | bytes | dict) or not isinstance(row, Iterable):
        raise InputError(f"{name} is a {type(row).__name__}: {WANTED}")
    elif not hasattr(row, "__array__") and not hasattr(row, "__len__"):
        row = list(row)
    return integers(name, row)


def _from_matrix(rows: NDArray[Any]) -> Rows:
    if rows.ndim != 2:
        raise InputError(f"rows has shape {rows.shape}: {WANTED}")
    count, length = rows.shape
    present("rows", rows)
    if not length and count > MOST_ABSENT:
        raise InputError(f"rows has shape {rows.shape}: at most {MOST_ABSENT} rows may be empty")
    tokens = integers("rows", rows.reshape(-1))
    return Rows(tokens, np.arange(count + 1, dtype=np.int64) * length)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _from_torch(tensor: Any, name: str) -> NDArray[Any]:
    device = getattr(tensor.device, "type", "cpu")
    if device != "cpu":
        raise InputError(f"{name} is on device {device}: move it to the CPU first")
    if getattr(tensor, "is_nested", False):
        raise InputError(f"{name} is a nested tensor: give a list of tensors")
    try:
        array = tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{name} is not a tensor of integers: {reason}") from None
    return np.asarray(array)


def _is_arrow(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "null_count")


def rows_from_arrow(array: Any, name: str) -> Rows:
    """Rows from an Arrow array of lists (list, large_list, fixed_size_list), chunked or not."""
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
        if hasattr(array, "num_chunks"):  # older versions keep an empty chunked array
            array = array.chunk(0) if array.num_chunks else None
    if array is None or (len(array) == 0 and not hasattr(array, "flatten")):
        return concatenate([])
    kind = str(array.type)
    # Views of lists may overlap, so that few bytes would stand for many tokens.
    known = kind.startswith(("list", "large_list", "fixed_size_list")) and "_view" not in kind
    if array.null_count and known:
        at = int(np.argmax(np.asarray(array.is_null())))
        raise InputError(f"{name}: row {at} is null: give a list of token ids")
    if not known:
        raise InputError(f"{name} has the Arrow type {kind}: give lists of integers")
    lengths = np.asarray(array.value_lengths(), dtype=np.int64)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    values = array.flatten()
    if values.null_count:
        at = int(np.argmax(np.asarray(values.is_null())))
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        raise InputError(f"{name}: row {row} holds a null at position {at - offsets[row]}")
    return Rows(_arrow_values(values, name), offsets)


def _arrow_values(values: Any, name: str) -> NDArray[np.int64]:
    """A flat Arrow array of integers, without a copy if it is int64."""
    if values.null_count:
        at = int(np.argmax(np.asarray(values.is_null())))
        raise InputError(f"{name}[{at}] is null: give integers")
    if not str(values.type).startswith(("int", "uint")):
        raise InputError(f"{name} holds Arrow values of type {values.type}: give integers")
    return integers(name, values.to_numpy(zero_copy_only=False))
