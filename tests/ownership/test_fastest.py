"""Ownership within a limit of tokens: against its slow twin and against every ownership."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from golden.test_golden_ownership import packed, settings_of
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from ownership.test_ownership import PROFILE, Pack, packs, settings
from slow import fastest as slow
from slow import ownership as model

from waveplan import Ownership, OwnershipSettings, own
from waveplan.errors import InputError

plain = settings.map(lambda chosen: chosen.replace(profile=None))
# Chunks that make at most ten of what `packs` draws, so that every ownership can be tried.
few = st.tuples(packs(most_segments=6, longest=8), st.integers(2, 4), plain).map(
    lambda drawn: (
        *drawn[:2],
        drawn[2].replace(
            block=1,
            chunk=max(1, -(-sum(drawn[0][0]) // 9)),
            chunk_budget_base=0,
            chunk_budget_per_rank=0,
        ),
    )
)


def cut(pack, ranks, chosen):
    """Pairs, lengths and numbers of stages of a pack in chunks."""
    tokens = sum(pack[0])
    chunk = model.chunk_size(tokens, ranks, chosen)
    pairs = model.chunk_pairs(model.visible(*pack), chunk)
    lengths = [min(chunk, tokens - i * chunk) for i in range(len(pairs))]
    return pairs, lengths, range(1, min(chosen.max_stages, len(pairs)) + 1)


@hypothesis(max_examples=max(150, hypothesis().max_examples))
@given(few, st.integers(0, 3))
def test_the_bound_is_below_every_ownership_and_the_answer_is_one(case, more):
    pack, ranks, chosen = case
    tokens = sum(pack[0])
    pairs, lengths, counts = cut(pack, ranks, chosen)
    least = slow.even_tokens(tokens, lengths[0], ranks)
    most = least + more * lengths[0]
    if len(lengths) < ranks:
        assert same(own(Pack(*pack), ranks, chosen, "fastest"), own(Pack(*pack), ranks, chosen))
        return
    every = [
        owners
        for owners in slow.every_cut(len(lengths), ranks)
        if max(model_tokens(owners, lengths, ranks)) <= most
    ]
    assert every, "the even share can be met"
    best = min(
        model.evaluate(pairs, lengths, owners, model.stages_of(len(lengths), n), ranks, chosen)[0]
        for owners in every
        for n in counts
    )
    made = own(Pack(*pack), ranks, chosen, "fastest", most_tokens=most)
    assert made.bound <= best <= made.score
    # No window hides anything: the same as every range priced.
    today = own(Pack(*pack), ranks, chosen)
    known = (today.owners.tolist(), today.score) if today.most_tokens <= most else None
    whole = slow.own(pairs, lengths, ranks, most, counts, chosen, known)
    assert (made.owners.tolist(), made.score, made.bound) == whole
    assert not made.optimal or made.score == best
    assert made.most_tokens == max(made.rank_tokens) <= most
    assert made.most_ranges == 1
    with pytest.raises(
        InputError, match=f"most_tokens is {least - 1}: it must be at least {least}"
    ):
        own(Pack(*pack), ranks, chosen, "fastest", most_tokens=least - 1)
    every = slow.every_cut(len(lengths), ranks)
    assert min(max(model_tokens(owners, lengths, ranks)) for owners in every) == least


def same(a, b):
    names = ("score", "bound", "method", "optimal")
    return all(getattr(a, name) == getattr(b, name) for name in names) and (
        a.owners.tolist() == b.owners.tolist()
    )


def model_tokens(owners, lengths, ranks):
    return [
        sum(n for n, owner in zip(lengths, owners, strict=True) if owner == rank)
        for rank in range(ranks)
    ]


@hypothesis(max_examples=max(150, hypothesis().max_examples))
@given(packs(), st.integers(2, 6), plain)
def test_a_bound_holds_within_tighter_limits_and_none_is_slower_than_today(pack, ranks, chosen):
    today = own(Pack(*pack), ranks, chosen)
    least = slow.even_tokens(today.tokens, today.chunk, ranks)
    best = float("inf")
    for most in range(least, today.tokens + today.chunk, today.chunk):
        made = own(Pack(*pack), ranks, chosen, "fastest", most_tokens=most)
        best = min(best, made.score)
        assert made.bound <= best
    assert made.score <= today.score
    if made.score == today.score:
        assert made.owners.tolist() == today.owners.tolist()


@hypothesis(max_examples=max(150, hypothesis().max_examples))
@given(few, st.data())
def test_folds_equal_the_slow_ones(case, data):
    pack, ranks, chosen = case
    pairs, lengths, counts = cut(pack, ranks, chosen)
    made = own(Pack(*pack), ranks, chosen, "even_fold")
    if len(lengths) < ranks:
        assert same(made, own(Pack(*pack), ranks, chosen))
        return
    owners, score = slow.even_fold(pairs, lengths, ranks, counts, chosen)
    assert (made.owners.tolist(), made.score) == (owners, score)
    assert made.most_ranges <= 2
    assert made.most_tokens <= -(-len(lengths) // ranks) * lengths[0]
    # No owners at all with as few tokens on a rank are faster than the bound.
    every = (data.draw(st.permutations(owners)) for _ in range(20))
    alike = [one for one in every if max(model_tokens(one, lengths, ranks)) <= made.most_tokens]
    times = [
        model.evaluate(pairs, lengths, one, model.stages_of(len(lengths), n), ranks, chosen)[0]
        for one in alike
        for n in counts
    ]
    assert made.bound <= min([made.score, *times])
    assert not made.optimal or made.bound >= made.score * (1 - 1e-12)


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_bound_of_folds_is_below_all_owners(ranks):
    """Every owner of every chunk, at costs at which fetching decides."""
    chosen = few_chunks.replace(remote_pair_ms=0.3, merge_token_ms=0.05, remote_host_ms=0.7)
    raised = 0
    for lengths, parents in (([6, 2], [-1, 0]), ([8], [-1]), ([3, 2, 3], [-1, 0, 0])):
        pack = Pack(lengths, parents)
        made = own(pack, ranks, chosen, "even_fold")
        pairs, sizes, counts = cut((lengths, parents), ranks, chosen)
        best = min(
            model.evaluate(pairs, sizes, owners, model.stages_of(len(sizes), n), ranks, chosen)[0]
            for owners in product(range(ranks), repeat=len(sizes))
            if max(model_tokens(owners, sizes, ranks)) <= made.most_tokens
            for n in counts
        )
        assert made.bound <= best <= made.score
        raised += made.bound > own(pack, ranks, chosen).bound
    assert raised == 3


few_chunks = OwnershipSettings(
    block=1, chunk=1, chunk_budget_base=0, chunk_budget_per_rank=0, local_pair_ms=0.2
)


@hypothesis(max_examples=max(200, hypothesis().max_examples))
@given(few, st.data())
def test_any_owners_are_timed(case, data):
    pack, ranks, chosen = case
    pairs, lengths, counts = cut(pack, ranks, chosen)
    owners = [data.draw(st.integers(0, ranks - 1)) for _ in lengths]
    made = Ownership.from_owners(Pack(*pack), ranks, lengths[0], owners, chosen)
    scores = []
    for count in counts:
        stages = model.stages_of(len(lengths), count)
        scores.append((*model.evaluate(pairs, lengths, owners, stages, ranks, chosen), stages))
    best = scores[0]
    for score in scores[1:]:
        if score[0] + model.TIE_MS < best[0]:
            best = score
    assert (made.score, made.stages.tolist()) == (best[0], best[2])
    times = zip(made.forward_ms.tolist(), made.backward_ms.tolist(), strict=True)
    assert list(times) == best[1]


def test_owners_are_timed_as_the_reference_planner_times_them():
    """Its own answers, most for two ranges a rank: tests/peer/owner_vectors.py made them."""
    cases = json.loads((Path(__file__).parent / "owners.json").read_text(encoding="utf-8"))["cases"]
    ranges = []
    for case in cases:
        given, want = case["input"], case["output"]
        chosen, pack = settings_of(given["config"]), packed(given)
        owners = given["owners"]
        made = Ownership.from_owners(pack, given["cp"], given["chunk"], owners, chosen)
        times = (made.score, made.forward_ms.tolist(), made.backward_ms.tolist())
        assert times == (want["score"], want["rank_forward_ms"], want["rank_backward_ms"])
        assert made.stages.tolist() == want["wave_assignment"], case["id"]
        ranges.append(made.most_ranges)
    assert len(ranges) >= 150
    assert ranges.count(2) >= len(ranges) // 2


def test_a_long_sequence_keeps_its_even_share():
    pack = Pack([131_072], [-1])
    chosen = OwnershipSettings(owned_token_ms=0.00327)
    today, loose = own(pack, 8, chosen), own(pack, 8, chosen, "fastest")
    even = own(pack, 8, chosen, "fastest", most_tokens=16_384)
    fold = own(pack, 8, chosen, "even_fold")
    assert loose.score < today.score < even.score
    assert (even.most_tokens, fold.most_tokens, fold.most_ranges) == (16_384, 16_384, 2)
    assert fold.score < 1.01 * loose.score
    assert all(made.score < 1.003 * made.bound for made in (loose, even))
    assert not fold.optimal


def test_a_bound_that_cannot_be_proven_is_not_claimed():
    chosen = OwnershipSettings(interval_ms=-0.1)
    pack = Pack([3000, 2000], [-1, 0])
    made = own(pack, 4, chosen, "fastest")
    assert same(made, own(pack, 4, chosen))
    tight = own(pack, 4, chosen, "fastest", most_tokens=1536)
    assert (tight.bound, tight.optimal, tight.most_tokens) == (None, False, 1536)
    free = own(pack, 4, OwnershipSettings(**dict.fromkeys(COSTS, 0.0)), "fastest")
    assert (free.score, free.bound, free.optimal) == (0.0, 0.0, True)


COSTS = [name for name in OwnershipSettings.__match_args__ if name.endswith("_ms")]


@pytest.mark.parametrize("method", [None, "reference", "even_fold"])
def test_only_the_fastest_takes_a_limit(method):
    with pytest.raises(InputError, match='only the method "fastest" takes it'):
        own(Pack([30], [-1]), 2, method=method, most_tokens=20)


def test_a_workload_profile_keeps_no_limit():
    chosen = OwnershipSettings(profile=PROFILE)
    pack = Pack([4000], [-1])
    assert same(own(pack, 2, chosen, "fastest"), own(pack, 2, chosen))
    with pytest.raises(InputError, match="with a workload profile a rank owns"):
        own(pack, 2, chosen, "fastest", most_tokens=2048)


def test_many_ranks_and_chunks_end():
    pack = Pack([200_000, 100_000, 50_000], [-1, 0, -1])
    for ranks in (64, 512):
        made = own(pack, ranks, method="fastest")
        assert made.bound <= made.score <= own(pack, ranks).score
        assert own(pack, ranks, method="even_fold").most_tokens <= made.most_tokens
