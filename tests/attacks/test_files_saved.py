"""Saved calls (a JSON file and its arrays) that name what they may not, lie, or are damaged.

The package that the calls belong to is not needed: its modules are stood in for.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import pickle
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_files_json import attack

from waveplan import InputError
from waveplan.integrations.art import _saved, _shadow
from waveplan.integrations.art._classes import CLASSES, class_of
from waveplan.integrations.art._reader import Reader
from waveplan.integrations.art._saved import run_again, save
from waveplan.integrations.art._seams import Declined, Seam
from waveplan.integrations.art._trees import Trees

TYPES = "art.megatron.context_parallel.types"
ran: list[Any] = []
"""What was called that no file may have called."""


class AttnMaskKind(enum.Enum):
    CAUSAL = "causal"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        ran.append(value)
        return cls.CAUSAL


@dataclasses.dataclass(frozen=True)
class TokenRange:
    start: int
    end: Any

    def __post_init__(self) -> None:
        ran.append(self)


class ContextParallelWorkloadProfile:
    """As a model of pydantic: it checks its fields, over several lines."""

    model_fields = types.MappingProxyType({"stages": int})

    def __init__(self, stages: Any) -> None:
        if type(stages) is not int:
            raise ValueError("1 validation error\nstages\n  Input should be a valid integer")
        self.stages = stages

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def function(*args: Any) -> None:
    ran.append(args)


STAND_INS = {
    "AttnMaskKind": AttnMaskKind,
    "TokenRange": TokenRange,
    "ContextParallelWorkloadProfile": ContextParallelWorkloadProfile,
    # Names of the table under which this package has something else.
    "AttnSlice": function,
    "ParallelTopology": subprocess.Popen,
    "PackedRowAttentionSpec": TokenRange,
    "os": os,
}


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the package that the classes of these calls live in."""
    module = types.ModuleType(TYPES)
    for name, value in STAND_INS.items():
        setattr(module, name, value)
    for cls in (AttnMaskKind, TokenRange, ContextParallelWorkloadProfile):
        monkeypatch.setattr(cls, "__module__", TYPES)
    monkeypatch.setitem(sys.modules, TYPES, module)
    ran.clear()


@dataclasses.dataclass(frozen=True)
class Tree:
    sequence_lengths: Any = ()
    row_fingerprints: Any = ()


@dataclasses.dataclass(frozen=True)
class Layout:
    packed_tokens: int
    maximum_depth: int


@dataclasses.dataclass(frozen=True)
class Choice:
    layout: Any


def planned(tree: Any, picked: list[int]) -> Any:
    if picked and max(picked) >= len(tree._core):
        raise ValueError("no such decision")
    return SimpleNamespace(packed_tokens=7, maximum_depth=1, segments=range(3))


