"""Prices: rules bound to a model, a topology and a training mode, over a plan's measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waveplan._core import PRICE_ROOTS, Program
from waveplan._values import entries, flag, instance, integer, mapping, present, real, shown
from waveplan.errors import InputError, UnpricedError
from waveplan.facts import facts as facts_of
from waveplan.rows import integers
from waveplan.rules import names
from waveplan.rules.compile import Compiler, Node, Status, status
from waveplan.rules.language import Expr
from waveplan.rules.totals import ROOT_TOTALS

if TYPE_CHECKING:
    from waveplan.model import Model
    from waveplan.rules.explain import Explanation, Shared
    from waveplan.rules.ruleset import RuleSet
    from waveplan.topology import Topology
    from waveplan.training import Training

__all__ = ["BoundRules", "Measures", "Price", "bind", "bind_facts", "price", "rules_table"]

_WITHOUT_MARGIN = {"raw", "static", "output", "segment_layer_bytes"}
_FACT_RANGES = {
    **dict.fromkeys(("hidden", "layers", "dp", "tp", "cp", "pp", "ep", "etp", "dtype_bytes"), 1),
}


@dataclass(frozen=True, eq=False)
class Measures:
    """What a price depends on: integers of a plan and of each of its groups.

    Args:
        plan: int64[P], in the order of `waveplan.rules.names.PLAN`.
        groups: int64[g, G], one row a group, in the order of `waveplan.rules.names.GROUP`.
    """

    plan: NDArray[np.int64]
    groups: NDArray[np.int64]

    def __post_init__(self) -> None:
        plan = integers("plan", self.plan)
        if len(plan) != len(names.PLAN):
            raise InputError(f"plan has {len(plan)} measures: it must have {len(names.PLAN)}")
        groups = self.groups
        if not isinstance(groups, np.ndarray) or groups.shape[1:] != (len(names.GROUP),):
            raise InputError(
                f"groups is {shown(groups)}: it must be an array of {len(names.GROUP)} measures "
                "a row"
            )
        present("groups", groups)
        groups = integers("groups", groups.reshape(-1)).reshape(groups.shape)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "groups", groups)

    @classmethod
    def of(
        cls, plan: Mapping[str, int] | None = None, groups: Sequence[Mapping[str, int]] = ()
    ) -> Measures:
        """From names; what is not named is 0, except ``cold``, which is 1."""
        table = np.zeros(len(names.PLAN), dtype=np.int64)
        _fill(table, names.PLAN, {"cold": 1, **mapping("plan", {} if plan is None else plan)})
        given = [mapping("groups", group) for group in entries("groups", groups)]
        rows = np.zeros((len(given), len(names.GROUP)), dtype=np.int64)
        for row, values in zip(rows, given, strict=True):
            _fill(row, names.GROUP, values)
        return cls(table, rows)

    def to_dict(self) -> dict[str, Any]:
        """Measures by name, as plain integers."""
        return {
            "plan": dict(zip(names.PLAN, self.plan.tolist(), strict=True)),
            "groups": [dict(zip(names.GROUP, row, strict=True)) for row in self.groups.tolist()],
        }


def _fill(row: NDArray[np.int64], known: Mapping[str, str], values: Mapping[str, int]) -> None:
    index = {name: i for i, name in enumerate(known)}
    for name, value in values.items():
        if name not in index:
            raise InputError(f"no measure {shown(name)}: {names.suggest(str(name), index)}")
        row[index[name]] = integer(name, value)


@dataclass(frozen=True, eq=False)
class BoundRules:
    """Rules with every fact folded in: a program for the core, and what is off and why.

    Args:
        program: evaluates measures to the results named in `waveplan._core.PRICE_ROOTS`.
        off: rules outside their coverage, charged 0, with the reason.
        unmeasured: rules charged where they are not measured.
    """

    rules: RuleSet
    facts: Mapping[str, int]
    states: Mapping[str, Status]
    program: Program
    doubtful: tuple[str, ...] = ()
    """Rules off or unmeasured; what they would charge follows the named results."""

    @cached_property
    def shared(self) -> Shared:
        """What explanations of this configuration share."""
        from waveplan.rules.explain import Shared

        return Shared(self)

    @property
    def off(self) -> tuple[Status, ...]:
        """Rules that would be needed but are outside their coverage."""
        return tuple(state for state in self.states.values() if state.state == "off")

    @property
    def unmeasured(self) -> tuple[Status, ...]:
        """Rules charged outside what is measured."""
        return tuple(state for state in self.states.values() if state.state == "unmeasured")

    @property
    def measured(self) -> bool:
        """Every needed rule is charged, and measured here."""
        return not self.off and not self.unmeasured

    def results(self, measures: Measures) -> dict[str, int]:
        """The named results over one plan, in bytes (``unpriced`` is a number of rules)."""
        values = self.evaluate(measures)
        return dict(zip(PRICE_ROOTS, values[: len(PRICE_ROOTS)], strict=True))

    def evaluate(self, measures: Measures) -> list[int]:
        """All results: those named, then what each of ``doubtful`` would charge."""
        groups = instance("measures", measures, Measures).groups.reshape(-1)
        return self.program.evaluate(measures.plan, groups, len(names.GROUP))


@dataclass(frozen=True, eq=False)
class Price:
    """What a plan costs on its busiest rank, in bytes, and what that number leaves out.

    Args:
        required: held against free memory: it has the safety factor in it, and the margin.
        raw: before the safety factor.
        margin: the part of ``required`` that stands in for rules that are off.
        off: rules that matter to this plan but do not cover its configuration: they charged
            nothing, and say why.
        unmeasured: rules that matter and are charged where they are not measured.
    """

    required: int
    raw: int
    margin: int
    off: tuple[Status, ...]
    unmeasured: tuple[Status, ...]
    results: Mapping[str, int]
    bound: BoundRules = field(repr=False)
    measures: Measures = field(repr=False)

    @property
    def priced(self) -> bool:
        """False if a rule that matters is off: the number then rests on a margin, or less."""
        return not self.off

    @cached_property
    def explanation(self) -> Explanation:
        """The tree of terms with bytes and binding branches."""
        from waveplan.rules.explain import explain

        return explain(self)

    @property
    def terms(self) -> dict[str, int]:
        """Bytes by rule, where it counts most; rules that charged nothing are left out."""
        return self.explanation.terms()

    def explain(self) -> str:
        """The tree as text."""
        return self.explanation.text()

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON: totals, tree, and what is off."""
        return {
            "required": self.required,
            "raw": self.raw,
            "margin": self.margin,
            "rules": self.bound.rules.name,
            "results": dict(self.results),
            **self.explanation.to_dict(),
            "off": [{"name": state.name, "reason": state.reason} for state in self.off],
            "unmeasured": [
                {"name": state.name, "reason": state.reason} for state in self.unmeasured
            ],
        }


