"""The flat table of integers that pricing rules are bound to."""

from __future__ import annotations

from waveplan.model import ACTIVATIONS, ATTENTION, DTYPE_BYTES, GDN, Model
from waveplan.topology import Topology
from waveplan.training import RECOMPUTE_MODULES, Training

__all__ = ["facts"]

_MODEL_SIZES = [
    "hidden",
    "layers",
    "vocab",
    "heads",
    "kv_groups",
    "head_dim",
    "attention_gate",
    "ffn",
    "experts",
    "topk",
    "expert_ffn",
    "shared_ffn",
    "shared_gate",
    "gdn_layers",
    "attention_layers",
    "dense_first_layers",
    "gdn_key_heads",
    "gdn_value_heads",
    "gdn_key_dim",
    "gdn_value_dim",
    "gdn_conv",
    "dtype_bytes",
    "tied_embeddings",
    "gated_mlp",
    "silu",
    "is_moe",
    "is_hybrid",
    "mla",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "mtp_layers",
]
_TRAINING_SIZES = [
    "recompute_num_layers",
    "lora_rank",
    "expert_slots",
    "hybridep_buffer",
    "shared_overlap",
    "shared_recompute",
    "compiled",
    "backward",
    "full_finetuning",
    "optimizer_bytes",
    "distributed_optimizer",
    "output_layer",
]


def facts(model: Model, topology: Topology, training: Training) -> dict[str, int]:
    """Every fact known before any token is seen, by name. Booleans are 0 or 1, absent sizes 0.

    Raises:
        InputError: the topology cannot divide the model.
    """
    topology.check(model)
    return {**_model(model), **_topology(model, topology), **_training(model, topology, training)}


def _model(model: Model) -> dict[str, int]:
    table = {name: int(getattr(model, name)) for name in _MODEL_SIZES}
    moe = sum(model.moe_layers)
    gaps = {kind: model.gap(kind) for kind in (ATTENTION, GDN)}
    return {
        **table,
        "moe_layers": moe,
        "dense_layers": model.layers - moe,
        "gap_known": int(bool(model.layer_kinds)),
        "attention_gap": gaps[ATTENTION] or 0,
        "gdn_gap": gaps[GDN] or 0,
    }


def _topology(model: Model, topology: Topology) -> dict[str, int]:
    names = ("dp", "tp", "cp", "pp", "ep", "etp", "sequence_parallel", "sp", "world", "expert_dp")
    return {
        **{name: int(getattr(topology, name)) for name in names},
        "layers_per_stage": model.layers // topology.pp,
        "experts_per_rank": model.experts // topology.ep,
    }


def _training(model: Model, topology: Topology, training: Training) -> dict[str, int]:
    table = {name: int(getattr(training, name)) for name in _TRAINING_SIZES}
    for mode in ("full", "selective", "none"):
        table[f"recompute_{mode}"] = int(training.recompute == mode)
    table["recompute_uniform"] = int(training.recompute_method == "uniform")
    for name in RECOMPUTE_MODULES:
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
        activation_fusion=int(fused),
        activation=ACTIVATIONS["native" if fused else eager],
        grad_bytes=DTYPE_BYTES[training.grad_dtype],
    )
    return table


def _adapters(model: Model, training: Training) -> dict[str, int]:
    """Which adapters exist: a module counts only if the model has it and adapters are trained."""
    present = {
        "attention.qkv": model.attention_layers > 0,
        "attention.proj": model.attention_layers > 0,
        "gdn.in": model.is_hybrid,
        "gdn.out": model.is_hybrid,
        "mlp.fc1": not all(model.moe_layers),
        "mlp.fc2": not all(model.moe_layers),
        "experts.fc1": model.is_moe,
        "experts.fc2": model.is_moe,
        "shared.fc1": model.shared_ffn > 0,
        "shared.fc2": model.shared_ffn > 0,
    }
    has = {
        name: int(exists and training.lora_rank > 0 and name in training.lora_modules)
        for name, exists in present.items()
    }
    output_rank = training.gdn_output_rank
    if output_rank is None:
        output_rank = training.lora_rank if has["gdn.out"] else 0
    known = has["experts.fc1"] and training.expert_fc1_fused
    return {
        "lora": int(training.lora_rank > 0),
        "lora_attention": max(has["attention.qkv"], has["attention.proj"]),
        "lora_attention_qkv": has["attention.qkv"],
        "lora_attention_proj": has["attention.proj"],
        "lora_gdn": max(has["gdn.in"], has["gdn.out"]),
        "lora_gdn_in": has["gdn.in"],
        "lora_gdn_out": has["gdn.out"],
        "lora_fc1": has["mlp.fc1"],
        "lora_fc2": has["mlp.fc2"],
        "lora_fc1_modules": has["mlp.fc1"] * (2 if model.gated_mlp else 1),
        "lora_expert_fc1": has["experts.fc1"],
        "lora_expert_fc2": has["experts.fc2"],
        "lora_shared_fc1": has["shared.fc1"],
        "lora_shared_fc2": has["shared.fc2"],
        "lora_modules": sum(has.values()),
        "output_lora_rank": output_rank,
        "expert_fc1_known": int(known),
        "expert_fc1_rank": training.lora_rank if known else 0,
    }
