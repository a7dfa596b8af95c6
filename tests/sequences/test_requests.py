"""Requests: options as columns, and one-line refusals."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow import measures as slow

from waveplan import InputError, Requests, Scoring, _core

SEQUENCES = [[1, 2, 3, 4], [1, 2, 9], [], [7]]


def test_defaults_are_targets_with_gradients() -> None:
    requests = Requests(SEQUENCES)
    assert len(requests) == 4
    assert requests.lengths.tolist() == [4, 3, 0, 1]
    assert requests.labelled.tolist() == [4, 3, 0, 1]
    assert requests.mixes == ("target:single",)
    assert requests.group_sizes.tolist() == [1, 1, 1, 1]
    assert "4 requests, 8 tokens" in repr(requests)


def test_one_value_or_one_per_request() -> None:
    requests = Requests(
        SEQUENCES,
        targets=[True, 2, None, False],
        top_k=[None, 5, None, None],
        logits=[False, False, False, True],
        hidden=False,
        gradient=np.array([True, True, False, False]),
        adapter=["a", None, "b", "a"],
        groups=[1, 3],
        routed=[0, 0, 0, 8],
    )
    assert requests.targets.tolist() == [True, True, False, False]
    assert requests.labelled.tolist() == [4, 1, 0, 0]
    assert requests.top_k.tolist() == [0, 5, 0, 0]
    assert requests.adapters == ("a", "b")
    assert requests.slot.tolist() == [1, 0, 2, 1]
    assert requests.group_sizes.tolist() == [1, 3]
    names = [requests.mixes[mix] for mix in requests.mix]
    assert names == ["target:single", "target:single+top_k:5", "inactive", "logits+routes"]
    groups = requests.packs()
    assert [(g.adapter, g.gradient, g.routed, g.indices.tolist()) for g in groups] == [
        ("a", True, False, [0]),
        (None, True, False, [1]),
        ("a", False, True, [3]),
    ]


def test_masks_and_labels() -> None:
    masks = [[True, False, True, True], [False, True, False], [], [False]]
    flat = np.concatenate([np.array(mask, bool) for mask in masks])
    labels = [np.where(np.array(mask, bool), 5, -100) for mask in masks]
    wide = [np.stack([part, np.full_like(part, -100)], axis=1) for part in labels]
    for given_as in (masks, flat, labels, wide):
        requests = Requests(SEQUENCES, targets=given_as)
        assert requests.labelled.tolist() == [3, 1, 0, 0]
    assert requests.target_width.tolist() == [2] * 4
    assert requests.mixes == ("target:2",)
    mixed = Requests(SEQUENCES, targets=[masks[0], 1, None, False])
    assert mixed.labelled.tolist() == [3, 2, 0, 0]
    assert mixed.targets.tolist() == [True, True, False, False]


COLUMNS = {
    "targets": np.array([True, False, True, True]),
    "target_width": np.array([1, 1, 1, 2]),
    "top_k": np.zeros(4, np.int64),
    "logits": np.array([False, True, False, False]),
    "hidden": np.zeros(4, bool),
    "gradient": np.ones(4, bool),
    "adapters": [],
    "slot": np.zeros(4, np.int64),
    "routed": np.zeros(4, np.int64),
    "group_sizes": np.ones(4, np.int64),
}
ARRAYS = [np.array(tokens) for tokens in ([1, 2, 3, 4], [1, 2, 9], [1, 2, 3], [7, 8])]
ALL_LABELS = [np.array([-100, 5, -100, 5]), None, np.array([5, -100, -100]), np.full(4, 5)]


def test_arrays_and_all_labels_count_as_one_array_and_a_mask() -> None:
    mask = np.array([0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1], bool)
    offsets = np.array([0, 4, 7, 10, 12])
    flat = np.concatenate(ARRAYS)
    whole = _core.Requests(flat, offsets, label_mask=mask, **COLUMNS)
    parts = _core.Requests(ARRAYS, labels=ALL_LABELS, **COLUMNS)
    assert parts.labelled.tolist() == whole.labelled.tolist() == [2, 0, 1, 2]
    assert parts.lengths.tolist() == whole.lengths.tolist()
    trees = _core.build_tree(ARRAYS), _core.build_tree(flat, offsets)
    assert [tree.parent.tolist() for tree in trees] == [trees[0].parent.tolist()] * 2
    found = []
    for requests, tree in zip((parts, whole), trees, strict=True):
        plan = _core.PlanMeasures(requests, np.arange(4))
        plan.exact(0, tree, _core.choose_layout(tree, Scoring(version=1, layers=1), "full").shared)
        found.append(plan.finish().to_dict())
    assert found[0] == found[1]
    assert found[0]["packs"][0]["head_tokens"] == 6  # [1 2] once, 4, 9, and [7 8]


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (ARRAYS, {"labels": ALL_LABELS[:1]}, "1 entries for 4 requests"),
        (ARRAYS, {"labels": [ALL_LABELS[2], *ALL_LABELS[1:]]}, "request 0 has 3 labels for 4"),
        (ARRAYS, {"labels": ALL_LABELS, "label_mask": np.ones(12, bool)}, "give one of"),
        (np.arange(12), {"labels": ALL_LABELS}, "a list or a tuple"),
        ([tokens.astype(np.int32) for tokens in ARRAYS], {"labels": ALL_LABELS}, "int32"),
    ],
)
def test_arrays_and_labels_that_do_not_fit(tokens: Any, options: Any, message: str) -> None:
    with pytest.raises((InputError, TypeError), match=message):
        _core.Requests(tokens, **options, **COLUMNS)


def test_first_targets_from_an_array() -> None:
    requests = Requests(SEQUENCES, targets=np.array([1, 3, 0, 0], np.int32))
    assert requests.labelled.tolist() == [3, 0, 0, 1]
    assert Requests(SEQUENCES, targets=0).labelled.tolist() == [4, 3, 0, 1]


def test_groups_of_one_size() -> None:
    assert Requests(SEQUENCES, groups=3).group_sizes.tolist() == [3, 1]
    assert Requests([], groups=3).group_sizes.tolist() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k is 0: it must be at least 1"),
        ({"top_k": -3}, "top_k is -3: it must be at least 1"),
        ({"top_k": [1, 0, 1, 1]}, "top_k[1] is 0: it must be at least 1"),
        ({"top_k": [1, True, 1, 1]}, "top_k[1] is True"),
        (
            {"top_k": 2**70},
            "top_k is 1180591620717411303424: it must be at most 9223372036854775807",
        ),
        ({"top_k": 2**62}, "the number of top-k entries is too large"),
        ({"logits": [True]}, "logits has 1 entries for 4 requests"),
        ({"hidden": "yes"}, "hidden is 'yes'"),
        ({"hidden": [1, 0, 1, 0]}, "hidden[0] is 1: give True or False"),
        ({"gradient": np.ones((2, 2), bool)}, "gradient has 2 dimensions"),
        ({"targets": [0, 4, 0, 0]}, "targets[1] is 4: the first target must be within 0..3"),
        ({"targets": np.array([0, -1, 0, 0])}, "targets[1] is -1"),
        ({"targets": 2}, "targets[2] is 2"),
        ({"targets": [[True], True, True, True]}, "targets[0] has shape (1,) for a request of 4"),
        ({"targets": [[0.5] * 4, 0, 0, 0]}, "targets[0] holds float64"),
        ({"targets": [np.zeros((4, 0), bool), None, None, None]}, "targets[0] has no label"),
        ({"targets": np.ones(5, bool)}, "targets is a boolean array of shape (5,)"),
        ({"targets": [0, "x", 0, 0]}, "targets[1] is 'x'"),
        ({"adapter": ["a", 3, None, None]}, "adapter[1] is 3"),
        ({"adapter": [""] * 4}, "adapter[0] is ''"),
        ({"adapter": ["a"]}, "adapter has 1 entries"),
        ({"groups": 0}, "groups is 0: a group holds at least 1 request"),
        ({"groups": [2, 0, 2]}, "groups[1] is 0"),
        ({"groups": [2, 1]}, "groups hold 3 requests, but there are 4"),
        ({"groups": [2, 4]}, "groups[1] is 4"),
        ({"routed": -1}, "routed is -1"),
        ({"routed": [0, 0, -2, 0]}, "routed[2] is -2"),
    ],
)
def test_refusals_name_the_option_and_the_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        Requests(SEQUENCES, **options)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_negative_tokens_are_refused() -> None:
    with pytest.raises(InputError, match=r"sequences\[1\]\[2\] is -9: token ids must be"):
        Requests([[1, 2, 3, 4], [1, 2, -9], [], [7]])


def test_unknown_requests_are_refused() -> None:
    with pytest.raises(InputError, match=r"indices\[1\] is 4: it must be at least 0 and below 4"):
        Requests(SEQUENCES).packs([0, 4])


@given(st.data())
def test_groups_equal_the_slow_version(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 8))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    gradient, hidden = column(st.booleans()), column(st.booleans())
    targets, routed = column(st.booleans()), column(st.sampled_from([0, 0, 3]))
    adapter = column(st.sampled_from([None, "a", "b"]))
    requests = Requests(
        [[1]] * count,
        targets=targets,
        hidden=hidden,
        gradient=gradient,
        adapter=adapter,
        routed=routed,
    )
    picked = data.draw(
        st.lists(st.sampled_from(range(count)), unique=True) if count else st.just([])
    )
    made = [((g.adapter, g.gradient, g.routed), g.indices.tolist()) for g in requests.packs(picked)]
    twins = [
        slow.Request(
            1,
            labels=frozenset([0]) if targets[i] else None,
            hidden=hidden[i],
            gradient=gradient[i],
            slot=int(requests.slot[i]),
            routed=routed[i],
        )
        for i in picked
    ]
    names = (None, *requests.adapters)
    assert made == [
        ((names[slot], gradient, routed), [picked[i] for i in members])
        for (slot, gradient, routed), members in slow.packs(twins)
    ]


class Named(Requests):
    """Requests with an attribute of a user's own."""

    name: str


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_of_a_subclass_keep_its_attributes(again: Any) -> None:
    made = Named(SEQUENCES, targets=[0, 1, None, 1])
    made.name = "mine"
    other = again(made)
    assert type(other) is Named
    assert (other.name, other.first_target.tolist()) == ("mine", made.first_target.tolist())


def test_columns_stay_when_their_arrays_change() -> None:
    first, mask = np.array([0, 1, 0, 0]), np.ones(8, np.bool_)
    kept = Requests(SEQUENCES, targets=first), Requests(SEQUENCES, targets=mask)
    first[:], mask[:] = 1, False
    assert kept[0].labelled.tolist() == [4, 2, 0, 1]
    assert kept[1].labelled.tolist() == [4, 3, 0, 1]