def bind(
    model: Model, topology: Topology, training: Training, rules: RuleSet | None = None
) -> BoundRules:
    """Folds the facts of a job into rules (by default the default rules).

    Raises:
        InputError: the topology cannot divide the model, or a formula cannot be computed.
    """
    return bind_facts(facts_of(model, topology, training), rules)


def bind_facts(facts: Mapping[str, int], rules: RuleSet | None = None) -> BoundRules:
    """`bind` from a table of facts (see `waveplan.facts.facts`)."""
    rules = _rules(rules)
    mapping("facts", facts)
    for name in names.fact_names():
        value = facts.get(name)
        if type(value) is not int:
            raise InputError(f"fact {name} is {shown(value)}: it must be an integer")
        if not _FACT_RANGES.get(name, 0) <= value < 1 << 62:
            least = _FACT_RANGES.get(name, 0)
            raise InputError(f"fact {name} is {shown(value)}: it must be from {least} to 2**62")
    states = {name: status(rules, rule, facts) for name, rule in rules.rules.items()}
    compiler = Compiler(rules, facts, states)
    doubtful = [name for name, state in states.items() if state.state in ("off", "unmeasured")]
    roots, watched = _roots(compiler, doubtful)
    program = _program(compiler.nodes, [*roots, *watched])
    return BoundRules(rules, dict(facts), states, program, tuple(doubtful))


def _rules(rules: RuleSet | None) -> RuleSet:
    """The rules given, or the default ones."""
    from waveplan.rules import RuleSet, default_rules

    return default_rules() if rules is None else instance("rules", rules, RuleSet)


def _roots(compiler: Compiler, doubtful: Sequence[str]) -> tuple[list[int], list[int]]:
    """Nodes of the named results, then of what each doubtful rule would charge."""
    rules = compiler.rules
    at = Expr("const", value=0)

    def total(of: Compiler, name: str) -> int:
        return of.compile(rules.definitions[name].formula)

    assumed = compiler.as_if()
    watched = []
    for name in doubtful:
        node = assumed.compile(rules.rules[name].formula)
        if rules.kinds[name].free:
            node = compiler.emit("max_groups", (node,))
        watched.append(node)
    nodes = {root: total(compiler, name) for root, name in ROOT_TOTALS.items()}
    nodes["margin"] = compiler.const(0)
    if rules.margin and doubtful:
        plain = nodes["required"]
        for root, name in ROOT_TOTALS.items():
            if root in _WITHOUT_MARGIN:
                continue
            nodes[root] = compiler.binary("max", nodes[root], total(assumed, name), at)
        # A difference of two results follows the results.
        ladder = compiler.binary(
            "max", total(compiler, "ladder_required"), total(assumed, "ladder_required"), at
        )
        nodes["peak_increment"] = compiler.binary("-", ladder, nodes["forward_required"], at)
        nodes["margin"] = compiler.binary("-", nodes["required"], plain, at)
    nodes["unpriced"] = _unpriced(compiler, doubtful, watched, nodes["margin"])
    return [nodes[root] for root in PRICE_ROOTS], watched


