"""The command line: what it prints, how it ends, and its one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from waveplan.cli import main

MODEL = ["--model", "qwen3.6-35b-a3b"]


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """Six rows of which four share a prefix."""
    rng = np.random.default_rng(7)
    prefix = rng.integers(0, 1000, 300)
    made = [np.concatenate([prefix, rng.integers(0, 1000, 50 + i)]) for i in range(4)]
    made += [rng.integers(0, 1000, 400), rng.integers(0, 1000, 80)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in made])])
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=np.concatenate(made), offsets=offsets)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(list(argv))
    out, err = capsys.readouterr()
    return status, out, err


def test_demo_plans_the_bundled_rollouts_to_their_end(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "demo")
    assert (status, err) == (0, "")
    assert "98 requests, 694,654 tokens" in out
    assert "memory: " in out
    assert "end of the pool" in out


def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "demo", "--json", "--cp", "1")
    document = json.loads(out)
    assert status == 0
    assert document["version"] == 1
    planned = [item for wave in document["waves"] for item in wave["indices"]]
    assert sorted(planned) == list(range(98))
    assert all(wave["required"] <= document["limit_bytes"] for wave in document["waves"])
    assert "98 requests" in err


def test_plan_reports_what_can_never_fit(capsys: pytest.CaptureFixture[str], rows: str) -> None:
    status, out, _ = run(
        capsys, "plan", rows, *MODEL, "--available", "800MiB", "--rule-set", "published"
    )
    assert status == 1
    assert "refused" in out
    assert "needs" in out


@pytest.mark.parametrize("cp", ["1", "2", "4"])
def test_plan_html_and_explain(
    capsys: pytest.CaptureFixture[str], rows: str, tmp_path: Path, cp: str
) -> None:
    page = tmp_path / "page.html"
    status, out, _ = run(
        capsys,
        "plan",
        rows,
        *MODEL,
        "--cp",
        cp,
        "--available",
        "40GiB",
        "--explain",
        "--html",
        str(page),
    )
    assert status == 0
    assert "shared prefixes stored once" in out
    text = page.read_text(encoding="utf-8")
    data = json.loads(text.split('id="waveplan-data">')[1].split("</script>")[0])
    assert sum(wave["requests"] for wave in data["waves"]) == 6
    assert len(data["tightest"]["ranks"]) == int(cp)
    assert "http" not in text.replace("http-equiv", "")


def test_price_of_unshared_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["price", "--tokens", "20000", "--requests", "4", *MODEL, "--available", "70GiB"]
    status, out, _ = run(capsys, *argv, "--json")
    assert status == 0
    document = json.loads(out)
    assert document["fits"]
    assert document["plan"]["packed_tokens"] == 20000
    status, out, _ = run(capsys, *argv[:-1], "1GiB")
    assert status == 1
    assert "does not fit" in out


def test_rules_list_states_for_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "rules", *MODEL, "--tp", "2", "--json")
    states = {row["name"]: row for row in json.loads(out)["rules"]}
    assert status == 0
    assert states["moe.shared_expert_return"]["state"] == "off"
    assert "TP=2" in states["moe.shared_expert_return"]["reason"]
    status, out, _ = run(capsys, "rules")
    assert "measured for" in out


def test_sweep_lists_impossible_configurations_and_resumes(
    capsys: pytest.CaptureFixture[str], rows: str, tmp_path: Path
) -> None:
    output = tmp_path / "sweep.jsonl"
    argv = ["sweep", rows, *MODEL, "--cp", "1,2", "--ep", "1,3", "--available", "20GiB,40GiB"]
    argv += ["--output", str(output), "--jobs", "2", "--json"]
    status, out, _ = run(capsys, *argv)
    results = json.loads(out)["results"]
    assert status == 1
    assert [item["status"] for item in results].count("impossible") == 4
    assert all("ep" in item["reason"] for item in results if item["status"] == "impossible")
    lines = output.read_text().splitlines()
    assert len(lines) == 8
    output.write_text("\n".join([*lines[:5], lines[5][:40]]))
    status, again, _ = run(capsys, *argv)
    assert json.loads(again)["results"] == results
    assert len(output.read_text().splitlines()) == 8


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["plan", "missing.npz", *MODEL, "--available", "40GiB"], "missing.npz"),
        (["plan", "ROWS", "--model", "nobody", "--available", "40GiB"], "nobody"),
        (["plan", "ROWS", *MODEL, "--available", "12 bananas"], "12 bananas"),
        (["plan", "ROWS", *MODEL, "--available", "0"], "positive"),
        (["plan", "ROWS", *MODEL, "--available", "nan"], "nan"),
        (["plan", "ROWS", *MODEL, "--cp", "0", "--available", "40GiB"], "cp"),
        (["plan", "ROWS", *MODEL, "--tp", "3", "--available", "40GiB"], "tp is 3"),
        (["plan", "ROWS", *MODEL, "--available", "40GiB", "--limit", "0"], "limit"),
        (
            ["plan", "ROWS", *MODEL, "--available", "40GiB", "--targets", "last-turn"],
            "first_target",
        ),
        (["price", *MODEL, "--available", "40GiB"], "--tokens"),
        (["price", "--tokens", "0", *MODEL, "--available", "40GiB"], "--tokens"),
        (["plan", "ROWS", *MODEL, "--available", "40GiB", "--rules", "no.toml"], "no.toml"),
        (["check", "no.json"], "no.json"),
        (["bench", "--repeat", "0"], "--repeat"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], rows: str, argv: list[str], says: str
) -> None:
    status, out, err = run(capsys, *[rows if word == "ROWS" else word for word in argv])
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_bench_reads_and_searches(capsys: pytest.CaptureFixture[str], rows: str) -> None:
    status, out, _ = run(capsys, "bench", rows, "--repeat", "1", "--json")
    assert status == 0
    assert all(value > 0 for value in json.loads(out)["seconds"].values())


def test_every_command_helps_with_an_example() -> None:
    for command in ("demo", "plan", "price", "sweep", "rules", "check", "bench"):
        done = subprocess.run(
            [sys.executable, "-m", "waveplan", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"waveplan {command}" in done.stdout
        assert "example:" in done.stdout
