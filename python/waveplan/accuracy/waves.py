"""Records of waves that ran here: every fact and measure of a plan beside its observed peak.

One JSON object a wave, written by `record_of` and priced by `waveplan.accuracy.check`, under the
same rules to the byte as by the planner. What profiles have learned is left out, so that rules are
held against the peak, not the peak against itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from waveplan.checks import integer, mapping, text
from waveplan.errors import InputError
from waveplan.facts.model import Model
from waveplan.facts.topology import Sharding, Topology
from waveplan.facts.training import Training
from waveplan.pricing import Measures

if TYPE_CHECKING:
    from waveplan.plan import Plan

__all__ = ["Facts", "describes", "facts_of", "record_of"]

Facts = tuple[Model, Topology, Training]

VERSION = 1
_FACTS = ("model", "topology", "training", "measures")


def record_of(
    facts: Facts,
    plan: Plan,
    peak_bytes: int,
    resident_bytes: int | None,
    cold: bool | None,
    id: str | None,
) -> dict[str, Any]:
    """Return the record of a plan that ran, see `Planner.record`."""
    if plan.split or not plan.forwards:
        raise InputError(
            f"wave has {len(plan.forwards)} forwards: record one that ran as a single forward"
        )
    measures = plan.measures.to_dict()
    measures["plan"]["learned_bytes"] = 0
    if cold is not None:
        measures["plan"]["cold"] = int(cold)
    model, topology, training = facts
    made = {
        "id": text("id", plan.fingerprint[:12] if id is None else id),
        "record": "wave",
        "version": VERSION,
        "peak_bytes": integer("peak_bytes", peak_bytes, 1),
        "resident_bytes": resident_bytes
        if resident_bytes is None
        else integer("resident_bytes", resident_bytes, 1),
        "rules": plan.bound.rules.name,
        "model": model.to_dict(),
        "topology": asdict(topology),
        "training": asdict(training),
        "measures": measures,
    }
    plain: dict[str, Any] = json.loads(json.dumps(made))  # tuples are lists there
    return plain


def describes(record: Any) -> bool:
    """Return whether a record is one of these."""
    return isinstance(record, Mapping) and record.get("record") == "wave"


def facts_of(record: Mapping[str, Any]) -> tuple[Facts, Measures]:
    """Return the facts and measures of a record.

    Raises:
        InputError: it is of another version, or a fact or a measure is wrong; names it.
    """
    if record.get("version") != VERSION:
        raise InputError(f"version is {record.get('version')}: this waveplan reads {VERSION}")
    integer("peak_bytes", record.get("peak_bytes"), 1)
    model, topology, training, measures = (mapping(name, record.get(name)) for name in _FACTS)
    table = dict(topology)
    sharding = Sharding(**mapping("topology.sharding", table.pop("sharding", {})))
    if not measures["packs"]:
        raise InputError("measures.packs is empty: a wave has at least one pack")
    facts = Model(**model), Topology(**table, sharding=sharding), Training(**training)
    return facts, Measures.of(measures["plan"], measures["packs"])
