"""Token sequences from files, read by json, numpy and pyarrow. Nothing read is executed."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from waveplan.checks import first_line, integers
from waveplan.errors import InputError
from waveplan.sequences.columns import arrow_integers, arrow_lists, interleave, lists, place

__all__ = ["COLUMNS", "IDS", "read"]

Int64 = NDArray[np.int64]
Found: TypeAlias = tuple[Int64, Int64, dict[str, Int64]]
"""Tokens [T], offsets [n + 1], and columns with one integer a sequence."""
Made = TypeVar("Made")

IDS = (("input_ids",), ("tokens",), ("prompt_ids", "completion_ids"))
"""Names under which token ids are found; of two lists the second follows the first."""
COLUMNS = ("first_target", "group")
WANTED = "give " + ", or ".join(" and ".join(ids) for ids in IDS)
MOST_LINE = 16 << 20
"""Bytes of a line, so that an endless one is refused."""
OLDEST_PYARROW = 15
"""Before 14.0.1, reading a file runs code that the file's types name."""
_BATCH = 1024
"""Sequences of a batch of Parquet."""
_STEP = 1 << 18
"""Bytes between two reports of progress."""


def read(
    path: str | Path,
    make: Callable[[Int64, Int64, dict[str, Int64]], Made],
    on_read: Callable[[int], object] | None = None,
) -> Made:
    """Read a file, see `Sequences.load`, into what `make` returns for it, which checks the offsets.

    `on_read` gets the bytes read of JSON lines now and then.

    Raises:
        InputError: the file is missing, damaged or of another form; names file and place.
    """
    if str(path) == "-":
        with _named("stdin"):
            if sys.stdin is None:
                raise InputError("is closed: pipe JSON lines into it")
            return make(*_lines(sys.stdin.buffer, on_read))
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".jsonl", *_READERS):
        known = ", ".join((".jsonl", *_READERS))
        raise InputError(f"{file}: the name must end in {known}, or be - for stdin")
    with _named(str(file)):
        if suffix == ".jsonl":
            with file.open("rb") as lines:
                return make(*_lines(lines, on_read))
        tokens, offsets, columns = _READERS[suffix](file)
        made = make(tokens, offsets, columns)
        if len(tokens) and tokens.min() < 0:
            first = int(np.argmax(tokens < 0))
            sequence, at = place(offsets, first)
            raise InputError(
                f"sequence {sequence} has token {tokens[first]} at position {at}: "
                "token ids are at least 0"
            )
        return made


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Begin every error with the file's name; a library's own message is one line of it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or first_line(error)}") from None
    except Exception as error:  # whatever a library raises on a damaged or enormous file
        raise InputError(f"{name}: cannot be read: {first_line(error)}") from None


def _lines(stream: IO[bytes], on_read: Callable[[int], object] | None) -> Found:
    """Read JSON lines, an object a sequence; one line at a time is held as Python objects."""
    tokens, offsets, numbers = array("q"), array("q", [0]), array("q")
    columns: dict[str, array[int]] = {}
    done = reported = 0
    for number, line in enumerate(iter(lambda: stream.readline(MOST_LINE + 1), b""), 1):
        if len(line) > MOST_LINE:
            raise InputError(
                f"line {number}: longer than {MOST_LINE} bytes: put one sequence on a line"
            )
        done += len(line)
        if on_read is not None and done - reported >= _STEP:
            reported = done
            on_read(done)
        if line.isspace():
            continue
        try:
            extra = _append(json.loads(line), tokens)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number}: {_said(line, error)}") from None
        if not numbers:
            columns = {name: array("q") for name in extra}
        if extra.keys() != columns.keys():
            odd = min(extra.keys() ^ columns.keys())
            state = "is missing here" if odd in columns else "was missing before"
            raise InputError(f"line {number}: {odd} {state}: give it on every line or on none")
        for name, value in extra.items():
            columns[name].append(value)
        numbers.append(number)
        offsets.append(len(tokens))
    ids, ends = np.frombuffer(tokens, np.int64), np.frombuffer(offsets, np.int64)
    if len(ids) and ids.min() < 0:
        first = int(np.argmax(ids < 0))
        sequence, at = place(ends, first)
        raise InputError(
            f"line {numbers[sequence]}: token {at} is {ids[first]}: token ids are at least 0"
        )
    return ids, ends, {name: np.frombuffer(column, np.int64) for name, column in columns.items()}


