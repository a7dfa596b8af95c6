"""Megatron-LM's functional tests and records of other trainers: covered, close, never silent."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from conftest import HERE, ROOT

from waveplan.accuracy.check import check, read
from waveplan.accuracy.megatron import BACKENDS, backend
from waveplan.accuracy.report import STEP, Report, Row

TESTS = HERE / "data" / "megatron_tests.json.gz"
OTHERS = HERE / "data" / "other_trainers.json.gz"


@pytest.fixture(scope="module")
def tests() -> Report:
    return check(TESTS)


@pytest.fixture(scope="module")
def others() -> Report:
    return check(OTHERS)


def within(rows: list[Row], most: float) -> float:
    return sum(abs(row.estimate / row.observed - 1) <= most for row in rows) / len(rows)


def of_class(report: Report, name: str) -> list[Row]:
    return [row for row in report.rows if row.class_name == name]


@pytest.mark.parametrize(
    ("name", "most", "share"),
    [
        ("Megatron, dense, current platforms", 0.05, 0.88),
        ("Megatron, dense, current platforms", 0.10, 0.97),
        ("Megatron, dense, older platforms", 0.10, 0.90),
        ("Megatron, small MoE", 0.10, 0.88),
    ],
)
def test_estimates_are_close(tests: Report, name: str, most: float, share: float) -> None:
    assert within(of_class(tests, name), most) >= share


def test_required_is_seldom_below_a_peak(tests: Report) -> None:
    covered = [row for row in tests.rows if not row.uncharged]
    assert len(covered) >= 400
    assert sum(row.below for row in covered) <= 0.02 * len(covered)


def test_states_are_those_allocated(tests: Report) -> None:
    close = [
        row for row in tests.rows if abs((row.states or 0) / (row.states_observed or 1) - 1) <= 0.02
    ]
    assert len(close) >= 0.85 * len(tests.rows)


def test_what_is_not_priced_is_said(tests: Report) -> None:
    """Every test of a kind that no rule prices lists a rule as uncharged, or as unmeasured."""
    records = {record["id"]: record["args"] for record in read(TESTS)}
    for row in tests.rows:
        arguments = records[row.id]
        parts = {
            "fp8-format": "trainer.fp8",
            "cuda-graph-impl": "trainer.graphs",
            "fine-grained-activation-offloading": "trainer.offloaded_activations",
        }
        for argument, rule in parts.items():
            assert (rule in row.uncharged) == (argument in arguments)
        if arguments.get("optimizer") == "muon":
            assert "resident.optimizer" in row.uncharged


def test_json_has_what_the_api_names(tests: Report) -> None:
    row = next(row for row in tests.rows if row.unmeasured).to_dict()
    wanted = {"id", "class", "observed", "estimate", "required", "resident", "uncharged"}
    assert wanted | {"unmeasured", "note"} <= row.keys()
    assert row["required"] > row["estimate"] > row["resident"] > 0


def test_a_platform_that_differs_requires_the_worst() -> None:
    assert backend("lts_dgx_a100", "ampere") == ("flash", False)
    assert backend("dev_dgx_a100", "ampere") == ("flash", True)
    assert BACKENDS[-1][0] == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"world": None}, "world"),
        ({"peak_bytes": -1}, "peak_bytes is -1"),
        ({"args": {"num-layers": 2}}, "lack"),
        ({"args": {"wormhole": True}}, "--wormhole"),
        ({"world": 3}, "must be a multiple of"),
    ],
)
def test_bad_tests_are_listed(changes: dict[str, Any], reason: str) -> None:
    record = next(r for r in read(TESTS) if str(r["args"].get("tensor-model-parallel-size")) == "2")
    report = check([{**record, **changes}, record])
    assert [row.id for row in report.rows] == [record["id"]]
    assert reason in report.unpriced[0].reason


def test_slopes_over_tokens(others: Report) -> None:
    lines = {one.name: one.ratio for one in others.slopes() if not one.no_check}
    assert len(lines) == 7
    for name, ratio in lines.items():
        assert 0.9 <= ratio <= 1.1, name


@pytest.mark.parametrize(
    ("peaks", "reason"),
    [
        ((1, 2, 3), ""),
        ((1, 2, 4), ""),
        ((1, 2, 5), "no line"),
        ((2, 1, 5), "no line"),
        ((1, 2), "two records"),
    ],
)
def test_a_series_that_is_no_line_checks_nothing(peaks: tuple[int, ...], reason: str) -> None:
    one = next(r for r in read(OTHERS) if r["id"] == "qwen-readme-qwen-7b-lora-1024")
    records = [
        {
            **one,
            "tokens": {
                **one["tokens"],
                "global_packed": n,
                "per_rank_busiest": n,
                "lengths": f"{n}",
            },
            "observed": {"peak_bytes": peak * 10**10},
        }
        for n, peak in zip((1000, 2000, 3000), peaks, strict=False)
    ]
    assert [slope.no_check for slope in check(records).slopes()] == [reason]


def test_a_step_can_be_the_peak(others: Report) -> None:
    rows = [row for row in others.rows if STEP in row.assumed and not row.uncharged]
    assert len(rows) >= 8
    for row in rows:
        assert 0.85 <= row.estimate / row.observed <= 1.15, row.id


def test_levels_of_allocated_peaks(others: Report) -> None:
    rows = [row for row in others.rows if row.class_name == "other trainers, allocated"]
    for row in rows:
        if row.id.startswith(("litgpt", "torchtune")) and not row.uncharged:
            assert 0.85 <= row.estimate / row.observed <= 1.15, row.id


def test_the_page_of_accuracy_is_up_to_date(tests: Report, others: Report) -> None:
    spec = importlib.util.spec_from_file_location("accuracy_page", ROOT / "docs" / "accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page(check(HERE / "data" / "peaks.json"), tests, others)
    assert (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8") == page + "\n"
