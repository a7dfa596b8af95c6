"""Prices: rules bound to a model, a topology and a training mode, over a plan's measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from waveplan._core import Measures
from waveplan.checks import flag, instance
from waveplan.errors import DoubtfulError, InputError
from waveplan.facts.table import facts as facts_of
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training
from waveplan.pricing.bind import BoundRules, Compiler, Doubts, Status, bind
from waveplan.pricing.rules import default_rules, reference_rules, resident_rules
from waveplan.pricing.ruleset import Definition, Rule, RuleSet

if TYPE_CHECKING:
    from waveplan.facts.model import Model
    from waveplan.pricing.explain import Explanation

__all__ = [
    "BoundRules",
    "Definition",
    "Measures",
    "Price",
    "Rule",
    "RuleSet",
    "Status",
    "bind",
    "default_rules",
    "price",
    "reference_rules",
    "resident_rules",
    "rules_table",
]


@dataclass(frozen=True, eq=False)
class Price(Doubts):
    """The bytes that a plan needs on its busiest rank, and the rules in doubt behind them.

    Args:
        required: held against available memory: it has the safety factor in it, and the margin.
        estimate: before the safety factor.
        margin: the part of ``required`` that stands in for uncharged rules.
    """

    required: int
    estimate: int
    margin: int
    results: Mapping[str, int]
    bound: BoundRules = field(repr=False)
    measures: Measures = field(repr=False)

    def __str__(self) -> str:
        from waveplan.budget import format_bytes

        return (
            f"{format_bytes(self.required)} required, {format_bytes(self.estimate)} before the "
            f"safety factor, at the peak in {self.explanation.phase}"
        )

    @cached_property
    def doubtful(self) -> tuple[Status, ...]:
        """Rules that do not hold for the configuration of this plan (uncharged) or are charged
        where they are not checked (unmeasured), with reasons, as far as they matter: without their
        charge it would need other memory."""
        return self.bound.matter(self.measures)

    @cached_property
    def explanation(self) -> Explanation:
        """The tree of terms with bytes and binding branches."""
        from waveplan.budget import format_bytes
        from waveplan.pricing.explain import explain

        names = ", ".join(one.name for one in self.uncharged)
        notes = [f"{'uncharged':>12}   {names}"] if names else []
        if len(self.bound.compilers) > 1:
            notes.append(f"{'stage':>12}   {self.stage} of the pipeline needs the most")
        if self.margin:
            notes.append(f"{format_bytes(self.margin):>12}   margin for doubtful rules")
        return explain(self.bound, self.measures, self.results, notes)

    @property
    def stage(self) -> int:
        """The pipeline stage that needs it."""
        return self.bound.stage(self.measures)

    @property
    def terms(self) -> dict[str, int]:
        """Bytes by rule, where it counts most; rules that charged nothing are left out."""
        return self.explanation.terms()

    def explain(self) -> str:
        """The tree as text."""
        return self.explanation.text()

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON: totals, tree, and the rules in doubt."""
        return {
            "required": self.required,
            "estimate": self.estimate,
            "margin": self.margin,
            "stage": self.stage,
            "rules": self.bound.rules.name,
            "results": dict(self.results),
            **self.explanation.to_dict(),
            "doubtful": [
                {"rule": one.name, "state": one.state, "reason": one.reason}
                for one in self.doubtful
            ],
        }


def price(plan: Any, bound: BoundRules, *, strict: bool = False) -> Price:
    """Return the price of a plan (anything with ``measures``) or of `Measures`.

    Args:
        strict: refuse when a rule that matters to the plan is uncharged. Else the set `default`
            charges it as a visible margin, and `reference` nothing.

    Raises:
        DoubtfulError: ``strict`` and a rule is uncharged; the message says which and why.
        InputError: a size leaves 64 bits.
    """
    table = plan if isinstance(plan, Measures) else getattr(plan, "measures", None)
    if not isinstance(table, Measures):
        raise InputError("give a plan or waveplan.pricing.Measures to price()")
    flag("strict", strict)
    results = instance("bound", bound, BoundRules).results(table)
    totals = results["required"], results["estimate"], results["margin"]
    made = Price(*totals, results, bound, table)
    if strict and made.uncharged:
        raise DoubtfulError("; ".join(map(str, made.uncharged)))
    return made


def rules_table(
    model: Model | None = None,
    topology: Topology | None = None,
    training: Training | None = None,
    rules: RuleSet | None = None,
) -> list[dict[str, Any]]:
    """Return every rule with its formula and predicates, and for a job its state and reason."""
    rules = default_rules() if rules is None else instance("rules", rules, RuleSet)
    states: Mapping[str, Status] = {}
    if model is not None:
        topology = Topology() if topology is None else topology
        training = Training() if training is None else training
        states = Compiler(rules, facts_of(model, topology, training)).states
    table = []
    for name, rule in rules.rules.items():
        row: dict[str, Any] = {
            "name": name,
            "lives": rule.lives,
            **{part: str(rule.formula(part)) for part in ("bytes", "where", "checked", "applies")},
            "why": rule.why,
            "source": rule.source,
            "reference": None if rule.reference is None else dict(rule.reference),
        }
        if name in states:
            row.update(state=states[name].state, reason=states[name].reason)
        table.append(row)
    return table
