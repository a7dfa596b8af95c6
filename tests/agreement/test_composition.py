"""Composition: every request once, every bin within memory, never slower than the pool's order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workloads
from test_agreement import Thread, together

from waveplan import (
    AllShares,
    Composition,
    InputError,
    Planner,
    RankError,
    Requests,
    Topology,
    Training,
    Wave,
    WaveRefused,
    models,
)
from waveplan.desk.jobs import Source
from waveplan.profiles import Observed

MODEL = models.get("Qwen3.6-35B-A3B")
GIB = 1 << 30
DATA = Path(__file__).parents[1] / "data"


def planner(free: float = 4, dp: int = 1, cp: int = 1, **options: Any) -> Planner:
    options = {"agreement": AllShares()} | options
    return Planner(MODEL, Topology(dp=dp, cp=cp), Training(), int(free * GIB), **options)


def pool(seed: int = 3, count: int = 40, **columns: Any) -> Requests:
    made = workloads.blocks(seed, count=count, block=(64, 900))
    return Requests([ids % 150_000 for ids in made], **columns)


def check(made: Composition, plans: Planner) -> None:
    check_parts(made, plans)
    assert all(a >= b for a, b in pairwise(made.required.max(1)))  # what can fail fails first


def check_parts(made: Composition, plans: Planner) -> None:
    dp, requests = plans.topology.dp, [part for wave in made.requests for part in wave]
    assert len(requests) == made.waves * dp == made.required.size
    assert np.concatenate(requests).tolist() == made.permutation.tolist()
    everything = np.concatenate([made.permutation, made.refused])
    assert np.sort(everything).tolist() == list(range(len(made.pool)))
    assert (made.inverse[made.permutation] == np.arange(len(made.permutation))).all()
    assert (made.inverse[made.refused] == -1).all()
    ends = np.cumsum(made.pool.group_sizes)
    for group, last in enumerate(ends):
        members = range(last - made.pool.group_sizes[group], last)
        homes = {i for i, part in enumerate(requests) for r in members if r in part}
        assert len(homes) == 1 or set(members) <= set(made.refused.tolist())
    assert (made.required <= plans.available).all()
    assert made.bound <= made.waves
    assert made.bound_tokens <= made.packed_tokens.sum()
    assert made.total_ms == pytest.approx(made.ms.max(1).sum() if made.waves else 0)
    if len(made.pool) - len(made.refused) >= made.waves * dp:
        assert all(len(part) for part in requests)


def slowest(wave: Wave) -> float:
    """Modelled milliseconds of a wave: its slowest rank."""
    return max(share.plan.time_ms or 0 for share in wave.shares or (wave,))


@pytest.mark.parametrize(("dp", "cp"), [(1, 1), (2, 1), (3, 2), (1, 4)])
@pytest.mark.parametrize("tied", [False, True])
def test_every_request_once_within_memory_and_no_slower(dp: int, cp: int, tied: bool) -> None:
    plans = planner(8 if tied else 4, dp=dp, cp=cp)
    for seed in range(3):
        requests = pool(seed, groups=[3] * 12 + [4] if tied else None)
        made = plans.compose(requests)
        check(made, plans)
        kept = list(plans.waves(requests))
        assert made.keep_waves == len(kept)
        assert made.total_ms <= made.keep_ms
        assert made.gap >= 0
        assert str(made).startswith(f"{made.waves} waves (bound {made.bound}; in order {len(kept)}")
        for rank in range(dp):
            assert [part.tolist() for part in made.share(rank)] == [
                wave[rank].tolist() for wave in made.requests
            ]


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3.6-35B-A3B"])
@pytest.mark.parametrize("cp", [1, 2])
def test_times_are_those_of_the_waves(name: str, cp: int) -> None:
    """Of the composed ones as of those in the pool's order."""
    topology = Topology(dp=2, cp=cp)
    plans = Planner(models.get(name), topology, Training(), 8 * GIB, agreement=AllShares())
    made = plans.compose(pool())
    times = np.array([[share.plan.time_ms for share in wave.shares] for wave in plans.waves(made)])
    assert (times > 0).all()
    assert times == pytest.approx(made.ms, rel=1e-9)
    assert (made.linear_ms <= made.ms * (1 + 1e-9)).all()
    assert made.keep_ms == pytest.approx(sum(map(slowest, plans.waves(pool()))), rel=1e-9)
    assert made.bound_ms <= made.total_ms <= made.keep_ms


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("corpus", ["math_grpo", "tau_retail", "tau_turns", "coding"])
def test_no_order_that_is_composed_runs_slower_than_the_pools(corpus: str, dp: int) -> None:
    """Gdn layers over context-parallel ranks: what the score of layouts does not see decides."""
    requests = Source(path=str(DATA / f"{corpus}_open.npz")).requests()
    requests = Requests(requests.sequences.take(np.arange(min(len(requests), 120))))
    plans = planner(12, dp=dp, cp=2)
    made = plans.compose(requests, on_refusal="skip")
    kept, run = (
        sum(map(slowest, plans.waves(pool, on_refusal="skip"))) for pool in (requests, made)
    )
    assert (made.keep_ms, made.total_ms) == pytest.approx((kept, run), rel=1e-9)
    assert run <= kept


