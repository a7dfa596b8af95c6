"""Files of token rows that lie, explode, end too early or are something else entirely."""

from __future__ import annotations

import bz2
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from waveplan import InputError, Rows, _files, _load_lines
from waveplan.cli import main

I8 = {"descr": "<i8", "fortran_order": False}
FINE = b'{"tokens": [1]}\n'


def refused(path: Path, *says: str) -> str:
    """The error of loading a file: one short line that begins with its name."""
    with pytest.raises(InputError) as error:
        Rows.load(path)
    text = str(error.value)
    assert text.startswith(f"{path}")
    assert text.count(str(path)) == 1
    assert "\n" not in text
    assert len(text) <= 1010
    for part in says:
        assert part in text
    return text


# --- .npz ---


def array(values: Any = (0, 1), **header: Any) -> bytes:
    """An .npy file whose header may say something else than what follows."""
    data = np.asarray(values, np.int64).tobytes()
    text = str({**I8, "shape": (len(data) // 8,), **header}).encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + data


class Zip:
    """An archive written byte by byte, so that every field can lie."""

    def __init__(self) -> None:
        self.body, self.directory, self.count = b"", b"", 0

    def add(
        self,
        name: str,
        data: bytes,
        *,
        raw: bytes | None = None,
        method: int = 0,
        flags: int = 0,
        declared: int | None = None,
    ) -> Zip:
        raw = data if raw is None else raw
        size = len(data) if declared is None else declared
        fields = struct.pack("<HHHIII", method, 0, 0, zlib.crc32(data), len(raw), size)
        tail = struct.pack("<HH", len(name), 0)
        entry = struct.pack("<HH", 20, flags) + fields + tail
        self.directory += b"PK\1\2" + struct.pack("<H", 20) + entry + bytes(6)
        self.directory += struct.pack("<II", 0o120777 << 16, len(self.body)) + name.encode()
        self.body += b"PK\3\4" + entry + name.encode() + raw
        self.count += 1
        return self

    def write(self, path: Path) -> Path:
        end = struct.pack("<HHHH", 0, 0, self.count, self.count)
        end += struct.pack("<IIH", len(self.directory), len(self.body), 0)
        path.write_bytes(self.body + self.directory + b"PK\5\6" + end)
        return path


def test_an_honest_archive_written_so_is_read(tmp_path: Path) -> None:
    path = Zip().add("tokens.npy", array([5, 6, 7])).add("offsets.npy", array([0, 3]))
    assert Rows.load(path.write(tmp_path / "rows.npz"))[0].tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"shape": (1 << 60,)}, "declares shape"),
        ({"shape": (-1,)}, "no plain type and shape"),
        ({"shape": (1 << 70,)}, "its shape is (1180591620717411303424,)"),
        ({"shape": (2, 1)}, "has shape (2, 1)"),
        ({"shape": ()}, "has shape ()"),
        ({"shape": [2]}, "no plain type and shape"),
        ({"shape": 2}, "no plain type and shape"),
        ({"shape": "(2,)"}, "no plain type and shape"),
        ({"descr": [("a", "<i8")]}, "no plain type and shape"),
        ({"descr": "|O"}, "pickled objects"),
        ({"descr": "<f8"}, "dtype float64"),
        ({"descr": "<M8"}, "dtype datetime64"),
        ({"descr": "|V8"}, "dtype |V8"),
        ({"descr": "<U2"}, "dtype <U2"),
        ({"descr": "<c16"}, "declares shape"),
        ({"descr": "|b1"}, "declares shape"),
        ({"descr": "<i9"}, "is not a numpy array"),
        ({"descr": "<i99999"}, "is not a numpy array"),
        ({"descr": "__import__('os')"}, "no plain type and shape"),
        ({"descr": "|V0"}, "dtype |V0"),
        ({"descr": "<U0"}, "dtype <U0"),
        ({"descr": "|S"}, "dtype |S0"),
    ],
)
def test_headers_of_arrays(header: dict[str, Any], says: str, tmp_path: Path) -> None:
    for key in ("tokens", "offsets"):
        members = {"tokens": array([0, 1]), "offsets": array([0, 2])}
        archive = Zip()
        for name, data in {**members, key: array([0, 2], **header)}.items():
            archive.add(f"{name}.npy", data)
        refused(archive.write(tmp_path / "rows.npz"), key, says)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\0",
        b"\x93NUMPY\x01\0\x05",
        b"\x93NUMPY\x09\0\0\0",
        b"\x93NUMPY\x01\0\xff\xff{",
        b"\x93NUMPY\x02\0\xff\xff\xff\xff{",
        b"\x93NUMPY\x01\0\x10\x27" + b"-" * 10_000,
        b"\x93NUMPY\x01\0\x10\x27" + b"(" * 10_000,
        b"\x93NUMPY\x01\0\x04\0\xff\xfe\0\0",
        pickle.dumps([1, 2]),
        b"PK\3\4nested archive",
    ],
)
def test_members_that_are_no_arrays(data: bytes, tmp_path: Path) -> None:
    path = Zip().add("tokens.npy", data).add("offsets.npy", array()).write(tmp_path / "rows.npz")
    refused(path, "tokens is not a numpy array")