def _unpriced(
    compiler: Compiler, doubtful: Sequence[str], watched: Sequence[int], margin: int
) -> int:
    """How many doubtful rules matter: unmeasured ones that charge; off ones that would charge
    and, where the set states a margin, would raise the price."""
    at = Expr("const", value=0)
    one, counts = compiler.const(1), {"off": compiler.const(0), "unmeasured": compiler.const(0)}
    for name, node in zip(doubtful, watched, strict=True):
        state = compiler.states[name].state
        charges = compiler.binary("min", one, node, at)
        counts[state] = compiler.binary("+", counts[state], charges, at)
    if compiler.rules.margin:
        raises = compiler.binary("min", one, margin, at)
        counts["off"] = compiler.binary("*", counts["off"], raises, at)
    return compiler.binary("+", counts["off"], counts["unmeasured"], at)


def _program(nodes: Sequence[Node], roots: Sequence[int]) -> Program:
    """The nodes that the results need, as a program for the core."""
    factors: list[float] = []
    table: list[tuple[str, list[int]]] = []
    place: dict[int, int] = {}
    for index in sorted(_reached(nodes, roots)):
        node = nodes[index]
        leaf = node.op in ("const", "plan", "group")
        args = list(node.args) if leaf else [place[arg] for arg in node.args]
        if node.op == "scale":
            args.append(len(factors))
            factors.append(node.factor)
        place[index] = len(table)
        table.append((node.op, args))
    return Program(table, factors, [place[root] for root in roots])


def _reached(nodes: Sequence[Node], roots: Sequence[int]) -> set[int]:
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        if nodes[index].op not in ("const", "plan", "group"):
            todo.extend(nodes[index].args)
    return seen


def price(
    plan: Any, bound: BoundRules, *, strict: bool = False, margin: float | None = None
) -> Price:
    """The price of a plan (anything with ``measures``) or of `Measures`.

    Args:
        strict: refuse when a rule that matters to the plan is off.
        margin: fraction of ``required`` to add when one is off; by default what the rule set
            states: nothing (`published`), or what those rules would charge (`default`).

    Raises:
        UnpricedError: ``strict`` and a rule is off; the message says which and why.
        InputError: a size leaves 64 bits.
    """
    table = plan if isinstance(plan, Measures) else getattr(plan, "measures", None)
    if not isinstance(table, Measures):
        raise InputError("give a plan or waveplan.pricing.Measures to price()")
    flag("strict", strict)
    if margin is not None:
        margin = real("margin", margin, 0, 10)
    values = instance("bound", bound, BoundRules).evaluate(table)
    results = dict(zip(PRICE_ROOTS, values[: len(PRICE_ROOTS)], strict=True))
    charges = zip(bound.doubtful, values[len(PRICE_ROOTS) :], strict=True)
    matter = [bound.states[name] for name, charge in charges if charge > 0]
    off = tuple(state for state in matter if state.state == "off")
    if strict and off:
        raise UnpricedError("; ".join(str(state) for state in off))
    required, extra = results["required"], results["margin"]
    if margin is not None and off:
        required -= extra
        extra = int(required * margin)
        required += extra
    return Price(
        required,
        results["raw"],
        extra,
        off,
        tuple(state for state in matter if state.state == "unmeasured"),
        results,
        bound,
        table,
    )


def rules_table(
    model: Model | None = None,
    topology: Topology | None = None,
    training: Training | None = None,
    rules: RuleSet | None = None,
) -> list[dict[str, Any]]:
    """Every rule with its formula and coverage, and for a given job on or off and why."""
    rules = _rules(rules)
    facts = None
    if model is not None:
        from waveplan.topology import Topology as TopologyClass
        from waveplan.training import Training as TrainingClass

        facts = facts_of(
            model,
            TopologyClass() if topology is None else topology,
            TrainingClass() if training is None else training,
        )
    table = []
    for name, rule in rules.rules.items():
        row: dict[str, Any] = {
            "name": name,
            "lives": rule.lives,
            "bytes": str(rule.formula),
            "covers": rule.covers,
            "coverage": str(rule.predicate("coverage")),
            "needed": str(rule.predicate("needed")),
            "why": rule.why,
            "source": rule.source,
            "ours": rule.ours,
        }
        if facts is not None:
            state = status(rules, rule, facts)
            row.update(state=state.state, reason=state.reason)
        table.append(row)
    return table
