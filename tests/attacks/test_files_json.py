"""JSON files of every format, edited, cut, exploded or of another version."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waveplan import InputError, Model, Planner, Profiles, Topology, Training, models
from waveplan.check import check
from waveplan.cli import main
from waveplan.jobs import Job, Source
from waveplan.parameters import count
from waveplan.sweep import Outcome, outcomes, sweep

DATA = Path(__file__).parents[1] / "data"
ROWS = str(DATA / "tau_turns_open.npz")
NAME = "qwen3.6-35b-a3b"
GONE = object()
WRONG: list[Any] = [
    GONE,
    None,
    True,
    -1,
    0,
    2**62,
    2**63,
    10**30,
    10**4200,
    1.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "1",
    "9" * 5000,
    "\ud800\x1b[2J\n",
    [],
    [[1, 2], [3, 4]],
    {},
    {"a": [1]},
]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value: keys and, of each list, the first two items."""
    yield at
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in items if not isinstance(value, list) else enumerate(value[:2]):
        yield from places(inner, (*at, key))


def edited(value: Any, at: tuple[Any, ...], wrong: Any) -> Any:
    if not at:
        return {} if wrong is GONE else wrong
    made = copy.deepcopy(value)
    inner = made
    for key in at[:-1]:
        inner = inner[key]
    if wrong is GONE:
        del inner[at[-1]]
    else:
        inner[at[-1]] = wrong
    return made


def attack(value: Any, use: Callable[[Any], object], every: int = 1) -> tuple[int, int]:
    """Every value replaced by every wrong one, or by some; how many were refused, in one line,
    or accepted."""
    refused = accepted = 0
    for number, at in enumerate(places(value)):
        for wrong in WRONG[number % every :: every]:
            try:
                use(edited(value, at, wrong))
            except InputError as error:
                text = str(error)
                if not text.isprintable() or len(text) > 1000:
                    raise AssertionError(f"{at} as {wrong!r:.40}: {text!r:.200}") from error
                refused += 1
            except Exception as error:
                raise AssertionError(f"{at} as {wrong!r:.40}: {error!r:.200}") from error
            else:
                accepted += 1
    return refused, accepted


def planner(compatible: bool = False) -> Planner:
    return Planner(models.get(NAME), Topology(), Training(), "9GiB", compatible=compatible)


ROW = [np.arange(300) + 1000 * i for i in range(6)]