def test_prefixes_that_lie_apart_are_brought_together() -> None:
    prompts = [np.arange(i * 10_000, i * 10_000 + 2_000) for i in range(6)]
    tail = np.arange(90_000, 90_100)
    requests = Requests([np.concatenate([prompts[i % 6], tail + i]) for i in range(48)])
    plans = planner(4)
    made = plans.compose(requests)
    assert made.waves < made.keep_waves
    assert made.packed_tokens.sum() < 0.6 * sum(w.plan.packed_tokens for w in plans.waves(requests))


def test_waves_of_a_composition_are_the_same_each_time() -> None:
    plans, requests = planner(dp=2), pool()
    made = plans.compose(requests)
    first, second = ([*plans.waves(made)] for _ in range(2))
    free = [*plans.waves(requests, order="free")]
    assert len(first) == made.waves
    for wave, again, other, required, parts in zip(
        first, second, free, made.required, made.requests, strict=True
    ):
        assert wave.plan.fingerprint == again.plan.fingerprint == other.plan.fingerprint
        assert [share.required for share in wave.shares] == required.tolist()
        assert [np.sort(share.requests).tolist() for share in wave.shares] == [
            part.tolist() for part in parts
        ]
        assert wave.stopped.kind == "composed"
        assert str(made) in str(wave.stopped)
        assert wave.to_dict()["stopped"]["kind"] == "composed"
    assert [wave.start for wave in first] == [0, *np.cumsum([wave.width for wave in first])[:-1]]


@pytest.mark.parametrize("dp", [1, 2])
def test_a_window_keeps_the_oldest_from_waiting(dp: int) -> None:
    plans, requests = planner(4, dp=dp), pool(count=60)
    widths = []
    for window in (0, 16):
        made = plans.compose(requests, window=window)
        left = list(range(60))
        for wave in made.requests:
            taken = set(np.concatenate(wave).tolist())
            assert left[0] in taken
            left = [i for i in left if i not in taken]
        assert (left, made.total_ms <= made.keep_ms) == ([], True)
        widths.append(made.total_ms)
    assert widths[1] <= widths[0]
    waves = list(plans.waves(requests, order="free", window=16))
    assert len(waves) == made.waves
    with pytest.raises(InputError, match="needs order"):
        plans.waves(requests, window=3)


