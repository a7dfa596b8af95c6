"""Columns of rows as flat numpy arrays, whatever they come from: Arrow, JSON records, arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from struct import error, pack
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import first_line, integers, shown
from waveplan.errors import InputError
from waveplan.sequences.columns import Lists, is_arrow, join_arrays, length_offsets, unbound
from waveplan.sequences.names import POSITIONS, WHOLE

__all__ = [
    "ArrayTable",
    "ArrowTable",
    "FlatTable",
    "Kind",
    "Numbers",
    "RecordTable",
    "Table",
    "Unbatched",
    "Values",
    "entry",
    "ints",
    "refuse",
    "table_of",
]

Values: TypeAlias = NDArray[Any]
Numbers: TypeAlias = tuple[Values, NDArray[np.int64]]
"""Numbers of the lists of n rows, one row after another, and n + 1 offsets."""
Kind: TypeAlias = Literal["lists", "nested", "value", "text", "absent"]
"""A row holds a list of numbers, a list of lists or objects, one value, text or nothing."""


class Table(Protocol):
    """Columns of rows."""

    @property
    def names(self) -> list[str]:
        """Names of the columns, as they come."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def place(self, row: int) -> str:
        """Name a row, such as ``line 3``."""

    def kind(self, name: str) -> Kind:
        """Return the kind of a column."""

    def lists(self, name: str, *, integer: bool = False) -> Numbers:
        """Return the lists of numbers of a column, with ``integer`` of whole ones alone."""

    def nested(self, name: str) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the inner lists of a column of lists of lists, and where each row's begin."""

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""

    def messages(self, name: str) -> list[list[Mapping[str, Any]]]:
        """Return the lists of objects of a column."""


def refuse(table: Table, row: int, text: str) -> NoReturn:
    """Raise an error that begins with the row's place."""
    raise InputError(f"{table.place(row)}: {text}")


class RecordTable:
    """Objects of JSON, one a row."""

    def __init__(self, records: list[dict[str, Any]], place: Callable[[int], str]) -> None:
        self.records, self.place = records, place
        self.rows = len(records)
        self.names = list(dict.fromkeys(chain.from_iterable(records)))

    def _column(self, name: str) -> list[Any]:
        return [record.get(name) for record in self.records]

    def kind(self, name: str) -> Kind:
        """Return the kind of a column, by its first value that is one."""
        kind: Kind = "absent"
        for value in self._column(name):
            if isinstance(value, list):
                kind = "lists"
                if value:
                    return "nested" if isinstance(value[0], list | dict) else _of_entry(value[0])
            elif value is not None:
                return "text" if isinstance(value, str) else "value"
        return kind

    def lists(self, name: str, *, integer: bool = False) -> Numbers:
        """Return the lists of numbers of a column."""
        rows = self._column(name)
        odd = set(map(type, rows)) - {list}
        if odd:
            at = next(i for i, row in enumerate(rows) if type(row) in odd)
            kind = "null" if rows[at] is None else f"a {type(rows[at]).__name__}"
            refuse(self, at, f"{name} is {kind}: give a list of integers")
        return _numbers(self, name, rows, integer), length_offsets(rows)

    def nested(self, name: str) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the inner lists of a column of lists of lists."""
        rows = [row or [] for row in self._column(name)]
        inner = list(chain.from_iterable(rows))
        if all(type(part) is list and len(part) == 1 and type(part[0]) is list for part in inner):
            inner = [part[0] for part in inner]  # [axes, 1, tokens]
        for i, row in enumerate(rows if set(map(type, inner)) - {list} else ()):
            if set(map(type, row)) - {list}:
                refuse(self, i, f"{name} is {shown(row)}: give lists of integers")
        return (_numbers(self, name, inner), length_offsets(inner)), length_offsets(rows)

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        return self._column(name)

    def messages(self, name: str) -> list[list[Mapping[str, Any]]]:
        """Return the lists of objects of a column."""
        return [row or [] for row in self._column(name)]


def _of_entry(entry: Any) -> Kind:
    return "text" if isinstance(entry, str) else "lists"


def _packed(rows: list[list[Any]]) -> Values:
    """Join lists of integers; struct is twice as fast as what numpy and array do with a list."""
    data = b"".join([pack(f"{len(row)}q", *row) for row in rows])
    return np.frombuffer(data, np.int64)


def _numbers(table: Table, name: str, rows: list[list[Any]], integer: bool = False) -> Values:
    """Join lists of numbers of one type; of Python's objects at most a list is held twice."""
    try:
        if "mask" in name and not integer:
            return np.frombuffer(b"".join(map(bytes, rows)), np.uint8)
    except (TypeError, ValueError):  # no bytes
        pass
    try:
        packed = _packed(rows)
        # True and False are packed as 1 and 0, and that is no token id.
        if not integer or not packed.size or packed.min() > 1 or _whole(rows):
            return packed
    except error:
        pass
    kinds = set(map(type, chain.from_iterable(rows)))
    try:
        if kinds <= {int}:
            return _packed(rows)
        if kinds <= {bool} and not integer:
            return np.fromiter(chain.from_iterable(rows), np.bool_)
        if kinds <= {int, float} and not integer:
            return np.fromiter(chain.from_iterable(rows), np.float64)
    except (error, TypeError, OverflowError):
        pass
    for i, row in enumerate(rows):
        first = set(map(type, row))
        if first <= {int}:
            try:
                _packed([row])
                continue
            except error:
                pass
        elif not integer and (first <= {float, int} or first <= {bool}):
            continue
        wrong = next(
            j
            for j, entry in enumerate(row)
            if type(entry) is not int or not -(2**63) <= entry < 2**63
        )
        refuse(table, i, f"{name}[{wrong}] is {shown(row[wrong])}: give integers below 2**63")
    raise InputError(f"{name} has mixed types: give integers")


