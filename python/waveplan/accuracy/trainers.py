"""What records of other trainers say of their jobs, as facts.

``lacks`` names, in a few known phrases, what a job needs beyond adapters on one rank of bf16; the
trainer's name tells the rest. A phrase that stands for no fact makes the record unusable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["FIGURES", "facts_of"]

FIGURES = (
    ("incremental_allocated", "increment"),
    ("absolute_max_allocated", "allocated"),
    ("peak active", "allocated"),
    ("framework-reported", "allocated"),
    ("peak as reported", "allocated"),
    ("absolute, as listed", "slack"),
    ("absolute, sum of", "slack"),
    ("reserved", "slack"),
    ("nvidia-smi", "slack"),
)
"""What a measured figure holds, by the beginning of ``memory_kind``: bytes above a base, all that
is allocated, or that with the allocator's slack, perhaps the device's context."""

_BF16 = {"grad_dtype": "bfloat16", "moment_dtype": "bfloat16", "master_weights": False}
"""States as plain PyTorch makes them for parameters in 16 bits."""
_TRAINERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("megatron", {"head": "vocab_parallel", "kernels": "fused", "cublas_config": True}),
    ("ms-swift", {"head": "upcast", "foreach_step": True, **_BF16}),
    ("litgpt", {"head": "full", **_BF16}),
    ("torchtune", {"head": "chunked", **_BF16, "optimizer": "adam8bit"}),
    ("torchtitan", {"head": "full", "kernels": "fused"}),
    ("hf", {"head": "full", "foreach_step": True, **_BF16}),
    ("transformers", {"head": "full", "foreach_step": True, **_BF16}),
)
"""Facts by a part of the trainer's name in lower case, the first that matches."""
_MIXED = {"grad_dtype", "moment_dtype", "master_weights", "foreach_step"}
"""Of these, what does not hold under ZeRO, which keeps fp32 states and has its own step."""

_UNDER_ZERO = {"full": "shifted"}
"""Heads there: the engine runs the model without autocast, and the loss in the logits' type."""
_SCRIPTS = (("QwenLM/Qwen", "quantized base", "ZeRO-2"),)
"""What public scripts say beyond the records of their tables, as a phrase: by repository and
phrase. finetune/finetune_qlora_single_gpu.sh runs under ds_config_zero2.json, in fp16."""

_PHRASES: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"quantized base.*(int8|8-bit|8 bits).*", {"base": "int8"}),
    (r"quantized base.*fp8.*", {"base": "fp8"}),
    (r"quantized base.*", {"base": "nf4"}),
    (r"trained embedding and head beside adapters", {"modules_to_save": ("embedding", "head")}),
    (r"attention without flash.*", {"attention": "unfused"}),
    (r"unchunked fused loss", {"head": "fused_loss"}),
    (r".*fused linear cross-entropy.*", {"head": "fused"}),
    (r"all-gather dispatch.*", {"dispatcher": "allgather"}),
    (r"activation offload", {"offload": ("activations",)}),
    (r"optimizer offload", {"offload": ("optimizer",)}),
    (r"fp8", {"fp8": True}),
    (r"FSDP2|ZeRO-3.*|FSDP sharding", {"sharding": "parameters"}),
    (r"ZeRO-2", {"sharding": "gradients"}),
    (r"optimizer in backward", {"fused_optimizer": True}),
    (r"8-bit/paged optimizer", {"optimizer": "adam8bit", "offload": ("optimizer",)}),
    (r"bf16 (optimizer states|moments)", {"optimizer": "adam", "moment_dtype": "bfloat16"}),
    (r"all-to-all dispatch at EP > 1", {"dispatcher": "alltoall"}),
    (r"unchunked logits.*", {"head": ""}),
    (
        r"full fine-tuning|MLA|MoE under TP|PP > 1|TP x CP|TP 8 under.*|"
        r"recompute of .*",
        {},
    ),
)
"""Facts by a phrase of ``lacks``; those without one are said elsewhere in the record."""


def facts_of(record: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Facts that trainer and ``lacks`` state, and the phrases that stand for none."""
    trainer = str(record.get("trainer") or "").lower()
    if any("HF trainer" in str(phrase) for phrase in record.get("lacks") or ()):
        trainer = trainer.replace("megatron", "hf")  # projects that have both
    found = dict(next((facts for name, facts in _TRAINERS if name in trainer), {}))
    unknown = []
    phrases = [str(phrase) for phrase in record.get("lacks") or ()]
    for repository, needs, more in _SCRIPTS:
        source = record.get("source") or {}
        if source.get("repo") == repository and any(one.startswith(needs) for one in phrases):
            phrases.append(more)
    for phrase in phrases:
        facts = next((f for p, f in _PHRASES if re.fullmatch(p, phrase)), None)
        if facts is None:
            unknown.append(phrase)
        elif facts.get("head") == "":  # all logits at once, in the trainer's own way
            if found.get("head", "chunked") == "chunked":
                found["head"] = "full"
        else:
            found |= facts
    if any(phrase.startswith("ZeRO") for phrase in phrases):
        found = {name: value for name, value in found.items() if name not in _MIXED}
        found["head"] = _UNDER_ZERO.get(found.get("head", "chunked"), found.get("head", "chunked"))
    if found.get("optimizer", "adam") != "adam":  # its moments have a type of their own
        found.pop("moment_dtype", None)
    if record.get("lora_rank") == 0:
        found.pop("modules_to_save", None)
    return found, unknown
