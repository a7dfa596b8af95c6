"""Parameter counts of one layer of a model, by part. Sizes as in the Hugging Face modules."""

from __future__ import annotations

from waveplan.facts.model import Model

__all__ = ["layer_parameters"]


def layer_parameters(model: Model) -> dict[str, int]:
    """Return the parameters of one layer of each kind, as facts.

    "Whole" parts are replicated on every tensor-parallel rank, the others are divided.
    """
    attention, attention_whole = _latent(model) if model.mla else _grouped(model)
    gdn, gdn_whole = _gdn(model)
    matrices = 3 if model.gated_mlp else 2
    hidden, ffn, expert = model.hidden, model.ffn, model.expert_ffn
    expert_biases = (matrices - 1) * expert + hidden if model.expert_bias else 0
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
        "shared_parameters": matrices * hidden * model.shared_ffn,
        "shared_whole_parameters": (hidden if model.shared_gate else 0)
        + 2 * hidden * model.moe_latent,
        "router_parameters": model.experts * (hidden + (1 if model.router_bias else 0)),
        "norm_parameters": model.norms_per_layer * norm,
        "final_norm_parameters": norm,
    }


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
        replicated += queries + keys if model.qk_norm_wide else 2 * model.head_dim
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
