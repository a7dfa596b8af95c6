"""Ctrl-C stops long calls, and leaves everything as it was."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waveplan
from waveplan import (
    Budget,
    Packing,
    Planner,
    Requests,
    Scoring,
    Sequences,
    Topology,
    Training,
    models,
)
from waveplan.desk.jobs import Job, Source
from waveplan.desk.sweep import process_pool, sweep


class Stopped(Exception):  # noqa: N818
    """Stands for KeyboardInterrupt, which pytest keeps to itself."""


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGINT, stop)
    yield
    signal.signal(signal.SIGINT, before)


def comb(sequences: int) -> Sequences:
    """Row i is the first i tokens of one chain and a token of its own."""
    chain = np.arange(sequences) % 1000
    parts = [np.append(chain[:i], 2000 + i) for i in range(sequences)]
    offsets = np.cumsum([0, *map(len, parts)])
    return Sequences(np.concatenate(parts), offsets)


COMB = comb(800)
MANY = Sequences(np.arange(400_000), np.arange(400_001))
TREE, WIDE = waveplan.tree(COMB), waveplan.tree(MANY)
PACKED, PACKED_WIDE = waveplan.pack(COMB), waveplan.pack(MANY)
SCORE = Scoring(version=1, tp=1, cp=2, layers=28, gdn_layers=0, uses_gdn=True)
WIDE_IDS = np.arange(len(MANY))
LEAST = int((TREE.end - TREE.start).sum())
REQUESTS = Requests(COMB)


def planner(**options: Any) -> Planner:
    return Planner(
        models.get("qwen3.6-35b-a3b"),
        Topology(cp=2),
        Training(recompute="full", lora_rank=8),
        Budget(available="20 GiB"),
        **options,
    )


def layout(method: str) -> list[int]:
    return waveplan.choose_layout(TREE, SCORE, method=method).decisions.tolist()  # type: ignore[arg-type]


def fitting() -> list[int]:
    found = waveplan.choose_layout(TREE, SCORE, most_tokens=LEAST + LEAST // 50)
    return [] if found is None else found.decisions.tolist()


def widths(reference: bool) -> list[tuple[int, int]]:
    waves = planner(mode="reference" if reference else "best").waves(REQUESTS)
    return [(wave.width, wave.required) for wave in waves]


CALLS: dict[str, Callable[[], Any]] = {
    "tree": lambda: len(waveplan.tree(MANY)),
    "restrict": lambda: len(WIDE.restrict(np.arange(len(MANY)))),
    "pack": lambda: len(waveplan.pack(MANY)),
    "members": lambda: len(PACKED_WIDE.members),
    "exact": lambda: layout("exact"),
    "reference": lambda: layout("reference"),
    "fitting": fitting,
    "own": lambda: waveplan.own(PACKED_WIDE, 4).owners.tolist(),
    "from_ids": lambda: len(Packing.from_ids(WIDE_IDS, WIDE_IDS)),
    "slices": lambda: len(waveplan.attention_slices(PACKED)[0]),
    "requests": lambda: Requests(MANY).labelled.sum(),
    "waves": lambda: widths(False),
    "reference waves": lambda: widths(True),
    "plan": lambda: planner().plan(REQUESTS, available=1 << 60).fingerprint,
}


def interrupted(call: Callable[[], Any], after: float) -> bool:
    """Presses Ctrl-C after so many seconds; whether that stopped the call."""
    pressed = threading.Timer(after, _thread.interrupt_main)
    try:
        pressed.start()
        call()
        pressed.join()
    except Stopped:
        pressed.join()
        return True
    return False


@pytest.mark.parametrize("name", CALLS)
def test_a_pending_interrupt_comes_out_of_the_core(name: str) -> None:
    call = CALLS[name]
    expected = call()
    # Repeated until a look falls into the call: the core looks by the clock.
    assert any(interrupted(call, 0.0005) for _ in range(500))
    assert call() == expected


def test_an_interrupted_planner_gives_its_usual_waves() -> None:
    one, other = planner(), planner()
    expected = [(wave.indices.tolist(), wave.required) for wave in other.waves(REQUESTS)]
    waves = one.waves(REQUESTS)
    for after in (0.0002, 0.002, 0.02):
        if interrupted(waves.plan_next, after):
            # Later only where Ctrl-C came between the search's last step and the caller's next.
            assert waves.start in (0, len(expected[0][0]))
            assert one.width_hint is None
        waves.start, one.width_hint = 0, None
    found = [(wave.indices.tolist(), wave.required) for wave in waves]
    assert found == expected


def test_an_interrupted_sweep_ends_its_workers(tmp_path: Path) -> None:
    sequences = tmp_path / "rows.jsonl"
    sequences.write_text("".join(f'{{"input_ids": [1, 2, {i}]}}\n' for i in range(50)))
    jobs = [Job(model="qwen3-8b", cp=cp, available="70GiB") for cp in (1, 2, 4, 8)]

    def stop(*_: object) -> None:
        raise Stopped

    pool = process_pool(2)
    with pytest.raises(Stopped):
        sweep(Source(path=str(sequences)), jobs, executor=pool, on_done=stop)
    pool.shutdown(wait=True, cancel_futures=True)
    assert not pool._processes


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
def test_a_session_asked_in_the_middle_of_its_own_search_refuses() -> None:
    (session,) = planner().waves(Requests(comb(6_000))).sessions()
    said: list[str] = []

    def handler(*_: object) -> None:
        for ask in (session.growth_len, session.growth, session.alone):
            try:
                ask()
            except waveplan.InputError as error:
                said.append(str(error))
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            session.alone()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert said == ["this session is being searched already"] * 3
