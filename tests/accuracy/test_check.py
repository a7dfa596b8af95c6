"""Prices compared with measured peaks: ratios kept as a table, exceptions listed by id."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from conftest import HERE, ROOT

from waveplan.accuracy.check import check, read
from waveplan.accuracy.records import job
from waveplan.accuracy.report import CLASSES, TARGETS, Report, cause
from waveplan.pricing import bind, price, reference_rules

DATA = HERE / "data"
TABLE = DATA / "peaks_table.json"
PAGE = ROOT / "docs" / "accuracy.md"


@pytest.fixture(scope="module")
def report() -> Report:
    return check(DATA / "peaks.json")


def _table(report: Report) -> dict[str, Any]:
    return {
        "classes": [one.to_dict() for one in report.classes()],
        "records": {
            row.id: [round(row.estimate / row.observed, 4), round(row.required_ratio, 4)]
            for row in report.rows
        },
    }


def test_ratios_are_those_of_the_table(report: Report) -> None:
    # A change of a rule shows here: WAVEPLAN_UPDATE=1 writes the new table, to be read in the diff.
    found = _table(report)
    if os.environ.get("WAVEPLAN_UPDATE"):
        TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(TABLE.read_text(encoding="utf-8"))
    assert found["records"] == expected["records"]
    assert found["classes"] == expected["classes"]


def test_every_record_is_priced_or_listed(report: Report) -> None:
    records = read(DATA / "peaks.json")
    priced = {row.id for row in report.rows}
    listed = {one.id for one in report.unpriced}
    assert {record["id"] for record in records} == {
        name for name in priced | listed if not name.endswith("(resident)")
    }
    assert not priced & listed
    assert all(one.reason for one in report.unpriced)
    assert len(records) == 103


def test_what_is_below_or_outside_is_explained(report: Report) -> None:
    found = [row for row in report.rows if row.below or not row.on_target]
    assert all(cause(row) != "unknown" for row in found if not row.series)
    increments = [row.id for row in report.below() if not row.series]
    assert increments == ["art-848-golden-27"]


def test_the_reference_price_is_the_published_one(report: Report) -> None:
    """The publishing tool's own estimate price, to the byte but for its rounding of features."""
    records = {record["id"]: record for record in read(DATA / "peaks.json")}
    compared = 0
    for row in report.rows:
        quoted = records.get(row.id, {}).get("predicted", {})
        predictor = quoted.get("predictor") or ""
        if not predictor.startswith(("#915 final estimator", "#922;")):
            continue
        # Its estimate price leaves the buffers of expert dispatch out.
        made = job(records[row.id])
        bound = bind(made.model, made.topology, made.training, reference_rules())
        buffers = price(made.measures, bound).results["buffers"]
        assert row.reference_estimate is not None
        assert row.reference_estimate - buffers - quoted["raw_bytes"] in (0, 1), row.id
        compared += 1
    assert compared == 42


def test_classes_and_targets(report: Report) -> None:
    summary = {one.name: one for one in report.classes()}
    assert list(summary) == [name for name in CLASSES if name in summary]
    assert "other" not in summary
    assert summary.keys() - TARGETS.keys() == {
        "selective or none, dense, 500 to 2,047 tokens",
        "other trainers, allocated",
    }
    for name in (*CLASSES[:2], *CLASSES[5:8]):
        assert not summary[name].outside
        assert not summary[name].below
    assert sum(len(one.rows) for one in summary.values()) == len(report.rows)


def test_ours_is_never_below_where_the_reference_is_not(report: Report) -> None:
    for name in CLASSES:
        rows = [row for row in report.rows if row.class_name == name and row.reference_required]
        ours = {row.id for row in rows if row.below}
        theirs = {row.id for row in rows if (row.reference_required or 0) < row.observed}
        assert ours <= theirs, name


