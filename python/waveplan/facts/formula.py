"""Formulas over the keys of a config: a closed part of Python's expressions.

``hidden_size // num_attention_heads``, ``"sliding" if (i + 1) % 6 else "attention"``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

__all__ = ["evaluate", "names"]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": min,
    "max": max,
    "sum": sum,
    "ceil": lambda a, b: -(-a // b) * b,
    "int": int,
}


@cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def names(formula: Any) -> set[str]:
    """The names that a formula mentions."""
    if not isinstance(formula, str):
        return set()
    found = {node.id for node in ast.walk(_parsed(formula)) if isinstance(node, ast.Name)}
    return found - _CALLS.keys()


def evaluate(formula: Any, values: Mapping[str, Any]) -> Any:
    """The value of a formula; what is no text stands for itself. ``values`` gives the names."""
    return _value(_parsed(formula), values) if isinstance(formula, str) else formula


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, values), _value(node.right, values)
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.BoolOp):
        decided = isinstance(node.op, ast.Or)
        value: Any = None
        for part in node.values:
            value = _value(part, values)
            if bool(value) == decided:
                break
        return value
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, values)
        return not value if isinstance(node.op, ast.Not) else -value
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, values) else node.orelse, values)
    if isinstance(node, ast.Compare):
        left = _value(node.left, values)
        for kind, other in zip(node.ops, node.comparators, strict=True):
            right = _value(other, values)
            if not _COMPARE[type(kind)](left, right):
                return False
            left = right
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _CALLS[node.func.id](*(_value(part, values) for part in node.args))
    if isinstance(node, ast.Subscript):
        return _value(node.value, values)[_value(node.slice, values)]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(part, values) for part in node.elts]
    raise TypeError(f"{ast.unparse(node)} is outside what formulas may use")
