"""Parameter counts of whole models, to compare with published ones."""

from __future__ import annotations

from types import SimpleNamespace

from waveplan.facts.model import Model
from waveplan.facts.parameters import layer_parameters


def count(model: Model) -> SimpleNamespace:
    """Parameters by part, multi-token prediction and vision left out."""
    layer = SimpleNamespace(**layer_parameters(model))
    moe, embedding = sum(model.moe_layers), model.vocab * model.hidden
    routed = layer.expert_parameters * moe
    parts = {
        "embedding": embedding,
        "attention": model.attention_layers
        * (layer.attention_parameters + layer.attention_whole_parameters),
        "gdn": model.gdn_layers * (layer.gdn_parameters + layer.gdn_whole_parameters),
        "dense_mlp": (model.layers - moe) * (layer.mlp_parameters + layer.mlp_whole_parameters),
        "routed": routed * model.experts,
        "shared": moe * (layer.shared_parameters + layer.shared_whole_parameters),
        "router": moe * layer.router_parameters,
        "norms": model.layers * layer.norm_parameters + layer.final_norm_parameters,
        "head": 0 if model.tied_embeddings else embedding,
    }
    total = sum(parts.values())
    return SimpleNamespace(
        **parts,
        total=total,
        active=total - routed * (model.experts - model.topk),
        non_embedding=total - embedding - parts["head"],
    )
