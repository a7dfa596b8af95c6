"""Ranks of the reference planner (`waveplan.bench.reference`), as golden vectors describe them."""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from art.megatron.context_parallel import runtime
from art.megatron.context_parallel.builder import build_prefix_tree_attention_spec
from art.megatron.context_parallel.types import (
    ContextParallelConfig,
    ContextParallelWorkloadProfile,
    ParallelTopology,
    estimate_owned_token_ms,
)
from art.megatron.gdn import gdn_prefix_tree as gdn
from art.megatron.lora import LoRA, LoRASlotRef
from art.trainer_rank import ForwardInput, _impl, _planner_cost
from art.trainer_rank import _prefix_tree_planner as planner
from megatron.core.transformer.moe import fused_a2a

from waveplan.bench import reference

GDN_CONFIG = gdn.GdnPlannerConfig.from_provider(SimpleNamespace(**reference._provider()))
forget = reference.forget
OWNED_MS = estimate_owned_token_ms(
    hidden_size=reference.HIDDEN,
    ffn_hidden_size=4 * reference.HIDDEN,
    moe_topk=8,
    moe_ffn_hidden_size=reference.EXPERT_FFN,
    moe_shared_expert_ffn=reference.EXPERT_FFN,
    expert_tensor_parallel_size=1,
)


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


def select(tree, given, score):
    """The layout of a golden case."""
    return planner.select_prefix_tree_layout(
        tree,
        cp_size=given["cp"],
        layers=given["layers"],
        uses_gdn=given["uses_gdn"],
        tp_size=given.get("tp", 1),
        gdn_layers=given["gdn_layers"],
        coefficient_version=score.version,
        coefficients=score.coefficients,
        refinement_work_budget=given["budget"],
        reranker=score.reranker,
    )


def gdn_config(given):
    """The package's settings of gdn layers for a golden case."""
    shape = given.get("gdn_shape")
    changed = given["gdn_planner"] or {}
    if shape is None:
        return gdn.replace(GDN_CONFIG, **changed)
    return gdn.GdnPlannerConfig.from_model_shape(
        hidden_size=shape["hidden"],
        tensor_model_parallel_size=shape["tp"],
        linear_num_key_heads=shape["key_heads"],
        linear_num_value_heads=shape["value_heads"],
        linear_key_head_dim=shape["key_dim"],
        linear_value_head_dim=shape["value_dim"],
        linear_conv_kernel_dim=shape["conv"],
        **changed,
    )


def planning_rank(
    cp=1, available=1 << 60, score="h200", head=True, gdn_layers=True, dp=(0, 1), tp=1, ep=1
):
    """A rank over a model of its own (a rank changes its model), with so many bytes free."""
    rank = reference.planning_rank(cp, available, dp=tuple(dp), head=head, gdn=gdn_layers, ep=ep)
    # the expert layer is priced only if the package recognises every part of it
    assert rank._moe_output_bytes_per_token == (192_512 if ep == 1 else 286_720)
    chosen = scoring(score, cp)
    rank._coefficient_version, rank._coefficient_table = chosen.version, chosen.table_id
    rank._planner_coefficients, rank._planner_reranker = chosen.coefficients, chosen.reranker
    if tp > 1:
        topology = ParallelTopology(tp=tp, cp=cp, dp=dp[1])
        rank._topology = lambda: topology
        rank._parallel_shape = replace(rank._parallel_shape, tp=tp)
        rank._sequence_parallel = True
        rank.runtime.provider.tensor_model_parallel_size = tp
    return rank


def tensors(sequences):
    return tuple(torch.as_tensor(np.asarray(sequence, dtype=np.int64)) for sequence in sequences)


