"""Taking seams, giving them back, shadow runs and the environment variable."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import wave

import numpy as np
import pytest
import rank as stub
import torch
from art.megatron import prefix_tree_packing as packing
from art.megatron.context_parallel import runtime
from art.megatron.context_parallel.types import ParallelTopology
from art.trainer_rank import _impl
from art.trainer_rank import _micro_batch_planner as steps
from art.trainer_rank import _prefix_tree_planner as planner
from check_pools import draw_case, draw_sequences

from waveplan import InputError
from waveplan.integrations import art

SEQUENCES = [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2, 9], [7, 7]]


@pytest.fixture(autouse=True)
def given_back():
    yield
    art.uninstall()


def held():
    """The functions at every place that planning reads them from."""
    return [
        planner.build_canonical_prefix_tree,
        steps.build_canonical_prefix_tree,
        steps.select_prefix_tree_layout,
        steps._compute_group_layout,
        packing.prefix_tree_pack_segments,
        _impl.estimate_prefix_tree_packed_tokens,
        _impl.materialize_prefix_tree_layout,
        runtime._runtime_plan_assignment,
        vars(_impl.TrainerRank)["_head_projection_rows"],
        vars(_impl.TrainerRank)["_max_rank_model_tokens"],
    ]


def check_every_place_is_taken_and_given_back():
    before = held()
    report = art.install()
    assert art.installed() is report
    assert not report.absent
    assert all(ours is not theirs for ours, theirs in zip(held(), before, strict=True))
    art.install()
    art.uninstall()
    assert all(now is theirs for now, theirs in zip(held(), before, strict=True))
    assert art.installed() is None
    art.uninstall()


def check_report_lists_seams():
    report = art.install()
    planner.build_canonical_prefix_tree(SEQUENCES)
    text = str(report)
    assert text.startswith("waveplan plans openpipe-art 0.5.23: ")
    assert all(seam.path in text for seam in report.seams)
    assert "canonical tree: " in text
    assert "1 calls" in text


def check_unknown_version_is_refused(monkeypatch):
    monkeypatch.setattr(art, "version", lambda: "0.6.0")
    with pytest.raises(InputError, match=r"openpipe-art 0\.6\.0"):
        art.install()
    assert art.installed() is None
    assert art.install(force=True).version == "0.6.0"
    with pytest.raises(InputError, match="on_difference"):
        art.install(on_difference="ignore")


def check_absent_function_is_reported(monkeypatch):
    monkeypatch.delattr(packing, "prefix_tree_pack")
    report = art.install()
    assert report.absent == (f"{packing.__name__}.prefix_tree_pack",)
    assert "absent here" in str(report)


def check_values_are_plain_ones():
    """Late parts equal eager ones; copies and pickles are the package's own."""
    tensors = stub.tensors(SEQUENCES)
    facts = {"cp_size": 2, "layers": 40, "uses_gdn": True, "refinement_work_budget": 2000}
    theirs = planner.build_canonical_prefix_tree(tensors)
    choice = planner.select_prefix_tree_layout(theirs, **facts)
    pack = _impl.materialize_prefix_tree_layout(
        tensors, theirs, choice.layout, verify_shared_tokens=False
    )
    art.install()
    ours = planner.build_canonical_prefix_tree(tensors)
    found = planner.select_prefix_tree_layout(ours, **facts)
    packed = _impl.materialize_prefix_tree_layout(
        tensors, ours, found.layout, verify_shared_tokens=False
    )
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs)
    assert pickle.loads(pickle.dumps(ours)) == theirs
    assert type(copy.copy(ours)) is planner.CanonicalPrefixTree
    assert found.layout.fingerprint == choice.layout.fingerprint
    assert found.layout.tree_fingerprint == theirs.fingerprint
    for name in ("score", "mandatory", "operation", "discovery_tier", "sorted_decisions"):
        assert getattr(found, name) == getattr(choice, name)
    assert found.candidate.labels == choice.candidate.labels
    assert packed.segments == pack.segments
    for name in ("tokens", "group_ids", "parent_ids", "position_ids"):
        mine, wanted = getattr(packed, name), getattr(pack, name)
        assert mine.dtype == wanted.dtype
        assert mine.shape == wanted.shape
        assert torch.equal(mine, wanted)
    assert isinstance(packed, packing.PrefixTreePack)
    assert all(map(torch.equal, packed.positions_by_sequence, pack.positions_by_sequence))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: planner.build_canonical_prefix_tree([]), ValueError),
        (lambda: planner.build_canonical_prefix_tree([[1], []]), ValueError),
        (lambda: packing.prefix_tree_pack_segments(SEQUENCES, max_depth=-1), ValueError),
        (
            lambda: packing.prefix_tree_pack_segments(
                SEQUENCES, max_depth=1, shareable_lengths=[1]
            ),
            ValueError,
        ),
        (
            lambda: packing.estimate_prefix_tree_packed_tokens([torch.ones(2, 2)], max_depth=1),
            ValueError,
        ),
        (
            lambda: runtime.context_parallel_rank_model_token_counts(
                group_ids=torch.tensor([[1, 2, 1]]),
                parent_ids=torch.tensor([[1, 2, 1]]),
                topology=ParallelTopology(cp=2),
                config=stub.config(),
                original_seq_len=3,
                build_gdn_execution_spec=False,
            ),
            RuntimeError,
        ),
    ],
)
def check_errors_stay_theirs(call, error):
    with pytest.raises(error) as theirs:
        call()
    art.install()
    with pytest.raises(error) as ours:
        call()
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)


