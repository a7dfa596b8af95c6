"""Read Megatron-LM arguments: the model, the ranks and the training mode that they describe.

Names and defaults are those of Megatron-LM's ``arguments.py``; `TransformerConfig`'s names are
another spelling. ``waveplan.facts.arguments`` says which arguments are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from waveplan.checks import integer
from waveplan.errors import InputError
from waveplan.facts.arguments import Arguments, Source, option, table
from waveplan.facts.decoder import sizes
from waveplan.facts.model import Model
from waveplan.facts.topology import Sharding, Topology
from waveplan.facts.training import Training

__all__ = ["MegatronJob", "read_megatron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronJob:
    """Facts of a job, read from Megatron arguments."""

    model: Model
    topology: Topology
    training: Training
    micro_batch: int | None = None
    """Sequences of a micro-batch, as ``--micro-batch-size``."""
    sequence: int | None = None
    """Tokens of a sequence, as ``--seq-length``."""
    global_batch: int | None = None
    notes: tuple[str, ...] = ()
    """What was assumed or filled in, a phrase each."""
    unpriced: tuple[str, ...] = ()
    """Options that were read and that no fact stands for: no price depends on them."""
    harmless: tuple[str, ...] = ()
    """Options that change neither the model nor its memory."""


_UNPRICED = (
    *("fp4_format", "qk_clip", "fp32_residual_connection", "moe_pad_expert_input_to_capacity"),
    *("moe_expert_capacity_factor", "optimizer_offload_fraction", "fp8_param_gather"),
    *("overlap_param_gather_with_optimizer_step", "delay_wgrad_compute", "fsdp_double_buffer"),
    *("outer_dp_sharding_strategy", "tp_comm_overlap", "distribute_saved_activations"),
    *("fsdp_manual_registration", "moe_pad_experts_for_cuda_graph_inference"),
)


def read_megatron(
    source: Source, world: int | None = None, padded_vocab: int | None = None
) -> MegatronJob:
    """Model, ranks and training mode of a list of words, a dict, or a file.

    A file is a launch script, or the arguments in YAML or JSON. Megatron trains every parameter, so
    ``lora_rank`` is 0; use ``dataclasses.replace`` for adapters.

    Args:
        world: ranks of the job, for its dp; absent: as few as its groups need.
        padded_vocab: rows of the embedding, where the arguments leave them to a tokenizer.

    Raises:
        InputError: an argument is unknown, missing (all are listed), or has a wrong value.
    """
    values, harmless, left_out = table(source)
    made, notes = sizes(values, padded_vocab)
    arguments = Arguments(values)
    context = arguments.number("max_position_embeddings") or arguments.number("seq_length")
    model = Model(**made, context=context)
    notes_of = [*left_out, *notes]
    topology = _topology(arguments, model, world, notes_of)
    batch = {
        name: arguments.number(key) or None
        for name, key in (
            ("micro_batch", "micro_batch_size"),
            ("sequence", "seq_length"),
            ("global_batch", "global_batch_size"),
        )
    }
    training = _training(arguments, model, topology, batch)
    unpriced = [option(name) for name in _UNPRICED if arguments.values.get(name)]
    return MegatronJob(
        model=model,
        topology=topology,
        training=training,
        **batch,
        notes=tuple(notes_of),
        unpriced=tuple(unpriced),
        harmless=harmless,
    )


# -- ranks --------------------------------------------------------------------------------------


def _topology(arguments: Arguments, model: Model, world: int | None, notes: list[str]) -> Topology:
    tp = arguments.number("tensor_model_parallel_size", 1, 1)
    cp = arguments.number("context_parallel_size", 1, 1)
    pp = arguments.number("pipeline_model_parallel_size", 1, 1)
    ep = etp = 1
    if model.experts:
        ep = arguments.number("expert_model_parallel_size", 1, 1)
        # Megatron's experts use the tensor-parallel size unless one is given.
        etp = arguments.number("expert_tensor_parallel_size", tp, 1)
    ranks = _world(arguments, tp * cp * pp) if world is None else integer("world", world, 1)
    group = tp * cp * pp
    if ranks % group:
        raise InputError(
            f"world is {ranks} ranks: it must be a multiple of tp {tp} x cp {cp} x pp {pp}"
        )
    dp = max(1, ranks // group)
    if dp * tp * cp % (ep * etp):
        known = f"world is {ranks}" if ranks else "the number of ranks is not stated"
        raise InputError(
            f"{known}: experts on EP {ep} x ETP {etp} need a multiple of {ep * etp * pp} ranks; "
            "say how many by --gpus (world= in Python)"
        )
    stages = _stages(arguments, model, pp, notes)
    return Topology(
        dp=dp,
        tp=tp,
        cp=cp,
        pp=pp,
        ep=ep,
        etp=etp,
        sequence_parallel=arguments.on("sequence_parallel") and tp > 1,
        cp_layout="even" if cp > 1 else "ranges",
        sharding=_sharding(arguments),
        **stages,
    )


def _world(arguments: Arguments, group: int) -> int:
    """Ranks as stated, or by the launcher's nodes; 0 where neither is."""
    if stated := arguments.number("world_size"):
        return stated
    if dp := arguments.number("data_parallel_size"):
        return dp * group
    per_node, nodes = arguments.words("nproc_per_node"), arguments.words("nnodes") or ("1",)
    if per_node and per_node[0].isdecimal() and nodes[0].isdecimal():
        return int(per_node[0]) * int(nodes[0])
    return 0


