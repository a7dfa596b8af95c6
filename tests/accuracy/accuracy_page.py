"""docs/accuracy.md, written from the report over the public peaks."""

from __future__ import annotations

from waveplan.accuracy import report as reports
from waveplan.accuracy.report import CLASS_COLUMNS, RECORD_COLUMNS, TARGETS, Report
from waveplan.report.table import Table

_FEW = "a few hundred tokens: two first-call allowances of 64 MiB weigh more than they do"
_SMALL = "the allowance is one sum for all models; small ones hold 160 to 240 MB beside weights"
EXPLAINED = {
    "art-848-golden-27": "27 tokens: 474 MB of fixed first-use buffers, more than any rule charges",
    "art-recompute-csv-15": _FEW,
    "art-recompute-csv-36": _FEW,
    "art-recompute-csv-30": "if balanced just over: what is kept per routed token is a bound",
    "art-recompute-csv-14 (resident)": _SMALL,
    "art-recompute-csv-37 (resident)": _SMALL,
    "art-recompute-csv-12 (resident)": _SMALL,
    "art-recompute-csv-28 (resident)": "EP 4: between 0.63 and 1.96 GB beside the weights, by the "
    "calls before; the allowance is 2 GiB",
}
"""Why a record of the public collection is below parity or outside its class's target."""

_INTRODUCTION = (
    "Every public peak that we know, priced from its facts alone. A test writes this page and",
    "keeps it equal to the rules.",
    "",
    "- *estimate*: the sum of the rules over the observed peak; *required*: with the safety factor",
    "  of 1.10 and, in the default rules, the margin of rules outside where they were checked.",
    "  Below 1 the price is below what was measured.",
    "- Three figures are the least, the median and the largest ratio of a class.",
    "- *reference*: the same records with the rules of the reference planner.",
    "- *if balanced*: expert ranks get equal shares. The default assumes that they do not.",
    "- *resident*: weights, adapters and the allowance against what was allocated before a call.",
)


def markdown(report: Report) -> str:
    """The report as a page."""
    classes = [
        (*reports.class_figures(one), _target(one.name), ", ".join(one.below))
        for one in report.classes()
    ]
    records = [
        (
            *(row.id, row.model, row.ranks, row.state),
            f"{row.local_tokens:,}" if row.local_tokens else "",
            *reports.figures(row),
            "; ".join(row.assumed),
        )
        for row in report.ordered()
    ]
    class_head = ("class", "records", *CLASS_COLUMNS, "target", "below parity")
    head = ("record", "model", "ranks", "state", "local tokens", *RECORD_COLUMNS, "assumed")
    parts = ["# Accuracy", "\n".join(_INTRODUCTION), Table("", class_head, classes).markdown()]
    for title, rows in report.remarks():
        lines = [f"- `{row.id}`: {EXPLAINED[row.id]} ({reports.ratios(row)})." for row in rows]
        parts += [f"## {title[0].upper()}{title[1:]}", "\n".join(lines or ["None."])]
    unpriced = "\n".join(f"- `{one.id}`: {one.reason}." for one in report.unpriced)
    parts += ["## Records", Table("", head, records).markdown(), "## Not priced", unpriced]
    return "\n\n".join(parts) + "\n"


def _target(name: str) -> str:
    if name not in TARGETS:
        return ""
    kind, least, most = TARGETS[name]
    ratio = {"balanced": "required if balanced"}.get(kind, kind)
    return f"{ratio} from {least:.2f}" + (f" to {most:.2f}" if most < 100 else "")