def check_deep_trees_do_not_exhaust_the_stack():
    """A comb of 1,500 sequences; the package's own walk recurses once per sequence."""
    sequences = [
        torch.cat([torch.zeros(i, dtype=torch.long), torch.ones(1, dtype=torch.long)])
        for i in range(1500)
    ]
    art.install()
    packed = packing.estimate_prefix_tree_packed_tokens(iter(sequences), max_depth=len(sequences))
    assert packed == 1499 + 1500


def search(sequences, cp):
    made = stub.requests(sequences, labels=3)
    rank = stub.planning_rank(cp, available=40 << 30)
    stub.learn(rank, made, bytes_per_token=0.0, packed_tokens=sum(map(len, sequences)))
    return wave.search(rank, made)


@pytest.mark.parametrize("cp", [1, 2])
def check_shadow_agrees(cp):
    report = art.install(shadow=True)
    rng = np.random.default_rng(5)
    prompt = rng.integers(0, 9, 300)
    sequences = [np.concatenate([prompt, rng.integers(0, 9, 50 + i)]) for i in range(9)]
    assert search(sequences, cp)["width"] >= 1
    assert report.shadow.equal > 10
    assert not report.shadow.found
    assert "results equal, 0 different" in str(report)


def broken(seam, change):
    """Makes ours wrong at one seam."""
    right = seam.ours
    seam.ours = lambda *args, **kwargs: change(right(*args, **kwargs))


def estimate():
    return packing.estimate_prefix_tree_packed_tokens(iter(stub.tensors(SEQUENCES)), max_depth=4)


def check_shadow_raises_each_difference():
    report = art.install(shadow=True)
    seam = next(seam for seam in report.seams if seam.name == "packed tokens")
    broken(seam, lambda tokens: tokens + 1)
    for _ in range(5):
        with pytest.raises(art.Difference, match="packed tokens: result: 10 is not 9") as raised:
            estimate()
    copied = pickle.loads(pickle.dumps(raised.value))
    assert str(copied) == "packed tokens: result: 10 is not 9"


def check_shadow_logs_the_first_few_and_counts_all(caplog):
    report = art.install(shadow=True, on_difference="log")
    seam = next(seam for seam in report.seams if seam.name == "packed tokens")
    broken(seam, lambda tokens: tokens + 1)
    with caplog.at_level("ERROR", logger="waveplan.art"):
        assert [estimate() for _ in range(5)] == [9] * 5
    assert [*map(str, report.shadow.found)] == ["packed tokens: result: 10 is not 9"] * 3
    assert len(caplog.records) == 3
    assert "5 calls, 5 different" in str(report)
    assert "5 results equal, 5 different" in str(report)  # theirs calls the packing seam


def check_shadow_goes_on_with_the_originals_result():
    """A search ends as the original's whichever of the seams it can do without is broken."""
    rng = np.random.default_rng([271_828, 26])  # a pool that reaches every function
    sequences = draw_sequences(rng)
    case = draw_case(rng, sequences)
    wanted, *_ = wave.run(case, sequences)
    for wrong in ({"layout selection"}, None):  # without our layouts, none is packed
        report = art.install(shadow=True, on_difference="log")
        names = {seam.name for seam in report.seams}
        wrong = wrong or names - NEVER_BROKEN - {"layout selection"}
        for seam in report.seams:
            if seam.name in wrong:
                seam.ours = lambda *_, **__: "broken"
        found, *_ = wave.run(case, sequences)
        assert found == wanted
        stub.placed(*stub.packed_ids([3000, 200], [-1, 0]), 2)
        packing.prefix_tree_pack(stub.tensors(SEQUENCES), max_depth=3)
        packing.prefix_tree_pack_segments(SEQUENCES, max_depth=3)
        estimate()
        assert set(report.shadow.different) == wrong
        art.uninstall()


NEVER_BROKEN = {"canonical tree", "layout of a pack", "layout key"}
"""Seams whose values the others cannot do without."""


def check_environment_variable_installs_on_import():
    code = """
import sys
import waveplan
assert not any(name.startswith(("art", "torch")) for name in sys.modules), "heavy import"
from waveplan.bench import reference
reference.importable()
from art.trainer_rank import _impl
from waveplan.integrations import art
print(len(art.installed().seams))
"""
    for value, wanted in (("1", True), ("0", False)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "WAVEPLAN_ART": value},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) is wanted, done.stderr
