"""Low-rank adapters: which layers carry which, and their sizes on one rank.

Column-divided projections keep A whole and divide B over ranks, row-divided ones divide A and
keep B whole. With fewer key/value groups than TP ranks the query, key and value adapters are
whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from waveplan.facts.kinds import ATTENTION, GDN, SLIDING
from waveplan.facts.model import Model
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training

__all__ = ["Adapter", "layer_adapters", "layer_elements"]


@dataclass(frozen=True, slots=True)
class Adapter:
    """One pair A [inputs, rank], B [rank, outputs], before any division over ranks."""

    module: str
    inputs: int
    outputs: int
    split: Literal["column", "row", "whole"]
    copies: int = 1
    """Experts that have a pair of their own."""

    def elements(self, rank: int, ranks: int, expert_ranks: int) -> int:
        """Elements on one rank, with ``ranks`` dividing the projection."""
        inputs = self.inputs // (ranks if self.split == "row" else 1)
        outputs = self.outputs // (ranks if self.split == "column" else 1)
        return self.copies // expert_ranks * rank * (inputs + outputs)


def layer_adapters(
    model: Model, training: Training, *, kind: str, moe: bool | None, replicated_kv: bool = False
) -> list[Adapter]:
    """Adapters of one layer, by its mixer kind and its entry of `Model.feed_forward`."""
    if not training.lora_rank:
        return []
    mixer = {GDN: _gdn(model), ATTENTION: _attention(model, replicated_kv)}
    mixer[SLIDING] = mixer[ATTENTION]
    unit = _experts(model) if moe else _projections("mlp", model, model.ffn)
    present = mixer.get(kind, []) + (unit if moe is not None else [])
    return [adapter for adapter in present if adapter.module in training.lora_modules]


def _attention(model: Model, replicated_kv: bool) -> list[Adapter]:
    hidden = model.hidden
    if model.mla:
        # What is adapted in latent attention differs between trainers: the up projections.
        heads = model.heads
        rank = model.q_lora_rank or hidden
        query = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        key_value = heads * (model.qk_nope_head_dim + model.v_head_dim)
        return [
            Adapter("attention.q", rank, query, "column"),
            Adapter("attention.k", model.kv_lora_rank, key_value, "column"),
            Adapter("attention.o", heads * model.v_head_dim, hidden, "row"),
        ]
    queries, keys = model.heads * model.head_dim, model.kv_groups * model.head_dim
    split: Literal["column", "whole"] = "whole" if replicated_kv else "column"
    return [
        Adapter("attention.q", hidden, queries * (2 if model.attention_gate else 1), split),
        Adapter("attention.k", hidden, keys, split),
        Adapter("attention.v", hidden, keys, split),
        Adapter("attention.o", queries, hidden, "row"),
    ]


def _gdn(model: Model) -> list[Adapter]:
    values = model.gdn_value_heads * model.gdn_value_dim
    return [
        Adapter("gdn.qkv", model.hidden, model.gdn_conv_dim, "column"),
        Adapter("gdn.z", model.hidden, values, "column"),
        Adapter("gdn.out", values, model.hidden, "row"),
    ]


def _experts(model: Model) -> list[Adapter]:
    widths = 2 if model.gated_mlp else 1
    routed = [
        Adapter(
            "experts.gate_up", model.hidden, widths * model.expert_ffn, "column", model.experts
        ),
        Adapter("experts.down", model.expert_ffn, model.hidden, "row", model.experts),
    ]
    return routed + (_projections("shared", model, model.shared_ffn) if model.shared_ffn else [])


def _projections(part: str, model: Model, width: int) -> list[Adapter]:
    gate = [Adapter(f"{part}.gate", model.hidden, width, "column")] if model.gated_mlp else []
    return [
        *gate,
        Adapter(f"{part}.up", model.hidden, width, "column"),
        Adapter(f"{part}.down", width, model.hidden, "row"),
    ]


def layer_elements(
    model: Model, topology: Topology, training: Training, *, kind: str, moe: bool | None
) -> int:
    """Adapter elements of one layer on one rank."""
    replicated = model.kv_groups < topology.tp
    rank = training.lora_rank
    return sum(
        adapter.elements(rank, topology.etp, topology.ep)
        if adapter.copies > 1
        else adapter.elements(rank, topology.tp, 1)
        for adapter in layer_adapters(model, training, kind=kind, moe=moe, replicated_kv=replicated)
    )
