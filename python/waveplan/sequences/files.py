"""Token sequences from files, read by json, numpy and pyarrow. Nothing read is executed."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from waveplan.checks import entries, first_line, integers, shown
from waveplan.errors import InputError
from waveplan.files import kind, read_json
from waveplan.sequences.columns import check
from waveplan.sequences.formats import GIVEN, Found, Renamed, understand
from waveplan.sequences.join import Joined
from waveplan.sequences.tables import ArrayTable, ArrowTable, FlatTable, RecordTable, Table

__all__ = ["SUFFIXES", "files_of", "named", "read", "read_table"]

OnRead: TypeAlias = Callable[[int], object]
Names: TypeAlias = Mapping[str, str]

MOST_LINE = 16 << 20
"""Bytes of a line, so that an endless one is refused."""
OLDEST_PYARROW = 15
"""Before 14.0.1, reading a file runs code that the file's types name."""
_BATCH = 1024
"""Sequences of a batch of Parquet."""
_BATCHES = 64
"""Batches that are understood together."""
_BLOCK = 1 << 20
"""Bytes of JSON lines that are held as Python objects at a time."""
_ARROW_BLOCK = 16 << 20
"""The same where pyarrow reads them."""
_LINES = (".jsonl", ".ndjson", ".json")
_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path, _: _zstd(path),
    ".zstd": lambda path, _: _zstd(path),
}
SUFFIXES = (*_LINES, ".npz", ".npy", ".parquet", ".arrow", ".feather")
"""Endings of files that are read; JSON also behind .gz, .zst, .bz2 and .xz."""
_PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin")
_FACTS = ("dataset_info.json", "state.json", "dataset_dict.json", "config.json", "metadata.json")
"""JSON files beside the data of a folder."""


def read(
    paths: str | Path | Sequence[str | Path],
    columns: Names | None = None,
    on_read: OnRead | None = None,
    pad: int | None = None,
) -> Joined:
    """Read files, see `Sequences.load`. ``on_read`` gets the bytes read of JSON lines now and then.

    Raises:
        InputError: a file is missing, damaged or of another form; names file and place.
    """
    files = files_of(paths)
    joined = Joined()
    done = 0
    for file in files:
        base = done

        def report(read: int, base: int = base) -> None:
            nonlocal done
            done = base + read
            if on_read is not None:
                on_read(done)

        with named("stdin" if file == "-" else str(file)):
            joined.begin("stdin" if file == "-" else str(file))
            for found in _parts(file, columns or {}, report):
                joined.add(found)
    return joined.end(pad)


def read_table(table: Table, columns: Names | None = None) -> Found:
    """Understand the rows of a table, some of its columns renamed.

    Raises:
        InputError: see `understand`.
    """
    return understand(Renamed(table, columns) if columns else table)


def files_of(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """Return the files of names and folders, in order.

    Raises:
        InputError: there are none, or a folder holds no file that is read.
    """
    given = [paths] if isinstance(paths, str | Path) else list(entries("path", paths))
    if not given:
        raise InputError("path is empty: name at least one file")
    files: list[str | Path] = []
    for path in given:
        if str(path) == "-":
            files.append("-")
        elif kind(path) == "folder" and Path(path).suffix.lower() not in SUFFIXES:
            files += _folder(Path(path))
        else:
            files.append(Path(path))
    return files


def _folder(folder: Path) -> list[Path]:
    """Return the files of a folder: the shards of a saved dataset, or all that are read."""
    if (folder / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))
        raise InputError(f"{folder}: holds the splits {splits}: name one, such as {folder}/train")
    if (folder / "state.json").is_file():
        state = read_json(folder / "state.json")
        shards = state.get("_data_files") if isinstance(state, dict) else None
        names = [str(shard.get("filename")) for shard in shards or () if isinstance(shard, dict)]
        if names:
            return [folder / name for name in names]
    files = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_file()
        and entry.name[0] not in "._"
        and _kind_of(entry)[0] in SUFFIXES
        and entry.name not in _FACTS
    )
    if files:
        return files
    inner = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    held = f"; it has the folders {', '.join(e.name for e in inner[:10])}" if inner else ""
    raise InputError(f"{folder}: the folder holds no file that ends in {', '.join(SUFFIXES)}{held}")


