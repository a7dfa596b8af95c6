"""Memory of Megatron-LM's functional tests as jobs: arguments, platform, bytes of the last rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from waveplan.accuracy.records import Unusable
from waveplan.checks import integer
from waveplan.facts.megatron import MegatronJob, read_megatron
from waveplan.facts.training import Training
from waveplan.pricing import Measures

__all__ = ["BACKENDS", "Test", "describes", "test_of"]

GPUS = {"h100": "hopper", "gb200": "blackwell"}
"""Architectures by a part of the platform's name; the others are A100."""
BACKENDS = (
    ("lts_dgxa100_dracooci", "ampere", "unfused", True),
    ("lts", "ampere", "flash", False),
    ("", "hopper", "fused", True),
    ("", "blackwell", "flash", True),
    ("", "ampere", "flash", True),
)
"""Attention kernel where the arguments state none, and software and GPU chose: by a part of the
platform's name and its architecture, the first that matches; and whether its runs agree. Used by
`check` alone. The first two rows were chosen from the data: images of the first have no fused
kernel, those of the second are up to two years older than the arguments and some have none, so that
`required` is that of an unfused one."""


DIFFER = ", whose runs differ"


@dataclass(frozen=True, slots=True)
class Test:
    """A functional test as a job that can be priced."""

    job: MegatronJob
    measures: Measures
    class_name: str
    tokens: int
    """Of a rank."""
    assumed: tuple[str, ...]
    worst: Training | None = None
    """The job with an unfused attention, where the platform leaves its kernel open."""


def describes(record: Any) -> bool:
    """Return whether a record holds the memory of a Megatron test."""
    return isinstance(record, Mapping) and isinstance(record.get("args"), Mapping)


def test_of(record: Mapping[str, Any]) -> Test:
    """The record as a job of its arguments.

    Raises:
        Unusable: facts are missing.
        InputError: an argument is refused.
    """
    for name in ("peak_bytes", "allocated_bytes", "world", "padded_vocab"):
        integer(f"malformed: {name}", record.get(name), 1)
    arguments, platform = record["args"], str(record.get("platform"))
    job = read_megatron(dict(arguments), record["world"], record["padded_vocab"])
    if not job.micro_batch or not job.sequence:
        raise Unusable("the arguments state no micro-batch or sequence length")
    gpu = next((gpu for part, gpu in GPUS.items() if part in platform), "ampere")
    changes: dict[str, Any] = {"gpu": gpu, "routing": "balanced" if job.model.is_moe else "safe"}
    changes["cublas_config"] = bool(record.get("cublas_workspace_config"))
    assumed = [*job.notes]
    sure = True
    stated = "attention-backend" in arguments and job.training.attention != "auto"
    if not stated and job.training.kernels != "local":
        changes["attention"], sure = backend(platform, gpu)
        # Without an unfused attention nothing is left of how its softmax would run.
        changes["softmax_fusion"] = changes["attention"] != "unfused" or job.training.softmax_fusion
        agree = "" if sure else DIFFER
        assumed.append(f"attention {changes['attention']}, by platform{agree}")
    job = replace(job, training=replace(job.training, **changes))
    assumed += [f"{name} changes no price" for name in job.unpriced]
    measures = _measures(job)
    return Test(
        job,
        measures,
        _class(job, platform),
        measures.to_dict()["packs"][0]["local_tokens"],
        tuple(assumed),
        None if sure else replace(job.training, attention="auto"),
    )


def backend(platform: str, gpu: str) -> tuple[str, bool]:
    """Return the attention kernel that a platform chooses by `BACKENDS`, and whether all do."""
    found = (
        (kernel, sure) for part, of, kernel, sure in BACKENDS if of == gpu and part in platform
    )
    return next(found)


def _measures(job: MegatronJob) -> Measures:
    """One micro-batch with an equal share of tokens on every context-parallel rank."""
    assert job.micro_batch is not None
    assert job.sequence is not None
    tokens = job.micro_batch * job.sequence
    local = -(-tokens // job.topology.cp)
    plan = {"packed_tokens": tokens, "logical_tokens": tokens, "retained_tokens": local, "cold": 0}
    pack = {"gradient": 1, "padded_tokens": tokens, "local_tokens": local}
    return Measures.of(plan, [{**pack, "segments": job.micro_batch, "head_tokens": tokens}])


LARGE = 4096
"""Hidden size from which a MoE test counts as a large one."""


def _class(job: MegatronJob, platform: str) -> str:
    """Return the class of a test, from its facts and its platform."""
    training = job.training
    current = platform.startswith("dev_dgx_")
    if (
        training.fp8
        or training.cuda_graphs
        or training.optimizer == "muon"
        or training.offload
        or job.topology.sharding.kind == "parameters"
        or (training.head == "fused_loss" and training.gpu == "ampere")
    ):
        return "Megatron, parts that no rule prices"
    if job.model.is_moe:
        size = "large dropless" if job.model.hidden >= LARGE else "small"
        return f"Megatron, {size} MoE"
    return f"Megatron, dense, {'current' if current else 'older'} platforms"


def routing_factor(observed: int, estimate: int, experts: int) -> float | None:
    """Return the routed tokens of the last stage, in equal shares, that explain a peak."""
    if not experts:
        return None
    return 1 + (observed - estimate) / experts
