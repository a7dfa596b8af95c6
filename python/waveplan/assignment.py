"""Which context-parallel rank owns which chunk of a packed row, and when others fetch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waveplan._core import (
    Ownership,
    OwnershipSettings,
    ProfiledWork,
    StageWork,
    WorkloadProfile,
    attention_slices,
    own,
    stage_times,
)
from waveplan.checks import integer

if TYPE_CHECKING:
    from waveplan.facts.model import Model
    from waveplan.facts.topology import Topology

__all__ = [
    "Ownership",
    "OwnershipSettings",
    "ProfiledWork",
    "StageWork",
    "WorkloadProfile",
    "attention_slices",
    "own",
    "owned_token_ms",
    "ownership_settings",
    "stage_times",
]


def ownership_settings(model: Model, topology: Topology) -> OwnershipSettings:
    """The default settings with the model's own `owned_token_ms`."""
    cost = owned_token_ms(
        hidden=model.hidden,
        ffn=model.ffn or 4 * model.hidden,  # Megatron's width where none is given
        topk=model.topk,
        expert_ffn=model.expert_ffn,
        shared_ffn=model.shared_ffn,
        tp=topology.tp,
        ep=topology.ep,
        etp=topology.etp,
    )
    return OwnershipSettings(owned_token_ms=cost)


def owned_token_ms(
    *,
    hidden: int,
    ffn: int,
    topk: int = 0,
    expert_ffn: int = 0,
    shared_ffn: int = 0,
    tp: int = 1,
    ep: int = 1,
    etp: int | None = None,
) -> float:
    """Milliseconds of a layer's non-attention work per token owned, forward and backward.

    ``3 (8 h² + MLP) / tp`` flops at 400 Tflop/s, the MLP being ``6 h ffn`` or, in a mixture of
    experts, ``6 h shared_ffn``; routed experts (``6 h expert_ffn topk``) follow ownership only
    without expert parallelism and where ``etp`` (default: ``tp``) divides ``tp``. 0 when
    ``hidden`` or ``ffn`` is 0, that is, unknown.
    """
    hidden, ffn = integer("hidden", hidden), integer("ffn", ffn)
    topk, expert_ffn = integer("topk", topk), integer("expert_ffn", expert_ffn)
    shared_ffn = integer("shared_ffn", shared_ffn)
    tp, ep = integer("tp", tp, 1), integer("ep", ep, 1)
    etp = tp if etp is None else integer("etp", etp, 1)
    if hidden == 0 or ffn == 0:
        return 0.0
    h = float(hidden)
    experts = topk > 0 and expert_ffn > 0
    local = 8.0 * h * h + 6.0 * h * float(shared_ffn if experts else ffn)
    follows = experts and ep == 1 and tp % etp == 0
    routed = 6.0 * h * float(expert_ffn) * topk if follows else 0.0
    return 3.0 * (local + routed) / tp / 400e12 * 1e3
