"""Head tokens: packed positions that the output head projects, counted once where shared."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from slow import measures as slow

from waveplan import Requests, _core, tree

HEAD_ROWS = [name for name, _ in _core.PACK_MEASURES].index("head_tokens")


def head_tokens(requests: Requests, shared: Any, built: Any) -> int:
    measures = _core.PlanMeasures(requests, np.arange(len(requests)))
    measures.exact(0, built, np.asarray(shared, bool))
    return int(measures.finish().packs[0, HEAD_ROWS])


def test_a_shared_prompt_is_projected_once() -> None:
    sequences = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 4, 7, 8]]
    requests = Requests(sequences)
    built = tree(requests.sequences)
    assert built.parent.tolist() == [-1, 0, 1, 1, 0]
    decisions = built.count >= 2
    assert head_tokens(requests, decisions, built) == 3 + 1 + 1 + 2 + 1
    assert head_tokens(requests, np.zeros(5, bool), built) == 15
    assert head_tokens(requests, [False, True, False, False, False], built) == 4 + 1 + 2 + 4
    # the answer tokens alone
    answers = Requests(sequences, targets=[3, 3, 4])
    assert head_tokens(answers, decisions, built) == 1 + 1 + 1 + 2


def test_labels_that_differ_over_a_shared_prompt() -> None:
    sequences = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]
    masks = [[True, False, False, True, False], [False, True, False, True, False]]
    requests = Requests(sequences, targets=masks)
    built = tree(requests.sequences)
    assert head_tokens(requests, built.count >= 2, built) == 3
    assert head_tokens(requests, np.zeros(3, bool), built) == 4


@given(st.data())
def test_union_equals_a_set_of_positions(data: st.DataObject) -> None:
    sequences = data.draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1))
    repeat = data.draw(st.sampled_from([1, 1, 30, 64, 70]))
    sequences = [[token for token in sequence for _ in range(repeat)] for sequence in sequences]
    seed, step = data.draw(st.integers(0, 2**32)), data.draw(st.sampled_from([1, 7, 64]))
    rng = np.random.default_rng(seed)
    masks = [
        np.repeat(rng.random(len(sequence)) < 0.5, step)[: len(sequence)] for sequence in sequences
    ]
    logits = data.draw(st.lists(st.booleans(), min_size=len(sequences), max_size=len(sequences)))
    requests = Requests(sequences, targets=masks, logits=logits)
    built = tree(requests.sequences)
    drawn = data.draw(st.lists(st.booleans(), min_size=len(built), max_size=len(built)))
    shared = (built.count >= 2) & np.array(drawn)
    twins = [
        slow.Request(len(sequence), frozenset(np.flatnonzero(mask).tolist()), logits=whole)
        for sequence, mask, whole in zip(sequences, masks, logits, strict=True)
    ]
    shape = slow.Tree(built.parent.tolist(), built.end.tolist(), built.terminal.tolist())
    assert head_tokens(requests, shared, built) == slow.head_tokens(shape, shared, twins)
