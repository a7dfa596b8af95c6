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
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from waveplan.cli import main
from waveplan.desk import sweep as module
from waveplan.desk.jobs import Job, Source
from waveplan.desk.step import wave_ms
from waveplan.desk.sweep import Outcome, best, jobs, outcomes, run_job, sweep
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


def test_equal_gpus_are_filled_and_the_best_is_the_least_time_a_token(sequences: str) -> None:
    shapes = [(8, 1, 1), (2, 2, 2), (4, 1, 2), (1, 8, 1)]
    wanted = [
        Job(model="qwen3-8b", gpus=8, dp=d, tp=t, cp=c, available="40GiB") for d, t, c in shapes
    ]
    results = sweep(
        Source(path=sequences), [*wanted, replace(wanted[0], dp=3)], executor=Immediate()
    )
    outcomes_ = [outcome for _, outcome in results]
    assert {outcome.gpus for outcome in outcomes_[:4]} == {8}
    assert outcomes_[4].status == "impossible"
    assert "gpus is 8" in outcomes_[4].reason
    for outcome in outcomes_[:4]:
        assert outcome.us_per_token == pytest.approx(8e3 * outcome.step_ms / outcome.logical_tokens)
        assert outcome.requests_per_gpu == outcome.planned / outcome.waves / 8
    (chosen,) = best(results)
    assert outcomes_[chosen].us_per_token == min(o.us_per_token for o in outcomes_[:4])
    assert best(results[4:]) == []
    other = [(replace(job, model="qwen3-4b"), outcome) for job, outcome in results[:4]]
    assert best([*results, *other]) == [chosen, 5 + chosen]  # one for each model
    other = [(replace(job, gpu="H100"), outcome) for job, outcome in results[:4]]
    assert best([*results, *other]) == [chosen]  # the memory is as stated
    other = [(replace(job, available="50GiB"), outcome) for job, outcome in results[:4]]
    assert best([*results, *other]) == [chosen, 5 + chosen]  # one for each memory
    other = [(job, replace(out, gpus=4, us_per_token=0.1)) for job, out in results[:1]]
    assert best([*results, *other]) == [5, chosen]  # and for each number of GPUs


