"""How rules add up: the total is itself an expression over rules."""

from __future__ import annotations

TOTALS = {
    "moe_stage": (
        "max(moe_rows, moe.slot_stages)",
        "one expert layer of a group at its widest stage",
    ),
    "checkpoint_retained": ("checkpoint.retained", "boundaries kept by full recompute"),
    "checkpoint_workspace": (
        "max(max_groups(moe_stage + checkpoint.no_grad_rows),"
        " max_groups(sequence_parallel.workspace), hybridep.combine)"
        " + gdn.segment_states + sequence_parallel.adapter_rows"
        " if charged(checkpoint.retained) else 0",
        "the layer being recomputed, and no-gradient groups",
    ),
    "gdn_retained": (
        "checkpoint.retained if charged(gdn.pending) else 0",
        "boundaries beside the recurrent layers' pending saves",
    ),
    "gdn_workspace": (
        "max_groups(moe_stage + (gdn.pending if gradient else 0))"
        " if charged(gdn.pending) and has_gradient else 0",
        "pending saves of a recurrent layer beside its MoE stage",
    ),
    "head": ("max_groups(head.workspace)", "the largest group's head"),
    "extra_workspace": ("0 B", "added rules that live in one stage"),
    "retained": ("max(checkpoint_retained, gdn_retained)", "kept from forward to backward"),
    "workspace": (
        "max(checkpoint_workspace, head, gdn_workspace) + extra_workspace",
        "the widest moment of one layer or the head",
    ),
    "input_gradient": (
        "checkpoint.input_gradient if checkpoint.retained > 0 else 0",
        "the backward's other end",
    ),
    "adapter_gradient": (
        "adapter.gradient if input_gradient > 0 else 0",
        "adapter gradients beyond released boundaries",
    ),
    "first_call": (
        "checkpoint.first_call if input_gradient > 0 else 0",
        "fixed buffers of a first call",
    ),
    "backward_part": ("input_gradient + adapter_gradient + first_call", "what backward adds"),
    "with_backward": (
        "retained + workspace + backward_part",
        "boundaries, the widest moment of one layer, and what backward adds",
    ),
    "selective": (
        "selective.activations + selective.segment_states + selective.first_call"
        " if has_gradient else 0",
        "activations kept without full recompute",
    ),
    "moe_forward": (
        "max_groups(moe_stage(rows=(sum_groups(rows) if cp > 1 else packed_tokens), gradient=0))",
        "one expert layer over the rows of all groups",
    ),
    "no_grad_stage": (
        "retained + dense.no_grad_stage",
        "a dense no-gradient layer beside the boundaries",
    ),
    "output_total": ("outputs", "returned tensors"),
    "gathered_output": (
        "output_total if cp > 1 else 0",
        "local results beside the gathered ones under CP",
    ),
    "forward": (
        "max(generic.activations, selective, moe_forward, retained + workspace, no_grad_stage)"
        " + gathered_output",
        "compute without the backward part",
    ),
    "static": (
        "max(generic.activations, selective, moe_forward, with_backward,"
        " no_grad_stage) + gathered_output",
        "compute as the rules see it",
    ),
    "compute": ("max(static, learned_bytes)", "the rules, or what a profile has seen"),
    "buffers": ("hybridep.buffer", "communication buffers allocated anew"),
    "raw": ("output_total + compute + buffers", "before the safety factor"),
    "required": (
        "(scale(output_total + compute, 1.1) if packed_tokens > 0 else output_total)"
        " + scale(buffers, 1.1)",
        "what must be free",
    ),
    "forward_required": (
        "scale(output_total + max(forward, learned_bytes), 1.1)"
        " if packed_tokens > 0 else output_total",
        "the same without backward and buffers",
    ),
    "ladder_workspace": ("workspace + first_call", "workspace of a split's part"),
    "ladder_required": (
        "max(forward_required, scale(output_total + retained + ladder_workspace + input_gradient"
        " + adapter_gradient, 1.1) if input_gradient > 0 else 0)",
        "one part of a split, without buffers",
    ),
    "cost_required": (
        "ladder_required + scale(buffers, 1.1)",
        "one part of a split",
    ),
    "peak_increment": (
        "ladder_required - forward_required",
        "what the backward part adds to a split's part",
    ),
}

ROOT_TOTALS = {
    "required": "required",
    "raw": "raw",
    "static": "static",
    "output": "output_total",
    "forward_required": "forward_required",
    "cost_required": "cost_required",
    "peak_increment": "peak_increment",
    "floor_retained": "retained",
    "checkpoint_retained": "checkpoint_retained",
    "checkpoint_workspace": "checkpoint_workspace",
    "gdn_retained": "gdn_retained",
    "gdn_workspace": "gdn_workspace",
    "workspace": "ladder_workspace",
    "input_gradient": "input_gradient",
    "adapter_gradient": "adapter_gradient",
    "hybridep_growth": "buffers",
    "head": "head",
    "segment_layer_bytes": "segment_layer",
}
"""Which total gives each named result of a bound program (`waveplan._core.PRICE_ROOTS`)."""
