"""A progress line on stderr for anything that takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

from waveplan.cli.render import seconds

__all__ = ["Progress"]


class Progress:
    """Counts towards a total; draws only on a terminal, and only after the first second.

    Timing steers what is drawn, never what is planned.
    """

    def __init__(self, what: str, total: int | None, out: TextIO | None = None) -> None:
        self._what, self._total = what, total
        self._out = out if out is not None else sys.stderr
        self._on = self._out.isatty()
        self._start = self._last = time.monotonic()
        self._done, self._drawn = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def advance(self, done: int, detail: str = "") -> None:
        """State that ``done`` units of the total are finished."""
        self._done = done
        now = time.monotonic()
        if not self._on or now - self._start < 1.0 or now - self._last < 0.1:
            return
        self._last = now
        self._draw(now - self._start, detail)

    def clear(self) -> None:
        """Wipe the line, so that what follows starts clean."""
        if self._drawn:
            self._out.write("\r\x1b[2K")
            self._out.flush()
            self._drawn = False

    def _draw(self, elapsed: float, detail: str) -> None:
        line = f"{self._what} {self._done:,}"
        if self._total:
            share = min(1.0, self._done / self._total)
            filled = int(share * 24)
            line = (
                f"{self._what} [{'#' * filled}{'.' * (24 - filled)}] {self._done:,}/{self._total:,}"
            )
            if 0 < share < 1:
                line += f", {seconds(elapsed * (1 - share) / share)} left"
        if detail:
            line += f"  {detail}"
        self._out.write("\r\x1b[2K" + line[:150])
        self._out.flush()
        self._drawn = True
