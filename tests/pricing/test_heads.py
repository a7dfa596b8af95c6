"""Head rows: packed positions that the output head projects, counted once where shared."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from slow import measures as slow

from waveplan import Requests, _core, tree

HEAD_ROWS = [name for name, _ in _core.PACK_MEASURES].index("head_tokens")


def head_rows(requests: Requests, shared: Any, built: Any) -> int:
    measures = _core.PlanMeasures(requests._core, np.arange(len(requests)))
    measures.exact(0, built, np.asarray(shared, bool))
    return measures.finish()[1][0][HEAD_ROWS]


def test_a_shared_prompt_is_projected_once() -> None:
    rows = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 4, 7, 8]]
    requests = Requests(rows)
    built = tree(requests.sequences)
    assert built.parent.tolist() == [-1, 0, 1, 1, 0]
    decisions = built.count >= 2
    assert head_rows(requests, decisions, built) == 3 + 1 + 1 + 2 + 1
    assert head_rows(requests, np.zeros(5, bool), built) == 15
    assert head_rows(requests, [False, True, False, False, False], built) == 4 + 1 + 2 + 4
    # the answer tokens alone
    answers = Requests(rows, targets=[3, 3, 4])
    assert head_rows(answers, decisions, built) == 1 + 1 + 1 + 2


def test_labels_that_differ_over_a_shared_prompt() -> None:
    rows = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]
    masks = [[True, False, False, True, False], [False, True, False, True, False]]
    requests = Requests(rows, targets=masks)
    built = tree(requests.sequences)
    assert head_rows(requests, built.count >= 2, built) == 3
    assert head_rows(requests, np.zeros(3, bool), built) == 4


@given(st.data())
def test_union_equals_a_set_of_positions(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1))
    repeat = data.draw(st.sampled_from([1, 1, 30, 64, 70]))
    rows = [[token for token in row for _ in range(repeat)] for row in rows]
    seed, step = data.draw(st.integers(0, 2**32)), data.draw(st.sampled_from([1, 7, 64]))
    rng = np.random.default_rng(seed)
    masks = [np.repeat(rng.random(len(row)) < 0.5, step)[: len(row)] for row in rows]
    logits = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    requests = Requests(rows, targets=masks, logits=logits)
    built = tree(requests.sequences)
    drawn = data.draw(st.lists(st.booleans(), min_size=len(built), max_size=len(built)))
    shared = (built.count >= 2) & np.array(drawn)
    twins = [
        slow.Request(len(row), frozenset(np.flatnonzero(mask).tolist()), logits=whole)
        for row, mask, whole in zip(rows, masks, logits, strict=True)
    ]
    shape = slow.Tree(built.parent.tolist(), built.end.tolist(), built.terminal.tolist())
    assert head_rows(requests, shared, built) == slow.head_rows(shape, shared, twins)