class Bomb:
    """Says so when somebody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.putenv, ("WAVEPLAN_WAS_UNPICKLED", "1")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=np.array([Bomb()], object), offsets=np.array([0, 1]))
    refused(path, "pickled objects, which are never loaded")
    seen = subprocess.run(["printenv", "WAVEPLAN_WAS_UNPICKLED"], capture_output=True, check=False)
    assert seen.stdout == b""


def test_other_byte_orders_and_fortran_order_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    tokens = np.asfortranarray(np.array([5, 6, 7], ">i2"))
    np.savez(path, tokens=tokens, offsets=np.array([0, 3], ">u8"))
    assert Rows.load(path)[0].tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"flags": 1}, "encrypted"),
        ({"method": zipfile.ZIP_BZIP2, "raw": bz2.compress(array())}, "unusual method"),
        ({"method": zipfile.ZIP_LZMA}, "unusual method"),
        ({"method": 99}, "unusual method"),
        ({"method": zipfile.ZIP_DEFLATED, "raw": b"\xff\xff\xff"}, "not a whole .npz archive"),
        ({"declared": (1 << 32) - 2}, "declares 4294967294 bytes"),
        ({"declared": 90}, "holds"),
        ({"declared": 1 << 20}, "holds"),
    ],
)
def test_members_that_lie(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    archive = Zip().add("tokens.npy", array(), **changes).add("offsets.npy", array([0, 2]))
    refused(archive.write(tmp_path / "rows.npz"), says)


def test_members_given_twice_are_refused(tmp_path: Path) -> None:
    for again in ("tokens.npy", "tokens"):
        archive = Zip().add("tokens.npy", array()).add("offsets.npy", array([0, 2]))
        refused(archive.add(again, array([8, 9])).write(tmp_path / "rows.npz"), "tokens twice")


def test_other_members_are_not_even_opened(tmp_path: Path) -> None:
    archive = Zip().add("../../etc/passwd", b"x").add("prices.npy", b"?", method=99, flags=1)
    archive.add("tokens.npy", array()).add("offsets.npy", array([0, 2]))
    assert len(Rows.load(archive.write(tmp_path / "rows.npz"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


# --- bombs: what a file unpacks to is bounded by what it is ---


def deflated(head: bytes, mebibytes: int) -> bytes:
    """A deflate stream of zeros behind a head, made without making them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * mebibytes + b"\x03\0"


