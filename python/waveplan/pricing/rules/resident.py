"""Bytes that stay allocated between waves: weights, gradients, optimizer state, allowances.

Facts only, for one pipeline stage at a time. Projections, dense and shared experts, embedding
and head are divided over TP, routed experts over ETP x EP; norms, routers and gates are whole on
every rank. The distributed optimizer divides its state over DP x CP, that of experts over the
ranks that hold the same experts."""

from __future__ import annotations

from functools import partial

from waveplan.pricing.ruleset import Definition, Rule, total

_held = partial(Rule, lives="resident")

TABLE = [
    Definition(
        "embedding_elements",
        "ceildiv(vocab, tp) * hidden * (stage_first + (stage_last if output_layer and not"
        " (tied_embeddings and stage_first) else 0) + (1 if stage_mtp_layers > 0 and not"
        " stage_first and not tied_embeddings else 0)) + stage_first * positions * hidden",
        "embedding and learned positions of the first stage, head of the last, which has a copy of"
        " a tied embedding; of an untied one multi-token prediction has a copy",
    ),
    Definition(
        "mixer_elements",
        "stage_attention_layers * (ceildiv(attention_parameters, tp) +"
        " attention_whole_parameters) + stage_gdn_layers * (ceildiv(gdn_parameters, tp) +"
        " gdn_whole_parameters) + stage_other_elements",
        "mixers of every kind, and parts that belong to none",
    ),
    Definition(
        "mlp_elements",
        "stage_dense_layers * (ceildiv(mlp_parameters, tp) + mlp_whole_parameters)",
        "dense feed-forward layers",
    ),
    Definition(
        "shared_elements",
        "stage_moe_layers * (ceildiv(shared_parameters, tp) + shared_whole_parameters +"
        " router_parameters)",
        "shared experts with their gates, and routers",
    ),
    Definition(
        "norm_elements",
        "stage_layers * norm_parameters + stage_last * final_norm_parameters",
        "norms of the layers and the last one",
    ),
    Definition(
        "expert_elements",
        "(stage_moe_layers + (stage_mtp_layers if last_layer_moe else 0)) * experts_per_rank *"
        " (ceildiv(expert_parameters, etp) + expert_whole_parameters)",
        "routed experts",
    ),
    Definition(
        "mtp_elements",
        "stage_mtp_layers * (ceildiv(attention_parameters, tp) + attention_whole_parameters +"
        " norm_parameters + 3 * final_norm_parameters + ceildiv(2 * hidden * hidden, tp) +"
        " (ceildiv(shared_parameters, tp) + shared_whole_parameters + router_parameters if"
        " last_layer_moe else ceildiv(mlp_parameters, tp) + mlp_whole_parameters))",
        "modules of multi-token prediction: a layer as the last one, the projection of two norms,"
        " and a norm behind it",
    ),
    Definition(
        "dense_elements",
        "embedding_elements + mixer_elements + mlp_elements + shared_elements + norm_elements +"
        " mtp_elements",
        "everything but the routed experts",
    ),
    Definition(
        "dense_shards",
        "dp * cp // sharding_instances",
        "ranks that divide a sharded state",
    ),
    Definition(
        "expert_shards",
        "max(1, expert_dp // sharding_instances)",
        "ranks that divide that of an expert",
    ),
    Definition(
        "saved_elements",
        "ceildiv(vocab, tp) * hidden * ((stage_first if saved_embedding else 0) + (stage_last if"
        " saved_head and output_layer else 0))",
        "embedding and head that are trained beside adapters: a second copy of each",
    ),
    Definition(
        "trained_dense",
        "(dense_elements if full_finetuning else 0) + stage_adapter_elements + saved_elements",
        "trained parameters but those of routed experts",
    ),
    Definition(
        "trained_experts",
        "expert_elements if full_finetuning else 0",
        "trained parameters of routed experts",
    ),
    Definition(
        "state_elements",
        "ceildiv(trained_dense, dense_shards if optimizer_sharded else 1) +"
        " ceildiv(trained_experts, expert_shards if optimizer_sharded else 1)",
        "trained parameters whose optimizer states the rank holds",
    ),
    Definition(
        "weight_shards", "dense_shards if parameters_sharded else 1", "ranks that divide weights"
    ),
    Definition(
        "weight_expert_shards",
        "expert_shards if parameters_sharded else 1",
        "ranks that divide those of an expert",
    ),
    _held(
        "resident.embeddings",
        "ceildiv(embedding_elements, weight_shards) * dtype_bytes",
        why="embedding and head, divided over TP",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    _held(
        "resident.mixers",
        "ceildiv(ceildiv(mixer_elements, weight_shards) * base_bytes, 64)",
        why="attention and gdn layers, divided over TP",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    _held(
        "resident.mlp",
        "ceildiv(ceildiv(mlp_elements, weight_shards) * base_bytes, 64)",
        applies="dense_layers > 0",
        why="dense feed-forward layers, divided over TP",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    _held(
        "resident.experts",
        "ceildiv(ceildiv(expert_elements, weight_expert_shards) * base_bytes, 64)",
        applies="experts > 0",
        why="routed experts, divided over EP and ETP and not over TP",
        source="frozen base measured at TP 1, EP 1 and at TP 4, EP 4",
    ),
    _held(
        "resident.shared_experts",
        "ceildiv(ceildiv(shared_elements, weight_shards) * base_bytes, 64)",
        applies="experts > 0",
        why="shared experts, divided over TP; gates and routers whole",
        source="frozen base measured at TP 1, EP 1 and at TP 4, EP 4",
    ),
    _held(
        "resident.norms",
        "ceildiv(norm_elements, weight_shards) * dtype_bytes",
        why="norms, whole on every rank",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    _held(
        "resident.adapters",
        "stage_adapter_elements * dtype_bytes",
        applies="lora",
        why="adapter weights",
        source="shapes of the adapters",
    ),
    _held(
        "resident.mtp",
        "ceildiv(mtp_elements, weight_shards) * dtype_bytes",
        applies="stage_mtp_layers > 0",
        why="modules of multi-token prediction, their experts apart",
        source="sizes of the layers; Megatron-LM's functional tests",
    ),
    _held(
        "resident.saved_modules",
        "saved_elements * dtype_bytes",
        checked="0",
        applies="saved_embedding or saved_head",
        why="embedding and head that are trained beside adapters, each beside its frozen one",
        source="sizes of the matrices; no record measures it",
    ),
    _held(
        "resident.gradients",
        "0 if fused_optimizer else (ceildiv(trained_dense, dense_shards if gradients_sharded else"
        " 1) + ceildiv(trained_experts, expert_shards if gradients_sharded else 1)) * grad_bytes",
        checked="full_finetuning and not gradients_sharded",
        applies="backward",
        why="gradients of what is trained, kept between the waves of a step",
        source="sizes of the trained parameters; Megatron-LM's functional tests",
    ),
    _held(
        "resident.optimizer",
        "state_elements * optimizer_bytes",
        checked="full_finetuning and not optimizer_adam8bit",
        where="not optimizer_muon",
        applies="backward and not offload_optimizer",
        why="moments and fp32 copies of what is trained",
        source="sizes of the trained parameters; Megatron-LM's functional tests",
    ),
    _held(
        "resident.quantised_moments",
        "ceildiv(state_elements, 256) * 8 * B",
        checked="0",
        applies="optimizer_adam8bit and backward and not offload_optimizer",
        why="the scale of each block of 256 moments of 8 bits, fp32, for both moments",
        source="block size of bitsandbytes; no record measures it alone",
    ),
    _held(
        "resident.hybridep_buffer",
        "hybridep_buffer",
        applies="hybridep_buffer > 0",
        why="the HybridEP buffer that is already held, outside the allocator",
        source="as stated by the caller",
    ),
    Definition(
        "blas_workspace",
        "8 * MiB + 128 * KiB if gpu_ampere and not cublas_config else 32 * MiB",
        "cuBLAS workspace of a thread: PyTorch's on Hopper and Blackwell, or with"
        " CUBLAS_WORKSPACE_CONFIG=:4096:8; else its default",
    ),
    Definition(
        "engine_workspace",
        "4 * MiB if gpu_ampere else 32 * MiB",
        "Transformer Engine's workspace of a stream",
    ),
    _held(
        "resident.blas",
        "2 * blas_workspace",
        why="cuBLAS workspaces of the forward and of the autograd thread",
        source="constants of PyTorch; Megatron-LM's functional tests",
    ),
    _held(
        "resident.engine",
        "engine_workspace",
        applies="not kernels_local",
        why="the workspace of fused products",
        source="constant of Transformer Engine; Megatron-LM's functional tests",
    ),
    _held(
        "resident.grouped_products",
        "4 * engine_workspace",
        applies="experts > 0 and grouped_gemm and not kernels_local",
        why="the same for four streams of grouped products",
        source="constant of Transformer Engine; Megatron-LM's functional tests",
    ),
    _held(
        "resident.first_use",
        "(500 * MiB if ep == 1 else 2 * GiB) - 2 * blas_workspace - engine_workspace - (4 *"
        " engine_workspace if experts > 0 and grouped_gemm else 0)",
        checked="ep == 1",
        applies="kernels_eager",
        why="allowance inside the allocator of eager jobs: rotary tables, small first-use buffers,"
        " under EP expert buffers that earlier calls keep",
        source="stated; the frozen bases hold 160 MB (1.7 B) to 532 MB (27 B) beside their weights,"
        " workspaces included; under EP 0.63 GB before and 1.96 GB after several calls were seen",
        from_records=True,
    ),
    _held(
        "resident.context",
        "2304 * MiB",
        checked="0",
        why="allowance outside the allocator: device context and loaded kernels",
        source="stated; one rank of an H200 had 2.3 GB in use that no allocator accounted for",
    ),
    _held(
        "resident.collectives",
        "communicators * 512 * MiB",
        checked="0",
        applies="communicators > 0",
        why="allowance outside the allocator: buffers of each kind of ranks that is divided",
        source="stated; NCCL holds 0.5 to 0.7 GB for a communicator of one node (NVIDIA/nccl"
        " threads 864 and 964)",
    ),
    total(
        "resident_allocated",
        "resident.embeddings + resident.mixers + resident.mlp + resident.experts +"
        " resident.shared_experts + resident.norms + resident.mtp + resident.adapters +"
        " resident.saved_modules + resident.gradients + resident.optimizer +"
        " resident.quantised_moments + resident.blas + resident.engine +"
        " resident.grouped_products + resident.first_use",
        "inside the framework's allocator",
    ),
    total(
        "resident_outside",
        "resident.hybridep_buffer + resident.context + resident.collectives",
        "what the allocator does not see",
    ),
    Definition(
        "step_copies",
        "state_elements * 4 * B if full_finetuning and grad_bytes < 4 * B and optimizer_bytes >"
        " 2 * moment_bytes else 0",
        "fp32 copies of 16-bit gradients beside fp32 weights, from a step to the next backward",
    ),
    total("after_step", "resident_allocated + step_copies", "in the allocator after a step"),
    Definition(
        "step_temporaries",
        "state_elements * moment_bytes if foreach_step and backward else 0",
        "roots of the second moments of all that is trained, made as one list by a step",
    ),
    total("at_step", "after_step + step_temporaries", "in the allocator during a step"),
    total("resident", "resident_allocated + resident_outside", "not available to waves"),
]