def test_a_group_that_fits_in_no_wave_is_refused() -> None:
    sequences = [*workloads.blocks(1, count=6), np.arange(60_000)]
    plans = planner(4, dp=2)
    with pytest.raises(WaveRefused, match="requires"):
        plans.compose(sequences)
    made = plans.compose(sequences, on_refusal="skip")
    check(made, plans)
    assert made.refused.tolist() == [6]
    assert [refusal.indices.tolist() for refusal in plans.waves(made).refused] == [[6]]
    none = plans.compose([np.arange(60_000)], on_refusal="skip")
    assert (none.waves, none.bound, list(plans.waves(none))) == (0, 0, [])
    tied = Requests(workloads.unique(3, count=6, total=40_000), groups=[6])
    plans = planner(1024)
    seen = Observed(
        later=((int(tied.lengths.sum()), 0),), retained=((40_000, GIB // 20),), here=True
    )
    plans.profiles[plans.signature_of(tied)] = seen
    plans.available = int(plans.plan(tied).required * 0.85)
    assert plans.plan(tied).split
    with pytest.raises(WaveRefused, match="untie it"):
        plans.compose(tied)


def test_the_fewest_waves_of_those_that_no_order_beats() -> None:
    sequences = [np.arange(n) + i * 10_000 for i, n in enumerate([6_000] * 3 + [4_000] * 3)]
    requests, plans = Requests(sequences), planner(1024)
    plans.available = plans.plan(Requests(sequences[2:4])).required
    kept, made = (plans.compose(requests, order=order) for order in ("keep", "free"))
    assert (kept.waves, made.waves, made.bound) == (4, 3, 3)
    assert made.total_ms <= kept.total_ms


def test_multiples_and_fixed_time() -> None:
    requests, plans = pool(), planner(4, dp=2)
    assert plans.compose(requests, multiple=4).waves % 4 == 0
    with pytest.raises(InputError, match="multiple is 64: 40 groups"):
        plans.compose(requests, multiple=64)
    slow = plans.compose(requests, fixed_ms=1e6)
    assert slow.total_ms == pytest.approx(slow.ms.max(1).sum() + 1e6 * slow.waves)
    assert slow.waves <= plans.compose(requests).waves


def test_sharing_stays_within_a_kind_of_pack() -> None:
    requests = pool(2, gradient=[i % 2 == 0 for i in range(40)])
    plans = planner(5)
    made = plans.compose(requests)
    check(made, plans)


@pytest.mark.parametrize("at", [0, 12, 23])
def test_bounds_hold_wherever_the_one_request_with_a_gradient_stands(at: int) -> None:
    rows = np.arange(24 * 1500).reshape(24, 1500)
    requests = Requests([*rows], gradient=[i == at for i in range(24)])
    plans = planner(3, margin=None)
    run = plans.waves(requests)
    waves, bound = [*run], run.bound()
    assert bound.waves <= len(waves)
    assert bound.tokens <= sum(wave.plan.packed_tokens for wave in waves)
    made = plans.compose(requests)
    assert made.gap >= 0


def test_a_composition_runs_as_it_was_composed() -> None:
    plans = planner(4, dp=2)
    made = plans.compose(pool())
    given: list[dict[str, Any]] = [{"start": 1}, {"order": "keep"}, {"window": 2}]
    for options in [*given, {"on_refusal": "skip"}]:
        with pytest.raises(InputError, match="requests is a composition"):
            plans.waves(made, **options)
    for other in (planner(4), planner(4, dp=2, mode="reference")):
        with pytest.raises(InputError, match="composition for dp 2, best mode"):
            other.waves(made)


def test_a_bin_that_an_observation_makes_too_large_is_composed_again() -> None:
    plans, requests = planner(5), pool(count=60)
    waves = plans.waves(plans.compose(requests))
    first = next(waves)
    before = waves.composition
    plans.observe(first, 9 * GIB)
    rest = list(waves)
    assert waves.composition.version == before.version + 1
    seen = np.concatenate([first.requests, *(wave.requests for wave in rest)])
    refused = [i for refusal in waves.refused for i in refusal.indices]
    assert sorted([*seen, *refused]) == list(range(60))
    assert all(wave.required <= wave.available for wave in rest)


def test_ranks_compose_alike_in_one_gather() -> None:
    def work(agreement: Thread) -> Any:
        plans = planner(4 + agreement.rank, dp=3, agreement=agreement)
        made = plans.compose(pool())
        calls = agreement.calls
        taken = [wave.requests.tolist() for wave in plans.waves(made)]
        return made, calls, agreement.calls - calls, taken

    results = together(3, 3, work)
    desk = planner(4, dp=3).compose(pool())
    for rank, (made, composing, running, taken) in enumerate(results):
        assert made.fingerprint == desk.fingerprint
        assert (composing, running) == (1, made.waves)
        assert [sorted(part) for part in taken] == [part.tolist() for part in made.share(rank)]


def test_observations_count_on_every_rank() -> None:
    def work(agreement: Thread) -> Any:
        plans = planner(5, dp=2, agreement=agreement)
        waves = plans.waves(pool(), order="free")
        for wave in waves:
            plans.observe(wave, GIB + agreement.rank)
        return plans.profiles

    one, two = together(2, 2, work)
    assert len(one) == 1
    assert repr(one.to_dict()) == repr(two.to_dict())


def test_ranks_that_differ_are_told_so() -> None:
    def work(agreement: Thread) -> Any:
        return planner(4, dp=2, agreement=agreement).compose(pool(count=40 - agreement.rank))

    for error in together(2, 2, work):
        assert isinstance(error, RankError)
        assert "disagree on a composition: process" in str(error)
        assert "tokens" in str(error)


def test_one_that_is_smaller_than_the_bound_and_fits_nowhere_is_refused() -> None:
    plans, requests = planner(3), pool(count=60)
    made = plans.compose(requests, on_refusal="skip")
    check(made, plans)
    waves = plans.waves(requests, on_refusal="skip")
    assert made.waves <= len(list(waves))
    assert len(made.refused) == len(waves.refused) == len(plans.waves(made).refused) > 3


def test_bad_arguments() -> None:
    plans, requests = planner(), pool()
    with pytest.raises(InputError, match="reference mode keeps"):
        planner(mode="reference").compose(requests)
    with pytest.raises(InputError, match="empty"):
        plans.compose([])
    window = {"window": 3, "order": "keep"}
    for options in ({"fixed_ms": -1}, {"multiple": 0}, {"on_refusal": "oversized"}, window):
        with pytest.raises(InputError, match=next(iter(options))):
            plans.compose(requests, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="start is 0"):
        plans.waves(requests, order="free", start=3)
    with pytest.raises(InputError, match="dp_rank is 1 of 1"):
        plans.compose(requests).share(1)


@pytest.mark.parametrize("order", ["keep", "blocks"])
def test_a_pool_in_order_is_a_composition_too(order: Any) -> None:
    plans, requests = planner(4, dp=2), pool()
    made = plans.compose(requests, order=order)
    check_parts(made, plans)
    waves = list(plans.waves(requests, order=order))
    assert [np.sort(np.concatenate(wave)).tolist() for wave in made.requests] == [
        sorted(i for share in wave.shares for i in share.requests.tolist()) for wave in waves
    ]
    assert (made.by, made.total_ms, made.waves) == ("keep", made.keep_ms, made.keep_waves)
    assert made.total_ms >= plans.compose(requests).total_ms


def test_what_is_left_is_composed_again_where_fewer_waves_are_in_sight() -> None:
    plans, requests = planner(4), pool(count=60)
    waves = plans.waves(plans.compose(requests))
    first, before = next(waves), waves.composition
    next(waves)
    assert waves.composition is before  # nothing has changed
    plans.available *= 2
    rest = list(waves)
    assert waves.composition.version == before.version + 1
    assert len(rest) < before.waves - 2
    assert len(first.requests) < max(len(wave.requests) for wave in rest)
