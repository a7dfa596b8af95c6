"""Sweeps: any executor, impossible configurations, going on after an interrupt, outputs."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from waveplan.cli import main
from waveplan.desk import sweep as module
from waveplan.desk.jobs import Job, Source
from waveplan.desk.sweep import Outcome, jobs, outcomes, run_job, sweep
from waveplan.errors import InputError, WaveplanError

MODEL = "qwen3.6-35b-a3b"


def eight(memory: str = "20GiB") -> list[Job]:
    return jobs({"model": [MODEL], "cp": [1, 2], "ep": [1, 3], "available": [memory, "40GiB"]})


class Immediate(Executor):
    """Runs each call when it is submitted, here."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def test_executors_agree_and_keep_the_order(sequences: str) -> None:
    source, wanted = Source(path=sequences), eight()
    direct = [(job, run_job(job, source)) for job in wanted]
    assert sweep(source, wanted, executor=Immediate()) == direct
    with ThreadPoolExecutor(2) as threads:
        assert sweep(source, wanted, executor=threads) == direct
    assert sweep(source, wanted) == direct
    statuses = [outcome.status for _, outcome in direct]
    assert statuses.count("impossible") == 4
    assert all("ep" in out.reason for job, out in direct if job.ep == 3)
    assert all(out.planned == 6 for job, out in direct if job.ep == 1)


def test_what_can_never_fit_is_counted(sequences: str) -> None:
    tight = Job(model=MODEL, available="800MiB", rule_set="reference")
    outcome = run_job(tight, Source(path=sequences))
    assert outcome.refused > 0
    assert outcome.status in ("partial", "refused")
    assert "GiB" in outcome.reason


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"available": ["1GiB"]}, "model is missing"),
        ({"model": [MODEL]}, "either budget"),
        ({"model": [MODEL], "budget": ["80GB"], "available": ["1GiB"]}, "either budget"),
        ({"model": [], "available": ["1GiB"]}, "no values"),
        ({"model": [MODEL], "available": ["1GiB"], "chips": [8]}, "chips is no field"),
    ],
)
def test_axes_are_checked(axes: dict[str, list[Any]], says: str) -> None:
    with pytest.raises(InputError, match=says):
        jobs(axes)


def test_closing_the_iterator_cancels_what_has_not_begun(sequences: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        coming = outcomes(Source(path=sequences), eight(), executor=threads)
        position, outcome = next(coming)
        coming.close()
    assert 0 <= position < 8
    assert isinstance(outcome, Outcome)


def _die(*_: object) -> Outcome:
    os._exit(3)


def test_a_worker_that_dies_is_said_so(sequences: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_job", _die)
    with pytest.raises(WaveplanError, match="a worker process died"):
        sweep(Source(path=sequences), eight()[:1])


def _first_only(job: Job, source: Source) -> Outcome:
    if job.cp > 1:
        time.sleep(600)
    return run_job(job, source)


def test_nobody_waits_for_half_done_configurations(
    sequences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the first outcome, the worker that is busy for ten minutes more is gone."""
    before = multiprocessing.active_children()
    monkeypatch.setattr(module, "run_job", _first_only)
    wanted = [Job(model=MODEL, cp=cp, available="20GiB") for cp in (1, 2)]
    coming = outcomes(Source(path=sequences), wanted)
    assert next(coming)[0] == 0
    workers = [child for child in multiprocessing.active_children() if child not in before]
    assert workers
    coming.close()
    for worker in workers:
        # Not its exit code: who joins it first, the pool's thread or this one, gets that alone.
        assert wait([worker.sentinel], 60) == [worker.sentinel]


def test_outputs_of_the_command(
    capsys: pytest.CaptureFixture[str], sequences: str, tmp_path: Path
) -> None:
    table = tmp_path / "sweep.csv"
    argv = ["sweep", sequences, "--model", MODEL, "--cp", "1,2", "--ep", "1,3"]
    argv += ["--available", "20GiB,40GiB", "--jobs", "2"]
    status = main([*argv, "--json", "--csv", str(table)])
    out, err = capsys.readouterr()
    assert status == 1
    document = json.loads(out)
    assert document["complete"]
    assert len(document["results"]) == 8
    assert "impossible: 4 configurations" in err
    written = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["status"] for row in written] == [item["status"] for item in document["results"]]
    status = main([*argv, "--csv", "-"])
    out, err = capsys.readouterr()
    assert list(csv.DictReader(io.StringIO(out))) == written
    assert "widest" in err


@pytest.mark.parametrize(
    ("axis", "value"), [("--available", "1GiB,bananas"), ("--model", f"{MODEL},nobody")]
)
def test_typing_errors_are_bad_input_not_impossible(
    capsys: pytest.CaptureFixture[str], sequences: str, axis: str, value: str
) -> None:
    argv = {"--model": MODEL, "--available": "1GiB", axis: value}
    assert main(["sweep", sequences, *[word for item in argv.items() for word in item]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert value.split(",")[1] in err


def test_heat_map(capsys: pytest.CaptureFixture[str], sequences: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("map.png", "map.svg"):
        argv = ["sweep", sequences, "--model", MODEL, "--cp", "1,2", "--available", "20GiB,40GiB"]
        assert main([*argv, "--jobs", "1", "--plot", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 1000
    text = (tmp_path / "map.svg").read_text()
    assert "<svg" in text
    capsys.readouterr()
    argv = ["sweep", sequences, "--model", MODEL, "--ep", "3", "--available", "20GiB"]
    assert main([*argv, "--jobs", "1", "--plot", str(tmp_path / "none.png")]) == 2
    assert "nothing to draw" in capsys.readouterr().err


def test_sweep_of_stdin() -> None:
    command = [sys.executable, "-m", "waveplan", "sweep", "-", "--model", MODEL]
    done = subprocess.run(
        [*command, "--available", "20GiB", "--jobs", "1", "--json"],
        input='{"tokens": [1, 2, 3]}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["results"][0]["logical_tokens"] == 3


def test_an_interrupted_sweep_prints_what_is_done(
    capsys: pytest.CaptureFixture[str], sequences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **options: Any) -> Generator[tuple[int, Outcome], None, None]:
        options = {"executor": Immediate()}
        for done, item in enumerate(outcomes(*args, **options)):
            if done == 2:
                raise KeyboardInterrupt
            yield item

    argv = ["sweep", sequences, "--model", MODEL, "--cp", "1,2", "--available", "20GiB,40GiB"]
    argv += ["--jobs", "1", "--json"]
    with monkeypatch.context() as patched:
        patched.setattr("waveplan.cli.sweep.outcomes", interrupted)
        assert main(argv) == 130
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert not document["complete"]
    assert len(document["results"]) == 2
    assert "interrupted: 2 of 4 configurations are done" in err
