"""Layouts against the definitions, against all layouts, and under hostile input."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow import layout as slow

import waveplan
from waveplan import InputError, Scoring, choose_layout
from waveplan.scoring import (
    DEFAULT_TABLE,
    TABLES,
    Device,
    Geometry,
    Shape,
    from_table,
    name_of,
    select,
    select_table,
)

LETTERS = st.lists(st.integers(0, 2), min_size=1, max_size=7)
SMALL = st.sampled_from([0, 0, 1, 2, 7, 45, 229, 1986, 52_742])


@st.composite
def trees(draw):
    """Trees of sequences spelled in letters, each letter a run of its own length."""
    runs = draw(st.tuples(*[st.sampled_from([1, 2, 5, 40, 70, 300])] * 3))
    spelled = draw(st.lists(LETTERS, min_size=1, max_size=14))
    sequences = [
        [letter for letter in sequence for _ in range(runs[letter])] for sequence in spelled
    ]
    return waveplan.tree(sequences)


@st.composite
def scorings(draw):
    """Any score with small facts, and coefficients that make ties likely."""
    layers = draw(st.sampled_from([1, 2, 3, 40]))
    return Scoring(
        version=draw(st.sampled_from([1, 2, 2])),
        tp=draw(st.sampled_from([1, 1, 2, 3])),
        cp=draw(st.sampled_from([1, 2, 3, 4, 5, 8])),
        layers=layers,
        gdn_layers=draw(st.sampled_from([0, 1, layers])),
        uses_gdn=draw(st.booleans()),
        coefficients=tuple(draw(st.tuples(*[SMALL] * 10))),
    )


def found(layout):
    """A layout as the slow definitions give it."""
    score = layout.score
    return (score.work, score.tokens, score.segments, score.depth), tuple(layout.decisions.tolist())


@given(trees(), scorings(), st.sampled_from(["exact", "reference", "full", "none"]))
def test_measures_equal_the_packed_row(tree, scoring, method):
    layout = choose_layout(tree, scoring, method)
    chosen = set(layout.decisions.tolist())
    assert found(layout) == slow.score(tree, chosen, scoring)
    packing = tree.pack(layout.shared)
    columns = (packing.sequence_starts, packing.lengths, packing.parents)
    packed = [
        (packing.members[s].tolist(), start, start + length, None if parent < 0 else parent)
        for s, (start, length, parent) in enumerate(
            zip(*map(np.ndarray.tolist, columns), strict=True)
        )
    ]
    assert packed == slow.segments(tree, chosen)
    assert (layout.packed_tokens, layout.segments) == (packing.packed_tokens, len(packing))
    assert method not in ("full", "none") or len(chosen) == (method == "full") * len(tree.decisions)


@given(trees(), scorings())
def test_exact_is_the_best_of_all(tree, scoring):
    layout = choose_layout(tree, scoring)
    assert layout.optimal
    assert layout.gap == 0
    assert layout.bound == layout.score.work
    if len(tree.decisions) <= 10:
        assert found(layout) == slow.best(tree, scoring)
    reference = choose_layout(tree, scoring, "reference")
    assert layout.score <= reference.score
    assert reference.bound <= layout.bound


@given(trees(), scorings(), st.floats(0, 1))
def test_the_cheapest_layout_under_a_limit(tree, scoring, share):
    most = choose_layout(tree, scoring, "none").packed_tokens
    limit = tree.packed() + int(share * (most - tree.packed()))
    layout = choose_layout(tree, scoring, most_tokens=limit)
    assert layout.packed_tokens <= limit
    if len(tree.decisions) <= 9:
        wanted = slow.best(tree, scoring, limit)
        assert layout.bound <= wanted[0][0] <= layout.score.work
        assert not layout.optimal or found(layout) == wanted
    with pytest.raises(InputError, match="most_tokens"):
        choose_layout(tree, scoring, most_tokens=tree.packed() - 1)


@given(trees(), scorings())
def test_the_family_and_its_labels(tree, scoring):
    family = slow.family(tree)
    layout = choose_layout(tree, scoring, "reference", budget=0)
    assert layout.mandatory_candidates == len(family)
    chosen = tuple(layout.decisions.tolist())
    assert found(layout) == min(slow.score(tree, set(member), scoring) for member in family)
    assert layout.labels
    assert ("full" in layout.labels) == (len(chosen) == len(tree.decisions))
    assert ("none" in layout.labels) == (not chosen)
    for label in layout.labels:
        if label.startswith("depth"):
            most = int(label.split()[1])
            assert chosen == tuple(s for s in tree.decisions.tolist() if tree.depth[s] <= most)


def test_what_a_reference_search_reports():
    tree = waveplan.tree([[1, 2, 3], [1, 2, 4], [1, 5]])
    scoring = from_table("dense-h2560", layers=4)
    assert choose_layout(tree, scoring, "reference").stop_reason == "search_complete"
    spent = choose_layout(tree, scoring, "reference", budget=3)
    assert (spent.refinement_work, spent.stop_reason) == (3, "refinement_budget_exhausted")
    lone = choose_layout(waveplan.tree([[1]]), scoring, "reference")
    assert (lone.refinement_work, lone.stop_reason) == (0, "no_shareable_decisions")
    assert choose_layout(tree, scoring).stop_reason is None
    assert "optimal" in repr(choose_layout(tree, scoring))


# Levels so cheap that hundreds of them may pay.
CHEAP_LEVELS = Scoring(
    version=2, layers=1, gdn_layers=1, coefficients=(1000, 0, 0, 0, 0, 0, 0, 0, 1000, 0)
)


def test_a_chain_is_proven_however_deep():
    tree = waveplan.tree([np.zeros(n + 1, dtype=np.int64) for n in range(3000)])
    layout = choose_layout(tree, CHEAP_LEVELS)
    assert layout.optimal
    assert layout.score <= choose_layout(tree, CHEAP_LEVELS, "reference").score


def test_levels_that_cost_too_much_to_prove_leave_an_honest_gap():
    # Rounding over three ranks takes the tables of every number of levels.
    tree = waveplan.tree([np.zeros(n + 1, dtype=np.int64) for n in range(4500)])
    scoring = CHEAP_LEVELS.replace(cp=3)
    layout = choose_layout(tree, scoring)
    reference = choose_layout(tree, scoring, "reference")
    assert not layout.optimal
    assert layout.bound <= layout.score.work
    assert layout.gap == layout.score.work - layout.bound
    assert layout.score <= reference.score


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 3}, "version"),
        ({"tp": 0}, "tp"),
        ({"cp": -1}, "cp"),
        ({"layers": 0}, "layers"),
        ({"layers": 2**62}, "layers"),
        ({"gdn_layers": -1}, "gdn_layers"),
        ({"uses_gdn": "yes"}, "uses_gdn"),
        ({"coefficients": (1,) * 9}, "coefficients"),
        ({"coefficients": (1,) * 9 + (-1,)}, r"coefficients\[9\]"),
        ({"coefficients": (1,) * 9 + (1.5,)}, r"coefficients\[9\]"),
        ({"coefficients": (2**63,) + (0,) * 9}, r"coefficients\[0\]"),
    ],
)
def test_scores_that_no_run_has_are_refused(change, said):
    facts = {"version": 2, "layers": 4} | change
    with pytest.raises(InputError, match=said):
        Scoring(**facts)


def test_hostile_choices_are_refused():
    tree = waveplan.tree([[1, 2], [1, 3]])
    scoring = from_table("dense-h2560", layers=4)
    for arguments, said in (
        ({"method": "best"}, "method"),
        ({"method": "full", "most_tokens": 4}, "most_tokens"),
        ({"method": "reference", "budget": -1}, "budget"),
    ):
        with pytest.raises(InputError, match=said):
            choose_layout(tree, scoring, **arguments)
    with pytest.raises(InputError, match="it must be one of dense-h2560"):
        from_table("dense", layers=4)
    wide = Scoring(version=2, layers=1 << 16, cp=1 << 12, coefficients=(1 << 36,) * 10)
    assert choose_layout(tree, wide, "none").score.work > 1 << 60
    with pytest.raises(InputError, match="cp is"):
        choose_layout(tree, Scoring(version=1, layers=4, cp=1 << 13))


def test_one_tree_serves_many_threads():
    rng = np.random.default_rng(5)
    tree = waveplan.tree([rng.integers(0, 2, size=60) for _ in range(200)])
    scoring = from_table("gdn-moe-h2048", layers=40, gdn_layers=30, cp=2)
    with ThreadPoolExecutor(4) as pool:
        layouts = list(pool.map(lambda _: found(choose_layout(tree, scoring)), range(16)))
    assert layouts == layouts[:1] * 16


def test_tables_apply_where_they_were_measured():
    h200 = Device((9, 0), 141 * 10**9)
    for table in TABLES:
        assert len(table.coefficients) == 10
        for geometry, shape in table.runs:
            assert select_table(h200, "bfloat16", geometry, shape) is table
            assert select_table(Device((9, 0)), "bfloat16", geometry, shape) is table
            assert select_table(Device((9, 0), 80 * 10**9), "bfloat16", geometry, shape) is None
            assert select_table(Device((10, 0), 180 * 10**9), "bfloat16", geometry, shape) is None
            assert select_table(h200, "float16", geometry, shape) is None
            assert select_table(h200, "bfloat16", geometry, Shape(8, 8)) is None
            assert select_table(None, "float32", geometry, Shape(8, 8)) is DEFAULT_TABLE
    ranks_wrongly = Geometry(2560, 9728, 32, 8, 128)
    assert select_table(h200, "bfloat16", ranks_wrongly, Shape(cp=2)) is TABLES[0]
    assert select_table(h200, "bfloat16", ranks_wrongly, Shape(cp=4)) is None


def test_a_run_selects_its_score():
    model = waveplan.facts.models.get("qwen3.6-35b-a3b")
    topology = waveplan.Topology(cp=2, ep=2)
    here = select(model, topology, device=Device((9, 0), 141 * 10**9))
    assert (here.version, name_of(here), here.layers, here.gdn_layers) == (
        2,
        "gdn-moe-h2048",
        40,
        30,
    )
    assert name_of(select(model, topology)) == "dense-h2560"
    assert select(model, topology, gradient=False).version == 1
    assert Geometry.of(model) in {geometry for geometry, _ in TABLES[1].runs}
