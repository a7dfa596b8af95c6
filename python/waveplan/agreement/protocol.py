"""Many ranks in step: each wave takes five reductions (four in reference mode, six where
modelled times decide), and a failure is broadcast to all.

1. *Gather* of each process the step, the data-parallel rank, the available bytes and hashes: of
   the profiles, of the version, and of all that must be equal everywhere, which is the content of
   the requests and what decides plans. Where it differs, one more reduction shows which part.
2. *Reduce* the probes of every width that growth can reach.
3. *Reduce* the probes of every width that bisection can reach.
4. *Reduce* the probes of the widths between two granules; left out in reference mode.
5. *Reduce* the modelled times of the widths that may run; left out where they decide nothing.
6. *Gather* the outcome: width, bytes required, refusals, fingerprints.

Gathers always have the same shape, so a process whose own code fails between two waves takes
part in the next one with its error; what is reduced carries a flag for the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from waveplan.agreement.adapters import Agreement
from waveplan.checks import attributes, shown
from waveplan.errors import RankError, WaveplanError

__all__ = ["Ranks", "in_step"]

Column = NDArray[np.int64]
E = TypeVar("E", bound=BaseException)

FIELDS = 8
"""Numbers that each process gives to a gather: its step, then up to seven values."""
TEXT = 32
"""Words of seven bytes in which a failure is broadcast."""
LEAVES = 8
"""Gathers in which a failed rank waits for one that went on."""
_NOTHING = np.iinfo(np.int64).min


class Step(IntEnum):
    """The step at which a process calls a gather."""

    WAVE = 1
    OUTCOME = 2
    OBSERVE = 3
    LEAVE = 4
    FAILED = 5
    COMPOSE = 6
    COMPOSED = 7


_DOES = {
    Step.WAVE: "plans a wave",
    Step.OUTCOME: "has planned a wave",
    Step.OBSERVE: "observes a wave",
    Step.LEAVE: "has finished",
    Step.COMPOSE: "composes waves",
    Step.COMPOSED: "takes a wave of a composition",
}


def digest(value: object) -> int:
    """Return a hash of 128 bits of a value's text, equal on every machine."""
    import hashlib  # slow to import

    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=16).digest(), "little")


def halves(number: int) -> tuple[int, int]:
    """Return a number of 128 bits as two of 64."""
    raw = number.to_bytes(16, "little")
    return int.from_bytes(raw[:8], "little", signed=True), int.from_bytes(
        raw[8:], "little", signed=True
    )


class Ranks:
    """The processes of a job, kept in step."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.rank, self.size = attributes("agreement", agreement, "rank", "size")

    def gather(self, step: Step, values: Sequence[int] = ()) -> Column:
        """Return the values of every process: int64[size, FIELDS - 1].

        Raises:
            RankError: a process has failed, or they are at different steps.
        """
        return self._gather(step, values, None)[:, 1:]

    def _gather(self, step: Step, values: Sequence[int], error: BaseException | None) -> Column:
        mine = np.full((self.size, FIELDS), _NOTHING, np.int64)
        mine[self.rank] = 0
        mine[self.rank, : 1 + len(values)] = [step, *values]
        shown = self._all_max(mine.reshape(-1)).reshape(self.size, FIELDS)
        steps = shown[:, 0].tolist()
        if Step.FAILED in steps:
            self._explain(steps.index(Step.FAILED), error)
        if len(set(steps)) > 1:
            other = next(r for r, at in enumerate(steps) if at != steps[0])
            raise everywhere(
                RankError(
                    f"the processes are out of step: process 0 {_does(steps[0])} while process "
                    f"{other} {_does(steps[other])}",
                    rank=other,
                )
            )
        return shown

    def disagree(self, where: str, parts: Mapping[str, int]) -> NoReturn:
        """Raise, on every process alike, an error that names the parts which differ, and where.

        Args:
            parts: numbers of 128 bits by name, the same names on every process; one more
                reduction shows them to all.
        """
        mine = np.full((self.size, len(parts), 2), _NOTHING, np.int64)
        mine[self.rank] = [halves(part) for part in parts.values()]
        shown = self._all_max(mine.reshape(-1)).reshape(mine.shape)
        differ: dict[tuple[int, ...], list[str]] = {}
        for at, name in enumerate(parts):
            seen = [tuple(row) for row in shown[:, at].tolist()]
            usual = max(seen, key=seen.count)  # of a tie the first
            odd = tuple(rank for rank, value in enumerate(seen) if value != usual)
            if odd:
                differ.setdefault(odd, []).append(name)
        says = [f"{_processes(odd)} in {', '.join(names)}" for odd, names in differ.items()]
        first = min((odd[0] for odd in differ), default=None)
        raise everywhere(
            RankError(f"the processes disagree {where}: {'; '.join(says)}", rank=first)
        )

    def _all_max(self, values: Column) -> Column:
        return _reduced("all_max", self.agreement.all_max(values), values)

    def reduce(self, work: Callable[[], Column], length: int) -> Column:
        """Return the entrywise minimum over all processes of the `length` numbers of `work`.

        Raises:
            RankError: `work` failed on another process. Where it failed, its own error.
        """
        mine = np.zeros(1 + length, np.int64)
        mine[0] = self.size
        failed: BaseException | None = None
        try:
            mine[1:] = work()
        except BaseException as error:
            failed = error
            mine[0] = self.rank
        agreed = _reduced("all_min", self.agreement.all_min(mine), mine)
        if agreed[0] < self.size:
            self._explain(int(agreed[0]), failed)
        return agreed[1:]

    def _explain(self, rank: int, own: BaseException | None) -> NoReturn:
        """Broadcast the failure of a process by one more reduction, and raise it."""
        words = np.zeros(TEXT, np.int64)
        if rank == self.rank and own is not None:
            words = _words(_describe(own))
        said = _text(self._all_max(words))
        if own is not None:
            raise everywhere(own)
        raise everywhere(RankError(f"process {rank} failed: {said}", rank=rank))

    def broadcast(self, error: BaseException) -> None:
        """Give `error` to the others' next gather, where they raise `RankError`."""
        if self.size == 1 or _marked(error):
            return
        try:
            self._gather(Step.FAILED, (), error)
        except BaseException as raised:
            if raised is not error:
                error.add_note(f"it could not be broadcast to the other processes: {raised}")
        everywhere(error)

    @contextmanager
    def broadcasting(self) -> Iterator[None]:
        """Broadcast an exception that leaves this block."""
        try:
            yield
        except BaseException as error:
            self.broadcast(error)
            raise

    def leave(self) -> None:
        """Gather for the last time after a failure; a rank that went on planning is out of step,
        and waited for again."""
        for _ in range(LEAVES if self.size > 1 else 0):
            try:
                self.gather(Step.LEAVE)
            except RankError as error:
                if not error.lost:
                    continue
            return

    def differ(self, message: str) -> NoReturn:
        """Raise an error that every rank raises alike."""
        raise everywhere(RankError(message))


