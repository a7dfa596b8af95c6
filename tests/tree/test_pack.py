"""Packing: against its definition, invariants, hostile options."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow import pack as slow_pack
from test_golden_pack import segments_of

import waveplan
from waveplan import Packing

tokens = st.integers(-1, 2)
some_rows = st.lists(st.lists(tokens, max_size=9), max_size=12)


@st.composite
def options(draw):
    """Sequences and any options."""
    sequences = draw(some_rows)
    limits = st.lists(st.integers(-2, 11), min_size=len(sequences), max_size=len(sequences))
    return sequences, {
        "max_depth": draw(st.none() | st.integers(0, len(sequences) + 2)),
        "min_shared": draw(st.integers(0, 5)),
        "shareable": draw(st.none() | limits),
    }


@given(options())
def test_packing_follows_the_definition(case):
    sequences, given_options = case
    packing = waveplan.pack(sequences, **given_options)
    wanted = slow_pack.pack(sequences, **given_options)
    assert segments_of(packing) == [list(segment) for segment in wanted]
    assert packing.packed_tokens == sum(segment[2] - segment[1] for segment in wanted)


@given(options())
def test_every_token_is_stored_and_every_row_is_covered_once(case):
    sequences, given_options = case
    packing = waveplan.pack(sequences, **given_options)
    stored = {}
    for i, sequence in enumerate(sequences):
        positions = packing.positions(i).tolist()
        assert len(positions) == len(sequence)
        assert len(set(positions)) == len(positions)
        for at, token in zip(positions, sequence, strict=True):
            assert stored.setdefault(at, token) == token
        np.testing.assert_array_equal(packing.position_ids[positions], np.arange(len(sequence)))
        path = packing.path(i)
        assert all(i in packing.members[s] for s in path)
        assert packing.last[i] == (path[-1] if len(path) else -1)
    assert sorted(stored) == list(range(packing.packed_tokens))


@given(options())
def test_per_token_ids(case):
    sequences, given_options = case
    packing = waveplan.pack(sequences, **given_options)
    group, parent = packing.group_ids, packing.parent_ids
    assert len(group) == len(parent) == len(packing.position_ids) == packing.packed_tokens
    for s in range(len(packing)):
        start = packing.packed_starts[s]
        run = slice(start, start + packing.lengths[s])
        assert set(group[run]) == {s + 1}
        above = packing.parents[s]
        assert set(parent[run]) == {s + 1 if above < 0 else above + 1}


@given(some_rows)
def test_sharing_is_monotone_in_rows_and_depth(sequences):
    full = [waveplan.pack(sequences[:n]).packed_tokens for n in range(len(sequences) + 1)]
    assert full == sorted(full)
    by_depth = [
        waveplan.pack(sequences, max_depth=d).packed_tokens for d in range(len(sequences) + 1)
    ]
    assert by_depth == sorted(by_depth, reverse=True)
    assert by_depth[0] == sum(map(len, sequences))
    assert by_depth[-1] == full[-1]


def test_nothing_to_pack():
    for sequences in ([], [[]], [[], []]):
        packing = waveplan.pack(sequences)
        assert (len(packing), packing.packed_tokens, packing.sequence_count) == (
            0,
            0,
            len(sequences),
        )
        assert len(packing.members) == 0
        assert packing.group_ids.tolist() == packing.parent_ids.tolist() == []
    assert waveplan.pack([[], [5]]).positions(0).tolist() == []


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"max_depth": -1}, "max_depth is -1"),
        ({"max_depth": -(2**80)}, "max_depth is -"),
        ({"min_shared": -1}, "min_shared is -1"),
        ({"min_shared": 1.5}, "min_shared must be an integer, not 1.5"),
        ({"max_depth": "all"}, "max_depth must be an integer, not 'all'"),
        ({"shareable": [1]}, "shareable has 1 entries for 2 sequences"),
        ({"shareable": [1.0, 2.0]}, r"shareable\[0\] is 1.0"),
        ({"shareable": [True, False]}, r"shareable\[0\] is True"),
        ({"shareable": [[1], [2]]}, r"shareable has shape \(2, 1\)"),
        ({"shareable": [1, 2**63]}, r"shareable\[1\] is 9223372036854775808"),
        ({"shareable": 3}, r"shareable has shape \(\)"),
    ],
)
def test_refused_options(given_options, message):
    with pytest.raises(waveplan.InputError, match=message) as refused:
        waveplan.pack([[1, 2], [1, 3]], **given_options)
    assert "\n" not in str(refused.value)


def test_enormous_options_mean_no_limit():
    sequences = [[1, 2], [1, 3]]
    for given_options in (
        {"max_depth": 2**63 - 1},
        {"shareable": [2**63 - 1, 2**62]},
        {"min_shared": 0},
    ):
        assert waveplan.pack(sequences, **given_options).packed_tokens == 3
    assert waveplan.pack(sequences, min_shared=2**62).packed_tokens == 4
    assert waveplan.pack(sequences, shareable=[-(2**63), 2]).packed_tokens == 4


@pytest.mark.parametrize("sequence", [2, -1, 2**63 - 1])
def test_positions_of_a_sequence_that_does_not_exist(sequence):
    packing = waveplan.pack([[1, 2], [1, 3]])
    for ask in (packing.positions, packing.path):
        with pytest.raises(waveplan.InputError, match=r"sequence is"):
            ask(sequence)


def test_made_elsewhere():
    packing = Packing.from_segments([4, 2, 3, 5], [-1, 0, 1, -1])
    assert packing.packed_tokens == 14
    assert packing.packed_starts.tolist() == [0, 4, 6, 9]
    assert packing.sequence_starts.tolist() == [0, 4, 6, 0]
    assert packing.sequence_count == 0
    assert [list(m) for m in packing.members] == [[], [], [], []]
    assert packing.group_ids.tolist() == [1] * 4 + [2] * 2 + [3] * 3 + [4] * 5
    assert packing.parent_ids.tolist() == [1] * 4 + [1] * 2 + [2] * 3 + [4] * 5


@pytest.mark.parametrize(
    ("lengths", "parents", "message"),
    [
        ([1, 0], [-1, 0], r"lengths\[1\] is 0"),
        ([1, -5], [-1, 0], r"lengths\[1\] is -5"),
        ([1, 1], [-1, 1], r"parents\[1\] is 1"),
        ([1, 1], [-1, -2], r"parents\[1\] is -2"),
        ([1, 1], [-1], "parents has 1 entries for 2 segments"),
        ([2**62, 2**62], [-1, 0], "the packed length is too large"),
        ([1.0], [-1], r"lengths\[0\] is 1.0"),
    ],
)
def test_segments_that_lie(lengths, parents, message):
    with pytest.raises(waveplan.InputError, match=message):
        Packing.from_segments(lengths, parents)


@given(options())
def test_ids_lead_back_to_the_segments(case):
    sequences, given_options = case
    packing = waveplan.pack(sequences, **given_options)
    padded = [np.concatenate([ids, [-1, -1]]) for ids in (packing.group_ids, packing.parent_ids)]
    for ids in (padded, [each[None, :] for each in padded]):
        again = Packing.from_ids(*ids)
        assert again.lengths.tolist() == packing.lengths.tolist()
        assert again.parents.tolist() == packing.parents.tolist()
        assert again.sequence_starts.tolist() == packing.sequence_starts.tolist()


def test_a_pack_of_padding_alone():
    packing = Packing.from_ids([-1, -1], [-1, -1])
    assert (len(packing), packing.packed_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("group_ids", "parent_ids", "message"),
    [
        ([1, 1], [1], "parent_ids has 1 entries for 2 group_ids"),
        ([[1], [2]], [[1], [2]], r"group_ids has shape \(2, 1\)"),
        ([1.0], [1], r"group_ids\[0\] is 1.0"),
        ([1, -1, 2], [1, -1, 2], r"group_ids\[2\] is 2 after padding"),
        ([1, 1], [1, 2], r"parent_ids\[1\] is 2"),
        ([1, 2, 1], [1, 1, 1], "1 starts again at 2"),
        ([1, 2], [1, 9], "9"),
        ([1, 2, 3], [1, 3, 3], "3"),
    ],
)
def test_ids_that_lie(group_ids, parent_ids, message):
    with pytest.raises(waveplan.InputError, match=message):
        Packing.from_ids(group_ids, parent_ids)
