"""Fused and Megatron layers: what each keeps for its backward, tensor by tensor.

Derived from what is stored and when, for any tensor, sequence, context and pipeline parallelism:
a pack's bytes of one layer, times the layers whose activations the rank holds, once for each
micro-batch in flight. Eager layers with adapters have formulas of their own (`selective`, `dense`,
`checkpoint`), as measured.
"""

from __future__ import annotations

from typing import Any

from waveplan.pricing.ruleset import NOTHING, Definition, Rule, total

DERIVED = "derived from what is stored and when; held against Megatron-LM's functional tests"
_CHECKED = "pp == 1 or stage_last"
"""Records have the memory of the last pipeline stage."""


def _rule(name: str, bytes: str, why: str, applies: str = "", **parts: Any) -> Rule:
    """A rule of derived layers."""
    applies = f"derived and {applies}" if applies else "derived"
    given = {"checked": _CHECKED, "applies": applies, "source": DERIVED, **parts}
    return Rule(name, bytes, why=why, reference=NOTHING, **given)


def _kept(name: str, layer: str, why: str, applies: str = "", **parts: Any) -> list[Any]:
    """A part of a layer: its bytes in one layer, and in all that are held until backward."""
    what, held = layer.split(" @ ")
    short = name.partition(".")[2]
    return [
        Definition(f"{short}_layer", what, f"of one layer and pack: {why}"),
        _rule(name, f"{short}_layer * {held}", why, applies, lives="retained", **parts),
    ]


