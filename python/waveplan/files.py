"""Whole files: read up to a size, written in one step or not at all."""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from waveplan.checks import first_line
from waveplan.errors import InputError

__all__ = [
    "MOST_BYTES",
    "kind",
    "read_json",
    "read_text",
    "replacing",
    "uninterrupted",
    "write_text",
]

Name: TypeAlias = str | os.PathLike[str]

MOST_BYTES = 16 << 20
"""Largest file that is read whole, so that an endless one is refused."""


def kind(path: Name) -> Literal["file", "folder", "other"] | None:
    """Return what there is under a name; None if nothing can be, whatever the reason."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def _read(path: Name, most: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}") from None
    if len(data) > most:
        raise InputError(f"{path} is too large: at most {most} bytes are read")
    return data


def read_text(path: Name, most: int = MOST_BYTES) -> str:
    """Return the text of a UTF-8 file of at most ``most`` bytes.

    Raises:
        InputError: it cannot be read, or is larger, or not UTF-8.
    """
    try:
        return str(_read(path, most), "utf-8-sig")  # some editors write a byte-order mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}") from None


def read_json(path: Name, most: int = MOST_BYTES, *, lines: bool = False) -> Any:
    """Return the value of a JSON file, perhaps compressed by gzip, of at most ``most`` bytes.

    Args:
        lines: a file of several values, one a line, is read as their list.

    Raises:
        InputError: it cannot be read, or is larger, or not JSON.
    """
    data, at = _read(path, most), ""
    try:
        if data[:2] == b"\x1f\x8b":
            data = _unpacked(path, data, most)
        rows = data.splitlines() if lines else []
        if not (rows[1:] and rows[0][:1] == b"{" and rows[0][-1:] == b"}"):
            return json.loads(data)
        made = []
        for number, row in enumerate(rows, 1):
            at = f": line {number}"
            if row.strip():
                made.append(json.loads(row))
        return made
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}{at} is not JSON: {first_line(error)}") from None


def _unpacked(path: Name, data: bytes, most: int) -> bytes:
    """The content of a gzip file, of at most ``most`` bytes."""
    import zlib

    unpack = zlib.decompressobj(wbits=31)
    try:
        text = unpack.decompress(data, most + 1)
    except zlib.error as error:
        raise InputError(f"{path} is no whole gzip file: {error}") from None
    if len(text) > most:
        raise InputError(f"{path} is too large: at most {most} bytes are read")
    return text


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C; in another thread than the main one nothing changes."""
    before = None
    with suppress(ValueError):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def replacing(path: Name) -> Iterator[Path]:
    """Give a new file to write, which takes the place of ``path`` in one step at the end.

    After an error, or Ctrl-C, ``path`` is as it was. What is no regular file (a pipe, a device)
    is written directly.

    Raises:
        InputError: no file can have that name. OSError: it cannot be written; names ``path``.
    """
    try:
        os.fsencode(path)
        target = Path(os.path.realpath(path))  # a link stays one
        if kind(target) not in (None, "file"):
            yield target
            return
        made = target.with_name(f".{secrets.token_hex(8)}{target.suffix[:16]}")
        try:
            yield made
            if target.exists():
                made.chmod(stat.S_IMODE(target.stat().st_mode))
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def write_text(path: Name, text: str) -> None:
    """Write a whole file in UTF-8, or leave it as it was.

    Raises:
        OSError: it cannot be written; names ``path``.
    """
    # File names may hold bytes that are no text; they are written as escapes.
    data = text.encode("utf-8", "backslashreplace")
    with replacing(path) as made:
        made.write_bytes(data)
