"""Profiles learned from observed peaks, and what they must not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow.width import Probe, Search

from waveplan import (
    InputError,
    Planner,
    Profiles,
    Requests,
    Topology,
    Training,
    WaveRefused,
    _core,
    models,
)
from waveplan._core import PRICE_ROOTS
from waveplan.pricing import reference_rules
from waveplan.profiles import (
    MOST_SIGNATURES,
    Observation,
    Observed,
    Profile,
    Rates,
    Signature,
)
from waveplan.scoring import Scoring

MODEL = models.get("Qwen3.6-35B-A3B")
GIB = 1 << 30
LEARNED = [name for name, _ in _core.PLAN_MEASURES].index("learned_bytes")


def planner(limit: int = 1 << 50, cp: int = 1, **options: Any) -> Planner:
    options.setdefault("scoring", Scoring(version=1, layers=40, gdn_layers=30, cp=cp))
    return Planner(MODEL, Topology(cp=cp), Training(), limit, **options)


def sequences(*lengths: int) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.int64) + i for i, n in enumerate(lengths)]


def learned(profile: Profile, *lengths: int, reference: bool = False) -> int:
    plans = planner(mode="reference" if reference else "best")
    pool = Requests(sequences(*lengths))
    plans.profiles[plans.signature_of(pool)] = profile
    return int(plans.plan(pool).measures.plan[LEARNED])


def test_a_tiny_first_call_does_not_price_a_large_one() -> None:
    profile = Observed().after(Observation(27, 27, 108, 473_836_140))
    assert profile.peak == ((27, 473_836_032),)
    alone = learned(profile, 17_063)
    assert alone <= 8 * 473_836_032 + 6_144 * 17_063 + 4_292_608
    both = profile.after(Observation(103_960, 103_960, 0, 22 * 10**9))
    price = learned(both, 17_063)
    # 22 GB over 103,960 tokens is 3.6 GB here; the first call's one-time bytes stay apart.
    assert 3 * 10**9 < price < 4 * 10**9
    assert both.fixed == pytest.approx(473_836_032 - 22e9 * 27 / 103_960, rel=1e-6)
    anew = Profiles()
    plans = planner()
    pool = Requests(sequences(17_063))
    anew[plans.signature_of(pool)] = both
    plans.profiles = Profiles.from_dict(anew.to_dict())
    again = int(plans.plan(pool).measures.plan[LEARNED])
    assert again == price + both.fixed, "a new process pays for its first call"


@pytest.mark.parametrize("reference", [False, True])
def test_a_learned_peak_does_not_vanish_beyond_the_trust_window(reference: bool) -> None:
    seen = Observation(10, 10, 40, 10**9)
    profile: Profile = Rates(0.0, 0).after(seen) if reference else Observed().after(seen)
    inside = learned(profile, 80, reference=reference)
    beyond = learned(profile, 81, reference=reference)
    assert inside > 7 * 10**9
    assert beyond >= inside


@pytest.mark.parametrize("reference", [False, True])
def test_retained_memory_is_no_fraction_of_a_backward_peak(reference: bool) -> None:
    """A forward of 60 GiB that retains 30 and a backward of 100, run as two halves.

    Both halves' retained 30 and one half's transient 35 are 65, with the factor 71.5 GiB; half
    of each half's peak as retained would make it 82.5.
    """
    profile: Profile
    if reference:
        profile = Rates(100 * GIB / 2000, 2000, 1.0, retained=30 * GIB / 2000)
    else:
        profile = Observed(later=((2000, 100 * GIB),), retained=((2000, 30 * GIB),), here=True)

    def plan(limit: float) -> int:
        plans = planner(int(limit * GIB), mode="reference" if reference else "best")
        pool = Requests(sequences(1000, 1000))
        plans.profiles[plans.signature_of(pool)] = profile
        made = plans.plan(pool)
        assert made.split
        return made.required

    assert plan(72.5) / GIB == pytest.approx(71.5, rel=2e-3)
    with pytest.raises(WaveRefused):
        plan(71.4)


def shared_pairs() -> list[np.ndarray]:
    return [np.array([7, 100 + i]) for i in range(16)]


def test_full_sharing_inside_the_trust_window() -> None:
    """Sixteen two-token requests that share one token, a profile of two tokens."""
    pool = Requests(shared_pairs())
    plans = planner(cp=2, mode="reference")
    plans.profiles[plans.signature_of(pool)] = Rates(0.0, 2)
    wave = plans.wave(pool)
    assert wave.width == 15
    assert wave.plan.forwards[0].mode == "full"
    assert wave.plan.packed_tokens == 16

    def width(retry: bool) -> int:
        def priced(width: int, kind: str) -> Probe:
            tokens = 1 + width if kind == "plan_full" and retry else 2 * width
            return Probe(False, True, tokens <= 16, True)

        return int(Search(16, 0, 1, None, False, priced).run()[0])

    assert width(retry=True) == 15
    assert width(retry=False) == 8


def test_the_minimum_wave_is_taken_with_sharing_where_that_is_trusted() -> None:
    pool = Requests(shared_pairs(), groups=[16])
    plans = planner(cp=2, mode="reference")
    plans.profiles[plans.signature_of(pool)] = Rates(0.0, 3)
    wave = plans.wave(pool)
    assert wave.plan.packed_tokens == 17
    assert wave.plan.forwards[0].mode == "full"
    assert not wave.cold
    plans.profiles[plans.signature_of(pool)] = Rates(0.0, 2)
    assert plans.wave(pool).cold


def test_the_price_follows_the_busiest_ranks_tokens() -> None:
    """Two 4,096-token requests that share 1,228 tokens: 6,964 packed, 4,096 or more on a rank."""
    head = np.arange(1228)
    pair = [np.concatenate([head, np.arange(2868) + 10_000 * (i + 1)]) for i in range(2)]
    plan = planner(cp=2, mode="reference", scoring=None).plan(Requests(pair))
    full = planner(cp=2, mode="reference").plan(Requests(pair))
    for made in (plan, full):
        pack = made.packs[0]
        assert pack.local_tokens == pack.rank_tokens.max() >= 4096
        assert pack.local_tokens not in (6964, 3482)
        assert (
            made.forwards[0].roots[PRICE_ROOTS.index("checkpoint_retained")]
            == pack.local_tokens * 40 * 2048 * 2
        )


@given(
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
    rate=st.floats(0, 1e6),
    tokens=st.integers(1, 3000),
    sharing=st.floats(1, 8),
    retained=st.one_of(st.none(), st.floats(0, 1e5)),
    reference=st.booleans(),
)
def test_a_profile_never_lowers_a_price_below_the_rules(
    lengths: list[int],
    rate: float,
    tokens: int,
    sharing: float,
    retained: float | None,
    reference: bool,
) -> None:
    pool = Requests(sequences(*lengths))

    def required(profile: Profile) -> int:
        plans = planner(mode="reference" if reference else "best", rules=reference_rules())
        plans.profiles[plans.signature_of(pool)] = profile
        return plans.plan(pool).required

    floor = required(Rates(0.0, 1) if reference else Observed(later=((1, 0),)))
    if reference:
        assert required(Rates(rate, tokens, sharing, retained)) >= floor
    else:
        kept = () if retained is None else ((tokens, int(retained)),)
        seen = Observed(later=((tokens, int(rate * tokens)),), sharing=sharing, retained=kept)
        assert required(seen) >= floor


points = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**12)), max_size=40)


@given(points=points)
def test_curves_never_fall_and_cover_what_was_seen(points: list[tuple[int, int]]) -> None:
    curve = Observed(partial=points).peak
    assert len(curve) <= 16
    assert Observed(later=curve).peak == curve
    assert list(curve) == sorted(curve)
    assert [peak for _, peak in curve] == sorted(peak for _, peak in curve)
    for tokens, peak in points:  # at the next point or the last
        assert next((y for x, y in curve if x >= tokens), curve[-1][1]) >= peak


def test_whole_waves_stay_apart_from_partial_readings() -> None:
    plans = planner(trust="profile")
    pool = Requests(sequences(100, 100, 100))
    signature = plans.signature_of(pool)
    for peak, whole in ((10**9, True), (4 * 10**8, False), (5 * 10**8, True)):
        plans.profiles.observe(signature, Observation(100, 100, 400, peak, whole=whole))
    seen = plans.profiles[signature]
    assert isinstance(seen, Observed)
    assert seen.first == (100, 10**9 - 400)
    assert seen.later == ((100, 5 * 10**8 - 400),)
    assert seen.partial == ((100, 4 * 10**8 - 400),)
    assert seen.fixed == 5 * 10**8


def test_published_rates_keep_warm_waves_apart() -> None:
    rates = Rates(0.0, 0).after(Observation(100, 200, 0, 10**6, retained=400_000))
    assert rates == Rates(1e4, 100, 2.0, 4000.0, whole_waves=1)
    rates = rates.after(Observation(50, 60, 0, 300_000))
    assert (rates.warm_bytes_per_token, rates.warm_packed_tokens) == (6000.0, 50)
    assert rates.bytes_per_token == 1e4
    rates = rates.after(Observation(10, 10, 0, 90_000, whole=False))
    assert (rates.warm_bytes_per_token, rates.warm_packed_tokens) == (9000.0, 50)
    assert rates.whole_waves == 2


def test_a_wave_teaches_the_next_one() -> None:
    plans = planner(trust="profile")
    pool = Requests(sequences(*[100] * 32))
    waves = plans.waves(pool)
    first = next(waves)
    assert first.width == 1
    assert first.cold
    plans.observe(first, peak_bytes=2 * 10**9, retained_bytes=10**8)
    second = next(waves)
    assert second.width == 8, "up to eight times the tokens seen"
    assert not second.cold
    assert second.stopped.kind == "trust"
    assert "eight times" in str(second.stopped)


def test_profiles_are_saved_and_loaded(tmp_path: Path) -> None:
    for reference in (False, True):
        profiles = Profiles(reference=reference)
        plans = planner(mode="reference" if reference else "best")
        for lengths, mode in (((100,), True), ((100, 50), False)):
            pool = Requests(sequences(*lengths), gradient=mode)
            for peak in (10**9, 10**8):
                seen = Observation(sum(lengths), sum(lengths), 7, peak, retained=10**6)
                profiles.observe(plans.signature_of(pool), seen)
        path = tmp_path / "profiles.json"
        profiles.save(path)
        loaded = Profiles.load(path)
        assert loaded.to_dict() == profiles.to_dict()
        assert json.loads(path.read_text())["version"] == 1


@pytest.mark.parametrize("peak", [float("nan"), "x", None, -1])
def test_a_peak_that_is_no_number_of_bytes_is_refused(peak: Any) -> None:
    plans = planner()
    wave = plans.wave(sequences(3))
    with pytest.raises(InputError, match="peak_bytes"):
        plans.observe(wave, peak)
    with pytest.raises(InputError, match="retained_bytes"):
        plans.observe(wave, 1, -1 if peak is None else peak)


def test_wrong_readings_are_refused() -> None:
    with pytest.raises(InputError, match="peak is -1"):
        Observation(10, 10, 0, -1)
    with pytest.raises(InputError, match="packed is 0"):
        Observation(0, 0, 0, 1)
    plans = planner()
    signature = plans.signature_of(Requests(sequences(3)))
    with pytest.raises(InputError, match="hold Observed"):
        plans.profiles[signature] = Rates(0.0, 1)


def test_signatures_are_bounded_and_the_one_observed_longest_ago_goes_first() -> None:
    def signature(i: int) -> Signature:
        return Signature(f"job {i}", ("text",), (True,))

    ours, reference = Profiles(), Profiles(reference=True)
    for profiles in (ours, reference):
        for i in range(MOST_SIGNATURES):
            profiles.observe(signature(i), Observation(100, 100, 0, i))
        profiles.observe(signature(0), Observation(100, 100, 0, 1))
        for i in range(MOST_SIGNATURES, MOST_SIGNATURES + 2):
            profiles.observe(signature(i), Observation(100, 100, 0, i))
    assert len(ours) == MOST_SIGNATURES
    assert signature(0) in ours
    assert signature(1) not in ours
    assert signature(2) not in ours
    assert list(ours)[-1] == signature(MOST_SIGNATURES + 1)
    assert len(reference) == MOST_SIGNATURES + 2


def test_a_profile_is_found_whatever_the_order_of_its_lists() -> None:
    pool = Requests(
        sequences(40, 30, 20), hidden=[True, False, False], gradient=[True, False, True]
    )
    plans = planner()
    key = plans.signature_of(pool)
    assert len(key.mixes) == len(key.gradients) == 2
    turned = key.replace(mixes=key.mixes[::-1], gradients=key.gradients[::-1])
    plans.profiles[turned] = Observed().after(Observation(90, 90, 10, 1 << 30))
    assert not plans.wave(pool).cold
