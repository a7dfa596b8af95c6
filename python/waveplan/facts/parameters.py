"""Exact parameter counts of a model, by part and by layer."""

from __future__ import annotations

from dataclasses import dataclass, fields

from waveplan.checks import instance
from waveplan.facts.model import Model

__all__ = ["LayerParts", "Parameters", "count", "layer_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameter counts by part. Multi-token-prediction and vision parts are not included."""

    embedding: int
    attention: int
    gdn: int
    dense_mlp: int
    routed: int
    shared: int
    router: int
    norms: int
    head: int
    """0 when the embedding is tied."""
    active_routed: int
    """Routed parameters that one token passes through."""

    @property
    def total(self) -> int:
        """All parameters; tied embeddings count once."""
        return (
            self.embedding
            + self.attention
            + self.gdn
            + self.dense_mlp
            + self.routed
            + self.shared
            + self.router
            + self.norms
            + self.head
        )

    @property
    def active(self) -> int:
        """Parameters that one token passes through, embedding and head included."""
        return self.total - self.routed + self.active_routed

    @property
    def non_embedding(self) -> int:
        """All parameters but the embedding and the head."""
        return self.total - self.embedding - self.head

    def to_dict(self) -> dict[str, int]:
        """Counts by part, with total and active."""
        parts = {field.name: int(getattr(self, field.name)) for field in fields(self)}
        return {**parts, "total": self.total, "active": self.active}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """Parameter counts of one layer of each kind, split by how tensor parallelism treats them.

    "Replicated" parts are whole on every tensor-parallel rank, the others are divided.
    """

    attention: int
    attention_replicated: int
    gdn: int
    gdn_replicated: int
    dense_mlp: int
    dense_mlp_replicated: int
    routed: int
    shared: int
    shared_replicated: int
    router: int
    norms: int


def layer_parts(model: Model) -> LayerParts:
    """Parameters of one layer of each kind. Sizes as in the Hugging Face modules."""
    instance("model", model, Model)
    attention, attention_replicated = _latent(model) if model.mla else _grouped(model)
    gdn, gdn_replicated = _gdn(model)
    matrices = 3 if model.gated_mlp else 2
    hidden, ffn, expert = model.hidden, model.ffn, model.expert_ffn
    expert_biases = (matrices - 1) * expert + hidden if model.expert_bias else 0
    return LayerParts(
        attention=attention,
        attention_replicated=attention_replicated,
        gdn=gdn,
        gdn_replicated=gdn_replicated,
        dense_mlp=matrices * hidden * ffn + ((matrices - 1) * ffn if model.mlp_bias else 0),
        dense_mlp_replicated=hidden if model.mlp_bias else 0,
        routed=model.experts * (matrices * hidden * expert + expert_biases),
        shared=matrices * hidden * model.shared_ffn,
        shared_replicated=hidden if model.shared_gate else 0,
        router=model.experts * (hidden + (1 if model.router_bias else 0)),
        norms=model.norms_per_layer * hidden * (2 if model.norm_bias else 1),
    )


def _grouped(model: Model) -> tuple[int, int]:
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
        replicated += 2 * model.head_dim
    return divided, replicated


def _latent(model: Model) -> tuple[int, int]:
    """(divided, replicated) parameters of multi-head latent attention.

    The down projections and their norms are whole on every rank, the up projections are
    divided over heads.
    """
    query_dim = model.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    value_dim = model.heads * model.v_head_dim
    rank = model.kv_lora_rank
    replicated = model.hidden * (rank + model.qk_rope_head_dim) + rank
    divided = rank * (model.heads * model.qk_nope_head_dim + value_dim) + value_dim * model.hidden
    if model.q_lora_rank:
        replicated += model.hidden * model.q_lora_rank + model.q_lora_rank
        divided += model.q_lora_rank * query_dim
    else:
        divided += model.hidden * query_dim
    if model.qkv_bias:
        replicated += rank + model.qk_rope_head_dim + model.q_lora_rank
    if model.output_bias:
        replicated += model.hidden
    return divided, replicated


def _gdn(model: Model) -> tuple[int, int]:
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


def count(model: Model) -> Parameters:
    """Parameter counts of the whole decoder."""
    one = layer_parts(model)
    moe = sum(model.moe_layers)
    dense = model.layers - moe
    embedding = model.vocab * model.hidden
    routed = one.routed * moe
    return Parameters(
        embedding=embedding,
        attention=(one.attention + one.attention_replicated) * model.attention_layers,
        gdn=(one.gdn + one.gdn_replicated) * model.gdn_layers,
        dense_mlp=(one.dense_mlp + one.dense_mlp_replicated) * dense,
        routed=routed,
        shared=(one.shared + one.shared_replicated) * moe,
        router=one.router * moe,
        norms=one.norms * model.layers + model.hidden * (2 if model.norm_bias else 1),
        head=0 if model.tied_embeddings else embedding,
        active_routed=routed // model.experts * model.topk if model.experts else 0,
    )
