"""Every golden packing case, to the last integer."""

from __future__ import annotations

from conftest import golden_cases
from golden_waves import rows_of

import waveplan


def segments_of(packing):
    """[rows, start, end, packed start, pack id, parent id] of each segment."""
    columns = (packing.sequence_starts, packing.lengths, packing.packed_starts, packing.parents)
    return [
        [packing.members[s].tolist(), start, start + length, at, s + 1, s + 1 if p < 0 else p + 1]
        for s, (start, length, at, p) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def answer(given):
    """Packed tokens and segments of one case, or the class of fault."""
    names = {"min_shared_segment_length": "min_shared", "shareable_lengths": "shareable"}
    options = {names[key]: value for key, value in (given.get("options") or {}).items()}
    try:
        packing = waveplan.pack(rows_of(given), max_depth=given["max_depth"], **options)
    except ValueError:
        return "ValueError", None
    return packing.packed_tokens, segments_of(packing)


def test_golden_pack():
    differ = []
    cases = golden_cases("*_pack.json")
    for case in cases:
        wanted = case["output"]
        tokens, segments = answer(case["input"])
        if "error" in wanted:
            same = tokens == wanted["error"]
        else:
            same = tokens == wanted["packed_tokens"] == wanted["estimate"]
            same = same and segments == wanted["segments"]
        if not same:
            differ.append(case["id"])
    assert not differ, f"{len(differ)} of {len(cases)} cases differ: {' '.join(differ)}"


def test_golden_trees():
    differ = []
    cases = [c for c in golden_cases("*_layout.json") if c["output"].get("tree") is not None]
    assert cases
    for case in cases:
        tree = waveplan.tree(rows_of(case["input"]))
        columns = (tree.parent, tree.start, tree.end, tree.depth, tree.count)
        found = [list(s) for s in zip(*(c.tolist() for c in columns), strict=True)]
        wanted = [[-1 if s[0] is None else s[0], *s[1:]] for s in case["output"]["tree"]]
        if found != wanted:
            differ.append(case["id"])
    assert not differ, f"{len(differ)} of {len(cases)} trees differ: {' '.join(differ)}"


def test_golden_decisions():
    differ = []
    cases = [c for c in golden_cases("*_layout.json") if "decisions" in c["output"]]
    assert cases
    for case in cases:
        tree = waveplan.tree(rows_of(case["input"]))
        wanted = case["output"]
        same = len(tree) == wanted["tree_segments"]
        if not same or tree.decisions.tolist() != wanted["decisions"]:
            differ.append(case["id"])
    assert not differ, f"{len(differ)} of {len(cases)} trees differ: {' '.join(differ)}"