def bombs(folder: Path) -> dict[str, Path]:
    made = {}
    head = array([], shape=(1 << 27,))
    raw = deflated(head, 1024)
    offsets = array([0, 1 << 27])

    def archive(name: str, **changes: Any) -> None:
        zipped = Zip().add("tokens.npy", head, method=8, raw=raw, **changes)
        made[name] = zipped.add("offsets.npy", offsets).write(folder / name)

    archive("declared.npz", declared=len(head) + (1 << 30))
    # Declares little, and a header that agrees: only reading no more than that bounds it.
    small = array([], shape=(8,))
    zipped = Zip().add("tokens.npy", small + bytes(64), method=8, raw=deflated(small, 1024))
    made["stream.npz"] = zipped.add("offsets.npy", array([0, 9])).write(folder / "stream.npz")
    zipped = Zip().add("tokens.npy", b"", method=12, raw=bz2.compress(bytes(64 << 20)), declared=99)
    made["other.npz"] = zipped.add("offsets.npy", offsets).write(folder / "other.npz")
    # Few values in memory here, many in the file's own terms.
    zeros = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 24, np.int8)), pa.array([7]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1 << 24]), zeros)
    made["rows.parquet"] = folder / "rows.parquet"
    pq.write_table(pa.table({"tokens": lists}), made["rows.parquet"], compression="zstd")
    # The same, with a footer that says one value.
    data = bytearray(made["rows.parquet"].read_bytes())
    true, false = b"\x80\x80\x80\x10", b"\x82\x80\x80\x00"  # 2**24 and 1 as Thrift writes them
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert data.find(true, start) > 0
    data[start:] = data[start:].replace(true, false)
    made["lying.parquet"] = folder / "lying.parquet"
    made["lying.parquet"].write_bytes(data)
    many = pa.array([np.zeros(1 << 24, np.int64)])
    made["rows.arrow"] = folder / "rows.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    table = pa.table({"tokens": many})
    with pa.ipc.new_file(str(made["rows.arrow"]), table.schema, options=options) as writer:
        writer.write_table(table)
    made["nothing.arrow"] = folder / "nothing.arrow"
    # Rows that take no bytes at all: nulls, of which a file only states how many there are.
    nulls = pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])
    batch = pa.record_batch({"tokens": nulls})
    with pa.ipc.new_file(str(made["nothing.arrow"]), batch.schema) as writer:
        writer.write_batch(batch)
    line = folder / "deep.jsonl"
    line.write_bytes(b'{"a":' * (2 << 20))
    made["deep.jsonl"] = line
    wide = folder / "wide.jsonl"
    wide.write_bytes(b'{"x":[' + b"{}," * (3 << 20) + b"1]}")
    made["wide.jsonl"] = wide
    made["endless.jsonl"] = folder / "endless.jsonl"
    made["endless.jsonl"].symlink_to("/dev/zero")
    return made


@pytest.mark.parametrize("end", [b"]}\n", b""], ids=["whole", "cut"])
@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
def test_one_line_of_a_hundred_megabytes(tmp_path: Path, piped: bool, end: bytes) -> None:
    head = b'{"tokens": ['
    line = head + b"1," * ((100_000_000 - len(head)) // 2) + b"1" + end
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line)
    script = (
        "import resource, sys\n"
        "from waveplan import InputError, Rows\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = most()\n"
        "try: Rows.load(sys.argv[1])\n"
        "except InputError as error: print(error)\n"
        "print(most() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "-" if piped else str(path)],
        input=line if piped else b"",
        capture_output=True,
        timeout=60,
        check=True,
    )
    says, grown = done.stdout.decode().splitlines()
    name = "stdin" if piped else str(path)
    assert says.startswith(f"{name} line 1: longer than 12582912 bytes")
    assert int(grown) < 100, f"{grown} MiB"


def test_bombs_take_no_memory(tmp_path: Path) -> None:
    """Each would take from 128 MiB to 16 GiB; together they raise the process by less than 300."""
    script = (
        "import resource, sys\n"
        "from waveplan import InputError, Rows\n"
        "import pyarrow.parquet, pyarrow.ipc\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = most()\n"
        "for path in sys.argv[1:]:\n"
        "    try: print(path, len(Rows.load(path)))\n"
        "    except InputError as error: print(error)\n"
        "    print(most() - before)\n"
    )
    made = bombs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, made.values())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(made)
    for path, line, grown in zip(made.values(), lines[::2], lines[1::2], strict=True):
        assert line.startswith(f"{path}"), line
        assert int(grown) < 300, f"{path.name}: {grown} MiB"
    expected = {
        "declared.npz": "are not unpacked",
        "stream.npz": "offsets end at 9, but there are 8 tokens",
        "other.npz": "unusual method",
        "rows.parquet": "unpacks to more than 200 times",
        "lying.parquet": "unpacks to more than 200 times",
        "rows.arrow": "unpacks to more than 200 times",
        "nothing.arrow": "unpacks to more than 200 times",
        "deep.jsonl": "nest more than 64 deep",
        "wide.jsonl": "more than 1048576 lists and objects",
        "endless.jsonl": "longer than 12582912 bytes",
    }
    for name, line in zip(made, lines[::2], strict=True):
        assert expected[name] in line, line


