"""Why a price is what it is: the tree of terms with bytes, and which branch of each max binds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from waveplan.budget import format_bytes
from waveplan.errors import InputError
from waveplan.rules.compile import Compiler, Node
from waveplan.rules.language import Expr

if TYPE_CHECKING:
    from waveplan.pricing import BoundRules, Measures, Price

__all__ = ["Explanation", "Term", "explain"]

Env = tuple[tuple[str, int], ...]
MAX_TERMS = 100_000
"""A definition is shown wherever it is mentioned, so that terms can multiply."""


@dataclass(slots=True)
class Term:
    """A line of the tree: a rule, a step of the total, or a piece of formula.

    ``how`` says how the children make the bytes: "sum", "max", "x" (their sum times
    ``factor``) or "" (a line of its own); ``group`` is the group that counts; ``binding`` is
    false on the branches of a max that are not the largest.
    """

    name: str
    bytes: int
    kind: str
    how: str = ""
    why: str = ""
    group: int | None = None
    binding: bool = True
    factor: float | None = None
    children: list[Term] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON."""
        made: dict[str, Any] = {"name": self.name, "bytes": self.bytes, "kind": self.kind}
        if self.how:
            made["how"] = self.how
        if self.why:
            made["why"] = self.why
        if self.group is not None:
            made["group"] = self.group
        if self.factor is not None:
            made["factor"] = self.factor
        made["binding"] = self.binding
        if self.children:
            made["children"] = [child.to_dict() for child in self.children]
        return made

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Term]]:
        """This term and all below it, with their depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True)
class Explanation:
    """The explained price: the tree of ``required`` and how its raw bytes add up."""

    tree: Term
    raw: Term
    phase: str
    """"backward" if the peak lies there, else "forward"."""
    notes: tuple[str, ...] = ()

    def terms(self) -> dict[str, int]:
        """Bytes by rule on the binding branches; together they are the raw price."""
        found: dict[str, int] = {}
        todo = [self.raw]
        while todo:
            term = todo.pop()
            if not term.binding or term.bytes == 0:
                continue
            if term.children:
                todo.extend(reversed(term.children))
            else:
                found[term.name] = found.get(term.name, 0) + term.bytes
        return found

    @property
    def binding(self) -> list[str]:
        """Names from the total down to the largest term, along the binding branches."""
        names, term = [self.tree.name], self.tree
        while term.children:
            term = max(
                (child for child in term.children if child.binding),
                key=lambda child: child.bytes,
                default=term,
            )
            if term.name == names[-1] and not term.children:
                break
            names.append(term.name)
        return names

    @property
    def term(self) -> str:
        """The rule that weighs most."""
        terms = self.terms()
        return max(terms, key=lambda name: terms[name], default="nothing")

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON of the tree."""
        return {
            "tree": self.tree.to_dict(),
            "terms": self.terms(),
            "phase": self.phase,
            "term": self.term,
        }

    def text(self, *, full: bool = False) -> str:
        """The tree as text: bytes, "*" on what binds, names, and what each rule is for.

        Branches that do not bind are one line each, and what charges nothing is left out,
        unless ``full``.
        """
        lines: list[str] = []
        todo = [(self.tree, 0, True, "")]
        while todo:
            term, level, binding, prefix = todo.pop()
            shown = [child for child in term.children if full or child.bytes]
            single = len(shown) == 1 and shown[0].bytes == term.bytes and term.how != "x"
            if single and not full:
                name = prefix if term.kind == "operator" else f"{prefix}{term.name} > "
                todo.append((shown[0], level, binding, name))
                continue
            lines.append(_line(term, level, binding, prefix))
            if full or binding:
                todo.extend(
                    (child, level + 1, binding and child.binding, "") for child in reversed(shown)
                )
        return "\n".join([*lines, *self.notes])


_HOW = {"sum": " = sum of", "max": " = largest of", "min": " = smallest of"}