def _kind_of(file: Path) -> tuple[str, str]:
    """Return the suffix that says how to read a file, and that of its compression."""
    suffix = file.suffix.lower()
    if suffix in _OPENERS:
        return Path(file.stem).suffix.lower(), suffix
    return suffix, ""


def _parts(file: str | Path, columns: Names, on_read: OnRead) -> Iterator[Found]:
    """Read one file, part by part."""
    if str(file) == "-":
        if sys.stdin is None:
            raise InputError("is closed: pipe JSON lines into it")
        yield from _lines(sys.stdin.buffer, columns, on_read)
        return
    file = Path(file)
    suffix, packed = _kind_of(file)
    if suffix not in SUFFIXES or (packed and suffix not in _LINES):
        why = (
            "a pickle can run code: save arrays as .npz, or rows as .jsonl or .parquet"
            if suffix in _PICKLED
            else f"the name must end in {', '.join(SUFFIXES)}, or be a folder, or - for stdin; "
            "JSON may end in .gz or .zst behind that"
        )
        raise InputError(why)
    if suffix in _LINES:
        opened = _OPENERS[packed](file, "rb") if packed else file.open("rb")
        with opened as stream:
            if suffix == ".json":
                yield from _json(stream, columns, on_read)
            else:
                yield from _lines(stream, columns, on_read)
    elif suffix in (".npz", ".npy"):
        yield read_table(_numpy(file), columns)
    else:
        yield from _tables(file, suffix, columns)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Begin every error with the file's name; a library's own message is one line of it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except (EOFError, lzma.LZMAError) as error:
        raise InputError(
            f"{name}: is cut off or damaged, copy it again: {first_line(error)}"
        ) from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or first_line(error)}") from None
    except (MemoryError, RecursionError, AssertionError):
        raise
    except Exception as error:  # whatever a library raises on a damaged or enormous file
        raise InputError(f"{name}: cannot be read: {first_line(error)}") from None


# --- JSON ---


def _lines(stream: IO[bytes] | _Again, columns: Names, on_read: OnRead) -> Iterator[Found]:
    """Read JSON lines, an object a sequence, in blocks: by pyarrow where it is installed and
    understands them, else by json, which also says what is wrong."""
    fast = _json_of_pyarrow()
    number, done, rest = 1, 0, b""
    size = _BLOCK if fast is None else _ARROW_BLOCK
    while True:
        # The first block is small, so that a short file costs no more than its size.
        data = stream.read(size if number > 1 else min(size, 1 << 18))
        done += len(data)
        block = rest + data
        end = block.rfind(b"\n") + 1 if data else len(block)
        if end == 0 and len(block) > MOST_LINE:
            raise InputError(
                f"line {number}: longer than {MOST_LINE} bytes: put one sequence on a line"
            )
        block, rest = block[:end], block[end:]
        if block:
            count = block.count(b"\n") + (not block.endswith(b"\n"))
            found = _block_of_arrow(fast, block, count, number, columns) if fast else None
            yield from _block(block, number, columns) if found is None else [found]
            number += count
            on_read(done)
        if not data:
            return


def _json_of_pyarrow() -> Any:
    if find_spec("pyarrow") is None:
        return None
    version = str(import_module("pyarrow").__version__)
    return import_module("pyarrow.json") if _recent(version) else None


def _block_of_arrow(
    reader: Any, block: bytes, count: int, number: int, columns: Names
) -> Found | None:
    """Understand whole lines; None where one is blank, damaged, or differs from the others."""
    import pyarrow

    if len(block) < 1 << 16:  # starting it takes longer
        return None
    try:
        options = reader.ReadOptions(block_size=1 << 22)
        table = reader.read_json(pyarrow.BufferReader(block), read_options=options)
        known = [name for name in table.schema.names if name in GIVEN or name in columns.values()]
        if table.num_rows != count or any(table[name].null_count for name in known):
            return None
        found = read_table(ArrowTable(table, lambda row: f"line {number + row}"), columns)
        found.rows, found.unit = found.rows + number, "line"
        return found
    except (InputError, pyarrow.ArrowException):
        return None  # read again for the words and the place


