"""One answer on every rank: the few reductions that planning needs of a job's own engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from waveplan._values import integer
from waveplan.errors import InputError

__all__ = ["Agreement", "Alone"]


@runtime_checkable
class Agreement(Protocol):
    """What connects the ranks of a job: two reductions over all of them.

    Every rank calls the same reductions in the same order with arrays of the same length, and
    gets the same result. A wave takes four calls, however many widths it prices:

    1. `all_min`: what all ranks must agree on, and the free bytes of each data-parallel rank;
    2. `all_min`: the quotes of every width that growth can ask, this rank's own share priced;
    3. `all_min`: the same for every width that bisection can ask;
    4. `all_max`: failures, refusals, bytes needed, fingerprints of the plans.

    `Planner.observe` takes one `all_max`. The first entry of each array says whether its rank is
    well, so a rank that fails takes the others out in the same call instead of leaving them
    waiting.
    """

    @property
    def dp_rank(self) -> int:
        """This process's data-parallel rank: which share of each wave it runs."""
        ...

    @property
    def size(self) -> int:
        """Processes taking part."""
        ...

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entrywise minimum over all processes."""
        ...

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entrywise maximum over all processes."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A single process: its own numbers are everyone's.

    Args:
        dp_rank: the data-parallel rank whose share is planned. With more than one
            data-parallel rank in the topology, a lone process plans its share as if every other
            rank agreed with it.
    """

    dp_rank: int = 0

    def __post_init__(self) -> None:
        integer("dp_rank", self.dp_rank)

    @property
    def size(self) -> int:
        """One."""
        return 1

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`values`."""
        return values

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`values`."""
        return values


def check_agreement(agreement: object, dp: int) -> Agreement:
    """`agreement`, if it offers the protocol and its rank is one of `dp`."""
    if not isinstance(agreement, Agreement):
        raise InputError(
            f"agreement is {type(agreement).__name__}: it must offer dp_rank, size, all_min and "
            "all_max, as waveplan.Alone() does"
        )
    if not 0 <= agreement.dp_rank < dp:
        raise InputError(f"agreement.dp_rank is {agreement.dp_rank}: it must be below dp, {dp}")
    return agreement