class Tensor:
    """An array that knows its device."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def numpy(self) -> Any:
        return self.array


def trees(*, keep_rows: bool = True) -> Trees:
    planner = SimpleNamespace(
        CanonicalPrefixTree=Tree,
        PrefixTreeLayout=Layout,
        _TOKEN_ROW_FINGERPRINT_DOMAIN=b"rows",
        plan_prefix_tree_layout=planned,
    )
    torch = SimpleNamespace(Tensor=Tensor, from_numpy=Tensor)
    search = SimpleNamespace(NonuniformSearchCandidate=Choice)
    return Trees(torch, planner, search, keep_rows=keep_rows)


class StubRank:
    """Its own attributes are not saved."""


def seam(ours: Any = None, original: Any = None) -> Seam:
    """A seam that gives back what it got."""

    def back(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    found = Seam("stub", "nowhere", "stub", lambda _: ours or back)
    found.original = original or back
    found.differ = lambda a, b: None if shape_of(a) == shape_of(b) else "they differ"
    return found


def shape_of(value: Any) -> Any:
    """A value read back, to compare: tensors, trees and layouts by what they hold."""
    if isinstance(value, Tensor):
        return "tensor", value.array.tolist(), value.array.dtype
    if isinstance(value, np.ndarray):
        return value.tolist(), value.dtype
    if isinstance(value, Tree):
        return "tree", value.sequence_lengths
    if isinstance(value, Layout):
        return "layout", value.packed_tokens, value._flags.tolist()  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {key: shape_of(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(shape_of, value))
    return value


def kinds(made: Trees) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of every kind."""
    tree = made.tree([np.array([1, 2, 3]), np.array([1, 2, 4])])
    flags = np.zeros(len(tree._core), np.bool_)
    layout = made.layout(tree, SimpleNamespace(packed_tokens=7, depth=1, shared=flags, segments=3))  # type: ignore[arg-type]
    spans = TokenRange(0, AttnMaskKind.CAUSAL), TokenRange(2, (3, None))
    wide = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    args = (tree, layout, tree, [*spans], Tensor(np.array([[5, 6]])), wide, np.int64(9))
    more = {"table": {"a": 1, "b": 2.5}, "few": frozenset({1, 2}), "flat": np.array(3)}
    return args, {**more, "profile": ContextParallelWorkloadProfile(4), "no": None, "s": "\ud800"}


def saved(folder: Path, *args: Any, **kwargs: Any) -> Path:
    made = trees()
    return save(folder, made, seam(), args, kwargs, "result: 1 is not 2")


def everything(folder: Path) -> Path:
    made = trees()
    args, kwargs = kinds(made)
    ran.clear()
    return save(folder, made, seam(), args, kwargs, "result: 1 is not 2")


def again(path: Path, with_seam: Seam | None = None) -> _saved.Replay:
    return run_again(path, [with_seam or seam()], trees())


def refused(path: Path, *says: str) -> str:
    """The error of running a saved call again: one short line that names a file."""
    with pytest.raises(InputError) as error:
        again(path)
    text = str(error.value)
    assert str(path.with_suffix("")) in text
    assert "\n" not in text
    assert len(text) <= 1010
    for part in says:
        assert part in text
    assert not ran
    return text


def with_argument(folder: Path, value: Any, **keys: Any) -> Path:
    """A saved call whose first argument is changed by hand."""
    path = saved(folder, 1)
    body = {**json.loads(path.read_text()), "args": [value], **keys}
    path.write_text(json.dumps(body))
    return path


def test_an_honest_call_comes_back(tmp_path: Path) -> None:
    path = everything(tmp_path)
    found = again(path)
    made = trees()
    wanted = kinds(made)
    ran.clear()
    args, kwargs = found.ours
    assert shape_of(args) == shape_of(wanted[0])
    assert shape_of(kwargs) == shape_of(wanted[1])
    assert args[0] is args[2] is args[1]._tree
    assert found.recorded == "result: 1 is not 2"
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".npz"]
    path = saved(tmp_path, 1, StubRank())

    def head(_: int, rank: Any) -> Any:
        return rank._head_workspace_bytes(5)

    assert again(path, seam(head, head)).ours == 5


