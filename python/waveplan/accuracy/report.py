"""Priced records of measured peaks: ratios, classes and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from waveplan.accuracy.megatron import DIFFER
from waveplan.report.table import Table

__all__ = ["CLASSES", "TARGETS", "ClassSummary", "Report", "Row", "Unpriced"]

CLASSES = (
    "full recompute, dense, TP x SP",
    "selective or none, dense, from 2,048 tokens",
    "selective or none, dense, 500 to 2,047 tokens",
    "selective or none, dense, below 500 tokens",
    "no gradient, MoE",
    "full recompute, MoE, warm",
    "full recompute, MoE, cold",
    "selective, MoE under EP, concentrated routing",
    "selective, MoE under EP, balanced routing",
    "resident",
    "Megatron, dense, current platforms",
    "Megatron, dense, older platforms",
    "Megatron, small MoE",
    "Megatron, large dropless MoE",
    "Megatron, parts that no rule prices",
    "other trainers, allocated",
    "other trainers, slack in the figure",
    "other",
    "own waves",
    "own waves, resident",
)
"""Classes of records, in the order of the table."""

_ANY = float("inf")
TARGETS = {
    CLASSES[0]: ("estimate", 1.0, 1.05),
    CLASSES[1]: ("estimate", 0.97, 1.05),
    CLASSES[3]: ("required", 1.0, 1.30),
    CLASSES[4]: ("required", 1.0, 1.16),
    CLASSES[5]: ("required", 1.0, 1.25),
    CLASSES[6]: ("required", 1.0, 1.35),
    CLASSES[7]: ("required", 1.0, _ANY),
    CLASSES[8]: ("balanced", 1.0, 1.30),
    CLASSES[9]: ("estimate", 0.99, 1.01),
}
"""Ratio that a class is held to, its least and largest value; "balanced": required at least 1,
and between the two if routing is taken to be balanced."""
RESIDENT_TP8 = 1.02


_PRICES = ("estimate", "required", "withheld", "reference_required", "balanced_required")
_RATIOS = (*_PRICES[:3], "reference_estimate", *_PRICES[3:])
_PLAIN = ("model", "ranks", "state", "local_tokens", "observed", "estimate", "required")
Span = tuple[float, float, float]
"""Least, median, largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One priced record; sizes in bytes."""

    id: str
    class_name: str
    """Its class, one of `CLASSES`."""
    model: str
    ranks: str
    state: str = ""
    local_tokens: int = 0
    """Of the busiest rank; 0 for resident bytes."""
    observed: int
    estimate: int
    required: int
    reference_estimate: int | None = None
    """By the reference rules; None for resident bytes."""
    reference_required: int | None = None
    balanced_required: int | None = None
    """Required if routing is balanced, for expert layers under EP."""
    withheld: int | None = None
    """Required, and the margin that a planner keeps back beside it while a rule is in doubt."""
    resident: int = 0
    """What of `observed`, `estimate` and `required` stays between waves; 0 of an increment."""
    states_observed: int | None = None
    """Bytes allocated after an optimizer step."""
    states: int | None = None
    """Their estimate."""
    uncharged: tuple[str, ...] = ()
    """Rules that charged nothing although they were needed."""
    unmeasured: tuple[str, ...] = ()
    """Rules that charged where they were not checked."""
    assumed: tuple[str, ...] = ()
    """Facts that the record does not state."""
    series: str = ""
    """What it shares with records of other tokens of the same job."""

    def ratio(self, price: str) -> float | None:
        """One of the prices over the observed peak, None where there is none."""
        value: int | None = getattr(self, price)
        return None if value is None else value / self.observed

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
        kind, least, most = TARGETS.get(self.class_name, ("", 0.0, _ANY))
        if self.class_name == "resident" and "TP 8" in self.ranks:
            most = RESIDENT_TP8
        ratio = self.ratio({"balanced": "balanced_required"}.get(kind, kind)) if kind else None
        if ratio is None:
            return True
        return least <= round(ratio, 3) <= most and (kind != "balanced" or self.required_ratio >= 1)

    def to_dict(self) -> dict[str, Any]:
        """Fields and ratios as plain JSON values."""
        return {
            "id": self.id,
            "class": self.class_name,
            **{name: getattr(self, name) for name in _PLAIN},
            **{f"{name}_ratio": _digits(self.ratio(name)) for name in _RATIOS},
            "below_parity": self.below,
            "resident": self.resident,
            "states_observed": self.states_observed,
            "states": self.states,
            "uncharged": list(self.uncharged),
            "unmeasured": list(self.unmeasured),
            "note": "; ".join(self.assumed),
        }


def cause(row: Row) -> str:
    """Return why a row is below parity or outside its target, as far as its own fields tell."""
    if OTHER_RULES in row.assumed:
        return OTHER_RULES
    if row.class_name == "own waves, resident":
        return "more is allocated between waves than the rules of what is resident charge"
    if row.class_name == "resident":
        return (
            "the allowance for expert buffers is one sum, whatever earlier calls keep"
            if "EP" in row.ranks
            else "the allowance for first use is one sum for all models; small ones hold less"
        )
    if 0 < row.local_tokens < FEW:
        if row.below:
            return (
                f"{row.local_tokens} tokens: buffers of a first use are more than any rule charges"
            )
        return f"{row.local_tokens} tokens: first-call allowances weigh more than they do"
    if row.balanced_required is not None:  # before what is uncharged: routing weighs more
        return "what is kept of a routed token is a bound, and routing decides how many there are"
    if row.uncharged:
        return f"no rule prices {', '.join(row.uncharged)} for it"
    if row.class_name.endswith("slack in the figure"):
        return "the figure holds slack of the allocator"
    if any(note.endswith(DIFFER) for note in row.assumed):
        return "the attention kernel is taken from a platform whose runs differ"
    if row.unmeasured:
        return f"charged beyond where it was measured: {', '.join(row.unmeasured)}"
    return "unknown"


FEW = 500
"""Tokens of a rank below which what a first call allocates counts."""


OTHER_RULES = "it was recorded under other rules than these: see --rules"
"""Note of a wave whose price was another when it ran."""
STEP = "the peak is the optimizer's step"
"""Note of a record whose figure says nothing of tokens."""
STRAIGHT = 2
"""Most that slopes between neighbours differ by, as a factor, on a series that is a line."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How estimate and observed peak grow over the tokens of records of one job."""

    name: str
    records: int
    observed: float
    """Bytes a token, from the fewest to the most tokens."""
    estimate: float
    spread: tuple[float, float]
    """Least and largest observed slope between neighbours: how straight the series is."""
    uncharged: tuple[str, ...] = ()
    """Rules that charged nothing although one of the records needs them."""

    @property
    def ratio(self) -> float:
        """Estimate over observed."""
        return self.estimate / self.observed

    @property
    def no_check(self) -> str:
        """Why its ratio checks no rule, as far as its own figures tell; empty where it does."""
        if self.uncharged:
            return f"{', '.join(self.uncharged)} uncharged"
        if self.records < 3:
            return "two records"
        least, largest = self.spread
        return "" if 0 < largest <= STRAIGHT * least else "no line"

    def to_dict(self) -> dict[str, Any]:
        """Fields and ratio as plain JSON values."""
        return {
            "series": self.name,
            "records": self.records,
            "observed": round(self.observed),
            "estimate": round(self.estimate),
            "spread": [round(slope) for slope in self.spread],
            "ratio": round(self.ratio, 4),
            "no_check": self.no_check,
        }


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A record that was not priced."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """The records of one class."""

    name: str
    rows: tuple[Row, ...]

    @property
    def below(self) -> tuple[str, ...]:
        """Records whose required price is below the peak."""
        return tuple(row.id for row in self.rows if row.below)

    @property
    def outside(self) -> tuple[str, ...]:
        """Records outside the class's target."""
        return tuple(row.id for row in self.rows if not row.on_target)

    def span(self, price: str) -> Span | None:
        """Least, median and largest ratio to the observed peaks; None where no record has it."""
        ratios = sorted(r for row in self.rows if (r := row.ratio(price)) is not None)
        return (ratios[0], median(ratios), ratios[-1]) if ratios else None

    def to_dict(self) -> dict[str, Any]:
        """Ratios rounded to four digits."""
        spans = {name: self.span(name) for name in _PRICES}
        return {
            "class": self.name,
            "records": len(self.rows),
            **{name: span and [round(value, 4) for value in span] for name, span in spans.items()},
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
        """The classes that have records, in the order of `CLASSES`."""
        made = [
            ClassSummary(name, tuple(row for row in self.rows if row.class_name == name))
            for name in CLASSES
        ]
        return [one for one in made if one.rows]

    def slopes(self) -> list[Slope]:
        """Series of records that differ in tokens alone, and whose peaks follow them."""
        series: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.series and STEP not in row.assumed:
                series.setdefault(row.series, []).append(row)
        made = []
        for rows in series.values():
            ordered = sorted(rows, key=lambda row: row.local_tokens)
            first, last = ordered[0], ordered[-1]
            tokens = last.local_tokens - first.local_tokens
            if tokens and last.observed > first.observed:
                name = f"{first.id} to {last.id}"
                steps = [
                    (b.observed - a.observed) / (b.local_tokens - a.local_tokens)
                    for a, b in pairwise(ordered)
                    if b.local_tokens > a.local_tokens
                ]
                observed = (last.observed - first.observed) / tokens
                estimate = (last.estimate - first.estimate) / tokens
                spread = min(steps), max(steps)
                lacking = tuple(dict.fromkeys(name for row in rows for name in row.uncharged))
                made.append(Slope(name, len(rows), observed, estimate, spread, lacking))
        return made

    def below(self) -> list[Row]:
        """Records whose required price is below the observed peak, lowest first."""
        return sorted((row for row in self.rows if row.below), key=lambda row: row.required_ratio)

    def to_dict(self) -> dict[str, Any]:
        """The report as stable JSON."""
        return {
            "version": 1,
            "rules": self.rules,
            "classes": [one.to_dict() for one in self.classes()],
            "records": [row.to_dict() for row in self.rows],
            "slopes": [one.to_dict() for one in self.slopes()],
            "unpriced": [{"id": one.id, "reason": one.reason} for one in self.unpriced],
        }

    def text(self) -> str:
        """The report as plain text, see `parts`."""
        return "\n\n".join(one if isinstance(one, str) else one.plain() for one in self.parts())

    def parts(self) -> list[Table | str]:
        """The answer; classes, records, what is below or outside, what is left."""
        classes = []
        for one in self.classes():
            name, number, *spans = class_figures(one)
            classes.append((number, *spans, len(one.below), name))
        records = [
            (*figures(row), f"{(row.estimate - row.observed) / 2**30:+.2f}", row.id)
            for row in self.ordered()
        ]
        every = f"{len(self.rows)} of {len(self.rows) + len(self.unpriced)} records"
        made: list[Table | str] = [
            f"{len(self.below())} of {len(self.rows)} prices are below the observed peak; {every} "
            f"are priced, by the rules {self.rules}; ratios are to the observed peak, of a class "
            "the least, the median and the largest",
        ]
        if records:
            made.append(_table(("n", *CLASS_COLUMNS, "below", "class"), classes))
            made.append(_table((*RECORD_COLUMNS, "gap GiB", "record"), records))
        parts: list[list[str]] = []
        for title, rows in self.remarks():
            if rows:
                lines = [f"  {row.id}: {ratios(row)}: {cause(row)}" for row in rows]
                parts.append([f"{title} ({len(rows)}):", *lines])
        if slopes := self.slopes():
            lines = [
                f"  {one.name}: {one.estimate:,.0f} of {one.observed:,.0f}, {one.ratio:.3f}"
                + (f" ({one.no_check})" if one.no_check else "")
                for one in slopes
            ]
            parts.append(["bytes a token, estimate of observed, over records of one job:", *lines])
        if self.unpriced:
            lines = [f"  {one.id}: {one.reason}" for one in self.unpriced]
            parts.append([f"not priced ({len(self.unpriced)}):", *lines])
        return [*made, *("\n".join(part) for part in parts)]

    def ordered(self) -> list[Row]:
        """All rows, by class."""
        return [row for one in self.classes() for row in one.rows]

    def remarks(self) -> list[tuple[str, list[Row]]]:
        """The rows below parity, those outside the target of their class, those of other rules."""
        outside = [row for row in self.rows if not row.on_target and not row.below]
        told = {row.id for row in (*self.below(), *outside)}
        other = [row for row in self.rows if OTHER_RULES in row.assumed and row.id not in told]
        return [
            ("below parity", self.below()),
            ("outside the target", outside),
            ("of other rules", other),
        ]


CLASS_COLUMNS = ("estimate", "required", "withheld", "reference required", "required if balanced")
OPTIONAL = ("reference required", "required if balanced", "withheld", "estimate GB", "gap GiB")
"""Columns that go where the terminal is narrow, the first first."""
RECORD_COLUMNS = (
    "observed GB",
    "estimate GB",
    "estimate",
    "required",
    "withheld",
    "reference required",
    "parity",
)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table without the columns that are empty."""
    kept = [at for at in range(len(head)) if any(str(row[at]) for row in rows)]
    head = [head[at] for at in kept]
    cells = [[row[at] for at in kept] for row in rows]
    optional = [name for name in OPTIONAL if name in head]
    return Table("", head, cells, right=head[:-1], optional=optional)


def _digits(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def class_figures(one: ClassSummary) -> tuple[object, ...]:
    """Return the cells of a class under its name, their number and `CLASS_COLUMNS`."""
    spans = [one.span(name) or () for name in _PRICES]
    return (one.name, len(one.rows), *(" / ".join(f"{v:.3f}" for v in span) for span in spans))


def figures(row: Row) -> tuple[str, ...]:
    """Return the cells of a record under `RECORD_COLUMNS`."""
    withheld, reference = row.ratio("withheld"), row.ratio("reference_required")
    return (
        f"{row.observed / 1e9:.2f}",
        f"{row.estimate / 1e9:.2f}",
        f"{row.ratio('estimate'):.3f}",
        f"{row.required_ratio:.3f}",
        f"{withheld:.3f}" if withheld else "",
        f"{reference:.3f}" if reference else "",
        "below" if row.below else "",
    )


def ratios(row: Row) -> str:
    """Return the ratios of a record as text."""
    text = f"estimate {row.ratio('estimate'):.3f}, required {row.required_ratio:.3f}"
    if row.balanced_required is None:
        return text
    return f"{text}, if balanced {row.balanced_required / row.observed:.3f}"
