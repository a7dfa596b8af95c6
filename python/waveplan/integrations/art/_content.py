"""Know the other package by its source: each replaced function, and all that it stands on.

``known.json`` holds the hash of each module, of each of its definitions, and, for each seam, the
numbers of those that its function reaches by name. `tests/art/known` writes it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("known.json")
MODULES = (
    *(f"trainer_rank.{name}" for name in ("_impl", "_memory", "_micro_batch_planner", "_slots")),
    *(f"trainer_rank.{name}" for name in ("_gdn_memory", "_planner_cost", "_prefix_tree_planner")),
    "trainer_rank._prefix_tree_performance_search",
    "trainer_rank._prefix_tree_materializer",
    *("megatron.prefix_tree_packing", "megatron.gdn.gdn_prefix_tree"),
    *(f"megatron.context_parallel.{name}" for name in ("runtime", "types", "builder")),
    *(f"megatron.context_parallel.{name}" for name in ("range_ops", "layout_index")),
    *("megatron.training.microbatches", "megatron.train"),
)
"""Modules of the package, below its name, that planning stands on."""


def source(module: str) -> str:
    """Return the source of a module of the package, without importing it."""
    spec = importlib.util.find_spec(f"art.{module}")
    if spec is None or spec.origin is None:
        return ""
    return Path(spec.origin).read_text("utf-8")


def digest(text: str) -> str:
    """Return a hash of source."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def definitions(text: str) -> dict[str, ast.AST]:
    """Return what a module defines, methods as ``Class.method``, docstrings removed.

    A class stands for what is in it besides methods.
    """
    found: dict[str, ast.AST] = {}
    for node in ast.parse(text).body:
        for name in _names(node):
            found[name] = node
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, _FUNCTIONS)]
            found |= {f"{node.name}.{one.name}": _bare(one) for one in methods}
            node.body = [one for one in node.body if one not in methods] or [ast.Pass()]
        _bare(node)
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _bare(node: Any) -> Any:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        value = body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            node.body = body[1:] or [ast.Pass()]
    return node


def hashes(text: str) -> dict[str, str]:
    """Return the hash of each definition, whatever its comments and layout."""
    return {name: digest(ast.unparse(node)) for name, node in definitions(text).items()}


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return a function's parameters: name, kind, and "=" where it may be left out."""
    given = inspect.signature(function).parameters.values()
    return [f"{p.name} {p.kind.name}{'=' * (p.default is not p.empty)}" for p in given]


@cache
def table() -> dict[str, Any]:
    """Return the known hashes."""
    data: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return data


def changed() -> dict[str, list[str]]:
    """Return the definitions of the installed package that are not as known, by seam."""
    known = table()
    differing: set[str] = set()
    every: list[str] = []
    for module, entry in known["modules"].items():
        every += [f"{module}:{name}" for name in entry["names"]]
        text = source(module)
        if digest(text) == entry["file"]:
            continue
        try:
            now = hashes(text)
        except SyntaxError:
            now = {}
        names = entry["names"].items()
        differing |= {f"{module}:{name}" for name, of in names if now.get(name) != of}
    found = {}
    for seam, entry in known["seams"].items():
        names = [every[number] for number in entry["on"] if every[number] in differing]
        if names:
            found[seam] = names
    return found
