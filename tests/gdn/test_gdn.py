"""The second layout against its slow version, and what it refuses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow import gdn as slow
from slow.gdn import MODEL
from slow.set_order import walk_order

from waveplan import (
    GdnSettings,
    InputError,
    Ownership,
    Packing,
    gdn,
    gdn_schedule,
    gdn_schedule_per_rank,
    own,
)

CHEAP = {"chain_bucket_ms": 0.01, "scan_bucket_ms": 0.01, "scan_rate": 900.0, "min_gain_ms": 0.0}


def test_walk_order_is_cpythons():
    rng = random.Random(1)
    for _ in range(300):
        groups = {}
        for _ in range(rng.randint(1, 60)):
            starts = [rng.randrange(10 ** rng.randint(1, 6)) for _ in range(rng.randint(1, 4))]
            group = frozenset((0, start, start + rng.randrange(1, 9000)) for start in starts)
            groups[group] = None
        filled = set()
        for group in groups:
            filled.add(group)
        listed = list(groups)
        assert [listed[i] for i in walk_order([list(g) for g in listed])] == list(filled)


@st.composite
def packs(draw):
    """A pack with chunks, owners in any order, and settings."""
    lengths_of = draw(
        st.sampled_from(
            [
                st.integers(1, 300),
                st.integers(1, 20_000),
                st.sampled_from([1, 64, 640, 5_000]),
                st.sampled_from([2_048, 2_048, 2_049]),
            ]
        )
    )
    lengths = draw(st.lists(lengths_of, min_size=1, max_size=14))
    parents = [draw(st.integers(-1, i - 1)) for i in range(len(lengths))]
    ranks = draw(st.integers(1, 6))
    tokens = sum(lengths)
    chunk = min(tokens, max(draw(st.sampled_from([64, 100, 128, 1_024])), tokens // 40 // 64 * 64))
    count = -(-tokens // chunk)
    if draw(st.booleans()):
        owners = sorted(draw(st.lists(st.integers(0, ranks - 1), min_size=count, max_size=count)))
    else:
        owners = [i * ranks // count for i in range(count)]
    overrides = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "beam_width": st.integers(-1, 4),
                "branch": st.integers(-1, 5),
                "candidates": st.sampled_from([-3, 0, 1, 2, 5, 100]),
                "max_steps": st.integers(-1, 6),
                "exchange_bandwidth": st.sampled_from([1e5, 1e7]),
                "min_gain_ms": st.sampled_from([0.0, 0.5, 2.0]),
                "parent_bytes": st.sampled_from([0, 1 << 30]),
                "hidden_bytes": st.sampled_from([0, 1]),
                "local_bucket_ms": st.just(0.0),
                "local_rate": st.sampled_from([3.0, 1e12]),
            },
        )
    )
    cheap = CHEAP if draw(st.booleans()) else {}
    settings = GdnSettings.from_shape(**MODEL).replace(**{**cheap, **overrides})
    return slow.Pack(lengths, parents, ranks, chunk, owners), settings


def counts(schedule):
    return schedule.executed_tokens, schedule.states, schedule.packed_tokens


def ours(pack, settings):
    packing = Packing.from_segments(pack.lengths, pack.parents)
    attention = Ownership.from_owners(packing, pack.ranks, pack.chunk, pack.owners)
    assert attention.rank_tokens.tolist() == pack.on_ranks(0, pack.tokens)
    return packing, gdn(packing, attention, settings)


@given(packs())
def test_placement_equals_the_slow_one(drawn):
    pack, settings = drawn
    packing, made = ours(pack, settings)
    loads, owner, chained, moved, score = slow.gdn(pack, settings)
    assert made.rank_tokens.tolist() == loads
    assert made.owner.tolist() == owner
    assert made.chained.tolist() == chained
    assert made.cross_tokens == moved
    assert made.score == score
    assert made.bound <= made.score
    whole = dict(enumerate(pack.lengths))
    assert counts(gdn_schedule(packing)) == slow.schedule(pack, whole)
    cuts = iter(made.shards.tolist())
    held = [{} for _ in range(pack.ranks)]
    for segment, length in enumerate(pack.lengths):
        if chained[segment]:
            for rank, tokens in enumerate(next(cuts)):
                held[rank][segment] = tokens
        else:
            held[owner[segment]][segment] = length
    schedules = gdn_schedule_per_rank(packing, made)
    assert [counts(each) for each in schedules] == [slow.schedule(pack, pieces) for pieces in held]


def test_equal_tokens_per_rank_are_scheduled_alike():
    """One tree per rank costs on each what one tree costs alone."""
    lengths, parents = [4_000, 1_000, 900, 333, 70], [-1, 0, 0, 2, -1]
    alone = gdn_schedule(Packing.from_segments(lengths, parents))
    for ranks in (2, 4):
        many = Packing.from_segments(
            lengths * ranks,
            [p + 5 * i if p >= 0 else -1 for i in range(ranks) for p in parents],
        )
        made = gdn(many, own(many, ranks), GdnSettings.from_shape(**MODEL))
        schedules = gdn_schedule_per_rank(many, made)
        assert sum(each.packed_tokens for each in schedules) == many.packed_tokens
        if len({each.packed_tokens for each in schedules}) == 1:
            assert set(map(counts, schedules)) == {counts(alone)}


def test_long_packs_and_many_segments():
    """A hundred thousand one-token segments in a chain, as many roots, and a billion tokens."""
    for parents in (np.arange(-1, 99_999), np.full(100_000, -1)):
        packing = Packing.from_segments(np.ones(100_000, dtype=np.int64), parents)
        made = gdn(packing, own(packing, 4))
        assert made.rank_tokens.sum() == 100_000
        assert not made.chained.any()
    packing = Packing.from_segments([2**30, 5], [-1, 0])
    made = gdn(packing, own(packing, 8))
    assert made.chained.tolist() == [True, False]
    assert made.rank_tokens.sum() == 2**30 + 5


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 0},
        {"conv": 0},
        {"tp": 0},
        {"key_heads": -16},
        {"tp": 5},
        {"key_heads": 12, "tp": 8},
        {"value_dim": 2**62},
        {"local_rate": 0.0},
        {"dense_rate": float("nan")},
        {"scan_bucket_ms": -1.0},
        {"beam_width": 1.5},
        {"no_such_setting": 1.0},
        {"min_gain_ms": float("inf")},
    ],
)
def test_shapes_and_settings_are_refused(change):
    shape = {**MODEL, **{name: value for name, value in change.items() if name in MODEL}}
    others = {name: value for name, value in change.items() if name not in MODEL}
    with pytest.raises(InputError) as refused:
        GdnSettings.from_shape(**shape).replace(**others)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"chunk": 0},
        {"chunk": 32},
        {"owners": [0]},
        {"owners": [0, 2]},
        {"owners": [0, -1]},
        {"owners": [0.0, 1.0]},
        {"owners": [[0, 1]]},
        {"owners": [0, 2**63 + 1]},
        {"cp": 0, "owners": []},
    ],
)
def test_ownerships_of_another_pack_are_refused(change):
    packing = Packing.from_segments([100, 28], [-1, 0])
    fits = {"cp": 2, "chunk": 64, "owners": [0, 1]}
    gdn(packing, Ownership.from_owners(packing, **fits))
    with pytest.raises(InputError) as refused:
        gdn(packing, Ownership.from_owners(packing, **{**fits, **change}))
    assert "\n" not in str(refused.value)


def test_padding_alone_is_refused():
    nothing = Packing.from_segments([], [])
    with pytest.raises(InputError, match="no segments"):
        gdn(nothing, own(nothing, 2))


def test_schedules_of_another_placement_are_refused():
    packing = Packing.from_segments([1_000, 28], [-1, 0])
    made = gdn(packing, own(packing, 2))
    for lengths, parents in (([1_028], [-1]), ([999, 28], [-1, 0])):
        with pytest.raises(InputError, match="another pack"):
            gdn_schedule_per_rank(Packing.from_segments(lengths, parents), made)
