"""Taking seams, giving them back, versions, shadow runs and the environment variable."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

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
from waveplan.integrations.art import _content as content
from waveplan.integrations.art import _search

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


def edit(monkeypatch, module, old, new):
    """Changes what is read as the source of a module of the package."""
    read = content.source

    def source(name):
        text = read(name)
        assert name != module or old in text
        return text.replace(old, new) if name == module else text

    monkeypatch.setattr(content, "source", source)


def check_local_builds_are_known_by_content(monkeypatch):
    """Another version number, comments and docstrings change nothing."""
    monkeypatch.setattr(art, "version", lambda: "0.6.0")
    edit(monkeypatch, "trainer_rank._memory", "def _memory_check(", "# ours\ndef _memory_check(")
    report = art.install()
    assert not report.refused
    assert report.summary == f"waveplan plans openpipe-art 0.6.0: {len(report.seams)} seams"


def check_changed_functions_are_refused_by_name(monkeypatch):
    """What stands on a changed definition is left alone, the rest is taken."""
    edit(monkeypatch, "trainer_rank._memory", "_HEAD_LABEL_BYTES = 32", "_HEAD_LABEL_BYTES = 33")
    before = held()
    report = art.install()
    search = "art.trainer_rank._impl.TrainerRank._search_next_micro_batch"
    assert report.refused[search] == "changed in trainer_rank._memory:_HEAD_LABEL_BYTES"
    assert "_HEAD_LABEL_BYTES" in str(report)
    assert search not in {seam.path for seam in report.seams}
    assert held()[0] is not before[0]
    assert not art.install(force=True).refused


def check_changed_parameters_are_never_answered(monkeypatch):
    def other(sequences, depth_limit=None):
        return sequences, depth_limit

    monkeypatch.setattr(planner, "build_canonical_prefix_tree", other)
    report = art.install(force=True)
    path = f"{planner.__name__}.build_canonical_prefix_tree"
    assert report.refused == {path: "has other parameters"}
    assert planner.build_canonical_prefix_tree is other


def check_a_package_of_other_functions_is_refused(monkeypatch):
    monkeypatch.setattr(content, "source", lambda _: "")
    with pytest.raises(InputError, match=r"other functions than those of 0\.5\.22 and 0\.5\.23"):
        art.install()
    assert art.installed() is None
    with pytest.raises(InputError, match="on_difference"):
        art.install(on_difference="ignore")


def check_functions_held_elsewhere_stay_good():
    """A function taken from the package while ours is in place, after ours is gone or new."""
    facts = {"cp_size": 2, "layers": 40, "uses_gdn": True, "refinement_work_budget": 2000}
    tensors = stub.tensors(SEQUENCES)

    def use(build, choose, pack):
        tree = build(tensors)
        layout = choose(tree, **facts).layout
        return pack(tensors, tree, layout, verify_shared_tokens=False).tokens.tolist()

    def taken():
        return (
            planner.build_canonical_prefix_tree,
            planner.select_prefix_tree_layout,
            _impl.materialize_prefix_tree_layout,
        )

    wanted = use(*taken())
    art.install()
    old = taken()
    seams = art.installed().seams
    assert use(*old) == wanted
    calls = sum(seam.calls for seam in seams)
    for change in (art.uninstall, art.install, art.install, lambda: art.install(shadow=True)):
        change()
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: use(*old), range(8)))
        assert found == [wanted] * 8
        assert use(*taken()) == wanted
    assert sum(seam.calls for seam in seams) == calls  # the old ones call the package
    # Values made under one installation are used under another, or none.
    tree = old[0](tensors)
    art.uninstall()
    assert tree == planner.build_canonical_prefix_tree(tensors)
    assert planner.select_prefix_tree_layout(tree, **facts).layout.packed_tokens == 14


HELD = """
import sys
sys.path[:0] = [{tests!r}]
from waveplan.bench import reference
reference.importable()
import rank as stub
from art.trainer_rank import _prefix_tree_planner as planner
from waveplan.integrations import art
tensors = stub.tensors([[1, 2, 3], [1, 2, 4]])
facts = dict(cp_size=2, layers=40, uses_gdn=True, refinement_work_budget=2000)
art.install()
build, choose = planner.build_canonical_prefix_tree, planner.select_prefix_tree_layout
for change in (art.uninstall, art.install, art.uninstall):
    tree = build(tensors)
    change()
    print(choose(build(tensors), **facts).layout.packed_tokens, choose(tree, **facts).score)
