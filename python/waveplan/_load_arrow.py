"""Rows from Parquet and Arrow files, through pyarrow, which is imported only here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from waveplan._arrow_sizes import unpacked_bytes
from waveplan._gather import rows_from_arrow
from waveplan._load_lines import COLUMNS, KEYS
from waveplan._load_npz import FREE_BYTES, MOST_RATIO
from waveplan._parquet_sizes import unpacked_bytes as unpacked_columns
from waveplan.errors import InputError
from waveplan.rows import Rows, integers

__all__ = ["load_arrow", "load_parquet"]


OLDEST_PYARROW = 15
"""Before 14.0.1 reading a file runs code that the file's types name."""


def _pyarrow(file: Path, module: str) -> Any:
    try:
        found, version = import_module(module), str(import_module("pyarrow").__version__)
    except ImportError:
        raise InputError(
            f"{file}: reading it needs pyarrow: pip install 'waveplan[arrow]'"
        ) from None
    major = version.partition(".")[0]
    if not major.isdecimal() or int(major) < OLDEST_PYARROW:
        raise InputError(
            f"{file}: reading it needs pyarrow {OLDEST_PYARROW} or later, not {version}: "
            "pip install 'waveplan[arrow]'"
        )
    return found


def load_parquet(file: Path) -> Rows:
    """The rows of a Parquet file."""
    pyarrow, parquet = _pyarrow(file, "pyarrow"), _pyarrow(file, "pyarrow.parquet")
    most = _most(file)
    try:
        table = parquet.ParquetFile(file)
        names = _columns_to_read(table.schema_arrow.names)
        _refuse_above(most, unpacked_columns(file, names))
        return _joined(table.iter_batches(batch_size=256, columns=names), most)
    except InputError:
        raise
    except (pyarrow.ArrowException, ValueError) as error:  # ValueError: names that are no UTF-8
        raise InputError(f"not a whole .parquet file: {_first_line(error)}") from None


def load_arrow(file: Path) -> Rows:
    """The rows of an Arrow file or stream."""
    pyarrow, ipc = _pyarrow(file, "pyarrow"), _pyarrow(file, "pyarrow.ipc")
    most = _most(file)
    try:
        # Read, not mapped: a file that shrinks later must not take the process with it.
        with pyarrow.OSFile(str(file)) as source:
            _refuse_above(most, _compressed_bytes(pyarrow, ipc, source))
            reader: Any
            try:
                source.seek(0)
                reader = ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pyarrow.ArrowInvalid:
                source.seek(0)
                reader = ipc.open_stream(source)
                batches = iter(reader)
            names = _columns_to_read(reader.schema.names)
            return _joined((batch.select(names) for batch in batches), most)
    except InputError:
        raise
    except (pyarrow.ArrowException, ValueError) as error:  # ValueError: names that are no UTF-8
        raise InputError(f"not a whole .arrow file: {_first_line(error)}") from None


def _compressed_bytes(pyarrow: Any, ipc: Any, source: Any) -> int:
    """What the compressed buffers of all messages declare; a file is a stream in a frame."""
    magic = source.read(8)
    source.seek(8 if magic == b"ARROW1\0\0" else 0)
    total = 0
    try:
        for message in ipc.MessageReader.open_stream(source):
            total += unpacked_bytes(message)
    except (pyarrow.ArrowException, OSError, ValueError):
        return total  # where it ends is for the reader to complain about
    return total


def _most(file: Path) -> tuple[int, int]:
    """Bytes that a file may unpack to, and its own."""
    size = file.stat().st_size
    return max(FREE_BYTES, MOST_RATIO * size), size


def _refuse_above(most: tuple[int, int], unpacked: int) -> None:
    if unpacked > most[0]:
        raise InputError(
            f"unpacks to more than {MOST_RATIO} times its {most[1]} bytes: "
            "give it as .npz, or in parts"
        )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _columns_to_read(names: list[str]) -> list[str]:
    for name in (*COLUMNS, "input_ids", "tokens", "prompt_ids", "completion_ids"):
        if names.count(name) > 1:
            raise InputError(f"has the column {name} {names.count(name)} times: give it once")
    extra = [name for name in COLUMNS if name in names]
    for ids in (["input_ids"], ["tokens"], ["prompt_ids", "completion_ids"]):
        if set(ids) <= set(names):
            return ids + extra
    raise InputError(f"has the columns {', '.join(names[:20]) or '(none)'}: give {KEYS}")


def _batch(batch: Any) -> Rows:
    columns = {name: batch.column(name) for name in batch.schema.names}
    extra = {
        name: integers(name, columns[name].to_numpy(zero_copy_only=False))
        for name in COLUMNS
        if name in columns
    }
    if "prompt_ids" not in columns:
        (name,) = (name for name in columns if name not in COLUMNS)
        rows = rows_from_arrow(columns[name], name)
        return Rows(rows.tokens, rows.offsets, extra)
    prompts = rows_from_arrow(columns["prompt_ids"], "prompt_ids")
    completions = rows_from_arrow(columns["completion_ids"], "completion_ids")
    extra.setdefault("first_target", prompts.lengths)
    tokens = np.empty(len(prompts.tokens) + len(completions.tokens), np.int64)
    offsets = prompts.offsets + completions.offsets
    for i, start in enumerate(offsets[:-1].tolist()):
        middle = start + len(prompts[i])
        tokens[start:middle] = prompts[i]
        tokens[middle : middle + len(completions[i])] = completions[i]
    return Rows(tokens, offsets, extra)


def _joined(found: Iterable[Any], most: tuple[int, int]) -> Rows:
    """All batches as one; refuses to unpack far more than the file holds."""
    batches, tokens, rows = [], 0, 0
    for batch in found:
        _refuse_above(most, 8 * (rows + batch.num_rows))  # rows may be declared without any bytes
        rows += batch.num_rows
        batch.validate(full=True)  # offsets in a damaged file may point anywhere
        batches.append(_batch(batch))
        tokens += len(batches[-1].tokens)
        _refuse_above(most, 8 * tokens)
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return Rows(np.empty(0, np.int64), np.zeros(1, np.int64))
    starts = np.cumsum([0] + [len(batch.tokens) for batch in batches])
    shifted = [b.offsets[:-1] + start for b, start in zip(batches, starts, strict=False)]
    return Rows(
        np.concatenate([batch.tokens for batch in batches]),
        np.concatenate([*shifted, starts[-1:]]),
        {
            name: np.concatenate([batch.columns[name] for batch in batches])
            for name in batches[0].columns
        },
    )
