"""The table of integers that pricing rules are bound to."""

from __future__ import annotations

from collections import Counter

from waveplan.checks import instance, integer
from waveplan.facts.adapters import layer_adapters, layer_elements
from waveplan.facts.model import ACTIVATIONS, ATTENTION, DTYPE_BYTES, GDN, Model
from waveplan.facts.parameters import layer_parameters
from waveplan.facts.topology import Topology
from waveplan.facts.training import Training

__all__ = ["facts"]

_MODEL_SIZES = (
    *("hidden", "layers", "vocab", "heads", "kv_groups", "head_dim", "attention_gate", "ffn"),
    *("experts", "topk", "expert_ffn", "shared_ffn", "shared_gate", "gdn_layers"),
    *("attention_layers", "gdn_key_heads", "gdn_value_heads", "gdn_key_dim", "gdn_value_dim"),
    *("gdn_conv", "dtype_bytes", "tied_embeddings", "gated_mlp", "silu", "mla"),
)
_TRAINING_SIZES = (
    *("recompute_num_layers", "lora_rank", "hybridep_buffer", "shared_overlap"),
    *("shared_recompute", "compiled", "backward", "full_finetuning", "distributed_optimizer"),
    "output_layer",
)
_RANKS = ("dp", "tp", "cp", "pp", "ep", "etp")


def facts(model: Model, topology: Topology, training: Training, stage: int = 0) -> dict[str, int]:
    """Every fact known before any token is seen, by name. Booleans are 0 or 1, absent sizes 0.

    The facts whose name begins with ``stage_`` are those of one pipeline stage.

    Raises:
        InputError: the topology cannot divide the model, or it has no such stage.
    """
    instance("topology", topology, Topology).check(model)
    instance("training", training, Training)
    integer("stage", stage, 0, topology.pp - 1)
    return {
        **_model(model),
        **layer_parameters(model),
        **_topology(model, topology),
        **_training(model, topology, training),
        **_stage(model, topology, training, stage),
    }


def _model(model: Model) -> dict[str, int]:
    table = {name: int(getattr(model, name)) for name in _MODEL_SIZES}
    moe = sum(model.moe_layers)
    gaps = {kind: model.gap(kind) for kind in (ATTENTION, GDN)}
    return {
        **table,
        "moe_layers": moe,
        "dense_layers": model.layers - moe,
        "attention_gap": gaps[ATTENTION] or 0,
        "gdn_gap": gaps[GDN] or 0,
    }


def _stage(model: Model, topology: Topology, training: Training, stage: int) -> dict[str, int]:
    """Layers of one pipeline stage by kind; at most so many where their order is unknown."""
    count = model.layers // topology.pp
    first = stage * count
    moe = model.moe_layers[first : first + count]
    kinds = model.layer_kinds[first : first + count]
    if kinds:
        gdn, attention = kinds.count(GDN), kinds.count(ATTENTION)
        layers = Counter(zip(kinds, moe, strict=True))
    else:
        gdn, attention = min(count, model.gdn_layers), min(count, model.attention_layers)
        layers = Counter({(GDN, any(moe)): gdn, (ATTENTION, any(moe)): attention})
    elements = sum(
        number * layer_elements(model, topology, training, kind=kind, moe=one)
        for (kind, one), number in layers.items()
    )
    return {
        "stage_first": int(stage == 0),
        "stage_last": int(stage == topology.pp - 1),
        "stage_attention_layers": attention,
        "stage_gdn_layers": gdn,
        "stage_moe_layers": sum(moe),
        "stage_dense_layers": count - sum(moe),
        "stage_adapter_elements": elements,
    }


def _topology(model: Model, topology: Topology) -> dict[str, int]:
    sizes = (*_RANKS, "sequence_parallel", "sp", "expert_dp")
    return {
        **{name: int(getattr(topology, name)) for name in sizes},
        "layers_per_stage": model.layers // topology.pp,
        "experts_per_rank": model.experts // topology.ep,
        "communicators": sum(getattr(topology, name) > 1 for name in _RANKS),
    }


def _training(model: Model, topology: Topology, training: Training) -> dict[str, int]:
    table = {name: int(getattr(training, name)) for name in _TRAINING_SIZES}
    table["recompute_full"] = int(training.recompute == "full")
    table["recompute_uniform"] = int(training.recompute_method == "uniform")
    for name in ("mlp", "moe"):  # the modules that some rule prices
        table[f"recompute_{name}"] = int(name in training.recompute_modules)
    table.update(_adapters(model, training))
    dispatcher = training.dispatcher
    if dispatcher == "auto":
        dispatcher = "hybridep" if topology.ep > 1 else "alltoall"
    fused = training.activation_fusion
    if fused is None:
        fused = model.activation == "native"
    eager = "clamped" if model.activation == "clamped" else "eager"
    table.update(
        dispatcher_alltoall=int(dispatcher == "alltoall"),
        dispatcher_hybridep=int(dispatcher == "hybridep"),
        fused_fc1=int(training.expert_path == "fused_fc1"),
        expert_path_known=int(training.expert_path != "unknown"),
        routing_balanced=int(training.routing == "balanced"),
        activation=ACTIVATIONS["native" if fused else eager],
        optimizer_bytes=training.optimizer_state_bytes(model.dtype_bytes),
        grad_bytes=DTYPE_BYTES[training.grad_dtype],
    )
    return table


def _adapters(model: Model, training: Training) -> dict[str, int]:
    """Modules with an adapter, as flags and counts."""
    names = {
        adapter.module
        for kind, moe in _layers(model)
        for adapter in layer_adapters(model, training, kind=kind, moe=moe)
    }
    output_rank = training.gdn_output_rank
    if output_rank is None:
        output_rank = training.lora_rank if "gdn.out" in names else 0
    known = training.expert_fc1_fused and "experts.gate_up" in names
    fc1 = {"gate", "up"}

    def has(part: str, *projections: str) -> int:
        return int(any(f"{part}.{projection}" in names for projection in projections))

    return {
        "lora": int(bool(names)),
        "lora_attention_qkv": has("attention", "q", "k", "v"),
        "lora_attention_proj": has("attention", "o"),
        "lora_gdn_in": has("gdn", "qkv", "z"),
        "lora_gdn_out": has("gdn", "out"),
        "lora_fc1": has("mlp", *fc1),
        "lora_fc2": has("mlp", "down"),
        "lora_fc1_modules": has("mlp", "gate") + has("mlp", "up"),
        "lora_expert_fc1": has("experts", "gate_up"),
        "lora_expert_fc2": has("experts", "down"),
        "lora_shared_fc1": has("shared", *fc1),
        "lora_shared_fc2": has("shared", "down"),
        "output_lora_rank": output_rank,
        "expert_slots": int(training.expert_slots and "experts.down" in names),
        "expert_fc1_known": int(known),
    }


def _layers(model: Model) -> set[tuple[str, bool]]:
    """Kinds of layers: (mixer kind, has experts)."""
    if model.layer_kinds:
        return set(zip(model.layer_kinds, model.moe_layers, strict=True))
    # The order is unknown: which mixer meets which feed-forward part is not, unless that is one.
    mixers = {GDN: model.gdn_layers, ATTENTION: model.attention_layers}
    return {(kind, any(model.moe_layers)) for kind, layers in mixers.items() if layers}
