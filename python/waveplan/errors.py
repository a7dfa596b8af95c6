"""Everything waveplan raises on purpose."""

from __future__ import annotations

__all__ = ["InputError", "InternalError", "UnpricedError", "WaveRefused", "WaveplanError"]


class WaveplanError(Exception):
    """Base of every error that waveplan raises on purpose."""


class InputError(WaveplanError, ValueError):
    """A caller's value is wrong; the message is one line that says what would be right."""


class UnpricedError(WaveplanError):
    """With ``strict=True``: a rule that this configuration needs does not cover it."""


class InternalError(WaveplanError, RuntimeError):
    """A bug in waveplan."""


class WaveRefused(WaveplanError):  # noqa: N818  (the public name)
    """No plan of the smallest wave fits in memory."""
