"""Compare prices with measured peaks.

>>> report = check("peaks.json")                                       # doctest: +SKIP
>>> print(report.text())                                               # doctest: +SKIP

Every record is priced from its facts alone: estimate is the rules' sum, required has the safety
factor. A ratio below 1 says that the price is below what was measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from waveplan.accuracy import megatron, waves
from waveplan.accuracy.records import Job, Unusable, figure_of, job, model_of, topology_of
from waveplan.accuracy.report import OTHER_RULES, STEP, Report, Row, Unpriced
from waveplan.budget import MARGIN
from waveplan.checks import integer
from waveplan.errors import InputError, one_line
from waveplan.facts.megatron import MegatronJob
from waveplan.facts.training import Training
from waveplan.files import read_json
from waveplan.pricing import Price, RuleSet, Status, bind, default_rules, price, reference_rules
from waveplan.pricing.resident import resident

__all__ = ["check", "read"]


def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a file: a JSON list, an object with ``records``, or an object a line.

    Raises:
        InputError: the file cannot be read, or is neither; names the line.
    """
    records = read_json(path, lines=True)
    if isinstance(records, dict):
        records = records.get("records", [records])
    if not isinstance(records, list):
        raise InputError(f"{path} must hold a list of records")
    return records


_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
_PARTS = ("geometry", "topology", "recompute", "tokens", "observed")


def check(
    records: str | os.PathLike[str] | Iterable[Mapping[str, Any]], rules: RuleSet | None = None
) -> Report:
    """Price every record of a file, or every record given.

    Args:
        rules: by default the default rules; the reference ones always stand beside them.

    Raises:
        InputError: the file cannot be read, or it holds no record at all.
    """
    chosen = rules if rules is not None else default_rules()
    table = read(records) if isinstance(records, str | os.PathLike) else list(records)
    rows: list[Row] = []
    unpriced: list[Unpriced] = []
    bases: set[tuple[Any, ...]] = set()
    if table and not any(isinstance(record, Mapping) and "id" in record for record in table):
        where = f"{records}: " if isinstance(records, str | os.PathLike) else ""
        raise InputError(
            f"{where}no record is an object with an id: this is no file of measured peaks"
        )
    for index, record in enumerate(table):
        name = _id(index, record)
        if lacking := _lacking(record):
            unpriced.append(Unpriced(name, lacking))
            continue
        record = {**record, "id": name}
        try:
            rows.append(_row(record, chosen))
        except (Unusable, InputError) as reason:
            unpriced.append(Unpriced(name, one_line(str(reason))))
        except _MALFORMED as error:
            unpriced.append(Unpriced(name, one_line(f"malformed: {error}")))
        if base := _resident(record, chosen, bases):
            rows.append(base)
    return Report(chosen.name, tuple(rows), tuple(unpriced))


def _id(index: int, record: Any) -> str:
    """Return the id of a record in the report."""
    if isinstance(record, Mapping) and isinstance(record.get("id"), str):
        return one_line(record["id"])
    return f"record {index}"


def _lacking(record: Any) -> str:
    """Return why a record cannot be read, or nothing."""
    if not isinstance(record, Mapping):
        return f"malformed: a {type(record).__name__}, not an object with an id"
    if not isinstance(record.get("id"), str):
        return "it has no id"
    if megatron.describes(record) or waves.describes(record):
        return ""
    parts = [part for part in _PARTS if not isinstance(record.get(part), Mapping)]
    return f"it lacks {', '.join(parts)}" if parts else ""


def _row(record: Mapping[str, Any], rules: RuleSet) -> Row:
    """Price a record of any kind."""
    if megatron.describes(record):
        return _test(record, rules)
    if waves.describes(record):
        return _priced(record, _own(record, rules), rules, record["peak_bytes"], "own waves")
    made = job(record, rules)
    if figure_of(record) != "increment":
        return _absolute(record, made, rules)
    observed = record["observed"]["peak_bytes"]
    return _priced(record, made, rules, observed, _group(record, made))


def _own(record: Mapping[str, Any], rules: RuleSet) -> Job:
    """Return the job of a record that a planner wrote."""
    facts, measures = waves.facts_of(record)
    made = measures.to_dict()
    packs, cold = made["packs"], bool(made["plan"]["cold"])
    gradient = any(pack["gradient"] for pack in packs)
    tokens = max(pack["local_tokens"] for pack in packs)
    notes = () if record.get("rules") == rules.name else (OTHER_RULES,)
    return Job(*facts, measures, gradient, cold, tokens, notes)


def _test(record: Mapping[str, Any], rules: RuleSet) -> Row:
    """Price a functional test of Megatron-LM: states and peak of its last pipeline stage."""
    made = megatron.test_of(record)
    job, stage = made.job, made.job.topology.pp - 1
    held = resident(job.model, job.topology, job.training, rules, stage)
    bound = bind(job.model, job.topology, job.training, rules, stage)
    ours = price(made.measures, bound)
    (stays,) = bound.values(made.measures, "stays")[stage]
    required = _withheld(ours, bool(held.uncharged))
    if made.worst is not None:
        worst = bind(job.model, job.topology, made.worst, rules, stage)
        required = max(required, _withheld(price(made.measures, worst), True))
    notes = [*made.assumed]
    if job.model.is_moe and job.topology.ep > 1:
        experts = ours.terms.get("kept.experts", 0)
        factor = megatron.routing_factor(
            record["peak_bytes"], held.allocated + ours.estimate, experts
        )
        if factor is not None:
            notes.append(f"equal shares of routed tokens; {factor:.2f} of them explain the peak")
    return Row(
        **_told(record, job, ours, held.uncharged),
        class_name=made.class_name,
        local_tokens=made.tokens,
        observed=record["peak_bytes"],
        estimate=held.allocated + ours.estimate,
        required=held.allocated + required,
        resident=held.allocated,
        states_observed=record["allocated_bytes"],
        states=held.after_step + stays,
        assumed=tuple(notes),
    )


