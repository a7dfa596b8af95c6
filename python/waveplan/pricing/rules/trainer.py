"""What trainers do beside the layers that no rule prices yet: uncharged, and said."""

from __future__ import annotations

from waveplan.pricing.ruleset import NOTHING, Rule


def _uncharged(name: str, bytes: str, applies: str, why: str) -> Rule:
    """A rule that charges nothing; the margin counts its bytes as if it did."""
    return Rule(
        f"trainer.{name}",
        bytes,
        where="0",
        applies=applies,
        why=why,
        source="a size that stands for it in the margin; no rule is derived yet",
        reference=NOTHING,
    )


TABLE = [
    _uncharged(
        "fp8",
        "layer_tokens * (hidden + max(ffn, topk * expert_ffn)) * held_layers * B // tp",
        "fp8",
        "copies of weights and inputs in 8 bits and histories of their scales",
    ),
    _uncharged(
        "graphs", "layer_set", "cuda_graphs", "memory pools of captured layers, which share little"
    ),
    _uncharged(
        "user_buffers",
        "layer_tokens * hidden * dtype_bytes",
        "user_buffers",
        "registered communication buffers",
    ),
    _uncharged(
        "offload",
        "layer_shard * hidden * dtype_bytes",
        "offload_optimizer",
        "buffers of states that move to host memory and back",
    ),
    _uncharged(
        "offloaded_activations",
        "0",
        "offload_activations",
        "activations that move to host memory and back are charged as if they stayed",
    ),
    _uncharged(
        "units",
        "2 * hidden * (heads * head_dim * 2 + ffn * 3) * dtype_bytes if layer_tokens > 0 else 0",
        "parameters_sharded",
        "gathered parameters of the layer that runs and of the next, and buffers that reduce"
        " their gradients",
    ),
    _uncharged(
        "deepep",
        "layer_tokens * topk * hidden * dtype_bytes",
        "ep > 1 and moe_layers > 0 and not (dispatcher_alltoall or dispatcher_hybridep or"
        " dispatcher_allgather)",
        "buffers of DeepEP's dispatcher",
    ),
]
