"""Rows from JSON lines, one object a row."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from waveplan._files import parse_json
from waveplan._gather import row_from
from waveplan.errors import InputError
from waveplan.rows import Rows

__all__ = ["COLUMNS", "KEYS", "MOST_LINE", "load", "read"]

KEYS = "input_ids, or tokens, or prompt_ids and completion_ids"
COLUMNS = ("first_target", "group")
MOST_LINE = 12 << 20
"""Longest line in bytes: it is parsed in one step that Ctrl-C cannot stop, and takes up to twenty
times its own size as Python objects."""
MOST_BLANK = 1 << 16
"""Lines without a row in one file."""
TOLD = 1 << 18


def load(file: Path, on_read: Callable[[int], object] | None) -> Rows:
    """The rows of a file."""
    with file.open("rb") as lines:
        return read(lines, str(file), on_read)


def read(lines: IO[bytes], name: str, on_read: Callable[[int], object] | None) -> Rows:
    """Streams JSON lines; only one line at a time is held as Python objects."""
    tokens, offsets = array("q"), array("q", [0])
    columns: dict[str, array[int]] = {}
    number = blank = done = told = 0
    while line := lines.readline(MOST_LINE + 1):
        number += 1
        done += len(line)
        if on_read is not None and done - told >= TOLD:
            told = done
            on_read(done)
        if len(line) > MOST_LINE:
            raise InputError(
                f"{name} line {number}: longer than {MOST_LINE} bytes: put one row on a line"
            )
        if line.isspace():
            blank += 1
            if blank > MOST_BLANK:
                raise InputError(f"{name} line {number}: more than {MOST_BLANK} lines are empty")
            continue
        where = f"{name} line {number}"
        ids, extra = _parse_line(line, where)
        tokens.frombytes(ids.tobytes())
        if len(offsets) == 1:
            columns = {key: array("q") for key in extra}
        if extra.keys() != columns.keys():
            odd = min(extra.keys() ^ columns.keys())
            state = "is missing here" if odd in columns else "was missing before"
            raise InputError(f"{where}: {odd} {state}: give it on every line or on none")
        for key, value in extra.items():
            columns[key].append(value)
        offsets.append(len(tokens))
    return Rows(
        np.frombuffer(tokens, np.int64),
        np.frombuffer(offsets, np.int64),
        {key: np.frombuffer(values, np.int64) for key, values in columns.items()},
    )


def _parse_line(line: bytes, where: str) -> tuple[NDArray[np.int64], dict[str, int]]:
    try:
        record = parse_json(line)
    except InputError as error:
        cut = "" if line.endswith(b"\n") else "; the last line looks cut off"
        raise InputError(f"{where}: not JSON ({error}){cut}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: a {type(record).__name__}, not an object with {KEYS}")
    extra: dict[str, int] = {}
    if record.get("input_ids") is not None:
        ids = _ids(record, "input_ids", where)
    elif record.get("tokens") is not None:
        ids = _ids(record, "tokens", where)
    elif record.get("prompt_ids") is not None and record.get("completion_ids") is not None:
        prompt = _ids(record, "prompt_ids", where)
        ids = np.concatenate([prompt, _ids(record, "completion_ids", where)])
        extra["first_target"] = len(prompt)
    else:
        raise InputError(f"{where}: no token ids: give {KEYS}")
    if len(ids) and ids.min() < 0:
        at = int(np.argmax(ids < 0))
        raise InputError(f"{where}: token {at} is {ids[at]}: token ids are at least 0")
    for key in COLUMNS:
        if record.get(key) is not None:
            extra[key] = int(row_from([record[key]], f"{where}: {key}")[0])
    return ids, extra


def _ids(record: Mapping[str, Any], key: str, where: str) -> NDArray[np.int64]:
    value = record[key]
    if not isinstance(value, list):
        raise InputError(f"{where}: {key} is a {type(value).__name__}: give a list of token ids")
    return row_from(value, f"{where}: {key}")
