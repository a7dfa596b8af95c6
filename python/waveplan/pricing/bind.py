"""Binding: facts become numbers, equal pieces become one node, uncharged rules become 0."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from waveplan._core import PRICE_ROOTS, Measures, Program
from waveplan.checks import instance
from waveplan.errors import InputError
from waveplan.facts.model import Model
from waveplan.facts.table import facts as facts_of
from waveplan.facts.table import stages as stages_of
from waveplan.facts.topology import RANKS, Topology
from waveplan.facts.training import Training
from waveplan.pricing import language as lang
from waveplan.pricing.language import PACK, PLAN, Expr
from waveplan.pricing.rules import default_rules
from waveplan.pricing.ruleset import Rule, RuleSet

__all__ = [
    *("BoundRules", "Compiler", "Status"),
    *("bind", "bind_facts", "program"),
]

Env = tuple[tuple[str, int], ...]
"""Names that stand for nodes, sorted."""
_LIMIT = 1 << 63
MAX_NODES = 100_000
"""Operations of one price: rules that mention one another with replacements multiply."""
_PLAN = {name: i for i, name in enumerate(PLAN)}
_PACK = {name: i for i, name in enumerate(PACK)}
_CHARGED = ("charged", "unmeasured")
_RESULTS = tuple(name for name in PRICE_ROOTS if name != "margin")
"""Results that are definitions of the rule set."""
_WITHOUT_MARGIN = ("estimate", "static")
"""Results that stay what the rules charge where a margin raises the others."""


@dataclass(frozen=True, slots=True)
class Status:
    """State of a rule in a configuration, and the reason where it does not charge.

    ``state`` is "charged", "unmeasured" (charged, but checked elsewhere), "uncharged" (outside
    where it holds) or "does not apply" (there is nothing to charge).
    """

    name: str
    state: str
    why: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @property
    def reason(self) -> str:
        """Why it does not charge, or where it is not checked; empty of others."""
        return "" if self.why is None else self.why()

    def __str__(self) -> str:
        return f"{self.name}: {self.reason or self.state}"


class Compiler:
    """Turns formulas into nodes over measures, with every fact folded away.

    A node is an operation and its arguments: indices of earlier nodes, the value of a "const",
    the index of the measure of a "plan" or "pack"; of "scale" also the factor, of a "mark" the
    number of the rule. ``charged`` names the rules that charge; the charges of those in ``marks``
    keep a node of their own.
    """

    def __init__(
        self, rules: RuleSet, facts: Mapping[str, int], beside: Compiler | None = None
    ) -> None:
        """``beside``: a compiler whose nodes are added to, and shared where no fact differs."""
        self.rules, self._folds = rules, rules.folds
        self.facts = facts
        self._beside, self._differs = beside, 0
        self.nodes: list[tuple[Any, ...]] = [] if beside is None else beside.nodes
        self._ids: dict[tuple[Any, ...], int] = {} if beside is None else beside._ids
        self._consts: dict[int, int] = {} if beside is None else beside._consts
        self._values: list[int | None] = [] if beside is None else beside._values
        self._done: dict[object, int] = {}
        self.marks: Mapping[str, int] = {}
        if beside is not None:
            masks = rules.masks
            self._differs = masks.of(name for name in facts if facts[name] != beside.facts[name])
        self.states = {name: self._status(rule) for name, rule in rules.rules.items()}
        self._charge(name for name, state in self.states.items() if state.state in _CHARGED)

    def _charge(self, names: Iterable[str]) -> None:
        """Charge these rules alone; mark those whose charge differs from the one ``beside``."""
        self.charged = set(names)
        if self._beside is None:
            return
        rules, masks = self.rules.rules, self.rules.masks
        self._differs |= masks.of(self.charged ^ self._beside.charged)
        same = self.charged & self._beside.charged
        while moved := [one for one in same if masks[rules[one].formula()] & self._differs]:
            self._differs |= masks.of(moved)
            same.difference_update(moved)

    def as_if(self) -> Compiler:
        """A compiler into the same nodes that charges uncharged rules too."""
        other = copy.copy(self)
        other._done, other._beside, other._differs = {}, self, 0
        other._charge(
            name for name, state in self.states.items() if state.state != "does not apply"
        )
        return other

    def _status(self, rule: Rule) -> Status:
        beside = self._beside
        if beside is not None and not self._differs & self.rules.reads[rule.name]:
            return beside.states[rule.name]
        if not self.predicate(rule.formula("applies")):
            return Status(rule.name, "does not apply")
        for part, state in (("where", "uncharged"), ("checked", "unmeasured")):
            if not self.predicate(rule.formula(part)):
                return Status(rule.name, state, partial(self._blame, rule, part))
        return Status(rule.name, "charged")

    # -- nodes ------------------------------------------------------------------------------

    def emit(self, op: str, *args: int | float) -> int:
        """The index of this node, new or equal to an earlier one."""
        node = (op, *args)
        found = self._ids.get(node)
        if found is None:
            if len(self.nodes) >= MAX_NODES:
                raise InputError(f"the rules expand to more than {MAX_NODES:,} operations")
            found = self._ids[node] = len(self.nodes)
            self.nodes.append(node)
            self._values.append(int(args[0]) if op == "const" else None)
        return found

    def const(self, value: int, at: Expr | None = None) -> int:
        """The node of a number."""
        found = self._consts.get(value)
        if found is None:
            if abs(value) >= _LIMIT:
                place = at.at if at is not None else ""
                raise InputError(f"{place}{value} does not fit in 64 bits: the model is too large")
            found = self._consts[value] = self.emit("const", value)
        return found

    def value(self, index: int) -> int | None:
        """The number of a constant node."""
        return self._values[index]

    def _never_negative(self, index: int) -> bool:
        op, *args = self.nodes[index]
        if op == "const":
            return bool(args[0] >= 0)
        if op in ("plan", "pack", "<", "==", "max_packs"):
            return True
        if op == "-":
            return False
        known = map(
            self._never_negative, args[:1] if op in ("scale", "mark", "sum_packs") else args[-2:]
        )
        return any(known) if op == "max" else all(known)

    def binary(self, op: str, a: int, b: int, at: Expr | None = None) -> int:
        """The node of two values; what is known of them is computed here."""
        x, y = self._values[a], self._values[b]
        if op in ("//", "ceildiv") and y == 0:
            raise InputError(
                f"{at.at}{at} divides by 0" if at is not None else "a rule divides by 0"
            )
        if x is not None and y is not None:
            return self.const(int(lang.OPERATIONS[op](x, y)), at)
        if op == "+" and (x == 0 or y == 0):
            return b if x == 0 else a
        if op == "-" and y == 0:
            return a
        if op == "*" and (x in (0, 1) or y in (0, 1)):
            if x == 0 or y == 0:
                return self.const(0)
            return b if x == 1 else a
        if op in ("//", "ceildiv") and y == 1:
            return a
        if op in ("min", "max"):
            if a == b:
                return a
            if x == 0 and self._never_negative(b):
                return b if op == "max" else a
            if y == 0 and self._never_negative(a):
                return a if op == "max" else b
        if op in ("+", "*", "min", "max", "==") and a > b:
            a, b = b, a
        return self.emit(op, a, b)

    # -- formulas ---------------------------------------------------------------------------

    def compile(self, expr: Expr, env: Env = ()) -> int:
        """The node of ``expr`` where the names in ``env`` stand for other nodes.

        Recursion is bounded: formulas and chains of definitions have limited depth.
        """
        key: object = expr if expr.op != "name" else expr.value
        if env:
            key = key, env
        found = self._done.get(key)
        if found is None:
            if self._beside and not self.rules.masks[expr] & self._differs:
                return self._beside.compile(expr, env)
            if len(self._done) >= MAX_NODES:
                raise InputError(f"the rules expand to more than {MAX_NODES:,} operations")
            known = self._known(expr, env)
            found = self._build(expr, env) if known is None else self.const(known, expr)
            self._done[key] = found
        return found

    def named(self, name: str) -> int:
        """The node of a rule, definition, fact or measure."""
        found = self._done.get(name)
        return self.compile(Expr("name", value=name)) if found is None else found

    def _known(self, expr: Expr, env: Env = ()) -> int | None:
        """The value of a formula of facts alone; None of others."""
        fold = self._folds[expr]
        if fold is None or (env and any(name in self.facts for name, _ in env)):
            return None
        try:
            return int(fold(self.facts))
        except ZeroDivisionError:  # told with its place, if a branch that counts divides
            return None

    def replaced(self, expr: Expr, env: Env) -> Env:
        """Return the nodes of replaced names inside a call."""
        if expr.op != "given":
            return env
        new = {key: self.compile(arg, env) for key, arg in zip(expr.names, expr.args, strict=True)}
        return tuple(sorted({**dict(env), **new}.items()))

    def _build(self, expr: Expr, env: Env) -> int:
        op = expr.op
        if op in ("name", "given"):
            return self._name(expr, self.replaced(expr, env))
        if op in ("const", "bytes"):
            return self.const(int(expr.value), expr)
        if op == "charged":
            return self.const(int(expr.value in self.charged))
        if op in ("choose", "and", "or"):
            return self._choose(expr, env) if op == "choose" else self._both(expr, env)
        if op == "scale":
            inner, factor = self.compile(expr.args[0], env), self.factor(expr.args[1])
            value = self.value(inner)
            if value is not None:
                return self.const(int(value * factor), expr)
            return self.emit(op, inner, factor)
        args = [self.compile(operand, env) for operand in expr.args]
        if op == "not":
            return self._is_zero(args[0])
        if op in (">", "<="):
            args.reverse()
        if op in ("<=", ">=", "!="):
            return self._is_zero(self.binary("==" if op == "!=" else "<", args[0], args[1], expr))
        if op in ("sum_packs", "max_packs"):
            value = self.value(args[0])
            zero = value is not None and (value == 0 or (op == "max_packs" and value < 0))
            return self.const(0) if zero else self.emit(op, *args)
        total = args[0]
        for index in args[1:]:
            total = self.binary("<" if op == ">" else op, total, index, expr)
        return total

    def factor(self, expr: Expr) -> float:
        """The number that a factor stands for."""
        while expr.op == "name":
            expr = self.rules.definitions[str(expr.value)].formula
        return float(expr.value)

    def _is_zero(self, index: int) -> int:
        return self.binary("==", index, self.const(0))

    def _choose(self, expr: Expr, env: Env) -> int:
        condition = self.compile(expr.args[0], env)
        known = self.value(condition)
        if known is not None:
            return self.compile(expr.args[1 if known else 2], env)
        then, other = (self.compile(arg, env) for arg in expr.args[1:])
        return then if then == other else self.emit("choose", condition, then, other)

    def _both(self, expr: Expr, env: Env) -> int:
        """The node of "and" or "or": 1 or 0, later parts only where the first do not decide."""
        decided = int(expr.op == "or")
        open_parts: list[int] = []
        for arg in expr.args:
            index = self.compile(arg, env)
            known = self.value(index)
            if known is not None and int(known != 0) == decided:
                if not open_parts:
                    return self.const(decided)
                open_parts.append(self.const(decided))
                break
            if known is None:
                open_parts.append(index)
        result = self.const(1 - decided)
        for index in reversed(open_parts):
            if self.nodes[index][0] in ("<", "==") and index == open_parts[-1]:
                result = index
                continue
            branches = (self.const(1), result) if decided else (result, self.const(0))
            result = self.emit("choose", index, *branches)
        return result

    def _name(self, expr: Expr, env: Env) -> int:
        name = str(expr.value)
        for key, node in env:
            if key == name:
                return node
        rule = self.rules.rules.get(name)
        if rule is not None:
            if name not in self.charged:
                return self.const(0)
            node = self.compile(rule.formula(), env)
            marked = name in self.marks and self.value(node) != 0
            return self.emit("mark", node, self.marks[name]) if marked else node
        definition = self.rules.definitions.get(name)
        if definition is not None:
            return self.compile(definition.formula, env)
        if name in _PLAN:
            return self.emit("plan", _PLAN[name])
        if name in _PACK:
            return self.emit("pack", _PACK[name])
        return self.const(self.facts[name], expr)

    # -- predicates -------------------------------------------------------------------------

    def predicate(self, expr: Expr) -> bool:
        """Return true where a predicate over facts holds."""
        known = self._known(expr)
        return (self.value(self.compile(expr)) if known is None else known) != 0

    def _blame(self, rule: Rule, part: str) -> str:
        """The facts that make a rule's predicate false, and the part of it that they fail."""
        says, verb = {
            "where": ("not charged", "holds"),
            "checked": ("charged, but unmeasured", "checked"),
        }[part]
        facts: dict[str, int] = {}
        text = self._fails(rule.formula(part), facts, set())
        if not facts:
            return says
        named = ", ".join(f"{_upper(name)}={value}" for name, value in facts.items())
        text = _upper(text if len(text) < 240 else text[:240] + "...")
        return f"{says} at {named}: {verb} where {text}"

    def _fails(self, expr: Expr, facts: dict[str, int], seen: set[str]) -> str:
        """The part of a false predicate that fails, definitions written out once."""
        name = str(expr.value)
        if expr.op == "name" and name in self.rules.definitions and name not in seen:
            seen.add(name)
            return self._fails(self.rules.definitions[name].formula, facts, seen)
        if expr.op in ("and", "or"):
            failing = [arg for arg in expr.args if not self.predicate(arg)]
            texts = [self._fails(arg, facts, seen) for arg in failing]
            if len(texts) > 1 and expr.op == "and":
                texts = [f"({one})" if " or " in one else one for one in texts]
            return f" {expr.op} ".join(dict.fromkeys(texts))
        if expr.op == "choose":
            return self._fails(expr.args[1 if self.predicate(expr.args[0]) else 2], facts, seen)
        self._facts_in(expr, facts)
        inner = self.rules.definitions.get(str(expr.args[0].value)) if expr.op == "not" else None
        return str(expr) if inner is None else f"not ({inner.formula})"

    def _facts_in(self, expr: Expr, found: dict[str, int]) -> None:
        for part in lang.reached(expr, self.rules.formula):
            name = str(part.value)
            if name in self.facts:
                found[name] = self.facts[name]


