"""A planning rank of the published package over a model that has shapes but no weights.

The model is the hybrid 35B-A3B of the golden vectors: 40 layers of 2,048, three of four of
them gated delta nets, 256 experts of which 8 run, a shared expert, adapters of rank 8.
Available memory, topology and data-parallel rank are set by hand; nothing of the planner is
overridden.
"""

from __future__ import annotations

from types import MethodType, SimpleNamespace

import numpy as np
import torch
from art.megatron.context_parallel import runtime
from art.megatron.context_parallel.types import (
    ContextParallelConfig,
    ContextParallelWorkloadProfile,
    ParallelTopology,
    estimate_owned_token_ms,
)
from art.megatron.gdn import gdn_prefix_tree as gdn
from art.trainer_rank import ForwardInput, TrainerRank, _impl, _planner_cost

HIDDEN, EXPERT, LAYERS, VOCABULARY, RANK = 2048, 512, 40, 248_320, 8
PROVIDER = {
    "hidden_size": HIDDEN,
    "num_layers": LAYERS,
    "ffn_hidden_size": 4 * HIDDEN,
    "num_attention_heads": 16,
    "num_query_groups": 2,
    "kv_channels": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_moe_experts": 256,
    "moe_router_topk": 8,
    "moe_ffn_hidden_size": EXPERT,
    "moe_shared_expert_intermediate_size": EXPERT,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": 1,
    "params_dtype": torch.bfloat16,
}
# what the package's readers of a configuration insist on finding switched off
PLAIN = {
    "fp8": None,
    "fp4": None,
    "cuda_graph_impl": "none",
    "sequence_parallel": False,
    "fp32_residual_connection": False,
}
GDN_LAYERS = tuple(layer for layer in range(LAYERS) if layer % 4 != 3)
GDN_CONFIG = gdn.GdnPlannerConfig.from_provider(SimpleNamespace(**PROVIDER))
OWNED_MS = estimate_owned_token_ms(
    hidden_size=HIDDEN,
    ffn_hidden_size=4 * HIDDEN,
    moe_topk=8,
    moe_ffn_hidden_size=EXPERT,
    moe_shared_expert_ffn=EXPERT,
    expert_tensor_parallel_size=1,
)


def bare(cls, **attributes):
    """A module of a class with these attributes, its own constructor left out."""
    made = cls.__new__(cls)
    if isinstance(made, torch.nn.Module):
        torch.nn.Module.__init__(made)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def weight(*shape):
    """A parameter of this shape without storage."""
    empty = torch.empty(*shape, dtype=torch.bfloat16, device="meta")
    return torch.nn.Parameter(empty, requires_grad=False)


def adapter(down, up):
    """A low-rank adapter of two shapes."""
    from art.megatron.lora import LoRA

    return bare(LoRA, A_T=weight(*down), B_T=weight(*up))


def experts_config():
    return SimpleNamespace(
        **{**PROVIDER, **PLAIN},
        context_parallel_size=1,
        moe_expert_capacity_factor=None,
        moe_pad_expert_input_to_capacity=False,
        moe_router_padding_for_quantization=False,
        moe_latent_size=None,
        moe_permute_fusion=True,
        moe_shared_expert_overlap=False,
        add_bias_linear=False,
        use_te_activation_func=False,
        bias_activation_fusion=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
    )


def routed_experts():
    from art.megatron import lora

    down = bare(
        lora.MLPExpertsLinearFC2LoRA,
        out_features=HIDDEN,
        linear_fc2=bare(lora.TERowParallelGroupedLinear),
        lora=adapter((256, EXPERT, RANK), (256, RANK, HIDDEN)),
    )
    up = bare(
        lora.MLPExpertsLinearFC1LoRA,
        fused_gate_up=True,
        non_gated=False,
        out_features=2 * EXPERT,
    )
    return bare(
        lora.TEGroupedMLP,
        offload_expert_fc1=False,
        offload_moe_act=False,
        activation_recompute=False,
        linear_fc1=up,
        linear_fc2=down,
    )


