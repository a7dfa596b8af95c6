"""Token sequences from JSON: lines, one list, or one object of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import first_line
from waveplan.errors import InputError
from waveplan.sequences.formats import read_table
from waveplan.sequences.names import GIVEN
from waveplan.sequences.reader import Found
from waveplan.sequences.tables import ArrayTable, ArrowTable, RecordTable

__all__ = ["MOST_LINE", "OLDEST_PYARROW", "read_json", "read_lines", "recent"]

Int64 = NDArray[np.int64]
Names: TypeAlias = Mapping[str, str]
OnRead: TypeAlias = Callable[[int], object]

MOST_LINE = 16 << 20
"""Bytes of a line, so that an endless one is refused."""
OLDEST_PYARROW = 15
"""Before 14.0.1, reading a file runs code that the file's types name."""
_BLOCK = 1 << 18
"""Bytes of JSON lines that are held as Python objects at a time."""
_ARROW_BLOCK = 8 << 20
"""The same where pyarrow reads them."""


def recent(version: str) -> bool:
    """Whether a version of pyarrow is one that is used."""
    return int(version.partition(".")[0]) >= OLDEST_PYARROW


def read_lines(stream: IO[bytes] | _Again, columns: Names, on_read: OnRead) -> Iterator[Found]:
    """Read JSON lines, an object a sequence, in blocks: by pyarrow where it is installed and
    understands them, else by json, which also says what is wrong."""
    fast = _json_of_pyarrow()
    number, done, rest = 1, 0, b""
    size = _BLOCK if fast is None else _ARROW_BLOCK
    while True:
        # The first block is small, so that a short file costs no more than its size.
        data = stream.read(size if number > 1 else min(size, 1 << 18))
        done += len(data)
        block = rest + data
        end = block.rfind(b"\n") + 1 if data else len(block)
        if end == 0 and len(block) > MOST_LINE:
            raise InputError(
                f"line {number}: longer than {MOST_LINE} bytes: put one sequence on a line"
            )
        block, rest = block[:end], block[end:]
        if block:
            count = block.count(b"\n") + (not block.endswith(b"\n"))
            found = _block_of_arrow(fast, block, count, number, columns) if fast else None
            yield from _block(block, number, columns) if found is None else [found]
            number += count
            on_read(done)
        if not data:
            return


def _json_of_pyarrow() -> Any:
    if find_spec("pyarrow") is None:
        return None
    version = str(import_module("pyarrow").__version__)
    return import_module("pyarrow.json") if recent(version) else None


def _block_of_arrow(
    reader: Any, block: bytes, count: int, number: int, columns: Names
) -> Found | None:
    """Understand whole lines; None where one is blank, damaged, or differs from the others."""
    import pyarrow

    if len(block) < 1 << 16:  # starting it takes longer
        return None
    try:
        options = reader.ReadOptions(block_size=1 << 22)
        table = reader.read_json(pyarrow.BufferReader(block), read_options=options)
        known = [name for name in table.schema.names if name in GIVEN or name in columns.values()]
        some = (table[name].null_count % max(1, count) for name in known)
        if table.num_rows != count or any(some):  # a line without what others have
            return None
        found = read_table(ArrowTable(table, lambda row: f"line {number + row}"), columns)
        found.rows, found.unit = found.rows + number, "line"
        return found
    except (InputError, pyarrow.ArrowException):
        return None  # read again for the words and the place


def _block(block: bytes, number: int, columns: Names) -> Iterator[Found]:
    """Understand whole lines; runs of lines with the same columns apart."""
    lines = block.splitlines() if b"\r" not in block else block.split(b"\n")
    numbers = [number + at for at, line in enumerate(lines) if line and not line.isspace()]
    if len(numbers) < len(lines):
        lines = [line for line in lines if line and not line.isspace()]
    records = _together(lines)
    if records is None:
        records = [_record(line, at, block) for line, at in zip(lines, numbers, strict=True)]
    return _runs(records, np.array(numbers, np.int64), columns, "line")