"""


def check_functions_held_elsewhere_stay_good_without_assertions():
    code = HELD.format(tests=str(Path(__file__).parent))
    outputs = []
    for options in ([], ["-O"]):
        command = [sys.executable, *options, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 3
    assert len(set(outputs[0])) == 1


def check_what_ours_cannot_do_goes_to_the_package(caplog):
    tensors = stub.tensors(SEQUENCES)
    facts = {"cp_size": 2, "layers": 40, "uses_gdn": True, "refinement_work_budget": 2000}
    plain = planner.build_canonical_prefix_tree(tensors)
    wanted = planner.select_prefix_tree_layout(plain, **facts)
    report = art.install()
    seam = next(seam for seam in report.seams if seam.name == "layout selection")
    ours = planner.build_canonical_prefix_tree(tensors)
    copied = dataclasses.replace(ours, sequence_lengths=tuple(ours.sequence_lengths))
    choice = planner.select_prefix_tree_layout(ours, **facts)
    replaced = dataclasses.replace(choice, discovery_tier=choice.discovery_tier)
    assert replaced.layout.fingerprint == wanted.layout.fingerprint
    with caplog.at_level("WARNING", logger="waveplan.art"):
        for tree in (copied, copied, plain):
            found = planner.select_prefix_tree_layout(tree, **facts)
            assert found.layout.fingerprint == wanted.layout.fingerprint
        right = seam.ours
        seam.ours = lambda *_, **__: 1 / 0
        for _ in range(3):
            assert planner.select_prefix_tree_layout(ours, **facts).score == wanted.score
        seam.ours = right
        with pytest.raises(TypeError):
            planner.select_prefix_tree_layout(ours, unknown=1, **facts)
        rank = stub.planning_rank()
        with pytest.raises(ValueError, match="unpack"):
            rank._compute_group_layout(tensors, ("content", None, "full_sharing", "fourth"))
    assert (seam.declined, seam.failed) == (4, 3)
    assert "4 left to the original, 3 failed" in str(report)
    logged = [record for record in caplog.records if "layout selection" in record.getMessage()]
    assert len(logged) == 1
    assert logged[0].exc_info


def check_absent_function_is_reported(monkeypatch):
    monkeypatch.delattr(packing, "prefix_tree_pack_segments")
    report = art.install()
    assert report.absent == (f"{packing.__name__}.prefix_tree_pack_segments",)
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
    return wave.search(rank, made, watch=False)


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
        packing.prefix_tree_pack_segments(SEQUENCES, max_depth=3)
        estimate()
        search(SEQUENCES, 1)
        assert set(report.shadow.different) == wrong
        art.uninstall()


@pytest.mark.parametrize("cp", [1, 2])
@pytest.mark.parametrize("what", ["head tokens", "busiest rank", "pack", "fingerprints"])
def check_shadow_compares_the_whole_wave(monkeypatch, what, cp):
    """What a confirmed plan takes from our search is compared with what the package makes."""
    right = _search.chosen

    def wrong(pack, tokens):
        tree, layout = right(pack, [one.copy() for one in tokens])
        if what == "pack":
            tree._tokens[0][0] += 1
        if what == "fingerprints":
            object.__setattr__(tree, "row_fingerprints", ("other",) * len(tokens))
        return tree, layout

    report = art.install(shadow=True, on_difference="log")
    assert search(SEQUENCES, cp)["width"] == 4
    assert not report.shadow.found
    if what in ("pack", "fingerprints"):
        monkeypatch.setattr(_search, "chosen", wrong)
    else:
        made = _search.Proposal.__init__
        names = ("tree", "shared", "depth", "requests", "head_tokens", "local_tokens")
        wrong_name = "head_tokens" if what == "head tokens" else "local_tokens"

        def miscounted(proposal, *args):
            made(proposal, *args)
            packs = [
                {name: getattr(pack, name) + (name == wrong_name) for name in names[4:]}
                | {name: getattr(pack, name) for name in names[:4]}
                for part in proposal.wave
                for pack in part.packs
            ]
            proposal.wave = [SimpleNamespace(packs=[SimpleNamespace(**pack) for pack in packs])]

        monkeypatch.setattr(_search.Proposal, "__init__", miscounted)
    search(SEQUENCES, cp)
    (found,) = report.shadow.found
    assert str(found).startswith(f"width search: pack 0[{what!r}]")


NEVER_BROKEN = {"canonical tree", "layout of a pack", "layout key"}
"""Seams whose values the others cannot do without."""


IMPORT = """
import sys
assert "waveplan" not in sys.modules and "torch" not in sys.modules, "heavy start"
from waveplan.bench import reference
reference.importable()
import logging
logging.basicConfig(level="INFO", format="log: %(message)s")
{before}
from art.trainer_rank import _impl
report = sys.modules["waveplan.integrations.art"].installed()
print("shadow" if report and report.shadow else "plain" if report is None else len(report.seams))
"""


def started(value, before=""):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(before=before)],
        env={**os.environ, "WAVEPLAN_ART": value},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1], [
        line for line in done.stderr.splitlines() if "waveplan" in line and "Warning" not in line
    ]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        *(("1", "17"), ("true", "17"), ("ON", "17"), ("shadow", "shadow")),
        *(("0", "plain"), ("false", "plain"), ("off", "plain"), ("", "plain")),
        ("yes", "plain"),
    ],
)
def check_environment_variable(value, wanted):
    found, lines = started(value, "import waveplan.integrations.art")
    assert found == wanted
    if value == "yes":
        (line,) = lines
        assert line.startswith("waveplan: WAVEPLAN_ART=yes is none of 1, true or on; 0, false")
    else:
        assert len(lines) == (wanted != "plain")
        assert all(line.startswith("log: waveplan plans openpipe-art 0.5.23") for line in lines)


def check_probes_and_failed_imports_do_not_disarm():
    """Nor does a version whose functions are others break the import."""
    before = """