def _sharding(arguments: Arguments) -> Sharding:
    kind = "optimizer" if arguments.on("use_distributed_optimizer") else "none"
    if arguments.on("use_megatron_fsdp"):
        strategies = {
            "no_shard": "none",
            "optim": "optimizer",
            "optim_grads": "gradients",
            "optim_grads_params": "parameters",
        }
        stated = arguments.word("data_parallel_sharding_strategy", "no_shard")
        if stated not in strategies:
            raise InputError(
                f"--data-parallel-sharding-strategy is {stated!r}: it must be one of "
                f"{', '.join(strategies)}"
            )
        kind = strategies[stated]
    if arguments.on("use_torch_fsdp2"):
        kind = "parameters"
    instances = arguments.number("num_distributed_optimizer_instances", 1, 1)
    return Sharding(kind, instances if kind != "none" else 1)


def _stages(arguments: Arguments, model: Model, pp: int, notes: list[str]) -> dict[str, Any]:
    """Virtual stages, and the layers of each where they are uneven."""
    layers = model.layers
    virtual = arguments.number("num_virtual_stages_per_pipeline_rank", 1, 1)
    if per_stage := arguments.number("num_layers_per_virtual_pipeline_stage"):
        virtual = max(1, layers // pp // per_stage)
    layout = arguments.word("pipeline_model_parallel_layout", "")
    counts: list[int] = []
    if layout and pp > 1:
        counts = _layout(layout)
        if len(counts) % pp:
            raise InputError(
                f"--pipeline-model-parallel-layout has {len(counts)} stages: give a multiple of "
                f"the pipeline size, which is {pp}"
            )
        virtual = len(counts) // pp
    elif pp > 1:
        counts = _uneven(arguments, layers, pp, virtual, notes)
    if pp == 1:
        virtual = 1
    group = arguments.number("microbatch_group_size_per_vp_stage")
    return {
        "virtual": virtual,
        "virtual_group": max(group, pp) if group and virtual > 1 else None,
        "stage_layers": tuple(counts),
    }


def _layout(text: str) -> list[int]:
    """Layers of each stage of a layout such as ``Et*3|(tt|)*6L``."""
    plain, again = text.replace(" ", "").replace(",", ""), ""
    for _ in range(8):
        if again == plain or len(plain) > 1 << 16:
            break
        again = plain
        plain = re.sub(
            r"\(([^()]*)\)\*(\d{1,4})", lambda found: found[1] * int(found[2]), plain, count=0
        )
        plain = re.sub(r"([A-Za-z|])\*(\d{1,4})", lambda found: found[1] * int(found[2]), plain)
    if re.fullmatch(r"[EtmL|]+", plain) is None:
        raise InputError(
            f"--pipeline-model-parallel-layout is {text[:60]!r}: write E, t, m, L and | with "
            "repetitions such as t*3 or (tt|)*6"
        )
    return [stage.count("t") for stage in plain.split("|")]


def _uneven(
    arguments: Arguments, layers: int, pp: int, virtual: int, notes: list[str]
) -> list[int]:
    first = arguments.number("decoder_first_pipeline_num_layers")
    last = arguments.number("decoder_last_pipeline_num_layers")
    embedding = arguments.on("account_for_embedding_in_pipeline_split")
    loss = arguments.on("account_for_loss_in_pipeline_split")
    stages = pp * virtual
    if not (first or last or embedding or loss) and layers % stages and (layers + 2) % stages == 0:
        notes.append(f"{layers} layers on {stages} stages: embedding and loss count as layers")
        embedding = loss = True
    if embedding or loss:
        each, rest = divmod(layers + embedding + loss, stages)
        if rest:
            raise InputError(
                f"{layers} layers with embedding and loss cannot be divided over {stages} stages"
            )
        counts = [each] * stages
        counts[0] -= embedding
        counts[-1] -= loss
        return counts
    if not first and not last:
        return []
    ends = [first, last]
    between = pp - sum(1 for end in ends if end)
    each, rest = divmod(layers - first - last, max(1, between))
    if rest or (not between and layers != first + last):
        raise InputError(
            f"{layers - first - last} layers beside the first and last stage cannot be divided "
            f"over {between} stages"
        )
    ranks = [first or each, *[each] * (pp - 2), last or each]
    if any(count % virtual for count in ranks):
        raise InputError(f"the layers of a pipeline rank, {ranks}, must divide by {virtual}")
    return [count // virtual for count in ranks] * virtual


# -- training -----------------------------------------------------------------------------------


def _training(
    arguments: Arguments, model: Model, topology: Topology, batch: dict[str, int | None]
) -> Training:
    micro, whole = batch["micro_batch"], batch["global_batch"]
    microbatches = max(1, whole // (micro * topology.dp)) if micro and whole else None
    local = arguments.word("transformer_impl", "transformer_engine") == "local"
    attention = arguments.word("attention_backend", "auto")
    if arguments.on("use_flash_attn"):
        attention = "flash"
    elif attention == "local" or (local and attention == "auto"):
        attention = "unfused"
    values: dict[str, Any] = {
        "kernels": "local" if local else "fused",
        "attention": attention,
        "softmax_fusion": attention not in ("auto", "unfused")
        or arguments.on("masked_softmax_fusion", True),
        "head": _head(arguments),
        "sequence_length": batch["sequence"],
        "microbatches": microbatches,
        "attention_mask": arguments.on("create_attention_mask_in_dataloader", True),
        "attention_dropout": arguments.share("attention_dropout", 0.1),
        "hidden_dropout": arguments.share("hidden_dropout", 0.1),
        "lora_rank": 0,
        "mtp": model.mtp_layers > 0,
        "activation_fusion": model.gated_mlp and arguments.on("bias_swiglu_fusion", True),
        "fp8": bool(arguments.word("fp8_format", "")),
        "cuda_graphs": arguments.on("enable_cuda_graph")
        or arguments.word("cuda_graph_impl", "none") != "none",
        "user_buffers": arguments.on("use_nccl_ub"),
        "offload": _offload(arguments),
        **_recompute(arguments),
        **_states(arguments, model),
    }
    if arguments.on("defer_embedding_wgrad_compute"):
        limit = arguments.number("wgrad_deferral_limit")
        values["wgrad_deferral"] = limit or microbatches or 1
    if model.experts:
        values |= {
            "dispatcher": _dispatcher(arguments),
            "grouped_gemm": arguments.on("moe_grouped_gemm"),
            "shared_overlap": model.shared_ffn > 0 and arguments.on("moe_shared_expert_overlap"),
            "expert_overlap": arguments.on("overlap_moe_expert_parallel_comm"),
        }
    return Training(**values)


def _head(arguments: Arguments) -> str:
    if not arguments.on("cross_entropy_loss_fusion"):
        return "vocab_parallel"
    return (
        "fused"
        if arguments.word("cross_entropy_fusion_impl", "native") == "linear"
        else ("fused_loss")
    )


def _dispatcher(arguments: Arguments) -> str:
    stated = arguments.word("moe_token_dispatcher_type", "allgather")
    if stated == "alltoall_seq":
        return "alltoall"
    if stated == "flex":
        return arguments.word("moe_flex_dispatcher_backend", "deepep")
    return stated


def _offload(arguments: Arguments) -> tuple[str, ...]:
    activations = arguments.on("fine_grained_activation_offloading") or arguments.number(
        "cpu_offloading_num_layers"
    )
    optimizer = arguments.on("optimizer_cpu_offload")
    return (*(("activations",) if activations else ()), *(("optimizer",) if optimizer else ()))


def _recompute(arguments: Arguments) -> dict[str, Any]:
    granularity = arguments.word("recompute_granularity", "none") or "none"
    if arguments.on("recompute_activations"):
        granularity = "selective"
    modules = arguments.words("recompute_modules") if granularity == "selective" else ()
    if arguments.on("moe_layer_recompute"):
        granularity, modules = "selective", (*modules, "moe")
    if granularity != "full":
        return {"recompute": granularity, "recompute_modules": modules}
    return {
        "recompute": granularity,
        "recompute_method": arguments.word("recompute_method", "uniform"),
        "recompute_num_layers": arguments.number("recompute_num_layers", 1, 1),
    }


_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}


def _states(arguments: Arguments, model: Model) -> dict[str, Any]:
    """Types of gradients and moments, and the optimizer."""
    in_fp32 = model.dtype == "bfloat16" or arguments.on("accumulate_allreduce_grads_in_fp32")
    grads = "float32" if in_fp32 else model.dtype
    if arguments.on("grad_reduce_in_bf16"):
        grads = "bfloat16"
    for name in ("megatron_fsdp_main_grads_dtype", "main_grads_dtype"):
        if stated := arguments.word(name, ""):
            grads = _DTYPES.get(stated, stated)
    moments = "float32"
    if arguments.on("use_precision_aware_optimizer"):
        stated = arguments.word("exp_avg_dtype", "fp32")
        moments = _DTYPES.get(stated, stated)
    optimizer = arguments.word("optimizer", "adam")
    return {
        "grad_dtype": grads,
        "moment_dtype": moments,
        "optimizer": "muon" if "muon" in optimizer else optimizer,
    }
