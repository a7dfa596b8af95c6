"""Every function and method of the compiled border against every hostile value."""

from __future__ import annotations

from itertools import product
from typing import Any

import calls_core
import numpy as np
import pytest
from hostile import LongLength
from judge import Call, assert_one_line, faults, forms, plain, run, targets

from waveplan import InputError, _core

CALLS = calls_core.CALLS


@pytest.mark.parametrize(("call", "argument"), targets(CALLS))
def test_a_hostile_argument(call: Call, argument: str) -> None:
    found = faults(call, argument)
    assert not found, found


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.covers)
def test_the_good_call_answers(call: Call) -> None:
    function, arguments = call.make()
    run(function, arguments)


@pytest.mark.parametrize(("call", "argument"), targets(CALLS, columns=True))
def test_an_array_in_another_form_is_read_right_or_refused(call: Call, argument: str) -> None:
    function, arguments = call.make()
    right = plain(run(function, arguments))
    refused = 0
    for name, make in forms(call, argument):
        function, arguments = call.make()
        arguments[argument] = make()
        try:
            assert plain(run(function, arguments)) == right, name
        except (TypeError, InputError) as error:
            refused += 1
            assert_one_line(error)
    assert refused  # other types and strides, at least


def members(module: Any) -> set[str]:
    """Functions, classes that can be made, and methods of the border."""
    found = set()
    for name, value in vars(module).items():
        if name.startswith("_") or not callable(value):
            continue
        if not isinstance(value, type):
            found.add(name)
            continue
        if "__new__" in vars(value):
            found.add(name)
        methods = [key for key, part in vars(value).items() if callable(part)]
        methods += [key for key, part in vars(value).items() if isinstance(part, staticmethod)]
        found.update(f"{name}.{key}" for key in methods if not key.startswith("_"))
    return found


def test_every_member_of_the_border_is_attacked() -> None:
    attacked = {call.covers.removeprefix("waveplan._core.") for call in CALLS}
    assert members(_core) == attacked


def test_classes_of_the_border_that_no_call_makes_cannot_be_made() -> None:
    made = {"Pool", "PlanMeasures", "Program", "Engine"}
    for name, value in vars(_core).items():
        if isinstance(value, type) and not name.startswith("_") and name not in made:
            with pytest.raises(TypeError, match=r"No constructor|cannot create"):
                value()


def test_a_length_that_lies_takes_no_memory() -> None:
    """A sequence that claimed 2^40 entries once ended the process."""
    for hostile in (LongLength(), range(2**62)):
        with pytest.raises(TypeError, match="give a list or a tuple"):
            _core.tree_of(hostile)
        with pytest.raises(TypeError, match="give a list or a tuple"):
            _core.Program([], hostile, [], 1.1)


def test_ranks_that_are_not_there_take_no_memory() -> None:
    """2^31 ranks of a row of four segments once ended the process."""
    settings = calls_core.RecurrentSettings()
    arguments = calls_core.LENGTHS, calls_core.PARENTS
    with pytest.raises(InputError, match="assignment has 2147483647 ranks"):
        _core.recurrent(*arguments, 2**31 - 1, 64, calls_core.OWNERS, settings)
    many = np.ones(1 << 15, np.int64), np.full(1 << 15, -1)
    with pytest.raises(InputError, match="32768 segments on 4096 ranks are too many"):
        _core.recurrent(*many, 1 << 12, 1 << 15, np.zeros(1, np.int64), settings)
    for ask in (_core.assign, _core.stage_times):
        with pytest.raises(InputError, match="ranks is 4097: it must be from 1 to 4096"):
            ask(*arguments, 4097, calls_core.SETTINGS)


def test_tokens_that_are_not_there_take_no_memory() -> None:
    """Ids of 2^40 declared tokens once ended the process; so did slices of a long chain."""
    for tokens in (2**24 + 1, 2**40, 2**63 - 1):
        packing = _core.Packing.from_segments(np.array([tokens]), np.array([-1]))
        for ask in (_core.packed_ids, lambda packing: _core.gather_tokens(packing, [])):
            with pytest.raises(InputError, match=rf"{tokens} tokens and no rows: at most 16777216"):
                ask(packing)
        assert len(_core.packed_positions(packing)[0]) == 0
    chain = np.arange(-1, 9_999)
    with pytest.raises(InputError, match="50005000 attention slices: at most 33554432"):
        _core.attention_slices(np.ones(len(chain), np.int64), chain)


def test_profiles_that_no_reading_gives_are_refused() -> None:
    engine = calls_core.engine()
    signature = ([0], [True], [])
    for points in ([(-(2**63), 5)], [(0, 5)], [(5, -1)], [(5, 9), (5, 10)], [(5, 9), (6, 8)]):
        profile = (signature, (points, 0, 1.0, [], 1.0, True))
        with pytest.raises(InputError, match="tokens must rise from 1 on"):
            engine.session(0, 1 << 40, None, [profile])
    for rate in (float("nan"), float("inf"), -1.0):
        profile = (signature, (rate, 9, 1.0, None, None))
        with pytest.raises(InputError, match="must be finite and at least 0"):
            engine.session(0, 1 << 40, None, [profile])


def test_a_search_in_the_wrong_order_answers_or_refuses() -> None:
    """Every order of up to three calls of a search; none may end in a panic."""
    steps: dict[str, Any] = {
        "alone": lambda s: s.alone().required,
        "growth": lambda s: s.growth(),
        "agree": lambda s: s.agree_growth(np.full(s.growth_len(), 3)),
        "agree none": lambda s: s.agree_growth(np.zeros(s.growth_len(), np.int64)),
        "agree huge": lambda s: s.agree_growth(np.full(s.growth_len(), 2**62)),
        "bisection": lambda s: s.bisection(),
        "agree bisection": lambda s: s.agree_bisection(np.full(len(s.bisection()), 3)),
        "refinement": lambda s: s.refinement(),
        "finish": lambda s: s.finish(np.empty(0, np.int64)),
        "finish more": lambda s: s.finish(np.full(4, 7)),
        "less": lambda s: s.set_available(-(2**63)),
        "more": lambda s: s.set_available(2**63 - 1),
        "quote": lambda s: s.quote(4, 2),
    }
    engine = calls_core.engine()
    right = engine.session(0, 24 << 30, None, []).alone().required
    for order in product(steps, repeat=3):
        session = engine.session(0, 24 << 30, None, [])
        for step in order:
            try:
                steps[step](session)
            except InputError as error:
                assert_one_line(error)
        assert isinstance(session.rejected, int)
        assert isinstance(session.probes, list)
    assert engine.session(0, 24 << 30, None, []).alone().required == right