def requests(
    sequences, no_grad=False, target=True, hidden=False, labels=None, top_k=None, logits=False
):
    """Make a request per sequence; each option is one value, or a list with one per sequence.

    ``labels``: so many tokens at the sequence's end have one (None: all).
    """
    count = len(sequences)

    def column(value):
        return value if isinstance(value, list) else [value] * count

    options = zip(
        tensors(sequences),
        *map(column, (no_grad, target, hidden, labels, top_k, logits)),
        strict=True,
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
    """Set the memory profile of a wave of these requests."""
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


def load_slot(rank, trained):
    """Run all requests through a named adapter slot, its gradients yet to be allocated or not."""
    ref = LoRASlotRef("checkpoint", "policy")
    rank._default_slot_ref = ref
    for module in rank.runtime.model[0].modules():
        if isinstance(module, LoRA):
            pair = (module.A_T, module.B_T)
            pair = [torch.nn.Parameter(one) if trained else one for one in pair]
            slot = SimpleNamespace(A_T=pair[0], B_T=pair[1])
            vars(module).update(
                _slot_keys={ref: "slot_0"},
                _slot_modules={"slot_0": slot},
                lora_slot_params=lambda _, pair=pair: pair,
            )


def hold(rank, held=None, combined=None):
    """Buffers of HybridEP that hold so many tokens, and graphs alive that combine so many."""
    buffer = SimpleNamespace(max_num_of_tokens_per_rank=held)
    held_now = None if held is None else SimpleNamespace(buffer_config=buffer)
    fused_a2a._hybrid_ep_buffer = held_now and SimpleNamespace(configurer=held_now)
    if combined is not None:
        rank.alive = torch.zeros(1)
        rank._pending_hybridep_graphs = [weakref.ref(rank.alive)]
        rank._hybridep_rows_high_water = combined


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


def assigned(groups, parents, cp, **values):
    """Owners, stages and tokens of a packed line."""
    spec = build_prefix_tree_attention_spec(group_ids=groups, parent_ids=parents)
    line, chunks, owners, stages = runtime._runtime_plan_assignment(
        spec, topology=ParallelTopology(cp=cp), config=config(**values)
    )
    index = runtime._build_runtime_token_layout_index(
        chunk_ranges=chunks, owners=owners, cp_size=max(cp, 1)
    )
    return {
        "valid_tokens": line.valid_tokens,
        "slices": len(line.slices),
        "chunk_size": chunks[0].size() if chunks else 0,
        "chunk_count": len(chunks),
        "owners": list(owners),
        "wave_assignment": list(stages),
        "token_counts": list(index.token_counts_by_rank),
    }


def rank_tokens(groups, parents, cp, gdn_config=None, **values):
    """Model tokens of each rank; without a gdn configuration, of attention alone."""
    return list(
        runtime.context_parallel_rank_model_token_counts(
            group_ids=groups,
            parent_ids=parents,
            topology=ParallelTopology(cp=cp),
            config=config(**values),
            original_seq_len=int(groups.shape[-1]),
            build_gdn_execution_spec=gdn_config is not None,
            gdn_planner_config=gdn_config,
        )
    )


def placed(groups, parents, cp, gdn_config=GDN_CONFIG, **values):
    """Model, attention and gdn tokens of each rank, and where segments went."""
    forget()
    counts, topology = (
        rank_tokens(groups, parents, cp, gdn_config, **values),
        ParallelTopology(cp=cp),
    )
    key, bundle, *_ = runtime._get_or_build_planning_bundle(
        group_ids=groups,
        parent_ids=parents,
        topology=topology,
        config=config(**values),
        original_seq_len=int(groups.shape[1]),
        build_gdn_execution_spec=True,
    )
    decision = runtime._plan_gdn_global_execution(
        planning_key=key, bundle=bundle, topology=topology, gdn_planner_config=gdn_config
    )
    return {
        "model_counts": counts,
        "attention_counts": list(decision.source_layout.token_counts_by_rank),
        "gdn_counts": list(decision.gdn_token_counts_by_rank),
        "owner_by_node": list(decision.owner_by_node),
        "chained_nodes": [int(chained) for chained in decision.chained_nodes],
        "cross_rank_tokens": decision.cross_rank_token_count,
    }
