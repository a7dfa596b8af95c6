"""The parallel groups of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from waveplan.checks import MOST_RANKS, choice, entries, instance, integer, shown
from waveplan.errors import InputError
from waveplan.facts.fields import check, count, given, switch, word
from waveplan.facts.model import Model

__all__ = ["RANKS", "SHARDED", "Sharding", "Topology"]

RANKS = ("dp", "tp", "cp", "pp", "ep", "etp")
SHARDED = ("none", "optimizer", "gradients", "parameters")


def _size(group: str, most: int = 1 << 20) -> Any:
    return count(1, f"{group}-parallel size", 1, most, option="facts")


@dataclass(frozen=True, slots=True)
class Sharding:
    """What the data-parallel ranks divide of the trained states.

    "optimizer": moments and main parameters (Megatron's distributed optimizer, ZeRO-1);
    "gradients" these and gradients (ZeRO-2); "parameters" all (ZeRO-3, FSDP2). Every one of
    ``instances`` groups of the ranks holds a whole copy.
    """

    kind: str = word("none", SHARDED)
    instances: int = count(1, least=1, most=1 << 20)

    def __post_init__(self) -> None:
        check(self)
        if self.instances > 1 and self.kind == "none":
            raise InputError(f"instances is {self.instances}, but sharding is 'none'")

    def __str__(self) -> str:
        return self.kind if self.instances == 1 else f"{self.kind}:{self.instances}"


def _sharding(name: str, value: Any) -> Sharding:
    if not isinstance(value, str):
        return instance(name, value, Sharding)
    kind, colon, copies = value.partition(":")
    if colon and not (copies.isascii() and copies.isdecimal() and len(copies) < 10):
        raise InputError(
            f"{name} is {shown(value)}: write optimizer, or optimizer:2 for two copies"
        )
    return Sharding(choice(name, kind, SHARDED), int(copies) if colon else 1)


def _layers(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        value = [int(part) if re.fullmatch("[0-9]{1,6}", part) else part for part in parts]
    return tuple(integer(f"{name}[{i}]", one, 0) for i, one in enumerate(entries(name, value)))


@dataclass(frozen=True, slots=True)
class Topology:
    """Sizes of the parallel groups.

    ``dp * tp * cp * pp`` ranks hold the dense part. The experts regroup the same ranks of a
    pipeline stage, so ``ep * etp`` must divide ``dp * tp * cp`` (Megatron's rule).

    ``virtual`` stages of each pipeline rank interleave; ``stage_layers``, in model order, has the
    layers of the ``pp * virtual`` stages where they are uneven. ``virtual_group`` micro-batches run
    through a stage before the next of the same rank (Megatron's default: pp).

    Raises:
        InputError: a size is below 1 or the sizes contradict each other.
    """

    dp: int = _size("data")
    tp: int = _size("tensor", MOST_RANKS)
    cp: int = _size("context", MOST_RANKS)
    pp: int = _size("pipeline")
    ep: int = _size("expert")
    etp: int = _size("expert-tensor")
    sequence_parallel: bool = switch(doc="divide the tokens of norms over TP", option="facts")
    cp_layout: str = word(
        "ranges",
        ("ranges", "even"),
        "tokens of a context-parallel rank: as planned here, or an equal share (Megatron's)",
        option="facts",
    )
    virtual: int = count(
        1, "virtual stages of a pipeline rank (default: 1)", 1, 1 << 16, option="facts"
    )
    virtual_group: int | None = count(None, "micro-batches of a virtual stage in turn", 1)
    stage_layers: tuple[int, ...] = given(
        (), "layers of each stage, where uneven", _layers, metavar="N,N"
    )
    sharding: Sharding = given(  # noqa: RUF009
        "none",
        "what data-parallel ranks divide: none (default); optimizer, Megatron's distributed "
        "optimizer or ZeRO-1; gradients too; parameters too, as FSDP2 does; optimizer:2 keeps two "
        "copies",
        _sharding,
        option="facts",
        metavar="KIND",
    )

    def __post_init__(self) -> None:
        check(self)
        stages = self.pp * self.virtual
        if self.virtual > 1 and self.pp == 1:
            raise InputError(f"virtual is {self.virtual}: it needs pp of at least 2, not 1")
        if self.stage_layers and len(self.stage_layers) != stages:
            raise InputError(
                f"stage_layers has {len(self.stage_layers)} entries: pp * virtual is {stages}"
            )
        if self.virtual_group is not None and self.virtual == 1:
            raise InputError(
                f"virtual_group is {self.virtual_group}: it needs virtual of at least 2, not 1"
            )
        if self.virtual_group is not None and self.virtual_group < self.pp:
            raise InputError(
                f"virtual_group is {self.virtual_group}: it must be at least pp, which is {self.pp}"
            )
        if self.dp * self.cp % self.sharding.instances:
            raise InputError(
                f"sharding.instances is {self.sharding.instances}: it must divide dp * cp, which "
                f"is {self.dp * self.cp}"
            )
        if self.sequence_parallel and self.tp == 1:
            raise InputError("sequence_parallel needs tp of at least 2: it divides tokens over tp")
        stage = self.dp * self.tp * self.cp
        if stage % (self.ep * self.etp):
            raise InputError(
                f"ep * etp is {self.ep * self.etp}: it must divide dp * tp * cp, which is {stage}"
            )

    @property
    def sp(self) -> int:
        """Ranks that divide the tokens of norms and residuals: tp with sequence parallelism."""
        return self.tp if self.sequence_parallel else 1

    @property
    def world(self) -> int:
        """Ranks of the whole job."""
        return self.dp * self.tp * self.cp * self.pp

    @property
    def expert_dp(self) -> int:
        """Copies of each expert's weights in one pipeline stage."""
        return self.dp * self.tp * self.cp // (self.ep * self.etp)

    def chunks(self, layers: int, stage: int) -> list[range]:
        """The layers of each virtual stage of a pipeline rank, by their place in the model."""
        counts = self.stage_layers or (layers // (self.pp * self.virtual),) * (
            self.pp * self.virtual
        )
        found = []
        for virtual in range(stage, len(counts), self.pp):
            first = sum(counts[:virtual])
            found.append(range(first, first + counts[virtual]))
        return found

    def in_flight(self, stage: int, microbatches: int | None = None) -> list[int]:
        """The most micro-batches whose activations a pipeline rank holds, by virtual stage.

        One at PP 1; ``pp - stage`` under 1F1B; under interleaving the forward passes of the
        warm-up and one more, ``virtual_group`` micro-batches through each virtual stage in turn.
        """
        most = microbatches or 1 << 20
        if self.virtual == 1:
            return [min(most, self.pp - stage)]
        group = self.virtual_group or self.pp
        passes = 2 * (self.pp - stage - 1) + (self.virtual - 1) * group + 1
        held, group = [0] * self.virtual, min(group, most)
        for index in range(min(passes, most * self.virtual)):
            held[index % (group * self.virtual) // group] += 1
        return [min(most, count) for count in held]

    def check(self, model: Model) -> None:
        """Raise InputError with the reason when ``model`` cannot be divided this way."""
        instance("model", model, Model)
        for name in ("ep", "etp"):
            if getattr(self, name) > 1 and not model.experts:
                raise InputError(f"{name} is {getattr(self, name)}, but the model has no experts")
        if self.stage_layers:
            if sum(self.stage_layers) != model.layers:
                raise InputError(
                    f"stage_layers sums to {sum(self.stage_layers)}, but the model has "
                    f"{model.layers} layers"
                )
        elif model.layers % (self.pp * self.virtual):
            name = "pp" if self.virtual == 1 else "pp * virtual"
            raise InputError(
                f"{name} is {self.pp * self.virtual}: it must divide layers, which is "
                f"{model.layers}; or give stage_layers"
            )
        self._divides("tp", model.heads, "heads")
        if model.kv_groups % self.tp and self.tp % model.kv_groups:
            raise InputError(
                f"tp is {self.tp}: it must divide kv_groups ({model.kv_groups}) or be a "
                "multiple of it"
            )
        if model.gdn_layers:
            self._divides("tp", model.gdn_key_heads, "gdn_key_heads")
            self._divides("tp", model.gdn_value_heads, "gdn_value_heads")
        if model.dense_layers:
            self._divides("tp", model.ffn, "ffn")
        if model.experts:
            self._divides("ep", model.experts, "experts")
            self._divides("etp", model.expert_ffn, "expert_ffn")
            self._divides("tp", model.shared_ffn, "shared_ffn")

    def _divides(self, name: str, size: int, of: str) -> None:
        ranks: int = getattr(self, name)
        if size % ranks:
            raise InputError(f"{name} is {ranks}: it must divide {of}, which is {size}")

    def __str__(self) -> str:
        return ranks_text(self, ", ")


def ranks_text(sizes: Any, between: str) -> str:
    """The sizes of a topology, or of anything with its fields, that are not 1."""
    named = {name: getattr(sizes, name) for name in RANKS}
    parts = [f"{name.upper()} {size}" for name, size in named.items() if size != 1]
    if sizes.sequence_parallel:
        parts.append("SP")
    return between.join(parts) or "one rank"
