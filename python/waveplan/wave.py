"""A wave: how many requests run next, packed how, at what price, and why not one more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from waveplan._core import Attempt, Probe
from waveplan.budget import format_bytes
from waveplan.checks import columns

if TYPE_CHECKING:
    from waveplan._core import Pack
    from waveplan.plan import Plan
    from waveplan.pricing import Price
    from waveplan.profiles import Signature

__all__ = ["Attempt", "Binding", "Probe", "Stopped", "Wave"]


@dataclass(frozen=True, slots=True)
class Binding:
    """The rank, phase and term that decide a price."""

    rank: int
    """Context-parallel rank with the most local tokens in the pack that decides."""
    phase: Literal["forward", "backward"]
    """The pass of the peak."""
    term: str
    """The rule that charges most there."""
    bytes: int
    """Bytes that it charges."""

    def __str__(self) -> str:
        return f"CP rank {self.rank}, {self.phase}, {self.term} ({format_bytes(self.bytes)})"


@dataclass(frozen=True, eq=False)
class Stopped:
    """Why a wave is not wider.

    ``kind`` is "memory" (a wave of `width` groups does not fit), "time" (it fits, but is slower
    for its work), "trust" (rules or profiles do not hold there), "end" (the pool ends here) or
    "composed" (the waves of the whole pool were composed together).
    """

    kind: Literal["memory", "time", "trust", "end", "composed"]
    width: int
    available: int
    plan: Plan | None = field(repr=False, default=None)
    """This rank's plan at that width; None where no plan was made."""
    reason: str = ""
    """For "time" and "trust": what is slower or missing."""
    dp_rank: int | None = None
    """The data-parallel rank of the plan, where there are several."""
    refused: int = 0
    """Bytes of the least probe of that width that did not fit: it bounds what is fetched."""

    @property
    def required(self) -> int | None:
        """Required bytes of that plan, or of its probe, whichever is more."""
        return None if self.plan is None else max(self.plan.required, self.refused)

    @cached_property
    def binding(self) -> Binding | None:
        """Rule, rank and phase that decide the price; None where another rank stopped it."""
        if self.plan is None or self.kind != "memory" or (self.required or 0) <= self.available:
            return None
        return binding_of(self.plan)

    def __str__(self) -> str:
        if self.kind == "end":
            return "end of the pool"
        if self.kind in ("time", "trust", "composed"):
            return f"{self.kind}: {self.reason}" if self.reason else self.kind
        if self.required is None:
            return f"memory: width {self.width} does not fit in {format_bytes(self.available)}"
        requires = f"{format_bytes(self.required)} of {format_bytes(self.available)}"
        if self.required <= self.available:
            return (
                f"memory: width {self.width} does not fit on another DP rank: its share stopped "
                f"the wave, that of DP rank {self.dp_rank} requires {requires}"
            )
        return f"memory: width {self.width} requires {requires}; {self.where}{self.binding}"

    @property
    def where(self) -> str:
        """ "DP rank 1, " where there are several."""
        return "" if self.dp_rank is None else f"DP rank {self.dp_rank}, "


@dataclass(frozen=True, eq=False, repr=False)
class Wave:
    """An admitted wave, as one data-parallel rank sees it; with `AllShares` the busiest, which
    requires most."""

    indices: NDArray[np.int64]
    """Groups of the pool that this rank runs."""
    width: int
    """Groups over all data-parallel ranks."""
    start: int
    """Position of its first group among those of the pool, in the order taken."""
    plan: Plan
    """The plan of this rank."""
    required: int
    """Bytes required on the busiest context-parallel rank."""
    available: int
    """Bytes that the wave may use."""
    probes: tuple[Probe, ...]
    """Every probe of the search, in order."""
    rejected: int
    """Distinct widths after the minimum wave that did not fit."""
    cold: bool
    """No profile of such a plan exists yet."""
    stopped: Stopped
    """Why it is not wider."""
    _sign: Callable[[], Signature] = field(repr=False)
    most_required: int = 0
    """The most bytes required on any rank of the job."""
    dp_rank: int = 0
    """The data-parallel rank whose share it is."""
    shares: tuple[Wave, ...] = ()
    """With `AllShares` and more than one data-parallel rank: the wave as each sees it, by rank."""
    parts: tuple[NDArray[np.int64], ...] = ()
    """Of a composed wave: the requests of every data-parallel rank."""
    _sign_part: Callable[[int], Signature] | None = field(repr=False, default=None)

    @cached_property
    def signature(self) -> Signature:
        """Key of the profile that `Planner.observe` updates."""
        return self._sign()

    @property
    def requests(self) -> NDArray[np.int64]:
        """Requests of the pool that this rank runs, in order of execution."""
        return self.plan.requests

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The plan's packs."""
        return self.plan.packs

    @property
    def price(self) -> Price:
        """The plan's price, see `Plan.price`."""
        return self.plan.price

    @cached_property
    def doubtful(self) -> tuple[str, ...]:
        """Rules that matter here but are uncharged or unmeasured, each with its reason."""
        return tuple(map(str, self.price.doubtful))

    def to_dict(self) -> dict[str, Any]:
        """Return the wave as stable JSON."""
        stopped = self.stopped
        return {
            "indices": self.indices.tolist(),
            "width": self.width,
            "start": self.start,
            "dp_rank": self.dp_rank,
            "required": self.required,
            "available": self.available,
            "rejected": self.rejected,
            "cold": self.cold,
            "doubtful": list(self.doubtful),
            "stopped": {"kind": stopped.kind, "width": stopped.width, "text": str(stopped)},
            "probes": [columns(probe) for probe in self.probes],
            "plan": self.plan.to_dict(),
            **({"shares": [share.to_dict() for share in self.shares]} if self.shares else {}),
        }

    def __repr__(self) -> str:
        return (
            f"Wave({self.width} groups from {self.start}, {self.plan.packed_tokens} packed tokens, "
            f"{format_bytes(self.required)}, stopped by {self.stopped.kind})"
        )


def binding_of(plan: Plan) -> Binding:
    """Return the rank, phase and term that decide a plan's price."""
    forward = plan.largest
    why = plan.price.explanation
    pack = max(forward.packs, key=lambda pack: pack.local_tokens, default=None)
    rank = 0 if pack is None else int(np.argmax(pack.rank_tokens))
    phase: Literal["forward", "backward"] = "backward" if why.phase == "backward" else "forward"
    return Binding(rank, phase, why.term, why.terms().get(why.term, 0))
