"""Ranks as real processes: every scenario with 2 and 4 of them, over torch's Gloo and over MPI.

Needs torch, mpi4py and mpirun, fails without one; `pytest -m processes -k gloo` plays one engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scenario
from scenario import Scenario

from waveplan import AllShares

HERE = Path(__file__).parent
PATIENCE = 300
"""Seconds after which processes count as hanging: importing torch can take many."""
SPREAD = 10
"""Seconds within which all ranks must have ended after the first error."""

Results = list[dict[str, Any] | None]
Process = subprocess.Popen[bytes]
Check = Callable[[Results], None]


def start(engine: str, names: list[str], folder: Path, size: int) -> list[Process]:
    """Start the processes of some scenarios, which they run one after another."""
    program = [sys.executable, str(HERE / "scenario.py"), engine, ",".join(names), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if engine == "gloo":
        commands = [[*program, str(rank), str(size)] for rank in range(size)]
    else:
        options = ["--allow-run-as-root", "--oversubscribe", "--quiet", "-n", str(size)]
        commands = [["mpirun", *options, *program]]
    with (folder / "log").open("wb") as log:
        return [
            subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            for command in commands
        ]


def play(engine: str, names: list[str], size: int) -> tuple[dict[str, Results], str]:
    """Return what each rank wrote in each scenario (None: nothing), and the processes' output."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        processes = start(engine, names, folder, size)
        hangs = ""
        try:
            for process in processes:
                process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            hangs = f"\nnot ended after {PATIENCE} s"
        finally:
            for process in processes:
                process.kill()
                process.wait()
        results: dict[str, Results] = {}
        for name in names:
            files = [folder / f"{name}.{rank}.json" for rank in range(size)]
            results[name] = [json.loads(f.read_text()) if f.exists() else None for f in files]
        return results, (folder / "log").read_text(errors="replace") + hangs


def all_waves(results: Results) -> None:
    """No error; the same waves on every rank; every group runs once and fits."""
    done = [result or {"error": "nothing written", "waves": []} for result in results]
    assert all(result["error"] is None for result in done), [r["error"] for r in done]
    shapes = [[(w["start"], w["width"]) for w in result["waves"]] for result in done]
    assert shapes[0], "no wave"
    assert all(shape == shapes[0] for shape in shapes), shapes
    ends = [start + width for start, width in shapes[0]]
    assert [start for start, _ in shapes[0]] == [0, *ends[:-1]]
    shares = {w["dp_rank"]: result["waves"] for result in done for w in result["waves"]}
    groups = sorted(i for waves in shares.values() for wave in waves for i in wave["indices"])
    assert groups == list(range(ends[-1])), groups
    assert all(w["required"] <= w["available"] for result in done for w in result["waves"])


def same_plans(results: Results) -> None:
    """As `all_waves`; processes of one share have the same plans and available bytes."""
    all_waves(results)
    seen: dict[Any, Any] = {}
    for result in results:
        assert result is not None
        for wave in result["waves"]:
            mine = wave["fingerprint"], wave["available"]
            assert seen.setdefault((wave["dp_rank"], wave["start"]), mine) == mine