NAMES = [
    "os:system",
    "posix:system",
    "builtins:eval",
    "builtins:exec",
    "subprocess:Popen",
    "subprocess:getoutput",
    "importlib:import_module",
    "pickle:loads",
    "ctypes:CDLL",
    "antigravity:fly",
    "waveplan.cli:main",
    "waveplan:Rows",
    "enum:Enum",
    f"{TYPES}:os.system",
    f"{TYPES}:function",
    f"{TYPES}:TokenRange.__init__",
    f"{TYPES}:TokenRange.__class__",
    f"{TYPES}:",
    f"{TYPES}.TokenRange",
    f"{TYPES}:TokenRange:x",
    f" {TYPES}:TokenRange",
    "art:TokenRange",
    ":",
    "",
    "x" * 5000,
    "a\nb:c\x1b[2J",
    "\ud800:x",
    None,
    7,
    True,
    [],
    {"class": "os:system"},
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: str(name)[:40].encode("ascii", "replace"))
def test_no_name_is_imported_or_called(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    command = f"touch {mark}"
    from waveplan.integrations.art import _classes

    monkeypatch.setattr(_classes, "import_module", function)
    before = set(sys.modules)
    for value in (
        {"enum": name, "value": command},
        {"class": name, "fields": {}},
        {"class": name, "fields": {"args": command, "shell": True}},
    ):
        refused(with_argument(tmp_path, value), "no class that a saved call holds")
        refused(with_argument(tmp_path, {"list": [{"dict": [["a", value]]}]}))
        # The reader alone, as a caller of its own would use it.
        with pytest.raises(InputError):
            Reader({}, trees()).read(value)
    assert not mark.exists()
    assert set(sys.modules) == before


@pytest.mark.parametrize("name", ["AttnSlice", "ParallelTopology", "PackedRowAttentionSpec"])
def test_a_name_of_the_table_that_is_another_thing(name: str, tmp_path: Path) -> None:
    assert f"{TYPES}:{name}" in CLASSES
    for value in (
        {"enum": f"{TYPES}:{name}", "value": "echo"},
        {"class": f"{TYPES}:{name}", "fields": {"start": 0, "end": 1}},
    ):
        refused(with_argument(tmp_path, value), f"the installed openpipe-art has no class {TYPES}")


def test_a_class_that_this_version_lacks() -> None:
    for name in (f"{TYPES}:AttnSlice", "art.megatron.gdn.gdn_prefix_tree:GdnSegmentSpec"):
        with pytest.raises(InputError, match="the installed openpipe-art has no class"):
            class_of(name)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"enum": f"{TYPES}:TokenRange", "value": 1}, "is no enumeration"),
        ({"enum": f"{TYPES}:AttnMaskKind", "value": "full"}, "has no member 'full'"),
        ({"enum": f"{TYPES}:AttnMaskKind", "value": ["causal"]}, "has no member"),
        ({"class": f"{TYPES}:AttnMaskKind", "fields": {}}, "is no class with fields"),
        ({"class": f"{TYPES}:TokenRange", "fields": {"start": 1}}, "are start, end, not"),
        ({"class": f"{TYPES}:TokenRange", "fields": ["start", "end"]}, "are start, end, not"),
        (
            {"class": f"{TYPES}:TokenRange", "fields": {"start": 1, "end": 2, "__class__": 3}},
            "are start, end, not",
        ),
        (
            {"class": f"{TYPES}:ContextParallelWorkloadProfile", "fields": {"stages": "x"}},
            "cannot be made again: 1 validation error",
        ),
        ({"class": f"{TYPES}:TokenRange"}, "stands for no value"),
        ({"nothing": 1}, "stands for no value"),
        ({}, "stands for no value"),
        ([1, 2], "stands for no value"),
        ({"tuple": [1], "number": 0}, "stands for no value"),
        ({"tuple": {"a": 1}}, "is no list"),
        ({"dict": [[1, 2, 3]]}, "written as pairs"),
        ({"dict": [[{"list": []}, 1]]}, "is no plain value"),
        ({"set": [{"tuple": []}]}, "is no plain value"),
        ({"again": 0}, "used before it is given"),
        ({"again": [0]}, "used before it is given"),
        ({"list": [{"rank": True, "number": 0}, {"rank": True, "number": 0}]}, "has its own"),
        ({"rank": True, "number": True}, "has its own"),
        ({"array": "a0"}, "is missing, or given twice"),
        ({"tensor": {"array": "a0"}}, "is missing, or given twice"),
        ({"tree": {"list": []}, "number": 0}, "a tree cannot be made again"),
        ({"tree": 5, "number": 0}, "a tree cannot be made again"),
        ({"tree": {"list": ["x"]}, "number": 0}, "a tree cannot be made again"),
        ({"layout": 1, "shared": 2, "number": 0}, "a layout without its tree"),
    ],
)
def test_values_that_were_not_written_so(value: Any, says: str, tmp_path: Path) -> None:
    refused(with_argument(tmp_path, value), says)


