"""Files as trainers write them are read as the table says, by Python and ``waveplan inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainers import TABLE, Row

from waveplan import (
    Budget,
    InputError,
    Planner,
    Requests,
    Sequences,
    Topology,
    Training,
    models,
)
from waveplan.cli import main

pytest.importorskip("pyarrow")


def lists_of(sequences: Sequences) -> list[list[int]]:
    return [sequences[i].tolist() for i in range(len(sequences))]


@pytest.mark.parametrize("row", TABLE, ids=[row.trainer for row in TABLE])
def test_files_of_trainers(row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / row.name
    row.write(path)
    sequences = Sequences.load(path)
    assert lists_of(sequences) == row.sequences
    assert Requests.from_any(sequences).labelled.tolist() == row.labelled
    assert sequences.origin is not None
    assert sequences.origin.pads == row.pads
    assert set(row.columns.split()) <= sequences.origin.used.keys()
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sequences"] == len(row.sequences)
    assert found["tokens"] == sum(map(len, row.sequences))
    assert (found["labelled"], found["pads"], found["groups"]) == (
        sum(row.labelled),
        row.pads,
        row.groups,
    )
    assert set(row.columns.split()) <= {
        k for k, use in found["columns"].items() if use != "not read"
    }


def test_the_examples_are_two_of_them(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    for row in TABLE:
        if row.name in ("verl.jsonl", "trl_packed.jsonl"):
            row.write(tmp_path / row.name)
            assert (examples / row.name).read_text() == (tmp_path / row.name).read_text()


def test_large_lines_are_read_alike_by_both_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(3)
    path = tmp_path / "many.jsonl"
    with path.open("w") as file:
        for i in range(4_000):
            ids = chance.integers(0, 2**40, chance.integers(1, 30)).tolist()
            mask = chance.integers(0, 2, len(ids)).tolist()
            file.write(
                json.dumps({"input_ids": ids, "loss_mask": mask, "uid": f"g{i // 8}"}) + "\n"
            )
    both = []
    for installed in (True, False):
        with monkeypatch.context() as patched:
            if not installed:
                patched.setattr("waveplan.sequences.lines.find_spec", lambda _: None)
            both.append(Sequences.load(path))
    first, second = both
    for name in ("tokens", "offsets", "labelled"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert first.columns["group"].tolist() == second.columns["group"].tolist()
    assert first.place(3_999) == second.place(3_999) == f"{path}: line 4000"
    with path.open("a") as file:
        file.write('{"input_ids": [1, 2], "loss_mask": [0, 7], "uid": "x"}\n')
    with pytest.raises(InputError, match=r"line 4001: loss_mask\[1\] is 7"):
        Sequences.load(path)


class Tensor:
    """A tensor's protocol: an array, on a device."""

    def __init__(self, values: Any, device: str = "cpu") -> None:
        self._values, self.device = np.array(values), device

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.device != "cpu":
            raise TypeError(f"can't convert {self.device} device type tensor to numpy")
        return self._values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def ndim(self) -> int:
        return self._values.ndim


class Nested:
    """A nested tensor's."""

    is_nested = True

    def unbind(self) -> tuple[Tensor, ...]:
        return Tensor([1, 2]), Tensor([3])


def test_columns_in_memory() -> None:
    import pyarrow as pa

    ids, mask, labels = [[0, 5, 6], [7, 8, 9]], [[0, 1, 1], [1, 1, 1]], [[-100, -100, 6], [7, 8, 9]]
    columns = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    class Record:
        def __init__(self, **given: Any) -> None:
            self.__dict__ |= given

    for given in (
        columns,
        {name: np.array(values) for name, values in columns.items()},
        {name: Tensor(values) for name, values in columns.items()},
        {name: [Tensor(row) for row in values] for name, values in columns.items()},
        pa.table(columns),
        pa.table(columns).to_batches()[0],
        records,
        [Record(**record) for record in records],
        [{name: Tensor(row) for name, row in record.items()} for record in records],
        [{name: np.array([row]) for name, row in record.items()} for record in records],
    ):
        sequences = Sequences.from_any(given)
        assert lists_of(sequences) == [[5, 6], [7, 8, 9]]
        assert Requests.from_any(given).labelled.tolist() == [1, 3]
    assert lists_of(Sequences.from_any(iter(records))) == [[5, 6], [7, 8, 9]]
    assert lists_of(Sequences.from_any(Nested())) == [[1, 2], [3]]
    assert lists_of(Sequences.from_any(np.array(ids), np.array(mask))) == [[5, 6], [7, 8, 9]]
    assert lists_of(Sequences.from_any({"input_ids": [5, 6], "labels": [-100, 6]})) == [[5, 6]]
    renamed = Sequences.from_any(
        {"ids": ids, "keep": mask}, columns={"input_ids": "ids", "attention_mask": "keep"}
    )
    assert lists_of(renamed) == [[5, 6], [7, 8, 9]]
    with pytest.raises(
        InputError, match=r"sequences: input_ids is on cuda:0: give input_ids.cpu\(\)"
    ):
        Sequences.from_any({"input_ids": Tensor(ids, "cuda:0")})
    with pytest.raises(InputError, match="sequences: row 0: attention_mask has 2 entries for 3"):
        Sequences.from_any({"input_ids": ids, "attention_mask": [[1, 1], [1, 1]]})