def test_gpus_alone_sweep_ranks_and_mark_the_best_of_each_total_and_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["sweep", "--tokens", "4k", "--requests", "4", "--model", MODEL, "--gpus", "2,4"]
    assert main([*argv, "--gpu", "H100,H200", "--jobs", "1", "--json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    rows = document["results"]
    shapes = {
        gpus: {
            tuple(row[name] for name in ("tp", "cp", "pp", "ep"))
            for row in rows
            if row["gpus"] == gpus
        }
        for gpus in (2, 4)
    }
    assert {(1, 1, 1, 1), (2, 1, 1, 2), (1, 2, 1, 2), (1, 1, 2, 1)} <= shapes[2]
    assert {(2, 2, 1, 4), (4, 1, 1, 1), (1, 1, 4, 1)} <= shapes[4]
    assert all(
        tp * cp * pp * ep <= gpus * tp * cp for gpus in (2, 4) for tp, cp, pp, ep in shapes[gpus]
    )
    assert all(row["sequence_parallel"] == (row["tp"] > 1) for row in rows)
    assert not any(row["status"] == "impossible" and "divide" in row["reason"] for row in rows)
    chosen = [rows[i] for i in document["best"]]
    assert len({(row["gpus"], row["gpu"]) for row in chosen}) == len(chosen) == 4
    for row in chosen:
        same = [one for one in rows if (one["gpus"], one["gpu"]) == (row["gpus"], row["gpu"])]
        assert row["us_per_token"] == min(o["us_per_token"] for o in same if o["status"] == "ok")
    assert "\nTP, CP, PP, EP took powers of two" in err
    assert "at the speed of an H200 whatever the GPU" in " ".join(err.split())
    main([*argv[:-2], "--gpus", "4", "--tp", "2", "--gpu", "H200", "--jobs", "1", "--json"])
    (one,) = json.loads(capsys.readouterr().out)["results"]  # ranks that are given stay
    assert (one["dp"], one["tp"], one["sequence_parallel"]) == (2, 2, True)
    argv = [*argv[:-2], "--tp", "1,2", "--no-sequence-parallel", "--gpu", "H200", "--jobs", "1"]
    main([*argv, "--json"])
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["sequence_parallel"] for row in rows] == [False, False]


def test_a_step_is_counted_alike_for_every_topology(sequences: str) -> None:
    """Without parallelism and recomputation it is the plan's time; ranks divide, stages idle."""
    source = Source(path=sequences, sharing=False)  # else layouts differ with TP

    def made(**values: Any) -> tuple[float, float, int]:
        job = Job(model="qwen3-8b", available="400GiB", recompute="none", **values)
        planner = job.planner()
        waves = list(job.waves(planner, source.requests()))
        plans = [wave.plan for wave in waves]
        total = sum(wave_ms(planner, plan) for plan in plans)
        return total, sum(plan.time_ms for plan in plans), len(waves)

    total, time_ms, _ = made()
    assert total == pytest.approx(time_ms)
    halved, _, _ = made(tp=2)
    assert total / 2 < halved < total  # collectives are not free
    staged, _, waves = made(pp=2)
    assert staged == pytest.approx(total / 2)
    outcome = run_job(Job(model="qwen3-8b", available="400GiB", recompute="none", pp=2), source)
    assert outcome.step_ms == pytest.approx(total / 2 * (1 + 1 / waves))
    job = Job(model="qwen3-8b", available="400GiB", recompute="full")
    assert run_job(job, source).step_ms == pytest.approx(total * 4 / 3)


def test_text_json_and_page_show_the_same_numbers(
    capsys: pytest.CaptureFixture[str], sequences: str, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.html"
    argv = ["sweep", sequences, "--model", MODEL, "--cp", "1,2,4", "--ep", "1,3", "--gpus", "4"]
    argv += ["--available", "3GiB,20GiB", "--jobs", "1", "--json", "--html", str(path)]
    assert main([*argv, "--date", "1 May"]) == 0
    out, err = capsys.readouterr()
    document, text = json.loads(out), path.read_text()
    assert f"assumed: {document['assumed'][:30]}" in err
    assert "<dd>1 May</dd>" in text
    chosen, _ = document["best"]  # one for each memory
    first = document["results"][chosen]
    assert "\nbest of 12 configurations: " in err
    assert f"{first['us_per_token']:,.1f} us a token" in " ".join(err.split())
    assert "1 May" in text
    data = json.loads(text.split('id="waveplan-data">')[1].split("</script>")[0])
    possible = [item for item in document["results"] if item["status"] != "impossible"]
    assert len(data["rows"]) == len(possible) == 6
    assert sum(row["best"] for row in data["rows"]) == 2
    assert data["rows"][0]["best"]
    times = sorted(item["us_per_token"] for item in possible)
    assert [row["us_per_token"] for row in data["rows"]] == times
    for row in data["rows"]:
        cells = dict(zip(data["columns"], row["cells"], strict=True))
        assert cells["us/token"] == f"{row['us_per_token']:,.1f}"
        assert f">{cells['us/token']}<" in text
        assert f">{cells['required']}<" in text
        assert cells["us/token"] in err
    (reason,) = {item["reason"] for item in document["results"] if item["status"] == "impossible"}
    assert reason in " ".join(err.split())
    assert reason in text


def test_rows_stay_rows_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], sequences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    argv = ["sweep", sequences, "--model", f"{MODEL},qwen3-8b", "--gpus", "8", "--tp", "1,2"]
    argv += ["--cp", "1,2", "--ep", "1,8", "--recompute", "full,selective", "--gpu", "H100,H200"]
    main([*argv, "--jobs", "1", "--all"])
    out = capsys.readouterr().out
    table = out.split("\n\n")[1].split("\n")
    assert max(map(len, out.split("\n"))) <= 80
    assert table[0].split() == ["model", "ranks", "recompute", "memory", "us/token"]
    assert table[2].startswith("best ")
    assert len({len(line) for line in table if line[-2:-1] == "."}) == 1  # under one another


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
        ({"model": [MODEL]}, "give gpu, or either budget"),
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
    assert status == 0  # what cannot be is listed, and is no failure
    document = json.loads(out)
    assert document["complete"]
    assert len(document["results"]) == 8
    least = min(item["us_per_token"] for item in document["results"] if item["status"] == "ok")
    chosen, *_ = document["best"]
    assert document["results"][chosen]["us_per_token"] == least > 0
    assert "impossible: 4 configurations" in err
    written = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["status"] for row in written] == [item["status"] for item in document["results"]]
    status = main([*argv, "--csv", "-"])
    out, err = capsys.readouterr()
    assert list(csv.DictReader(io.StringIO(out))) == written
    assert "us/token" in err


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