def test_compiled_units_keep_less(report: Report) -> None:
    # The same model and 13,928 tokens: 24.21 GB eager (72), 19.05 GB compiled (22). The reference
    # price has one width for both.
    ratios = {row.id: row.estimate / row.observed for row in report.rows}
    for name in ("21", "22", "16", "72"):
        assert 0.97 <= ratios[f"art-recompute-csv-{name}"] <= 1.05


def test_busiest_ranks_are_those_stated(report: Report) -> None:
    # The ownership puts as many tokens on the busiest rank as the records say.
    assert not [row.id for row in report.rows if "as stated" in " ".join(row.assumed)]


def test_text_and_json(report: Report) -> None:
    text = report.text()
    assert "full recompute, dense, TP x SP" in text
    for row in report.rows:
        assert row.id in text
    for one in report.unpriced:
        assert f"{one.id}: {one.reason}" in text
    table = json.loads(json.dumps(report.to_dict()))
    assert table["version"] == 1
    assert len(table["records"]) == len(report.rows)
    assert {one["id"] for one in table["unpriced"]} == {one.id for one in report.unpriced}


def _record(**changes: Any) -> dict[str, Any]:
    record = next(r for r in read(DATA / "peaks.json") if r["id"] == "art-recompute-csv-44")
    return {**record, **changes}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory_kind": "a guess"}, "'a guess' is no figure"),
        ({"tag": "bound"}, "a bound of the tokens that fit"),
        ({"memory_kind": "reserved", "lacks": ["a TPU"]}, "no fact stands for a TPU"),
        ({"observed": {"peak_bytes": None}, "outcome": "OOM"}, "no peak"),
        ({"phase": "evaluation"}, "not a whole forward"),
        ({"model": "nothing", "geometry": {"hidden": 8}}, "the geometry lacks layers, heads"),
        ({"tokens": {"global_packed": None}}, "packed tokens are not stated"),
        ({"recompute": {"granularity": "per-chunk"}}, "recompute 'per-chunk'"),
        ({"tokens": {"global_packed": "many"}}, "malformed"),
        ({"topology": {"tp": "four"}}, "tp must be an integer"),
        ({"topology": {"tp": 5}}, "tp is 5: it must divide heads"),
        ({"lora_rank": -1}, "lora_rank is -1"),
    ],
)
def test_records_that_cannot_be_priced(changes: dict[str, Any], reason: str) -> None:
    report = check([_record(**changes)])
    assert not [row for row in report.rows if row.class_name != "resident"]
    assert reason in report.unpriced[0].reason


def test_geometry_is_compared_with_the_name() -> None:
    geometry = {**_record()["geometry"], "ffn": 17_409}
    report = check([_record(geometry=geometry)])
    assert "ffn is 17409 in the record and 17408" in report.unpriced[0].reason


def test_a_record_without_its_parts_is_listed_and_the_others_are_priced() -> None:
    good, bare = _record(), _record(id="bare")
    del bare["geometry"], bare["tokens"]
    report = check([bare, good, {**_record(), "id": 7}, None])
    assert [row.id for row in report.rows if row.class_name != "resident"] == [good["id"]]
    assert [(one.id, one.reason) for one in report.unpriced] == [
        ("bare", "it lacks geometry, tokens"),
        ("record 2", "it has no id"),
        ("record 3", "malformed: a NoneType, not an object with an id"),
    ]


@pytest.mark.parametrize("name", ["global_packed", "global_logical", "segments", "requests"])
@pytest.mark.parametrize("value", [10**30, 1 << 40, -1, 1.5])
def test_sizes_of_a_record_are_bounded(name: str, value: float) -> None:
    """A wrong number takes neither the machine's memory nor the other records with it."""
    record = next(r for r in read(DATA / "peaks.json") if r["id"] == "art-tpsp-tp4-cold")
    wrong = {**record, "tokens": {**record["tokens"], name: value}}
    report = check([wrong, record])
    assert [row.id for row in report.rows] == [record["id"]]
    assert name in report.unpriced[0].reason
