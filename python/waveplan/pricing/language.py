"""The language of pricing rules: Python expressions, read by `ast` and never run.

A *fact* is an integer known before any token is seen (``hidden``, ``tp``), a *measure* an integer
known once a plan exists (``local_tokens``, ``packed_tokens``). A formula combines facts, measures,
definitions and rules (by name) with

    + - * //   < <= > >= == !=   and or not   a if c else b
    min(...)   max(...)   ceildiv(a, b)   (rounded up)
    scale(bytes, factor)                  a float64 product, truncated
    sum_packs(x)   max_packs(x)           over the packs of a plan (0 without any)
    charged(rule)                         1 where the rule charges
    moe.routed_tokens(local_tokens=1)       a rule or definition with some names replaced

Values are plain numbers or bytes: ``B``, ``KiB``, ``MiB`` and ``GiB`` are units to multiply by.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

from waveplan._core import PACK_MEASURES, PLAN_MEASURES
from waveplan.errors import InputError
from waveplan.facts.model import Model
from waveplan.facts.table import facts
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training

__all__ = ["PACK", "PLAN", "Expr", "Formula", "Kind", "infer", "order", "parse", "reached"]

PLAN: Mapping[str, str] = dict(PLAN_MEASURES)
"""Measures of a whole plan and their meanings, in the core's order."""
PACK: Mapping[str, str] = dict(PACK_MEASURES)
"""Measures of one pack of a plan and their meanings, in the core's order."""

MAX_DEPTH = 100
"""How deeply operators may nest in one formula."""
MAX_NESTING = 150
"""The same through all definitions: what walks over them is recursive."""

