"""Every golden case through the reference package's own functions, ours installed."""

from __future__ import annotations

import wave
from collections import OrderedDict
from threading import Lock
from types import SimpleNamespace

import pytest
import rank as stub
import torch
from art.megatron import prefix_tree_packing as packing
from art.trainer_rank import _impl
from art.trainer_rank import _prefix_tree_planner as planner
from conftest import cases, sequences_of


def calls(report, name):
    """(calls, declined) of a seam."""
    seam = next(seam for seam in report.seams if seam.name == name)
    return seam.calls, seam.declined


def fault(run):
    """Class of the error that a call raises."""
    try:
        run()
    except Exception as error:
        return type(error).__name__
    return None


def ids_of(given):
    if "lengths" in given:
        return stub.packed_ids(given["lengths"], given["parents"])
    ids = (torch.as_tensor(given[name]) for name in ("group_ids", "parent_ids"))
    return tuple(sequence.reshape(1, -1) if sequence.ndim < 2 else sequence for sequence in ids)


@pytest.mark.parametrize(("given", "wanted"), cases("*_pack.json"))
def check_pack(ours, given, wanted):
    sequences = [tuple(map(int, sequence)) for sequence in sequences_of(given)]
    options = given.get("options") or {}

    def run():
        found = packing.prefix_tree_pack_segments(
            sequences, max_depth=given["max_depth"], **options
        )
        estimate = packing.estimate_prefix_tree_packed_tokens(
            stub.tensors(sequences), max_depth=given["max_depth"], **options
        )
        return found, estimate

    if "error" in wanted:
        assert fault(run) == wanted["error"]
        return
    found, estimate = run()
    assert estimate == wanted["estimate"] == sum(s.length for s in found)
    assert [
        [list(s.sequence_indices), s.start, s.end, s.packed_start, s.group_id, s.parent_id]
        for s in found
    ] == wanted["segments"]
    assert all(type(s) is packing.PrefixTreePackSegment for s in found)
    assert not sequences or calls(ours, "packing")[1] == calls(ours, "packed tokens")[1] == 0


@pytest.mark.parametrize(("given", "wanted"), cases("a*_assign.json"))
def check_assign(ours, given, wanted):
    def run():
        given_ids, cp, values = ids_of(given), given["cp"], given["config"]
        return stub.assigned(*given_ids, cp, **values), stub.rank_tokens(*given_ids, cp, **values)

    if "error" in wanted:
        assert fault(run) == wanted["error"].split(":")[0]
        return
    found, counts = run()
    assert found == {name: wanted[name] for name in found}
    assert counts == wanted["token_counts"]
    if wanted["valid_tokens"]:  # the package itself answers for a line without tokens
        assert calls(ours, "ownership") == (1, 0)
        assert calls(ours, "rank tokens") == (1, 0)


@pytest.mark.parametrize(("given", "wanted"), cases("b*_gdn_counts.json"))
def check_gdn(ours, given, wanted):
    def run():
        return stub.placed(*ids_of(given), given["cp"], stub.gdn_config(given), **given["config"])

    if "error" in wanted:
        assert fault(run) == wanted["error"].split(":")[0]
        return
    found = run()
    assert found == {name: wanted[name] for name in found}
    for name in ("ownership", "rank tokens", "gdn decision"):
        assert calls(ours, name) == (1, 0)


@pytest.mark.parametrize(("given", "wanted"), cases("d*_layout.json"))
def check_layout(ours, given, wanted):
    sequences = stub.tensors(sequences_of(given))
    if "error" in wanted:
        assert fault(lambda: planner.build_canonical_prefix_tree(sequences)) == wanted["error"]
        return
    tree = planner.build_canonical_prefix_tree(sequences)
    score = stub.scoring(given["scoring"], given["cp"])
    assert (score.version, score.table_id) == (wanted["coefficient_version"], wanted["table"])
    chosen = stub.select(tree, given, score)
    assert isinstance(tree, planner.CanonicalPrefixTree)
    if wanted.get("tree") is not None:
        assert [
            [s.parent_index, s.start, s.end, s.depth, len(s.sequence_indices)]
            for s in tree.segments
        ] == wanted["tree"]
    if "decisions" in wanted:
        assert len(tree.segments) == wanted["tree_segments"]
        assert list(tree.decision_indices) == wanted["decisions"]
    same_layout(chosen.layout, chosen.score, wanted["cost_optimal"])
    for anchor in ("full_sharing", "no_sharing"):
        same_layout(group_layout(tree, anchor), None, wanted[anchor])
    assert calls(ours, "canonical tree") == (1, 0)
    assert calls(ours, "layout selection") == (1, 0)


def group_layout(tree, anchor):
    """The layout that a rank takes when its policy names one, from its own cached tree."""
    rank = SimpleNamespace(
        _layout_cache_lock=Lock(),
        _tree_cache=OrderedDict(case=tree),
        _layout_selection_cache=OrderedDict(),
    )
    same, layout = _impl.TrainerRank._compute_group_layout(rank, (), ("case", None, anchor))
    assert same is tree
    return layout


def same_layout(layout, score, wanted):
    assert isinstance(layout, planner.PrefixTreeLayout)
    if score is not None:
        assert list(score) == wanted["score"]
    _, packed, segments, depth = wanted["score"]
    assert (layout.packed_tokens, len(layout.segments)) == (packed, segments)
    assert layout.maximum_depth == wanted.get("maximum_depth", depth)
    if "decisions" in wanted:
        assert sorted(layout.selected_decisions) == wanted["decisions"]
    if "segments" in wanted:
        assert [
            [list(s.sequence_indices), s.start, s.end, s.parent_segment_index]
            for s in layout.segments
        ] == wanted["segments"]


@pytest.mark.parametrize(("given", "wanted"), cases("e*_wave.json"))
def check_wave(ours, given, wanted):
    """By the whole search, then by the package's own on the smaller seams, every probe watched."""
    for watch in (False, True):
        found, *_ = wave.run(given, sequences_of(given), watch)
        known = wanted if watch else unwatched(wanted)
        assert {name: found[name] for name in known} == known
        if not watch:
            searched = "error" not in wanted and wanted["subforward_requests"] is None
            assert calls(ours, "width search") == (1, int(not searched))
    assert calls(ours, "canonical tree")[1] == calls(ours, "packed layout")[1] == 0
    assert not any(seam.disagreed or seam.failed for seam in ours.seams)
    assert _impl._HEAD_CHUNK_TOKENS == 512


def unwatched(wanted):
    """What is known of a search whose probes are not watched."""
    known = {name: value for name, value in wanted.items() if name != "probes"}
    if "parts" in known:
        known["parts"] = [
            {name: value for name, value in part.items() if name != "memory_minimal"}
            for part in known["parts"]
        ]
    return known
