"""Parameters of mixers from their sizes: (divided over TP, whole on every rank)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["indexer_parameters", "latent_parameters", "mamba2_parameters"]


def latent_parameters(model: Any) -> tuple[int, int]:
    """(divided, replicated) parameters of multi-head latent attention.

    The down projections and their norms are whole on every rank, the up projections are
    divided over heads.
    """
    query_dim = model.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    value_dim = model.heads * model.v_head_dim
    rank = model.kv_lora_rank
    norm = (2 if model.norm_bias else 1) if model.latent_norm else 0
    replicated = model.hidden * (rank + model.qk_rope_head_dim) + rank * norm
    divided = rank * (model.heads * model.qk_nope_head_dim + value_dim) + value_dim * model.hidden
    if model.q_lora_rank:
        replicated += model.hidden * model.q_lora_rank + model.q_lora_rank * norm
        divided += model.q_lora_rank * query_dim
    else:
        divided += model.hidden * query_dim
    if model.qkv_bias:
        replicated += rank + model.qk_rope_head_dim + model.q_lora_rank
    if model.output_bias:
        replicated += model.hidden
    return divided, replicated


def mamba2_parameters(
    hidden: int, heads: int, dim: int, groups: int, state: int, conv: int = 4, *, bias: bool = False
) -> tuple[int, int]:
    """(divided, whole) parameters of a Mamba2 mixer with a bias of its convolution and a norm."""
    inner, shared = heads * dim, 2 * groups * state
    project = hidden * (2 * inner + shared + heads) + inner * hidden
    biases = 2 * inner + shared + heads if bias else 0
    return project + (inner + shared) * (conv + 1) + 3 * heads + inner + biases, hidden * bias


def indexer_parameters(sizes: dict[str, Any], heads: int, dim: int) -> tuple[int, int]:
    """(divided, whole) parameters of latent attention with an indexer (DeepSeek V3.2): its queries
    from the compressed ones, one key with a LayerNorm, a weight a head."""
    absent = dict.fromkeys(("q_lora_rank", "norm_bias", "qkv_bias", "output_bias"), 0)
    model: Any = SimpleNamespace(**{**absent, "latent_norm": True, **sizes})
    divided, whole = latent_parameters(model)
    queries = (model.q_lora_rank or model.hidden) * heads * dim
    return divided, whole + queries + model.hidden * (dim + heads) + 2 * dim