def _upper(text: str) -> str:
    """Ranks as people write them: TP, not tp."""
    return re.sub(rf"\b({'|'.join(RANKS)})\b", lambda found: found[0].upper(), text)


class Doubts:
    """The rules in doubt, told apart by whether they charge."""

    @property
    def doubtful(self) -> tuple[Status, ...]:
        """All of them."""
        raise NotImplementedError

    @property
    def uncharged(self) -> tuple[Status, ...]:
        """Those of `doubtful` that charge nothing."""
        return tuple(state for state in self.doubtful if state.state == "uncharged")

    @property
    def unmeasured(self) -> tuple[Status, ...]:
        """Those of `doubtful` that charge where they are not checked."""
        return tuple(state for state in self.doubtful if state.state == "unmeasured")


@dataclass(frozen=True, eq=False)
class BoundRules(Doubts):
    """Rules with every fact folded in: a program for the core, and which charge and why not.

    Args:
        program: evaluates measures to the results named in `waveplan._core.PRICE_ROOTS`, each the
            largest of all pipeline stages.
        compilers: of each pipeline stage that can need the most, by its number.
        states: of every rule, on the stage where it is most doubtful.
        doubtful: rules uncharged (needed outside where they hold, charged 0), then unmeasured
            (charged outside where they were checked).
    """

    rules: RuleSet
    facts: Mapping[str, int]
    states: Mapping[str, Status]
    program: Program
    compilers: Mapping[int, Compiler] = field(repr=False)
    doubtful: tuple[Status, ...] = ()

    def values(self, measures: Measures, *names: str) -> dict[int, list[int]]:
        """Return rules, definitions or totals of a whole plan on each of the stages."""
        instance("measures", measures, Measures)
        nodes = {
            stage: [compiler.compile(lang.parse(name)) for name in names]
            for stage, compiler in self.compilers.items()
        }
        flat = [node for found in nodes.values() for node in found]
        table = next(iter(self.compilers.values())).nodes
        values = iter(program(table, flat).evaluate(measures))
        return {stage: [next(values) for _ in found] for stage, found in nodes.items()}

    def stage(self, measures: Measures) -> int:
        """Return the pipeline stage that needs the most for a plan."""
        if len(self.compilers) == 1:
            return next(iter(self.compilers))
        required = self.values(measures, "required")
        return max(required, key=lambda stage: required[stage][0])

    def results(self, measures: Measures) -> dict[str, int]:
        """Return the named results over one plan, in bytes."""
        found = self.program.evaluate(instance("measures", measures, Measures))
        return dict(zip(PRICE_ROOTS, found, strict=False))

    def matter(self, measures: Measures, *, smaller: bool = False) -> tuple[Status, ...]:
        """Return those of ``doubtful`` that matter to a plan: without their charge it would need
        other memory; with ``smaller`` those that matter to any smaller one of its kind, too."""
        instance("measures", measures, Measures)
        found = [*self.program.matter(measures, smaller)] if self.doubtful else []
        found += [False] * (len(self.doubtful) - len(found))
        # An uncharged rule without a size says what no price shows: it always matters.
        return tuple(
            one
            for one, matters in zip(self.doubtful, found, strict=True)
            if matters or (one.state == "uncharged" and str(self.rules.formula(one.name)) == "0")
        )


