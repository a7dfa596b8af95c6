"""The table of integers that pricing rules are bound to."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from functools import cache, partial

from waveplan.checks import instance, integer
from waveplan.errors import InputError
from waveplan.facts.adapters import layer_adapters, layer_elements
from waveplan.facts.kinds import ATTENTION, DTYPE_BYTES, GDN, SLIDING, UNITS, UNPRICED
from waveplan.facts.model import Model
from waveplan.facts.parameters import layer_parameters
from waveplan.facts.topology import RANKS, SHARDED, Topology
from waveplan.facts.training import HEADS, RECOMPUTE_MODULES, Training

__all__ = ["facts", "stages"]

_MODEL_SIZES = (
    *("hidden", "layers", "vocab", "heads", "kv_groups", "head_dim", "attention_gate", "ffn"),
    *("experts", "topk", "expert_ffn", "shared_ffn", "shared_gate", "gdn_layers"),
    *("attention_layers", "gdn_key_heads", "gdn_value_heads", "gdn_key_dim", "gdn_value_dim"),
    *("gdn_conv", "dtype_bytes", "tied_embeddings", "gated_mlp", "mla", "qk_norm"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *("expert_bias", "mtp_layers", "dense_layers", "positions", "moe_latent"),
)
_TRAINING_SIZES = (
    *("recompute_num_layers", "lora_rank", "hybridep_buffer", "shared_overlap"),
    *("shared_recompute", "compiled", "backward", "full_finetuning", "output_layer"),
    *("head_chunk_size", "wgrad_deferral", "attention_mask", "grouped_gemm", "expert_overlap"),
    "softmax_fusion",
    *("fused_optimizer", "foreach_step", "fp8", "cuda_graphs", "user_buffers", "cublas_config"),
)
_WORDS = {"head": HEADS, "optimizer": ("adam8bit", "muon"), "gpu": ("ampere", "hopper")}
"""Facts of training that are one word: those words that rules read, as flags."""
_Layer = tuple[str, bool | None]
"""Mixer of a layer, and its entry of `Model.feed_forward`."""
_PARTS = {
    "recompute_modules": ("recompute", RECOMPUTE_MODULES),
    "offload": ("offload", ("activations", "optimizer")),
    "modules_to_save": ("saved", ("embedding", "head")),
}

_MODULES = {
    "moe": "experts",
    "moe_act": "experts",
    "shared_experts": "shared_ffn",
    "mla_up_proj": "kv_lora_rank",
}
_NEEDS = {
    "experts": (
        *("dispatcher", "hybridep_buffer", "grouped_gemm", "expert_overlap", "expert_path"),
        *("routing", "expert_slots"),
    ),
    "shared_ffn": ("shared_overlap", "shared_recompute"),
    "gdn_layers": ("gdn_output_rank",),
    "gated_mlp": ("activation_fusion",),
    "mtp_layers": ("mtp",),
}
"""Sizes of the model, and the facts of training that act on what they stand for."""


def facts(model: Model, topology: Topology, training: Training, stage: int = 0) -> dict[str, int]:
    """Every fact known before any token is seen, by name. Booleans are 0 or 1, absent sizes 0.

    The facts whose name begins with ``stage_`` are those of one pipeline stage.

    Raises:
        InputError: the topology cannot divide the model, or it has no such stage.
    """
    instance("topology", topology, Topology).check(model)
    instance("training", training, Training)
    integer("stage", stage, 0, topology.pp - 1)
    _fit(model, topology, training)
    return {
        **_model(model),
        **layer_parameters(model),
        **_topology(model, topology),
        **_training(model, topology, training),
        **_stages(model, topology, training)(stage),
    }


def stages(model: Model, topology: Topology, training: Training) -> dict[int, dict[str, int]]:
    """The facts of each pipeline stage that can need the most memory, by its number.

    A stage that has no more of anything than another is left out: with equal layers the first two
    and the last remain.
    """
    table, made_for = facts(model, topology, training), _stages(model, topology, training)
    parts: dict[int, dict[str, int]] = {}
    for stage in range(topology.pp):
        made = made_for(stage)
        counts = made.values()
        if not any(all(map(operator.le, counts, other.values())) for other in parts.values()):
            parts[stage] = made
    return {stage: {**table, **made} for stage, made in parts.items()}


def _fit(model: Model, topology: Topology, training: Training) -> None:
    """Refuse facts about what the model does not have, or whose ranks do nothing with them."""
    for name in training.recompute_modules:
        if not getattr(model, need := _MODULES.get(name, "hidden")):
            raise InputError(f"recompute_modules has {name!r}, but the model's {need} is 0")
    for need, names in _NEEDS.items():
        if not getattr(model, need):
            for name in filter(training.stated, names):
                value = getattr(training, name)
                raise InputError(f"{name} is {value!r}, but the model's {need} is 0")
    if training.expert_overlap:
        if topology.ep == 1:
            raise InputError("expert_overlap needs ep of at least 2, not 1")
        if topology.pp > 1 and topology.virtual == 1:
            raise InputError(f"expert_overlap needs virtual stages where pp is {topology.pp}")
    if topology.cp > 1 and topology.cp_layout == "even" and training.kernels_of == "eager":
        raise InputError(
            "cp_layout is 'even', but kernels are 'eager': their tokens are priced as planned here"
        )


def _model(model: Model) -> dict[str, int]:
    table = {name: int(getattr(model, name)) for name in _MODEL_SIZES}
    gaps = {kind: model.gap(kind) for kind in (ATTENTION, GDN)}
    return {
        **table,
        "moe_layers": sum(model.moe_layers),
        **{f"{kind}_layers": model.layer_kinds.count(kind) for kind in (SLIDING, *UNPRICED)},
        "last_layer_moe": int(bool(model.moe_layers and model.moe_layers[-1])),
        "extra_parameters": sum(count for _, count in model.extra_parameters),
        "silu": int(model.activation == "silu"),
        "attention_gap": gaps[ATTENTION] or 0,
        "gdn_gap": gaps[GDN] or 0,
    }


def _stages(
    model: Model, topology: Topology, training: Training
) -> Callable[[int], dict[str, int]]:
    """Return what counts the layers of a pipeline stage by kind, at most so many where their order
    is unknown; those held count once for each micro-batch whose activations the stage holds."""
    known, parts = model.layer_kinds, model.feed_forward
    layers = tuple(zip(known or ("",) * model.layers, parts, strict=True))
    elements = cache(partial(layer_elements, model, topology, training))
    others = {
        kind: -(-split // topology.tp) + whole for kind, split, whole in model.mixer_parameters
    }
    extra = -(-sum(number for _, number in model.extra_parameters) // topology.pp)

    def counted(stage: int) -> dict[str, int]:
        held = topology.in_flight(stage, training.microbatches)
        if training.expert_overlap and topology.virtual > 1:
            held[-1] += 1
        here: Counter[_Layer] = Counter()
        flying: Counter[_Layer] = Counter()
        for chunk, times in zip(topology.chunks(model.layers, stage), held, strict=True):
            for layer, number in Counter(layers[chunk.start : chunk.stop]).items():
                here[layer] += number
                flying[layer] += number * times
        units, held_units = _by_unit(here), _by_unit(flying)
        if not known:
            moe, most = bool(units[True]), here.total()
            kinds = {GDN: model.gdn_layers, ATTENTION: model.attention_layers}
            here = Counter({(kind, moe): min(most, number) for kind, number in kinds.items()})
            flying = Counter({layer: number * max(held) for layer, number in here.items()})
        last = stage == topology.pp - 1
        return {
            "stage_first": int(stage == 0),
            "stage_last": int(last),
            "stage_layers": units.total(),
            "stage_attention_layers": _of_kind(here, ATTENTION, SLIDING),
            "stage_gdn_layers": _of_kind(here, GDN),
            "stage_moe_layers": units[True],
            "stage_dense_layers": units[False],
            "stage_mtp_layers": model.mtp_layers if training.mtp and last else 0,
            "stage_other_elements": extra
            + sum(number * others.get(kind, 0) for (kind, _), number in here.items()),
            "stage_adapter_elements": sum(
                number * elements(kind=kind, moe=moe) for (kind, moe), number in here.items()
            ),
            "held_layers": held_units.total(),
            "held_attention_layers": _of_kind(flying, ATTENTION, SLIDING),
            "held_gdn_layers": _of_kind(flying, GDN),
            "held_moe_layers": held_units[True],
            "held_dense_layers": held_units[False],
            "in_flight": max(held),
        }

    return counted


def _of_kind(layers: Counter[_Layer], *kinds: str) -> int:
    return sum(number for (kind, _), number in layers.items() if kind in kinds)


def _by_unit(layers: Counter[_Layer]) -> Counter[bool | None]:
    """Layers by their feed-forward part: experts, dense, or None."""
    found: Counter[bool | None] = Counter()
    for (_, moe), number in layers.items():
        found[moe] += number
    return found


def _topology(model: Model, topology: Topology) -> dict[str, int]:
    sizes = (*RANKS, "sequence_parallel", "sp", "expert_dp", "virtual")
    sharding = topology.sharding
    depth = SHARDED.index(sharding.kind)
    return {
        **{name: int(getattr(topology, name)) for name in sizes},
        "cp_even": int(topology.cp_layout == "even"),
        "experts_per_rank": model.experts // topology.ep,
        "communicators": sum(getattr(topology, name) > 1 for name in RANKS),
        # Ranks that divide a state, 1 where it is whole on each; that of experts apart.
        "sharding_instances": sharding.instances,
        **{f"{name}_sharded": int(depth > at) for at, name in enumerate(SHARDED[1:])},
    }


def _training(model: Model, topology: Topology, training: Training) -> dict[str, int]:
    table = {
        name: int(getattr(training, {"head_chunk_size": "head_chunk"}.get(name, name)))
        for name in _TRAINING_SIZES
    }
    for name, words in _WORDS.items():
        value = getattr(training, name)
        table |= {f"{name}_{word}": int(value == word) for word in words}
    for name, (prefix, words) in _PARTS.items():
        table |= {f"{prefix}_{word}": int(word in getattr(training, name)) for word in words}
    kernels = training.kernels_of
    attention = training.attention
    fused = training.activation_fusion
    if fused is None:
        fused = model.unit == "native"
    eager = "clamped" if model.unit == "clamped" else "eager"
    dispatcher = training.dispatcher
    if dispatcher == "auto":
        dispatcher = "hybridep" if topology.ep > 1 else "alltoall"
    table |= _adapters(model, training)
    table |= {
        "recompute_full": int(training.recompute == "full"),
        "recompute_uniform": int(training.recompute_method == "uniform"),
        "kernels_eager": int(kernels == "eager"),
        "kernels_local": int(kernels == "local"),
        "attention_known": int(attention != "auto"),
        "attention_unfused": int(attention in ("auto", "unfused")),
        "attention_flash": int(attention == "flash"),
        "attention_dropout": int(training.attention_dropout > 0),
        "hidden_dropout": int(training.hidden_dropout > 0),
        "sequence_length": training.sequence_length or 0,
        "dispatcher_alltoall": int(dispatcher == "alltoall"),
        "dispatcher_allgather": int(dispatcher == "allgather"),
        "dispatcher_hybridep": int(dispatcher == "hybridep"),
        "fused_fc1": int(training.expert_path == "fused_fc1"),
        "expert_path_known": int(training.expert_path != "unknown"),
        "routing_balanced": int(training.routing == "balanced"),
        "routing_worst": int(training.routing == "worst"),
        "activation": UNITS["native" if fused else eager],
        "optimizer_bytes": training.optimizer_state_bytes(model.dtype_bytes),
        "moment_bytes": training.moment_bytes,
        "grad_bytes": DTYPE_BYTES[training.grad_dtype],
        "base_bytes": training.base_bytes(model.quantized, model.dtype_bytes),
    }
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


def _layers(model: Model) -> set[_Layer]:
    """Kinds of layers: (mixer kind, has experts)."""
    if model.layer_kinds:
        return set(zip(model.layer_kinds, model.feed_forward, strict=True))
    # The order is unknown: which mixer meets which feed-forward part is not, unless that is one.
    mixers = {GDN: model.gdn_layers, ATTENTION: model.attention_layers}
    return {(kind, any(model.moe_layers)) for kind, layers in mixers.items() if layers}
