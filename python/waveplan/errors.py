"""Everything waveplan raises on purpose."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from waveplan.plan import Plan
    from waveplan.pricing import Price
    from waveplan.refusal import Change
    from waveplan.wave import Attempt, Binding, Probe

__all__ = [
    "InputError",
    "InternalError",
    "RankError",
    "UnpricedError",
    "WaveRefused",
    "WaveplanError",
]


MOST_CHARACTERS = 1000
"""Longest message: a wrong value is shown as far as that goes."""


def one_line(text: str) -> str:
    """The text without line breaks and control characters, its middle left out if it is long."""
    text = str(text)
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS - 300]} ... {text[-290:]}"
    if text.isprintable():
        return text
    lines = " ".join(text.splitlines())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in lines)


class WaveplanError(Exception):
    """Base of every error that waveplan raises on purpose."""


class InputError(WaveplanError, ValueError):
    """A caller's value is wrong; the message is one line that says what would be right."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class UnpricedError(WaveplanError):
    """With ``strict=True``: a rule that this configuration needs does not cover it."""


class InternalError(WaveplanError, RuntimeError):
    """A bug in waveplan."""


class RankError(WaveplanError, RuntimeError):
    """Another rank of the job failed, or the ranks disagree, or have lost touch or step.

    The rank that failed raises its own error.
    """

    def __init__(self, message: str, *, rank: int | None = None, lost: bool = False) -> None:
        super().__init__(message)
        self.rank = rank
        """The process that failed, where it is known."""
        self.lost = lost
        """The connection itself failed: nothing more can be agreed."""


class WaveRefused(WaveplanError):  # noqa: N818  (the public name)
    """No plan of the smallest wave fits in memory.

    It says that what was tried does not fit, not that nothing could: `tried` lists it.
    """

    def __init__(
        self,
        message: str,
        *,
        plan: Plan,
        required: int,
        limit: int,
        width: int,
        indices: NDArray[np.int64],
        tried: tuple[Attempt, ...],
        probes: tuple[Probe, ...],
        binding: Callable[[], Binding],
        change: Callable[[], list[Change]],
        best: Callable[[], Plan],
    ) -> None:
        super().__init__(message)
        self._plan: Callable[[], Plan] = lambda: plan
        self.required = required
        """Bytes of what was tried last."""
        self.limit = limit
        """Bytes free."""
        self.width = width
        """Items over all data-parallel ranks; 0 for `Planner.plan`."""
        self.indices = indices
        """This rank's items (rows for `Planner.plan`)."""
        self.tried = tried
        """Unsplit, shared, and each rung of the split ladder, with bytes."""
        self.probes = probes
        self._binding, self._change, self._best = binding, change, best

    def __reduce__(self) -> tuple[Any, ...]:
        """Crosses to another process with its figures; plans stay where they were made."""
        figures = {
            name: getattr(self, name)
            for name in ("required", "limit", "width", "indices", "tried", "probes")
        }
        return _from_elsewhere, (str(self), figures, self.binding)

    @property
    def plan(self) -> Plan:
        """The unsplit plan with everything shared."""
        return self._plan()

    @property
    def price(self) -> Price:
        """The price of `plan`."""
        return self.plan.price

    @cached_property
    def binding(self) -> Binding:
        """Rank, phase and term that decide the price of `plan`."""
        return self._binding()

    @cached_property
    def oversized(self) -> Plan:
        """The plan or split of these requests that needs least, although it does not fit."""
        return self._best()

    @cached_property
    def change(self) -> list[Change]:
        """The smallest changes that would fit, each computed when first asked for."""
        return self._change()

    def to_dict(self) -> dict[str, Any]:
        """Stable JSON."""
        from waveplan._values import columns  # which imports this module

        return {
            "message": str(self),
            "required": self.required,
            "limit": self.limit,
            "width": self.width,
            "indices": self.indices.tolist(),
            "tried": [columns(tried) for tried in self.tried],
            "binding": {
                "rank": self.binding.rank,
                "phase": self.binding.phase,
                "term": self.binding.term,
                "bytes": self.binding.bytes,
            },
        }


def _from_elsewhere(message: str, figures: dict[str, Any], binding: Binding) -> WaveRefused:
    def absent() -> Any:
        raise InputError("the plan stayed in the process that refused it: ask there")

    nothing: Any = None
    made = WaveRefused(
        message, plan=nothing, binding=lambda: binding, change=absent, best=absent, **figures
    )
    made._plan = absent
    return made
