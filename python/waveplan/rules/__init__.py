"""Pricing rules: the language, the rule sets `published` and `default`, files of overrides."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waveplan.rules.default import default_rules
    from waveplan.rules.language import (
        B,
        Expr,
        ceildiv,
        choose,
        fact,
        given,
        max_groups,
        maximum,
        measure,
        minimum,
        rule,
        scale,
        sum_groups,
    )
    from waveplan.rules.published import published_rules
    from waveplan.rules.ruleset import Definition, Rule, RuleSet
    from waveplan.rules.text import parse

__all__ = [
    "B",
    "Definition",
    "Expr",
    "Rule",
    "RuleSet",
    "ceildiv",
    "choose",
    "default_rules",
    "fact",
    "given",
    "max_groups",
    "maximum",
    "measure",
    "minimum",
    "parse",
    "published_rules",
    "rule",
    "scale",
    "sum_groups",
]

_PLACES = {
    "default_rules": "default",
    "B": "language",
    "Expr": "language",
    "ceildiv": "language",
    "choose": "language",
    "fact": "language",
    "given": "language",
    "max_groups": "language",
    "maximum": "language",
    "measure": "language",
    "minimum": "language",
    "rule": "language",
    "scale": "language",
    "sum_groups": "language",
    "published_rules": "published",
    "Definition": "ruleset",
    "Rule": "ruleset",
    "RuleSet": "ruleset",
    "parse": "text",
}


def __getattr__(name: str) -> Any:
    # Rule sets take a while to make; importing the package alone must not.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
