"""A progress line on stderr for anything that takes longer than a fifth of a second."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from waveplan.report.table import integer, seconds

__all__ = ["Progress"]


class Progress:
    """Counts towards a total; draws only on a terminal, after a fifth of a second, and again while
    no unit finishes.

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
        self._done, self._detail = 0, ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._clock = threading.Thread(target=self._move, daemon=True)

    def __enter__(self) -> Self:
        if self._on:
            self._clock.start()
        return self

    def _move(self) -> None:
        while not self._ended.wait(0.25):
            self.advance(self._done, detail=self._detail)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self.clear()

    def advance(self, done: int, total: int | None = None, detail: str = "") -> None:
        """Report that ``done`` units of the total are finished."""
        with self._lock:
            now = time.monotonic()
            self._done, self._detail = done, detail
            waits = now - self._start < 0.2 or now - self._last < 0.1
            if not self._on or waits or self._ended.is_set():
                return
            self._last = now
            self._total = total if total is not None else self._total
            self._draw(done, now - self._start, detail)

    def clear(self) -> None:
        """Wipe the line, so that what follows starts clean."""
        with self._lock:
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
            if not done:
                line += f", {elapsed:.1f} s"
            elif done < self._total:
                left = elapsed * (self._total - done) / done
                line += f", {seconds(left)} left"
        if detail:
            line += f", {detail}"
        width = shutil.get_terminal_size().columns - 1
        self._out.write("\r\x1b[2K" + line[:width])
        self._out.flush()
        self._drawn = True
