"""The reference planner, openpipe-art 0.5.23, driven on a CPU beside ours.

It plans for one stub rank of Qwen3.6-35B-A3B with adapters of rank 8 under full recompute: a
model of meta tensors that has every attribute the planner reads and no weights. Everything that
plans is the package's own code. Needs CPython 3.12, torch, megatron-core, pydantic and the
package itself (installed without its dependencies, or on PYTHONPATH).
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from waveplan.errors import InputError

__all__ = ["VERSION", "Reference", "available", "forget", "importable", "load", "planning_rank"]

VERSION = "0.5.23"
HIDDEN, LAYERS, VOCAB, EXPERTS, EXPERT_FFN, RANK = 2048, 40, 248_320, 256, 512, 8
KEY_HEADS, VALUE_HEADS, HEAD_DIM, CONV = 16, 32, 128, 4
FULL_ATTENTION_EVERY = 4
DEVICE_BYTES = 140 * 1024**3

ABSENT = {
    "anthropic",
    "httpx",
    "megatron.bridge",
    "openai",
    "polars",
    "quack",
    "safetensors",
    "tqdm",
    "transformer_engine",
    "transformers",
}
"""Packages for GPUs and services: where one is not installed, its names are stand-ins."""


def available() -> str | None:
    """Why the reference planner cannot run in this interpreter; None if it can."""
    if sys.version_info[:2] < (3, 12):
        return f"for CPython 3.12, this is {sys.version_info[0]}.{sys.version_info[1]}"
    wanted = ("art", "torch", "megatron", "pydantic")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    return f"not installed here: {', '.join(missing)}" if missing else None


class _AnyClass(type):
    """A class whose attributes are such classes too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, item: Any) -> Any:
        return cls