def _whole(rows: list[list[Any]]) -> bool:
    """Whether every entry is an integer."""
    small = [row for row in rows if True in row or False in row]
    return set(map(type, chain.from_iterable(small))) <= {int}


class ArrowTable:
    """A table of Arrow."""

    def __init__(self, table: Any, place: Callable[[int], str]) -> None:
        self.table, self.place = table, place
        self.rows = table.num_rows
        self.names = list(table.schema.names)

    def kind(self, name: str) -> Kind:
        """Return the kind of a column, by its type."""
        from pyarrow import types

        kind = self.table.schema.field(name).type
        if types.is_null(kind):
            return "absent"
        if _is_list(kind):
            inner = kind.value_type
            if _is_list(inner) or types.is_struct(inner) or types.is_map(inner):
                return "nested"
            return "text" if types.is_string(inner) or types.is_large_string(inner) else "lists"
        return "text" if types.is_string(kind) or types.is_large_string(kind) else "value"

    def _lists(self, name: str, column: Any) -> tuple[Any, NDArray[np.int64]]:
        """Return the flat entries of a column of lists, as Arrow, and offsets."""
        if not _is_list(column.type):
            raise InputError(f"{name} has the Arrow type {column.type}: give lists of integers")
        if column.null_count:
            at = int(np.argmax(np.asarray(column.is_null())))
            refuse(self, at, f"{name} is null: give a list of integers")
        chunks = column.chunks if hasattr(column, "chunks") else [column]
        if len(chunks) == 1:
            chunk = chunks[0]
        else:
            import pyarrow

            chunk = pyarrow.concat_arrays(chunks) if chunks else pyarrow.array([], column.type)
        lengths = np.asarray(chunk.value_lengths(), np.int64)
        return chunk.flatten(), np.append(0, np.cumsum(lengths)).astype(np.int64)

    def lists(self, name: str, *, integer: bool = False) -> Numbers:  # noqa: ARG002
        """Return the lists of numbers of a column, without a copy of one chunk of int64."""
        flat, offsets = self._lists(name, self.table[name])
        return self._flat(name, flat, offsets), offsets

    def _flat(self, name: str, flat: Any, offsets: NDArray[np.int64]) -> Values:
        from pyarrow import types

        if flat.null_count:
            at = int(np.argmax(np.asarray(flat.is_null())))
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            refuse(self, row, f"{name}[{at - int(offsets[row])}] is null: give integers")
        kind = flat.type
        if types.is_null(kind):
            return np.empty(0, np.int64)
        if not (types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind)):
            raise InputError(f"{name} has the Arrow type list<{kind}>: give lists of integers")
        return np.asarray(flat.to_numpy(zero_copy_only=False))

    def nested(self, name: str) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the inner lists of a column of lists of lists."""
        inner, outer = self._lists(name, self.table[name])
        flat, offsets = self._lists(name, inner)
        return (self._flat(name, flat, offsets), offsets), outer

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        from pyarrow import types

        column = self.table[name]
        if types.is_integer(column.type) and not column.null_count:
            made: Sequence[Any] = column.to_numpy()
            return made
        found: Sequence[Any] = column.to_pylist()
        return found

    def messages(self, name: str) -> list[list[Mapping[str, Any]]]:
        """Return the lists of objects of a column."""
        return [row or [] for row in self.table[name].to_pylist()]


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


class FlatTable:
    """Arrays of n sequences of T tokens: one entry a token, or one a sequence."""

    def __init__(
        self,
        arrays: Mapping[str, Values],
        offsets: NDArray[np.int64],
        place: Callable[[int], str],
    ) -> None:
        self.arrays, self.offsets, self.place = arrays, offsets, place
        self.names, self.rows = list(arrays), len(offsets) - 1
        for name in ("first_target", "group"):
            if name in arrays and len(integers(name, arrays[name])) != self.rows:
                raise InputError(
                    f"{name} has {len(arrays[name])} entries for {self.rows} sequences: give one "
                    "each"
                )

    def kind(self, name: str) -> Kind:
        """Return the kind of a column, by its size."""
        found = self.arrays[name]
        if found.shape == (self.rows,) and (
            name in ("first_target", "group") or self.rows != self.offsets[-1]
        ):
            return "text" if found.dtype.kind in "USO" else "value"
        return "lists" if found.shape == (int(self.offsets[-1]),) else "absent"

    def lists(self, name: str, *, integer: bool = False) -> Numbers:  # noqa: ARG002
        """Return the lists of numbers of a column."""
        return self.arrays[name], self.offsets

    def nested(self, name: str) -> tuple[Numbers, NDArray[np.int64]]:
        """Refuse: there are none."""
        raise InputError(f"{name} has shape {self.arrays[name].shape}: give one entry a token")

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        found: Any = self.arrays[name]
        return found if found.dtype.kind in "iu" else found.tolist()  # type: ignore[no-any-return]

    def messages(self, name: str) -> list[list[Mapping[str, Any]]]:
        """Return none."""
        raise InputError(f"{name} is no list of messages")


class ArrayTable:
    """Columns in arrays, tensors or lists: one value or one list a row."""

    def __init__(self, columns: Mapping[str, Any], place: Callable[[int], str]) -> None:
        self.columns = {str(name): _opened(str(name), columns[name]) for name in columns}
        self.place = place
        self.names = list(self.columns)
        ids = next((self.columns[n] for n in self.names if n in WHOLE), None)
        for name in POSITIONS:  # [axes, sequences, tokens]
            axes: Any = self.columns.get(name)
            deep = getattr(axes, "ndim", 0) == 3
            if deep and ids is not None and len(axes) != len(ids) == axes.shape[1]:
                self.columns[name] = axes.transpose(1, 0, 2)
        sizes = {name: len(column) for name, column in self.columns.items() if column is not None}
        self.rows = max(sizes.values(), default=0)
        for name, size in sizes.items():
            if size != self.rows and self.kind(name) == "lists":
                raise InputError(f"{name} has {size} rows of {self.rows}: give one each")

    def kind(self, name: str) -> Kind:
        """Return the kind of a column."""
        column = self.columns[name]
        if column is None or (not isinstance(column, np.ndarray) and not len(column)):
            return "absent"
        if isinstance(column, np.ndarray):
            return (
                "text"
                if column.dtype.kind in "USO"
                else "value"
                if column.ndim == 1
                else "lists"
                if column.ndim == 2
                else "nested"
            )
        first = next((row for row in column if hasattr(row, "__len__") and len(row)), column[0])
        if isinstance(first, str):
            return "text"
        if not hasattr(first, "__len__"):
            return "value"
        if not len(first):
            return "lists"
        if isinstance(first, np.ndarray) or not isinstance(first, Sequence):
            return "lists" if getattr(first, "ndim", 1) == 1 else "nested"
        return (
            _of_entry(first[0])
            if not hasattr(first[0], "__len__") or isinstance(first[0], str)
            else "nested"
        )

    def lists(self, name: str, *, integer: bool = False) -> Numbers:
        """Return the lists of numbers of a column."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            if column.ndim != 2:
                raise InputError(f"{name} has shape {column.shape}: give one list a row")
            count, length = column.shape
            return column.reshape(-1), np.arange(count + 1, dtype=np.int64) * length
        joined = join_arrays(column, "biuf")
        if joined is not None:
            return joined
        rows = []
        for i, row in enumerate(column):
            if row is None or isinstance(row, str) or not hasattr(row, "__len__"):
                refuse(self, i, f"{name} is {shown(row)}: give a list of integers")
            rows.append(row if isinstance(row, list) else _array(name, row).tolist())
        return _numbers(self, name, rows, integer), length_offsets(rows)

    def nested(self, name: str) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the inner lists of a column of lists of lists."""
        whole = self.columns[name]
        if isinstance(whole, np.ndarray) and whole.ndim == 3:
            rows, lists, length = whole.shape
            numbers = whole.reshape(-1), np.arange(rows * lists + 1) * length
            return numbers, np.arange(rows + 1) * lists
        column = [list(row) for row in whole]
        inner = [_array(name, part).tolist() for part in chain.from_iterable(column)]
        return (_numbers(self, name, inner), length_offsets(inner)), length_offsets(column)

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            made: Any = column if column.dtype.kind in "iu" else column.tolist()
            return made  # type: ignore[no-any-return]
        return [getattr(value, "item", lambda value=value: value)() for value in column]

    def messages(self, name: str) -> list[list[Mapping[str, Any]]]:
        """Return the lists of objects of a column."""
        return [list(row) for row in self.columns[name]]


class Unbatched:
    """A table of one whose rows are batches, [sequences, tokens] a column: a row a sequence.

    Attributes:
        owner: the row of each sequence, [n].
    """

    def __init__(self, table: Table, ids: str) -> None:
        self.table, self.names = table, table.names
        self._outer = table.nested(ids)[1]
        self._counts = np.diff(self._outer)
        self.rows = int(self._outer[-1])
        self.owner = np.repeat(np.arange(len(self._counts)), self._counts)

    def place(self, row: int) -> str:
        """Name a sequence, such as ``line 3, sequence 1``."""
        owner = int(self.owner[row])
        return f"{self.table.place(owner)}, sequence {row - int(self._outer[owner])}"

    def kind(self, name: str) -> Kind:
        """Return the kind of a column."""
        kind = self.table.kind(name)
        single = bool((self._counts == 1).all())
        if kind == "nested":
            return "nested" if single and name in POSITIONS else "lists"
        if kind == "lists" and (np.diff(self.table.lists(name)[1]) == self._counts).all():
            return "value"
        listed = kind == "text" and all(isinstance(row, list) for row in self.table.values(name))
        return kind if single or listed else "absent"

    def lists(self, name: str, *, integer: bool = False) -> Numbers:
        """Return the lists of numbers of a column."""
        if self.table.kind(name) != "nested":
            return self.table.lists(name, integer=integer)
        numbers, outer = self.table.nested(name)
        wrong = np.flatnonzero(np.diff(outer) != self._counts)
        if wrong.size:
            row = int(wrong[0])
            have, need = np.diff(outer)[row], self._counts[row]
            refuse(self.table, row, f"{name} has {have} lists for {need} sequences: give one each")
        return numbers

    def nested(self, name: str) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the inner lists of a column of lists of lists."""
        return self.table.nested(name)

    def values(self, name: str) -> Sequence[Any]:
        """Return the one value of each row."""
        if self.table.kind(name) == "lists":
            made: Any = self.table.lists(name)[0]
            return made  # type: ignore[no-any-return]
        rows = self.table.values(name)
        return list(chain.from_iterable(rows)) if isinstance(rows[0], list) else rows

    def messages(self, name: str) -> list[list[Mapping[str, Any]]]:
        """Return the lists of objects of a column."""
        return self.table.messages(name)