def bind(
    model: Model,
    topology: Topology,
    training: Training,
    rules: RuleSet | None = None,
    stage: int | None = None,
) -> BoundRules:
    """Fold the facts of a job into rules (by default the default rules).

    Args:
        stage: the pipeline stage to price, by default the one that needs the most.

    Raises:
        InputError: the topology cannot divide the model, or a formula cannot be computed.
    """
    if stage is not None:
        return bind_facts({stage: facts_of(model, topology, training, stage)}, rules)
    return bind_facts(stages_of(model, topology, training), rules)


def bind_facts(stages: Mapping[int, Mapping[str, int]], rules: RuleSet | None = None) -> BoundRules:
    """`bind` from the facts of pipeline stages (see `waveplan.facts.table`)."""
    rules = default_rules() if rules is None else instance("rules", rules, RuleSet)
    needed = {*_RESULTS, "split_required", "safety_factor"}
    if lacking := needed - rules.definitions.keys():
        raise InputError(f"the rule set {rules.name} lacks the total {min(lacking)}")
    compilers: dict[int, Compiler] = {}
    for stage, facts in stages.items():
        compilers[stage] = Compiler(rules, facts, next(iter(compilers.values()), None))
    every = [one.states for one in compilers.values()]
    states = {name: max((one[name] for one in every), key=_doubt) for name in rules.rules}
    doubtful = [one for wanted in _DOUBTFUL for one in states.values() if one.state == wanted]
    for one in compilers.values():
        one.marks = {state.name: at for at, state in enumerate(doubtful)}
    # What is unmeasured is charged anyhow: only uncharged rules make a second price.
    second = any(one.state == "uncharged" for one in doubtful)
    roots = _roots([*compilers.values()], rules, second=second)
    first = next(iter(compilers.values()))
    safety = first.factor(rules.definitions["safety_factor"].formula)
    made = program(first.nodes, roots, safety)
    return BoundRules(rules, dict(first.facts), states, made, compilers, tuple(doubtful))


