"""The tree of terms behind a price: bytes by rule and step, and the branch of each max that binds.

Walks the formulas and reads their values from the core; computes none itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from waveplan._core import Measures
from waveplan.budget import format_bytes
from waveplan.errors import InputError
from waveplan.pricing.bind import BoundRules
from waveplan.pricing.language import Expr

__all__ = ["Explanation", "Term", "explain"]

Env = tuple[tuple[str, int], ...]
MAX_TERMS = 100_000
"""A definition is shown wherever it is mentioned, so that terms can multiply."""
_SHOWN_PACKS = 8


@dataclass(slots=True)
class Term:
    """A line of the tree: a rule, a step of the total, or a piece of formula.

    ``how`` says how the children make the bytes: "sum", "max", "x" (their sum times
    ``factor``) or "" (a line of its own); ``pack`` is the pack that counts; ``binding`` is
    false on the branches of a max that are not the largest.
    """

    name: str
    bytes: int
    kind: str
    how: str = ""
    why: str = ""
    pack: int | None = None
    binding: bool = True
    factor: float | None = None
    children: list[Term] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON; what is empty is left out."""
        shown = ((one.name, getattr(self, one.name)) for one in fields(self))
        made = {key: value for key, value in shown if value not in (None, "", [])}
        if self.children:
            made["children"] = [child.to_dict() for child in self.children]
        return made


@dataclass(frozen=True)
class Explanation:
    """The explained price: the tree of ``required`` and how its estimate bytes add up."""

    tree: Term
    estimate: Term
    phase: str
    """"backward" if the peak is reached there, else "forward"."""
    notes: tuple[str, ...] = ()

    def terms(self) -> dict[str, int]:
        """Bytes by rule on the binding branches; together they are the estimate price."""
        found: dict[str, int] = {}
        for term in _binding(self.estimate):
            if not term.children:
                found[term.name] = found.get(term.name, 0) + term.bytes
        return found

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

    def text(self) -> str:
        """The tree as text: bytes, "*" on what binds, names, and what each rule is for.

        Branches that do not bind are one line each; what charges nothing is left out.
        """
        lines: list[str] = []
        todo = [(self.tree, 0, True, "")]
        while todo:
            term, level, binding, prefix = todo.pop()
            shown = [child for child in term.children if child.bytes]
            single = len(shown) == 1 and shown[0].bytes == term.bytes and term.how != "x"
            if single:
                name = prefix if term.kind == "operator" else f"{prefix}{term.name} > "
                todo.append((shown[0], level, binding, name))
                continue
            lines.append(_line(term, level, binding, prefix))
            if binding:
                todo.extend((child, level + 1, child.binding, "") for child in reversed(shown))
        return "\n".join([*lines, *self.notes])


_HOW = {"sum": " = sum of", "max": " = largest of", "min": " = smallest of"}


def _line(term: Term, level: int, binding: bool, prefix: str) -> str:
    name = prefix.removesuffix(" > ") if term.kind == "operator" and prefix else prefix + term.name
    label = "  " * level + name + (_HOW.get(term.how, "") if binding else "")
    if term.factor is not None:
        label += f" = {term.factor:g} times the sum of"
    if term.pack is not None:
        label += f" (pack {term.pack})"
    why = f"   {term.why}" if term.why else ""
    return f"{format_bytes(term.bytes):>12} {'*' if binding else ' '} {label}{why}"


def explain(
    bound: BoundRules, measures: Measures, results: Mapping[str, int], notes: Sequence[str] = ()
) -> Explanation:
    """Explain the price of a plan with these results; ``notes`` end the text."""
    reader = _Reader(bound, measures)
    tree, estimate = reader.total("required"), reader.total("estimate")
    binding = {term.name for term in _binding(estimate)}
    backward = binding & {"selective", "kept_retained"} or (
        "with_backward" in binding and results["input_gradient"] > 0
    )
    return Explanation(tree, estimate, "backward" if backward else "forward", tuple(notes))


def _binding(tree: Term) -> Iterator[Term]:
    """Terms on the binding branches, as far as they have bytes."""
    todo = [tree]
    while todo:
        term = todo.pop()
        if term.binding and term.bytes:
            yield term
            todo.extend(reversed(term.children))


