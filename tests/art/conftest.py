"""Load the reference planner, install ours, and print the last line of the lane."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(HERE), str(TESTS)]

from waveplan.bench import reference  # noqa: E402

reference.importable()


def cases(pattern):
    """(id, input, output) of the golden files of this name."""
    found = []
    for path in sorted((TESTS / "golden").glob(pattern)):
        for number, case in enumerate(json.loads(path.read_text())["cases"]):
            found.append(
                pytest.param(
                    case["input"], case["output"], id=f"{path.stem}-{case.get('id', number)}"
                )
            )
    assert found, f"no golden file {pattern}"
    return found


def sequences_of(given):
    """The sequences of a golden case: listed, generated, or of a corpus."""
    import workloads

    if given.get("rows") is not None:
        return [np.asarray(sequence, dtype=np.int64) for sequence in given["rows"]]
    spec = given["spec"]
    if "corpus" not in spec:
        return workloads.make(spec)
    return corpus(spec["corpus"], spec["rows"])


def corpus(name, picked=None):
    """Sequences of a corpus file."""
    with np.load(TESTS / "data" / name) as data:
        tokens, offsets = data["tokens"].astype(np.int64), data["offsets"]
    picked = range(len(offsets) - 1) if picked is None else picked
    return [tokens[offsets[i] : offsets[i + 1]] for i in picked]


@pytest.fixture(scope="module")
def in_place():
    """Ours in place for a whole module of tests."""
    from waveplan.integrations import art

    yield art.install()
    art.uninstall()


@pytest.fixture
def ours(in_place):
    """The report of ours in place, with fresh counts."""
    for seam in in_place.seams:
        seam.calls = seam.declined = seam.disagreed = seam.failed = 0
    return in_place


COUNTED = {
    "check_pack": "packing",
    "check_assign": "ownership",
    "check_gdn": "gdn decisions",
    "check_layout": "layouts",
    "check_wave": "width searches",
    "check_case": "odd cases",
    "check_pool": "random pools",
    "check_slots": "adapter slots",
    "check_tensor_parallel": "tensor parallel",
    "check_expert_parallel": "expert parallel",
    "check_two_processes": "processes",
    "check_rollouts": "rollouts",
}


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    passed, outcomes = stats.get("passed", []), Counter()
    equal = Counter(report.nodeid.partition("::")[2].partition("[")[0] for report in passed)
    for report in passed:
        outcomes.update(value for name, value in report.user_properties if name == "outcome")
    terminalreporter.ensure_newline()
    runs = [f"{name} {equal[check]}" for check, name in COUNTED.items() if equal[check]]
    terminalreporter.write_line(f"equal runs: {', '.join(runs)}")
    ways = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
    terminalreporter.write_line(f"outcomes of the random pools: {ways or 'none'}")
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    terminalreporter.write_line(f"{len(passed)} passed, {failed} failed")