_DOUBTFUL = ("uncharged", "unmeasured")


def _doubt(status: Status) -> int:
    return ("does not apply", "charged", "unmeasured", "uncharged").index(status.state)


def _roots(compilers: Sequence[Compiler], rules: RuleSet, *, second: bool) -> list[int]:
    """Nodes of the named results, of each the largest over the stages; then what would be required
    if uncharged rules charged, which tells what rules matter."""
    compiler = compilers[0]

    def named(of: Sequence[Compiler], name: str) -> int:
        result, *others = [one.named(name) for one in of]
        for node in others:
            result = compiler.binary("max", result, node)
        return result

    nodes = {name: named(compilers, name) for name in (*_RESULTS, "split_required")}
    nodes["margin"] = compiler.const(0)
    needed = nodes["required"]
    if second:
        assumed = [one.as_if() for one in compilers]
        needed = compiler.binary("max", needed, named(assumed, "required"))
        if rules.margin:
            raised = {
                name: compiler.binary("max", nodes[name], named(assumed, name))
                for name in (*_RESULTS, "split_required")
                if name not in _WITHOUT_MARGIN
            }
            # A difference of totals follows the totals.
            raised["peak_increment"] = compiler.compile(
                rules.definitions["peak_increment"].formula, tuple(sorted(raised.items()))
            )
            nodes["margin"] = compiler.binary("-", needed, nodes["required"])
            nodes |= raised
    return [*(nodes[name] for name in PRICE_ROOTS), needed]


def program(nodes: Sequence[tuple[Any, ...]], roots: Sequence[int], safety: float = 1.0) -> Program:
    """The core's evaluator of these nodes."""
    factors: list[float] = []
    table = []
    for op, *args in nodes:
        if op == "scale":
            factors.append(args[1])
            args = [args[0], len(factors) - 1]
        table.append((op, args))
    return Program(table, factors, roots, safety)
