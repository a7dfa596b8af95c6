"""What the columns of a Parquet file declare, read before pyarrow unpacks any of them.

The footer says how many values a column has, but readers believe the pages; both are structures
in Thrift's compact encoding, of which a few numbers matter here. They are read here and not
through pyarrow, whose views of a damaged footer may end the process. Anything out of place is
left for pyarrow to refuse.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["unpacked_bytes"]

_BOOLEANS, _BYTE, _NUMBERS, _DOUBLE = (1, 2), 3, (4, 5, 6), 7
_BINARY, _LISTS, _STRUCT = 8, (9, 10), 12
_DEEPEST = 8
_MOST_FOOTER = 64 << 20
_DAMAGED = (IndexError, KeyError, TypeError, AttributeError, ValueError, struct.error, OSError)


def unpacked_bytes(path: Path, columns: Iterable[str]) -> int:
    """Bytes that columns unpack to, by the larger of what footer and pages declare."""
    wanted = {name.encode("utf-8", "replace") for name in columns}
    footer = pages = 0
    try:
        with path.open("rb") as file:
            for chunk in _chunks(_footer(file), wanted):
                footer += 8 * max(0, chunk[5])
                start = min(chunk[9], chunk.get(11) or chunk[9])
                file.seek(max(0, start))
                pages += _page_bytes(file.read(max(0, chunk[7])))
    except _DAMAGED:
        return max(footer, pages)
    return max(footer, pages)


def _footer(file: IO[bytes]) -> dict[int, Any]:
    end = file.seek(0, 2)
    file.seek(max(0, end - 8))
    (size,) = struct.unpack("<I4x", file.read(8))
    if size > min(end, _MOST_FOOTER):
        raise ValueError("the footer is larger than the file")
    file.seek(end - 8 - size)
    return _struct(file.read(size), 0, 0)[0]


def _chunks(footer: dict[int, Any], wanted: set[bytes]) -> Iterator[dict[int, Any]]:
    """Metadata of the wanted columns in every row group."""
    for group in footer[4]:
        for column in group[1]:
            if column[3][3][0] in wanted:
                yield column[3]


def _page_bytes(data: bytes) -> int:
    """What the pages of one column chunk unpack to, as values of 64 bits or as they say."""
    at = total = 0
    try:
        while at < len(data):
            header, at = _struct(data, at, 0)
            page = header.get(5) or header.get(8) or {}
            total += max(8 * page.get(1, 0), header.get(2, 0), 0)
            at += max(0, header[3])
    except _DAMAGED:
        return total
    return total


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Values by field, and where the structure ends."""
    if depth > _DEEPEST:
        raise ValueError("nests deeper than any metadata")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number(data, at)
        if head & 15 not in _BOOLEANS:  # those are their own value
            fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _number(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        size, at = _unsigned(data, at)
        return data[at : at + size], at + size
    if kind in _LISTS:
        head, at = data[at], at + 1
        size = head >> 4
        if size == 15:
            size, at = _unsigned(data, at)
        if size > len(data) - at:
            raise ValueError("a list longer than the data")
        items = []
        for _ in range(size):
            item, at = _value(data, at, head & 15, depth + 1)
            items.append(item)
        return items, at
    if kind in (*_BOOLEANS, _BYTE):
        return data[at], at + 1
    if kind == _DOUBLE:
        return None, at + 8
    raise ValueError("a kind that no metadata has")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
