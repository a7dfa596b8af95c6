"""Checks formulas before they are used: names, units, where group measures may stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from waveplan.errors import InputError
from waveplan.rules import names
from waveplan.rules.language import Expr, where

__all__ = ["Kind", "infer", "mentioned", "nesting", "order"]

NUMBER, BYTES, ANY = "a plain number", "bytes", "zero"
_MAX_CHAIN = 24
MAX_NESTING = 150
"""Levels of operators through all definitions: what walks over them is recursive."""
_ARITHMETIC = ("+", "-", "min", "max")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a formula yields: its unit, the group measures it leaves open, its nesting."""

    unit: str
    free: frozenset[str] = frozenset()
    chain: int = 0


def mentioned(expr: Expr) -> list[tuple[str, Expr]]:
    """Every name a formula mentions with its place, replaced measures not included."""
    found, todo = [], [expr]
    while todo:
        node = todo.pop()
        if node.op in ("name", "given", "charged"):
            found.append((str(node.value), node))
        todo.extend(reversed(node.args))
    return found


def nesting(expr: Expr, known: Mapping[str, int]) -> int:
    """Levels of operators, with those of the formulas it mentions; ``known`` has theirs."""
    deepest, todo = 0, [(expr, 1)]
    while todo:
        node, level = todo.pop()
        inner = known.get(str(node.value), 0) if node.op in ("name", "given") else 0
        deepest = max(deepest, level + inner)
        todo.extend((arg, level + 1) for arg in node.args)
    return deepest


def order(formulas: Mapping[str, Expr]) -> list[str]:
    """Names of formulas so that each comes after those it mentions; cycles are refused."""
    done: dict[str, bool] = {}
    ordered = []
    for start in formulas:
        todo = [(start, False)]
        path: list[str] = []
        while todo:
            name, leaving = todo.pop()
            if leaving:
                done[name] = True
                path.pop()
                ordered.append(name)
                continue
            if name in done:
                if not done[name]:
                    cycle = [*path[path.index(name) :], name]
                    raise InputError(f"rules go in a circle: {' -> '.join(cycle)}")
                continue
            done[name] = False
            path.append(name)
            todo.append((name, True))
            inner = [key for key, _ in mentioned(formulas[name]) if key in formulas]
            todo.extend((key, False) for key in reversed(inner))
    return ordered


def infer(expr: Expr, kinds: Mapping[str, Kind]) -> Kind:
    """The kind of a formula, given those of the formulas it mentions. Refuses what is wrong."""
    inner = [infer(arg, kinds) for arg in expr.args]
    chain = max((kind.chain for kind in inner), default=0)
    free = frozenset().union(*(kind.free for kind in inner))
    units = [kind.unit for kind in inner]
    op = expr.op
    if op == "const":
        return Kind(ANY if expr.value == 0 else NUMBER)
    if op == "bytes":
        return Kind(BYTES)
    if op == "name":
        return _named(expr, kinds)
    if op == "given":
        return _given(expr, inner, kinds)
    if op == "charged":
        if "." not in str(expr.value) or str(expr.value) not in kinds:
            hint = names.suggest(str(expr.value), [key for key in kinds if "." in key])
            raise InputError(f"{where(expr)}no rule {expr.value!r}: {hint}")
        return Kind(NUMBER)
    if op in _ARITHMETIC:
        return Kind(_same(expr, units), free, chain)
    if op == "*":
        if units.count(BYTES) > 1:
            _refuse(expr, "bytes times bytes")
        return Kind(BYTES if BYTES in units else ANY if ANY in units else NUMBER, free, chain)
    if op in ("//", "ceildiv"):
        if units[1] == BYTES:
            if units[0] == NUMBER:
                _refuse(expr, "a plain number divided by bytes")
            return Kind(NUMBER, free, chain)
        return Kind(units[0], free, chain)
    if op in _COMPARISONS:
        _same(expr, units)
        return Kind(NUMBER, free, chain)
    if op in ("and", "or", "not"):
        if BYTES in units:
            _refuse(expr, f"{op} of bytes: compare them first")
        return Kind(NUMBER, free, chain)
    if op == "choose":
        if units[0] == BYTES:
            _refuse(expr, "bytes as a condition: compare them first")
        return Kind(_same(expr, units[1:]), free, chain)
    if op == "scale":
        return Kind(units[0], free, chain)
    if op in ("sum_groups", "max_groups"):
        return Kind(units[0], frozenset(), chain)
    return _refuse(expr, f"no operator is called {op!r}")


def _refuse(expr: Expr, message: str) -> NoReturn:
    raise InputError(f"{where(expr)}{message} in {_short(expr)}")


def _short(expr: Expr) -> str:
    text = str(expr)
    return text if len(text) <= 80 else text[:77] + "..."


def _same(expr: Expr, units: list[str]) -> str:
    real = {unit for unit in units if unit != ANY}
    if len(real) > 1:
        _refuse(expr, f"{expr.op!r} mixes bytes and plain numbers (multiply one by so many B)")
    return real.pop() if real else ANY


def _leaf(name: str) -> Kind | None:
    unit = BYTES if names.is_bytes(name) else NUMBER
    if name in names.GROUP:
        return Kind(unit, frozenset({name}))
    if name in names.PLAN or name in names.fact_names():
        return Kind(unit)
    return None


def _named(expr: Expr, kinds: Mapping[str, Kind]) -> Kind:
    name = str(expr.value)
    kind = kinds.get(name)
    if kind is not None:
        if kind.chain >= _MAX_CHAIN:
            _refuse(expr, f"more than {_MAX_CHAIN} definitions inside each other")
        return Kind(kind.unit, kind.free, kind.chain + 1)
    leaf = _leaf(name)
    if leaf is None:
        known = {*kinds, *names.PLAN, *names.GROUP, *names.fact_names()}
        raise InputError(f"{where(expr)}no {name!r}: {names.suggest(name, known)}")
    return leaf


def _given(expr: Expr, inner: list[Kind], kinds: Mapping[str, Kind]) -> Kind:
    name = str(expr.value)
    body = kinds.get(name)
    if body is None:
        if _leaf(name) is None:
            raise InputError(f"{where(expr)}no rule {name!r}: {names.suggest(name, kinds)}")
        _refuse(expr, f"{name} is a fact or measure: only rules and definitions take replacements")
    for key, kind in zip(expr.names, inner, strict=True):
        leaf = _leaf(key)
        if leaf is None:
            known = {*names.PLAN, *names.GROUP, *names.fact_names()}
            raise InputError(
                f"{where(expr)}{key!r} is no fact or measure: {names.suggest(key, known)}"
            )
        if kind.unit not in (ANY, leaf.unit):
            _refuse(expr, f"{key} is {leaf.unit}, but {kind.unit} given")
    free = (body.free - set(expr.names)).union(*(kind.free for kind in inner))
    chain = max([body.chain + 1, *(kind.chain for kind in inner)])
    if chain > _MAX_CHAIN:
        _refuse(expr, f"more than {_MAX_CHAIN} definitions inside each other")
    return Kind(body.unit, free, chain)
