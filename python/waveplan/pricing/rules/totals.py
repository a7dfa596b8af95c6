"""Totals: formulas over rules, up to the price, and the bytes that a profile keeps apart."""

from __future__ import annotations

from waveplan.pricing.ruleset import Definition, total

TABLE = [
    total(
        "moe_stage",
        "max(moe_routed, moe.slot_stages)",
        "one expert layer of a pack at its widest stage",
    ),
    total("checkpoint_retained", "checkpoint.retained", "boundaries kept by full recompute"),
    total(
        "checkpoint_workspace",
        "max(max_packs(layer_stage), max_packs(sequence_parallel.workspace),"
        " hybridep.combine) + gdn.segment_states + sequence_parallel.adapter_tokens if"
        " charged(checkpoint.retained) else 0",
        "the layer being recomputed, and no-gradient packs",
        reference="max(max_packs(moe_stage + checkpoint.no_grad_tokens),"
        " max_packs(sequence_parallel.workspace), hybridep.combine) +"
        " gdn.segment_states + sequence_parallel.adapter_tokens if"
        " charged(checkpoint.retained) else 0",
    ),
    total(
        "gdn_retained",
        "checkpoint.retained if charged(gdn.pending) else 0",
        "boundaries beside the gdn layers' pending saves",
    ),
    total(
        "gdn_workspace",
        "max_packs(moe_stage + (gdn.pending if gradient else 0)) if charged(gdn.pending)"
        " and has_gradient else 0",
        "pending saves of a gdn layer beside its MoE stage",
    ),
    total(
        "pack_head",
        "head.workspace + head.logits + head.fused + head.norm",
        "a pack's head, of one kind, and the last norm",
    ),
    total("head", "max_packs(pack_head)", "the largest pack's head"),
    total(
        "kept_retained",
        "sum_packs(kept + embedding.dropout if gradient else 0)",
        "what the layers of all packs keep",
    ),
    total(
        "beside",
        "max_packs(pipeline.tensors + max(sequence_parallel.gather, experts.gather) +"
        " attention.score_buffer)",
        "tensors and buffers that stay with a pack's shape",
    ),
    total(
        "stays",
        "max_packs(pipeline.tensors * (1 if virtual == 1 else 2) +"
        " max(sequence_parallel.gather, experts.gather) + attention.score_buffer)",
        "what of a pack stays allocated behind its wave",
    ),
    total(
        "fused_layers",
        "kept_retained + beside + max(max_packs(pack_head + layer.transient),"
        " max_packs(layer.recomputed + layer.overlapped)) if derived else 0",
        "fused layers: all that they keep, beside the head or the layer that runs",
    ),
    total("added_retained", "0", "added rules whose bytes stay until backward, summed over packs"),
    total("added_workspace", "0", "added rules of one stage, the largest pack of each"),
    total(
        "trainer_retained",
        "sum_packs(mtp.kept + mtp.loss + head.deferred + eager.scores + eager.dropout)",
        "parts that some trainers add, whose bytes stay until backward",
    ),
    total(
        "trainer_workspace",
        "max_packs(attention.mask) + max_packs(trainer.fp8) + max_packs(trainer.graphs) +"
        " max_packs(trainer.user_buffers) + max_packs(trainer.offload) + max_packs(trainer.units)"
        " + max_packs(trainer.offloaded_activations)"
        " + max_packs(trainer.deepep)",
        "the same of one stage, the largest pack of each",
    ),
    total("added_gradient", "0", "added rules of the backward, the largest pack of each"),
    total("floor_retained", "max(checkpoint_retained, gdn_retained)", "boundaries, however known"),
    total(
        "retained",
        "floor_retained + kept_retained + trainer_retained + added_retained",
        "kept from forward to backward",
    ),
    total(
        "workspace",
        "max(checkpoint_workspace + max_packs(attention.fetched + eager.score_layer), head,"
        " gdn_workspace) +"
        " cold.libraries",
        "the widest moment of one layer or the head",
    ),
    total(
        "input_gradient",
        "checkpoint.input_gradient if checkpoint.retained > 0 else 0",
        "the backward's other end",
    ),
    total(
        "adapter_gradient",
        "adapter.gradient if input_gradient > 0 else 0",
        "adapter gradients beyond released boundaries",
    ),
    total(
        "first_call",
        "checkpoint.first_call if input_gradient > 0 else 0",
        "fixed buffers of a first call",
    ),
    total(
        "backward_part",
        "input_gradient + adapter_gradient + first_call + cold.first_call",
        "what backward adds",
    ),
    total(
        "with_backward",
        "floor_retained + workspace + backward_part",
        "boundaries, the widest moment of one layer, and what backward adds",
    ),
    total(
        "selective",
        "selective.activations + selective.segment_states + selective.first_call"
        " + selective.first_use + (max(head, max_packs(attention.fetched + eager.score_layer)) if"
        " selective.activations > 0 else 0) if has_gradient else 0",
        "activations kept without full recompute, and the head that runs beside them",
        reference="selective.activations + selective.segment_states + selective.first_call"
        " + selective.first_use if has_gradient else 0",
    ),
    total(
        "moe_forward",
        "max_packs(moe_stage(local_tokens=(sum_packs(local_tokens) if cp > 1 else"
        " packed_tokens), gradient=0))",
        "one expert layer over the tokens of all packs",
    ),
    total(
        "no_grad_stage",
        "floor_retained + dense.no_grad_stage",
        "a dense no-gradient layer beside the boundaries",
    ),
    total(
        "gathered_output",
        "output if cp > 1 and packed_tokens > 0 else 0",
        "local results beside the gathered ones under CP",
    ),
    total(
        "forward",
        "max(generic.activations, selective, moe_forward, floor_retained + workspace,"
        " no_grad_stage, fused_layers) + mixer.other + trainer_retained + trainer_workspace +"
        " added_retained + added_workspace + gathered_output",
        "compute without the backward part",
    ),
    total(
        "static",
        "max(generic.activations, selective, moe_forward, with_backward, no_grad_stage,"
        " fused_layers) + mixer.other + trainer_retained + trainer_workspace + added_retained +"
        " added_workspace + added_gradient + gathered_output",
        "compute as the rules see it",
    ),
    total("compute", "max(static, learned_bytes)", "the rules, or what a profile has seen"),
    total("buffers", "hybridep.buffer", "communication buffers allocated anew"),
    total("estimate", "output + compute + buffers", "before the safety factor"),
    Definition(
        "safety_factor", "1.1", "every price is held against memory with it, once or by parts"
    ),
    total(
        "required",
        "(scale(output + compute, safety_factor) if packed_tokens > 0 else output)"
        " + scale(buffers, safety_factor)",
        "what must be available",
    ),
    total(
        "forward_required",
        "scale(output + max(forward, learned_bytes), safety_factor) if packed_tokens > 0"
        " else output",
        "the same without backward and buffers",
    ),
    total(
        "split_workspace",
        "workspace + first_call + cold.first_call + trainer_workspace + added_workspace +"
        " added_gradient",
        "workspace of a split's part",
    ),
    total(
        "split_kept",
        "output + gathered_output + retained",
        "what a part of a split keeps until the backward",
        reference="output + retained",
    ),
    total(
        "split_required",
        "max(forward_required + scale(added_gradient, safety_factor),"
        " scale(split_kept + split_workspace + input_gradient + adapter_gradient,"
        " safety_factor) if input_gradient > 0 else 0)",
        "one part of a split, without buffers",
    ),
    total("cost_required", "split_required + scale(buffers, safety_factor)", "one part of a split"),
    total(
        "peak_increment",
        "split_required - forward_required",
        "what the backward part adds to a split's part",
    ),
    Definition(
        "packed_priced",
        "recompute_one_layer and packed_priceable",
        "1 where a profile prices packed and logical tokens apart",
    ),
    Definition("logical_token_bytes", "6144 * B", "head and caller memory of one logical token"),
    Definition(
        "logical_bytes",
        "logical_tokens * logical_token_bytes if packed_priced else 0",
        "bytes of the logical tokens, beside a profile's rate",
    ),
    Definition(
        "apart_bytes",
        "logical_bytes + (sum_packs(segments if gradient else 0) * segment_layer"
        " if packed_priced else 0)",
        "all bytes beside a profile's rate: those of logical tokens and of gdn states",
    ),
]