def _block(block: bytes, number: int, columns: Names) -> Iterator[Found]:
    """Understand whole lines; runs of lines with the same columns apart."""
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    whole = b"true" not in block and b"false" not in block
    before: tuple[str, ...] | None = None
    keys: dict[tuple[str, ...], tuple[str, ...]] = {}

    def made() -> Found:
        lines = np.array(numbers, np.int64)
        table = RecordTable(records, lambda row: f"line {lines[row]}", whole=whole)
        found = read_table(table, columns)
        found.rows = lines[found.rows]
        found.unit = "line"
        return found

    for at, line in enumerate(block.splitlines() if b"\r" not in block else block.split(b"\n")):
        if not line or line.isspace():
            continue
        if len(line) > MOST_LINE:
            raise InputError(
                f"line {number + at}: longer than {MOST_LINE} bytes: put one sequence on a line"
            )
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            cut = (
                ""
                if block.endswith(b"\n") or not block.endswith(line)
                else ("; the last line looks cut off")
            )
            raise InputError(f"line {number + at}: not JSON ({first_line(error)}){cut}") from None
        if not isinstance(record, dict):
            raise InputError(
                f"line {number + at}: a {type(record).__name__}, not an object: put the token ids "
                'under a name, such as {"input_ids": [1, 2]}'
            )
        names = tuple(record)
        shape = keys.get(names)
        if shape is None:
            shape = tuple(sorted(n for n in names if n in GIVEN or n in columns.values()))
            keys[names] = shape
        if None in record.values():
            record = {name: value for name, value in record.items() if value is not None}
            shape = tuple(name for name in shape if name in record)
        if before is not None and shape != before:
            yield made()
            records, numbers = [], []
        before = shape
        records.append(record)
        numbers.append(number + at)
    if records:
        yield made()


def _json(stream: IO[bytes], columns: Names, on_read: OnRead) -> Iterator[Found]:
    """Read a file of JSON: lines, one list, or one object of columns or of a list."""
    head = stream.read(1 << 16)
    lines = head.lstrip().split(b"\n", 2)
    several = len(lines) > 1 and lines[0].strip().endswith(b"}") and lines[1].lstrip()[:1] == b"{"
    if lines[0][:1] == b"{" and (
        several or (len(lines) == 1 and len(head) == 1 << 16 and not _one(head))
    ):
        yield from _lines(_Again(head, stream), columns, on_read)
        return
    data = head + stream.read()
    on_read(len(data))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({first_line(error)})") from None
    place = lambda row: f"row {row}"  # noqa: E731
    if isinstance(value, dict):
        rows = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        if len(rows) == 1 and not any(name in GIVEN for name in value):
            value = rows[0]
        elif any(isinstance(v, list) and v and isinstance(v[0], list) for v in value.values()):
            yield read_table(ArrayTable(value, place), columns)
            return
        else:
            value = [value]
    if not isinstance(value, list):
        raise InputError(f"a {type(value).__name__}: give lines or a list of objects")
    if value and all(isinstance(row, list) for row in value):
        value = [{"input_ids": row} for row in value]
    for i, row in enumerate(value):
        if not isinstance(row, dict):
            raise InputError(f"row {i}: a {type(row).__name__}, not an object")
    if value:
        same = [tuple(sorted(name for name in row if name in GIVEN)) for row in value]
        for i, names in enumerate(same):
            if names != same[0]:
                odd = min(set(names) ^ set(same[0]))
                raise InputError(f"row {i}: {odd} is not in every row: give it in each or in none")
        yield read_table(RecordTable(value, place), columns)


def _one(head: bytes) -> bool:
    """Whether the beginning of a file looks like one object of lists of lists."""
    return b": [[" in head or b":[[" in head


