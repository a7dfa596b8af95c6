"""Read Megatron-LM arguments: the model, the ranks and the training mode that they describe.

Argument names and defaults are those of Megatron-LM's ``arguments.py``; an argument that bears on
none of the three is ignored and listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waveplan.checks import integer
from waveplan.errors import InputError
from waveplan.facts.arguments import Arguments, sizes, table
from waveplan.facts.model import Model
from waveplan.facts.topology import Sharding, Topology
from waveplan.facts.training import Training

__all__ = ["Run", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Facts of a job, read from Megatron arguments."""

    model: Model
    topology: Topology
    training: Training
    ignored: tuple[str, ...]
    """Arguments that were not used, in order."""


def read(arguments: Sequence[str] | Mapping[str, Any], world: int | None = None) -> Run:
    """Model, topology and training mode. ``world``: ranks of the job, for its dp; absent: dp 1.

    Megatron trains every parameter, so ``lora_rank`` is 0; use ``dataclasses.replace`` for
    adapters.

    Raises:
        InputError: a needed argument is missing (all are listed) or a value is wrong.
    """
    values, ignored = table(arguments)
    return Run(
        model=Model(**sizes(values)),
        topology=_topology(values, world),
        training=_training(values),
        ignored=ignored,
    )


def _topology(values: dict[str, Any], world: int | None) -> Topology:
    arguments = Arguments(values)
    tp = arguments.number("tensor_model_parallel_size", 1)
    cp = arguments.number("context_parallel_size", 1)
    pp = arguments.number("pipeline_model_parallel_size", 1)
    ranks = arguments.number("world_size") if world is None else integer("world", world)
    dp = 1
    if ranks:
        dp = ranks // max(1, tp * cp * pp)
        if dp * tp * cp * pp != ranks:
            raise InputError(f"world is {ranks}: it must be a multiple of {tp * cp * pp}")
    return Topology(
        dp=dp,
        tp=tp,
        cp=cp,
        pp=pp,
        ep=arguments.number("expert_model_parallel_size", 1),
        # Megatron's experts use the tensor-parallel size unless one is given.
        etp=arguments.number("expert_tensor_parallel_size", tp if values.get("num_experts") else 1),
        sequence_parallel=arguments.on("sequence_parallel") and tp > 1,
        cp_layout="even",
        sharding=Sharding("optimizer" if arguments.on("use_distributed_optimizer") else "none"),
    )


def _training(values: dict[str, Any]) -> Training:
    arguments = Arguments(values)
    granularity = arguments.word("recompute_granularity", "none") or "none"
    dispatcher = arguments.word("moe_token_dispatcher_type", "auto")
    return Training(
        recompute=granularity,
        recompute_method=values.get("recompute_method", "uniform"),
        recompute_num_layers=arguments.number("recompute_num_layers", 1),
        recompute_modules=(
            values.get("recompute_modules", ()) if granularity == "selective" else ()
        ),
        lora_rank=0,
        dispatcher="hybridep" if dispatcher == "flex" else dispatcher,
        shared_overlap=arguments.on("moe_shared_expert_overlap"),
    )