# --- .jsonl ---


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"tokens": [1, 2', "cut off"),
        (b'{"tokens": [1], "text": "\xe2\x82', "not UTF-8"),
        (b'{"tokens": [1], "text": "a', "not JSON"),
        (b'{"tokens": [1]}{"tokens": [2]}', "Extra data"),
        (b'{"tokens": [1],}', "not JSON"),
        (b"{'tokens': [1]}", "not JSON"),
        (b'{"tokens": [1]} // comment', "not JSON"),
        (b"\0" * 100, "not JSON"),
        (b'{"tokens": [1]}\0', "not JSON"),
        (b'{"tokens": [1e400]}', "tokens[0] is inf"),
        (b'{"tokens": [-1e400]}', "tokens[0] is -inf"),
        (b'{"tokens": [1.0]}', "tokens[0] is 1.0"),
        (b'{"tokens": [1e2]}', "tokens[0] is 100.0"),
        (b'{"tokens": [Infinity]}', "tokens[0] is inf"),
        (b'{"tokens": [01]}', "not JSON"),
        (b'{"tokens": [+1]}', "not JSON"),
        (b'{"tokens": [0x10]}', "not JSON"),
        (b'{"tokens": [' + b"9" * 5000 + b"]}", "limit (4300 digits)"),
        (b'{"tokens": [' + b"9" * 4000 + b"]}", "tokens[0] is 999"),
        (b'{"tokens": [1, "2"]}', "tokens[1] is '2'"),
        (b'{"tokens": [1, null]}', "tokens[1] is None"),
        (b'{"tokens": [[1], [2]]}', "has shape (2, 1)"),
        (b'{"tokens": [[1], [2, 3]]}', "tokens"),
        (b'{"tokens": [{}]}', "tokens[0] is {}"),
        (b'{"tokens": {"0": 1}}', "tokens is a dict"),
        (b'{"tokens": "123"}', "tokens is a str"),
        (b'{"tokens": [1], "tokens": [2]}', "'tokens' is given twice"),
        (b'{"tokens": [1], "x": {"a": 1, "a": 2}}', "'a' is given twice"),
        (b'{"TOKENS": [1]}', "no token ids"),
        (b'{"tokens": null}', "no token ids"),
        (b'{"prompt_ids": [1], "completion_ids": null}', "no token ids"),
        (b'{"prompt_ids": [1], "completion_ids": 5}', "completion_ids is a int"),
        (b"null", "a NoneType, not an object"),
        (b'"tokens"', "a str, not an object"),
        (b"[" * 65 + b"]" * 65, "nest more than 64 deep"),
        (b'{"x": ' * 100 + b"1" + b"}" * 100, "nest more than 64 deep"),
        (b'{"tokens": [1], "group": "a"}', "group[0] is 'a'"),
        (b'{"tokens": [1], "first_target": [1]}', "first_target"),
    ],
)
def test_lines(line: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(FINE + line)
    refused(path, "line 2", says)
    path.write_bytes(FINE + line + b"\r\n" + FINE)
    refused(path, "line 2", says.replace("cut off", "not JSON"))


def test_lines_that_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    brackets = json.dumps({"tokens": [4], "text": '[{"' * 100 + "\\" * 7}).encode()
    nested = json.dumps({"tokens": [5], "turns": [[1]] * 200}).encode()
    zeros = b'{"tokens": [-0, 6]}'
    path.write_bytes(
        b'\xef\xbb\xbf{"tokens": [1]}\r\n\n \t\r\n' + b"\n".join([FINE, brackets, nested, zeros])
    )
    rows = Rows.load(path)
    assert [row.tolist() for row in rows] == [[1], [1], [4], [5], [0, 6]]


@pytest.mark.parametrize("chunk", [1, 2, 5, 64])
def test_brackets_inside_strings_do_not_nest(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings, escapes and depth that go on over the pieces in which a text is looked at."""
    monkeypatch.setattr(_files, "CHUNK", chunk)
    monkeypatch.setattr(_files, "MOST_DEPTH", 3)
    for text in ('"[[[["', r'"\"[[[["', r'"\\", [[1]]', r'"\\\"[[[["', '"[", "]]]", [[1]]'):
        assert _files.parse_json(f"[{text}]".encode()) == json.loads(f"[{text}]")
    for text in (r'"\\", [[[1]]]', r'"\"", [[[1]]]', '"]]", [[[1]]]', '[["[", [1]]]'):
        with pytest.raises(InputError, match="nest more than 3"):
            _files.parse_json(f"[{text}]".encode())


def test_endless_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_bytes(b"\n" * _load_lines.MOST_BLANK + b'{"tokens": [1]}\n')
    assert len(Rows.load(file)) == 1
    file.write_bytes(b"\n" * (_load_lines.MOST_BLANK + 1) + b'{"tokens": [1]}\n')
    with pytest.raises(InputError, match="lines are empty"):
        Rows.load(file)


def test_a_line_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_load_lines, "MOST_LINE", 1000)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(FINE + b'{"tokens": [1], "x": "' + b"a" * 1000 + b'"}\n')
    refused(path, "line 2: longer than 1000 bytes")


@pytest.mark.parametrize("suffix", [".jsonl", ".npz", ".parquet", ".arrow"])
def test_every_beginning_of_a_file(suffix: str, tmp_path: Path) -> None:
    """A file cut anywhere is refused in one line, or holds whole rows."""
    whole = tmp_path / f"whole{suffix}"
    rows = [[1, 2, 3], [4], list(range(20))]
    table = pa.table({"input_ids": rows, "group": [0, 0, 1]})
    if suffix == ".jsonl":
        whole.write_text("\n".join(json.dumps({"input_ids": row, "group": 0}) for row in rows))
    elif suffix == ".npz":
        np.savez_compressed(whole, tokens=np.concatenate(rows), offsets=[0, 3, 4, 24])
    elif suffix == ".parquet":
        pq.write_table(table, whole)
    else:
        with pa.ipc.new_file(str(whole), table.schema) as writer:
            writer.write_table(table)
    data = whole.read_bytes()
    path = tmp_path / f"cut{suffix}"
    step = max(1, len(data) // 150)
    for end in [*range(0, len(data), step), len(data) - 1]:
        path.write_bytes(data[:end])
        try:
            found = [row.tolist() for row in Rows.load(path)]
        except InputError:
            refused(path)
        else:
            assert found == rows[: len(found)]
            assert suffix != ".npz"


# --- .parquet, .arrow ---


def write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"tokens": ["1 2 3"]}, "Arrow type string"),
        ({"tokens": [1]}, "Arrow type int64"),
        ({"tokens": [[1.5]]}, "type double"),
        ({"tokens": [["a"]]}, "type string"),
        ({"tokens": [[True]]}, "type bool"),
        ({"tokens": [[[1]]]}, "type list"),
        ({"tokens": [{"a": 1}]}, "Arrow type struct"),
        ({"tokens": [[{"a": 1}]]}, "type struct"),
        ({"tokens": [[1], None]}, "row 1 is null"),
        ({"tokens": [[1], [None]]}, "row 1 holds a null"),
        ({"tokens": [[-1]]}, "row 0 has token -1"),
        ({"tokens": [None]}, "tokens"),
        ({"tokens": [[1]], "group": ["x"]}, "group"),
        ({"tokens": [[1]], "group": [None]}, "group"),
        ({"tokens": [[1]], "first_target": [[1]]}, "first_target"),
        ({"prompt_ids": [[1]]}, "has the columns prompt_ids"),
        ({"prompt_ids": [[1], [2]], "completion_ids": [[1], None]}, "row 1 is null"),
        ({"text": ["a"]}, "has the columns text"),
        ({"a\nb": ["a"]}, "has the columns a b"),
    ],
)
def test_columns(columns: dict[str, Any], says: str, suffix: str, tmp_path: Path) -> None:
    refused(write(tmp_path / f"rows{suffix}", pa.table(columns)), says)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_columns_of_other_kinds(suffix: str, tmp_path: Path) -> None:
    words = pa.array([["a"]]).values.dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 1]), words)
    refused(write(tmp_path / f"words{suffix}", pa.table({"tokens": lists})), "tokens")
    path = tmp_path / f"twice{suffix}"
    table = pa.Table.from_arrays([pa.array([[1]])] * 2, ["tokens", "tokens"])
    refused(write(path, table), "tokens 2 times")
    assert len(Rows.load(write(tmp_path / f"none{suffix}", table.select([0])[:0]))) == 0


def test_views_that_overlap_are_refused(tmp_path: Path) -> None:
    """A thousand views of the same thousand tokens would be a million."""
    values, count = pa.array(np.arange(1000)), 1000
    starts, sizes = pa.array([0] * count, pa.int32()), pa.array([1000] * count, pa.int32())
    views = pa.ListViewArray.from_arrays(starts, sizes, values)
    with pytest.raises(InputError, match="list_view"):
        Rows.from_any(views)
    refused(write(tmp_path / "rows.arrow", pa.table({"tokens": views})), "list_view")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_damage_never_ends_the_process(suffix: str, tmp_path: Path) -> None:
    """Files with a few wrong bytes, read in a process of their own."""
    table = pa.table({"tokens": [[1, 2, 3], [4], []] * 5, "group": range(15), "text": ["a"] * 15})
    path = write(tmp_path / f"rows{suffix}", table)
    script = (
        "import random, sys\n"
        "from pathlib import Path\n"
        "from waveplan import InputError, Rows\n"
        "path, chance = Path(sys.argv[1]), random.Random(5)\n"
        "whole = path.read_bytes()\n"
        "for _ in range(400):\n"
        "    data = bytearray(whole)\n"
        "    for _ in range(chance.choice([1, 2, 8])):\n"
        "        at = chance.randrange(len(data) // 2, len(data))\n"
        "        data[at] = chance.choice([chance.randrange(256), 0, 255])\n"
        "    path.write_bytes(data)\n"
        "    try: Rows.load(path)\n"
        "    except InputError as error: assert str(error).isprintable(), error\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_footer_that_ends_the_process_of_who_asks_pyarrow_for_it() -> None:
    """Its sizes contradict one another; pyarrow's view of that column would call abort()."""
    path = Path(__file__).with_name("damaged_footer.parquet")
    line = "import sys; from waveplan import Rows; Rows.load(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", line, str(path)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert b"InputError" in done.stderr


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".arrow", ".jsonl"])
def test_files_of_another_kind(suffix: str, tmp_path: Path) -> None:
    plain = BytesIO()
    np.save(plain, np.arange(3))
    for name, data in {
        "empty": b"",
        "text": b"hello world\n" * 20,
        "noise": bytes(np.random.default_rng(1).integers(0, 256, 4096, np.uint8)),
        "gzip": zlib.compress(FINE, wbits=31),
        "npy": plain.getvalue(),
        "zip": b"PK\5\6" + bytes(18),
        "magic": b"PAR1ARROW1\0\0PAR1",
    }.items():
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(data)
        if (name, suffix) == ("empty", ".jsonl"):
            assert len(Rows.load(path)) == 0
        else:
            refused(path)


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".arrow"])
def test_pipes_and_devices_are_refused_before_they_are_opened(suffix: str, tmp_path: Path) -> None:
    pipe, zero = tmp_path / f"pipe{suffix}", tmp_path / f"zero{suffix}"
    os.mkfifo(pipe)
    zero.symlink_to("/dev/zero")
    for path in (pipe, zero):
        refused(path, "only JSON lines come from a pipe or a device")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("folder.npz", "cannot be read"),
        ("folder.jsonl", "cannot be read"),
        ("loop.jsonl", "cannot be read"),
        ("none.jsonl", "no such file"),
        ("x" * 300 + ".jsonl", "cannot be read"),
        ("rows.npy", "must end in"),
        ("rows.jsonl.gz", "must end in"),
        ("rows", "must end in"),
        ("", "must end in"),
        ("a\0.jsonl", "null"),
        ("whole.jsonl/rows.jsonl", "cannot be read"),
    ],
)
def test_names(name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "whole.jsonl").write_bytes(FINE)
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    path = str(tmp_path / name) if name else ""
    with pytest.raises(InputError, match=says):
        Rows.load(path)
    assert main(["plan", path, "--model", "qwen3.6-35b-a3b", "--available", "9GiB"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# --- types that a file names ---


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def of_named_type(folder: Path, mark: Path) -> list[Path]:
    """An Arrow and a Parquet file of fine rows whose columns are of a pickled Python type."""
    named = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Touch(mark)),
    }
    field = pa.field("tokens", pa.list_(pa.int64()), metadata=named)
    table = pa.table([pa.array([[5, 6], [7]], field.type)], schema=pa.schema([field]))
    arrow, parquet = folder / "rows.arrow", folder / "rows.parquet"
    with pa.ipc.new_file(str(arrow), table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, parquet)
    return [arrow, parquet]


def test_a_type_that_a_file_names_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Touch(mark)))
    assert mark.exists()
    mark.unlink()
    for path in of_named_type(tmp_path, mark):
        assert Rows.load(path)[0].tolist() == [5, 6]
        assert not mark.exists()


def test_a_pyarrow_that_would_run_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = of_named_type(tmp_path, tmp_path / "mark")
    for version in ("14.0.0", "9.0.1", "unknown"):
        monkeypatch.setattr(pa, "__version__", version)
        for path in paths:
            refused(path, "needs pyarrow 15 or later", version)
