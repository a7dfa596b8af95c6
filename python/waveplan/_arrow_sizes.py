"""What compressed buffers of an Arrow file declare, read before pyarrow unpacks any of them.

An encapsulated message is a flatbuffer, whose few fields that matter here are read by their
offsets, and a body. A compressed buffer of the body begins with its unpacked size. Anything
out of place is left for pyarrow to refuse.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["unpacked_bytes"]

_DICTIONARY, _BATCH = 2, 3  # kinds of message
_HEADER_TYPE, _HEADER = 1, 2  # fields of a message
_DICTIONARY_DATA = 1  # field of a dictionary batch
_BUFFERS, _COMPRESSION = 2, 3  # fields of a record batch


def unpacked_bytes(message: Any) -> int:
    """Bytes that the compressed buffers of one message declare; 0 for any other message."""
    data, body = memoryview(message.metadata), message.body
    try:
        root = _follow(data, 0)
        kind = _field(data, root, _HEADER_TYPE)
        table = _field(data, root, _HEADER)
        if kind is None or table is None or data[kind] not in (_DICTIONARY, _BATCH):
            return 0
        batch = _follow(data, table)
        if data[kind] == _DICTIONARY:
            inner = _field(data, batch, _DICTIONARY_DATA)
            if inner is None:
                return 0
            batch = _follow(data, inner)
        buffers = _field(data, batch, _BUFFERS)
        if body is None or buffers is None or _field(data, batch, _COMPRESSION) is None:
            return 0
        return _declared(data, _follow(data, buffers), memoryview(body))
    except (struct.error, IndexError):
        return 0


def _declared(data: memoryview, vector: int, body: memoryview) -> int:
    (count,) = struct.unpack_from("<I", data, vector)
    total = 0
    for place in range(vector + 4, vector + 4 + 16 * count, 16):
        offset, length = struct.unpack_from("<qq", data, place)
        if length >= 8 and 0 <= offset <= len(body) - 8:
            (size,) = struct.unpack_from("<q", body, offset)
            total += max(0, size)  # -1: stored as it is
    return total


def _follow(data: memoryview, at: int) -> int:
    (step,) = struct.unpack_from("<I", data, at)
    return int(at + step)


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table is; None if it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    entries = table - back
    if entries < 0:
        return None
    (size,) = struct.unpack_from("<H", data, entries)
    if 4 + 2 * number + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", data, entries + 4 + 2 * number)
    return table + offset if offset else None