def _line(term: Term, level: int, binding: bool, prefix: str) -> str:
    name = prefix.removesuffix(" > ") if term.kind == "operator" and prefix else prefix + term.name
    label = "  " * level + name + (_HOW.get(term.how, "") if binding else "")
    if term.factor is not None:
        label += f" = {term.factor:g} times the sum of"
    if term.group is not None:
        label += f" (group {term.group})"
    why = f"   {term.why}" if term.why else ""
    return f"{format_bytes(term.bytes):>12} {'*' if binding else ' '} {label}{why}"


def explain(price: Price) -> Explanation:
    """The explanation of a price."""
    bound = price.bound
    with bound.shared.lock:
        reader = _Reader(bound, price.measures)
        tree, raw = reader.total("required"), reader.total("raw")
    notes = [f"{'off':>12}   {state}" for state in price.off]
    notes += [f"{'unmeasured':>12}   {state}" for state in price.unmeasured]
    if price.margin:
        notes.append(f"{format_bytes(price.margin):>12}   margin for unpriced rules")
    backward = _binds(raw, "selective") or (
        _binds(raw, "with_backward") and price.results["input_gradient"] > 0
    )
    return Explanation(tree, raw, "backward" if backward else "forward", tuple(notes))


def _binds(tree: Term, name: str) -> bool:
    """Whether a step of this name lies on the binding branches."""
    todo = [tree]
    while todo:
        term = todo.pop()
        if term.binding and term.bytes:
            if term.name == name:
                return True
            todo.extend(term.children)
    return False


class Shared:
    """What all explanations of one configuration share: compiled formulas, used under a lock."""

    def __init__(self, bound: BoundRules) -> None:
        self.lock = threading.Lock()
        self.compiler = Compiler(bound.rules, bound.facts, bound.states)
        self.entries = {name: Expr("name", value=name) for name in ("required", "raw")}
        self.weighs: dict[int, bool] = {}


