"""Records of own waves: written by the planner or the command line, priced by check to the byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from waveplan import InputError, Planner, Requests, Sequences, Topology, Training, models
from waveplan.accuracy.check import check, read
from waveplan.cli import main
from waveplan.pricing import Rule, default_rules

ROLLOUTS = ROOT / "examples" / "rollouts.jsonl"


@pytest.fixture(scope="module")
def requests() -> Requests:
    return Requests(Sequences.load(ROLLOUTS))


def planner(
    model: str = "qwen3-0.6b",
    topology: Topology | None = None,
    training: Training | None = None,
    **options: Any,
) -> Planner:
    topology = Topology() if topology is None else topology
    training = Training() if training is None else training
    return Planner(models.get(model), topology, training, "6 GiB", **options)


@pytest.mark.parametrize(
    ("model", "topology", "training"),
    [
        ("qwen3-0.6b", Topology(), Training()),
        ("qwen3-0.6b", Topology(cp=2), Training(base="nf4", modules_to_save="head")),
        ("qwen3.6-35b-a3b", Topology(cp=2, ep=2), Training(offload=("optimizer",))),
        (
            "qwen3-8b",
            Topology(tp=2, pp=2, sequence_parallel=True, sharding="optimizer"),  # type: ignore[arg-type]
            Training(lora_rank=0, recompute="selective"),
        ),
    ],
)
def test_check_prices_a_record_as_the_planner_did(
    model: str, topology: Topology, training: Training, requests: Requests, tmp_path: Path
) -> None:
    one = planner(model, topology, training)
    wave = one.wave(requests)
    path = tmp_path / "peaks.jsonl"
    kept = [one.record(wave, 1_000_000 + at, 2_000_000, id=f"wave {at}") for at in range(2)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in kept))
    report = check(path)
    first, base, second = report.rows
    assert not report.unpriced
    assert (first.id, second.id, base.id) == ("wave 0", "wave 1", "wave 0 (resident)")
    assert first.estimate == second.estimate == wave.price.estimate
    assert first.required == wave.required
    assert (first.observed, second.observed, base.observed) == (1_000_000, 1_000_001, 2_000_000)
    assert base.estimate == one.resident().allocated
    assert first.unmeasured == tuple(state.name for state in wave.price.unmeasured)


def test_files_of_records(requests: Requests, tmp_path: Path) -> None:
    one = planner()
    record = one.record(one.wave(requests), 9)
    line = json.dumps(record)
    for name, text in {
        "one.json": line,
        "list.json": json.dumps([record], indent=1),
        "table.json": json.dumps({"records": [record]}),
        "lines.jsonl": f"{line}\n\n{line}\n",
    }.items():
        (tmp_path / name).write_text(text)
        assert read(tmp_path / name) == [record] * text.count('"id"')
    (tmp_path / "lines.gz").write_bytes(gzip.compress(f"{line}\n{line}".encode()))
    assert read(tmp_path / "lines.gz") == [record] * 2
    (tmp_path / "cut.jsonl").write_text(f"{line}\n{line[:40]}")
    with pytest.raises(InputError, match=r"cut\.jsonl: line 2 is not JSON"):
        read(tmp_path / "cut.jsonl")


def test_what_was_observed_is_no_part_of_a_record(requests: Requests) -> None:
    one = planner()
    first = one.wave(requests)
    one.observe(first, 3 << 30)
    second = one.wave(requests)
    learned = second.plan.measures.to_dict()["plan"]["learned_bytes"]
    assert learned > 0
    record = one.record(second, 3 << 30)
    assert record["measures"]["plan"]["learned_bytes"] == 0
    (row,) = check([record]).rows
    assert row.state == "warm"
    assert row.estimate < second.price.estimate


def test_a_record_may_be_warm_without_profiles(requests: Requests) -> None:
    one = planner("qwen3.6-35b-a3b", Topology(cp=2))
    wave = one.wave(requests)
    cold, warm = check([one.record(wave, 9), one.record(wave, 9, cold=False)]).rows
    assert (cold.state, warm.state) == ("cold", "warm")
    assert warm.estimate < cold.estimate == wave.price.estimate


def test_own_rules_price_own_waves(requests: Requests) -> None:
    rule = Rule("my.entropy", "head_tokens * vocab * 4 * B", why="entropy", source="mine")
    rules = default_rules().with_rule(rule)
    one = planner(rules=rules)
    wave = one.wave(requests)
    record = one.record(wave, 9)
    assert record["rules"] == "default*"
    (ours,) = check([record], rules).rows
    (plain,) = check([record]).rows
    assert ours.estimate == wave.price.estimate > plain.estimate
    assert ours.assumed == ()
    assert "recorded under other rules" in plain.assumed[0]


def test_what_cannot_be_recorded(requests: Requests) -> None:
    one = planner()
    wave = one.wave(requests)
    with pytest.raises(InputError, match="peak_bytes is 0"):
        one.record(wave, 0)
    with pytest.raises(InputError, match="wave must be a Plan"):
        one.record(requests, 9)  # type: ignore[arg-type]
    routed = Requests([[1, 2], [6, 7]], targets=[True, False], routed=[0, 800_000], groups=2)
    one = planner("qwen3-4b", Topology(cp=2))
    whole = one.plan(routed)
    plan = one.plan(routed, available=whole.required - 1)
    assert plan.split
    with pytest.raises(InputError, match=r"wave has \d+ forwards: record one"):
        one.record(plan, 9)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"version": 2}, "version is 2"),
        ({"peak_bytes": None}, "peak_bytes must be an integer"),
        ({"model": None}, "model must be a dict"),
        ({"model": {"hidden": 1}}, "malformed"),
        ({"topology": {"tp": 0, "sharding": {}}}, "tp is 0"),
        ({"training": {"recompute": "some"}}, "recompute is 'some'"),
        ({"measures": {"plan": {}, "packs": []}}, "packs is empty"),
        ({"measures": {"plan": {"tokens": 1}, "packs": [{}]}}, "tokens"),
    ],
)
def test_a_damaged_record_is_listed(damage: dict[str, Any], says: str, requests: Requests) -> None:
    one = planner()
    good = one.record(one.wave(requests), 9, 9)
    report = check([good | damage, good])
    assert [row.id for row in report.rows][:1] == [good["id"]]
    (bad,) = report.unpriced
    assert says in bad.reason


def test_the_command_writes_what_check_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["--model", "qwen3.6-35b-a3b", "--cp", "2", "--dp", "2"]
    assert main(["price", str(ROLLOUTS), *job, "--json"]) == 0
    price = json.loads(capsys.readouterr().out)["price"]
    assert main(["record", str(ROLLOUTS), *job, "--peak", "4GiB", "--id", "mine"]) == 0
    line, said = capsys.readouterr()
    path = tmp_path / "peaks.jsonl"
    path.write_text(line)
    assert said.startswith("mine: estimate ")
    assert "note:" not in said
    assert main(["record", str(ROLLOUTS), *job, "--peak", "40GiB"]) == 0
    assert "note: is that peak all that was allocated?" in capsys.readouterr().err
    assert main(["record", str(ROLLOUTS), *job, "--total", "6GiB", "--resident", "2GiB"]) == 0
    whole, said = capsys.readouterr()
    assert "4.00 GiB above the level before it (2.00 GiB)" in said
    assert json.loads(whole)["peak_bytes"] == json.loads(line)["peak_bytes"] == 4 << 30
    assert main(["record", str(ROLLOUTS), *job, "--total", "6GiB"]) == 2
    assert "--total needs --resident" in capsys.readouterr().err
    assert main(["check", str(path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["records"]
    assert (row["id"], row["class"], row["observed"]) == ("mine", "own waves", 4 << 30)
    assert (row["estimate"], row["required"]) == (price["estimate"], price["required"])
