"""Rows from files. Memory is bounded by the file: nothing is trusted that it merely declares."""

from __future__ import annotations

import json
import math
import sys
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from waveplan._gather import row_from, rows_from_arrow
from waveplan.errors import InputError
from waveplan.rows import Rows, integers

__all__ = ["load"]

KEYS = "input_ids, or tokens, or prompt_ids and completion_ids"
COLUMNS = ("first_target", "group")

# A member of an archive may unpack to 64 MiB, or to 200 times the archive if that is more.
FREE_BYTES = 64 << 20
MOST_RATIO = 200


def load(path: str | Path, on_read: Callable[[int], object] | None = None) -> Rows:
    """See `Rows.load`. `on_read` is told now and then how many bytes of JSON lines are read."""
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("stdin is closed: pipe JSON lines into it")
        return _from_lines(_counted(sys.stdin.buffer, on_read), "stdin").check_tokens()
    file = Path(path)
    readers: dict[str, Callable[[Path], Rows]] = {
        ".npz": _load_npz,
        ".jsonl": lambda file: _load_jsonl(file, on_read),
        ".parquet": _load_parquet,
        ".arrow": _load_arrow,
    }
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise InputError(f"{file}: the name must end in {', '.join(readers)}, or be - for stdin")
    try:
        return _prefixed(file, lambda: reader(file).check_tokens())
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise InputError(f"{file}: cannot be read: {reason}") from None


def _prefixed(file: Path, work: Callable[[], Rows]) -> Rows:
    try:
        return work()
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(file)) else f"{file}: {text}") from None


# --- .jsonl ---


def _load_jsonl(file: Path, on_read: Callable[[int], object] | None) -> Rows:
    with file.open("rb") as lines:
        return _from_lines(_counted(lines, on_read), str(file))


def _counted(lines: Iterable[bytes], on_read: Callable[[int], object] | None) -> Iterable[bytes]:
    """The same lines; tells every 256 KiB how many bytes have passed."""
    if on_read is None:
        yield from lines
        return
    done = told = 0
    for line in lines:
        yield line
        done += len(line)
        if done - told >= 1 << 18:
            told = done
            on_read(done)


def _from_lines(lines: Iterable[bytes], name: str) -> Rows:
    """Streams JSON lines; only one line at a time is held as Python objects."""
    tokens, offsets = array("q"), array("q", [0])
    columns: dict[str, array[int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
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
        record = json.loads(line)
    except json.JSONDecodeError as error:
        cut = "" if line.endswith(b"\n") else "; the last line looks cut off"
        reason = f"{error.msg} at column {error.colno}"
        raise InputError(f"{where}: not JSON ({reason}){cut}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({str(error).partition(':')[0]})") from None
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


# --- .npz ---


def _load_npz(file: Path) -> Rows:
    archive_bytes = file.stat().st_size
    try:
        with zipfile.ZipFile(file) as archive:
            names = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            for key in ("tokens", "offsets"):
                if key not in names:
                    raise InputError(f"no array {key}: an .npz holds tokens and offsets")
            tokens, offsets = (
                _read_member(archive, names[key], key, archive_bytes)
                for key in ("tokens", "offsets")
            )
            rows = Rows(tokens, offsets)
            columns = {
                key: integers(key, _read_member(archive, info, key, archive_bytes))
                for key, info in names.items()
                if key in COLUMNS
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0] or "it ends too early"
        raise InputError(f"not a whole .npz archive: {reason}") from None
    return Rows(rows.tokens, rows.offsets, columns)


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
        data = member.read()
    if len(data) != rest:
        raise InputError(f"{key} is cut off after {len(data)} of {rest} bytes")
    return np.frombuffer(data, dtype)


def _read_header(
    member: IO[bytes], info: zipfile.ZipInfo, key: str
) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    try:
        version = np.lib.format.read_magic(member)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read(member)
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{key} is not a numpy array: {reason}") from None
    return shape, dtype, info.file_size - member.tell()


# --- .parquet, .arrow ---


def _pyarrow(file: Path, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f"{file}: reading it needs pyarrow: pip install 'waveplan[arrow]'"
        ) from None


def _load_parquet(file: Path) -> Rows:
    pyarrow, parquet = _pyarrow(file, "pyarrow"), _pyarrow(file, "pyarrow.parquet")
    file_bytes = file.stat().st_size
    try:
        table = parquet.ParquetFile(file)
        names = _columns_to_read(table.schema_arrow.names)
        return _joined(table.iter_batches(batch_size=1024, columns=names), file_bytes)
    except InputError:
        raise
    except (pyarrow.ArrowException, ValueError) as error:  # ValueError: names that are no UTF-8
        raise InputError(f"not a whole .parquet file: {_first_line(error)}") from None


def _load_arrow(file: Path) -> Rows:
    pyarrow, ipc = _pyarrow(file, "pyarrow"), _pyarrow(file, "pyarrow.ipc")
    file_bytes = file.stat().st_size
    try:
        # Read, not mapped: a file that shrinks later must not take the process with it.
        with pyarrow.OSFile(str(file)) as source:
            reader: Any
            try:
                reader = ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pyarrow.ArrowInvalid:
                source.seek(0)
                reader = ipc.open_stream(source)
                batches = iter(reader)
            names = _columns_to_read(reader.schema.names)
            return _joined((batch.select(names) for batch in batches), file_bytes)
    except InputError:
        raise
    except (pyarrow.ArrowException, ValueError) as error:  # ValueError: names that are no UTF-8
        raise InputError(f"not a whole .arrow file: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _columns_to_read(names: list[str]) -> list[str]:
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


def _joined(found: Iterable[Any], file_bytes: int) -> Rows:
    """All batches as one; refuses to unpack far more than the file holds."""
    batches, tokens = [], 0
    for batch in found:
        batch.validate(full=True)  # offsets in a damaged file may point anywhere
        batches.append(_batch(batch))
        tokens += len(batches[-1].tokens)
        if 8 * tokens > max(FREE_BYTES, MOST_RATIO * file_bytes):
            raise InputError(
                f"unpacks to more than {MOST_RATIO} times its {file_bytes} bytes: "
                "give it as .npz, or in parts"
            )
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