def recomposed(results: Results) -> None:
    """As `all_waves`; the last rank saw the largest peak of the first wave, and the rest was
    composed again as one process does that plans all shares."""
    all_waves(results)
    last = len(results) - 1
    ranks = [result["waves"][0]["dp_rank"] for result in results if result]
    desk = Scenario("recomposed", AllShares(), 1 + max(ranks))
    planner = desk.planner()
    waves, shares = planner.waves(desk.pool(), order="free"), []
    for wave in waves:
        version = {"version": waves.composition.version}
        shares.append([scenario.told(share) | version for share in wave.shares])
        if len(shares) == 1:
            seen = wave.shares[ranks[last]]
            planner.observe(seen, peak_bytes=seen.available * 3 // 2 + last)
    versions = [wave[0]["version"] for wave in shares]
    assert len(versions) > 1
    assert versions == [1, *[2] * (len(versions) - 1)]
    for rank, result in zip(ranks, results, strict=True):
        assert result is not None
        assert result["waves"] == [wave[rank] for wave in shares]


def available_differs(results: Results) -> None:
    """As `all_waves`, each rank with its own available bytes."""
    all_waves(results)
    available = [result["waves"][0]["available"] for result in results if result]
    assert available == [(5 + 2 * rank) << 30 for rank in range(len(results))], available


def fails(error: str, text: str) -> Check:
    """The last rank raises `error`, all others `RankError` with its words."""

    def check(results: Results) -> None:
        *others, culprit = results
        assert culprit is not None
        assert culprit["error"] == error, culprit
        for other in others:
            assert other is not None
            assert other["error"] == "RankError", other
            assert f"process {len(others)} failed: " in other["text"], other
            assert text in other["text"], other

    return check


def disagree(parts: str) -> Check:
    """Every rank raises the same error, which names the last process and what differs."""

    def check(results: Results) -> None:
        texts = {result["text"] for result in results if result}
        assert len(texts) == 1, texts
        last = f": process {len(results) - 1} differs from the others in {parts}"
        assert texts.pop().endswith(last)
        assert all(result and result["error"] == "RankError" for result in results)

    return check


def as_at_the_desk(name: str) -> Check:
    """Equal waves, bytes, plans and refusals as one process that plans all shares."""

    def check(results: Results) -> None:
        waves = scenario.desk_waves(name, AllShares(), len(results))
        shares = [[scenario.told(share) for share in wave.shares] for wave in waves]
        refused = [[str(one), one.indices.tolist()] for one in waves.refused]
        assert shares
        for rank, result in enumerate(results):
            assert result is not None
            assert result["error"] is None, result
            assert result["waves"] == [wave[rank] for wave in shares]
            assert result["refused"] == refused

    return check


def refused(results: Results) -> None:
    """The share of the last rank is too large: refused everywhere, in the same words."""
    assert all(result and result["error"] == "WaveRefused" for result in results), results
    (text,) = {result["text"] for result in results if result}
    assert text.startswith(f"the share of DP rank {len(results) - 1} (1 request, 80,000 packed")


def lost(results: Results) -> None:
    """The last rank is gone; the others notice."""
    *others, gone = results
    assert gone is None
    for other in others:
        assert other is not None
        assert other["error"] == "RankError", other
        assert "lost touch" in other["text"], other


def gone(results: Results) -> None:
    """The last rank is gone, and the launcher ends the others."""
    assert results == [None] * len(results), results


POOLS = [f"random {seed}" for seed in range(4)]
POOLS += [f"corpus {name}" for name in ("coding", "math_grpo", "tau_retail", "tau_turns")]
DESK = [f"desk {pool} {how}" for pool in POOLS for how in ("keep", "blocks", "free", "reference")]
SCENARIOS: dict[str, Check] = {
    "unequal": all_waves,
    "empty": all_waves,
    "reference": all_waves,
    "memory": available_differs,
    "peers": same_plans,
    "observed": all_waves,
    "recomposed": recomposed,
    "slow": all_waves,
    "refused": refused,
    "bad tokens": fails("InputError", "-1"),
    "planner": fails("OSError", "config.json is missing"),
    "step raises": fails("ValueError", "the loss is not finite"),
    "planning raises": fails("MemoryError", "no memory for the tables"),
    "other pool": disagree(
        "tokens, lengths, targets, target_width, labels, top_k, logits, hidden, "
        "gradient, adapter, routed, groups"
    ),
    "other order": disagree("tokens, lengths, labels"),
    "other tokens": disagree("tokens"),
    "other targets": disagree("labels"),
    "other adapter": disagree("adapter"),
    "other gradient": disagree("gradient"),
    "other top_k": disagree("top_k"),
    "other groups": disagree("groups"),
    **{name: as_at_the_desk(name) for name in DESK},
    "killed": lost,
}


@pytest.fixture(scope="module", params=["gloo-2", "gloo-4", "mpi-2", "mpi-4"])
def played(request: pytest.FixtureRequest) -> tuple[str, dict[str, tuple[Results, str]]]:
    """An engine, and what the ranks wrote in each scenario with the processes' output."""
    engine, _, size = request.param.partition("-")
    found: dict[str, tuple[Results, str]] = {}
    for names in ([name for name in SCENARIOS if name != "killed"], ["killed"]):
        results, log = play(engine, names, int(size))
        found |= {name: (results[name], log[-4000:]) for name in names}
    return engine, found


@pytest.mark.processes
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks(played: tuple[str, dict[str, tuple[Results, str]]], name: str) -> None:
    engine, (results, log) = played[0], played[1][name]
    print(log)  # shown if it fails
    (gone if (engine, name) == ("mpi", "killed") else SCENARIOS[name])(results)
    ends = [result["at"] for result in results if result and result["error"]]
    assert max(ends, default=0) - min(ends, default=0) < SPREAD
