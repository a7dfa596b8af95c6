"""Rows from files. Memory is bounded by the file: nothing is trusted that it merely declares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from waveplan import _load_arrow, _load_lines, _load_npz
from waveplan._files import kind
from waveplan.errors import InputError
from waveplan.rows import Rows

__all__ = ["load", "said_of"]

T = TypeVar("T")


def load(path: str | Path, on_read: Callable[[int], object] | None = None) -> Rows:
    """See `Rows.load`. `on_read` is told now and then how many bytes of JSON lines are read."""
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("stdin is closed: pipe JSON lines into it")
        return said_of("stdin", lambda: _load_lines.read(sys.stdin.buffer, "stdin", on_read))
    file = Path(path)
    readers: dict[str, Callable[[Path], Rows]] = {
        ".npz": _load_npz.load,
        ".jsonl": lambda file: _load_lines.load(file, on_read),
        ".parquet": _load_arrow.load_parquet,
        ".arrow": _load_arrow.load_arrow,
    }
    if "\0" in str(path):
        raise InputError(f"{path} is no file name: it holds a null byte")
    suffix = file.suffix.lower()
    reader = readers.get(suffix)
    if reader is None:
        raise InputError(f"{file}: the name must end in {', '.join(readers)}, or be - for stdin")
    if suffix != ".jsonl" and kind(file) == "other":
        raise InputError(f"{file}: cannot be read: only JSON lines come from a pipe or a device")
    return said_of(str(file), lambda: reader(file).check_tokens())


def said_of(name: str, work: Callable[[], T]) -> T:
    """What `work` reads; errors begin with the name."""
    try:
        return work()
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(name) else f"{name}: {text}") from None
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except MemoryError:
        raise InputError(f"{name}: cannot be read: there is not enough memory for it") from None
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise InputError(f"{name}: cannot be read: {reason}") from None
