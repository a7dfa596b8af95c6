"""Many ranks in step: each wave is settled by five reductions, and a failure reaches all.

1. *Meeting*: every process shows its step, its data-parallel rank, its free bytes and what must
   be equal everywhere (groups, start, settings, rules, ...).
2. *Table*: the quotes of every width that growth can ask.
3. *Table*: the quotes of every width that bisection can ask.
4. *Table*: the quotes of the widths between two granules; left out in reference mode.
5. *Meeting*: the outcome: width, bytes needed, refusals, fingerprints.

Meetings always have the same shape, so a process whose own code fails between two waves joins
the others' next meeting and tells them; tables carry a flag for the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

FIELDS = 13
"""Numbers that each process shows at a meeting: its step, then up to twelve values."""
TEXT = 32
"""Words of seven bytes in which a failure is described to the other ranks."""
LEAVES = 8
"""How often a failed rank waits for one that went on."""
_NOTHING = np.iinfo(np.int64).min


class Step(IntEnum):
    """What a process is doing when it meets the others."""

    WAVE = 1
    OUTCOME = 2
    OBSERVE = 3
    LEAVE = 4
    FAILED = 5


_DOES = {
    Step.WAVE: "asks for a wave",
    Step.OUTCOME: "has planned a wave",
    Step.OBSERVE: "observes a wave",
    Step.LEAVE: "has finished",
}


def digest(value: object) -> int:
    """A number that is equal for values of equal text, on every machine."""
    import hashlib  # slow to import

    made = hashlib.blake2b(repr(value).encode(), digest_size=8).digest()
    return int.from_bytes(made, "little") >> 2


class Ranks:
    """The processes of a job, kept in step."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.rank, self.size = attributes("agreement", agreement, "rank", "size")

    def meet(self, step: Step, values: Sequence[int] = ()) -> Column:
        """What every process shows, its values by process: int64[size, FIELDS - 1].

        Raises:
            RankError: a process has failed, or they are at different steps.
        """
        return self._meet(step, values, None)[:, 1:]

    def _meet(self, step: Step, values: Sequence[int], error: BaseException | None) -> Column:
        mine = np.full((self.size, FIELDS), _NOTHING, np.int64)
        mine[self.rank] = 0
        mine[self.rank, : 1 + len(values)] = [step, *values]
        shown = self._all_max(mine.reshape(-1)).reshape(self.size, FIELDS)
        steps = shown[:, 0].tolist()
        if Step.FAILED in steps:
            self._explain(steps.index(Step.FAILED), error)
        if len(set(steps)) > 1:
            other = next(r for r, at in enumerate(steps) if at != steps[0])
            raise told(
                RankError(
                    f"the ranks are out of step: rank 0 {_does(steps[0])} while rank {other} "
                    f"{_does(steps[other])}",
                    rank=other,
                )
            )
        return shown

    def _all_max(self, values: Column) -> Column:
        return _reduced("all_max", self.agreement.all_max(values), values)

    def table(self, work: Callable[[], Column], length: int) -> Column:
        """The entrywise minimum over all processes of what `work` makes, `length` numbers.

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
        """One more reduction, after a failure only: what the first failed process says of it."""
        words = np.zeros(TEXT, np.int64)
        if rank == self.rank and own is not None:
            words = _words(_describe(own))
        said = _text(self._all_max(words))
        if own is not None:
            raise told(own)
        raise told(RankError(f"rank {rank} failed: {said}", rank=rank))

    def fail(self, error: BaseException) -> None:
        """Joins the others' next meeting to tell them of `error`; they raise `RankError`."""
        if self.size == 1 or _marked(error):
            return
        try:
            self._meet(Step.FAILED, (), error)
        except BaseException as raised:
            if raised is not error:
                error.add_note(f"the other ranks could not be told: {raised}")
        told(error)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """An exception that leaves this block reaches the other ranks at their next meeting."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def leave(self) -> None:
        """The last meeting of ranks that all know of a failure; a rank that went on planning
        is out of step, and met again."""
        for _ in range(LEAVES if self.size > 1 else 0):
            try:
                self.meet(Step.LEAVE)
            except RankError as error:
                if not error.lost:
                    continue
            return

    def differ(self, message: str) -> NoReturn:
        """Refuses, on every rank alike, what the ranks have shown."""
        raise told(RankError(message))


@contextmanager
def in_step(agreement: Agreement) -> Iterator[None]:
    """Keeps the ranks of a job together, whatever happens to one of them in this block.

    Every process enters it once and leaves it at a meeting with the others. An exception in a
    process's own code (while it reads its data, makes a `Planner`, runs a step) so reaches the
    other ranks as `RankError` the next time they ask for a wave, or when they leave, instead of
    leaving them to wait.

        with waveplan.in_step(agreement):
            planner = waveplan.Planner(..., agreement=agreement)
            for wave in planner.waves(requests):
                ...
    """
    ranks = Ranks(agreement)
    try:
        yield
        if ranks.size > 1:
            ranks.meet(Step.LEAVE)
    except BaseException as error:
        if not is_told(error):
            ranks.fail(error)
        ranks.leave()
        raise


def told(error: E) -> E:
    """Marks an error that every rank knows of."""
    error._waveplan_told = True  # type: ignore[attr-defined]
    return error


def _marked(error: BaseException) -> bool:
    return getattr(error, "_waveplan_told", False) or getattr(error, "lost", False)


def is_told(error: BaseException | None) -> bool:
    """Whether every rank knows of this error, or of one that it came from."""
    while error is not None:
        if _marked(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _does(step: int) -> str:
    return next((does for known, does in _DOES.items() if known == step), "does something else")


def _reduced(name: str, answer: object, values: Column) -> Column:
    """A reduction's answer, if it can be one."""
    if (
        not isinstance(answer, np.ndarray)
        or answer.shape != values.shape
        or answer.dtype != np.int64
    ):
        raise RankError(
            f"agreement.{name} answered {shown(answer)}: it must give {len(values)} int64 numbers",
            lost=True,
        )
    return answer


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