_BINARY = {ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_FUNCTIONS = {
    **dict.fromkeys(("scale", "ceildiv"), 2),
    **dict.fromkeys(("sum_packs", "max_packs", "charged"), 1),
    **dict.fromkeys(("min", "max"), 0),
}
"""Arguments of each function; 0 is any number."""


@dataclass(eq=False, slots=True, repr=False)
class Expr:
    """One node of a formula; never changed."""

    op: str
    args: tuple[Expr, ...] = ()
    value: int | float | str = 0
    names: tuple[str, ...] = ()
    """Of a call that replaces names: those, for each of ``args``."""
    node: ast.expr = field(default_factory=lambda: ast.Constant(0), repr=False)
    text: str = ""
    """The formula that it is a part of."""
    source: str = ""

    @cache  # noqa: B019  (rules live as long as the process; every binding writes some)
    def __str__(self) -> str:
        part = ast.get_source_segment(self.text, self.node) if "#" not in self.text else None
        return " ".join((part or ast.unparse(self.node)).split())

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def at(self) -> str:
        """The place it was written at, as the beginning of a message."""
        line, column = self.node.lineno, self.node.col_offset
        return f"{self.source}:{line}:{column + (line > 1)}: "


Formula = Expr | str | int | float


def parse(formula: Formula, source: str = "rule") -> Expr:
    """Return the expression that a formula spells; ``source`` names it in messages.

    Raises:
        InputError: what is not in the language, with its line and column.
    """
    if isinstance(formula, Expr):
        return formula
    if isinstance(formula, bool) or not isinstance(formula, str | int | float):
        raise InputError(f"{source}: a formula is text, not {type(formula).__name__}")
    text = formula if isinstance(formula, str) else repr(formula)
    if not text.strip():
        raise InputError(f"{source}: no formula: the text is empty")
    try:
        # In parentheses a formula may go over several lines.
        text = f"({text}\n)"
        return _read(ast.parse(text, mode="eval").body, text, source, MAX_DEPTH)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        place = f"{source}:{line}:{max(1, column - (line == 1))}: "
        raise InputError(f"{place}no formula: {error.msg.partition(';')[0]}") from None
    except (UnicodeError, RecursionError, MemoryError):
        raise InputError(f"{source}: no formula: it nests too deeply, or is no text") from None


def _read(node: ast.expr, text: str, source: str, left: int) -> Expr:
    """The expression of a parsed formula in which operators may nest ``left`` levels more."""
    op, args, value, names = _parts(node, source)
    if left == 0:
        raise _misread(node, source, f"a formula nests more than {MAX_DEPTH} operators")
    inner = tuple(_read(arg, text, source, left - 1) for arg in args)
    return Expr(op, inner, value, names, node, text, source)


_Parts = tuple[str, Sequence[ast.expr], int | float | str, tuple[str, ...]]


def _parts(node: ast.expr, source: str) -> _Parts:
    """Operation, arguments, value and replaced names of one node."""
    match node:
        case ast.Name(id=name):
            return ("bytes", (), _UNITS[name], ()) if name in _UNITS else ("name", (), name, ())
        case ast.Attribute():
            return "name", (), _dotted(node, source), ()
        case ast.Constant(value=bool()):
            raise _misread(node, source, "write 1 or 0")
        case ast.Constant(value=int() as value):
            if value >= 1 << 63:
                bits = value.bit_length()
                raise _misread(node, source, f"a number of {bits} bits does not fit in 64")
            return "const", (), value, ()
        case ast.Constant(value=float() as value):
            if not value < 1e6:
                raise _misread(node, source, f"a factor of {value}: give one from 0 to a million")
            return "factor", (), value, ()
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            terms = [b]
            while isinstance(a, ast.BinOp) and isinstance(a.op, ast.Add):
                terms.append(a.right)
                a = a.left
            return "+", (a, *reversed(terms)), 0, ()
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _BINARY:
            return _BINARY[type(op)], (a, b), 0, ()
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return "not", (a,), 0, ()
        case ast.BoolOp(op=op, values=values):
            return "and" if isinstance(op, ast.And) else "or", values, 0, ()
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _COMPARE:
            return _COMPARE[type(op)], (a, b), 0, ()
        case ast.IfExp(test=test, body=then, orelse=other):
            return "choose", (test, then, other), 0, ()
        case ast.Call():
            return _call(node, source)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        raise _misread(node, source, "/ is no operator of rules: write // or ceildiv(a, b)")
    if isinstance(node, ast.UnaryOp):
        raise _misread(node, source, "a rule charges no less than 0: leave out the sign")
    raise _misread(node, source, f"{type(node).__name__} is not part of the language of rules")


def _call(node: ast.Call, source: str) -> _Parts:
    """A function, or a rule or definition with some names replaced."""
    name, args = _dotted(node.func, source), node.args
    if name not in _FUNCTIONS:
        given = {key.arg: key.value for key in node.keywords}
        if args or None in given or len(given) < max(1, len(node.keywords)):
            raise _misread(
                node, source, f"{name}(...) replaces names, each once: {name}(local_tokens=...)"
            )
        names = tuple(sorted(key for key in given if key))
        return "given", [given[key] for key in names], name, names
    if node.keywords or not args or _FUNCTIONS[name] not in (0, len(args)):
        wanted = _FUNCTIONS[name] or "some"
        raise _misread(node, source, f"{name}() takes {wanted} arguments without names")
    if name == "charged":
        return name, (), _dotted(args[0], source), ()
    return name, args, 0, ()


def _dotted(node: ast.expr, source: str) -> str:
    """The name that ``a.b.c`` spells."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, source)}.{node.attr}"
    raise _misread(node, source, "not the name of a rule")


def _misread(node: ast.expr, source: str, message: str) -> InputError:
    return InputError(f"{Expr('', node=node, source=source).at}{message}")


# -- names and units ----------------------------------------------------------------------------


@cache
def fact_names() -> frozenset[str]:
    """Every fact that `waveplan.facts.facts` gives."""
    smallest = Model(hidden=1, layers=1, vocab=1, heads=1, kv_groups=1, head_dim=1, ffn=1)
    return frozenset(facts(smallest, Topology(), Training()))


def suggest(wrong: str, known: Iterable[str]) -> str:
    """A name to write instead of an unknown one, for the end of a message."""
    import difflib  # slow to import, needed for mistakes alone

    close = difflib.get_close_matches(wrong, list(known), n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "docs/rules.md lists the measures and rules, planner.bound.facts the facts"


def parts(expr: Expr) -> Iterator[Expr]:
    """Yield a formula and every part of it, from left to right."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(reversed(part.args))


def mentioned(expr: Expr) -> list[Expr]:
    """Every part of a formula that mentions a name, replaced names not included."""
    return [part for part in parts(expr) if part.op in ("name", "given", "charged")]


def reached(expr: Expr, formula: Callable[[str], Expr | None]) -> Iterator[Expr]:
    """Yield what a formula mentions, and what the formulas mention that it uses, each read once."""
    todo, seen = [expr], set[str]()
    while todo:
        for part in mentioned(todo.pop()):
            yield part
            name = str(part.value)
            inner = formula(name) if part.op != "charged" and name not in seen else None
            if inner is not None:
                seen.add(name)
                todo.append(inner)


def order(formulas: Mapping[str, Expr]) -> list[str]:
    """Names of formulas so that each comes after those it mentions; circles are refused."""
    from graphlib import CycleError, TopologicalSorter

    graph = {
        name: dict.fromkeys(str(part.value) for part in mentioned(expr) if part.value in formulas)
        for name, expr in formulas.items()
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise InputError(f"rules go in a circle: {' -> '.join(error.args[1][::-1])}") from None


# -- formulas of facts alone --------------------------------------------------------------------

Fold = Callable[[Mapping[str, int]], int]
OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "min": min,
    "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}
"""Operators of two integers."""


class Folds(dict[Expr, Fold | None]):
    """Formulas of facts alone as functions of them, each made once; None of others."""

    def __init__(self, rules: Mapping[str, object], formula: Callable[[str], Expr | None]) -> None:
        self._rules, self._formula = rules, formula

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._rules, self._formula)  # functions are made again

    def __missing__(self, expr: Expr) -> Fold | None:
        made = self[expr] = self._make(expr)
        return made

    def _make(self, expr: Expr) -> Fold | None:
        op = expr.op
        if op in ("const", "bytes"):
            value = int(expr.value)
            return lambda _: value
        if op == "name":
            return self._name(str(expr.value))
        if op not in OPERATIONS and op not in ("and", "or", "not", "choose"):
            return None
        found = [self[arg] for arg in expr.args]
        parts = [one for one in found if one is not None]
        if len(parts) < len(found):
            return None
        first, *others = parts
        if op == "not":
            return lambda facts: not first(facts)
        if op == "choose":
            then, other = others
            return lambda facts: then(facts) if first(facts) else other(facts)
        for part in others:
            first = _joined(op, first, part)
        return first

    def _name(self, name: str) -> Fold | None:
        if name in self._rules or name in PLAN or name in PACK:
            return None
        formula = self._formula(name)
        return operator.itemgetter(name) if formula is None else self[formula]


def _joined(op: str, a: Fold, b: Fold) -> Fold:
    if op == "and":
        return lambda facts: bool(a(facts) and b(facts))
    if op == "or":
        return lambda facts: bool(a(facts) or b(facts))
    operation = OPERATIONS[op]
    return lambda facts: operation(a(facts), b(facts))


class Masks(dict[Expr, int]):
    """Of formulas the facts and rules that they mention, through definitions, as bits."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions, self._bits = definitions, dict[str, int]()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._definitions,)

    def of(self, names: Iterable[str]) -> int:
        """The bits of these facts and rules."""
        bits, mask = self._bits, 0
        for name in names:
            mask |= bits.setdefault(name, 1 << len(bits))
        return mask

    def __missing__(self, expr: Expr) -> int:
        mask = 0
        for arg in expr.args:
            mask |= self[arg]
        if expr.op in ("name", "given", "charged"):
            name = str(expr.value)
            known = self._definitions.get(name)
            mask |= self.of((name,)) if known is None else self[known.formula]
        self[expr] = mask
        return mask


NUMBER, BYTES, FACTOR, ZERO = "a plain number", "bytes", "a factor", "zero"


@dataclass(frozen=True, slots=True)
class Kind:
    """The unit of a formula, the pack measures it leaves open, its levels of operators."""

    unit: str
    free: frozenset[str] = frozenset()
    depth: int = 1


def leaf(name: str) -> Kind | None:
    """The kind of a fact or measure."""
    unit = BYTES if name.endswith("_bytes") or name == "hybridep_buffer" else NUMBER
    if name in PACK:
        return Kind(unit, frozenset({name}))
    return Kind(unit) if name in PLAN or name in fact_names() else None


def infer(expr: Expr, kinds: Mapping[str, Kind]) -> Kind:
    """The kind of a formula, given those of the formulas it mentions. Refuses what is wrong."""
    inner = [infer(arg, kinds) for arg in expr.args]
    units = [kind.unit for kind in inner]
    kind = _named(expr, inner, kinds) if expr.op in ("name", "given", "charged") else None
    free = frozenset().union(*(kind.free for kind in inner))
    if expr.op in ("sum_packs", "max_packs"):
        free = frozenset()
    depth = 1 + max((kind.depth for kind in inner), default=0)
    made = kind or Kind(_unit(expr, units), free, depth)
    if made.depth > MAX_NESTING:
        _refuse(expr, f"more than {MAX_NESTING} operators inside each other, with those of names")
    return made


def _unit(expr: Expr, units: list[str]) -> str:
    op = expr.op
    if op in ("const", "bytes", "factor"):
        plain = NUMBER if expr.value else ZERO
        return {"const": plain, "bytes": BYTES, "factor": FACTOR}[op]
    if op == "scale":
        if units[1] != FACTOR and expr.args[1].op != "const":
            _refuse(expr, "the factor of scale() is a decimal number, or a definition of one")
        return units[0]
    if FACTOR in units:
        _refuse(expr, "a decimal number (only scale() takes one)")
    if op in ("+", "-", "min", "max"):
        return _same(expr, units)
    if op == "*":
        if units.count(BYTES) > 1:
            _refuse(expr, "bytes times bytes")
        return next((unit for unit in (BYTES, ZERO) if unit in units), NUMBER)
    if op in ("//", "ceildiv"):
        if units == [NUMBER, BYTES]:
            _refuse(expr, "a plain number divided by bytes")
        return NUMBER if units[1] == BYTES else units[0]
    if op in _COMPARE.values():
        _same(expr, units)
        return NUMBER
    if BYTES in (units[:1] if op == "choose" else units) and op in ("and", "or", "not", "choose"):
        _refuse(expr, "bytes as a condition: compare them first")
    if op == "choose":
        return _same(expr, units[1:])
    return units[0] if op in ("sum_packs", "max_packs") else NUMBER


def _same(expr: Expr, units: list[str]) -> str:
    real = {unit for unit in units if unit != ZERO}
    if len(real) > 1:
        _refuse(expr, f"{expr.op!r} mixes bytes and plain numbers (multiply one by so many B)")
    return real.pop() if real else ZERO


def _refuse(expr: Expr, message: str) -> NoReturn:
    text = str(expr)
    raise InputError(f"{expr.at}{message} in {text if len(text) <= 80 else text[:77] + '...'}")


def _named(expr: Expr, inner: list[Kind], kinds: Mapping[str, Kind]) -> Kind:
    name = str(expr.value)
    body = kinds.get(name)
    if expr.op == "charged":
        if body is None or "." not in name:
            hint = suggest(name, [key for key in kinds if "." in key])
            raise InputError(f"{expr.at}no rule {name!r}: {hint}")
        return Kind(NUMBER)
    if body is None:
        fact_or_measure = leaf(name)
        if fact_or_measure is None:
            hint = suggest(name, {*kinds, *PLAN, *PACK, *fact_names(), *_FUNCTIONS})
            raise InputError(f"{expr.at}no {name!r}: {hint}")
        if expr.op == "given":
            _refuse(expr, f"{name} is a fact or measure: only rules and definitions are replaced")
        return fact_or_measure
    for key, kind in zip(expr.names, inner, strict=True):
        replaced = leaf(key)
        if replaced is None:
            hint = suggest(key, {*PLAN, *PACK, *fact_names()})
            raise InputError(f"{expr.at}{key!r} is no fact or measure: {hint}")
        if kind.unit not in (ZERO, replaced.unit):
            _refuse(expr, f"{key} is {replaced.unit}, but {kind.unit} given")
    free = (body.free - set(expr.names)).union(*(kind.free for kind in inner))
    depth = 1 + max([body.depth, *(kind.depth for kind in inner)])
    return Kind(body.unit, free, depth)
