"""The table of rules: a file per part of the model, an entry per rule or definition."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waveplan.pricing.ruleset import Definition, Rule, RuleSet

__all__ = ["default_rules", "reference_rules", "resident_rules"]

PARTS = (
    *("checkpoint", "moe", "gdn", "layer", "head", "dense", "selective", "kept", "mixers"),
    *("buffers", "trainer"),
    *("adapters", "totals"),
)


def _table(*parts: str) -> list[Rule | Definition]:
    # Read when first asked for, so that importing the package costs little.
    return [row for part in parts for row in import_module(f"{__name__}.{part}").TABLE]


@cache
def default_rules() -> RuleSet:
    """Our rules; uncharged ones are charged as a visible margin."""
    from waveplan.pricing.ruleset import RuleSet

    return RuleSet.of(
        "default", _table(*PARTS), margin=True, resident=resident_rules(), bundled=True
    )


@cache
def reference_rules() -> RuleSet:
    """The same table as the reference planner charges it; reference mode uses these."""
    from waveplan.pricing.ruleset import RuleSet

    table = [row.as_reference() for row in _table(*PARTS)]
    return RuleSet.of("reference", table, resident=resident_rules(), bundled=True)


@cache
def resident_rules() -> RuleSet:
    """The rules of what stays allocated between waves."""
    from waveplan.pricing.ruleset import RuleSet

    return RuleSet.of("resident", _table("resident"), total="resident", bundled=True)
