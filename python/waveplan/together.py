"""One wave planned in step by all ranks of a job: four reductions, whatever the probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan.errors import RankError

if TYPE_CHECKING:
    from waveplan.agreement import Agreement

__all__ = ["Ranks", "Settled"]

LEAST = np.iinfo(np.int64).min
MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Settled:
    """What all ranks settled on for a wave."""

    found: core.Found
    refused: bool
    """A rank, perhaps another one, refused the wave."""
    required: int
    """The most bytes any rank needs."""


class Ranks:
    """The reductions of one planner, with failures carried along.

    Args:
        agreement: connects the ranks. dp: data-parallel ranks. where: what an error calls the
            work, such as "planning the wave at item 8".
    """

    def __init__(self, agreement: Agreement, dp: int, where: str) -> None:
        self.agreement, self.dp, self.where = agreement, dp, where

    def all_min(self, length: int, work: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The minimum over ranks of what `work` gives (`length` entries).

        Raises:
            RankError: `work` failed on another rank; on the rank where it failed, its own error.
        """
        values = np.zeros(1 + length, np.int64)
        failure = None
        try:
            values[1:] = work()
            values[0] = 1
        except BaseException as error:  # every failure must reach the other ranks
            failure = error
        agreed = self._reduce(self.agreement.all_min, values, failure)
        if failure is not None:
            raise failure
        if agreed[0] != 1:
            raise RankError(f"another rank failed while {self.where}: see its own error")
        return agreed[1:]

    def all_max(self, length: int, work: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The maximum over ranks of what `work` gives, as `all_min`."""
        values = np.full(1 + length, LEAST, np.int64)
        failure = None
        try:
            values[1:] = work()
            values[0] = 0
        except BaseException as error:
            failure = error
            values[0] = 1
        agreed = self._reduce(self.agreement.all_max, values, failure)
        if failure is not None:
            raise failure
        if agreed[0] != 0:
            raise RankError(f"another rank failed while {self.where}: see its own error")
        return agreed[1:]

    def _reduce(
        self,
        reduce: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        values: NDArray[np.int64],
        failure: BaseException | None,
    ) -> NDArray[np.int64]:
        try:
            agreed = np.asarray(reduce(values))
        except Exception as error:
            if failure is not None:
                raise failure from error
            raise RankError(
                f"the ranks could not be reached while {self.where}: {error}"
            ) from error
        if agreed.shape != values.shape or agreed.dtype != np.int64:
            raise RankError(
                f"the agreement returned {agreed.dtype}{list(agreed.shape)} for "
                f"int64{list(values.shape)}"
            )
        return agreed

    def same(self, names: tuple[str, ...], free: int, work: Callable[[], tuple[int, ...]]) -> int:
        """First reduction: checks that all ranks hold the same numbers (one for each of
        `names`); the free bytes of this data-parallel rank's processes."""
        rank, count = self.agreement.dp_rank, len(names)

        def values() -> NDArray[np.int64]:
            own = np.array(work(), np.int64)
            slots = np.full(self.dp, MOST, np.int64)
            slots[rank] = free
            return np.concatenate([own, -own, slots])

        agreed = self.all_min(2 * count + self.dp, values)
        least, most = agreed[:count], -agreed[count : 2 * count]
        for name, low, high in zip(names, least.tolist(), most.tolist(), strict=True):
            if low != high:
                raise RankError(
                    f"the ranks disagree on {name} while {self.where}: {low} on one, {high} on "
                    "another"
                )
        return int(agreed[2 * count + rank])

    def settle(
        self,
        entries: int,
        session: Callable[[], core.Session],
        fingerprint: Callable[[core.Found], int],
    ) -> tuple[core.Session, Settled]:
        """The other three reductions: both tables of quotes (the first has so many `entries`),
        then the outcome."""
        made: list[core.Session] = []
        found: list[core.Found] = []

        def growth() -> NDArray[np.int64]:
            made.append(session())
            return made[0].growth()

        first = np.ascontiguousarray(self.all_min(entries, growth))
        entries = made[0].agree_growth(first)
        second = np.ascontiguousarray(self.all_min(entries, lambda: made[0].bisection()))

        def outcome() -> NDArray[np.int64]:
            found.append(made[0].finish(second))
            mark = fingerprint(found[0])
            slots = np.full(2 * self.dp, LEAST, np.int64)
            slots[2 * self.agreement.dp_rank] = mark
            slots[2 * self.agreement.dp_rank + 1] = -mark
            head = [int(found[0].kind == "refused"), found[0].required, found[0].width]
            return np.concatenate([np.array([*head, -head[2]], np.int64), slots])

        ended = self.all_max(4 + 2 * self.dp, outcome)
        marks = ended[4:].reshape(self.dp, 2)
        if ended[2] != -ended[3] or any(high != -low for high, low in marks.tolist()):
            raise RankError(
                f"the ranks made different plans while {self.where}: their rows, profiles or "
                "versions differ"
            )
        return made[0], Settled(found[0], bool(ended[0]), int(ended[1]))
