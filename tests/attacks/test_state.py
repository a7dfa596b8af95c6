"""Attacks on what lives between calls: planners, waves, ranks, copies, aliases."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import calls_python
import numpy as np
import pytest
from calls_python import HYBRID, Lies, planner, requests, waves
from hostile import CallersError, Raises
from judge import Call, assert_one_line, fault

import waveplan
from waveplan import InputError, Planner, RankError, Requests, Rows, Topology, Training, WaveRefused
from waveplan.ranks import Ranks


def answers(made: Planner) -> list[Any]:
    """What a planner says of the usual pool."""
    return [wave.to_dict() for wave in made.waves(requests())]


PEAKS = [-1, float("nan"), float("inf"), 1.5, True, "1", 2**62, 10**30, [1], Raises()]


@pytest.mark.parametrize("peak", PEAKS, ids=lambda value: type(value).__name__)
def test_a_refused_observation_changes_nothing(peak: Any) -> None:
    made = planner()
    wave = made.wave(requests())
    made.widest = None
    right = answers(planner())
    refusals = (InputError, CallersError)
    with pytest.raises(refusals) as caught:
        made.observe(wave, peak)
    assert_one_line(caught.value)
    with pytest.raises(refusals):
        made.observe(wave, 1 << 30, peak)
    if peak is not True:
        with pytest.raises(refusals):
            made.observe(wave, 1 << 30, whole=peak)
    assert not len(made.profiles)
    assert answers(made) == right


def test_an_observation_of_another_planners_wave_is_kept_by_its_own_signature() -> None:
    wide, narrow = planner(), Planner(HYBRID, Topology(), Training(), "24GiB")
    wave = wide.wave(requests())
    narrow.observe(wave, 1 << 40)
    assert answers(narrow) == answers(Planner(HYBRID, Topology(), Training(), "24GiB"))


def test_a_wave_observed_twice_counts_as_two_readings() -> None:
    made = planner()
    wave = made.wave(requests())
    made.observe(wave, 1 << 30)
    once = made.profiles.to_dict()
    made.observe(wave, 1 << 30)
    twice = made.profiles.to_dict()
    assert len(once["profiles"]) == len(twice["profiles"]) == 1
    assert made.wave(requests()).required >= 1 << 30


def test_planning_after_the_end_is_refused_and_changes_nothing() -> None:
    run = waves()
    found = list(run)
    assert found
    for _ in range(3):
        with pytest.raises(InputError, match="nothing is left to plan") as caught:
            run.plan_next()
        assert_one_line(caught.value)
        assert list(run) == []
        run.prefetch()
    assert run.start == run.items


def test_observing_while_iterating_and_many_waves_of_one_pool() -> None:
    made, pool = planner(), requests()
    first, second = made.waves(pool), made.waves(pool, start=1)
    for wave in first:
        made.observe(wave, wave.required // 2)
        for other in second:
            made.observe(other, 0)
        made.limit = made.limit
    assert made.wave(pool).width >= 1


def test_a_planner_that_refused_answers_as_before() -> None:
    made, right = planner(), answers(planner())
    hostile = [
        lambda: made.wave([[1], []]),
        lambda: made.wave([[-5]]),
        lambda: made.wave([[2**63]]),
        lambda: made.wave([]),
        lambda: made.wave(requests(), start=4),
        lambda: made.wave(requests(), start=2**63),
        lambda: made.plan(requests(), limit=-1),
        lambda: made.plan(requests(), limit=2**63),
        lambda: made.waves(requests(), on_refusal="never"),
        lambda: made.prefetch([[1]]),
        lambda: made.prefetch(requests(), start=-1),
        lambda: setattr(made, "limit", -1),
        lambda: setattr(made, "limit", 2**63),
        lambda: made.like(topology=Topology(cp=1 << 20), budget=made.budget),
    ]
    for attack in hostile:
        with pytest.raises(InputError) as caught:
            attack()
        assert_one_line(caught.value)
        assert answers(made) == right
        made.widest = None


@pytest.mark.parametrize("free", [1, 2**20, 2**53 + 1, 2**62, 2**63 - 1025, 2**63 - 1])
@pytest.mark.parametrize("margin", [None, 0, 0.0, 1e-9, 10])
def test_budgets_up_to_63_bits(free: int, margin: float | None) -> None:
    """A float once rounded the largest budget up, past what 64 bits hold."""
    made = Planner(HYBRID, Topology(), Training(), free, margin=margin)
    assert 0 <= made.limit <= free
    if free > 2**40:
        assert made.wave(requests()).limit == made.limit
    else:
        with pytest.raises(WaveRefused) as caught:
            made.wave(requests())
        assert_one_line(caught.value)
        assert caught.value.limit == made.limit


@pytest.mark.parametrize(
    "budget", [0, -1, 2**63, 10**30, float("nan"), True, "0", "-1GiB", "9" * 9999]
)
def test_budgets_that_are_none(budget: Any) -> None:
    with pytest.raises(InputError) as caught:
        Planner(HYBRID, Topology(), Training(), budget)
    assert_one_line(caught.value)


@pytest.mark.parametrize("ranks", [4096, 4097, 1 << 16, 1 << 20, 2**31, 2**63])
@pytest.mark.parametrize("name", ["dp", "cp", "tp", "pp", "ep"])
def test_a_million_ranks(name: str, ranks: int) -> None:
    """An answer or one line, whatever the arrangement."""
    call = Call("waveplan.Topology", lambda: (_planned, {"name": name, "ranks": ranks}))
    assert not fault(call, *call.make())


def test_tokens_declared_but_absent() -> None:
    tokens = np.arange(8)
    for offsets in (
        [0, 2**31],
        [0, 2**63 - 1],
        [0, 4, 2**62, 8],
        [0, -1, 8],
        [-(2**63), 8],
        [0],
        [],
        [8],
        [0, 9, 8],
        [0, 4],
        [0, 8, 8, 4],
    ):
        with pytest.raises(InputError, match="offsets") as caught:
            Rows(tokens, offsets)
        assert_one_line(caught.value)


def test_tokens_at_the_ends_of_int64() -> None:
    ends = np.array([2**63 - 1, -(2**63), 0, -1, 2**63 - 1, -(2**63)])
    tree = waveplan.tree(Rows(ends, [0, 3, 6]))
    assert tree.packed() == 6
    shared = waveplan.pack(Rows(np.array([2**63 - 1] * 4), [0, 2, 4]))
    assert shared.packed_tokens == 2
    with pytest.raises(InputError, match="token ids must be at least 0"):
        Requests(Rows(ends, [0, 3, 6]))
    assert len(Requests(Rows(np.full(4, 2**63 - 1), [0, 2, 4]))) == 2


def test_lengths_whose_sums_and_products_overflow() -> None:
    most = 2**62
    for lengths in ([most, most], [2**63 - 1, 1], [2**63 - 1] * 3):
        with pytest.raises(InputError, match="too large"):
            waveplan.Packing.from_segments(lengths, [-1] * len(lengths))
    for tokens in (most, 2**63 - 1, 2**40, 2**31):
        packed = waveplan.Packing.from_segments([tokens], [-1])
        assert packed.packed_tokens == tokens
        for ask in (
            lambda packed=packed: waveplan.assign(packed, 8),
            lambda packed=packed: waveplan.recurrent(packed, waveplan.assign(packed, 8)),
            lambda packed=packed: waveplan.gdn_schedule(packed),
            lambda packed=packed: waveplan.attention_slices(packed),
        ):
            call = Call("waveplan.assign", lambda ask=ask: (ask, {}))
            assert not fault(call, *call.make())
        for name in IDS:
            with pytest.raises(InputError, match=f"{tokens} tokens and no rows: {name}") as caught:
                getattr(packed, name)
            assert_one_line(caught.value)


IDS = ("group_ids", "parent_ids", "position_ids")


def test_ids_of_declared_tokens_up_to_the_bound() -> None:
    most = 1 << 24
    packed = waveplan.Packing.from_segments([most - 1, 1], [-1, 0])
    assert [getattr(packed, name)[-1] for name in IDS] == [2, 1, most - 1]
    ids = np.ones(most + 5, np.int64)
    read = waveplan.Packing.from_ids(ids, ids)
    assert len(read.position_ids) == most + 5, "tokens that were there may be asked for"


def repeats(*shape: int) -> np.ndarray:
    """An array that claims so many entries and holds one."""
    return np.broadcast_to(np.int64(1), shape)


@pytest.mark.parametrize("count", [2**24 + 1, 2**31, 2**40, 2**54])
def test_arrays_that_repeat_one_entry_take_no_memory(count: int) -> None:
    """A view of eight bytes that claims 2^40 entries."""
    long, wide = repeats(count), repeats(4, count)
    made = planner()
    asks: dict[str, Any] = {
        "tokens": lambda: Rows(long, [0, count]),
        "offsets": lambda: Rows([], long),
        "rows": lambda: Rows.from_any(repeats(2, count // 2 + 1)),
        "row 0": lambda: Rows.from_any([long]),
        "indices": lambda: calls_python.rows().take(long),
        r"targets\[0\]": lambda: Requests([[1, 2, 3, 4]], targets=[wide]),
        "items": lambda: Requests([[1, 2]], items=long),
        "lengths": lambda: waveplan.Packing.from_segments(long, long),
        "group_ids": lambda: waveplan.Packing.from_ids(long, long),
        "groups": lambda: waveplan.pricing.Measures(
            calls_python.measures().plan,
            repeats(count, calls_python.measures().groups.shape[1]),
        ),
    }
    for name, ask in asks.items():
        with pytest.raises(InputError, match=f"^{name} has shape .*may have 16777216 entries"):
            ask()
    for ask in (
        lambda: calls_python.made_tree().restrict(long),
        lambda: requests().groups(long),
        lambda: made.signature_of(requests(), long),
    ):
        with pytest.raises(InputError, match="by repeating what it holds") as caught:
            ask()
        assert_one_line(caught.value)
    assert Rows(repeats(9), [0, 9]).tokens.tolist() == [1] * 9


def test_empty_rows_without_number_take_no_memory() -> None:
    with pytest.raises(InputError, match="at most 16777216 rows may be empty"):
        Rows.from_any(np.empty((2**40, 0), np.int64))
    assert len(Rows.from_any(np.empty((7, 0), np.int64))) == 7


def test_rows_listed_more_often_than_memory_holds() -> None:
    row = np.zeros(1 << 28, np.int64)  # never written, so it takes no memory either
    with pytest.raises(InputError, match="the rows have 70368744177664 tokens: more than fit"):
        Rows.from_any([row] * (1 << 18))
    with pytest.raises(InputError, match="the rows taken have 70368744177664 tokens: more than"):
        Rows(row, [0, len(row)]).take([0] * (1 << 18))


def test_a_pipeline_of_very_many_stages_is_priced_once_for_each_kind() -> None:
    """Each of 65,536 stages was priced alone, which took hours."""
    sizes = calls_python.fields(calls_python.DENSE) | {"layer_kinds": (), "moe_layers": ()}
    for stages in (2, 3, 1 << 16):
        model = waveplan.Model(**(sizes | {"layers": stages}))
        found = waveplan.pricing.resident.resident(model, Topology(pp=stages), Training())
        if stages == 2:
            ends = found
        assert (found.stage, found.total) == (stages - 1, ends.total)


def test_one_array_as_both_arguments() -> None:
    zeros = np.zeros(1, np.int64)
    assert len(Rows(zeros[:0], zeros)) == 0
    offsets = np.array([0, 1, 3])
    rows = Rows(offsets, offsets)
    assert rows.tokens.tolist() == rows.offsets.tolist() == [0, 1, 3]
    parents = np.array([-1])
    with pytest.raises(InputError, match=r"lengths\[0\] is -1"):
        waveplan.Packing.from_segments(parents, parents)
    ids = np.array([1, 1, 2])
    assert waveplan.Packing.from_ids(ids, ids).parents.tolist() == [-1, -1]


def test_an_array_changed_after_the_call_changes_no_offsets() -> None:
    offsets = np.array([0, 2, 4])
    rows = Rows(np.arange(4), offsets)
    offsets[:] = 2**62
    assert rows.offsets.tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="read-only"):
        rows.tokens[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        rows.offsets[0] = 5


def _public_values() -> dict[str, Any]:
    made = planner()
    wave = made.wave(requests())
    return {
        "Rows": calls_python.rows(),
        "Model": HYBRID,
        "Topology": Topology(cp=2),
        "Training": Training(),
        "Budget": waveplan.Budget(device="80GiB"),
        "Scoring": made.scoring,
        "AssignSettings": waveplan.AssignSettings(),
        "RecurrentSettings": waveplan.RecurrentSettings(),
        "Profiles": calls_python.known(),
        "Alone": waveplan.Alone(),
        "Job": calls_python.job(),
        "Assignment": calls_python.assigned(),
        "Recurrent": calls_python.placed(),
        "Tree": calls_python.made_tree(),
        "Packing": calls_python.packed(),
        "Requests": requests(),
        "Layout": waveplan.choose_layout(calls_python.made_tree(), made.scoring),
        "Planner": made,
        "Waves": made.waves(requests()),
        "Wave": wave,
        "Plan": wave.plan,
        "Price": wave.price,
    }


@pytest.mark.parametrize("name", list(_public_values()))
def test_a_copy_equals_the_original_or_is_refused_in_one_line(name: str) -> None:
    value = _public_values()[name]
    ways = (copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given)))
    for way in ways:
        refused, made = None, None
        try:
            made = way(value)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            refused = error
        if refused is None:
            assert type(made) is type(value)
        else:
            assert_one_line(refused)
            assert "pickle" in str(refused)


def test_errors_cross_processes() -> None:
    """What a worker raises must be readable where it arrives."""
    for error in (
        InputError("x"),
        RankError("x", rank=3, lost=True),
        waveplan.UnpricedError("x"),
        waveplan.InternalError("x"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        3,
        [],
        np.zeros(3, np.int64),
        np.zeros(26),
        np.full(26, 2**63 - 1),
        np.full(26, -(2**63)),
        np.zeros(26, np.int64),
        np.full(26, 1),
        np.full(26, 5),
        "same",
        np.zeros((2, 13), np.int64),
        np.ma.zeros(26, np.int64),
    ],
    ids=lambda answer: f"{type(answer).__name__}-{np.shape(answer)}",
)
def test_an_agreement_that_lies_is_refused_on_this_rank(answer: Any) -> None:
    made = planner(agreement=Lies(answer, size=2))
    with pytest.raises(RankError) as caught:
        made.wave(requests())
    assert_one_line(caught.value)
    with pytest.raises(RankError), waveplan.in_step(Lies(answer, size=2)):
        raise_from_another_rank(made)


def _planned(name: str, ranks: int) -> Any:
    return Planner(HYBRID, Topology(**{name: ranks}), Training(), "24GiB").wave(requests())


def raise_from_another_rank(made: Planner) -> None:
    made.wave(requests())


@pytest.mark.parametrize("size", [0, -1, 2**62, 10**30, None, 1.5, "2", True])
def test_an_agreement_of_no_size_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match=r"agreement\.size") as caught:
        planner(agreement=Lies("same", size=size))
    assert_one_line(caught.value)


def test_tables_of_another_length_are_refused() -> None:
    ranks = Ranks(Lies(np.zeros(3, np.int64), size=2))
    with pytest.raises(RankError, match="all_min answered"):
        ranks.table(lambda: np.zeros(5, np.int64), 5)
    with pytest.raises(RankError, match="all_max answered"):
        ranks.meet(waveplan.ranks.Step.WAVE, [1, 2])
    ranks.leave()
    ranks.fail(InputError("x"))
    with pytest.raises(InputError), ranks.telling():
        raise InputError("own")
    with pytest.raises(RankError):
        ranks.differ("they differ")
