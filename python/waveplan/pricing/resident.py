"""Bytes that stay allocated between waves, by the rules ``resident.*``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from waveplan._core import Measures
from waveplan.errors import InputError
from waveplan.facts.model import Model
from waveplan.facts.table import facts
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training
from waveplan.pricing.bind import Compiler, Status, program
from waveplan.pricing.language import parse
from waveplan.pricing.rules import resident_rules

if TYPE_CHECKING:
    from waveplan.pricing.ruleset import RuleSet

__all__ = ["KINDS", "Resident", "Term", "resident"]


KINDS = {
    "weights": (
        *("embeddings", "mixers", "mlp", "experts", "shared_experts", "norms", "mtp"),
        "saved_modules",
    ),
    "adapters": ("adapters",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer", "quantised_moments"),
    "libraries": ("blas", "engine", "grouped_products", "first_use", "hybridep_buffer"),
    "context": ("context", "collectives"),
}
"""Kinds of resident bytes, and the rules ``resident.*`` of each: what workspaces libraries hold,
and what CUDA and NCCL hold beside the allocator. Other rules are of the kind "other"."""
_KIND = {f"resident.{rule}": kind for kind, rules in KINDS.items() for rule in rules}


@dataclass(frozen=True, slots=True)
class Term:
    """One rule's charge."""

    name: str
    bytes: int
    why: str
    state: str
    """"charged", or "unmeasured": charged beyond where the rule was checked."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes not available to waves on the ranks of the fullest pipeline stage."""

    stage: int
    total: int
    allocated: int
    """Inside the framework's allocator; the rest is context, collectives, held buffers."""
    after_step: int
    """The same between an optimizer step and the next backward."""
    at_step: int
    """The same while an optimizer step runs, which no wave does beside it."""
    terms: tuple[Term, ...]
    uncharged: tuple[Status, ...] = ()
    """Rules that would be needed but are outside where they hold."""

    @property
    def kinds(self) -> dict[str, int]:
        """Bytes by kind, see `KINDS`; those that charge nothing are left out."""
        found = dict.fromkeys((*KINDS, "other"), 0)
        for term in self.terms:
            found[_KIND.get(term.name, "other")] += term.bytes
        return {kind: size for kind, size in found.items() if size}

    def to_dict(self) -> dict[str, Any]:
        """Totals and terms as plain JSON values."""
        return asdict(self)


def resident(
    model: Model,
    topology: Topology,
    training: Training,
    rules: RuleSet | None = None,
    stage: int | None = None,
) -> Resident:
    """Return the bytes that stay allocated between waves on the fullest pipeline stage.

    Args:
        stage: another stage than the fullest.
        rules: the rules of a job, or a set of rules over facts with the totals ``resident`` and
            ``resident_allocated``; by default `waveplan.pricing.resident_rules`.

    Raises:
        InputError: the topology cannot divide the model.
    """
    chosen = resident_rules() if rules is None else rules.resident or rules
    # Most stages are alike: one of each kind is enough.
    kinds: dict[tuple[int, ...], tuple[dict[str, int], int]] = {}
    for at in range(topology.pp) if stage is None else (stage,):
        table = facts(model, topology, training, at)
        kinds.setdefault(tuple(table.values()), (table, at))
    stages = (_stage(table, chosen, at) for table, at in kinds.values())
    return max(stages, key=lambda one: one.total)


def _stage(table: dict[str, int], rules: RuleSet, stage: int) -> Resident:
    compiler = Compiler(rules, table)
    states = compiler.states
    totals = ("resident", "resident_allocated", "after_step", "at_step")
    names = (*(name for name in totals if name in rules.definitions), *rules.rules)
    nodes = [compiler.compile(parse(name)) for name in names]
    for name, node in zip(names, nodes, strict=True):
        if compiler.value(node) is None:
            raise InputError(f"{name} depends on a plan: a resident rule may read facts only")
    made = program(compiler.nodes, nodes).evaluate(Measures.of())
    charges = made[-len(rules.rules) :]
    total, allocated = made[:2]
    terms = (
        Term(rule.name, charge, rule.why, states[rule.name].state)
        for rule, charge in zip(rules.rules.values(), charges, strict=True)
        if charge
    )
    after_step, at_step = made[2:4] if "at_step" in rules.definitions else (allocated, allocated)
    uncharged = tuple(one for one in states.values() if one.state == "uncharged")
    return Resident(stage, total, allocated, after_step, at_step, tuple(terms), uncharged)
