"""The rule set `published`: what the reference planner charges."""

from __future__ import annotations

from functools import cache

from waveplan.rules import (
    adapters,
    buffers,
    checkpoint,
    dense,
    head,
    moe,
    recurrent,
    selective,
    totals,
)
from waveplan.rules.ruleset import RuleSet

__all__ = ["PARTS", "published_rules"]

PARTS = [checkpoint, moe, recurrent, head, dense, selective, buffers, adapters]


@cache
def published_rules() -> RuleSet:
    """The rules of the published planner; compatible mode charges them."""
    definitions: dict[str, tuple[str, str]] = {}
    for part in PARTS:
        definitions.update(part.DEFINITIONS)
    rules = [rule for part in PARTS for rule in part.RULES]
    return RuleSet.of("published", rules, definitions, totals.TOTALS)
