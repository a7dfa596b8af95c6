"""Bytes that stay allocated between waves: weights, gradients, optimizer state, allowances.

Facts only, for one pipeline stage at a time. Projections, dense and shared experts, embedding
and head are divided over TP, routed experts over ETP x EP; norms, routers and gates are whole on
every rank. The distributed optimizer divides its state over DP x CP, that of experts over the
ranks that hold the same experts."""

from __future__ import annotations

from waveplan.pricing.ruleset import Definition, Rule, total

TABLE = [
    Definition(
        "embedding_elements",
        "ceildiv(vocab, tp) * hidden * (stage_first + (stage_last if output_layer and not"
        " (tied_embeddings and pp == 1) else 0)) + stage_first * positions * hidden",
        "embedding and learned positions of the first stage, head of the last; tied ones are one"
        " on a single stage",
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
        "stage_moe_layers * experts_per_rank * ceildiv(expert_parameters, etp)",
        "routed experts",
    ),
    Definition(
        "dense_elements",
        "embedding_elements + mixer_elements + mlp_elements + shared_elements + norm_elements",
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
    Rule(
        "resident.embeddings",
        "embedding_elements * dtype_bytes",
        lives="resident",
        why="embedding and head, divided over TP",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    Rule(
        "resident.mixers",
        "mixer_elements * dtype_bytes",
        lives="resident",
        why="attention and gdn layers, divided over TP",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    Rule(
        "resident.mlp",
        "mlp_elements * dtype_bytes",
        applies="dense_layers > 0",
        lives="resident",
        why="dense feed-forward layers, divided over TP",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    Rule(
        "resident.experts",
        "expert_elements * dtype_bytes",
        applies="experts > 0",
        lives="resident",
        why="routed experts, divided over EP and ETP and not over TP",
        source="frozen base measured at TP 1, EP 1 and at TP 4, EP 4",
    ),
    Rule(
        "resident.shared_experts",
        "shared_elements * dtype_bytes",
        applies="experts > 0",
        lives="resident",
        why="shared experts, divided over TP; gates and routers whole",
        source="frozen base measured at TP 1, EP 1 and at TP 4, EP 4",
    ),
    Rule(
        "resident.norms",
        "norm_elements * dtype_bytes",
        lives="resident",
        why="norms, whole on every rank",
        source="frozen bases measured at TP 1, 2, 4 and 8",
    ),
    Rule(
        "resident.adapters",
        "stage_adapter_elements * dtype_bytes",
        applies="lora",
        lives="resident",
        why="adapter weights",
        source="shapes of the adapters",
    ),
    Rule(
        "resident.gradients",
        "((dense_elements + expert_elements if full_finetuning else 0) +"
        " stage_adapter_elements) * grad_bytes",
        checked="0",
        applies="backward",
        lives="resident",
        why="gradients of what is trained, kept between the waves of a step",
        source="sizes of the trained parameters; no record measures it",
    ),
    Rule(
        "resident.optimizer",
        "(ceildiv((dense_elements if full_finetuning else 0) + stage_adapter_elements,"
        " dense_shards if optimizer_sharded else 1) + ceildiv(expert_elements if"
        " full_finetuning else 0, expert_shards if optimizer_sharded else 1)) *"
        " optimizer_bytes",
        checked="0",
        applies="backward",
        lives="resident",
        why="moments and fp32 copies of what is trained",
        source="sizes of the trained parameters; no record measures it",
    ),
    Rule(
        "resident.hybridep_buffer",
        "hybridep_buffer",
        applies="hybridep_buffer > 0",
        lives="resident",
        why="the HybridEP buffer that is already held, outside the allocator",
        source="as stated by the caller",
    ),
    Rule(
        "resident.workspaces",
        "500 * MiB",
        applies="ep == 1",
        lives="resident",
        why="allowance inside the allocator: five grouped-GEMM workspaces of 32 MiB, those of"
        " the compute stream's libraries, rotary tables, small first-use buffers",
        source="stated; the frozen bases hold 160 MB (1.7 B) to 532 MB (27 B) beside their weights",
    ),
    Rule(
        "resident.workspaces_ep",
        "2 * GiB",
        checked="0",
        applies="ep > 1",
        lives="resident",
        why="allowance inside the allocator: the same, and expert buffers that earlier calls keep",
        source="stated; 0.63 GB before and 1.96 GB after several calls were seen at TP 4, EP 4",
    ),
    Rule(
        "resident.context",
        "2304 * MiB",
        checked="0",
        lives="resident",
        why="allowance outside the allocator: device context and loaded kernels",
        source="stated; one rank of an H200 had 2.3 GB in use that no allocator accounted for",
    ),
    Rule(
        "resident.collectives",
        "communicators * 512 * MiB",
        checked="0",
        applies="communicators > 0",
        lives="resident",
        why="allowance outside the allocator: buffers of each kind of ranks that is divided",
        source="stated; NCCL holds 0.5 to 0.7 GB for a communicator of one node (NVIDIA/nccl"
        " threads 864 and 964)",
    ),
    total(
        "resident_allocated",
        "resident.embeddings + resident.mixers + resident.mlp + resident.experts +"
        " resident.shared_experts + resident.norms + resident.adapters +"
        " resident.gradients + resident.optimizer + resident.workspaces +"
        " resident.workspaces_ep",
        "inside the framework's allocator",
    ),
    total(
        "resident_outside",
        "resident.hybridep_buffer + resident.context + resident.collectives",
        "what the allocator does not see",
    ),
    total("resident", "resident_allocated + resident_outside", "not available to waves"),
]
