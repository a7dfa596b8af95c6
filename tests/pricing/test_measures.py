"""Measures of plans: names, and the counts that prices read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow import measures as slow

import waveplan
from waveplan import InputError, Requests, _core, tree

PLAN = [name for name, _ in _core.PLAN_MEASURES]
PACK = [name for name, _ in _core.PACK_MEASURES]


def test_measure_names_are_unique_and_explained() -> None:
    assert len({*PLAN, *PACK}) == len(PLAN) + len(PACK) > 30
    for name, meaning in (*_core.PLAN_MEASURES, *_core.PACK_MEASURES):
        assert name.isidentifier()
        assert meaning


SETTINGS = _core.MeasureSettings


@st.composite
def pools(draw: st.DrawFn) -> tuple[Requests, list[slow.Request]]:
    """A few sequences over two tokens, with every kind of option, and their slow twins."""
    sequences = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=1))
    sequences = [sequence * draw(st.sampled_from([1, 1, 1, 20])) for sequence in sequences]

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=len(sequences), max_size=len(sequences)))

    labels = []
    for sequence, kind in zip(sequences, column(st.sampled_from("nfmw")), strict=True):
        shape = (len(sequence), 2) if kind == "w" else (len(sequence),)
        drawn = draw(st.integers(0, 2**63 - 1))
        mask = np.random.default_rng(drawn).random(shape) < 0.5
        labels.append({"n": None, "f": drawn % (len(sequence) + 1)}.get(kind, mask))
    top_k = column(st.sampled_from([None, None, 3]))
    logits, hidden = column(st.booleans()), column(st.booleans())
    gradient = column(st.booleans())
    adapter = column(st.sampled_from([None, "a"]))
    routed = column(st.sampled_from([0, 0, 7]))
    requests = Requests(
        sequences,
        targets=labels,
        top_k=top_k,
        logits=logits,
        hidden=hidden,
        gradient=gradient,
        adapter=adapter,
        routed=routed,
    )
    twins = []
    for i, sequence in enumerate(sequences):
        kept: frozenset[int] | None = None
        width = 1
        if isinstance(labels[i], int):
            kept = frozenset(range(labels[i], len(sequence)))
        elif labels[i] is not None:
            mask = labels[i].reshape(len(sequence), -1)
            kept, width = frozenset(np.flatnonzero(mask.any(axis=1)).tolist()), mask.shape[1]
        twins.append(
            slow.Request(
                len(sequence),
                kept,
                width,
                top_k[i] or 0,
                logits[i],
                hidden[i],
                gradient[i],
                int(adapter[i] is not None),
                routed[i],
            )
        )
    return requests, twins


def includes(measured: dict[str, int], expected: dict[str, int]) -> None:
    assert {name: measured[name] for name in expected} == expected


@given(pools(), st.data())
def test_measures_equal_the_slow_version(
    pool: tuple[Requests, list[slow.Request]], data: st.DataObject
) -> None:
    requests, twins = pool
    count = len(requests)
    picked = data.draw(st.permutations(range(count)))[: data.draw(st.integers(1, count))]
    tp = data.draw(st.sampled_from([1, 2, 4]))
    whole = tree(requests.sequences)
    made = _core.PlanMeasures(requests, np.array(picked), SETTINGS(tp=tp, gdn=True))
    expected = []
    for g, (_, members) in enumerate(slow.packs([twins[i] for i in picked])):
        part = whole.restrict([picked[i] for i in members])
        drawn = data.draw(st.lists(st.booleans(), min_size=len(part), max_size=len(part)))
        shared = (part.count >= 2) & np.array(drawn)
        made.exact(g, part, shared)
        shape = slow.Tree(part.parent.tolist(), part.end.tolist(), part.terminal.tolist())
        pack = [twins[picked[i]] for i in members]
        expected.append(slow.pack_exact(shape, shared, pack, tp))
    plan, packs = made.finish().to_dict().values()
    for measured, wanted in zip(packs, expected, strict=True):
        includes(measured, wanted)
    tokens = sum(pack["local_tokens"] for pack in expected)
    includes(plan, slow.plan_start([twins[i] for i in picked]))
    includes(plan, {"packed_tokens": tokens, "retained_tokens": tokens})
    includes(plan, {"cold": 1, "learned_bytes": 0})


@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(-1, 9)), min_size=1, max_size=10),
    st.booleans(),
)
def test_recurrent_schedule_equals_the_slow_version(
    drawn: list[tuple[int, int]], gradient: bool
) -> None:
    # a tree of distinct tokens, one sequence per segment: its path from the root
    lengths = [length for length, _ in drawn]
    parents = [min(parent, i - 1) for i, (_, parent) in enumerate(drawn)]
    paths: list[list[int]] = []
    for s, parent in enumerate(parents):
        own = list(range(1000 * s, 1000 * s + lengths[s]))
        paths.append((paths[parent] if parent >= 0 else []) + own)
    requests = Requests(paths, gradient=gradient)
    built = tree(requests.sequences)
    shared = built.count >= 2
    made = _core.PlanMeasures(requests, np.arange(len(paths)), SETTINGS(gdn=True))
    made.exact(0, built, shared)
    (pack,) = made.finish().to_dict()["packs"]
    executed, states, packed = slow.gdn_schedule(
        (built.end - built.start).tolist(), built.parent.tolist()
    )
    if not gradient:
        executed = states = packed = 0
    for prefix in ("gdn", "gdn_rank"):
        includes(
            pack,
            {
                f"{prefix}_executed_tokens": executed,
                f"{prefix}_states": states,
                f"{prefix}_packed_tokens": packed,
            },
        )
    assert pack["segments"] == len(built)


def test_refusals() -> None:
    requests = Requests([[1, 2], [1, 3]])
    built = tree(requests.sequences)
    everything = np.arange(2)
    made = _core.PlanMeasures(requests, everything)
    with pytest.raises(InputError, match="g is 1: it must be at least 0 and below 1"):
        made.exact(1, built, np.zeros(3, bool))
    with pytest.raises(InputError, match="shared has 2 entries for 3"):
        made.exact(0, built, np.zeros(2, bool))
    with pytest.raises(InputError, match="tree is not of pack 0's sequences"):
        made.exact(0, built.restrict([0]), np.zeros(1, bool))
    with pytest.raises(InputError, match="tp is 0: it must be at least 1"):
        SETTINGS(tp=0)


@given(pools(), st.sampled_from([1, 2]), st.sampled_from([2, 3]), st.data())
def test_ranks_of_a_context_parallel_plan(
    pool: tuple[Requests, list[slow.Request]], tp: int, cp: int, data: st.DataObject
) -> None:
    requests, _ = pool
    weights = [data.draw(st.integers(0, 1000)) for _ in range(3)]
    made = _core.PlanMeasures(
        requests,
        np.arange(len(requests)),
        SETTINGS(tp=tp, cp=cp, gdn=True, gdn_weights=weights),
    )
    whole = tree(requests.sequences)
    expected = []
    for g, pack in enumerate(requests.packs()):
        part = whole.restrict(pack.indices)
        layout = waveplan.choose_layout(part, waveplan.Scoring(version=1, layers=4), "full")
        packed = part.pack(layout.shared)
        pad = -packed.packed_tokens % tp
        padded = waveplan.Packing.from_segments(
            [*packed.lengths, *[1] * pad], [*packed.parents, *[-1] * pad]
        )
        ownership = waveplan.own(padded, cp)
        placed = waveplan.gdn(padded, ownership)
        made.exact(
            g,
            part,
            layout.shared,
            ownership=ownership,
            gdn=placed,
        )
        ranks = [
            (rank.executed_tokens, rank.states, rank.packed_tokens)
            for rank in waveplan.gdn_schedule_per_rank(padded, placed)
        ]
        busiest = max(ranks, key=lambda rank: np.dot(rank, weights))
        if not pack.gradient:
            busiest = (0, 0, 0)
        expected.append(
            {
                "local_tokens": slow.ceil_to(max(1, *placed.model_tokens.tolist()), tp),
                "padded_tokens": padded.packed_tokens,
                "gdn_rank_executed_tokens": busiest[0],
                "gdn_rank_states": busiest[1],
                "gdn_rank_packed_tokens": busiest[2],
            }
        )
    plan, packs = made.finish().to_dict().values()
    for measured, wanted in zip(packs, expected, strict=True):
        includes(measured, wanted)
    includes(plan, {"retained_tokens": sum(pack["local_tokens"] for pack in expected)})