def shared_expert(config):
    from art.megatron import lora
    from megatron.core.extensions.transformer_engine import (
        TEColumnParallelLinear,
        TERowParallelLinear,
    )
    from megatron.core.transformer.moe.shared_experts import SharedExpertMLP

    up = bare(
        lora.SharedExpertsLinearFC1LoRA,
        non_gated=False,
        out_features=2 * EXPERT,
        linear_fc1=bare(TEColumnParallelLinear, weight=weight(2 * EXPERT, HIDDEN)),
        gate_lora=adapter((HIDDEN, RANK), (RANK, EXPERT)),
        up_lora=adapter((HIDDEN, RANK), (RANK, EXPERT)),
    )
    row = bare(
        lora.SelfAttentionLinearProjLoRA,
        provider=SimpleNamespace(tensor_model_parallel_size=1, sequence_parallel=False),
        lora=adapter((EXPERT, RANK), (RANK, HIDDEN)),
        linear_proj=bare(TERowParallelLinear, weight=weight(HIDDEN, EXPERT)),
    )
    return bare(
        SharedExpertMLP,
        config=SimpleNamespace(**{**vars(config), "ffn_hidden_size": EXPERT}),
        activation_func=torch.nn.functional.silu,
        use_shared_expert_gate=True,
        gate_weight=weight(1, HIDDEN),
        linear_fc1=up,
        linear_fc2=bare(lora.SharedExpertsLinearFC2LoRA, row_parallel_lora=row),
    )


def moe_layer():
    from megatron.core.transformer.moe.moe_layer import MoELayer
    from megatron.core.transformer.moe.router import TopKRouter
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher

    config = experts_config()
    return bare(
        MoELayer,
        config=config,
        router=bare(TopKRouter, topk=8),
        token_dispatcher=bare(
            MoEAlltoAllTokenDispatcher, config=config, ep_size=1, tp_size=1, num_local_experts=256
        ),
        experts=routed_experts(),
        use_shared_expert=True,
        shared_expert_overlap=False,
        shared_experts_recompute=False,
        moe_layer_recompute=False,
        fwd_execution_map=["route", "expert_compute", "postprocess"],
        shared_experts=shared_expert(config),
    )


def delta_net():
    from art.megatron.gdn.operator import _prefix_tree_forward
    from art.megatron.lora import SelfAttentionLinearProjLoRA
    from megatron.core.ssm.gated_delta_net import GatedDeltaNet
    from transformer_engine.pytorch import RMSNorm

    mixer = bare(
        GatedDeltaNet,
        num_key_heads=16,
        num_value_heads=32,
        key_head_dim=128,
        value_head_dim=128,
        conv_kernel_dim=4,
        use_qk_l2norm=True,
        tp_size=1,
        sp_size=1,
        conv1d=bare(torch.nn.Module, weight=weight(2 * 16 * 128 + 32 * 128, 1, 4)),
        out_norm=bare(RMSNorm, weight=weight(128)),
        out_proj=bare(SelfAttentionLinearProjLoRA, lora=adapter((32 * 128, RANK), (RANK, HIDDEN))),
    )
    mixer.forward = MethodType(_prefix_tree_forward, mixer)
    return mixer


def model(head, gdn_layers):
    from megatron.core.models.common.language_module.language_module import LanguageModule
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear
    from megatron.core.transformer.transformer_block import TransformerBlock

    config = SimpleNamespace(
        **{**PROVIDER, **PLAIN},
        padded_vocab_size=VOCABULARY,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
        distribute_saved_activations=False,
        cpu_offloading=False,
        use_mup=False,
    )
    experts, layers = moe_layer(), []
    for index in range(LAYERS):
        layer = bare(torch.nn.Module, mlp=experts)
        if index == 0:  # the first parameter gives the rank its device and type
            layer.first = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
            layer._modules["mlp"] = layer._modules.pop("mlp")
        if index in gdn_layers:
            layer.self_attention = delta_net()
        layers.append(layer)
    decoder = bare(
        TransformerBlock,
        config=config,
        layers=torch.nn.ModuleList(layers),
        num_layers_per_pipeline_rank=LAYERS,
    )
    made = bare(LanguageModule if head else torch.nn.Module, config=config, decoder=decoder)
    made._preprocess = lambda: None
    if head:
        made.output_layer = bare(
            ColumnParallelLinear,
            weight=weight(VOCABULARY, HIDDEN),
            output_size_per_partition=VOCABULARY,
            output_size=VOCABULARY,
            input_size=HIDDEN,
        )
    return made


def scoring(name, cp):
    """The package's own choice of a score: "h200", "cpu", "v1", or the facts it looks at."""
    if name == "v1":
        return _planner_cost.ScoringSelection(1, None, None)
    geometry = _planner_cost.GDN_MOE_H2048_GEOMETRY
    facts = {"device_capability": None, "device_memory_bytes": None, "param_dtype": ""}
    shape = _planner_cost.ParallelShape(cp=cp)
    if name == "h200":
        facts = {
            "device_capability": (9, 0),
            "device_memory_bytes": 140 << 30,
            "param_dtype": "torch.bfloat16",
        }
    elif isinstance(name, dict):
        facts = {key: name[key] for key in facts}
        facts["device_capability"] = name["device_capability"] and tuple(name["device_capability"])
        geometry = _planner_cost.ModelGeometry(**name["geometry"])
        shape = _planner_cost.ParallelShape(**name["shape"])
    return _planner_cost.select_scoring(geometry=geometry, shape=shape, **facts)


