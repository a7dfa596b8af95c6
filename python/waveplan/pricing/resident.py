"""Bytes that stay allocated between waves, by the rules ``resident.*``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from waveplan._values import instance
from waveplan.budget import format_bytes
from waveplan.errors import InputError
from waveplan.facts import facts, stage_facts
from waveplan.model import Model
from waveplan.pricing.bind import Compiler, states_of
from waveplan.pricing.language import parse
from waveplan.pricing.rules import resident_rules
from waveplan.topology import Topology
from waveplan.training import Training

if TYPE_CHECKING:
    from waveplan.pricing.ruleset import RuleSet

ALLOWANCES = tuple(
    f"resident.{name}" for name in ("workspaces", "workspaces_ep", "context", "collectives")
)
"""Charges that no tensor accounts for."""

__all__ = ["Resident", "Term", "resident"]


@dataclass(frozen=True, slots=True)
class Term:
    """One rule's charge."""

    name: str
    bytes: int
    why: str
    measured: bool
    allowance: bool
    """A stated sum that no tensor accounts for."""


@dataclass(frozen=True, slots=True)
class Resident:
    """What is not free for waves on the ranks of the fullest pipeline stage, in bytes."""

    stage: int
    total: int
    allocated: int
    """Inside the framework's allocator; the rest is context, collectives, held buffers."""
    terms: tuple[Term, ...]

    @property
    def unmeasured(self) -> tuple[Term, ...]:
        """Charges that no record was held against."""
        return tuple(term for term in self.terms if not term.measured)

    def explain(self) -> str:
        """The terms as text, largest first."""
        lines = [f"resident on stage {self.stage}: {format_bytes(self.total)}"]
        for term in sorted(self.terms, key=lambda term: -term.bytes):
            mark = "" if term.measured else " (unmeasured)"
            name = term.name.removeprefix("resident.")
            lines.append(f"  {format_bytes(term.bytes):>12}  {name}: {term.why}{mark}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Totals and terms as plain JSON values."""
        made = asdict(self)
        return {**made, "terms": list(made["terms"])}


def resident(
    model: Model, topology: Topology, training: Training, rules: RuleSet | None = None
) -> Resident:
    """What stays allocated between waves on the fullest pipeline stage.

    Args:
        rules: a set of rules over facts with the totals ``resident`` and
            ``resident_allocated``; by default `waveplan.pricing.resident_rules`.

    Raises:
        InputError: the topology cannot divide the model.
    """
    chosen = rules if rules is not None else resident_rules()
    instance("topology", topology, Topology)
    common = facts(model, topology, training)
    # Most stages are alike: one of each kind is enough.
    kinds: dict[tuple[int, ...], int] = {}
    for stage in range(topology.pp):
        kinds.setdefault(tuple(stage_facts(model, topology, training, stage).values()), stage)
    stages = (
        _stage({**common, **stage_facts(model, topology, training, stage)}, chosen, stage)
        for stage in kinds.values()
    )
    return max(stages, key=lambda one: one.total)


def _stage(table: dict[str, int], rules: RuleSet, stage: int) -> Resident:
    states = states_of(rules, table)
    compiler = Compiler(rules, table, states)

    def value(name: str) -> int:
        found = compiler.value(compiler.compile(parse(name)))
        if found is None:
            raise InputError(f"{name} depends on a plan: a resident rule may read facts only")
        return found

    terms = []
    for name, rule in rules.rules.items():
        if charged := value(name):
            measured = states[name].state == "charged"
            terms.append(Term(name, charged, rule.why, measured, name in ALLOWANCES))
    return Resident(stage, value("resident"), value("resident_allocated"), tuple(terms))