def _said(line: bytes, error: ValueError | RecursionError) -> str:
    if isinstance(error, InputError):
        return str(error)
    cut = "" if line.endswith(b"\n") else "; the last line looks cut off"
    return f"not JSON ({first_line(error)}){cut}"


def _append(record: Any, tokens: array[int]) -> dict[str, int]:
    """Append the token ids of one line; return its columns."""
    if not isinstance(record, dict):
        raise InputError(f"a {type(record).__name__}, not an object: {WANTED}")
    names = next((ids for ids in IDS if all(record.get(name) is not None for name in ids)), None)
    if names is None:
        raise InputError(f"no token ids: {WANTED}")
    start = len(tokens)
    extra: dict[str, int] = {}
    for name in names:
        if name != names[0]:
            extra["first_target"] = len(tokens) - start
        _extend(tokens, name, record[name])
    for name in COLUMNS:
        if record.get(name) is not None:
            extra[name] = int(integers(name, [record[name]])[0])
    return extra


def _extend(tokens: array[int], name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise InputError(f"{name} is a {type(values).__name__}: give a list of token ids")
    try:
        if not set(map(type, values)) <= {int}:
            raise OverflowError
        tokens.extend(values)
    except OverflowError:
        integers(name, values)  # raises, naming the entry
        raise


def _numpy(file: Path) -> Found:
    """Read an archive of ``tokens`` and ``offsets``, or a 2-D array."""
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return *lists(found), {}
    with found:
        for name in ("tokens", "offsets"):
            if name not in found:
                raise InputError(f"no array {name}: an .npz holds tokens and offsets")
        tokens, offsets = (integers(name, found[name]) for name in ("tokens", "offsets"))
        columns = {name: integers(name, found[name]) for name in COLUMNS if name in found}
        return tokens, offsets, columns


def _parquet(file: Path) -> Found:
    with _pyarrow("pyarrow.parquet").ParquetFile(file) as opened:
        names = _names(opened.schema_arrow.names)
        # In batches and through Python's own loop, so that Ctrl-C is noticed in between.
        batches = (batch.select(names) for batch in opened.iter_batches(_BATCH, columns=names))
        return _table(batches, opened.schema_arrow, names)


def _arrow(file: Path) -> Found:
    """Read an Arrow file or stream."""
    ipc, pyarrow = _pyarrow("pyarrow.ipc"), _pyarrow("pyarrow")
    # Read, not mapped: a file that shrinks later must not take the process with it.
    with pyarrow.OSFile(str(file)) as source:
        try:
            reader = ipc.open_file(source)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        except pyarrow.ArrowInvalid:
            source.seek(0)
            batches = reader = ipc.open_stream(source)
        names = _names(reader.schema.names)
        return _table((batch.select(names) for batch in batches), reader.schema, names)


def _pyarrow(module: str) -> Any:
    try:
        found, version = import_module(module), str(import_module("pyarrow").__version__)
    except ImportError:
        raise InputError("reading it needs pyarrow: pip install 'waveplan[arrow]'") from None
    if int(version.partition(".")[0]) < OLDEST_PYARROW:
        raise InputError(f"reading it needs pyarrow {OLDEST_PYARROW} or later, not {version}")
    return found


def _names(names: list[str]) -> list[str]:
    """Return the columns to read."""
    for ids in IDS:
        if set(ids) <= set(names):
            return [*ids, *(name for name in COLUMNS if name in names)]
    raise InputError(f"has the columns {', '.join(names[:20]) or '(none)'}: {WANTED}")


def _table(batches: Iterable[Any], schema: Any, names: list[str]) -> Found:
    pyarrow = import_module("pyarrow")
    table = pyarrow.Table.from_batches(batches, pyarrow.schema([schema.field(n) for n in names]))
    table.validate(full=True)  # offsets in a damaged file may point anywhere
    columns = {name: arrow_integers(name, table[name]) for name in names if name in COLUMNS}
    first, *rest = (arrow_lists(name, table[name]) for name in names if name not in COLUMNS)
    if not rest:
        return *first, columns
    columns.setdefault("first_target", np.diff(first[1]))
    return *interleave(first, rest[0]), columns


_READERS: dict[str, Callable[[Path], Found]] = {
    ".npz": _numpy,
    ".npy": _numpy,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
