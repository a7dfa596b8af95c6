"""The width search and the split, written slowly: the target of the differential tests.

A table maps (width, kind) to a probe; the search below follows the prose of the reference
planner step by step and records every probe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS = ("unshared", "shared", "optimal", "full", "plan_optimal", "plan_full", "plan_best")


class Probe(NamedTuple):
    valid: bool
    fits: bool
    trusted: bool
    profiled: bool

    @property
    def bits(self) -> int:
        return self.valid | self.fits << 1 | self.trusted << 2 | self.profiled << 3

    @property
    def usable(self) -> bool:
        return self.fits and (self.trusted or not self.profiled)


@dataclass
class Search:
    groups: int
    start: int
    dp: int
    hint: int | None
    refines: bool
    table: Callable[[int, str], Probe]
    asked: list[tuple[int, str]] = field(default_factory=list)
    estimates: dict[int, Probe | None] = field(default_factory=dict)
    full: dict[int, bool] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    exact_failed: int | None = None

    @property
    def left(self) -> int:
        return self.groups - self.start

    @property
    def least(self) -> int:
        return min(self.dp, self.left)

    def normalize(self, width: int) -> int:
        grain = 1 if self.left < 64 else 8 if self.left < 256 else 32
        while grain % self.dp:
            grain += 1
        width = min(max(width, self.least), self.left)
        if self.least < width < self.left and width >= grain:
            width = max(self.least, width - width % grain)
        return width

    def price(self, width: int, kind: str) -> Probe:
        self.asked.append((width, kind))
        return self.table(width, kind)

    def estimate(self, width: int) -> Probe | None:
        if width not in self.estimates:
            self.estimates[width] = self._estimate(width)
        return self.estimates[width]

    def _estimate(self, width: int) -> Probe | None:
        priced = self.price(width, "unshared")
        if not priced.valid:
            return None
        doubtful = not priced.fits or (priced.profiled and not priced.trusted)
        if doubtful and (self.exact_failed is None or width < self.exact_failed):
            priced = self.price(width, "shared")
            if not priced.fits:
                self.full[width] = True
            else:
                for kind in ("optimal", "full"):
                    priced = self.price(width, kind)
                    self.full[width] = kind == "full"
                    if priced.usable:
                        break
            if not priced.fits:
                self.exact_failed = min(width, self.exact_failed or width)
        return priced

    def executed(self, width: int) -> str:
        if self.refines:
            return "plan_best"
        return "plan_full" if self.full.get(width) else "plan_optimal"

    def probe(self, width: int) -> Probe:
        if self.refines:
            priced = self.price(width, "plan_best")
        else:
            found = self.estimate(width)
            if found is None:
                found = self.price(width, self.executed(width))
                if not found.usable and not self.full.get(width):
                    self.full[width] = True
                    found = self.price(width, "plan_full")
            priced = found
        if not priced.fits:
            self.rejected.add(width)
        return priced

    def first(self) -> tuple[bool, bool]:
        """Whether the minimum wave fits, and whether it is trusted."""
        width = self.least
        if self.refines:
            priced = self.price(width, "plan_best")
            return priced.fits, priced.trusted
        estimate = self.estimate(width)
        if estimate is not None:
            if estimate.fits and not estimate.trusted:
                return True, self.table(width, self.executed(width)).trusted
            return estimate.fits, estimate.trusted
        priced = self.price(width, "plan_optimal")
        if priced.fits and priced.profiled and not priced.trusted:
            self.full[width] = True
            priced = self.price(width, "plan_full")
        return priced.fits, priced.trusted

    def run(self) -> tuple[int, str, int]:
        """The chosen width (0: a split), why it stopped, and at which width."""
        fits, trusted = self.first()
        if not fits:
            return 0, "split", 0
        best, stop = self.least, ("end", 0)
        if not trusted:
            return best, *self._cold(best)
        hint = self.normalize(self.hint or self.least)
        if hint > best:
            priced = self.probe(hint)
            if priced.fits and priced.trusted:
                best = hint
        failed = None
        while failed is None and best < self.left:
            width = self.normalize(max(best + 1, 2 * best))
            if width == best:
                break
            priced = self.probe(width)
            if priced.usable:
                best = width
                if not priced.trusted:
                    stop = self._cold(best)
                    break
            else:
                failed = width
                stop = ("trust" if priced.fits else "memory", width)
        while failed is not None and failed - best > 1:
            width = self.normalize((best + failed) // 2)
            if width in (best, failed) or (self.refines and width < best):
                break
            priced = self.probe(width)
            if priced.usable:
                best = width
            else:
                failed = width
                stop = ("trust" if priced.fits else "memory", width)
        while self.refines and failed is not None:
            between = [w for w in range(best + 1, failed) if w % self.dp == 0]
            if not between:
                break
            width = between[(len(between) - 1) // 2]
            priced = self.probe(width)
            if priced.usable:
                best = width
            else:
                failed = width
                stop = ("trust" if priced.fits else "memory", width)
        return self._chosen(best, stop)

    def _cold(self, width: int) -> tuple[str, int]:
        return ("end", 0) if width == self.left else ("trust", width)

    def _chosen(self, width: int, stop: tuple[str, int]) -> tuple[int, str, int]:
        if self.refines or self.estimates.get(width) is None:
            self.price(width, self.executed(width))
        return width, *stop
