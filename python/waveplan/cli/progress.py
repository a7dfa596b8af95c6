"""A progress line on stderr for anything that takes longer than a second."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from waveplan.report.table import integer, seconds

__all__ = ["Progress"]


class Progress:
    """Counts towards a total; draws only on a terminal, and only after the first second.

    Timing steers what is drawn, never what is planned.

    Args:
        what: the work in progress. total: units in all, None if unknown. text: writes units.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        out: TextIO | None = None,
        *,
        text: Callable[[int], str] = integer,
    ) -> None:
        self._what, self._total, self._text = what, total, text
        self._out = out if out is not None else sys.stderr
        self._on = self._out.isatty()
        self._start = self._last = time.monotonic()
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def advance(self, done: int, total: int | None = None, detail: str = "") -> None:
        """Report that ``done`` units of the total are finished."""
        now = time.monotonic()
        if not self._on or now - self._start < 1.0 or now - self._last < 0.1:
            return
        self._last = now
        self._total = total if total is not None else self._total
        self._draw(done, now - self._start, detail)

    def clear(self) -> None:
        """Wipe the line, so that what follows starts clean."""
        if self._drawn:
            self._out.write("\r\x1b[2K")
            self._out.flush()
            self._drawn = False

    def _draw(self, done: int, elapsed: float, detail: str) -> None:
        line = f"{self._what} {self._text(done)}, {seconds(elapsed)}"
        if self._total:
            share = min(1.0, done / self._total)
            filled = int(share * 24)
            bar = f"[{'#' * filled}{'.' * (24 - filled)}]"
            line = f"{self._what} {bar} {self._text(done)}/{self._text(self._total)}"
            if 0 < done < self._total:
                left = elapsed * (self._total - done) / done
                line += f", {seconds(left)} left"
        if detail:
            line += f", {detail}"
        width = shutil.get_terminal_size().columns - 1
        self._out.write("\r\x1b[2K" + line[:width])
        self._out.flush()
        self._drawn = True