def _array(name: str, value: Any) -> Values:
    """Return an array or tensor of the CPU as numpy's."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        device = str(getattr(value, "device", "cpu"))
        if device != "cpu":
            raise InputError(f"{name} is on {device}: give {name}.cpu()") from None
        raise InputError(f"{name} cannot be read: {first_line(error)}") from None


def _opened(name: str, column: Any) -> Any:
    """Return a column as an array, as a list of rows, or None if it is no column."""
    if column is None or isinstance(column, str | bytes | Mapping):
        return None
    column = unbound(column)
    if is_arrow(column):
        return column.to_pylist()
    if hasattr(column, "__array__"):
        made = _array(name, column)
        if made.dtype == object:
            return made.tolist()
        return made if made.ndim else None
    if not isinstance(column, Iterable):
        return None
    return column if hasattr(column, "__len__") and hasattr(column, "__getitem__") else list(column)


def table_of(value: Any) -> Table | None:
    """Return columns that a value holds in memory, None if it is no table.

    Raises:
        InputError: it holds several splits.
    """
    place = lambda row: f"row {row}"  # noqa: E731
    if hasattr(value, "batch") and hasattr(value, "non_tensor_batch"):
        value = {**dict(value.batch.items()), **dict(value.non_tensor_batch)}
    if hasattr(value, "column_names") and hasattr(value, "with_format"):
        if isinstance(value, Mapping):
            names = ", ".join(map(str, value))
            raise InputError(f"sequences hold the splits {names}: give one, such as data['train']")
        value = value.with_format("arrow")[:]
    if hasattr(value, "to_arrow") and hasattr(value, "columns"):
        value = value.to_arrow()
    if type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "schema"):
        import pyarrow

        whole = (
            pyarrow.Table.from_batches([value])
            if hasattr(value, "num_columns")
            and not (hasattr(value, "itercolumns") and hasattr(value, "combine_chunks"))
            else value
        )
        return ArrowTable(whole, place)
    if hasattr(value, "iloc") and hasattr(value, "columns"):
        value = {str(name): value[name].tolist() for name in value.columns}
    named = hasattr(value, "keys") and hasattr(value, "__getitem__") and not hasattr(value, "iloc")
    if isinstance(value, Mapping) or named:
        columns = {str(name): value[name] for name in value.keys()}  # noqa: SIM118
        return ArrayTable(_one_row(columns), place)
    if isinstance(value, list | tuple) and value and not hasattr(value[0], "__array__"):
        first = value[0]
        if isinstance(first, Mapping):
            keys = dict.fromkeys(name for row in value for name in row)
            return ArrayTable({n: [row.get(n) for row in value] for n in keys}, place)
        if not isinstance(first, str | bytes | Iterable) and not hasattr(first, "as_py"):
            held = [name for name in _attributes(first) if hasattr(value[-1], name)]
            if held:
                return ArrayTable({n: [getattr(row, n) for row in value] for n in held}, place)
    return None


def _one_row(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of one sequence, as a tokenizer gives them, as those of one row."""
    ids = next((columns[name] for name in WHOLE if name in columns), None)
    flat = getattr(ids, "ndim", 0) == 1 and not str(getattr(ids, "dtype", "")).startswith("object")
    if isinstance(ids, list) and ids:
        flat = not hasattr(ids[0], "__len__")
    return {name: [value] for name, value in columns.items()} if flat else columns


def _attributes(value: Any) -> list[str]:
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__dict__", {})
    return [str(name) for name in names]


def ints(table: Table, name: str) -> Lists:
    """Return the lists of integers of a column.

    Raises:
        InputError: floats, booleans, text or nested lists; names the row and the entry.
    """
    kind = table.kind(name)
    if kind == "nested":
        refuse(table, 0, f"{name} holds lists of lists: give one sequence a row")
    numbers, offsets = table.lists(name, integer=True)
    if numbers.dtype.kind not in "iu":
        at = 0  # the first that is no whole number; where all are, the first
        if numbers.dtype.kind == "f":
            whole = np.isfinite(numbers) & (numbers == np.floor(numbers))
            at = int(np.argmin(whole))
        entry(table, name, (numbers, offsets), at, f"give integers ({name} is {numbers.dtype})")
    return integers(name, numbers), offsets


def entry(table: Table, name: str, numbers: Numbers, at: int, repair: str) -> NoReturn:
    """Refuse one entry of a column of lists."""
    row = int(np.searchsorted(numbers[1], at, side="right")) - 1
    value = shown(numbers[0][at].item())
    refuse(table, row, f"{name}[{at - int(numbers[1][row])}] is {value}: {repair}")
