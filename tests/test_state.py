"""State between calls: planners, waves, copies and agreements after an error, as before it."""

from __future__ import annotations

import copy
import pickle
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import waveplan
from waveplan import (
    Alone,
    Budget,
    InputError,
    Model,
    Planner,
    RankError,
    Requests,
    Sequences,
    Topology,
    Training,
    WaveRefused,
)

MODEL = Model(
    hidden=64, layers=4, vocab=1000, heads=4, kv_groups=2, head_dim=16, experts=8, topk=2,
    expert_ffn=32, shared_ffn=32, layer_kinds=("gdn", "gdn", "gdn", "attention"),
    gdn_key_heads=4, gdn_value_heads=8, gdn_key_dim=16, gdn_value_dim=16, gdn_conv=4,
)  # fmt: skip
SEQUENCES = [[5, 6, 7, 8], [5, 6, 9], [5, 6, 7, 8], [2, 2, 2]]


def planner(**options: Any) -> Planner:
    return Planner(MODEL, Topology(cp=2), Training(), "24GiB", **options)


def answers(made: Planner) -> list[Any]:
    """A planner's answers for the usual pool."""
    return [wave.to_dict() for wave in made.waves(Requests(SEQUENCES))]


def test_a_refused_call_changes_nothing() -> None:
    made, pool, right = planner(), Requests(SEQUENCES), answers(planner())
    wave = made.wave(pool)
    for attack in (
        lambda: made.wave([[1], []]),
        lambda: made.wave(pool, start=4),
        lambda: made.plan(pool, available=2**63),
        lambda: made.waves(pool, on_refusal="never"),
        lambda: made.observe(wave, -1),
        lambda: made.observe(wave, float("nan")),
        lambda: made.observe(wave, 1 << 30, 2**63),
        lambda: made.observe(wave, 1 << 30, whole=1),
        lambda: setattr(made, "available", -1),
        lambda: made.like(topology=Topology(cp=1 << 20), budget=made.budget),
    ):
        with pytest.raises(InputError):
            attack()
        assert not len(made.profiles)
        assert answers(made) == right


def test_planning_after_the_end_is_refused_and_changes_nothing() -> None:
    run = planner().waves(Requests(SEQUENCES))
    assert list(run)
    for _ in range(2):
        with pytest.raises(InputError, match="nothing is left to plan"):
            run.plan_next()
        assert list(run) == []


