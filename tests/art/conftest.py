"""Boots the published planner, installs ours, and prints the closing line of the lane."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(HERE), str(TESTS)]

import boot  # noqa: E402

boot.art()


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


def rows_of(given):
    """The rows of a golden case: listed, generated, or of a corpus."""
    import workloads

    if given.get("rows") is not None:
        return [np.asarray(row, dtype=np.int64) for row in given["rows"]]
    spec = given["spec"]
    if "corpus" not in spec:
        return workloads.make(spec)
    return corpus(spec["corpus"], spec["rows"])


def corpus(name, picked=None):
    """Rows of a corpus file."""
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
        seam.calls = seam.declined = 0
    return in_place


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    terminalreporter.ensure_newline()
    terminalreporter.write_line(f"{len(stats.get('passed', []))} passed, {failed} failed")