def _stand_in(name: str) -> Any:
    def schema(*_: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()

    return _AnyClass(
        name,
        (),
        {"__init__": lambda *_, **__: None, "__get_pydantic_core_schema__": classmethod(schema)},
    )


class _StandIn(types.ModuleType):
    """A module that is not installed: every name in it exists and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _stand_in(name)
        if self.__name__ == "transformer_engine.pytorch" and name[0].isupper():
            import torch  # megatron-core derives layers from these

            value = type(name, (torch.nn.Module,), {})
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds last, so installed packages stay as they are."""

    def find_spec(self, name: str, *_: Any) -> Any:
        parts = name.split(".")
        if {parts[0], ".".join(parts[:2])} & ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _StandIn(spec.name)
        module.__path__ = []
        module.__dict__["__version__"] = "2.11.0"  # megatron-core compares it
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def importable() -> None:
    """Let the package be imported on a CPU, without the SDK that its ``__init__`` imports."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    if "art" not in sys.modules:
        found = importlib.util.find_spec("art")
        assert found is not None
        package = types.ModuleType("art")
        package.__spec__ = found
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["art"] = package
    # These patch GPU kernels of one version when imported; no planner needs them.
    for patch in ("art.megatron.flex_attn.flash_dlse_patch", "art.megatron.te_cross_entropy"):
        sys.modules.setdefault(patch, _StandIn(patch))


def load() -> types.SimpleNamespace:
    """The package's planning modules."""
    reason = available()
    if reason is not None:
        raise InputError(f"the reference planner cannot run: {reason}")
    importable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import art.trainer_rank as api
        import torch
        from art.megatron.context_parallel.types import ParallelTopology
        from art.trainer_rank import _impl, _planner_cost
    torch.set_num_threads(1)
    return types.SimpleNamespace(
        api=api,
        torch=torch,
        topology=ParallelTopology,
        impl=_impl,
        cost=_planner_cost,
    )


def _quietly(call: Callable[[], Any]) -> Any:
    """Without the warnings of what a CPU lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def _blank(kind: str, **attributes: Any) -> Any:
    """An instance of "module:class" whose constructor never ran."""
    import torch

    module, _, name = kind.partition(":")
    cls = getattr(importlib.import_module(module), name)
    made = cls.__new__(cls)
    if isinstance(made, torch.nn.Module):
        torch.nn.Module.__init__(made)
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


def _lora(name: str, **attributes: Any) -> Any:
    return _blank(f"art.megatron.lora:{name}", **attributes)


def _core(name: str, **attributes: Any) -> Any:
    return _blank(f"megatron.core.{name}", **attributes)


def _weight(*shape: int) -> Any:
    """A bfloat16 parameter of a shape, without storage."""
    import torch

    empty = torch.empty(*shape, dtype=torch.bfloat16, device="meta")
    return torch.nn.Parameter(empty, requires_grad=False)


def _adapter(inputs: int, outputs: int, *experts: int) -> Any:
    return _lora("LoRA", A_T=_weight(*experts, inputs, RANK), B_T=_weight(*experts, RANK, outputs))


def _provider(**more: Any) -> dict[str, Any]:
    """The model in the words of a Megatron transformer configuration."""
    import torch

    return {
        "hidden_size": HIDDEN,
        "num_layers": LAYERS,
        "ffn_hidden_size": 4 * HIDDEN,
        "num_attention_heads": 16,
        "num_query_groups": 2,
        "kv_channels": 256,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_key_head_dim": HEAD_DIM,
        "linear_value_head_dim": HEAD_DIM,
        "linear_conv_kernel_dim": CONV,
        "num_moe_experts": EXPERTS,
        "moe_router_topk": 8,
        "moe_ffn_hidden_size": EXPERT_FFN,
        "moe_shared_expert_intermediate_size": EXPERT_FFN,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "expert_model_parallel_size": 1,
        "expert_tensor_parallel_size": 1,
        "params_dtype": torch.bfloat16,
        "sequence_parallel": False,
        "fp32_residual_connection": False,
        "cuda_graph_impl": "none",
        "fp8": None,
        "fp4": None,
        **more,
    }


_OFF = (
    *("moe_pad_expert_input_to_capacity", "moe_router_padding_for_quantization"),
    *("moe_shared_expert_overlap", "add_bias_linear", "use_te_activation_func"),
    *("bias_activation_fusion", "distribute_saved_activations", "cpu_offloading", "use_mup"),
)
_ABSENT = ("moe_expert_capacity_factor", "moe_latent_size")
"""Features that the planner looks for and the model has not."""


def _config(**more: Any) -> types.SimpleNamespace:
    without = {**dict.fromkeys(_OFF, False), **dict.fromkeys(_ABSENT)}
    return types.SimpleNamespace(**_provider(**without, **more))


def _dispatcher(config: Any, ep: int) -> Any:
    """The token dispatcher that the planner prices: all-to-all, or HybridEP under EP."""
    place = "transformer.moe.token_dispatcher:"
    facts = {"config": config, "ep_size": ep, "tp_size": 1, "num_local_experts": EXPERTS // ep}
    if ep == 1:
        return _core(f"{place}MoEAlltoAllTokenDispatcher", **facts)
    manager = _core(f"{place}_HybridEPManager")
    return _core(f"{place}MoEFlexTokenDispatcher", _comm_manager=manager, **facts)


def _experts(ep: int) -> Any:
    """A mixture-of-experts layer with a gated shared expert and adapters."""
    import torch

    silu = torch.nn.functional.silu
    extensions = "extensions.transformer_engine:"
    config = _config(
        moe_permute_fusion=True,
        gated_linear_unit=True,
        context_parallel_size=1,
        activation_func=silu,
    )
    down = _lora(
        "MLPExpertsLinearFC2LoRA",
        out_features=HIDDEN,
        linear_fc2=_lora("TERowParallelGroupedLinear"),
        lora=_adapter(EXPERT_FFN, HIDDEN, EXPERTS // ep),
    )
    up = _lora(
        "MLPExpertsLinearFC1LoRA", fused_gate_up=True, non_gated=False, out_features=2 * EXPERT_FFN
    )
    shared_up = _lora(
        "SharedExpertsLinearFC1LoRA",
        non_gated=False,
        out_features=2 * EXPERT_FFN,
        linear_fc1=_core(
            f"{extensions}TEColumnParallelLinear", weight=_weight(2 * EXPERT_FFN, HIDDEN)
        ),
        gate_lora=_adapter(HIDDEN, EXPERT_FFN),
        up_lora=_adapter(HIDDEN, EXPERT_FFN),
    )
    row = _lora(
        "SelfAttentionLinearProjLoRA",
        provider=types.SimpleNamespace(tensor_model_parallel_size=1, sequence_parallel=False),
        lora=_adapter(EXPERT_FFN, HIDDEN),
        linear_proj=_core(f"{extensions}TERowParallelLinear", weight=_weight(HIDDEN, EXPERT_FFN)),
    )
    shared = _core(
        "transformer.moe.shared_experts:SharedExpertMLP",
        config=types.SimpleNamespace(**{**vars(config), "ffn_hidden_size": EXPERT_FFN}),
        activation_func=silu,
        use_shared_expert_gate=True,
        gate_weight=_weight(1, HIDDEN),
        linear_fc1=shared_up,
        linear_fc2=_lora("SharedExpertsLinearFC2LoRA", row_parallel_lora=row),
    )
    return _core(
        "transformer.moe.moe_layer:MoELayer",
        config=config,
        router=_core("transformer.moe.router:TopKRouter", topk=8),
        token_dispatcher=_dispatcher(config, ep),
        experts=_lora(
            "TEGroupedMLP",
            offload_expert_fc1=False,
            offload_moe_act=False,
            activation_recompute=False,
            linear_fc1=up,
            linear_fc2=down,
        ),
        use_shared_expert=True,
        shared_expert_overlap=False,
        shared_experts_recompute=False,
        moe_layer_recompute=False,
        fwd_execution_map=["route", "expert_compute", "postprocess"],
        shared_experts=shared,
    )


def _recurrent_mixer() -> Any:
    from art.megatron.gdn.operator import _prefix_tree_forward

    inner = VALUE_HEADS * HEAD_DIM
    channels = 2 * KEY_HEADS * HEAD_DIM + inner
    mixer = _core(
        "ssm.gated_delta_net:GatedDeltaNet",
        num_key_heads=KEY_HEADS,
        num_value_heads=VALUE_HEADS,
        key_head_dim=HEAD_DIM,
        value_head_dim=HEAD_DIM,
        conv_kernel_dim=CONV,
        use_qk_l2norm=True,
        tp_size=1,
        sp_size=1,
        conv1d=_blank("torch.nn:Module", weight=_weight(channels, 1, CONV)),
        out_norm=_blank("transformer_engine.pytorch:RMSNorm", weight=_weight(HEAD_DIM)),
        out_proj=_lora("SelfAttentionLinearProjLoRA", lora=_adapter(inner, HIDDEN)),
    )
    mixer.forward = types.MethodType(_prefix_tree_forward, mixer)
    return mixer


def _model(head: bool, gdn: bool, ep: int) -> Any:
    import torch

    config = _config(
        padded_vocab_size=VOCAB,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    )
    experts = _experts(ep)
    layers = [_blank("torch.nn:Module", mlp=experts) for _ in range(LAYERS)]
    # The first parameter tells the planner its device and type.
    layers[0].first = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    for index, layer in enumerate(layers):
        if gdn and index % FULL_ATTENTION_EVERY != FULL_ATTENTION_EVERY - 1:
            layer.self_attention = _recurrent_mixer()
    decoder = _core(
        "transformer.transformer_block:TransformerBlock",
        config=config,
        layers=torch.nn.ModuleList(layers),
        num_layers_per_pipeline_rank=LAYERS,
    )
    parts = {"config": config, "decoder": decoder, "_preprocess": lambda: None}
    if not head:
        return _blank("torch.nn:Module", **parts)
    return _core(
        "models.common.language_module.language_module:LanguageModule",
        output_layer=_core(
            "tensor_parallel.layers:ColumnParallelLinear",
            weight=_weight(VOCAB, HIDDEN),
            output_size_per_partition=VOCAB,
            output_size=VOCAB,
            input_size=HIDDEN,
        ),
        **parts,
    )


def planning_rank(
    cp: int,
    available: int,
    *,
    dp: tuple[int, int] = (0, 1),
    head: bool = True,
    gdn: bool = True,
    ep: int = 1,
) -> Any:
    """One rank of the reference planner over a model of its own.

    Args:
        cp: context-parallel ranks.
        available: bytes that a wave may use.
        dp: data-parallel rank, and number of them.
        head: whether the model ends in an output layer.
        gdn: whether three of four layers are gated delta nets.
        ep: expert-parallel ranks.
    """
    art = load()
    handler = types.SimpleNamespace(
        build_gdn_execution_spec=gdn,
        is_moe=True,
        context_parallel_workload_profile=lambda _: None,
    )
    runtime = types.SimpleNamespace(
        model=[_quietly(lambda: _model(head, gdn, ep))],
        optimizer=None,
        provider=types.SimpleNamespace(
            **_provider(context_parallel_size=cp, expert_model_parallel_size=ep)
        ),
        model_support_handler=handler,
    )
    rank = _rank_class(cp, dp)(runtime)
    # Without a GPU the planner would fall back to another score.
    score = art.cost.select_scoring(
        device_capability=(9, 0),
        device_memory_bytes=DEVICE_BYTES,
        param_dtype="torch.bfloat16",
        geometry=art.cost.GDN_MOE_H2048_GEOMETRY,
        shape=art.cost.ParallelShape(tp=1, cp=cp),
    )
    rank._coefficient_version = score.version
    rank._coefficient_table = score.table_id
    rank._planner_coefficients = score.coefficients
    rank._planner_reranker = score.reranker
    rank._available_memory_bytes = lambda *_: available
    return rank


@functools.lru_cache
def _rank_class(cp: int, dp: tuple[int, int]) -> Any:
    """A job has one class of ranks, so ranks of one kind have one here."""
    art = load()
    methods = {
        "_topology": lambda _: art.topology(tp=1, cp=cp, dp=dp[1], pp=1),
        "_dp_rank_and_size": lambda _: dp,
    }
    return type("StubRank", (art.api.TrainerRank,), methods)


def forget() -> None:
    """Empty the package's caches that outlive a rank."""
    from art.megatron.context_parallel import runtime

    for name in (
        "_PLANNING_BUNDLE_CACHE",
        "_RUNTIME_PLAN_CACHE",
        "_RANK_RUNTIME_PLAN_CACHE",
        "_GDN_GLOBAL_DECISION_CACHE",
        "_GDN_RANK_PLAN_CACHE",
    ):
        getattr(runtime, name).clear()


class Reference:
    """One rank of the reference planner.

    Args:
        cp: context-parallel ranks.
        available: bytes that a wave may use.

    Raises:
        InputError: the reference planner is not installed here.
    """

    def __init__(self, cp: int, available: int) -> None:
        self._art = load()
        self.cp, self.available = cp, available
        self._rank = planning_rank(cp, available)

    def requests(self, sequences: Sequence[np.ndarray]) -> list[Any]:
        """Return one request a sequence, every token labelled."""
        off = {"top_k": None, "logits": False, "hidden_states": False, "no_grad": False}
        torch = self._art.torch
        pairs = [(torch.as_tensor(one), torch.as_tensor(one).clone()) for one in sequences]
        make = self._art.api.ForwardInput
        return [make(input_tokens=one, target_tokens=labels, **off) for one, labels in pairs]

    def trust(self, requests: list[Any], tokens: int) -> None:
        """Store the profile of a wave of so many tokens that needed nothing beyond the rules."""
        rank = self._rank
        groups = rank._group_active_request_indices(requests)
        keys = tuple(key for key, _ in groups)
        signature = rank._memory_signature_from_requests(
            requests,
            slot_group_count=len(groups),
            grad_modes=tuple(gradient for _, gradient in keys),
            slot_groups=keys,
        )
        rank._memory_profiles[signature] = self._art.impl._MemoryProfile(
            bytes_per_token=0.0, packed_tokens=tokens, logical_per_packed=1.0
        )

    def search(self, requests: list[Any]) -> tuple[int, int]:
        """The first wave: its width and the bytes it needs; (0, bytes) of a refusal."""
        self._rank._last_global_micro_batch_size = None
        try:
            chosen = self._rank._select_next_micro_batch(requests, 0)
        except self._art.api.TrainerRankMemoryError as refusal:
            return 0, refusal.predicted_peak_bytes
        return chosen.stats_global_count, chosen.check.estimated_required_bytes

    forget = staticmethod(forget)
