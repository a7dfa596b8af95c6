"""The language of pricing rules: expressions over facts, measures and other rules.

A *fact* is an integer known before any token is seen (``hidden``, ``tp``), a *measure* an
integer known once a plan exists (``rows``, ``packed_tokens``). Expressions combine them with
``+ - * //`` (rounded down), `ceildiv`, `minimum`, `maximum`, `choose`, `scale` (a float64
product, truncated), `sum_groups` and `max_groups`. Comparisons and ``& | ~`` give 0 or 1.

>>> rows, hidden = name("rows"), name("hidden")
>>> str(sum_groups(rows * hidden * B(2)))
'sum_groups(rows * hidden * 2 B)'

Values are plain numbers or bytes; `B` makes bytes. Adding one to the other is refused when
the rule enters a rule set, and a rule must charge bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from waveplan import _values as checks
from waveplan.errors import InputError

__all__ = [
    "B",
    "Expr",
    "Position",
    "as_expr",
    "ceildiv",
    "charged",
    "choose",
    "constant",
    "fact",
    "given",
    "max_groups",
    "maximum",
    "measure",
    "minimum",
    "name",
    "rule",
    "scale",
    "sum_groups",
]

MAX_DEPTH = 100
"""How deeply operators may nest in one expression."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a piece of a formula was written."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


_ARITY = {
    **dict.fromkeys(("const", "bytes", "name", "charged"), 0),
    **dict.fromkeys(("not", "scale", "sum_groups", "max_groups"), 1),
    **dict.fromkeys(("+", "-", "*", "//", "ceildiv", "and", "or"), 2),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 2),
    "choose": 3,
}
"""Arguments of each operator; the others take any number."""


@dataclass(frozen=True, eq=False, slots=True)
class Expr:
    """One node of an expression. Frozen; compare with ``==`` to build a predicate."""

    op: str
    args: tuple[Expr, ...] = ()
    value: int | float | str = 0
    names: tuple[str, ...] = ()
    at: Position | None = None
    depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        checks.text("op", self.op)
        args = checks.entries("args", self.args)
        if (count := _ARITY.get(self.op, len(args))) != len(args):
            raise InputError(f"args has {len(args)} entries: {self.op!r} takes {count}")
        depth = 1 + max((checks.instance("args", arg, Expr).depth for arg in args), default=0)
        if depth > MAX_DEPTH:
            raise InputError(f"{where(self)}an expression nests more than {MAX_DEPTH} operators")
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "depth", depth)

    def __str__(self) -> str:
        return show(self)

    def __repr__(self) -> str:
        return f"<{show(self)}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "an expression has no truth value: combine predicates with &, | and ~, "
            "and pick values with choose()"
        )

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: Expr | int) -> Expr:
        return Expr("+", (self, as_expr(other)))

    def __radd__(self, other: int) -> Expr:
        return Expr("+", (as_expr(other), self))

    def __sub__(self, other: Expr | int) -> Expr:
        return Expr("-", (self, as_expr(other)))

    def __rsub__(self, other: int) -> Expr:
        return Expr("-", (as_expr(other), self))

    def __mul__(self, other: Expr | int) -> Expr:
        return Expr("*", (self, as_expr(other)))

    def __rmul__(self, other: int) -> Expr:
        return Expr("*", (as_expr(other), self))

    def __floordiv__(self, other: Expr | int) -> Expr:
        return Expr("//", (self, as_expr(other)))

    def __rfloordiv__(self, other: int) -> Expr:
        return Expr("//", (as_expr(other), self))

    def __lt__(self, other: Expr | int) -> Expr:
        return Expr("<", (self, as_expr(other)))

    def __le__(self, other: Expr | int) -> Expr:
        return Expr("<=", (self, as_expr(other)))

    def __gt__(self, other: Expr | int) -> Expr:
        return Expr(">", (self, as_expr(other)))

    def __ge__(self, other: Expr | int) -> Expr:
        return Expr(">=", (self, as_expr(other)))

    def __eq__(self, other: Expr | int) -> Expr:  # type: ignore[override]
        return Expr("==", (self, as_expr(other)))

    def __ne__(self, other: Expr | int) -> Expr:  # type: ignore[override]
        return Expr("!=", (self, as_expr(other)))

    def __and__(self, other: Expr | int) -> Expr:
        return Expr("and", (self, as_expr(other)))

    def __or__(self, other: Expr | int) -> Expr:
        return Expr("or", (self, as_expr(other)))

    def __invert__(self) -> Expr:
        return Expr("not", (self,))


def where(expr: Expr) -> str:
    """The prefix of a message about ``expr``: its place, if it was written as text."""
    return f"{expr.at}: " if expr.at is not None else ""


def as_expr(value: Expr | int) -> Expr:
    """An expression as it is, an integer as a constant."""
    if isinstance(value, Expr):
        return value
    return constant(value)


