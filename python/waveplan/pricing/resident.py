"""Bytes that stay allocated between waves, by the rules ``resident.*``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from waveplan.errors import InputError
from waveplan.facts.model import Model
from waveplan.facts.table import facts, stages
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training
from waveplan.pricing.bind import Compiler, Status
from waveplan.pricing.rules import resident_rules

if TYPE_CHECKING:
    from waveplan.pricing.ruleset import RuleSet

__all__ = ["KINDS", "Resident", "Term", "resident", "resident_of"]


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

    def __str__(self) -> str:
        from waveplan.budget import format_bytes

        kinds = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in self.kinds.items())
        return f"{format_bytes(self.total)} resident: {kinds}"

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
    if stage is None:
        return resident_of(stages(model, topology, training), chosen)
    return resident_of({stage: facts(model, topology, training, stage)}, chosen)


def resident_of(stages: Mapping[int, Mapping[str, int]], rules: RuleSet) -> Resident:
    """`resident` from the facts of pipeline stages (see `waveplan.facts.table`)."""
    compilers: dict[int, Compiler] = {}
    for stage, table in stages.items():
        compilers[stage] = Compiler(rules, table, next(iter(compilers.values()), None))
    return max((_stage(stage, one) for stage, one in compilers.items()), key=lambda one: one.total)


def _stage(stage: int, compiler: Compiler) -> Resident:
    rules, states = compiler.rules, compiler.states

    def charge(name: str) -> int:
        value = compiler.value(compiler.named(name))
        if value is None:
            raise InputError(f"{name} depends on a plan: a resident rule may read facts only")
        return value

    charges = {name: charge(name) for name in rules.rules}
    total, allocated = charge("resident"), charge("resident_allocated")
    later = ("after_step", "at_step")
    after_step, at_step = (
        charge(name) if name in rules.definitions else allocated for name in later
    )
    terms = tuple(
        Term(name, size, rules.rules[name].why, states[name].state)
        for name, size in charges.items()
        if size
    )
    uncharged = tuple(one for one in states.values() if one.state == "uncharged")
    return Resident(stage, total, allocated, after_step, at_step, terms, uncharged)
