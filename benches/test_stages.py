"""Time every stage of planning, ours alone: `pytest benches/test_stages.py` (pytest-benchmark).

The pools are those of `waveplan.bench.workloads`; searches are in reference mode at CP 2,
as in docs/speed.md. With `--benchmark-disable` every stage runs once, untimed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import waveplan
from waveplan import _core
from waveplan.bench import peer
from waveplan.bench.workloads import WAVES
from waveplan.pricing import bind
from waveplan.profiles import Observed
from waveplan.refusal import WaveRefused
from waveplan.scoring import from_table
from waveplan.stages import tree as build_tree

CP = 2
SCORING = from_table("gdn-moe-h2048", layers=40, gdn_layers=30, cp=CP)
pools = pytest.mark.parametrize("name", list(WAVES))


@cache
def arrays(name: str) -> tuple[Any, Any]:
    return peer.columns(WAVES[name][0]())


@cache
def sequences(name: str) -> Any:
    return waveplan.Sequences(*arrays(name))


@cache
def requests(name: str, labels: str) -> Any:
    """Label all tokens, the second half of each sequence, or runs of 1 to 64 with such gaps."""
    if labels == "all":
        return waveplan.Requests(sequences(name))
    offsets = arrays(name)[1]
    if labels == "answers":
        return waveplan.Requests(sequences(name), targets=np.diff(offsets) // 2)
    rng = np.random.default_rng(7)
    total = int(offsets[-1])
    lengths = rng.integers(1, 65, size=total // 16 + 2)
    mask = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)[:total]
    return waveplan.Requests(sequences(name), targets=np.split(mask, offsets[1:-1]))


@cache
def tree(name: str) -> Any:
    return build_tree(sequences(name))


@cache
def searched(name: str) -> peer.Ours:
    tokens, offsets = arrays(name)
    ours = peer.Ours(CP, WAVES[name][1], len(tokens))
    ours.cold(tokens, offsets)
    return ours


@cache
def layout(name: str) -> Any:
    return waveplan.choose_layout(tree(name), SCORING, "reference")


@cache
def packing(name: str) -> Any:
    return tree(name).pack(layout(name).shared)


@cache
def splitting(name: str) -> tuple[Any, int]:
    """Return a planner, and the fewest bytes (to 0.1 %) in which the pool runs as one split."""
    model, topology = waveplan.facts.models.get("Qwen3.6-35B-A3B"), waveplan.Topology(cp=CP)
    planner = waveplan.Planner(model, topology, waveplan.Training(lora_rank=8), "1TiB")
    pool = requests(name, "all")
    tokens = int(pool.lengths.sum())
    # Little of each forward stays until its backward: else no split fits.
    seen = Observed(later=((tokens, 0),), retained=((tokens, 1 << 20),), here=True)
    planner.profiles[planner.signature_of(pool)] = seen
    low, high = 0, planner.plan(pool).required
    while high - low > high // 1000:
        available = (low + high) // 2
        try:
            planner.plan(pool, available=available)
            high = available
        except WaveRefused:
            low = available
    return planner, high


@pools
def test_read_the_tokens(benchmark: Any, name: str) -> None:
    benchmark(arrays(name)[0].sum)


@pools
def test_requests(benchmark: Any, name: str) -> None:
    benchmark(lambda: waveplan.Requests(waveplan.Sequences(*arrays(name))))


@pools
def test_tree(benchmark: Any, name: str) -> None:
    benchmark(lambda: build_tree(sequences(name)))


@pools
def test_restrict(benchmark: Any, name: str) -> None:
    half = np.arange(len(sequences(name)) // 2)
    benchmark(lambda: tree(name).restrict(half))


@pools
@pytest.mark.parametrize("method", ["exact", "reference", "full"])
def test_layout(benchmark: Any, name: str, method: str) -> None:
    benchmark(lambda: waveplan.choose_layout(tree(name), SCORING, method))


@pools
def test_layout_within_tokens(benchmark: Any, name: str) -> None:
    """The best layout that keeps three quarters of the tokens that sharing saves."""
    whole, packed = len(arrays(name)[0]), tree(name).packed()
    most = packed + (whole - packed) // 4
    benchmark(lambda: waveplan.choose_layout(tree(name), SCORING, "exact", most_tokens=most))


@pools
def test_pack(benchmark: Any, name: str) -> None:
    """The pack of a layout."""
    built, shared = tree(name), layout(name).shared
    benchmark(lambda: built.pack(shared))


@pools
def test_pack_tokens(benchmark: Any, name: str) -> None:
    """The pack of tokens, everything shared."""
    benchmark(lambda: waveplan.pack(sequences(name)))


@pools
def test_packed_ids(benchmark: Any, name: str) -> None:
    """Group, parent and position of every packed token."""
    packed = packing(name)
    benchmark(lambda: (packed.group_ids, packed.parent_ids, packed.position_ids))


@pools
def test_packed_tokens(benchmark: Any, name: str) -> None:
    """The packed tokens themselves, and the positions of each sequence."""
    tokens, offsets = arrays(name)
    parts = np.split(tokens, offsets[1:-1])
    packed = packing(name)
    benchmark(lambda: (_core.gather_tokens(packed, parts), _core.packed_positions(packed)))


@pools
def test_parse_ids(benchmark: Any, name: str) -> None:
    ids = packing(name).group_ids, packing(name).parent_ids
    benchmark(lambda: waveplan.Packing.from_ids(*ids))


@pools
def test_attention_slices(benchmark: Any, name: str) -> None:
    packed = packing(name)
    benchmark(lambda: waveplan.attention_slices(packed))


@pools
@pytest.mark.parametrize("ranks", [2, 4])
def test_own(benchmark: Any, name: str, ranks: int) -> None:
    packed = packing(name)
    benchmark(lambda: waveplan.own(packed, ranks))


@pools
@pytest.mark.parametrize("ranks", [2, 4])
def test_gdn(benchmark: Any, name: str, ranks: int) -> None:
    packed = packing(name)
    ownership = waveplan.own(packed, ranks)
    settings = waveplan.GdnSettings.from_shape(2048, 16, 32, 128, 128, 4)
    benchmark(lambda: waveplan.gdn(packed, ownership, settings))


@pools
@pytest.mark.parametrize("labels", ["all", "answers", "runs"])
def test_measures(benchmark: Any, name: str, labels: str) -> None:
    """All measures of one layout, head tokens and gdn schedules included."""
    pool, built, shared = requests(name, labels), tree(name), layout(name).shared
    everything = np.arange(len(pool))

    def measure() -> Any:
        made = _core.PlanMeasures(pool, everything, _core.MeasureSettings(gdn=True))
        made.exact(0, built, shared)
        return made.finish()

    benchmark(measure)


@pools
def test_price(benchmark: Any, name: str) -> None:
    ours = searched(name)
    ours.waves.start = 0
    measures, bound = ours.waves.plan_next().plan.measures, ours.planner.bound
    benchmark(lambda: bound.results(measures))


@pools
def test_splits(benchmark: Any, name: str) -> None:
    """The attempts up to the split that fits."""
    planner, available = splitting(name)
    pool = requests(name, "all")
    assert planner.plan(pool, available=available).split
    benchmark(lambda: planner.plan(pool, available=available))


@pools
def test_splits_refused(benchmark: Any, name: str) -> None:
    """The attempts where no split fits."""
    planner, available = splitting(name)
    pool = requests(name, "all")

    def refuse() -> None:
        with pytest.raises(WaveRefused):
            planner.plan(pool, available=available // 2)

    benchmark(refuse)


@pools
def test_search_cold(benchmark: Any, name: str) -> None:
    ours = searched(name)
    benchmark(lambda: ours.cold(*arrays(name)))


@pools
def test_search_warm(benchmark: Any, name: str) -> None:
    benchmark(searched(name).warm)


def test_bind(benchmark: Any) -> None:
    model = waveplan.facts.models.get("qwen3.6-35b-a3b")
    benchmark(lambda: bind(model, waveplan.Topology(cp=CP), waveplan.Training()))
