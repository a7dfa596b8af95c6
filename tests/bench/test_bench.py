"""The ground of the benchmarks: equal pools, equal answers, figures that mean what they say."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from typing import Any

import pytest
from conftest import ROOT

from waveplan.bench import peer, workloads

BENCHES = ROOT / "benches"


def test_the_pools_are_the_ones_that_were_timed() -> None:
    sizes = {}
    for name, (make, available) in workloads.WAVES.items():
        sequences = make()
        sizes[name] = (len(sequences), sum(map(len, sequences)), available >> 30)
    assert sizes == {
        "unique10_195k": (10, 194_753, 64),
        "grpo_8x8": (64, 435_756, 64),
        "agentic_3x8": (24, 922_155, 64),
        "near_identical_64x4k": (64, 256_000, 64),
        "one_token_64x2k": (64, 131_072, 64),
        "short_1024": (1024, 62_028, 64),
        "wave_779k_48req": (48, 779_067, 128),
        "pool_4m_1024req": (1024, 3_936_084, 64),
    }


@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_cold_and_warm_searches_agree(cp: int) -> None:
    sequences = workloads.WAVES["grpo_8x8"][0]()
    tokens, offsets = peer.columns(sequences)
    ours = peer.Ours(cp, 64 << 30, len(tokens))
    first = ours.cold(tokens, offsets)
    assert first[0] > 1
    assert [ours.warm(), ours.cold(tokens, offsets)] == [first, first]


def test_an_untrusted_planner_runs_one_request_first() -> None:
    tokens, offsets = peer.columns(workloads.grpo(1))
    assert peer.Ours(2, 64 << 30).cold(tokens, offsets)[0] == 1


def test_a_refusal_is_width_zero() -> None:
    tokens, offsets = peer.columns(workloads.unique(1, count=2, total=4_000))
    width, required = peer.Ours(1, 1 << 20, 4_000).cold(tokens, offsets)
    assert (width, required > 1 << 20) == (0, True)


class _Agrees:
    """Stands in for the reference planner."""

    answer: tuple[int, int] = (0, 0)

    def __init__(self, cp: int, available: int) -> None:
        self.ours = peer.Ours(cp, available)

    def requests(self, sequences: list[Any]) -> list[Any]:
        return sequences

    def trust(self, _: list[Any], tokens: int) -> None:
        self.ours = peer.Ours(self.ours.planner.topology.cp, self.ours.planner.available, tokens)

    def forget(self) -> None:
        pass

    def search(self, requests: list[Any]) -> tuple[int, int]:
        width, required = self.ours.cold(*peer.columns(requests))
        return width + self.answer[0], required + self.answer[1]


def test_a_comparison_counts_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "Reference", _Agrees)
    (made,) = peer.compare(["unique10_195k"], [2], repeat=2)
    assert (made.sequences, made.tokens, made.width) == (10, 194_753, 10)
    assert [len(made.runs[kind]) for kind in ("reference_cold", "cold", "warm")] == [2, 6, 6]
    table = peer.search_table("", [made.to_dict()]).plain()
    assert "unique10_195k" in table
    assert json.loads(json.dumps(made.to_dict()))["ratio"] == made.ratio


@pytest.mark.parametrize("off", [(1, 0), (0, 1)])
def test_a_comparison_refuses_different_answers(
    monkeypatch: pytest.MonkeyPatch, off: tuple[int, int]
) -> None:
    monkeypatch.setattr(peer, "Reference", _Agrees)
    monkeypatch.setattr(_Agrees, "answer", off)
    with pytest.raises(peer.WaveplanError, match="differ"):
        list(peer.compare(["unique10_195k"], [1], repeat=1))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_memory_beyond_the_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHES)
    scaling = importlib.import_module("scaling")
    made = scaling.memory(tokens=1 << 22, sequences=256)
    assert made["input"] > 8 << 22
    assert made["beyond"] <= 2 * made["input"]


def test_one_pool_is_compared_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHES)
    script = importlib.import_module("peer")
    monkeypatch.setattr(sys, "argv", ["peer.py", "--pool", "unique10_195k", "--cp", "2"])
    monkeypatch.setattr(peer, "Reference", _Agrees)
    script.main()
    assert "unique10_195k" in capsys.readouterr().out


def test_other_threads_run_during_a_search() -> None:
    """A thread that only counts gets on while a search runs.

    The interpreter's own switching is off (a very long interval), so the count can only move
    between two lines of the main thread if the search lets go of the interpreter.
    """
    tokens, offsets = peer.columns(workloads.short(5, count=1_000))
    ours = peer.Ours(2, 1 << 60, len(tokens))
    ours.cold(tokens, offsets)
    ours.waves.start = 0
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    other = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    during = 0
    other.start()
    sys.setswitchinterval(1_000)
    try:
        for _ in range(500):
            (session,) = ours.waves.sessions()
            before = counted[0]
            session.alone()
            during += counted[0] - before
            if during:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        other.join()
    assert during > 0