class _Again:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int) -> bytes:
        """Like a file's."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._stream.read(size)


# --- arrays and tables ---


def _numpy(file: Path) -> Table:
    """Read an archive of arrays, or a 2-D array."""
    place = lambda row: f"sequence {row}"  # noqa: E731
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        if found.ndim != 2:
            raise InputError(f"has shape {found.shape}: give a 2-D array, or .npz")
        return ArrayTable({"input_ids": found}, place)
    with found:
        arrays = {name: found[name] for name in found.files}
    ends = next((n for n in ("offsets", "cu_seqlens", "cu_seq_lens") if n in arrays), None)
    ids = next((n for n in ("tokens", "input_ids", "token_ids") if n in arrays), None)
    if (
        (ends is not None and ids is not None and arrays[ids].ndim < 2)
        or ids is None
        or (ends is None and arrays[ids].ndim < 2)
    ):
        for name in ("tokens" if ids is None else ids, "offsets" if ends is None else ends):
            if name not in arrays:
                if ids is None and any(n in GIVEN and a.ndim == 2 for n, a in arrays.items()):
                    return ArrayTable(arrays, place)
                raise InputError(
                    f"no array {name}: an .npz holds tokens and offsets, or 2-D arrays such as "
                    f"input_ids and attention_mask; it has {', '.join(arrays) or 'none'}"
                )
        assert ids is not None
        assert ends is not None
        tokens, offsets = integers(ids, arrays.pop(ids)), integers(ends, arrays.pop(ends))
        check(tokens, offsets, {})
        return FlatTable({ids: tokens, **arrays}, offsets, place)
    if ids is not None and arrays[ids].ndim > 2:
        raise InputError(f"{ids} has shape {arrays[ids].shape}: give [sequences, tokens]")
    return ArrayTable(arrays, place)


def _tables(file: Path, suffix: str, columns: Names) -> Iterator[Found]:
    """Read a file of Parquet, or a file or stream of Arrow, some batches at a time."""
    pyarrow = _pyarrow("pyarrow")
    if suffix == ".parquet":
        with _pyarrow("pyarrow.parquet").ParquetFile(file) as opened:
            schema = opened.schema_arrow
            names = _picked(schema.names, columns)
            batches = opened.iter_batches(_BATCH, columns=names) if names else iter(())
            yield from _grouped(batches, schema, names, columns)
        return
    ipc = _pyarrow("pyarrow.ipc")
    # Read, not mapped: a file that shrinks later must not take the process with it.
    with pyarrow.OSFile(str(file)) as source:
        try:
            reader = ipc.open_file(source)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        except pyarrow.ArrowInvalid:
            source.seek(0)
            batches = reader = ipc.open_stream(source)
        yield from _grouped(batches, reader.schema, _picked(reader.schema.names, columns), columns)


def _picked(names: list[str], columns: Names) -> list[str]:
    """Return the columns to read: of the others, where none is known, the first, for the words."""
    wanted = [name for name in names if name in GIVEN or name in columns.values()]
    return wanted or names[:20]


def _grouped(batches: Any, schema: Any, names: list[str], columns: Names) -> Iterator[Found]:
    pyarrow = import_module("pyarrow")
    some: list[Any] = []
    first = 0
    part = pyarrow.schema([schema.field(name) for name in names])

    def made() -> Found:
        # Through Python's own loop, so that Ctrl-C is noticed in between.
        table = pyarrow.Table.from_batches([batch.select(names) for batch in some], part)
        table.validate(full=True)  # offsets in a damaged file may point anywhere
        start = first
        found = read_table(ArrowTable(table, lambda row: f"row {start + row}"), columns)
        found.rows = found.rows + start
        found.names = list(schema.names)
        return found

    for batch in batches:
        some.append(batch)
        if len(some) == _BATCHES:
            yield made()
            first += sum(batch.num_rows for batch in some)
            some = []
    if some or not first:
        yield made()


def _recent(version: str) -> bool:
    return int(version.partition(".")[0]) >= OLDEST_PYARROW


def _pyarrow(module: str) -> Any:
    try:
        found, version = import_module(module), str(import_module("pyarrow").__version__)
    except ImportError:
        raise InputError("reading it needs pyarrow: pip install 'waveplan[arrow]'") from None
    if not _recent(version):
        raise InputError(
            f"reading it needs pyarrow {OLDEST_PYARROW} or later, not {shown(version)[1:-1]}"
        )
    return found


def _zstd(path: Path) -> Any:
    return _pyarrow("pyarrow").input_stream(str(path), compression="zstd")
