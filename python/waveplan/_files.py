"""Whole files: reading is bounded, writing leaves nothing half done.

JSON comes from anywhere, so its size, its nesting and the number of its containers are checked
before a parser builds anything, and a key that is given twice is refused.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from waveplan.errors import InputError

__all__ = [
    "MOST_BYTES",
    "MOST_CONTAINERS",
    "MOST_DEPTH",
    "MOST_KEYS",
    "kind",
    "parse_json",
    "read_bytes",
    "read_json",
    "replacing",
    "write_text",
]

MOST_BYTES = 16 << 20
"""Largest file that is read whole."""
MOST_DEPTH = 64
"""How deeply lists and objects may nest in JSON."""
MOST_CONTAINERS = 1 << 20
"""Lists and objects in one JSON document, or in one line of JSON lines."""
MOST_KEYS = 1 << 18
"""Keys of all its objects together."""

CHUNK = 1 << 20
LONGEST_NAME = 4096


def kind(path: str | os.PathLike[str]) -> Literal["file", "folder", "other"] | None:
    """What there is under a name; None if nothing can be, whatever the reason."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The content of a file of at most ``most`` bytes.

    Raises:
        InputError: it cannot be read, or is larger.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"cannot read {path}: {error}") from None
    if len(data) > most:
        raise InputError(f"{path} is too large: at most {most} bytes are read")
    return data


def read_json(path: str | os.PathLike[str], most: int = MOST_BYTES) -> Any:
    """The value in a JSON file.

    Raises:
        InputError: it cannot be read, is too large, nests too deeply or is not JSON.
    """
    data = read_bytes(path, most)
    try:
        return parse_json(data)
    except InputError as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def parse_json(data: bytes) -> Any:
    """The value of JSON text in UTF-8.

    Raises:
        InputError: why it is none; the caller says where.
    """
    _check_nesting(data)
    try:
        # A byte-order mark says nothing about UTF-8, but some editors write one.
        return json.loads(str(data, "utf-8-sig"), object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}"
        raise InputError(f"{error.msg} at {place}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8") from None
    except InputError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(str(error).partition(":")[0]) from None


def _check_nesting(data: bytes) -> None:
    """Refuses what nests too deeply or has too many containers or keys, in bounded memory."""
    if data.count(b"[") + data.count(b"{") <= MOST_DEPTH and data.count(b":") <= MOST_KEYS:
        return
    depth = containers = keys = 0
    inside = escaping = False  # a string, a backslash's next character
    for start in range(0, len(data), CHUNK):
        text = np.frombuffer(data, np.uint8, min(CHUNK, len(data) - start), start)[escaping:]
        if not len(text):
            escaping = False
            continue
        quotes, escaping = _quotes(text)
        outside = np.cumsum(quotes) % 2 == int(inside)
        inside = not outside[-1]
        opens = outside & ((text == ord("[")) | (text == ord("{")))
        closes = outside & ((text == ord("]")) | (text == ord("}")))
        containers += int(np.count_nonzero(opens))
        if containers > MOST_CONTAINERS:
            raise InputError(f"more than {MOST_CONTAINERS} lists and objects")
        keys += int(np.count_nonzero(outside & (text == ord(":"))))
        if keys > MOST_KEYS:
            raise InputError(f"more than {MOST_KEYS} keys")
        depths = depth + np.cumsum(opens.astype(np.int64) - closes)
        if depths.max() > MOST_DEPTH:
            raise InputError(f"lists and objects nest more than {MOST_DEPTH} deep")
        depth = int(depths[-1])


def _quotes(text: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], bool]:
    """Which characters are quotes without a backslash, and whether one is left over at the end."""
    quotes = text == ord('"')
    slashes = np.flatnonzero(text == ord("\\"))
    if not len(slashes):
        return quotes, False
    runs = np.flatnonzero(np.diff(slashes, prepend=-2) > 1)
    lengths = np.diff(runs, append=len(slashes))
    # An even run is backslashes that escape each other.
    escaped = (slashes[runs] + lengths)[lengths % 2 == 1]
    over = len(escaped) > 0 and int(escaped[-1]) == len(text)
    quotes[escaped[:-1] if over else escaped] = False
    return quotes, over


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(f"the key {key!r} is given twice")
            seen.add(key)
    return made


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuses a name that no file can have.

    Raises:
        InputError: it has a zero byte, or characters that the file system cannot spell.
    """
    try:
        name = os.fsencode(path)
        if b"\0" in name:
            raise ValueError("a name has no zero byte")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"a name has at most {LONGEST_NAME} bytes")
    except ValueError as error:
        raise InputError(f"cannot write {path}: {error}") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file to write, which takes the place of ``path`` in one step at the end.

    After an error, or Ctrl-C, ``path`` is as it was. What is no regular file (a pipe, a device)
    is written directly.

    Raises:
        OSError: it cannot be written; names ``path``.
    """
    target = Path(path)
    check_name(path)
    try:
        target = Path(os.path.realpath(target))  # a link stays one, unless it leads nowhere
        known = target.stat() if target.exists() else None
        if known is not None and not stat.S_ISREG(known.st_mode):
            yield target
            return
        made = target.with_name(f".{secrets.token_hex(8)}{target.suffix[:16]}")
        try:
            os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            if known is not None:
                made.chmod(stat.S_IMODE(known.st_mode))
            yield made
            made.replace(target)
        finally:
            with suppress(OSError):
                made.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a whole file in UTF-8, or leaves it as it was.

    Raises:
        OSError: it cannot be written; names ``path``.
    """
    # File names may hold bytes that are no text; they are shown as escapes.
    data = text.encode("utf-8", "backslashreplace")
    with replacing(path) as made:
        made.write_bytes(data)