def test_an_array_is_given_once(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(4))
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "args": [{"array": "a0"}] * 2}))
    refused(path, "is missing, or given twice")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"format": 0}, "of format 0: this version reads format 1"),
        ({"format": 2}, "of format 2"),
        ({"format": "1"}, "of format '1'"),
        ({"format": True}, "of format True"),
        ({"format": None}, "no saved call"),
        ({"seam": "other"}, "seam is 'other': it must be one of stub"),
        ({"seam": ["stub"]}, "seam is"),
        ({"different": 5}, "it must be text"),
        ({"args": {}}, "args must be a list"),
        ({"kwargs": []}, "kwargs an object"),
        ({"more": 1}, "a saved call has format"),
    ],
)
def test_other_versions_and_other_keys(keys: dict[str, Any], says: str, tmp_path: Path) -> None:
    refused(with_argument(tmp_path, 1, **keys), says)


@pytest.mark.parametrize("text", ["", "[]", "5", "null", "{}", "{", '{"format": 1', "[" * 5000])
def test_files_that_are_no_call(text: str, tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    path.write_text(text)
    refused(path)
    path.write_text('{"format": 1, "format": 1}')
    refused(path, "given twice")
    path.unlink()
    refused(path, "cannot read")
    path.mkdir()
    refused(path, "cannot read")


def test_cut_and_damaged_files(tmp_path: Path) -> None:
    path = everything(tmp_path)
    text, archive = path.read_bytes(), path.with_suffix(".npz")
    for end in range(0, len(text), 7):
        path.write_bytes(text[:end])
        refused(path)
    path.write_bytes(text)
    data = archive.read_bytes()
    for end in range(0, len(data), 13):
        archive.write_bytes(data[:end])
        refused(path)
    damaged = 0
    for at in range(0, len(data), 11):
        archive.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        try:
            again(path)
        except InputError:
            damaged += 1
    assert damaged > 20


def test_archives_that_lie(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(3))
    archive = path.with_suffix(".npz")
    archive.unlink()
    refused(path, "no such file")
    archive.mkdir()
    refused(path, "cannot be read")
    archive.rmdir()
    os.mkfifo(archive)
    refused(path, "cannot be read")
    archive.unlink()
    np.savez_compressed(archive, a0=np.zeros(1 << 20))
    refused(path, "save it uncompressed")
    np.savez(archive, a0=np.array([print], object), allow_pickle=True)  # type: ignore[arg-type]
    refused(path, "never loaded")
    for wrong in (
        np.array(["a"]),
        np.array([1 + 2j]),
        np.array([1], ">i8"),
        np.array([(1,)], "i,"),
    ):
        np.savez(archive, a0=wrong)
        refused(path, "a0")
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a0.npy", pickle.dumps(print))
    refused(path, "is not a numpy array")
    np.savez(archive, a1=np.arange(3))
    refused(path, "'a0' is missing")


def test_every_value_replaced(tmp_path: Path) -> None:
    path = everything(tmp_path)

    def use(body: Any) -> None:
        path.write_text(json.dumps(body))
        ran.clear()
        again(path)

    refused_ones, accepted = attack(json.loads(path.read_text()), use, every=3)
    assert refused_ones > 200
    assert accepted > 20


def test_calls_that_do_not_fit(tmp_path: Path) -> None:
    def one(x: int) -> int:
        return x

    with pytest.raises(InputError, match="its arguments are not those of"):
        again(saved(tmp_path, 1, 2), seam(one, one))

    def of_rank(rank: Any) -> Any:
        return rank.topology

    path = saved(tmp_path, StubRank())
    with pytest.raises(InputError, match="reads topology of its rank"):
        again(path, seam(of_rank, of_rank))
    # Unless another replaced method answers.
    method = Seam("method", "nowhere", "Rank.topology", lambda original: original)
    method.original = lambda _: 4
    found = run_again(path, [seam(original=lambda rank: rank.topology()), method], trees())
    assert found.theirs == 4


def test_what_is_raised_is_told(tmp_path: Path) -> None:
    def raises(error: Exception) -> Any:
        def run(*_: Any) -> Any:
            raise error

        return run

    path = saved(tmp_path, 1)
    found = again(path, seam(raises(KeyError("x")), raises(KeyError("y"))))
    assert str(found).endswith("both raise KeyError now")
    found = again(path, seam(None, raises(KeyError("y"))))
    assert found.difference == "an answer where the replaced planner raises KeyError"
    found = again(path, seam(raises(KeyError("x"))))
    assert found.difference == "raises KeyError where the replaced planner answers"
    found = again(path, seam(raises(KeyError("x")), raises(ValueError("y"))))
    assert found.difference == "raises KeyError, not ValueError"
    # Ours leaves it to the original, as it does at the seam.
    assert again(path, seam(raises(Declined()))).difference is None


@pytest.mark.parametrize("at", ["savez", "write_text", "touch", "mkdir"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_call_is_saved_whole_or_not_at_all(
    at: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(first: Any, *_: Any, **__: Any) -> None:
        if at == "savez":
            Path(first).write_bytes(b"PK half")
        raise error

    holder = {"savez": np, "write_text": _saved}.get(at, Path)
    monkeypatch.setattr(holder, at, fails)
    with pytest.raises(type(error)):
        saved(tmp_path, np.arange(5))
    assert not list(tmp_path.iterdir())


def test_calls_saved_by_two_processes_of_one_number(tmp_path: Path) -> None:
    """Ranks on several machines share a folder, and may have equal process numbers."""
    first = saved(tmp_path, np.arange(2))
    claimed = first.with_name(first.name.replace("-1.json", "-2.npz"))
    claimed.touch()  # by the other, in the middle of saving
    second = saved(tmp_path, np.arange(3))
    assert second.name.endswith("-3.json")
    assert claimed.stat().st_size == 0
    assert [len(again(path).ours[0][0]) for path in (first, second)] == [2, 3]


def test_a_call_larger_than_what_is_read_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_saved, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="more than 100 bytes"):
        saved(tmp_path, "x" * 200)
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    monkeypatch.undo()
    with pytest.raises(InputError, match="deep"):
        saved(tmp_path, deep)
    assert not list(tmp_path.iterdir())


def test_training_goes_on_where_nothing_can_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    made = trees()
    shadow = _shadow.Shadow(
        raises=False,
        save=lambda seam, args, kwargs, what: save(
            tmp_path / "file" / "folder", made, seam, args, kwargs, what
        ),
    )
    with_seam = seam(lambda x: x + 1, lambda x: x)
    with_seam.differ = None
    with_seam.ours = with_seam.make(with_seam.original)  # type: ignore[arg-type]
    with caplog.at_level("ERROR", logger="waveplan.art"):
        assert shadow(with_seam)(4) == 4
    assert "result: 5 is not 4; its inputs could not be saved: " in caplog.text
    (found,) = shadow.found
    assert found.saved is None
    copy = pickle.loads(pickle.dumps(found))
    assert (str(copy), copy.unsaved) == (str(found), found.unsaved)


def test_what_no_function_reads_is_saved_as_text(tmp_path: Path) -> None:
    for value in (object(), SimpleNamespace(), np.array([print], object), Choice(1), 1 + 2j):
        path = saved(tmp_path, value)
        assert "opaque" in json.loads(path.read_text())["args"][0]
        assert again(path).ours == ((None,), {})