def learned(compatible: bool) -> Profiles:
    plans = planner(compatible)
    for peak in (10**9 + 1, 2 * 10**9 + 1):
        plans.observe(plans.wave(ROW), peak, peak // 3)
    return plans.profiles


# --- every value of every format ---


@pytest.mark.parametrize("compatible", [False, True])
def test_profiles(compatible: bool) -> None:
    plans = planner(compatible)
    document = learned(compatible).to_dict()

    def use(value: Any) -> None:
        plans.profiles = made = Profiles.from_dict(value)
        assert (
            Profiles.from_dict(json.loads(json.dumps(made.to_dict()))).to_dict() == made.to_dict()
        )
        if made.published == compatible:
            plans.observe(plans.wave(ROW), 10**9)

    refused, accepted = attack(json.loads(json.dumps(document)), use)
    assert refused > 300
    assert accepted > 10


def test_saved_profiles_are_exact(tmp_path: Path) -> None:
    """Integers above 2**53 come back as they were."""
    document = learned(False).to_dict()
    profile = document["profiles"][0]["profile"]
    profile["first"] = [2**53 + 1, 2**61 + 1]
    profile["later"] = [[2**53 + 1, 2**61 + 1]]
    profiles = Profiles.from_dict(json.loads(json.dumps(document)))
    profiles.save(tmp_path / "profiles.json")
    loaded = Profiles.load(tmp_path / "profiles.json").to_dict()
    assert json.loads(json.dumps(loaded)) == json.loads(json.dumps(document))


def test_profiles_of_a_million_points_are_refused() -> None:
    document = json.loads(json.dumps(learned(False).to_dict()))
    document["profiles"][0]["profile"]["later"] = [[i + 1, i] for i in range(1_000_000)]
    with pytest.raises(InputError, match="1000000 points: at most 16"):
        Profiles.from_dict(document)


@pytest.mark.parametrize("name", [NAME, "gpt-oss-20b", "deepseek-v2-lite"])
def test_configs(name: str) -> None:
    table = json.loads((Path(models.__file__).parent / "data" / "models.json").read_text())

    def use(value: Any) -> None:
        model = Model.from_hf(value if isinstance(value, dict) else {"text_config": value})
        count(model)
        planner_of(model)

    def planner_of(model: Model) -> None:
        Planner(model, Topology(), Training(), "9GiB")

    refused, accepted = attack(table[name], use)
    assert refused > 200
    assert accepted > 10
    nested = table[name]
    for _ in range(50):
        nested = {"text_config": nested}
    with pytest.raises(InputError, match="lacks"):
        Model.from_hf(nested)


def test_records_of_peaks() -> None:
    """A wrong record is priced or listed, whatever it holds; the one beside it is priced."""
    records = json.loads((DATA / "peaks.json").read_text())
    good = next(one for one in records if one["id"] == "art-recompute-csv-44")
    bare = {"id": "beside"}

    def use(value: Any) -> None:
        report = check([value, bare])
        assert report.unpriced[-1].id == "beside"
        assert len(report.rows) + len(report.unpriced) >= 2
        assert "\x1b" not in report.text()
        json.dumps(report.to_dict(), allow_nan=False)

    refused, accepted = attack(good, use, every=7)
    assert refused == 0
    assert accepted > 150
    rows = check([{**good, "tokens": 5}, {**good, "id": "good"}, 5]).rows
    assert "good" in [row.id for row in rows]


@pytest.mark.parametrize(
    "tokens",
    [
        {"lengths": "1x16777216", "global_packed": 1 << 22},
        {"lengths": "+".join(["1"] * 100_000), "global_packed": 9},
        {"lengths": "-5+6", "global_packed": 1},
        {"lengths": "5x" + "9" * 5000, "global_packed": 1},
        {"lengths": "4194305", "global_packed": 1},
        {"lengths": "٣x٣", "global_packed": 9},
        {"lengths": 9, "global_packed": 9},
        {"lengths": ["9"], "global_packed": 9},
        {"requests": 1 << 22, "global_packed": 1 << 22},
        {"segments": 1 << 22, "global_packed": 1 << 20, "global_logical": 1 << 22},
        {"global_packed": 1 << 23},
        {"global_packed": -1},
        {"global_packed": 0},
    ],
)
def test_records_of_absurd_sizes_are_not_made(tokens: dict[str, Any]) -> None:
    """Such a record would take gigabytes of made-up tokens, or a minute."""
    records = json.loads((DATA / "peaks.json").read_text())
    good = next(one for one in records if one["id"] == "art-recompute-csv-44")
    report = check([{**good, "baseline_bytes": None, "tokens": tokens}])
    assert not report.rows
    assert len(report.unpriced) == 1


def test_megatron_arguments() -> None:
    arguments: dict[str, Any] = {
        "num_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "vocab_size": 100,
        "ffn_hidden_size": 128,
        "num_experts": 4,
        "moe_ffn_hidden_size": 32,
        "moe_layer_freq": "[0]*1+[1]*3",
        "linear_attention_freq": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "tensor_model_parallel_size": 2,
        "recompute_granularity": "selective",
        "recompute_modules": ["moe"],
        "world_size": 8,
        "sequence_parallel": True,
    }
    from waveplan import megatron

    def words(value: Any) -> list[str]:
        pairs = value.items() if isinstance(value, dict) else [("value", value)]
        return [f"--{key.replace('_', '-')}={item}" for key, item in pairs]

    refused, _ = attack(arguments, megatron.read)
    assert refused > 200
    refused, _ = attack(arguments, lambda value: megatron.read(words(value)))
    assert refused > 200
    for pattern in ("[1]*9999999999", "[1]*" + "9" * 5000, "(" * 5000, "[0]*-1", "[1]+" * 9000):
        with pytest.raises(InputError, match="--moe-layer-freq"):
            megatron.read({**arguments, "moe_layer_freq": pattern})


# --- outputs of a sweep, which are read when it goes on ---


@pytest.fixture
def done(tmp_path: Path) -> tuple[Source, list[Job], Path]:
    """A sweep of one configuration that is done, and its output."""
    source, jobs = Source(path=ROWS), [Job(model=NAME, available="70GiB")]
    output = tmp_path / "sweep.jsonl"
    sweep(source, jobs, executor=Inline(), output=output)
    return source, jobs, output


class Inline:
    """An executor that works here and now."""

    def submit(self, work: Callable[..., Any], *args: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(work(*args))
        return future


def test_lines_of_a_sweep(done: tuple[Source, list[Job], Path]) -> None:
    source, jobs, output = done
    line = json.loads(output.read_text())

    def use(value: Any) -> None:
        output.write_text(json.dumps(value) + "\n")
        for _, outcome in outcomes(source, jobs, executor=Nothing(), output=output):
            assert isinstance(outcome, Outcome)
            assert outcome.status in ("ok", "partial", "refused", "impossible")
            assert isinstance(outcome.waves, int)

    refused, accepted = attack(line, use)
    assert refused > 200
    assert accepted > 10


class Nothing:
    """An executor that finishes nothing: its work counts as impossible."""

    def submit(self, *_: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(Outcome(status="impossible", reason="not planned here"))
        return future


def test_a_sweep_cut_anywhere_goes_on(done: tuple[Source, list[Job], Path]) -> None:
    source, jobs, output = done
    line = output.read_bytes()
    for end in range(0, len(line), 37):
        output.write_bytes(line + line[:end])
        sweep(source, jobs, executor=Nothing(), output=output)
        assert output.read_bytes() == line, end
    # Without its line break the only line is planned again, and nothing is glued to it.
    output.write_bytes(line[:-1])
    sweep(source, jobs, executor=Inline(), output=output)
    assert output.read_bytes() == line


@pytest.mark.parametrize("text", ["hello", "hello\n", '{"a": 1', "[1]", '{"format": 2}', "\n{}"])
def test_notes_are_never_taken_for_a_sweep(text: str, tmp_path: Path) -> None:
    """A file of something else is refused and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(InputError, match="no line of a sweep's output"):
        sweep(Source(path=ROWS), [Job(model=NAME, available="70GiB")], output=path)
    assert path.read_text() == text


# --- files as such, whatever their format ---

READERS: dict[str, Callable[[Path], object]] = {
    "peaks": check,
    "profiles": Profiles.load,
    "config": Model.from_hf,
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"nope", "is not JSON"),
        (b"\xff\xfe{\0}\0", "byte 0 is not UTF-8"),
        (b'{"a": "\xe2\x82', "is not UTF-8"),
        (b"\0" * 1000, "is not JSON"),
        (b"[" * 100_000, "nest more than 64 deep"),
        (b'{"a":' * 100_000, "nest more than 64 deep"),
        (b"[" * 65 + b"]" * 65, "nest more than 64 deep"),
        (b"[" + b"[]," * (1 << 20) + b"[]]", "more than 1048576 lists and objects"),
        (
            b"{" + b",".join(b'"%d":0' % i for i in range((1 << 18) + 1)) + b"}",
            "more than 262144 keys",
        ),
        (b'{"colons are no keys": "' + b":" * (1 << 19) + b'"}', ""),
        (b'{"version": 1, "version": 2}', "'version' is given twice"),
        (b"9" * 5000, "limit (4300 digits)"),
        (b" " * ((16 << 20) + 1), "too large: at most 16777216 bytes"),
        (b"null", ""),
        (b"17", ""),
        (b'"text"', ""),
        (b"[]", ""),
        (b"{}", ""),
        (b'{"version": 2, "kind": "observed", "profiles": []}', ""),
        (b'{"version": [[1]], "text_config": [], "kind": {}}', ""),
    ],
)
def test_files(kind: str, data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    if (kind, data) == ("peaks", b"[]"):
        assert not check(path).rows
        return
    with pytest.raises(InputError) as error:
        READERS[kind](path)
    text = str(error.value)
    assert str(path) in text
    assert text.isprintable()
    assert len(text) < 400
    assert says in text


@pytest.mark.parametrize("kind", READERS)
def test_every_beginning_of_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    if kind == "profiles":
        whole = json.dumps(learned(False).to_dict()).encode()
    elif kind == "config":
        table = json.loads((Path(models.__file__).parent / "data" / "models.json").read_text())
        whole = json.dumps(table[NAME]).encode()
    else:
        whole = json.dumps(json.loads((DATA / "peaks.json").read_text())[:1]).encode()
    for end in range(0, len(whole), 11):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError, match=f"^{path} is not JSON: "):
            READERS[kind](path)
    path.write_bytes(b"\xef\xbb\xbf" + whole)
    READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_names(kind: str, tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    names = ["none.json", "folder.json", "loop.json", "x" * 300 + ".json", "a\0b.json"]
    for path in [*(tmp_path / name for name in names), Path("/dev/zero"), Path("/dev/full")]:
        with pytest.raises(InputError) as error:
            READERS[kind](path)
        assert str(error.value).isprintable()
    with pytest.raises(InputError, match="is not JSON"):
        READERS[kind](Path(os.devnull))


def test_the_command_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    for text, says in (
        ('{"hidden_size": 0}', "hidden_size is 0"),
        ('{"hidden_size": 1e999}', "hidden_size must be an integer, not inf"),
        ('{"num_hidden_layers": 4000000000}', "num_hidden_layers is 4000000000"),
        ('{"text_config": 5}', "text_config must be an object"),
        ("[]", "must hold one JSON object"),
    ):
        config.write_text(text)
        assert main(["plan", ROWS, "--model", str(config), "--available", "9GiB"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"waveplan plan: {config}")
        assert says in error
        assert error.count("\n") == 1
