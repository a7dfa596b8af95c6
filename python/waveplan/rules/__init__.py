"""Pricing rules: the language, the rule sets `published` and `default`, files of overrides."""

from __future__ import annotations

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