class PlanningRank(TrainerRank):
    """A rank whose topology is stated."""

    cp, dp = 1, (0, 1)

    def _topology(self):
        return ParallelTopology(cp=self.cp, dp=self.dp[1])

    def _dp_rank_and_size(self):
        return self.dp


def planning_rank(cp=1, available=1 << 60, score="h200", head=True, gdn_layers=True, dp=(0, 1)):
    """A rank over a model of its own (a rank changes its model), with so many bytes free."""
    kind = type("PlanningRank", (PlanningRank,), {"cp": cp, "dp": tuple(dp)})
    handler = SimpleNamespace(
        build_gdn_execution_spec=gdn_layers,
        is_moe=True,
        context_parallel_workload_profile=lambda _: None,
    )
    rank = kind(
        SimpleNamespace(
            model=[model(head, GDN_LAYERS if gdn_layers else ())],
            optimizer=None,
            provider=SimpleNamespace(**PROVIDER, context_parallel_size=cp),
            model_support_handler=handler,
        )
    )
    # the expert layer is priced only if the package recognises every part of it
    assert rank._moe_output_bytes_per_token == 192_512
    chosen = scoring(score, cp)
    rank._coefficient_version, rank._coefficient_table = chosen.version, chosen.table_id
    rank._planner_coefficients, rank._planner_reranker = chosen.coefficients, chosen.reranker
    rank._available_memory_bytes = lambda *_: available
    return rank


def tensors(rows):
    return tuple(torch.as_tensor(np.asarray(row, dtype=np.int64)) for row in rows)


def requests(rows, no_grad=False, target=True, hidden=False, labels=None, top_k=None, logits=False):
    """A request per row; each option is one value, or a list with one per row.

    ``labels``: so many tokens at the row's end have one (None: all).
    """
    count = len(rows)

    def column(value):
        return value if isinstance(value, list) else [value] * count

    options = zip(
        tensors(rows), *map(column, (no_grad, target, hidden, labels, top_k, logits)), strict=True
    )
    made = []
    for tokens, without, wanted, states, keep, k, scores in options:
        targets = None
        if wanted:
            targets = tokens.clone()
            if keep is not None:
                targets[: max(0, len(tokens) - keep)] = -100
        made.append(
            ForwardInput(
                input_tokens=tokens,
                target_tokens=targets,
                top_k=k,
                logits=bool(scores),
                hidden_states=bool(states),
                no_grad=bool(without),
            )
        )
    return made


def learn(
    rank, made, *, bytes_per_token, packed_tokens, logical_per_packed=1.0, retained=None, **more
):
    """Pretends that a wave of these requests' kind ran before."""
    groups = rank._group_active_request_indices(made)
    signature = rank._memory_signature_from_requests(
        made,
        slot_group_count=len(groups),
        grad_modes=tuple(gradient for (_, gradient), _ in groups),
        slot_groups=tuple(key for key, _ in groups),
    )
    rank._memory_profiles[signature] = _impl._MemoryProfile(
        bytes_per_token=bytes_per_token,
        packed_tokens=packed_tokens,
        logical_per_packed=logical_per_packed,
        retained_compute_bytes_per_token=retained,
        **more,
    )


def forget():
    """Empties the package's process-wide caches."""
    for name in (
        "_PLANNING_BUNDLE_CACHE",
        "_RUNTIME_PLAN_CACHE",
        "_RANK_RUNTIME_PLAN_CACHE",
        "_GDN_GLOBAL_DECISION_CACHE",
        "_GDN_RANK_PLAN_CACHE",
    ):
        getattr(runtime, name).clear()


def config(**values):
    """The package's settings of the assignment, with the model's cost of an owned token."""
    values.setdefault("planner_owned_token_ms", OWNED_MS)
    if isinstance(values.get("workload_profile"), dict):
        values["workload_profile"] = ContextParallelWorkloadProfile(**values["workload_profile"])
    return ContextParallelConfig(**values)


def packed_ids(lengths, parents):
    """Group and parent ids [1, tokens] of segments in order."""
    sizes, parents = torch.as_tensor(lengths), torch.as_tensor(parents)
    numbers = torch.arange(1, len(sizes) + 1)
    above = torch.where(parents < 0, numbers, parents + 1)
    return tuple(torch.repeat_interleave(ids, sizes).unsqueeze(0) for ids in (numbers, above))
