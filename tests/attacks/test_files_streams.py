"""Standard streams, locales and output files that a shell makes difficult for a command."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from waveplan.cli import main

ROOT = Path(__file__).parents[1]
ROWS = str(ROOT / "data" / "tau_turns_open.npz")
PLAN = ["plan", ROWS, "--model", "qwen3.6-35b-a3b", "--available", "70GiB"]
TRACES = (b"Traceback", b"Error:", b"Exception ignored")


def shell(words: list[str], redirect: str = "", **options: Any) -> subprocess.CompletedProcess[Any]:
    """A command of waveplan with redirections of the shell behind it."""
    line = f'exec "$0" -m waveplan "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", line, sys.executable, *words], capture_output=True, timeout=60, **options
    )


@pytest.mark.parametrize(
    ("words", "redirect", "status"),
    [
        (PLAN, ">&-", 0),
        (PLAN, ">&- 2>&- <&-", 0),
        (PLAN, ">/dev/full", 2),
        ([*PLAN, "--json"], ">/dev/full", 2),
        ([*PLAN, "--json"], "2>/dev/full", 0),
        (["plan", "none.npz", *PLAN[2:]], "2>&-", 2),
        (["plan", "none.npz", *PLAN[2:]], "2>/dev/full", 2),
        (["plan", "-", *PLAN[2:]], "<&-", 2),
        (["--version"], ">/dev/full", 0),
        (["plan", "--nonsense"], "2>/dev/full", 2),
    ],
)
def test_streams_that_are_closed_or_full(words: list[str], redirect: str, status: int) -> None:
    done = shell(words, redirect)
    assert done.returncode == status, done.stderr
    assert not any(trace in done.stderr for trace in TRACES), done.stderr
    if "--json" in words and status == 0:
        assert json.loads(done.stdout)["complete"] is True


@pytest.mark.parametrize("words", [["plan", "--help"], [*PLAN, "--explain", "--all"], ["rules"]])
def test_a_reader_that_leaves_at_once(words: list[str]) -> None:
    line = '"$0" -m waveplan "$@" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, *words], capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"LC_ALL": "C", "TERM": "dumb"},
    ],
)
def test_terminals_that_know_few_letters(environment: dict[str, str]) -> None:
    done = shell([*PLAN, "--cp", "2", "--explain"], env={"PATH": os.environ["PATH"], **environment})
    assert done.returncode == 0, done.stderr
    assert not any(trace in done.stderr for trace in TRACES)
    assert b"tightest" in done.stdout


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 in the names of input and output files."""
    rows, page = os.fsencode(tmp_path) + b"/r\xff.npz", os.fsencode(tmp_path) + b"/p\xff.html"
    Path(os.fsdecode(rows)).write_bytes(Path(ROWS).read_bytes())
    words = [os.fsdecode(word) for word in (rows, page)]
    done = shell(["plan", words[0], *PLAN[2:], "--json", "--html", words[1]])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source"]["path"] == words[0]
    assert Path(words[1]).read_text(encoding="utf-8").startswith("<!doctype html>")
    missing = shell(["plan", os.fsdecode(rows[:-4] + b"x.npz"), *PLAN[2:]])
    assert missing.returncode == 2
    assert missing.stderr.count(b"\n") == 1
    assert b"\\udcff" in missing.stderr


def test_names_with_line_breaks_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "no\nsuch\r\x1b[31mfile.npz", *PLAN[2:]]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "\r" not in error
    assert "\x1b" not in error


@pytest.mark.parametrize("signals", [1, 3])
def test_ctrl_c_is_130_whenever_it_comes(signals: int, tmp_path: Path) -> None:
    """While rows are awaited from a pipe: one line, no page half written."""
    pipe = tmp_path / "rows.jsonl"
    os.mkfifo(pipe)
    words = ["plan", str(pipe), *PLAN[2:], "--html", str(tmp_path / "page.html")]
    line = (
        "import signal, sys; from waveplan.cli import main\n"
        # Whoever runs the tests in the background may have Ctrl-C ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        'print("up", flush=True); sys.exit(main())'
    )
    command = subprocess.Popen(
        [sys.executable, "-c", line, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"up\n"
    with pipe.open("wb", buffering=0) as writer:  # opens once the command reads
        writer.write(b'{"input_ids": [1, 2, 3]}\n')
        for _ in range(signals):
            command.send_signal(signal.SIGINT)
        _, error = command.communicate(timeout=30)
    assert command.returncode == 130, error
    assert error == b"waveplan plan: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


# --- files that are written ---

OUTPUTS = {
    "--html": ("out.html", b"old page"),
    "--plot": ("out.png", b"old picture"),
}


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_full_disk_leaves_the_old_file(option: str, tmp_path: Path) -> None:
    name, old = OUTPUTS[option]
    path = tmp_path / name
    path.write_bytes(old)
    limit = (4096, 4096)
    done = shell(
        [*PLAN, option, str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert os.fsencode(path) in done.stderr
    assert path.read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("option", "path", "says"),
    [
        ("--html", "/proc/page.html", "proc"),
        ("--html", "/dev/full", "No space left"),
        ("--html", "no/page.html", "no folder"),
        ("--html", "", "folder"),
        ("--html", "x" * 300 + ".html", "too long"),
        ("--html", ROWS + "/page.html", "no folder"),
        ("--html", "a\0b", "no file name"),
        ("--plot", "/proc/page.svg", "proc"),
        ("--plot", "x" * 300 + ".png", "too long"),
    ],
)
def test_places_that_cannot_be_written(
    option: str, path: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PLAN, option, path]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error


def test_devices_are_written_and_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--html", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()
    capsys.readouterr()


def test_links_stay_links_and_modes_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert main([*PLAN, "--html", str(link)]) == 0
    capsys.readouterr()
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert real.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_two_writers_never_mix(tmp_path: Path) -> None:
    """Profiles that several processes save under one name are always those of one of them."""
    from waveplan.profiles import Observed, Profiles, Signature

    path = tmp_path / "profiles.json"
    script = (
        "import sys\n"
        "from waveplan.profiles import Observed, Profiles, Signature\n"
        "made = Profiles()\n"
        "for i in range(200):\n"
        "    points = tuple((t, int(sys.argv[2])) for t in range(1, 16))\n"
        "    made[Signature(f'job {i}', ('m',), (True,))] = Observed(later=points)\n"
        "for _ in range(6):\n"
        "    made.save(sys.argv[1])\n"
    )
    first = Profiles()
    first[Signature("job 0", ("m",), (True,))] = Observed(later=((1, 1),))
    first.save(path)
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(10**k)]) for k in (3, 9)
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        loaded = Profiles.load(path)
        for signature in loaded:
            profile = loaded[signature]
            assert isinstance(profile, Observed)
            seen.add(profile.later)
        time.sleep(0)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert {len(points) for points in seen} <= {1, 15}
    assert [path.name for path in tmp_path.iterdir()] == ["profiles.json"]