TABLE = [
    Definition(
        "derived",
        "not kernels_eager",
        "1 where layers run fused or as Megatron's own, whose kept tensors are derived",
        reference="0",
    ),
    Definition(
        "layer_tokens",
        "ceildiv(padded_tokens, cp) if cp_even else local_tokens",
        "tokens of a rank in a pack: as planned, or an equal share",
    ),
    Definition(
        "layer_shard",
        "ceildiv(layer_tokens, sp)",
        "its tokens of norms and residuals, which sequence parallelism divides",
    ),
    Definition(
        "row_tokens",
        "min(sequence_length, padded_tokens) if sequence_length > 0 else padded_tokens",
        "keys that a query of an unfused attention is held against: one row of the batch",
    ),
    Definition(
        "block_layers",
        "max(0, stage_layers - recompute_num_layers * virtual)",
        "layers of a stage that recomputation by blocks leaves whole",
    ),
    *(
        Definition(
            f"whole_{kind}",
            f"held_{kind}_layers if not recompute_full else 0 if recompute_uniform else"
            f" held_{kind}_layers * block_layers // max(1, stage_layers)",
            f"{kind} layers that keep their activations, times micro-batches in flight",
        )
        for kind in ("attention", "gdn", "dense", "moe")
    ),
    Definition(
        "whole_all",
        "held_layers if not recompute_full else 0 if recompute_uniform else held_layers *"
        " block_layers // max(1, stage_layers)",
        "all layers that keep their activations, times micro-batches in flight",
    ),
    Definition("query_features", "heads * (v_head_dim if mla else head_dim)", "attention's output"),
    Definition(
        "key_features",
        "max(kv_groups, tp) * head_dim",
        "keys, or values; a group is copied where TP has more ranks",
    ),
    Definition("fc1_widths", "2 if gated_mlp else 1", "outputs of FC1 in widths of the unit"),
    Definition(
        "routed_tokens",
        "ceildiv(layer_tokens * topk * etp * (2 if ep == 1 or routing_balanced else 2 * ep if"
        " routing_worst else 3), 2 * (tp if sequence_parallel or tp == 1 else etp))",
        "routed tokens of the busiest expert rank: an equal share of its group's, all of them,"
        " or one and a half shares",
    ),
    *_kept(
        "kept.residual",
        "2 * layer_shard * hidden * dtype_bytes @ whole_all",
        "the residual stream before the mixer and before the feed-forward part",
    ),
    *_kept(
        "kept.norms",
        "0 if recompute_layernorm else 2 * layer_shard * hidden * dtype_bytes @ whole_all",
        "outputs of the two norms, read by the projections",
    ),
    *_kept(
        "kept.qkv",
        "layer_tokens * ceildiv((1 + attention_gate) * heads * head_dim + 2 * key_features, tp)"
        " * dtype_bytes @ whole_attention",
        "queries, keys and values",
        applies="not mla and attention_layers > 0",
        checked=f"({_CHECKED}) and not attention_gate",
    ),
    *_kept(
        "kept.qk_norm",
        "layer_tokens * (ceildiv(heads * head_dim + key_features, tp) * dtype_bytes + 16 * B *"
        " ceildiv(heads, tp)) @ whole_attention",
        "queries and keys before their norms, and the norms' statistics",
        applies="qk_norm and not mla and attention_layers > 0",
    ),
    *_kept(
        "kept.latent",
        "layer_tokens * (2 * q_lora_rank + 2 * kv_lora_rank + qk_rope_head_dim) * dtype_bytes +"
        " (0 if recompute_mla_up_proj else layer_tokens * ceildiv(heads * (2 * (qk_nope_head_dim"
        " + qk_rope_head_dim) + v_head_dim), tp) * dtype_bytes) @ whole_attention",
        "latent projections with their norms' outputs, whole on every rank; queries, keys and"
        " values of the heads",
        applies="mla",
    ),
    *_kept(
        "kept.scores",
        "0 if recompute_core_attn else scores * ((dtype_bytes if softmax_fusion else 4 * B) +"
        " (dtype_bytes + B if attention_dropout else"
        " 0 if softmax_fusion else dtype_bytes)) if attention_unfused"
        " else 4 * B * layer_tokens * ceildiv(heads, tp) @ whole_attention",
        "softmax of the scores, with dropout also its mask and result, in fp32 with a copy where"
        " its kernel is not fused; of a fused attention the normalizers",
        applies="attention_layers > 0",
        checked=f"({_CHECKED}) and attention_known",
    ),
    *_kept(
        "kept.flash_copy",
        "layer_tokens * ceildiv(query_features, tp) * dtype_bytes if padded_tokens > row_tokens"
        " and not recompute_core_attn else 0 @ whole_attention",
        "FlashAttention-2 keeps its output beside the copy in the layout of the projection, which"
        " one row alone does not need",
        applies="attention_flash and not gpu_hopper and attention_layers > 0",
    ),
    *_kept(
        "kept.context",
        "layer_tokens * ceildiv(query_features, tp) * dtype_bytes @ whole_attention",
        "attention's output, read by the output projection",
        applies="attention_layers > 0",
    ),
    *_kept(
        "kept.gdn",
        "layer_tokens * ceildiv(4 * gdn_key_heads * gdn_key_dim + 8 * gdn_value_heads *"
        " gdn_value_dim, tp) * dtype_bytes @ whole_gdn",
        "what a gated delta net keeps, as eager ones do",
        applies="gdn_layers > 0",
        checked="0",
        source="formula of eager layers; no record measures a fused one",
    ),
    *_kept(
        "kept.dropout",
        "2 * B * layer_shard * hidden @ whole_all",
        "masks of the dropout of both residuals, a byte each",
        applies="hidden_dropout",
    ),
    *_kept(
        "kept.mlp",
        "0 if recompute_mlp else layer_tokens * ceildiv(ffn * (fc1_widths + 1), tp) *"
        " dtype_bytes @ whole_dense",
        "FC1's output and the unit's",
        applies="dense_layers > 0",
    ),
    Definition(
        "returned_tokens",
        "routed_tokens if dispatcher_allgather else ceildiv(layer_tokens * topk, sp)",
        "tokens that come back to be weighted and summed",
    ),
    *_kept(
        "kept.experts",
        "0 if recompute_moe else routed_tokens * (hidden * (2 if expert_bias else 1) +"
        " ceildiv(expert_ffn * (fc1_widths + (0 if recompute_moe_act else 1)), etp)) *"
        " dtype_bytes + returned_tokens * hidden * dtype_bytes + layer_shard * experts * 9 * B"
        " @ whole_moe",
        "dispatched tokens, FC1's output and the unit's, spread biases, returned tokens; scores,"
        " probabilities and map of the router",
        applies="moe_layers > 0",
        checked=f"({_CHECKED}) and ep == 1 and (dispatcher_alltoall or dispatcher_allgather)",
    ),
    *_kept(
        "kept.shared_experts",
        "0 if recompute_moe or recompute_shared_experts else layer_tokens * ceildiv(shared_ffn *"
        " (fc1_widths + 1), tp) * dtype_bytes @ whole_moe",
        "the shared expert's FC1 output and the unit's",
        applies="shared_ffn > 0",
    ),
    *_kept(
        "kept.adapters",
        "layer_tokens * layer_modules * lora_rank * dtype_bytes @ whole_all",
        "rank-wide outputs of the adapters",
        applies="lora",
        checked="0",
        source="shapes of the adapters; no record measures them in fused layers",
    ),
    _rule(
        "kept.inputs",
        "layer_shard * hidden * dtype_bytes * (ceildiv(held_layers, recompute_num_layers) if"
        " recompute_uniform else held_layers - whole_all)",
        "the input of each recomputed layer, or of each that begins several",
        checked=f"({_CHECKED}) and recompute_one_layer",
        applies="recompute_full",
        lives="retained",
    ),
    total(
        "kept",
        "kept.inputs + kept.residual + kept.norms + kept.qkv + kept.qk_norm + kept.latent +"
        " kept.scores + kept.flash_copy + kept.context + kept.gdn + kept.dropout + kept.mlp +"
        " kept.experts + kept.shared_experts + kept.adapters",
        "what the layers of a pack keep until its backward",
    ),
    Definition(
        "attention_set",
        "(latent_layer if mla else qkv_layer + (qk_norm_layer if qk_norm else 0)) + scores_layer"
        " + (flash_copy_layer if attention_flash and not gpu_hopper else 0) + context_layer if"
        " stage_attention_layers > 0 else 0",
        "all that one attention mixer keeps",
    ),
    Definition(
        "feed_forward_set",
        "max(mlp_layer if stage_dense_layers > 0 else 0, experts_layer + shared_experts_layer if"
        " stage_moe_layers > 0 else 0)",
        "all that one feed-forward part keeps, of the larger kind",
    ),
    Definition(
        "layer_set",
        "residual_layer + norms_layer + max(attention_set, gdn_layer if stage_gdn_layers > 0 else"
        " 0) + (dropout_layer if hidden_dropout else 0) + feed_forward_set",
        "all that one layer keeps",
    ),
    _rule(
        "layer.recomputed",
        "layer_set * (recompute_num_layers if recompute_uniform else 1) if stage_layers > 0 and"
        " (recompute_full or not gradient) else 0",
        "the layer that runs again before its backward, or forward without gradients",
    ),
    Rule(
        "layer.overlapped",
        "layer_set if gradient and stage_layers > 0 else 0",
        where="derived",
        checked="0",
        applies="expert_overlap and virtual == 1",
        why="a layer of the next micro-batch, whose forward runs beside the backward of this one",
        source="derived; the tests of Megatron-LM with it take more, cause unknown",
        reference=NOTHING,
    ),
    _rule(
        "layer.transient",
        "max(0, (layer_tokens * ceildiv(ffn * (fc1_widths + 1), tp) + 2 * layer_shard * hidden +"
        " (2 * layer_tokens * hidden if sp > 1 else 0)) * dtype_bytes - pack_head) if gradient and"
        " stage_layers > 0 else 0",
        "one layer's backward beyond the head: gradients of the unit and of FC1's output, of"
        " two residuals, gathered inputs",
        checked="0",
        applies="dense_layers > 0",
        source="derived; where a full head is larger it charges nothing, no record measures it",
    ),
    _rule(
        "head.norm",
        "2 * layer_shard * hidden * dtype_bytes if stage_last else 0",
        "input and output of the last norm",
        applies="output_layer",
    ),
    _rule(
        "embedding.dropout",
        "B * layer_shard * hidden if gradient and stage_first else 0",
        "mask of the embedding's dropout",
        applies="hidden_dropout",
        lives="retained",
    ),
    Rule(
        "attention.mask",
        "B * layer_tokens * row_tokens",
        applies="attention_mask",
        why="the mask of a batch, a byte for each pair of tokens of a row",
        source=DERIVED,
        reference=NOTHING,
    ),
    Rule(
        "mtp.kept",
        "stage_mtp_layers * (layer_set + 5 * layer_shard * hidden * dtype_bytes) if gradient else"
        " 0",
        checked="derived",
        applies="stage_mtp_layers > 0",
        lives="retained",
        why="a module of multi-token prediction: a layer, and a projection of two norms before it",
        source=DERIVED,
        reference=NOTHING,
    ),
    Rule(
        "mtp.loss",
        "4 * B * stage_mtp_layers * layer_tokens * (vocab // tp) if gradient else 0",
        checked="derived",
        applies="stage_mtp_layers > 0",
        lives="retained",
        why="the softmax of each module's loss, fp32, kept until the backward",
        source=DERIVED,
        reference=NOTHING,
    ),
    _rule(
        "pipeline.tensors",
        "(2 if virtual == 1 else virtual) * layer_shard * hidden * dtype_bytes if gradient else 0",
        "tensors received and sent of the last micro-batch and their gradients, a pair for"
        " each virtual stage; the tensors of virtual stages are inputs of norms that count already",
        checked="stage_last",
        applies="pp > 1",
        lives="retained",
    ),
    _rule(
        "sequence_parallel.gather",
        "layer_tokens * hidden * dtype_bytes if stage_last else 0",
        "the buffer that gathers the head's input; it stays",
        applies="sp > 1 and output_layer",
    ),
    _rule(
        "experts.gather",
        "layer_shard * ep * etp * hidden * dtype_bytes if stage_moe_layers > 0 else 0",
        "the buffer that gathers the tokens of all expert ranks for an all-gather dispatcher;"
        " it stays",
        applies="moe_layers > 0 and dispatcher_allgather and ep * etp > 1",
    ),
    Rule(
        "attention.score_buffer",
        "scores * dtype_bytes",
        checked=_CHECKED,
        applies="kernels_local and attention_unfused",
        why="the buffer of attention scores of Megatron's own attention; it stays",
        source=DERIVED,
        reference=NOTHING,
    ),
]