class _Reader:
    """Walks the total's formulas with the values that one plan gives them."""

    def __init__(self, bound: BoundRules, measures: Measures) -> None:
        self.rules = bound.rules
        self.states = bound.states
        self.shared = bound.shared
        self.compiler = bound.shared.compiler
        self.plan = measures.plan.tolist()
        self.groups = measures.groups.tolist()
        self.values: list[int | list[int]] = []
        self.terms = 0

    def total(self, name: str) -> Term:
        return self.term(self.shared.entries[name], (), None)

    def value(self, expr: Expr, env: Env, group: int | None) -> int:
        index = self.compiler.compile(expr, env)
        while len(self.values) <= index:
            self.values.append(self._evaluate(self.compiler.nodes[len(self.values)]))
        found = self.values[index]
        if isinstance(found, int):
            return found
        return found[group] if group is not None else max(found, default=0)

    def _evaluate(self, node: Node) -> int | list[int]:
        if node.op == "const":
            return node.args[0]
        if node.op == "plan":
            return int(self.plan[node.args[0]])
        if node.op == "group":
            return [int(row[node.args[0]]) for row in self.groups]
        args = [self.values[arg] for arg in node.args]
        if node.op in ("sum_groups", "max_groups"):
            values = args[0]
            if isinstance(values, int):
                values = [values] * len(self.groups)
            return sum(values) if node.op == "sum_groups" else max([0, *values])
        if all(isinstance(arg, int) for arg in args):
            return _apply(node, [arg for arg in args if isinstance(arg, int)])
        columns = [[arg] * len(self.groups) if isinstance(arg, int) else arg for arg in args]
        return [_apply(node, list(row)) for row in zip(*columns, strict=True)]

    # -- the tree ---------------------------------------------------------------------------

    def weighs(self, expr: Expr) -> bool:
        """Whether a formula mentions rules or steps of the total, which deserve lines."""
        # Formulas live as long as their rule set, so their identity is a key.
        found = self.shared.weighs.get(id(expr))
        if found is None:
            found = self.shared.weighs[id(expr)] = self._mentions(expr)
        return found

    def _mentions(self, expr: Expr) -> bool:
        if expr.op in ("name", "given"):
            name = str(expr.value)
            if name in self.rules.rules or name == "learned_bytes":
                return True
            definition = self.rules.definitions.get(name)
            return definition is not None and (definition.step or self.weighs(definition.formula))
        if expr.op == "choose":
            return any(self.weighs(arg) for arg in expr.args[1:])
        return any(self.weighs(arg) for arg in expr.args)

    def term(self, expr: Expr, env: Env, group: int | None) -> Term:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise InputError(f"the price has more than {MAX_TERMS:,} terms: it is not explained")
        op, value = expr.op, self.value(expr, env, group)
        if op in ("name", "given"):
            return self._named(expr, env, group, value)
        if op == "choose":
            taken = 1 if self.value(expr.args[0], env, group) else 2
            return self.term(expr.args[taken], env, group)
        if not self.weighs(expr):
            return Term(str(expr), value, "formula", group=group)
        if op in ("+", "max", "min"):
            return self._several(expr, env, group, value)
        if op == "scale":
            inner = self.term(expr.args[0], env, group)
            parts = inner.children if inner.kind == "operator" and inner.how == "sum" else [inner]
            return Term(
                f"{expr.value:g} x",
                value,
                "operator",
                "x",
                children=parts,
                factor=float(expr.value),
            )
        if op in ("sum_groups", "max_groups"):
            return self._over_groups(expr, env, value)
        return Term(str(expr), value, "formula", group=group)

    def _named(self, expr: Expr, env: Env, group: int | None, value: int) -> Term:
        name = str(expr.value)
        if expr.op == "given":
            new = dict(env)
            for key, arg in zip(expr.names, expr.args, strict=True):
                new[key] = self.compiler.compile(arg, env)
            env = tuple(sorted(new.items()))
        rule = self.rules.rules.get(name)
        if rule is not None:
            state = self.states[name]
            why = rule.why if state.state == "on" else state.reason or state.state
            return Term(name, value, "rule", why=why, group=group)
        definition = self.rules.definitions.get(name)
        if definition is None:
            why = "learned from observed peaks" if name == "learned_bytes" else ""
            return Term(name, value, "measure", why=why, group=group)
        if not self.weighs(definition.formula):
            return Term(name, value, "formula", why=definition.why, group=group)
        inner = self.term(definition.formula, env, group)
        if not definition.step:
            return inner
        if inner.kind == "operator":
            inner.name, inner.kind, inner.why = name, "step", definition.why
            return inner
        return Term(name, value, "step", "sum", definition.why, inner.group, children=[inner])

    def _several(self, expr: Expr, env: Env, group: int | None, value: int) -> Term:
        parts: list[Expr] = []
        todo = [expr]
        while todo:
            part = todo.pop()
            if part.op == expr.op:
                todo.extend(reversed(part.args))
            else:
                parts.append(part)
        children = [self.term(part, env, group) for part in parts]
        how = "sum" if expr.op == "+" else expr.op
        if how != "sum":
            largest = next((child for child in children if child.bytes == value), None)
            for child in children:
                child.binding = child is largest
        shown = [child for child in children if child.bytes or child.kind == "rule"]
        if how == "sum" and len(shown) == 1:
            return shown[0]
        return Term(expr.op, value, "operator", how, group=group, children=shown)

    def _over_groups(self, expr: Expr, env: Env, value: int) -> Term:
        inner = expr.args[0]
        count = len(self.groups)
        if count == 0:
            return Term(str(expr), value, "formula")
        if expr.op == "max_groups":
            sizes = [self.value(inner, env, group) for group in range(count)]
            return self.term(inner, env, sizes.index(max(sizes)))
        if count == 1:
            return self.term(inner, env, 0)
        children = [self.term(inner, env, group) for group in range(min(count, 8))]
        rest = value - sum(child.bytes for child in children)
        if rest:
            children.append(Term(f"{count - 8} more groups", rest, "formula"))
        return Term("groups", value, "operator", "sum", children=children)


def _apply(node: Node, args: list[int]) -> int:
    op = node.op
    if op == "choose":
        return args[1] if args[0] else args[2]
    if op == "scale":
        return int(args[0] * node.factor)
    a, b = args
    if op in ("//", "ceildiv"):
        return a // b if op == "//" else -(-a // b)
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "min":
        return min(a, b)
    if op == "max":
        return max(a, b)
    return int(a < b if op == "<" else a == b)
