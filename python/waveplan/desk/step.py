"""Modelled time of a wave that compares topologies, which `Plan.time_ms` alone does not.

`Plan.time_ms` chooses between plans of one topology. It counts the heads of attention as at TP 1,
leaves out routed experts under EP and the collectives of TP and EP, and knows the chains of gdn
layers at CP above 1 alone. Here every topology is counted alike, from sizes and the published
constants that time ownership and layouts (H200, bf16); none is fitted here.
"""

from __future__ import annotations

from waveplan.plan import Plan
from waveplan.planner import Planner
from waveplan.scoring import DEFAULT_TABLE, TERMS
from waveplan.stages import FLOPS

__all__ = ["ASSUMED", "wave_ms"]

ASSUMED = (
    "Modelled time: forward and backward of all layers (with full recompute one more forward) on "
    "the slowest rank, at the speed of an H200 whatever the GPU; experts evenly loaded; "
    "collectives of TP and EP inside a node; pipeline stages even, with one step of all waves; gdn "
    "layers by their matrix products. Without the head, the optimizer step, the reduction of "
    "gradients and the host"
)
_EXCHANGED = DEFAULT_TABLE.coefficients[TERMS.index("token_tp_collective")] * 1e-6 / 2560
"""Milliseconds a token, layer and number of its hidden vector for the collectives of tensor
parallelism, forward and backward, as measured at a hidden size of 2,560 (milli-microseconds)."""
_COLLECTIVES, _ROUTED = 8, 4
"""Vectors of a token that tensor parallelism exchanges in a layer, and times that each of a token's
routed copies is sent: dispatched and combined, forward and backward."""


def wave_ms(planner: Planner, plan: Plan) -> float:
    """Return milliseconds of a wave on one data-parallel rank, as if no pipeline stage idled."""
    model, topology, training = planner.model, planner.topology, planner.training
    own = planner._settings.ownership
    tp, ep, hidden = topology.tp, topology.ep, model.hidden
    moe = sum(model.moe_layers)
    token = model.layers * _EXCHANGED * hidden * (tp - 1) / tp
    token += moe * _EXCHANGED * hidden * _ROUTED * model.topk / _COLLECTIVES * (ep - 1) / ep / tp
    if moe and not (ep == 1 and tp % topology.etp == 0):  # `owned_token_ms` has them there
        token += moe * 3.0 * 6.0 * hidden * model.expert_ffn * model.topk / tp / FLOPS * 1e3
    total = 0.0
    for pack in plan.packs:
        tokens, layer = pack.local_tokens, own.owned_token_ms
        if pack.ownership is None:
            layer *= 1.0 if pack.gradient else 1 / 3
            pairs = (pack.time_ms or 0.0) - model.layers * layer * tokens
        else:
            pairs = pack.ownership.score - layer * pack.ownership.most_tokens
            pairs *= model.attention_layers
        total += max(0.0, pairs) / tp + (model.layers * layer + token) * tokens
    again = 4 / 3 if training.recompute == "full" and training.backward else 1.0
    return total * again / topology.pp