import importlib.util
assert importlib.util.find_spec("art.trainer_rank") is not None
pydantic, sys.modules["torch"] = sys.modules.get("torch"), None
try:
    import art.trainer_rank
except ImportError:
    pass
else:
    raise AssertionError("torch is there")
del sys.modules["torch"]
for name in [name for name in sys.modules if name.startswith("art.trainer_rank")]:
    del sys.modules[name]
"""
    assert started("1", before)[0] == "17"
    other = """
from waveplan.integrations.art import _content
_content.source = lambda _: ""
"""
    found, (line,) = started("1", other)
    assert found == "plain"
    assert line.startswith("log: waveplan leaves ART alone: openpipe-art 0.5.23 plans by other")


def check_a_package_that_cannot_be_imported_is_one_line():
    code = "from waveplan.integrations import art; art.install()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    (line,) = [line for line in done.stderr.splitlines() if "openpipe-art" in line]
    assert line.startswith("ImportError: openpipe-art cannot be imported here: ")
    assert "During handling" not in done.stderr
    assert "direct cause" not in done.stderr


def check_spawned_processes_have_it():
    """Through the wheel's .pth file, in an interpreter that imports the package first."""
    code = "import sys; print('_waveplan_art' in sys.modules, 'waveplan' in sys.modules)"
    for value, wanted in (("1", "True False"), ("0", "True False"), (None, "False False")):
        env = {key: of for key, of in os.environ.items() if key != "WAVEPLAN_ART"}
        env |= {} if value is None else {"WAVEPLAN_ART": value}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.stdout.strip() == wanted
