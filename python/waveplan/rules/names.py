"""The vocabulary of rules: which names exist, what each means and its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from waveplan._core import GROUP_MEASURES, PLAN_MEASURES
from waveplan.facts import facts
from waveplan.model import Model
from waveplan.topology import Topology
from waveplan.training import Training

__all__ = ["GROUP", "PLAN", "fact_names", "is_bytes", "suggest"]

PLAN: Mapping[str, str] = dict(PLAN_MEASURES)
"""Measures of a whole plan and what they mean, in the core's order."""
GROUP: Mapping[str, str] = dict(GROUP_MEASURES)
"""Measures of one group of a plan and what they mean, in the core's order."""

_ALSO_BYTES = frozenset({"hybridep_buffer"})


def is_bytes(name: str) -> bool:
    """Whether a fact or measure is in bytes; all others are plain numbers."""
    return name.endswith("_bytes") or name in _ALSO_BYTES


@cache
def fact_names() -> frozenset[str]:
    """Every fact that `waveplan.facts.facts` gives."""
    smallest = Model(hidden=1, layers=1, vocab=1, heads=1, kv_groups=1, head_dim=1, ffn=1)
    return frozenset(facts(smallest, Topology(), Training()))


def suggest(wrong: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown name, for the end of a message."""
    import difflib  # slow to import, needed for mistakes alone

    close = difflib.get_close_matches(wrong, list(known), n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "known are the facts and measures of waveplan.rules.names, and rules by name"
