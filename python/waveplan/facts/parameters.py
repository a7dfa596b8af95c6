"""Parameter counts of one layer of a model, by part. Sizes as in the Hugging Face modules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from waveplan.facts.mixers import latent_parameters

__all__ = ["layer_parameters", "parameter_counts"]


def layer_parameters(model: Any) -> dict[str, int]:
    """Return the parameters of one layer of each kind, as facts.

    "Whole" parts are replicated on every tensor-parallel rank, the others are divided.
    """
    attention, attention_whole = latent_parameters(model) if model.mla else _grouped(model)
    gdn, gdn_whole = _gdn(model)
    matrices = 3 if model.gated_mlp else 2
    hidden, ffn, expert = model.hidden, model.ffn, model.expert_ffn
    expert_biases = (matrices - 1) * expert if model.expert_bias else 0
    norm = 0 if model.norm == "plain" else hidden * (2 if model.norm_bias else 1)
    latent = model.moe_latent or hidden
    return {
        "attention_parameters": attention,
        "attention_whole_parameters": attention_whole,
        "gdn_parameters": gdn,
        "gdn_whole_parameters": gdn_whole,
        "mlp_parameters": matrices * hidden * ffn + ((matrices - 1) * ffn if model.mlp_bias else 0),
        "mlp_whole_parameters": hidden if model.mlp_bias else 0,
        "expert_parameters": matrices * latent * expert + expert_biases if model.experts else 0,
        "expert_whole_parameters": latent if model.expert_bias else 0,
        "shared_parameters": matrices * hidden * model.shared_ffn,
        "shared_whole_parameters": (hidden if model.shared_gate else 0)
        + 2 * hidden * model.moe_latent,
        "router_parameters": model.experts * (hidden + (1 if model.router_bias else 0)),
        "norm_parameters": model.norms_per_layer * norm,
        "final_norm_parameters": norm,
    }


def parameter_counts(model: Any) -> dict[str, int]:
    """Parameters of the whole model by part, without modules that predict further tokens."""
    layer = SimpleNamespace(**layer_parameters(model))
    moe, embedding = sum(model.moe_layers), model.vocab * model.hidden
    other = {kind: divided + whole for kind, divided, whole in model.mixer_parameters}
    return {
        "embedding": embedding + model.positions * model.hidden,
        "attention": model.attention_layers
        * (layer.attention_parameters + layer.attention_whole_parameters),
        "gdn": model.gdn_layers * (layer.gdn_parameters + layer.gdn_whole_parameters),
        "other_mixers": sum(other.get(kind, 0) for kind in model.layer_kinds),
        "dense_mlp": model.dense_layers * (layer.mlp_parameters + layer.mlp_whole_parameters),
        "routed": (layer.expert_parameters + layer.expert_whole_parameters) * moe * model.experts,
        "shared": moe * (layer.shared_parameters + layer.shared_whole_parameters),
        "router": moe * layer.router_parameters,
        "norms": model.layers * layer.norm_parameters + layer.final_norm_parameters,
        "extra": sum(number for _, number in model.extra_parameters),
        "head": 0 if model.tied_embeddings else embedding,
    }


def _grouped(model: Any) -> tuple[int, int]:
    """(divided, replicated) parameters of grouped-query attention."""
    queries = model.heads * model.head_dim
    keys = model.kv_groups * model.head_dim
    qkv = queries * (2 if model.attention_gate else 1) + 2 * keys
    divided = model.hidden * qkv + queries * model.hidden
    if model.qkv_bias:
        divided += qkv
    if model.attention_sinks:
        divided += model.heads
    replicated = model.hidden if model.output_bias else 0
    if model.qk_norm:
        width = queries + keys if model.qk_norm_wide else 2 * model.head_dim
        replicated += width * (2 if model.norm_bias else 1)
    return divided, replicated


def _gdn(model: Any) -> tuple[int, int]:
    """(divided, replicated) parameters of a gated-delta-net mixer."""
    keys = model.gdn_key_heads * model.gdn_key_dim
    values = model.gdn_value_heads * model.gdn_value_dim
    projections = model.hidden * (2 * keys + 2 * values + 2 * model.gdn_value_heads)
    divided = (
        projections
        + model.gdn_conv_dim * model.gdn_conv
        + 2 * model.gdn_value_heads  # decay and step biases
        + values * model.hidden
    )
    return divided, model.gdn_value_dim  # the output norm
