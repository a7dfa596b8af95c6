"""Every option of every command with hostile values."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

import waveplan.cli.sweep as sweep_command
from waveplan.cli import _parser, main
from waveplan.sweep import Outcome

DATA = Path(__file__).parents[1] / "data"
ROWS = str(DATA / "tau_turns_open.npz")
MODEL = ["--model", "qwen3.6-35b-a3b"]
FREE = ["--available", "70GiB"]
BASES = {
    "demo": [],
    "plan": [ROWS, *MODEL, *FREE],
    "price": ["--tokens", "1000", *MODEL],
    "sweep": [ROWS, *MODEL, *FREE],
    "rules": MODEL,
    "check": ["PEAKS"],
    # Refused for the number of runs in the end, after every other option was looked at.
    "bench": ["--repeat", "0"],
}
VALUES = [
    "",
    "-1",
    "9223372036854775808",
    "1e999",
    "nan",
    "12 bananas",
    "٣",
    "9" * 5000,
    "a" * 100_000,
    "none/none",
    "a\0b",
    "\ud800\x1b[2J\n",
    "--",
    "%s{0}$(id)",
]
COMMANDS: dict[str, argparse.ArgumentParser] = next(
    action.choices  # type: ignore[misc]
    for action in _parser()._actions
    if isinstance(action, argparse._SubParsersAction)
)


class Inline(Executor):
    """A pool that refuses every configuration here and now."""

    def submit(self, *_: Any) -> Future[Outcome]:  # type: ignore[override]
        done: Future[Outcome] = Future()
        done.set_result(Outcome(status="impossible", reason="not here"))
        return done


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, where options may write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep_command, "process_pool", lambda _: Inline())
    records = json.loads((DATA / "peaks.json").read_text())
    Path("PEAKS").write_text(json.dumps(records[:1]))


def lines(command: str, action: argparse.Action, value: str) -> list[str]:
    """The command with one option as given, in place of what stood for it."""
    words = list(BASES[command])
    if not action.option_strings:
        positional = [word for word in words[:1] if not word.startswith("-")]
        return [command, *words[len(positional) :], "--", value]
    option = action.option_strings[0]
    for other in (option, "--available" if option == "--budget" else option):
        if other in words:
            at = words.index(other)
            del words[at : at + 2]
    return [command, *words, option if action.nargs == 0 else f"{option}={value}"]


def attacks() -> Iterator[tuple[str, argparse.Action]]:
    for command, parser in COMMANDS.items():
        for action in parser._actions:
            if action.dest != "help":
                yield command, action


@pytest.mark.parametrize(
    ("command", "action"),
    [pytest.param(command, action, id=f"{command}-{action.dest}") for command, action in attacks()],
)
def test_hostile_values(
    command: str, action: argparse.Action, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused in one printable line, or taken; nothing else, and no file is left half written."""
    refused = 0
    for value in VALUES[: 1 if action.nargs == 0 else None]:
        status = main(lines(command, action, value))
        _, error = capsys.readouterr()
        assert status in (0, 1, 2), value[:40]
        if status == 2:
            refused += 1
            assert error.count("\n") == 1
            assert error.rstrip("\n").isprintable(), error
            assert len(error) < 1100
            assert error.startswith(f"waveplan {command}: ")
    if action.nargs != 0:
        assert refused >= (3 if action.dest in ("html", "csv", "output") else 8), action.dest
    assert not [name for name in os.listdir() if name.startswith(".")]  # noqa: PTH208


def test_every_command_is_attacked() -> None:
    assert set(COMMANDS) == set(BASES)
    assert len(list(attacks())) > 100


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", ROWS, *MODEL, *FREE, "--reserve", "0.2"], "reserve"),
        (["price", "--tokens", "9", *MODEL, "--reserve", "0.2"], "reserve"),
        (["sweep", ROWS, *MODEL, *FREE, "--reserve", "0.2"], "reserve"),
        (["rules", "--cp", "0"], "--cp is a fact of a job: it needs --model"),
        (["rules", "--recompute", "none"], "--recompute is a fact"),
        (["rules", "--strict"], "--strict"),
        (["check", "PEAKS", "--margin", "0.5"], "--margin"),
        (["plan", ROWS, *MODEL, *FREE, "--compatible", "--rules", "x.toml"], "compatible mode"),
        (["price", "--tokens", "9", *MODEL, "--limit", "5"], "--limit"),
        (["price", ROWS, *MODEL, "--requests", "5"], "--requests"),
        (["bench", "--peer", "grpo_8x8", "--cp", "2"], "--cp"),
        (["bench", "--peer", "grpo_8x8", "--targets", "none"], "--targets"),
    ],
)
def test_options_that_would_change_nothing(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cp", ",".join(["1"] * 1000), "--tp", ",".join(["1"] * 1000)], "1,000,000 config"),
        (["--rule-set", "publshed"], "--rule-set is 'publshed'"),
        (["--recompute", "ful"], "--recompute is 'ful'"),
        (["--cp", "1,0"], "--cp is 0"),
        (["--cp", "1,1048577"], "--cp is 1048577"),
        (["--lora-rank", "-1"], "--lora-rank is -1"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--jobs", "-5"], "--jobs is -5"),
    ],
)
def test_axes_of_a_sweep(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", ROWS, *MODEL, *FREE, *words]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("tokens", "requests"), [(1 << 26, 1 << 21), (1 << 27, 1), (5, 6), (1, 0), (0, 0)]
)
def test_made_up_rows_are_bounded(
    tokens: int, requests: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["price", "--tokens", str(tokens), "--requests", str(requests), *MODEL]
    assert main(words) == 2
    assert "give 1 to" in capsys.readouterr().err


def test_rule_sets_of_a_job_are_named() -> None:
    from waveplan import InputError
    from waveplan.jobs import Job

    with pytest.raises(InputError, match="rule_set is 'publshed'"):
        Job(model=MODEL[1], available="9GiB", rule_set="publshed").planner()
