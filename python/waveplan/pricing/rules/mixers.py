"""Mixers and parts of layers that no rule prices."""

from __future__ import annotations

from waveplan.facts.kinds import UNPRICED
from waveplan.pricing.ruleset import NOTHING, Definition, Rule

_FACTS = (*(f"{kind}_layers" for kind in UNPRICED), "moe_latent", "extra_parameters")

TABLE = [
    Definition(
        "other_layers",
        " + ".join(f"{kind}_layers" for kind in UNPRICED),
        "layers whose mixer no rule prices",
    ),
    Rule(
        "mixer.other",
        "retained_tokens * 16 * hidden // tp * dtype_bytes * (1 if recompute_full else"
        " max(1, other_layers)) if has_gradient else 0",
        where=" and ".join(f"{name} == 0" for name in _FACTS),
        applies=" or ".join(f"{name} > 0" for name in _FACTS),
        lives="retained",
        why="what mixers other than softmax attention and gated delta nets keep, and parts beside"
        " mixer and feed-forward unit; as wide as an attention layer stands for them in the margin",
        source="no record measures one",
        reference=NOTHING,
    ),
]
