"""Binding: facts become numbers, equal pieces become one node, what is off becomes 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from waveplan.errors import InputError
from waveplan.rules import names
from waveplan.rules.language import Expr, where
from waveplan.rules.ruleset import Rule, RuleSet

__all__ = ["Compiler", "Node", "Status", "status"]

_LIMIT = 1 << 63
MAX_NODES = 100_000
"""Operations of one price: rules that mention one another with replacements multiply."""
_PLAN = {name: i for i, name in enumerate(names.PLAN)}
_GROUP = {name: i for i, name in enumerate(names.GROUP)}


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a bound price; ``args`` are indices of earlier nodes.

    For "const" the value, for "plan" and "group" the index of the measure.
    """

    op: str
    args: tuple[int, ...]
    factor: float = 0.0


@dataclass(frozen=True, slots=True)
class Status:
    """Whether a rule charges in a configuration, and if not, why.

    ``state`` is "on", "unmeasured" (charged, but measured elsewhere), "off" (outside its
    coverage: charged 0, unpriced) or "not needed" (there is nothing to charge).
    """

    name: str
    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else f"{self.name}: {self.state}"


def status(rules: RuleSet, rule: Rule, facts: Mapping[str, int]) -> Status:
    """The state of one rule where ``facts`` hold."""
    predicates = Compiler(rules, facts, {})
    if not predicates.predicate(rule.predicate("needed")):
        return Status(rule.name, "not needed")
    if not predicates.predicate(rule.predicate("coverage")):
        blame = predicates.blame(rule.predicate("coverage"))
        shown = f" at {blame}" if blame else ""
        return Status(rule.name, "off", f"not charged{shown}; measured for {rule.covers}")
    if not predicates.predicate(rule.predicate("measured")):
        blame = predicates.blame(rule.predicate("measured"))
        shown = f" at {blame}" if blame else ""
        return Status(rule.name, "unmeasured", f"charged, but unmeasured{shown}")
    return Status(rule.name, "on")


def _label(name: str, value: int) -> str:
    return f"{name.upper() if name in ('dp', 'tp', 'cp', 'pp', 'ep', 'etp') else name}={value}"