def _runs(
    records: list[dict[str, Any]], numbers: Int64, columns: Names, unit: str
) -> Iterator[Found]:
    """Understand objects; runs of them with the same columns apart."""
    shapes = [tuple(record) for record in records]
    if len(set(shapes)) == 1 and not any(None in record.values() for record in records):
        yield _run(records, numbers, columns, unit)
        return
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    first, before = 0, None
    for i, names in enumerate(shapes):
        if None in records[i].values():
            records[i] = {name: value for name, value in records[i].items() if value is not None}
            names = tuple(records[i])
        if names not in known:
            known[names] = tuple(sorted(n for n in names if n in GIVEN or n in columns.values()))
        if i and known[names] != before:
            yield _run(records[first:i], numbers[first:i], columns, unit)
            first = i
        before = known[names]
    if records:
        yield _run(records[first:], numbers[first:], columns, unit)


def _run(records: list[dict[str, Any]], numbers: Int64, columns: Names, unit: str) -> Found:
    """Understand objects with the same columns."""
    table = RecordTable(records, lambda row: f"{unit} {numbers[row]}")
    found = read_table(table, columns)
    found.rows, found.unit = numbers[found.rows], unit
    return found


def _together(lines: list[bytes]) -> list[dict[str, Any]] | None:
    """Read lines as one list, which costs less than each alone; None if any is no object."""
    if any(line[:1] != b"{" for line in lines) or max(map(len, lines), default=0) > MOST_LINE:
        return None
    try:
        records = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return None
    same = len(records) == len(lines) and set(map(type, records)) <= {dict}
    return records if same else None


def _record(line: bytes, number: int, block: bytes) -> dict[str, Any]:
    """Read the object of one line."""
    if len(line) > MOST_LINE:
        raise InputError(
            f"line {number}: longer than {MOST_LINE} bytes: put one sequence on a line"
        )
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        torn = block.endswith(line)  # the last, without an end
        cut = "; the last line looks cut off" if torn else ""
        raise InputError(f"line {number}: not JSON ({first_line(error)}){cut}") from None
    if not isinstance(record, dict):
        raise InputError(
            f"line {number}: a {type(record).__name__}, not an object: put the token ids under a "
            'name, such as {"input_ids": [1, 2]}'
        )
    return record


def read_json(stream: IO[bytes], columns: Names, on_read: OnRead) -> Iterator[Found]:
    """Read a file of JSON: lines, one list, or one object of columns or of a list."""
    head = stream.read(1 << 16)
    lines = head.lstrip().split(b"\n", 2)
    several = len(lines) > 1 and lines[0].strip().endswith(b"}") and lines[1].lstrip()[:1] == b"{"
    if lines[0][:1] == b"{" and (
        several or (len(lines) == 1 and len(head) == 1 << 16 and not _one(head))
    ):
        yield from read_lines(_Again(head, stream), columns, on_read)
        return
    data = head + stream.read()
    on_read(len(data))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({first_line(error)})") from None
    place = lambda row: f"row {row}"  # noqa: E731
    if isinstance(value, dict):
        rows = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        if len(rows) == 1 and not any(isinstance(value[n], list) for n in value if n in GIVEN):
            value = rows[0]
        elif any(isinstance(v, list) and v and isinstance(v[0], list) for v in value.values()):
            yield read_table(ArrayTable(value, place), columns)
            return
        else:
            value = [value]
    if not isinstance(value, list):
        raise InputError(f"a {type(value).__name__}: give lines or a list of objects")
    if value and all(isinstance(row, list) for row in value):
        value = [{"input_ids": row} for row in value]
    for i, row in enumerate(value):
        if not isinstance(row, dict):
            raise InputError(f"row {i}: a {type(row).__name__}, not an object")
    yield from _runs(value, np.arange(len(value)), columns, "row")


def _one(head: bytes) -> bool:
    """Whether the beginning of a file looks like one object of lists of lists."""
    return b": [[" in head or b":[[" in head


class _Again:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int) -> bytes:
        """Like a file's."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._stream.read(size)