def test_files_that_differ_and_places(tmp_path: Path) -> None:
    one, two = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    one.write_text('{"input_ids": [1, 2], "labels": [1, 2]}\n')
    two.write_text('\n{"input_ids": [3], "labels": [3]}\n')
    sequences = Sequences.load([one, two])
    assert lists_of(sequences) == [[1, 2], [3]]
    assert sequences.place(1) == f"{two}: line 2"
    assert sequences.take([1]).place(0) == f"{two}: line 2"
    two.write_text('{"input_ids": [3]}\n')
    with pytest.raises(InputError, match=f"{two}: line 1: labels is missing here, unlike {one}"):
        Sequences.load([one, two])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder holds no file"):
        Sequences.load(tmp_path / "empty")
    torn = tmp_path / "torn.jsonl.gz"
    next(row for row in TABLE if row.name == "trl_sft.jsonl.gz").write(torn)
    torn.write_bytes(torn.read_bytes()[:-12])
    with pytest.raises(InputError, match=f"{torn}: is cut off or damaged, copy it again"):
        Sequences.load(torn)
    (tmp_path / "rollouts.pt").touch()
    with pytest.raises(InputError, match="a pickle can run code"):
        Sequences.load(tmp_path / "rollouts.pt")


def test_pads_that_no_mask_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "padded.npy"
    np.save(path, np.array([[0, 0, 0, 0, 1, 0, 3, 4], [1, 2, 3, 4, 0, 0, 0, 0]]))
    assert lists_of(Sequences.load(path, pad=0)) == [[1, 0, 3, 4], [1, 2, 3, 4]]
    assert lists_of(Sequences.load(path)) == np.load(path).tolist()
    assert main(["price", str(path), "--model", "qwen3-0.6b"]) == 0
    said = capsys.readouterr().err
    assert "note: 1 sequences end in a run of id 0, as pads do: if they are pads, --pad 0" in said


def test_an_empty_sequence_is_refused_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"tokens": [1, 2]}\n{"tokens": []}\n{"tokens": [3]}\n')
    command = ["plan", str(path), "--model", "qwen3-0.6b", "--available", "8GiB", "--json"]
    assert main(command) == 1
    plan = json.loads(capsys.readouterr().out)
    assert plan["empty"] == [f"{path}: line 2"]
    assert sum(wave["width"] for wave in plan["waves"]) == 2
    assert main([*command, "--skip-empty"]) == 0
    assert lists_of(Sequences.load(path, skip_empty=True)) == [[1, 2], [3]]
    planner = Planner(models.get("qwen3-0.6b"), Topology(), Training(), Budget(available="8GiB"))
    with pytest.raises(
        InputError, match=r"some.jsonl: line 2: is empty: load\(..., skip_empty=True"
    ):
        planner.waves(Sequences.load(path))


def test_ids_outside_the_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"tokens": [1, 2]}\n{"tokens": [3, 4294967295]}\n')
    assert main(["plan", str(path), "--model", "qwen3-0.6b", "--available", "8GiB"]) == 2
    error = capsys.readouterr().err
    assert f"{path}: line 2: token 1 is 4294967295: the model's vocabulary has 151936" in error
    planner = Planner(models.get("qwen3-0.6b"), Topology(), Training(), Budget(available="8GiB"))
    for planned in (planner.plan, planner.waves, planner.plan_shares):
        with pytest.raises(InputError, match="sequence 1: token 1 is 151936: the model's vocabul"):
            planned([[1, 2], [3, 151_936]])


def test_the_command_line_labels_what_the_library_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labelled.jsonl"
    path.write_text('{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}\n' * 3)
    command = ["plan", str(path), "--model", "qwen3-0.6b", "--available", "8GiB", "--json"]
    planner = Planner(models.get("qwen3-0.6b"), Topology(), Training(), Budget(available="8GiB"))
    required = {}
    for targets in ("given", "all", "last-turn"):
        assert main([*command, "--targets", targets]) == 0
        out, err = capsys.readouterr()
        required[targets] = json.loads(out)["waves"][0]["required"]
        assert ("every token is labelled" in err) == (targets == "all")
    assert required["given"] == required["last-turn"]
    wave = next(iter(planner.waves(Sequences.load(path))))
    assert wave.required == required["given"]
    assert main(command[:-1]) == 0
    assert "3 requests, 9 tokens, 6 labelled" in capsys.readouterr().out
