"""Every stage of planning, ours alone: `pytest benches/test_stages.py` (pytest-benchmark).

The pools are those of `waveplan.bench.workloads`; searches are in compatible mode at CP 2, so that
they can be read beside docs/speed.md.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import waveplan
from waveplan.bench import peer
from waveplan.bench.workloads import WAVES
from waveplan.pricing import bind
from waveplan.scoring import Scoring
from waveplan.tree import tree as build_tree

CP = 2
SCORING = Scoring.from_table("gdn-moe-h2048", layers=40, gdn_layers=30, cp=CP)
pools = pytest.mark.parametrize("name", list(WAVES))


@cache
def arrays(name: str) -> tuple[Any, Any]:
    return peer.columns(WAVES[name][0]())


@cache
def rows(name: str) -> Any:
    return waveplan.Rows(*arrays(name))


@cache
def tree(name: str) -> Any:
    return build_tree(rows(name))


@cache
def searched(name: str) -> peer.Ours:
    tokens, offsets = arrays(name)
    ours = peer.Ours(CP, WAVES[name][1], len(tokens))
    ours.cold(tokens, offsets)
    return ours


@cache
def packing(name: str) -> Any:
    return waveplan.choose_layout(tree(name), SCORING, "compatible").pack()


@pools
def test_read_the_tokens(benchmark: Any, name: str) -> None:
    benchmark(arrays(name)[0].sum)


@pools
def test_requests(benchmark: Any, name: str) -> None:
    benchmark(lambda: waveplan.Requests(waveplan.Rows(*arrays(name))))


@pools
def test_tree(benchmark: Any, name: str) -> None:
    benchmark(lambda: build_tree(rows(name)))


@pools
def test_restrict(benchmark: Any, name: str) -> None:
    half = np.arange(len(rows(name)) // 2)
    benchmark(lambda: tree(name).restrict(half))


@pools
@pytest.mark.parametrize("method", ["exact", "compatible", "full"])
def test_layout(benchmark: Any, name: str, method: str) -> None:
    benchmark(lambda: waveplan.choose_layout(tree(name), SCORING, method))


@pools
@pytest.mark.parametrize("ranks", [2, 4])
def test_assign(benchmark: Any, name: str, ranks: int) -> None:
    packed = packing(name)
    benchmark(lambda: waveplan.assign(packed, ranks))


@pools
@pytest.mark.parametrize("ranks", [2, 4])
def test_recurrent(benchmark: Any, name: str, ranks: int) -> None:
    packed = packing(name)
    assignment = waveplan.assign(packed, ranks)
    settings = waveplan.RecurrentSettings.from_shape(2048, 16, 32, 128, 128, 4)
    benchmark(lambda: waveplan.recurrent(packed, assignment, settings))


@pools
def test_price(benchmark: Any, name: str) -> None:
    ours = searched(name)
    ours.waves.start = 0
    measures, bound = ours.waves.plan_next().plan.measures, ours.planner.bound
    benchmark(lambda: bound.results(measures))


@pools
def test_search_cold(benchmark: Any, name: str) -> None:
    ours = searched(name)
    benchmark(lambda: ours.cold(*arrays(name)))


@pools
def test_search_warm(benchmark: Any, name: str) -> None:
    benchmark(searched(name).warm)


def test_bind(benchmark: Any) -> None:
    model = waveplan.models.get("qwen3.6-35b-a3b")
    benchmark(lambda: bind(model, waveplan.Topology(cp=CP), waveplan.Training()))
