"""Arrays from .npz archives: what they declare is held against what they hold before it is read."""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from waveplan.errors import InputError
from waveplan.rows import Rows, integers
from waveplan.sequences.files import COLUMNS

__all__ = ["FREE_BYTES", "MOST_RATIO", "load", "load_numbers", "plain_numbers"]

# A member of an archive may unpack to 64 MiB, or to 200 times the archive if that is more.
FREE_BYTES = 64 << 20
MOST_RATIO = 200
MOST_HEADER = 10_000
# Bytes read between two chances for Ctrl-C.
AT_ONCE = 16 << 20
# What numpy writes. Others unpack without a bound on what one read may yield.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAGIC = b"\x93NUMPY"
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([<>|=]?[a-zA-Z][0-9]{0,5})['"]""")
_BY_COLUMNS = re.compile(r"""['"]fortran_order['"]\s*:\s*True""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([0-9, ]*)\)""")


def load(file: Path) -> Rows:
    """The rows of an archive."""
    archive_bytes = file.stat().st_size
    with _whole(file) as archive:
        members = _members(archive, ("tokens", "offsets", *COLUMNS))
        for key in ("tokens", "offsets"):
            if key not in members:
                raise InputError(f"no array {key}: an .npz holds tokens and offsets")
        tokens, offsets = (
            _read_member(archive, members[key], key, archive_bytes) for key in ("tokens", "offsets")
        )
        rows = Rows(tokens, offsets)
        columns = {
            key: integers(key, _read_member(archive, members[key], key, archive_bytes))
            for key in COLUMNS
            if key in members
        }
    return Rows(rows.tokens, rows.offsets, columns)


def load_numbers(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an archive that `numpy.savez` wrote: plain numbers of any dimensions.

    Together they hold no more bytes than the file.
    """
    archive_bytes = file.stat().st_size
    with _whole(file) as archive:
        members = _members(archive, None)
        declared = sum(info.file_size for info in members.values())
        if declared > archive_bytes:
            raise InputError(
                f"declares {declared} bytes in a file of {archive_bytes}: save it uncompressed"
            )
        return {
            key: _read_member(archive, info, key, archive_bytes, flat=False)
            for key, info in members.items()
        }


def plain_numbers(dtype: np.dtype[Any]) -> bool:
    """Whether these are booleans, integers or floats of at most 64 bits, as this machine has."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.isnative


@contextmanager
def _whole(file: Path) -> Iterator[zipfile.ZipFile]:
    """An archive to read; one that is damaged or cut is refused wherever that shows."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,  # encrypted
        struct.error,
        UnicodeDecodeError,
    ) as error:
        reason = str(error).partition("\n")[0] or "it ends too early"
        raise InputError(f"not a whole .npz archive: {reason}") from None


def _members(
    archive: zipfile.ZipFile, wanted: tuple[str, ...] | None
) -> dict[str, zipfile.ZipInfo]:
    """The arrays of these names, or all, by name."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if wanted is not None and name not in wanted:
            continue
        if name in found:
            raise InputError(f"holds {name} twice: give each array once")
        if info.compress_type not in METHODS:
            raise InputError(f"{name} is compressed by an unusual method: save it with numpy")
        found[name] = info
    return found


def _read_member(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    key: str,
    archive_bytes: int,
    *,
    flat: bool = True,
) -> NDArray[Any]:
    """One array. What its header declares must be what the member holds, and both bounded."""
    if info.file_size > max(FREE_BYTES, MOST_RATIO * archive_bytes):
        raise InputError(
            f"{key} declares {info.file_size} bytes in a file of {archive_bytes}: "
            f"more than {MOST_RATIO} times as many are not unpacked, save it uncompressed"
        )
    with archive.open(info) as member:
        shape, dtype, order, rest = _read_header(member, info, key)
        if dtype.hasobject:
            raise InputError(f"{key} holds pickled objects, which are never loaded: save integers")
        if not dtype.itemsize or not (flat or plain_numbers(dtype)):
            raise InputError(f"{key} has dtype {dtype}: give integers")
        if flat and len(shape) != 1:
            raise InputError(f"{key} has shape {shape}: give one dimension")
        if math.prod(shape) * dtype.itemsize != rest:
            raise InputError(f"{key} declares shape {shape} of {dtype} but holds {rest} bytes")
        # So many bytes and no more: a stream may hold more than its entry says.
        data = bytearray()
        while len(data) < rest and (piece := member.read(min(rest - len(data), AT_ONCE))):
            data += piece
        if len(data) != rest:
            raise InputError(f"{key} is cut off after {len(data)} of {rest} bytes")
        member.read(1)  # checks the sum
    try:
        return np.frombuffer(data, dtype).reshape(shape, order=order)
    except ValueError as error:  # too many dimensions
        raise InputError(f"{key} declares shape {shape}: {error}") from None


def _read_header(
    member: IO[bytes], info: zipfile.ZipInfo, key: str
) -> tuple[tuple[int, ...], np.dtype[Any], Literal["C", "F"], int]:
    """Shape, dtype, order and bytes of data. The header is text and is not evaluated."""
    start = member.read(8)
    if start[:6] != _MAGIC or start[6:] not in (b"\x01\0", b"\x02\0", b"\x03\0"):
        raise InputError(f"{key} is not a numpy array: it does not begin like one")
    width, size = (2, "<H") if start[6] == 1 else (4, "<I")
    (length,) = struct.unpack(size, member.read(width).ljust(width, b"\0"))
    if length > MOST_HEADER:
        raise InputError(f"{key} is not a numpy array: its header is {length} bytes long")
    text = member.read(length).decode("utf-8", "replace")
    descr, stated = _DESCR.search(text), _SHAPE.search(text)
    if descr is None or stated is None:
        what = "is cut off" if len(text) < length else "states no plain type and shape"
        raise InputError(f"{key} is not a numpy array of integers: its header {what}")
    try:
        dtype = np.dtype(descr[1])
    except (TypeError, ValueError) as error:
        raise InputError(f"{key} is not a numpy array: {error}") from None
    sizes = [part.strip() for part in stated[1].split(",") if part.strip()]
    if not all(size.isdecimal() and len(size) < 20 for size in sizes):
        raise InputError(f"{key} is not a numpy array: its shape is ({stated[1]})")
    shape = tuple(map(int, sizes))
    order: Literal["C", "F"] = "F" if _BY_COLUMNS.search(text) else "C"
    return shape, dtype, order, info.file_size - len(start) - width - length
