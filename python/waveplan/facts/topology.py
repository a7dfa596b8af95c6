"""The parallel groups of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waveplan.checks import MOST_RANKS, instance
from waveplan.errors import InputError
from waveplan.facts.fields import check, count, switch
from waveplan.facts.model import Model

__all__ = ["Topology"]


def _size(group: str, most: int = 1 << 20) -> Any:
    return count(1, f"{group}-parallel size", 1, most, option="facts")


@dataclass(frozen=True, slots=True)
class Topology:
    """Sizes of the parallel groups.

    ``dp * tp * cp * pp`` ranks hold the dense part. The experts regroup the same ranks of a
    pipeline stage, so ``ep * etp`` must divide ``dp * tp * cp`` (Megatron's rule).

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

    def __post_init__(self) -> None:
        check(self)
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

    def check(self, model: Model) -> None:
        """Raise InputError with the reason when ``model`` cannot be divided this way."""
        instance("model", model, Model)
        for name in ("ep", "etp"):
            if getattr(self, name) > 1 and not model.experts:
                raise InputError(f"{name} is {getattr(self, name)}, but the model has no experts")
        self._divides("pp", model.layers, "layers")
        self._divides("tp", model.heads, "heads")
        if model.kv_groups % self.tp and self.tp % model.kv_groups:
            raise InputError(
                f"tp is {self.tp}: it must divide kv_groups ({model.kv_groups}) or be a "
                "multiple of it"
            )
        if model.gdn_layers:
            self._divides("tp", model.gdn_key_heads, "gdn_key_heads")
            self._divides("tp", model.gdn_value_heads, "gdn_value_heads")
        if not all(model.moe_layers):
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
    named = {name: getattr(sizes, name) for name in ("dp", "tp", "cp", "pp", "ep", "etp")}
    parts = [f"{name.upper()} {size}" for name, size in named.items() if size != 1]
    if sizes.sequence_parallel:
        parts.append("SP")
    return between.join(parts) or "one rank"