@contextmanager
def in_step(agreement: Agreement) -> Iterator[None]:
    """Keep the ranks of a job together, whatever happens to one of them in this block.

    Every process enters it once and leaves it by a gather. An exception in a process's own code
    (while it reads its data, makes a `Planner`, runs a step) is broadcast: the other ranks raise
    `RankError` when they next plan a wave, or leave, instead of waiting.

        with waveplan.in_step(agreement):
            planner = waveplan.Planner(..., agreement=agreement)
            for wave in planner.waves(requests):
                ...
    """
    ranks = Ranks(agreement)
    try:
        yield
        if ranks.size > 1:
            ranks.gather(Step.LEAVE)
    except BaseException as error:
        if not is_everywhere(error):
            ranks.broadcast(error)
        ranks.leave()
        raise


def everywhere(error: E) -> E:
    """Mark an error that every rank raises, and return it."""
    error._waveplan_everywhere = True  # type: ignore[attr-defined]
    return error


def _marked(error: BaseException) -> bool:
    return getattr(error, "_waveplan_everywhere", False) or getattr(error, "lost", False)


def is_everywhere(error: BaseException | None) -> bool:
    """Return whether every rank raises this error, or one that it came from."""
    while error is not None:
        if _marked(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _processes(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"process {ranks[0]} differs from the others"
    return f"processes {', '.join(map(str, ranks))} differ from the others"


def _does(step: int) -> str:
    return next((does for known, does in _DOES.items() if known == step), "does something else")


def _reduced(name: str, result: object, values: Column) -> Column:
    """Return the result of a reduction, if it has the right shape."""
    if (
        not isinstance(result, np.ndarray)
        or result.shape != values.shape
        or result.dtype != np.int64
    ):
        raise RankError(
            f"agreement.{name} returned {shown(result)}: give {len(values)} int64 numbers",
            lost=True,
        )
    return result


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    text = str(error).strip()
    if isinstance(error, WaveplanError) and text:
        return text
    return f"{name}: {text}" if text else name


def _words(text: str) -> Column:
    raw = text.encode()
    most = TEXT * 7
    if len(raw) > most:
        raw = raw[: most - 3].decode(errors="ignore").encode() + b"..."
    raw = raw.ljust(most, b"\0")
    return np.array([int.from_bytes(raw[i : i + 7], "big") for i in range(0, most, 7)], np.int64)


def _text(words: Column) -> str:
    raw = b"".join((int(word) & (1 << 56) - 1).to_bytes(7, "big") for word in words)
    return raw.rstrip(b"\0").decode(errors="replace")