class _Reader:
    """Walks the total's formulas with the values that one plan gives their nodes."""

    def __init__(self, bound: BoundRules, measures: Measures) -> None:
        self.bound, self.rules = bound, bound.rules
        self.compiler = bound.compilers[bound.stage(measures)]
        # Of every node: one value, or one per pack.
        self.values = bound.program.every(measures)
        self.packs = len(measures.packs)
        self.terms = 0
        self._weighs: dict[Expr, bool] = {}

    def total(self, name: str) -> Term:
        expr = self.rules.definitions[name].formula
        return self._definition(name, expr, (), None, self.value(expr, (), None))

    def value(self, expr: Expr, env: Env, pack: int | None) -> int:
        node = self.compiler.compile(expr, env)
        known = self.compiler.value(node)
        if known is not None:
            return known
        # Every other part of a formula that a price reads was compiled when the rules were bound.
        found = self.values[node]
        if pack is not None and len(found) > 1:
            return found[pack] or 0
        return max((value or 0 for value in found), default=0)

    def weighs(self, expr: Expr) -> bool:
        """Return true if a formula mentions rules or steps of the total, which get own lines."""
        found = self._weighs.get(expr)
        if found is None:
            found = self._weighs[expr] = self._mentions(expr)
        return found

    def _mentions(self, expr: Expr) -> bool:
        if expr.op in ("name", "given"):
            name = str(expr.value)
            if name in self.rules.rules or name == "learned_bytes":
                return True
            definition = self.rules.definitions.get(name)
            return definition is not None and (definition.step or self.weighs(definition.formula))
        return any(self.weighs(arg) for arg in expr.args[expr.op == "choose" :])

    def term(self, expr: Expr, env: Env, pack: int | None) -> Term:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise InputError(f"the price has more than {MAX_TERMS:,} terms: it is not explained")
        op, value = expr.op, self.value(expr, env, pack)
        if op in ("name", "given"):
            return self._named(expr, env, pack, value)
        if op == "choose":
            taken = 1 if self.value(expr.args[0], env, pack) else 2
            return self.term(expr.args[taken], env, pack)
        if self.weighs(expr):
            if op in ("+", "max", "min"):
                return self._several(expr, env, pack, value)
            if op == "scale":
                inner = self.term(expr.args[0], env, pack)
                sums = inner.kind == "operator" and inner.how == "sum"
                factor = self.compiler.factor(expr.args[1])
                parts = inner.children if sums else [inner]
                name = f"{factor:g} x"
                return Term(name, value, "operator", "x", factor=factor, children=parts)
            if op in ("sum_packs", "max_packs"):
                return self._over_packs(expr, env, value)
        return Term(str(expr), value, "formula", pack=pack)

    def _named(self, expr: Expr, env: Env, pack: int | None, value: int) -> Term:
        name, env = str(expr.value), self.compiler.replaced(expr, env)
        rule = self.rules.rules.get(name)
        if rule is not None:
            state = self.compiler.states[name]
            why = rule.why if state.state == "charged" else f"{state.state}: {rule.why}"
            return Term(name, value, "rule", why=why, pack=pack)
        definition = self.rules.definitions.get(name)
        if definition is None:
            why = "learned from observed peaks" if name == "learned_bytes" else ""
            return Term(name, value, "measure", why=why, pack=pack)
        return self._definition(name, definition.formula, env, pack, value)

    def _definition(self, name: str, expr: Expr, env: Env, pack: int | None, value: int) -> Term:
        definition = self.rules.definitions[name]
        if not self.weighs(expr):
            return Term(name, value, "formula", why=definition.why, pack=pack)
        inner = self.term(expr, env, pack)
        if not definition.step:
            return inner
        if inner.kind == "operator":
            inner.name, inner.kind, inner.why = name, "step", definition.why
            return inner
        return Term(name, value, "step", "sum", definition.why, inner.pack, children=[inner])

    def _several(self, expr: Expr, env: Env, pack: int | None, value: int) -> Term:
        children, todo = [], [expr]
        while todo:
            part = todo.pop()
            if part.op == expr.op:
                todo.extend(reversed(part.args))
            else:
                children.append(self.term(part, env, pack))
        how = "sum" if expr.op == "+" else expr.op
        if how != "sum":
            largest = next((child for child in children if child.bytes == value), None)
            for child in children:
                child.binding = child is largest
        shown = [child for child in children if child.bytes or child.kind == "rule"]
        if how == "sum" and len(shown) == 1:
            return shown[0]
        return Term(expr.op, value, "operator", how, pack=pack, children=shown)

    def _over_packs(self, expr: Expr, env: Env, value: int) -> Term:
        inner = expr.args[0]
        if self.packs == 0:
            return Term(str(expr), value, "formula")
        if expr.op == "max_packs":
            sizes = [self.value(inner, env, pack) for pack in range(self.packs)]
            return self.term(inner, env, sizes.index(max(sizes)))
        if self.packs == 1:
            return self.term(inner, env, 0)
        children = [self.term(inner, env, pack) for pack in range(min(self.packs, _SHOWN_PACKS))]
        if rest := value - sum(child.bytes for child in children):
            children.append(Term(f"{self.packs - _SHOWN_PACKS} more packs", rest, "formula"))
        return Term("packs", value, "operator", "sum", children=children)
