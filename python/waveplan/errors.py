"""The family of errors that waveplan raises on purpose; `waveplan.refusal` adds `WaveRefused`."""

from __future__ import annotations

__all__ = [
    *("DoubtfulError", "InputError", "InternalError", "NothingLeftError", "RankError"),
    *("WaveplanError", "one_line"),
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


class NothingLeftError(InputError):
    """What stays resident, the reserve and other processes fill the device."""


class DoubtfulError(WaveplanError):
    """With ``strict=True``: a rule that matters is uncharged or unmeasured here."""


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
