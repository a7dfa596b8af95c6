"""Token sequences from files, read by json, numpy and pyarrow. Nothing read is executed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from waveplan.checks import entries, first_line, integers, shown
from waveplan.errors import InputError
from waveplan.files import kind
from waveplan.files import read_json as json_of
from waveplan.sequences.columns import check
from waveplan.sequences.formats import read_table
from waveplan.sequences.join import Joined
from waveplan.sequences.lines import OLDEST_PYARROW, read_json, read_lines, recent
from waveplan.sequences.names import CUMULATIVE, GIVEN, NUMBERED, PACKED, POSITIONS, WHOLE
from waveplan.sequences.reader import Found
from waveplan.sequences.tables import ArrayTable, ArrowTable, FlatTable, Table

__all__ = ["SUFFIXES", "files_of", "named", "read"]

OnRead: TypeAlias = Callable[[int], object]
Names: TypeAlias = Mapping[str, str]

_BATCH = 1024
"""Sequences of a batch of Parquet."""
_BATCHES = 64
"""Batches that are understood together."""
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
_PICKLED = (".pt", ".pth", ".pkl", ".pickle")
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
        elif kind(path) == "folder":
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
        state = json_of(folder / "state.json")
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
        yield from read_lines(sys.stdin.buffer, columns, on_read)
        return
    file = Path(file)
    suffix, packed = _kind_of(file)
    if kind(str(file)) is None:
        raise FileNotFoundError
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
                yield from read_json(stream, columns, on_read)
            else:
                yield from read_lines(stream, columns, on_read)
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
    arrays = _flattened(arrays)
    ends = next((n for n in ("offsets", *CUMULATIVE) if n in arrays), None)
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


def _flattened(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return a line of flat arrays as one row, where it has no offsets but says what is packed; and
    a row with offsets as flat arrays."""
    ids = next((arrays[name] for name in WHOLE if name in arrays), None)
    if ids is None:
        return arrays
    cut = any(name in arrays for name in ("offsets", *CUMULATIVE))
    if ids.ndim == 1 and not cut and any(n in arrays for n in (*POSITIONS, *PACKED, *NUMBERED)):
        return {name: found[None] if found.ndim == 1 else found for name, found in arrays.items()}
    if ids.ndim == 2 and len(ids) == 1 and cut:
        return {
            name: found[0] if found.shape[:1] == (1,) and found.ndim > 1 else found
            for name, found in arrays.items()
        }
    return arrays


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


def _pyarrow(module: str) -> Any:
    try:
        found, version = import_module(module), str(import_module("pyarrow").__version__)
    except ImportError:
        raise InputError("reading it needs pyarrow: pip install 'waveplan[arrow]'") from None
    if not recent(version):
        raise InputError(
            f"reading it needs pyarrow {OLDEST_PYARROW} or later, not {shown(version)[1:-1]}"
        )
    return found


def _zstd(path: Path) -> Any:
    return _pyarrow("pyarrow").input_stream(str(path), compression="zstd")