def test_what_other_planners_and_runs_observe_counts_where_it_was_observed() -> None:
    wide, narrow = planner(), Planner(MODEL, Topology(), Training(), "24GiB")
    right = answers(narrow)
    narrow.observe(wide.wave(Requests(SEQUENCES)), 1 << 34)  # of another signature
    assert answers(narrow) == right
    pool = Requests(SEQUENCES)
    for wave in wide.waves(pool):
        wide.observe(wave, wave.required // 2)
        for other in wide.waves(pool, start=1):
            wide.observe(other, 0)
    wide.observe(wide.wave(pool), 1 << 30)
    assert wide.wave(pool).required >= 1 << 30


@pytest.mark.parametrize("free", [1, 2**20, 2**53 + 1, 2**62, 2**63 - 1025, 2**63 - 1])
@pytest.mark.parametrize("margin", [None, 0, 1e-9, 0.9])
def test_budgets_up_to_63_bits(free: int, margin: float | None) -> None:
    """A float once rounded the largest budget up, past what 64 bits hold."""
    made = Planner(MODEL, Topology(), Training(), free, margin=margin)
    pool = Requests(SEQUENCES)
    kept = made.kept(free, made.doubtful(pool))
    assert 0 <= kept <= made.available == free
    if free > 2**40:
        assert made.wave(pool).available == free - kept
    else:
        with pytest.raises(WaveRefused) as caught:
            made.wave(pool)
        assert caught.value.available == free - kept


def test_token_ids_at_the_ends_of_64_bits() -> None:
    ends = np.array([2**63 - 1, -(2**63), 0, -1, 2**63 - 1, -(2**63)])
    assert waveplan.tree(Sequences(ends, [0, 3, 6])).packed() == 6
    assert waveplan.pack(Sequences(np.array([2**63 - 1] * 4), [0, 2, 4])).packed_tokens == 2
    assert len(Requests(Sequences(np.full(4, 2**63 - 1), [0, 2, 4]))) == 2


@pytest.mark.parametrize("tokens", [2**31, 2**40, 2**62, 2**63 - 1])
def test_declared_lengths_up_to_63_bits_end_in_an_answer_or_one_line(tokens: int) -> None:
    packed = waveplan.Packing.from_segments([tokens], [-1])
    assert packed.packed_tokens == tokens
    for ask in (
        lambda: waveplan.gdn(packed, waveplan.own(packed, 8)).rank_tokens.sum() == tokens,
        lambda: waveplan.gdn_schedule(packed).packed_tokens == tokens,
        lambda: len(waveplan.attention_slices(packed)[0]) == 1,
    ):
        with suppress(InputError):
            assert ask()
    for ids in ("group_ids", "parent_ids", "position_ids"):
        with pytest.raises(InputError, match=f"{tokens} tokens and no sequences"):
            getattr(packed, ids)


def test_an_array_changed_after_the_call_changes_nothing() -> None:
    offsets = np.array([0, 2, 4])
    sequences = Sequences(np.arange(4), offsets)
    offsets[:] = 2**62
    assert sequences.offsets.tolist() == [0, 2, 4]
    for array in (sequences.tokens, sequences.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    both = np.array([0, 1, 3])
    assert Sequences(both, both).tokens.tolist() == [0, 1, 3]


def _values() -> dict[str, Any]:
    made, pool = planner(), Requests(SEQUENCES)
    tree, packed, wave = waveplan.tree(SEQUENCES), waveplan.pack(SEQUENCES), made.wave(pool)
    owned = waveplan.own(packed, 2)
    settings = [waveplan.OwnershipSettings(), waveplan.GdnSettings(), made.scoring]
    facts = [MODEL, Topology(cp=2), Training(), Budget(device="80GiB"), Alone()]
    results = [tree, packed, waveplan.choose_layout(tree, made.scoring), owned]
    results += [waveplan.gdn(packed, owned), wave, wave.plan, wave.price]
    values = [
        *facts,
        *settings,
        *results,
        Sequences.from_any(SEQUENCES),
        pool,
        made,
        made.waves(pool),
    ]
    return {type(value).__name__: value for value in values}


def described(value: Any) -> str:
    return re.sub(r" at 0x\w+", "", repr(value))


@pytest.mark.parametrize("name", list(_values()))
def test_a_copy_equals_the_original_or_is_refused_in_one_line(name: str) -> None:
    value = _values()[name]
    for way in (copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))):
        try:
            made = way(value)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            text = str(error)
        else:
            assert type(made) is type(value)
            assert described(made) == described(value)
            continue
        assert "pickle" in text
        assert "\n" not in text


def test_errors_cross_processes() -> None:
    """An error of a worker is readable where it arrives."""
    errors = [InputError("x"), waveplan.DoubtfulError("x"), waveplan.InternalError("x")]
    for error in (*errors, RankError("x", rank=3, lost=True)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


class Lies:
    """Another process's answer is whatever an attack says."""

    def __init__(self, answer: Any, size: Any = 2) -> None:
        self.answer, self.size, self.rank, self.dp_rank = answer, size, 0, 0

    def all_min(self, _: Any) -> Any:
        return self.answer

    all_max = all_min


@pytest.mark.parametrize("size", [0, 3, 5, 26])
def test_an_agreement_that_lies_is_refused_on_this_rank(size: int) -> None:
    answers = [np.full(size, value) for value in (0, 1, 5, 2**63 - 1, -(2**63))]
    for answer in (None, 3, [], "same", np.zeros(size), np.zeros((2, size), np.int64), *answers):
        with pytest.raises(RankError) as caught:
            planner(agreement=Lies(answer)).wave(Requests(SEQUENCES))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, -1, 2**62, None, 1.5, "2", True])
def test_an_agreement_of_no_size_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match=r"agreement\.size"):
        planner(agreement=Lies(None, size=size))
