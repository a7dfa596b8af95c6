"""The parser of packed ids and the attention slices, against their slow twins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow import ownership as slow_assign

from waveplan import Packing, attention_slices
from waveplan.errors import InputError


def parse(group_ids, parent_ids):
    packing = Packing.from_ids(group_ids, parent_ids)
    return packing.lengths.tolist(), packing.parents.tolist()


def spread(runs):
    """Ids per token of (group, parent, length) runs."""
    groups = [group for group, _, length in runs for _ in range(length)]
    parents = [parent for _, parent, length in runs for _ in range(length)]
    return groups, parents


@st.composite
def ids(draw):
    """Mostly well-formed rows, with any one fault now and then."""
    n = draw(st.integers(0, 7))
    names = draw(st.permutations(range(-3, 9)).map(lambda p: [g for g in p if g != -1][:n]))
    runs = []
    for i, name in enumerate(names):
        known = [name, *names[:i]]
        usual = st.sampled_from(known)
        parent = draw(usual if draw(st.integers(0, 5)) else st.integers(-3, 9))
        runs.append((name, parent, draw(st.integers(1, 3))))
    if runs and draw(st.booleans()):
        runs[0] = (runs[0][0], -1, runs[0][2])
    if runs and not draw(st.integers(0, 3)):
        runs.append((*draw(st.sampled_from(runs))[:2], 2))
    if draw(st.booleans()):
        runs.append((-1, draw(st.integers(-1, 1)), draw(st.integers(1, 3))))
    groups, parents = spread(runs)
    if groups and not draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(groups) - 1))
        which = groups if draw(st.booleans()) else parents
        which[at] = draw(st.integers(-1, 8))
    return groups, parents


@given(ids())
def test_parses_and_refuses_as_the_slow_parser(row):
    try:
        want = slow_assign.parse(*row)
    except slow_assign.ParseError:
        with pytest.raises(InputError):
            parse(*row)
        return
    assert parse(*row) == want


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([(1, 1, 2), (-1, -1, 1), (2, 1, 1)], "padding must be a tail"),
        ([(1, 1, 2), (2, 9, 1), (2, 8, 1), (1, 1, 1)], "a run has one parent"),
        ([(1, 1, 2), (2, 9, 1), (1, 1, 1)], "group id 1 starts again at 3"),
        ([(1, 1, 2), (2, 9, 1)], r"parent_ids\[2\] is 9"),
        ([(1, 1, 2), (2, -1, 1)], r"parent_ids\[2\] is -1"),
        ([(1, 2, 2), (2, 2, 1)], r"parent_ids\[0\] is 2"),
    ],
)
def test_refuses_in_this_order(runs, message):
    with pytest.raises(InputError, match=message):
        parse(*spread(runs))


def test_refuses_unequal_lengths():
    with pytest.raises(InputError, match="parent_ids has 1 entries for 2"):
        parse([1, 1], [1])


def test_odd_rows():
    assert parse(*spread([(-1, -1, 4)])) == ([], [])
    assert parse([], []) == ([], [])
    # The run at position 0 may be a root through parent -1.
    assert parse(*spread([(0, -1, 2), (2, 0, 3)])) == ([2, 3], [-1, 0])
    # A last run that repeats an earlier pair with a negative parent is padding.
    assert parse(*spread([(0, -1, 2), (2, 0, 3), (0, -1, 4)])) == ([2, 3], [-1, 0])
    assert parse(*spread([(0, -1, 2), (2, 0, 3), (0, -1, 4), (-1, 7, 1)])) == ([2, 3], [-1, 0])


@given(ids())
def test_slices(row):
    try:
        lengths, parents = slow_assign.parse(*row)
    except slow_assign.ParseError:
        return
    queries, keys = attention_slices(Packing.from_segments(lengths, parents))
    assert list(zip(queries.tolist(), keys.tolist(), strict=True)) == slow_assign.slices(parents)