def _told(
    record: Mapping[str, Any], job: Job | MegatronJob, ours: Price, held: tuple[Status, ...] = ()
) -> dict[str, Any]:
    """Return the fields of a row that all kinds of records have alike."""
    return {
        "id": record["id"],
        "model": job.model.name,
        "ranks": str(job.topology),
        "uncharged": tuple(state.name for state in (*ours.uncharged, *held)),
        "unmeasured": tuple(state.name for state in ours.unmeasured),
    }


def _withheld(ours: Price, doubt: bool) -> int:
    """Return what a planner must have for a price: the margin is kept back for what is not
    measured, or uncharged of what is resident; the price has that of its own uncharged rules."""
    if ours.unmeasured or doubt:
        return int(ours.required / (1 - MARGIN))
    return ours.required


def _priced(
    record: Mapping[str, Any], made: Job, rules: RuleSet, observed: int, class_name: str
) -> Row:
    bound = bind(made.model, made.topology, made.training, rules)
    ours = price(made.measures, bound)
    reference = price(
        made.measures, bind(made.model, made.topology, made.training, reference_rules())
    )
    balanced = None
    if made.model.is_moe and made.topology.ep > 1:
        training = replace(made.training, routing="balanced")
        balanced = price(made.measures, bind(made.model, made.topology, training, rules)).required
    return Row(
        **_told(record, made, ours),
        class_name=class_name,
        state="cold" if made.cold else "warm",
        local_tokens=made.local_tokens,
        observed=observed,
        estimate=ours.estimate,
        required=ours.required,
        reference_estimate=reference.estimate,
        reference_required=reference.required,
        balanced_required=balanced,
        withheld=_withheld(ours, doubt=False),
        assumed=made.assumed,
    )


def _absolute(record: Mapping[str, Any], made: Job, rules: RuleSet) -> Row:
    """Price a peak that holds what is resident."""
    ours = price(made.measures, bind(made.model, made.topology, made.training, rules))
    held = resident(made.model, made.topology, made.training, rules)
    slack = figure_of(record) == "slack"
    base = held.total if slack else held.allocated
    step = base + held.at_step - held.allocated
    if step > base + ours.estimate:
        made = replace(made, assumed=(*made.assumed, STEP))
    return Row(
        **_told(record, made, ours, held.uncharged),
        class_name=f"other trainers, {'slack in the figure' if slack else 'allocated'}",
        state="cold" if made.cold else "warm",
        local_tokens=made.local_tokens,
        observed=record["observed"]["peak_bytes"],
        estimate=max(step, base + ours.estimate),
        required=max(step, base + _withheld(ours, bool(held.uncharged))),
        resident=base,
        assumed=made.assumed,
        series=_series(record),
    )


def _series(record: Mapping[str, Any]) -> str:
    """Return what records have in common that differ in the length of one row, or in rows."""
    length, _, rows = str(record["tokens"].get("lengths")).partition("x")
    parts = (
        f"rows of {length}" if rows not in ("", "1") else "",
        *(record.get("trainer"), record.get("model"), record.get("lora_rank")),
        *(record.get("recompute"), record.get("topology"), record.get("lacks")),
        record.get("notes"),
    )
    return one_line(" ".join(str(part) for part in parts))


def _group(record: Mapping[str, Any], made: Job) -> str:
    """Return the class of a record."""
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
                if made.local_tokens >= least:
                    return f"selective or none, dense, {label} tokens"
            return "selective or none, dense, below 500 tokens"
    return "other"


def _resident(record: Mapping[str, Any], rules: RuleSet, seen: set[tuple[Any, ...]]) -> Row | None:
    """Return the row of resident bytes of a record, once for each model and ranks."""
    own = waves.describes(record)
    observed = record.get("resident_bytes" if own else "baseline_bytes")
    if not observed:
        return None
    try:
        if own:
            (model, topology, training), _ = waves.facts_of(record)
        else:
            model, topology = model_of(record), topology_of(record)
            # Records state the base before any backward; an unstated rank is a small one.
            training = Training(lora_rank=record.get("lora_rank") or 1, phase="forward")
        key = (model.name, topology)
        if key in seen:
            return None
        allocated = resident(model, topology, training, rules).allocated
        integer("malformed: what is resident", observed, 1)
    except (InputError, Unusable, *_MALFORMED):
        return None  # the record is listed for its peak already
    seen.add(key)
    return Row(
        id=f"{record['id']} (resident)",
        class_name="own waves, resident" if own else "resident",
        model=model.name,
        ranks=str(topology),
        observed=observed,
        estimate=allocated,
        required=allocated,
        assumed=() if own or record.get("lora_rank") else ("LoRA rank 1",),
    )
