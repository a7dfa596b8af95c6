"""`balance`: never more parts than packers make, the cap held, no part of more work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from conftest import data_folder
from hypothesis import given
from hypothesis import strategies as st
from slow.balance import differencing, falling, first_fit

from waveplan import Balance, InputError, balance


def sums(parts: Sequence[Sequence[int]], of: Sequence[int]) -> list[int]:
    return [sum(of[i] for i in part) for part in parts]


def check(made: Balance, lengths: Sequence[int], cap: int | None) -> None:
    """Each item once; the cap is kept but by an oversized item, which is alone."""
    assert sorted(i for part in made.parts for i in part) == list(range(len(lengths)))
    for part, total in zip(made.parts, sums(made.parts, lengths), strict=True):
        assert len(part)
        if cap is not None and total > cap:
            assert part.tolist() == [i for i in made.oversized if i == part[0]]
    assert made.bound <= made.largest
    assert made.fewest <= len(made.parts)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(10, 100),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_any_lengths(lengths: list[int], cap: int, parts: int, multiple: int) -> None:
    work = [24 * n + n * n for n in lengths]
    orders = (range(len(lengths)), falling(lengths))
    theirs = min(len(first_fit(lengths, cap, order)) for order in orders)
    try:
        made = balance(lengths, work, cap, min(parts, len(lengths)), multiple)
    except InputError:
        assert -(-max(parts, theirs) // multiple) * multiple > len(lengths)
        return
    check(made, lengths, cap)
    assert len(made.parts) <= -(-max(parts, theirs) // multiple) * multiple
    assert made.largest == max(sums(made.parts, work))
    dealt = differencing(work, len(made.parts))
    if not len(made.oversized) and max(sums(dealt, lengths)) <= cap:
        assert made.largest <= max(sums(dealt, work))


@given(st.lists(st.integers(0, 10**6), min_size=6, max_size=30), st.integers(1, 5))
def test_without_a_cap_it_is_at_most_differencing(values: list[int], parts: int) -> None:
    made = balance(values, parts=parts)
    check(made, values, None)
    assert len(made.parts) == parts
    assert made.largest <= max(sums(differencing(values, parts), values))
    even = balance(values[: len(values) // parts * parts], parts=parts, equal_size=True)
    assert {len(part) for part in even.parts} == {len(values) // parts}


@pytest.mark.parametrize(
    ("corpus", "cap"),
    [("tau_retail", 65536), ("tau_turns", 131072), ("coding", 98304), ("math_grpo", 16384)],
)
def test_corpora(corpus: str, cap: int) -> None:
    lengths = np.diff(np.load(data_folder() / f"{corpus}_open.npz")["offsets"]).tolist()
    work = [24576 * n + n * n for n in lengths]
    made = balance(lengths, work, cap)
    check(made, lengths, cap)
    for order in (range(len(lengths)), falling(lengths)):
        assert len(made.parts) <= len(first_fit(lengths, cap, order))
    theirs = differencing(work, len(made.parts))
    if max(sums(theirs, lengths)) <= cap:
        assert made.largest <= max(sums(theirs, work))


def test_hostile_lengths_end() -> None:
    ones = np.ones(100_000, np.int64)
    assert len(balance(ones, cap=7).parts) == 14_286
    assert balance(ones, parts=3).largest == 33_334
    comb = np.arange(1, 20_001)
    made = balance(comb, comb**2, cap=40_000, multiple_of=8)
    assert len(made.parts) % 8 == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "parts is not given"),
        ({"parts": 4}, "parts is 4 for 3 lengths"),
        ({"parts": 0}, "parts is 0"),
        ({"cap": 0}, "cap is 0"),
        ({"cap": 5, "multiple_of": 0}, "multiple_of is 0"),
        ({"cap": 5, "multiple_of": 4}, "4 parts or more, a multiple of 4"),
        ({"parts": 2, "equal_size": True}, "as many in each part"),
        ({"parts": 2, "equal_size": 1}, "equal_size"),
        ({"parts": 2, "work": [1, 2]}, "work has 2 entries for 3 lengths"),
        ({"parts": 2, "work": [1, -2, 3]}, "work[1] is -2"),
        ({"parts": 2, "work": [2**62, 2**62, 3]}, "the work of all items is too large"),
        ({"parts": 2, "lengths": [1, 2, 0.5]}, "lengths"),
    ],
)
def test_refusals(arguments: dict[str, object], words: str) -> None:
    with pytest.raises((InputError, TypeError), match=words.replace("[", r"\[")):
        balance(**({"lengths": [4, 5, 6]} | arguments))  # type: ignore[arg-type]
