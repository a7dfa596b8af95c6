"""Bad command lines, streams and output files: one line and status 2, nothing half written."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from conftest import data_folder

from waveplan.cli import _parser, main
from waveplan.desk.sweep import Outcome

SEQUENCES = str(data_folder() / "tau_turns_open.npz")
MODEL = ["--model", "qwen3.6-35b-a3b"]
PLAN = ["plan", SEQUENCES, *MODEL, "--available", "70GiB"]
BASES = {
    "demo": [],
    "plan": [*PLAN[1:], "--limit", "9"],
    "price": ["--tokens", "1000", *MODEL],
    "sweep": PLAN[1:],
    "rules": MODEL,
    "check": ["PEAKS"],
    "models": [],
    "completion": ["bash"],
    "inspect": PLAN[1:2],
    "record": ["--tokens", "1000", *MODEL, "--peak", "1GiB"],
    "bench": ["--repeat", "0"],  # refused once every other option was looked at
}
VALUES = ("", "-1", "1e999", "9" * 5000, "none/none", "a\0b", "\ud800\x1b[2J\n", "--", "%s{0}")
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


def words(command: str, action: argparse.Action, value: str) -> list[str]:
    """The command with one option as given, in place of what stood for it."""
    base = list(BASES[command])
    if not action.option_strings:
        rest = base if base and base[0].startswith("-") else base[1:]
        return [command, *rest, "--", value]
    option = action.option_strings[0]
    for other in (option, "--available" if option == "--budget" else option):
        if other in base:
            del base[base.index(other) : base.index(other) + 2]
    return [command, *base, option if action.nargs == 0 else f"{option}={value}"]


@pytest.mark.parametrize("command", BASES)
def test_values_of_every_option(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("waveplan.desk.sweep.process_pool", lambda _: Inline())
    records = json.loads((data_folder() / "peaks.json").read_text())
    Path("PEAKS").write_text(json.dumps(records[:1]))
    for action in COMMANDS[command]._actions:
        for value in VALUES[: 1 if action.nargs == 0 else None] if action.dest != "help" else ():
            status = main(words(command, action, value))
            error = capsys.readouterr().err
            assert status in (0, 1, 2), (action.dest, value)
            if status == 2:
                assert error.startswith(f"waveplan {command}: ")
                assert error.count("\n") == 1
                assert error[:-1].isprintable()
                assert len(error) < 1100
    assert set(BASES) == set(COMMANDS)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([*PLAN, "--reserve", "0.2"], "reserve"),
        (["rules", "--cp", "0"], "--cp is a fact of a job: it needs --model"),
        (["check", "PEAKS", "--margin", "0.5"], "--margin"),
        ([*PLAN, "--mode", "reference", "--rules", "x.toml"], "reference mode"),
        (["price", "--tokens", "9", *MODEL, "--limit", "5"], "--limit"),
        (["price", "--tokens", "5", "--requests", "6", *MODEL], "--requests is 6"),
        (["price", "--tokens", str(1 << 27), "--requests", "1", *MODEL], "tokens is 134217728"),
        (["sweep", *PLAN[1:], "--cp", "1,0"], "--cp is 0"),
        (["sweep", *PLAN[1:], "--lora-rank", "-1"], "--lora-rank is -1"),
        (["sweep", *PLAN[1:], "--recompute", "ful"], "--recompute is 'ful'"),
        (["sweep", *PLAN[1:], "--rule-set", "publshed"], "--rule-set is 'publshed'"),
        (
            ["sweep", *PLAN[1:], *("--cp", ",".join("1" * 999)), *("--tp", "1," * 999 + "1")],
            "999,0",
        ),
        (["plan", "no\nsuch\r\x1b[31mfile.npz", *PLAN[2:]], "no such file"),
        ([*PLAN, "--html", "/dev/full"], "No space left"),
        ([*PLAN, "--html", "no/page.html"], "no folder"),
        ([*PLAN, "--html", "x" * 300 + ".html"], "too long"),
        ([*PLAN, "--html", "a\0b"], "no file name"),
    ],
)
def test_lines(line: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert error[:-1].isprintable()


# --- streams, locales, files that are written ---


def shell(line: list[str], redirect: str = "", **options: Any) -> subprocess.CompletedProcess[Any]:
    """A command of waveplan with redirections of the shell behind it."""
    script = f'"$0" -m waveplan "$@" {redirect}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", script, sys.executable, *line], capture_output=True, timeout=60, **options
    )


@pytest.mark.parametrize(
    ("line", "redirect", "status"),
    [
        (PLAN, ">&- 2>&- <&-", 0),
        ([*PLAN, "--json"], ">/dev/full", 2),
        (["plan", "none.npz", *PLAN[2:]], "2>/dev/full", 2),
        (["plan", "-", *PLAN[2:]], "<&-", 2),
        ([*PLAN, "--explain", "--all"], "| head -c 1 >/dev/null", 0),
    ],
)
def test_streams(line: list[str], redirect: str, status: int) -> None:
    done = shell(line, redirect)
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_few_letters_and_names_that_are_no_text(tmp_path: Path) -> None:
    sequences = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff.npz")
    Path(sequences).write_bytes(Path(SEQUENCES).read_bytes())
    plain = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    plain |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = shell(["plan", sequences, *PLAN[2:], "--explain"], env=plain)
    assert (done.returncode, b"tightest" in done.stdout) == (0, True), done.stderr


def test_ctrl_c_while_a_file_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "sequences.jsonl"
    os.mkfifo(pipe)
    line = (
        "import signal, sys; from waveplan.cli import main\n"
        # Whoever runs the tests in the background may have Ctrl-C ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        'print("up", flush=True); sys.exit(main())'
    )
    command = subprocess.Popen(
        [sys.executable, "-c", line, "plan", str(pipe), *PLAN[2:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"up\n"
    with pipe.open("wb", buffering=0) as writer:  # opens once the command reads
        writer.write(b'{"input_ids": [1, 2, 3]}\n')
        command.send_signal(signal.SIGINT)
        _, error = command.communicate(timeout=30)
    assert (command.returncode, error) == (130, b"waveplan plan: interrupted\n")


@pytest.mark.parametrize("option", ["--html", "--plot"])
def test_a_full_disk_leaves_the_old_file(option: str, tmp_path: Path) -> None:
    path = tmp_path / ("out.html" if option == "--html" else "out.png")
    path.write_bytes(b"old")
    limit = (4096, 4096)
    done = shell(
        [*PLAN, option, str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 2
    # On a new machine matplotlib says a line of its own: it cannot write its cache of fonts either.
    lines = [line for line in done.stderr.splitlines() if b"font_manager" not in line]
    assert len(lines) == 1
    assert lines[0].endswith(b"File too large")
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def test_links_stay_links_and_modes_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert main([*PLAN, "--html", str(link)]) == 0
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert real.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main([*PLAN, "--html", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()