class Compiler:
    """Turns expressions into nodes over measures, with every fact folded away.

    ``states`` says which rules charge; a missing one charges nothing.
    """

    def __init__(
        self, rules: RuleSet, facts: Mapping[str, int], states: Mapping[str, Status]
    ) -> None:
        self.rules = rules
        self.facts = facts
        self.states = states
        self.charged = {
            name for name, state in states.items() if state.state in ("on", "unmeasured")
        }
        self.nodes: list[Node] = []
        self._ids: dict[Node, int] = {}
        self._positive: list[bool] = []
        self._done: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        # Identity keys need their expressions to stay alive.
        self._alive: list[Expr] = []

    def as_if(self) -> Compiler:
        """A compiler into the same nodes that charges rules outside their coverage too."""
        other = Compiler(self.rules, self.facts, {})
        other.charged = {name for name, state in self.states.items() if state.state != "not needed"}
        other.nodes, other._ids, other._positive = self.nodes, self._ids, self._positive
        return other

    # -- nodes ------------------------------------------------------------------------------

    def emit(self, op: str, args: Sequence[int], factor: float = 0.0) -> int:
        """The index of this node, new or equal to an earlier one."""
        node = Node(op, tuple(args), factor)
        found = self._ids.get(node)
        if found is None:
            if len(self.nodes) >= MAX_NODES:
                raise InputError(f"the rules expand to more than {MAX_NODES:,} operations")
            found = self._ids[node] = len(self.nodes)
            self.nodes.append(node)
            self._positive.append(self._never_negative(node))
        return found

    def const(self, value: int, at: Expr | None = None) -> int:
        if abs(value) >= _LIMIT:
            place = where(at) if at is not None else ""
            raise InputError(f"{place}{value} does not fit in 64 bits: the model is too large")
        return self.emit("const", (value,))

    def value(self, index: int) -> int | None:
        """The number of a constant node."""
        node = self.nodes[index]
        return node.args[0] if node.op == "const" else None

    def _never_negative(self, node: Node) -> bool:
        if node.op == "const":
            return node.args[0] >= 0
        if node.op in ("plan", "group", "<", "==", "max_groups"):
            return True
        if node.op == "-":
            return False
        operands = node.args[1:] if node.op == "choose" else node.args
        some = any if node.op == "max" else all
        return some(self._positive[i] for i in operands)

    def binary(self, op: str, a: int, b: int, at: Expr) -> int:
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None:
            return self.const(_compute(op, x, y, at), at)
        if op == "+":
            if x == 0:
                return b
            if y == 0:
                return a
        elif op == "-" and y == 0:
            return a
        elif op == "*":
            if x == 0 or y == 0:
                return self.const(0)
            if x == 1:
                return b
            if y == 1:
                return a
        elif op in ("//", "ceildiv"):
            if y == 1:
                return a
            if y == 0:
                _divides_by_zero(at)
        elif op in ("min", "max"):
            if a == b:
                return a
            if x == 0 and self._positive[b]:
                return b if op == "max" else a
            if y == 0 and self._positive[a]:
                return a if op == "max" else b
        if op in ("+", "*", "min", "max", "==") and a > b:
            a, b = b, a
        return self.emit(op, (a, b))

    # -- expressions ------------------------------------------------------------------------

    def compile(self, expr: Expr, env: tuple[tuple[str, int], ...] = ()) -> int:
        """The node of ``expr`` where the names in ``env`` stand for other nodes.

        Recursion is bounded: expressions and chains of definitions have limited depth.
        """
        key = (id(expr), env)
        found = self._done.get(key)
        if found is None:
            if len(self._alive) >= MAX_NODES:
                raise InputError(f"the rules expand to more than {MAX_NODES:,} operations")
            self._alive.append(expr)
            found = self._done[key] = self._build(expr, env)
        return found

    def _build(self, expr: Expr, env: tuple[tuple[str, int], ...]) -> int:
        op = expr.op
        if op in ("const", "bytes"):
            return self.const(int(expr.value), expr)
        if op == "name":
            return self._name(expr, str(expr.value), env)
        if op == "given":
            new = dict(env)
            for key, arg in zip(expr.names, expr.args, strict=True):
                new[key] = self.compile(arg, env)
            return self._name(expr, str(expr.value), tuple(sorted(new.items())))
        if op == "charged":
            return self.const(int(expr.value in self.charged))
        if op in ("choose", "and", "or"):
            return self._branch(expr, env)
        args = [self.compile(operand, env) for operand in expr.args]
        if op == "not":
            return self.binary("==", args[0], self.const(0), expr)
        if op in ("<", "=="):
            return self.binary(op, args[0], args[1], expr)
        if op == ">":
            return self.binary("<", args[1], args[0], expr)
        if op in ("<=", ">=", "!="):
            inverse = {"<=": ("<", 1, 0), ">=": ("<", 0, 1), "!=": ("==", 0, 1)}[op]
            opposite = self.binary(inverse[0], args[inverse[1]], args[inverse[2]], expr)
            return self.binary("==", opposite, self.const(0), expr)
        if op == "scale":
            value = self.value(args[0])
            if value is not None:
                return self.const(int(value * float(expr.value)), expr)
            return self.emit("scale", args, float(expr.value))
        if op == "sum_groups":
            return args[0] if self.value(args[0]) == 0 else self.emit(op, args)
        if op == "max_groups":
            value = self.value(args[0])
            return self.const(0) if value is not None and value <= 0 else self.emit(op, args)
        total = args[0]
        for index in args[1:]:
            total = self.binary(op, total, index, expr)
        return total

    def _branch(self, expr: Expr, env: tuple[tuple[str, int], ...]) -> int:
        condition = self.compile(expr.args[0], env)
        known = self.value(condition)
        if expr.op == "choose":
            if known is not None:
                return self.compile(expr.args[1 if known else 2], env)
            then = self.compile(expr.args[1], env)
            otherwise = self.compile(expr.args[2], env)
            return then if then == otherwise else self.emit("choose", (condition, then, otherwise))
        decided = expr.op == "or"
        if known is not None:
            if bool(known) == decided:
                return self.const(int(decided))
            return self._truth(self.compile(expr.args[1], env), expr)
        other = self._truth(self.compile(expr.args[1], env), expr)
        if decided:
            return self.emit("choose", (condition, self.const(1), other))
        return self.emit("choose", (condition, other, self.const(0)))

    def _truth(self, index: int, at: Expr) -> int:
        value = self.value(index)
        if value is not None:
            return self.const(int(value != 0))
        if self.nodes[index].op in ("<", "=="):
            return index
        return self.binary("==", self.binary("==", index, self.const(0), at), self.const(0), at)

    def _name(self, expr: Expr, name: str, env: tuple[tuple[str, int], ...]) -> int:
        for key, node in env:
            if key == name:
                return node
        rule = self.rules.rules.get(name)
        if rule is not None:
            return self.compile(rule.formula, env) if name in self.charged else self.const(0)
        definition = self.rules.definitions.get(name)
        if definition is not None:
            return self.compile(definition.formula, env)
        if name in _PLAN:
            return self.emit("plan", (_PLAN[name],))
        if name in _GROUP:
            return self.emit("group", (_GROUP[name],))
        if name in self.facts:
            return self.const(self.facts[name], expr)
        raise InputError(f"{where(expr)}fact {name!r} was not given")

    # -- predicates -------------------------------------------------------------------------

    def predicate(self, expr: Expr) -> bool:
        """Whether a predicate over facts holds."""
        value = self.value(self.compile(expr))
        if value is None:
            raise InputError(f"{where(expr)}{expr} depends on a plan: it must read facts only")
        return value != 0

    def blame(self, expr: Expr) -> str:
        """The facts, with their values, that make a predicate false."""
        found: dict[str, int] = {}
        todo, seen = [expr], set()
        while todo:
            part = todo.pop()
            if id(part) in seen or self.predicate(part):
                continue
            seen.add(id(part))
            if part.op == "name" and part.value in self.rules.definitions:
                todo.append(self.rules.definitions[str(part.value)].formula)
            elif part.op in ("and", "or"):
                todo.extend(reversed(part.args))
            elif part.op == "choose":
                todo.append(part.args[1 if self.predicate(part.args[0]) else 2])
            else:
                found.update(self._facts_in(part))
        return ", ".join(_label(name, value) for name, value in found.items())

    def _facts_in(self, expr: Expr) -> dict[str, int]:
        found: dict[str, int] = {}
        todo, seen = [expr], set()
        while todo:
            part = todo.pop()
            if part.op == "name":
                name = str(part.value)
                if name in seen:
                    continue
                seen.add(name)
                if name in self.rules.definitions:
                    todo.append(self.rules.definitions[name].formula)
                elif name in self.facts:
                    found[name] = self.facts[name]
            todo.extend(reversed(part.args))
        return found


def _divides_by_zero(at: Expr) -> NoReturn:
    raise InputError(f"{where(at)}{at} divides by 0")


def _compute(op: str, a: int, b: int, at: Expr) -> int:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op in ("//", "ceildiv"):
        if b == 0:
            _divides_by_zero(at)
        return a // b if op == "//" else -(-a // b)
    if op == "min":
        return min(a, b)
    if op == "max":
        return max(a, b)
    return int(a < b if op == "<" else a == b)
