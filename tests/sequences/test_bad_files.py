"""Bad files: each is refused in one line that begins with its name, and nothing in it runs."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import data_folder

from waveplan import InputError, Model, Profiles, Sequences, models
from waveplan.accuracy.check import check
from waveplan.files import read_json
from waveplan.pricing import default_rules
from waveplan.profiles import Observation, Signature
from waveplan.sequences import lines

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

FINE = b'{"tokens": [1]}\n'


def refused(load: Callable[[Path], object], path: Path, *says: str) -> None:
    with pytest.raises(InputError) as caught:
        load(path)
    text = str(caught.value)
    assert text.count(str(path)) == 1
    assert text.isprintable()
    assert len(text) < 1010
    for part in says:
        assert part in text


# --- lines of JSON ---


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"input_ids": [1, 2', "cut off"),
        (b"{}", "no token ids: there are no columns: give input_ids"),
        (b'{"prompt_ids": [1]}', "no token ids"),
        (b'{"TOKENS": [1]}', "no token ids"),
        (b'{"tokens": null}', "no token ids"),
        (b"[1, 2]", "a list, not an object"),
        (b"null", "a NoneType, not an object"),
        (b'{"tokens": 3}', "tokens is a int"),
        (b'{"tokens": "123"}', "tokens is a str"),
        (b'{"tokens": {"0": 1}}', "tokens is a dict"),
        (b'{"prompt_ids": [1], "completion_ids": 5}', "completion_ids is a int"),
        (b'{"tokens": [1, 2.5]}', "tokens[1] is 2.5"),
        (b'{"tokens": [1, NaN]}', "tokens[1] is nan"),
        (b'{"tokens": [-1e400]}', "tokens[0] is -inf"),
        (b'{"tokens": [1, true]}', "tokens[1] is True"),
        (b'{"tokens": [1, null]}', "tokens[1] is None"),
        (b'{"tokens": [1, "2"]}', "tokens[1] is '2'"),
        (b'{"tokens": [{}]}', "tokens"),
        (b'{"tokens": [[1], [2]]}', "tokens"),
        (b'{"tokens": [[1], [2, 3]]}', "tokens"),
        (b'{"tokens": [1, -5]}', "token 1 is -5"),
        (b'{"tokens": [9223372036854775808]}', "tokens[0] is 9223372036854775808"),
        (b'{"tokens": [-9223372036854775809]}', "tokens[0] is -9223372036854775809"),
        (b'{"tokens": [' + b"9" * 5000 + b"]}", "limit (4300 digits)"),
        (b'{"tokens": [1]}{"tokens": [2]}', "Extra data"),
        (b'{"tokens": [01]}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"tokens": [1], "text": "\xe2\x82', "not JSON"),
        (b"\0" * 100, "not JSON"),
        (b'{"tokens": [1, 2], "labels": [1]}', "labels has 1 entries for 2 tokens"),
        (b'{"tokens": [1], "labels": [1, 2]}', "labels has 2 entries for 1 tokens"),
        (b'{"tokens": [1], "attention_mask": [1, 1]}', "attention_mask has 2 entries"),
        (b'{"tokens": [1], "attention_mask": [3]}', "attention_mask[0] is 3: a mask holds 0 and 1"),
        (b'{"tokens": [1], "loss_mask": [0.5]}', "loss_mask[0] is 0.5: a mask holds 0 and 1"),
        (b'{"tokens": [1], "loss_mask": [null]}', "loss_mask[0] is None"),
        (b'{"tokens": [1], "loss_mask": ["1"]}', "loss_mask[0] is '1'"),
        (b'{"tokens": [1.0, 2.0]}', "tokens[0] is 1.0: give integers"),
        (b'{"tokens": [1, 2, 3], "seq_lengths": [1, 1]}', "seq_lengths sum to 2 for 3 tokens"),
        (b'{"tokens": [1, 2], "cu_seqlens": [0, 3]}', "cu_seqlens[1] is 3"),
        (b'{"tokens": [1, 2], "position_ids": [0, 2]}', "position_ids[1] is 2"),
        (b'{"tokens": [1, 2], "input_lengths": [2]}', "input_lengths holds lists"),
        (
            b'{"tokens": [1, 2], "attention_mask": [[1, 0], [1, 1]]}',
            "attention_mask holds lists of",
        ),
        (b'{"tokens": [1, 2], "labels": [0, 1]}', "labels hold only 0 and 1: if they are a mask"),
        (b'{"tokens": [1, 2], "input_lengths": 3}', "input_lengths is 3 of 2 tokens"),
        (b'{"tokens": [1, 2], "response_length": 3}', "response_length says 3 of 2 tokens"),
        (b'{"tokens": [1, 2], "response_length": "1"}', "response_length is '1'"),
        (b'{"tokens": [1, 2], "mask": [0, 1]}', "say which by --column attention_mask=mask"),
        (b'{"messages": [{"role": "user", "content": "hi"}]}', "this holds text (column messages)"),
        (b'{"ids": [7, 8]}', "ids may be token ids: give input_ids"),
        (b'{"tokens": [1], "group": 1}', "group was missing before"),
    ],
)
def test_lines(line: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "sequences.jsonl"
    path.write_bytes(b"\n" + FINE + line)
    refused(Sequences.load, path, f"{path}: line 3: ", says)
    path.write_bytes(FINE + line + b"\r\n" + FINE)
    refused(Sequences.load, path, "line 2: ", says.replace("cut off", "not JSON"))


def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_LINE", 1000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FINE + b"[" * 1001)))
    with pytest.raises(InputError, match="stdin: line 2: longer than 1000 bytes"):
        Sequences.load("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="stdin: is closed"):
        Sequences.load("-")


# --- arrays and tables ---


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"offsets": [0]}, "no array tokens"),
        ({"tokens": [1]}, "no array offsets"),
        ({"tokens": [1.0], "offsets": [0, 1]}, "tokens has dtype float64"),
        ({"tokens": ["a"], "offsets": [0, 1]}, "tokens has dtype <U1"),
        ({"tokens": 1, "offsets": [0, 1]}, "tokens has shape ()"),
        ({"tokens": [[[1]]], "offsets": [0, 1]}, "tokens has shape (1, 1, 1)"),
        ({"tokens": [1], "offsets": [1, 1]}, "offsets[0] is 1"),
        ({"tokens": [1], "offsets": [0, 2]}, "offsets end at 2, but there are 1 tokens"),
        ({"tokens": [1, 2, 3], "offsets": [0, 3, 2, 3]}, "offsets[2] is 2 after 3"),
        ({"tokens": [1, 5, -2], "offsets": [0, 1, 3]}, "sequence 1: token 1 is -2"),
        (
            {"tokens": [1], "offsets": [0, 1], "group": [0, 1]},
            "group has 2 entries for 1 sequences",
        ),
        ({"tokens": np.array([2**63], np.uint64), "offsets": [0, 1]}, "must be below 2**63"),
    ],
)
def test_arrays(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "sequences.npz", **arrays)
    refused(Sequences.load, tmp_path / "sequences.npz", says)


def test_headers_that_lie(tmp_path: Path) -> None:
    """An enormous shape, a type that is code, a compression that numpy does not read."""
    header = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}\n"
    for number, text in enumerate(
        (
            header.format("'<i8'", "(1152921504606846976,)"),
            header.format("'<i8'", "(-1,)"),
            header.format("__import__('os')", "(1,)"),
            "(" * 9000,
        )
    ):
        data = b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text.encode() + bytes(8)
        path = tmp_path / f"{number}.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tokens.npy", data)
            archive.writestr("offsets.npy", data)
        refused(Sequences.load, path, "cannot be read")


def write(path: Path, table: Any) -> Path:
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
        ({"text": ["a"]}, "this holds text (column text)"),
        ({"prompt_ids": [[1]]}, "prompt_ids comes without the response's ids"),
        ({"tokens": ["1 2 3"]}, "tokens has the Arrow type string"),
        ({"tokens": [1]}, "tokens has the Arrow type int64"),
        ({"tokens": [[1.5]]}, "row 0: tokens[0] is 1.5: give integers (tokens is float64)"),
        ({"tokens": [[True]]}, "row 0: tokens[0] is True"),
        ({"tokens": [[[1]]]}, "tokens holds lists of lists"),
        ({"tokens": [{"a": 1}]}, "Arrow type struct"),
        ({"tokens": [[1], None]}, "row 1: tokens is null"),
        ({"tokens": [[1], [2, None]]}, "row 1: tokens[1] is null"),
        ({"tokens": [[1], [2, -1]]}, "row 1: token 1 is -1"),
        ({"tokens": [[1]], "group": pa.array([None], "int8")}, "row 0: group is None"),
        ({"tokens": [[1]], "first_target": [[1]]}, "row 0: first_target holds lists"),
        (
            {"prompt_ids": [[1], [2]], "completion_ids": [[1], None]},
            "row 1: completion_ids is null",
        ),
    ],
)
def test_columns(columns: dict[str, Any], says: str, suffix: str, tmp_path: Path) -> None:
    refused(Sequences.load, write(tmp_path / f"sequences{suffix}", pa.table(columns)), says)


def test_nothing_that_a_file_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    np.savez(tmp_path / "sequences.npz", tokens=np.array([Touch(mark)], object), offsets=[0, 1])
    refused(Sequences.load, tmp_path / "sequences.npz", "allow_pickle=False")
    (tmp_path / "sequences.npy").write_bytes(pickle.dumps(Touch(mark)))
    refused(Sequences.load, tmp_path / "sequences.npy", "pickled")
    named = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Touch(mark)),
    }
    field = pa.field("tokens", pa.list_(pa.int64()), metadata=named)
    table = pa.table([pa.array([[5, 6]], field.type)], schema=pa.schema([field]))
    for suffix in (".parquet", ".arrow"):
        path = write(tmp_path / f"sequences{suffix}", table)
        assert Sequences.load(path)[0].tolist() == [5, 6]
        with monkeypatch.context() as patched:
            patched.setattr(pa, "__version__", "14.0.0")
            refused(Sequences.load, path, "needs pyarrow 15 or later, not 14.0.0")
    assert not mark.exists()


DAMAGE = """
import random, sys
from pathlib import Path
from waveplan import InputError, Sequences
for name in sys.argv[1:]:
    path, chance = Path(name), random.Random(5)
    whole = path.read_bytes()
    for i in range(200):
        data = bytearray(whole[: i * len(whole) // 100] if i < 100 else whole)
        for _ in range(chance.choice([1, 2, 8]) if i >= 100 else 0):
            data[chance.randrange(len(data) // 2, len(data))] = chance.choice([0, 255, i % 256])
        path.write_bytes(data)
        try:
            Sequences.load(path)
        except InputError as error:
            assert str(error).startswith(name) and str(error).isprintable(), error
"""


def test_damage_and_other_kinds(tmp_path: Path) -> None:
    """Cut anywhere, or with a few wrong bytes; in a process of its own, which must not end."""
    table = pa.table({"tokens": [[1, 2, 3], [4], []] * 5, "group": range(15), "text": ["a"] * 15})
    paths = [
        write(tmp_path / "sequences.parquet", table),
        write(tmp_path / "sequences.arrow", table),
    ]
    paths += [tmp_path / "sequences.npz", tmp_path / "sequences.jsonl"]
    np.savez_compressed(paths[2], tokens=np.arange(40) % 7, offsets=[0, 10, 40])
    paths[3].write_text("\n".join(json.dumps({"tokens": [1, 2, i]}) for i in range(9)))
    # Sizes in this footer contradict one another: pyarrow's view of its columns calls abort().
    footer = tmp_path / "footer.parquet"
    footer.write_bytes(Path(__file__).with_name("damaged_footer.parquet").read_bytes())
    command = [sys.executable, "-c", DAMAGE, *map(str, [*paths, footer])]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    for path in paths:
        for data in (b"", b"hello\n" * 20, b"PK\5\6" + bytes(18), b"PAR1ARROW1\0\0PAR1"):
            path.write_bytes(data)
            if data or path.suffix != ".jsonl":
                refused(Sequences.load, path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("folder.npz", "the folder holds no file"),
        ("folder.jsonl", "the folder holds no file"),
        ("none.jsonl", "no such file"),
        ("none.npz", "no such file"),
        ("none.parquet", "no such file"),
        ("x" * 300 + ".jsonl", "no such file"),
        ("sequences.csv", "must end in .jsonl"),
        ("sequences", "must end in"),
    ],
)
def test_names(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "sequences").touch()
    (tmp_path / "sequences.csv").touch()
    (tmp_path / "folder.jsonl").mkdir()
    refused(Sequences.load, tmp_path / name, says)


# --- files of facts ---


def learned() -> Any:
    profiles = Profiles()
    for peak in (10**9, 2 * 10**9):
        signature = Signature("tp1", ("target:single",), (True,))
        profiles.observe(signature, Observation(100, 200, 0, peak, peak // 3))
    return json.loads(json.dumps(profiles.to_dict()))


BUNDLED = json.loads((Path(models.__file__).parent / "models.json").read_text())
READERS: dict[str, tuple[Callable[[Path], object], Any, bytes, str]] = {
    "peaks": (
        check,
        json.loads((data_folder() / "peaks.json").read_text())[:1],
        b"{}",
        "no record is an object with an id",
    ),
    "profiles": (
        Profiles.load,
        learned(),
        b'{"version": 2, "kind": "observed", "profiles": []}',
        "version 2",
    ),
    "config": (Model.from_hf, BUNDLED["qwen3.6-35b-a3b"], b"[1]", "one JSON object"),
}


@pytest.mark.parametrize("kind", READERS)
def test_json(kind: str, tmp_path: Path) -> None:
    load, good, other, says = READERS[kind]
    path = tmp_path / "file.json"
    whole = json.dumps(good).encode()
    path.write_bytes(b"\xef\xbb\xbf" + whole)  # some editors begin a file so
    load(path)
    for data in (b"", b"nope", b"[" * 100_000, b"9" * 5000, b'{"a": "\xe2\x82', whole[:99]):
        path.write_bytes(data)
        refused(load, path, "is not JSON")
    for data in (b"17", b'"text"', b"null", b'{"profiles": [{}]}', b"{}"):
        path.write_bytes(data)
        refused(load, path)
    path.write_bytes(other)
    refused(load, path, says)
    refused(load, tmp_path / "none.json", "cannot read")
    refused(read_json, Path("/dev/zero"), "too large")


WRONG: tuple[Any, ...] = (None, True, -1, 2**63, 1.5, float("nan"), "", "\x1b[2J\n", [], {"a": [1]})


@pytest.mark.parametrize("kind", READERS)
def test_wrong_values_are_refused_or_taken(kind: str) -> None:
    """Every value of a document, one at a time, is replaced by each wrong one."""
    good = READERS[kind][1]
    load = {"profiles": Profiles.from_dict, "peaks": check, "config": Model.from_hf}[kind]

    def edit(value: Any) -> Any:
        inner = list(value.items() if isinstance(value, dict) else enumerate(value[:2]))
        for key, old in inner:
            for wrong in WRONG:
                value[key] = wrong
                with suppress(InputError):
                    load(good)
            value[key] = old
            if isinstance(old, dict | list):
                edit(old)

    edit(good)


def test_rules_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(b"\xff\xfe")
    refused(default_rules().with_file, path)
