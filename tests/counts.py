"""Parameter counts of whole models, to compare with published ones."""

from __future__ import annotations

from types import SimpleNamespace

from waveplan.facts.model import Model
from waveplan.facts.parameters import parameter_counts


def count(model: Model) -> SimpleNamespace:
    """Parameters by part, multi-token prediction and vision left out."""
    parts = parameter_counts(model)
    idle = parts["routed"] // max(1, model.experts) * (model.experts - model.topk)
    total = sum(parts.values())
    return SimpleNamespace(
        **parts,
        total=total,
        active=total - idle,
        non_embedding=total - parts["embedding"] - parts["head"],
    )