def constant(value: int, at: Position | None = None) -> Expr:
    """A plain number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(
            f"{checks.shown(value)} is not an integer: rules compute in integers (see scale)"
        )
    if abs(value) >= 1 << 63:
        raise InputError(f"a number of {value.bit_length()} bits does not fit in 64")
    return Expr("const", value=value, at=at)


def B(value: int) -> Expr:  # noqa: N802  (the unit's own name)
    """So many bytes."""
    return Expr("bytes", value=constant(value).value)


def name(text: str, at: Position | None = None) -> Expr:
    """A fact, a measure, a definition or (with a dot in it) a rule, by name."""
    parts = checks.text("a name", text).split(".")
    if not all(part.isidentifier() for part in parts):
        raise InputError(f"{checks.shown(text)} is not a name")
    return Expr("name", value=text, at=at)


def fact(text: str) -> Expr:
    """A fact of the model, the topology or the training mode."""
    return name(text)


def measure(text: str) -> Expr:
    """A measure of a plan or of a group (`waveplan.rules.measures` lists them)."""
    return name(text)


def rule(text: str) -> Expr:
    """What another rule charges (0 where it is off)."""
    return name(text)


def given(what: str | Expr, at: Position | None = None, /, **values: Expr | int) -> Expr:
    """A rule or definition with some measures or facts replaced.

    ``given("moe.routed_rows", rows=name("packed_tokens"))`` charges the packed tokens.
    """
    text = what if isinstance(what, str) else str(checks.instance("what", what, Expr).value)
    if not values:
        return name(text, at)
    ordered = sorted(values)
    args = tuple(as_expr(values[key]) for key in ordered)
    return Expr("given", args, value=text, names=tuple(ordered), at=at)


def minimum(first: Expr | int, *more: Expr | int) -> Expr:
    """The smallest."""
    return _chain("min", (first, *more))


def maximum(first: Expr | int, *more: Expr | int) -> Expr:
    """The largest."""
    return _chain("max", (first, *more))


def _chain(op: str, values: tuple[Expr | int, ...]) -> Expr:
    if len(values) == 1:
        return as_expr(values[0])
    return Expr(op, tuple(as_expr(value) for value in values))


def ceildiv(value: Expr | int, by: Expr | int) -> Expr:
    """The quotient rounded up."""
    return Expr("ceildiv", (as_expr(value), as_expr(by)))


def choose(condition: Expr | int, then: Expr | int, otherwise: Expr | int) -> Expr:
    """``then`` where the condition is not 0, else ``otherwise``."""
    return Expr("choose", (as_expr(condition), as_expr(then), as_expr(otherwise)))


def scale(value: Expr | int, factor: float) -> Expr:
    """A float64 product with ``factor``, truncated."""
    factor = checks.real("factor", factor)
    if not factor < 1e6:
        raise InputError(f"scale by {factor}: give a factor from 0 to a million")
    return Expr("scale", (as_expr(value),), value=factor)


def charged(text: str, at: Position | None = None) -> Expr:
    """1 where the named rule charges, 0 where it is off or not needed."""
    return Expr("charged", value=str(name(text).value), at=at)


def sum_groups(value: Expr | int) -> Expr:
    """The sum over a plan's groups."""
    return Expr("sum_groups", (as_expr(value),))


def max_groups(value: Expr | int) -> Expr:
    """The largest over a plan's groups (0 without any)."""
    return Expr("max_groups", (as_expr(value),))


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_BINDING = {
    "choose": 0,
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(COMPARISONS, 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "//"), 6),
}
_TIGHT = 9


def show(expr: Expr) -> str:
    """The expression as text that `waveplan.rules.text.parse` reads back."""

    def inner(child: Expr, level: int) -> str:
        text = show(child)
        return f"({text})" if _BINDING.get(child.op, _TIGHT) < level else text

    op, args = expr.op, expr.args
    if op in ("const", "name"):
        return str(expr.value)
    if op == "bytes":
        value = int(expr.value)
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value and value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} B"
    if op == "choose":
        condition, then, otherwise = args
        return f"{inner(then, 1)} if {inner(condition, 1)} else {inner(otherwise, 0)}"
    if op == "not":
        return f"not {inner(args[0], 3)}"
    if op in _BINDING:
        level = _BINDING[op]
        left = level + (op in COMPARISONS)
        return f"{inner(args[0], left)} {op} {inner(args[1], level + 1)}"
    if op == "charged":
        return f"charged({expr.value})"
    if op == "scale":
        return f"scale({show(args[0])}, {expr.value!r})"
    if op == "given":
        pairs = zip(expr.names, args, strict=True)
        return f"{expr.value}({', '.join(f'{key}={show(arg)}' for key, arg in pairs)})"
    return f"{op}({', '.join(show(arg) for arg in args)})"
