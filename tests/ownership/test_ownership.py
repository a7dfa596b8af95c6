"""The ownership against its slow twin, its invariants, small cases in full, hostile input."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from slow import ownership as slow

import waveplan
from waveplan import (
    OwnershipSettings,
    StageWork,
    WorkloadProfile,
    own,
    owned_token_ms,
)
from waveplan._core import stage_times
from waveplan.errors import InputError

Pack = waveplan.Packing.from_segments


@st.composite
def packs(draw, most_segments=14, longest=40):
    """A pack; parents are any earlier segment, so not only tree order."""
    n = draw(st.integers(1, most_segments))
    lengths = draw(st.lists(st.integers(1, longest), min_size=n, max_size=n))
    if draw(st.booleans()):
        parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    else:
        parents = [-1]
        for i in range(1, n):
            up, parent = draw(st.integers(0, 3)), i - 1
            while up and parent != -1:
                up, parent = up - 1, parents[parent]
            parents.append(parent)
    return lengths, parents


stage_works = st.builds(
    StageWork,
    **{name: st.sampled_from([0, 1, 7, 900]) for name in StageWork.__match_args__},
)
profiles = st.builds(
    WorkloadProfile,
    stages=st.lists(stage_works, min_size=1, max_size=2).map(tuple),
    query_tile=st.sampled_from([1, 4, 7]),
    key_tile=st.sampled_from([1, 8, 33]),
    workspace_elements=st.sampled_from([1, 50, 4096]),
    max_key_tokens=st.sampled_from([1, 20, 4096]),
    max_ranges=st.integers(1, 3),
)
PROFILE = WorkloadProfile(
    stages=[StageWork()], query_tile=1, key_tile=1, workspace_elements=1, max_key_tokens=1
)
costs = st.sampled_from([0.0, 0.001, 0.013, 0.1, 0.7])
settings = st.builds(
    OwnershipSettings,
    block=st.sampled_from([1, 2, 3, 8, 16]),
    chunk=st.sampled_from([-1, 1, 4, 9, 32, 512]),
    chunk_budget_base=st.sampled_from([-1, 0, 3, 8, 64]),
    chunk_budget_per_rank=st.sampled_from([-1, 0, 1, 4]),
    max_stages=st.integers(1, 6),
    candidates=st.sampled_from([-1, 0, 1, 2, 3, 8]),
    steps=st.sampled_from([-1, 0, 1, 3, 8]),
    stage_overhead_ms=costs,
    remote_host_ms=costs,
    owned_token_ms=costs,
    comm_overhead_ms=costs,
    interval_ms=costs,
    merge_token_ms=costs,
    fetch_token_ms=costs,
    reduce_token_ms=costs,
    local_pair_ms=costs,
    remote_pair_ms=costs,
    local_backward_pair_ms=costs,
    remote_backward_pair_ms=costs,
    underfill_ms=costs,
    underfill_tokens=st.sampled_from([-5, 0, 1, 20, 4096]),
    underfill_pairs=st.sampled_from([-5, 0, 1, 500, 4_000_000]),
    profile=st.none() | profiles,
)

# Costs at which moves and stages pay in packs as short as these.
moving = st.builds(
    OwnershipSettings,
    block=st.just(1),
    chunk=st.integers(1, 3),
    chunk_budget_base=st.just(0),
    chunk_budget_per_rank=st.just(0),
    max_stages=st.integers(1, 3),
    candidates=st.sampled_from([1, 2, 8]),
    remote_host_ms=st.sampled_from([0.0, 0.01]),
    stage_overhead_ms=st.sampled_from([0.0, 0.02]),
    owned_token_ms=st.sampled_from([0.0, 0.3, 2.0]),
    interval_ms=st.sampled_from([0.0, 0.1]),
    fetch_token_ms=st.sampled_from([0.01, 0.3]),
    local_pair_ms=st.sampled_from([0.05, 0.003]),
    remote_pair_ms=st.sampled_from([0.06, 0.003, 0.0]),
    local_backward_pair_ms=st.sampled_from([0.1, 0.003]),
    remote_backward_pair_ms=st.sampled_from([0.12, 0.001]),
)


def check_equal(made, want):
    assert made.chunk == want["chunk"]
    for name in ("contiguous", "stages", "owners", "rank_tokens"):
        assert getattr(made, name).tolist() == want[name], name
    assert made.score == want["score"]
    if made.work is None:
        assert made.forward_ms.tolist() == want["forward_ms"]
        assert made.backward_ms.tolist() == want["backward_ms"]
    else:
        for name, theirs in want["work"].items():
            if name != "each_ranges":
                assert np.asarray(getattr(made.work, name)).tolist() == theirs, name


def check_invariants(made, tokens, ranks):
    assert made.tokens == tokens == made.rank_tokens.sum()
    assert len(made.rank_tokens) == made.ranks == ranks
    assert set(made.owners.tolist()) <= set(range(ranks))
    if len(made.owners) >= ranks:
        assert made.rank_tokens.min() > 0
    spans = [made.ranges(rank) for rank in range(ranks)]
    assert [int((span[:, 1] - span[:, 0]).sum()) for span in spans] == made.rank_tokens.tolist()
    joined = sorted(tuple(span) for rank in spans for span in rank.tolist())
    assert [start for start, _ in joined] == [0, *(end for _, end in joined[:-1])]
    if made.work is None:
        assert all(len(span) <= 1 for span in spans)
        assert (np.diff(made.owners) >= 0).all()
        assert made.score == max(made.forward_ms + made.backward_ms)
    assert (np.diff(made.stages) >= 0).all()
    assert made.bound is not None
    assert made.bound <= made.score


@hypothesis(max_examples=max(200, hypothesis().max_examples))
@given(packs(), st.integers(1, 9), settings)
def test_equals_the_slowment(pack, ranks, chosen):
    made = own(Pack(*pack), ranks, chosen)
    check_invariants(made, sum(pack[0]), ranks)
    check_equal(made, slow.own(*pack, ranks, chosen))


@hypothesis(max_examples=max(200, hypothesis().max_examples))
@given(packs(most_segments=6, longest=8), st.integers(1, 5), moving)
def test_moves_equal_the_slow_ones(pack, ranks, chosen):
    check_equal(own(Pack(*pack), ranks, chosen), slow.own(*pack, ranks, chosen))


def forests(segments):
    return itertools.product(*(range(-1, i) for i in range(segments)))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_small_packs_in_full(ranks):
    """All forests of three segments of 1 or 3 tokens, in chunks of 1 or 2."""
    for parents in forests(3):
        for lengths in itertools.product((1, 3), repeat=3):
            for chunk in (1, 2):
                chosen = OwnershipSettings(
                    block=1,
                    chunk=chunk,
                    chunk_budget_base=0,
                    chunk_budget_per_rank=0,
                    remote_host_ms=0.0,
                    interval_ms=0.01,
                    local_pair_ms=0.2,
                    remote_pair_ms=0.3,
                )
                made = own(Pack(list(lengths), list(parents)), ranks, chosen)
                check_equal(made, slow.own(list(lengths), list(parents), ranks, chosen))


def test_no_ownership_beats_the_bound():
    """The bound against the best of all owners of all chunks, in any number of stages."""
    chosen = OwnershipSettings(
        block=1,
        chunk=2,
        chunk_budget_base=0,
        chunk_budget_per_rank=0,
        remote_host_ms=0.0,
        comm_overhead_ms=0.0,
        interval_ms=0.01,
        local_pair_ms=0.2,
        remote_pair_ms=0.15,
        owned_token_ms=0.3,
    )
    for parents in forests(3):
        lengths = [4, 3, 3]
        made = own(Pack(lengths, list(parents)), 2, chosen)
        pairs = slow.chunk_pairs(slow.visible(lengths, list(parents)), 2)
        chunks = len(pairs)
        best = min(
            slow.evaluate(pairs, [2] * chunks, owners, slow.stages_of(chunks, stages), 2, chosen)[0]
            for owners in itertools.product(range(2), repeat=chunks)
            for stages in (1, 2)
        )
        assert made.bound <= best <= made.score + 1e-12
        assert made.bound > 0.3 * best


@given(packs(most_segments=8))
def test_moving_away_from_the_start_only_helps(pack):
    chosen = OwnershipSettings(block=1, chunk=4, remote_host_ms=0.01, local_pair_ms=0.05)
    searched = own(Pack(*pack), 3, chosen)
    start = own(Pack(*pack), 3, chosen.replace(steps=0))
    assert start.owners.tolist() == searched.contiguous.tolist() == start.contiguous.tolist()
    assert searched.score <= start.score + 1e-9


@given(packs(), st.integers(1, 6), settings, st.sampled_from(["interval_ms", "local_pair_ms"]))
def test_costs_below_zero_equal_the_slowment(pack, ranks, chosen, name):
    chosen = chosen.replace(**{name: -0.1})
    made = own(Pack(*pack), ranks, chosen)
    check_equal(made, slow.own(*pack, ranks, chosen))
    assert made.bound is None or chosen.profile is not None


def test_fewer_tokens_than_ranks():
    made = own(Pack([5], [-1]), 8)
    assert made.owners.tolist() == [7]
    assert made.rank_tokens.tolist() == [0] * 7 + [5]
    assert made.forward_ms[:7].tolist() == [0.0] * 7


def test_a_pack_without_tokens():
    for profile in (None, PROFILE):
        made = own(Pack([], []), 3, OwnershipSettings(profile=profile))
        assert (made.chunk, made.tokens, made.score, made.bound) == (0, 0, 0.0, 0.0)
        assert made.owners.size == made.stages.size == 0
        assert made.rank_tokens.tolist() == [0, 0, 0]
        assert made.ranges(2).shape == (0, 2)


def test_deep_chains_and_long_packs():
    """Sizes that a chunk-by-chunk or slice-by-slice answer would choke on."""
    chain = Pack(np.ones(100_000, dtype=np.int64), np.arange(-1, 99_999))
    made = own(chain, 2)
    check_invariants(made, 100_000, 2)
    # A chain attends like one long segment.
    whole = own(Pack([100_000], [-1]), 2)
    assert made.owners.tolist() == whole.owners.tolist()
    assert made.score == whole.score
    unlimited = OwnershipSettings(chunk_budget_base=0, chunk_budget_per_rank=0)
    check_invariants(own(Pack([3_900_000], [-1]), 4, unlimited), 3_900_000, 4)


def test_the_most_ranks():
    assert own(Pack([5], [-1]), 4096).owners.tolist() == [4095]
    made = own(Pack([6144] * 2, [-1, 0]), 4096)
    assert (made.rank_tokens == 3).all()
    assert made.owners.tolist() == list(range(4096))


def test_takes_any_integer_array():
    want = own(Pack([300, 200, 100], [-1, 0, 0]), 2, OwnershipSettings(chunk=128))
    lengths = np.array([300, 0, 200, 0, 100, 0], dtype=np.int32)[::2]
    parents = np.array([-1, 0, 0], dtype=np.int16)
    parents.flags.writeable = False
    made = own(Pack(lengths, parents), 2, OwnershipSettings(chunk=128))
    assert made.owners.tolist() == want.owners.tolist()
    made.owners[0] += 1
    assert made.owners.tolist() == want.owners.tolist()


def test_extreme_settings_do_not_overflow():
    big = 2**63 - 1
    chosen = OwnershipSettings(
        block=big,
        chunk=big,
        chunk_budget_base=big,
        chunk_budget_per_rank=big,
        max_stages=big,
        candidates=big,
        steps=3,
        underfill_tokens=big,
        underfill_pairs=big,
    )
    check_invariants(own(Pack([1000, 500], [-1, 0]), 2, chosen), 1500, 2)
    heavy = StageWork(**dict.fromkeys(StageWork.__match_args__, big))
    sizes = dict.fromkeys(WorkloadProfile.__match_args__, big)
    profile = WorkloadProfile(**{**sizes, "stages": [heavy]})
    with pytest.raises(InputError, match="indexer's work is too large"):
        own(Pack([1000, 500], [-1, 0]), 2, OwnershipSettings(profile=profile))


def test_threads_agree():
    pack = Pack([700] * 40, [-1] + [0] * 39)
    want = own(pack, 4, OwnershipSettings(owned_token_ms=0.001)).owners.tolist()
    answers = []

    def work():
        made = own(pack, 4, OwnershipSettings(owned_token_ms=0.001))
        answers.append(made.owners.tolist())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [want] * 8


def test_owned_token_ms():
    moe = {"hidden": 2048, "ffn": 8192, "topk": 8, "expert_ffn": 512, "shared_ffn": 512}
    assert owned_token_ms(**moe) == 0.0006763315199999999
    assert owned_token_ms(**moe, ep=2) < owned_token_ms(**moe)
    assert owned_token_ms(**moe, etp=2) == owned_token_ms(**moe, ep=2)
    assert owned_token_ms(**moe, tp=4, etp=2) == pytest.approx(owned_token_ms(**moe) / 4)
    assert owned_token_ms(hidden=100, ffn=0) == owned_token_ms(hidden=0, ffn=100) == 0.0
    h, ffn = 4096, 12288
    assert owned_token_ms(hidden=h, ffn=ffn) == pytest.approx(
        3 * (8 * h * h + 6 * h * ffn) / 400e12 * 1e3
    )
    with pytest.raises(InputError, match="tp is 0"):
        owned_token_ms(hidden=1, ffn=1, tp=0)


@given(packs(), st.integers(1, 6))
def test_stage_times_play_out_to_the_forward_time(pack, cp):
    settings = OwnershipSettings(chunk=8, block=4, owned_token_ms=0.01)
    packed = Pack(*map(np.array, pack))
    made = own(packed, cp, settings)
    parts = stage_times(packed, made, settings)
    for rank in range(cp):
        end, fetch = parts.local[rank], 0.0
        for work, wait in zip(parts.compute[rank], parts.exchange[rank], strict=True):
            if work > 0:
                start = max(end, fetch + wait)
                end, fetch = start + work, start
        owned = made.rank_tokens[rank] * settings.owned_token_ms
        assert made.forward_ms[rank] == pytest.approx(end + owned / 3.0, rel=1e-12)
