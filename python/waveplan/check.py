"""Rules held against measured peaks.

>>> report = check("peaks.json")                                       # doctest: +SKIP
>>> print(report.text())                                               # doctest: +SKIP

Every record is priced from its facts alone: raw is the rules' sum, required has the safety
factor. A ratio below 1 says that the price is below what was measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from waveplan._files import read_json
from waveplan._values import integer
from waveplan.errors import InputError, one_line
from waveplan.evidence import Job, Unusable, job, model_of, topology_of
from waveplan.pricing import RuleSet, bind, default_rules, price, reference_rules
from waveplan.pricing.resident import resident
from waveplan.training import Training

__all__ = ["CLASSES", "TARGETS", "ClassSummary", "Report", "Row", "Unpriced", "check", "read"]

CLASSES = (
    "full recompute, dense, TP x SP",
    "selective or none, dense, from 2,048 rows",
    "selective or none, dense, 500 to 2,047 rows",
    "selective or none, dense, below 500 rows",
    "no gradient, MoE",
    "full recompute, MoE, warm",
    "full recompute, MoE, cold",
    "selective, MoE under EP, concentrated routing",
    "selective, MoE under EP, balanced routing",
    "resident",
    "other",
)
"""Classes of records, in the order of the table."""

_ANY = float("inf")
TARGETS = {
    CLASSES[0]: ("raw", 1.0, 1.05),
    CLASSES[1]: ("raw", 0.97, 1.05),
    CLASSES[3]: ("required", 1.0, 1.30),
    CLASSES[4]: ("required", 1.0, 1.16),
    CLASSES[5]: ("required", 1.0, 1.25),
    CLASSES[6]: ("required", 1.0, 1.35),
    CLASSES[7]: ("required", 1.0, _ANY),
    CLASSES[8]: ("balanced", 1.0, 1.30),
    CLASSES[9]: ("raw", 0.99, 1.01),
}
"""Ratio that a class is held to, its least and largest value; "balanced": required at least 1,
and between the two if routing is taken to be balanced."""
RESIDENT_TP8 = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One priced record; sizes in bytes."""

    id: str
    group: str
    """Its class, one of `CLASSES`."""
    model: str
    ranks: str
    state: str
    rows: int
    """Rows of the busiest rank; 0 for what is resident."""
    observed: int
    raw: int
    required: int
    published_raw: int | None = None
    """What the published rules say; None for what is resident."""
    published_required: int | None = None
    balanced_required: int | None = None
    """Required if routing is balanced, for expert layers under EP."""
    off: tuple[str, ...] = ()
    """Rules that charged nothing although they were needed."""
    assumed: tuple[str, ...] = ()
    """What the record does not state."""

    @property
    def raw_ratio(self) -> float:
        """Raw price over the observed peak."""
        return self.raw / self.observed

    @property
    def required_ratio(self) -> float:
        """Required over the observed peak."""
        return self.required / self.observed

    @property
    def below(self) -> bool:
        """The price with its safety factor is below what was measured."""
        return self.required < self.observed

    @property
    def on_target(self) -> bool:
        """Inside the target of its class."""
        if self.group not in TARGETS:
            return True
        kind, least, most = TARGETS[self.group]
        if self.group == "resident" and "TP 8" in self.ranks:
            most = RESIDENT_TP8
        if kind == "balanced":
            if self.balanced_required is None:
                return True
            return self.required_ratio >= 1 and (
                least <= round(self.balanced_required / self.observed, 3) <= most
            )
        ratio = self.raw_ratio if kind == "raw" else self.required_ratio
        return least <= round(ratio, 3) <= most

    def to_dict(self) -> dict[str, Any]:
        """Fields and ratios as plain JSON values."""
        return {
            "id": self.id,
            "class": self.group,
            "model": self.model,
            "ranks": self.ranks,
            "state": self.state,
            "rows": self.rows,
            "observed": self.observed,
            "raw": self.raw,
            "required": self.required,
            "raw_ratio": round(self.raw_ratio, 4),
            "required_ratio": round(self.required_ratio, 4),
            "published_raw_ratio": _ratio(self.published_raw, self.observed),
            "published_required_ratio": _ratio(self.published_required, self.observed),
            "balanced_required_ratio": _ratio(self.balanced_required, self.observed),
            "below_parity": self.below,
            "off": list(self.off),
            "assumed": list(self.assumed),
        }


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A record that was not priced."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSummary:
    """Ratios to the observed peaks of one class: (least, median, largest)."""

    name: str
    count: int
    raw: tuple[float, float, float]
    required: tuple[float, float, float]
    published_required: tuple[float, float, float] | None
    """None where the published planner has no price."""
    balanced_required: tuple[float, float, float] | None
    below: tuple[str, ...]
    """Records whose required price is below the peak."""
    outside: tuple[str, ...]
    """Records outside the class's target."""

    def to_dict(self) -> dict[str, Any]:
        """Ratios rounded to four digits."""

        def rounded(values: tuple[float, float, float] | None) -> list[float] | None:
            return None if values is None else [round(value, 4) for value in values]

        return {
            "class": self.name,
            "records": self.count,
            "raw": rounded(self.raw),
            "required": rounded(self.required),
            "published_required": rounded(self.published_required),
            "balanced_required": rounded(self.balanced_required),
            "below_parity": list(self.below),
            "outside_target": list(self.outside),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All records: priced rows, and those that were not priced with the reason."""

    rules: str
    rows: tuple[Row, ...]
    unpriced: tuple[Unpriced, ...]

    def classes(self) -> list[ClassSummary]:
        """Least, median and largest ratios of each class that has records."""
        made = []
        for name in CLASSES:
            rows = [row for row in self.rows if row.group == name]
            if not rows:
                continue
            balanced = [row for row in rows if row.balanced_required is not None]
            made.append(
                ClassSummary(
                    name=name,
                    count=len(rows),
                    raw=_spread(row.raw_ratio for row in rows),
                    required=_spread(row.required_ratio for row in rows),
                    published_required=_spread(
                        (row.published_required or 0) / row.observed for row in rows
                    )
                    if name != "resident"
                    else None,
                    balanced_required=_spread(
                        (row.balanced_required or 0) / row.observed for row in balanced
                    )
                    if balanced
                    else None,
                    below=tuple(row.id for row in rows if row.below),
                    outside=tuple(row.id for row in rows if not row.on_target),
                )
            )
        return made

    def below(self) -> list[Row]:
        """Rows whose required price is below the observed peak, lowest first."""
        return sorted((row for row in self.rows if row.below), key=lambda row: row.required_ratio)

    def to_dict(self) -> dict[str, Any]:
        """The report as stable JSON."""
        return {
            "version": 1,
            "rules": self.rules,
            "classes": [one.to_dict() for one in self.classes()],
            "records": [row.to_dict() for row in self.rows],
            "unpriced": [{"id": one.id, "reason": one.reason} for one in self.unpriced],
        }

    def text(self) -> str:
        """The report as plain tables."""
        from waveplan import _check_text

        return _check_text.text(self)

    def markdown(self) -> str:
        """The report as a page."""
        from waveplan import _check_text

        return _check_text.page(self)


def _ratio(value: int | None, observed: int) -> float | None:
    return None if value is None else round(value / observed, 4)


def _spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], median(ordered), ordered[-1]


def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a file.

    Raises:
        InputError: the file cannot be read or is no JSON list of records.
    """
    records = read_json(path)
    if not isinstance(records, list):
        raise InputError(f"{path} must hold a list of records")
    return records


_PARTS = ("geometry", "topology", "recompute", "tokens", "observed")


def check(
    records: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    rules: RuleSet | None = None,
) -> Report:
    """Price every record of a file, or every record given.

    Args:
        rules: by default the default rules; the published ones always stand beside them.

    Raises:
        InputError: the file cannot be read, or it holds no record at all.
    """
    chosen = rules if rules is not None else default_rules()
    table = read(records) if isinstance(records, str | os.PathLike) else list(records)
    rows: list[Row] = []
    unpriced: list[Unpriced] = []
    bases: set[tuple[Any, ...]] = set()
    if table and not any(isinstance(record, Mapping) and "id" in record for record in table):
        raise InputError("no record is an object with an id: this is no file of measured peaks")
    for index, record in enumerate(table):
        if lacking := _lacking(record):
            unpriced.append(Unpriced(_id(index, record), lacking))
            continue
        record = {**record, "id": one_line(record["id"])}
        try:
            rows.append(_priced(record, job(record, chosen), chosen))
        except (Unusable, InputError) as reason:
            unpriced.append(Unpriced(record["id"], one_line(str(reason))))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            unpriced.append(Unpriced(record["id"], one_line(f"malformed: {error}")))
        if base := _resident(record, bases):
            rows.append(base)
    return Report(chosen.name, tuple(rows), tuple(unpriced))


def _id(index: int, record: Any) -> str:
    """What a record is called in the report."""
    if isinstance(record, Mapping) and isinstance(record.get("id"), str):
        return one_line(record["id"])
    return f"record {index}"


def _lacking(record: Any) -> str:
    """What keeps a record from being read at all, or nothing."""
    if not isinstance(record, Mapping):
        return f"malformed: a {type(record).__name__}, not an object with an id"
    if not isinstance(record.get("id"), str):
        return "it has no id"
    parts = [part for part in _PARTS if not isinstance(record.get(part), Mapping)]
    return f"it lacks {', '.join(parts)}" if parts else ""


def _priced(record: Mapping[str, Any], made: Job, rules: RuleSet) -> Row:
    bound = bind(made.model, made.topology, made.training, rules)
    ours = price(made.measures, bound)
    published = price(
        made.measures, bind(made.model, made.topology, made.training, reference_rules())
    )
    balanced = None
    if made.model.is_moe and made.topology.ep > 1:
        training = replace(made.training, routing="balanced")
        balanced = price(made.measures, bind(made.model, made.topology, training, rules)).required
    return Row(
        id=record["id"],
        group=_group(record, made),
        model=made.model.name,
        ranks=str(made.topology),
        state="cold" if made.cold else "warm",
        rows=made.rows,
        observed=record["observed"]["peak_bytes"],
        raw=ours.raw,
        required=ours.required,
        published_raw=published.raw,
        published_required=published.required,
        balanced_required=balanced,
        off=tuple(state.name for state in ours.off),
        assumed=made.assumed,
    )


def _group(record: Mapping[str, Any], made: Job) -> str:
    """The class of a record."""
    full = made.training.recompute == "full"
    if made.model.is_moe:
        if not made.gradient:
            return "no gradient, MoE"
        if full:
            return f"full recompute, MoE, {'cold' if made.cold else 'warm'}"
        if made.topology.ep > 1:
            uneven = "concentrated" in str(record.get("trainer"))
            routing = "concentrated" if uneven else "balanced"
            return f"selective, MoE under EP, {routing} routing"
    elif made.gradient:
        if full and made.topology.sp in (2, 4):
            return "full recompute, dense, TP x SP"
        if not full:
            for least, label in ((2048, "from 2,048"), (500, "500 to 2,047")):
                if made.rows >= least:
                    return f"selective or none, dense, {label} rows"
            return "selective or none, dense, below 500 rows"
    return "other"


def _resident(record: Mapping[str, Any], seen: set[tuple[Any, ...]]) -> Row | None:
    """What was allocated before a call, once per model, ranks and size."""
    observed = record.get("baseline_bytes")
    if not observed:
        return None
    try:
        model, topology = model_of(record), topology_of(record)
        # Records state the base before any backward; an unstated rank is a small one.
        training = Training(lora_rank=record.get("lora_rank") or 1, phase="forward")
        key = (model.name, topology)
        if key in seen:
            return None
        made = resident(model, topology, training)
        integer("baseline_bytes", observed, 1)
    except (InputError, Unusable, TypeError):
        return None  # the record is listed for its peak already
    seen.add(key)
    return Row(
        id=f"{record['id']} (resident)",
        group="resident",
        model=model.name,
        ranks=str(topology),
        state="",
        rows=0,
        observed=observed,
        raw=made.allocated,
        required=made.allocated,
        assumed=() if record.get("lora_rank") else ("LoRA rank 1",),
    )
