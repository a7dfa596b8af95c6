"""Rows from .npz archives: what they declare is held against what they hold before it is read."""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from waveplan._load_lines import COLUMNS
from waveplan.errors import InputError
from waveplan.rows import Rows, integers

__all__ = ["FREE_BYTES", "MOST_RATIO", "load"]

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
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([0-9, ]*)\)""")


def load(file: Path) -> Rows:
    """The rows of an archive."""
    archive_bytes = file.stat().st_size
    try:
        with zipfile.ZipFile(file) as archive:
            members = _members(archive)
            for key in ("tokens", "offsets"):
                if key not in members:
                    raise InputError(f"no array {key}: an .npz holds tokens and offsets")
            tokens, offsets = (
                _read_member(archive, members[key], key, archive_bytes)
                for key in ("tokens", "offsets")
            )
            rows = Rows(tokens, offsets)
            columns = {
                key: integers(key, _read_member(archive, members[key], key, archive_bytes))
                for key in COLUMNS
                if key in members
            }
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
    return Rows(rows.tokens, rows.offsets, columns)


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays that rows are made of, by name."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name not in ("tokens", "offsets", *COLUMNS):
            continue
        if name in found:
            raise InputError(f"holds {name} twice: give each array once")
        if info.compress_type not in METHODS:
            raise InputError(f"{name} is compressed by an unusual method: save it with numpy")
        found[name] = info
    return found


def _read_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str, archive_bytes: int
) -> NDArray[Any]:
    """One array. What its header declares must be what the member holds, and both bounded."""
    if info.file_size > max(FREE_BYTES, MOST_RATIO * archive_bytes):
        raise InputError(
            f"{key} declares {info.file_size} bytes in a file of {archive_bytes}: "
            f"more than {MOST_RATIO} times as many are not unpacked, save it uncompressed"
        )
    with archive.open(info) as member:
        shape, dtype, rest = _read_header(member, info, key)
        if dtype.hasobject:
            raise InputError(f"{key} holds pickled objects, which are never loaded: save integers")
        if len(shape) != 1:
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
    return np.frombuffer(data, dtype)


def _read_header(
    member: IO[bytes], info: zipfile.ZipInfo, key: str
) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and bytes of data of an array. The header is text and is not evaluated."""
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
    return shape, dtype, info.file_size - len(start) - width - length
