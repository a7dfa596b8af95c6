"""A seam: one function of the other package, replaced by ours under every name that holds it."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from waveplan.errors import WaveplanError, one_line

PACKAGE = "art"
LOG = logging.getLogger("waveplan.art")
Function = Callable[..., Any]


class Declined(Exception):  # noqa: N818 - not an error: the other package answers instead
    """Ours leaves this input to the function that it replaced."""


class Disagreed(Declined):
    """Ours and the other package price something differently: the other package answers."""


class Passed(Exception):  # noqa: N818 - carries an error
    """Its cause is an error of the original, which must not run again."""


@dataclass(eq=False)
class Seam:
    """One replaced function. ``attribute`` is a function of the module, or ``Class.method``."""

    name: str
    module: ModuleType
    attribute: str
    ours: Function
    iterators: tuple[str, ...] = ()
    """Parameters, the first of them positional, that may be used up by reading them."""
    needs_original: bool = False
    """Ours takes the replaced function as its first argument."""
    differ: Callable[[Any, Any], str | None] | None = None
    """Returns the difference between ours and the reference's result; None: compare by value."""
    shadow: Function | None = None
    """What a shadow run computes instead of ours, and `differ` compares."""
    original: Function = field(init=False)
    wrapped: Function = field(init=False)
    taken: bool = False
    """The wrapper answers; else it calls the original, wherever it is still held."""
    calls: int = 0
    declined: int = 0
    """Calls left to the original by rule."""
    disagreed: int = 0
    """Of these, calls that ours and the original price differently."""
    failed: int = 0
    """Calls left to the original because ours raised an unexpected error."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def path(self) -> str:
        """Module and name of the replaced function."""
        return f"{self.module.__name__}.{self.attribute}"

    def prepare(self, compare: Callable[..., Any] | None = None) -> bool:
        """Make the wrapper; return False if the function is absent.

        In a shadow run, ``compare(seam, ours, args, kwargs)`` returns the original's result.
        """
        found: Any = self.module
        for part in self.attribute.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            return False
        original = self.original = found
        ours = self.ours if compare is None or self.shadow is None else self.shadow
        if self.needs_original and ours is self.ours:
            ours = functools.partial(ours, found)
        self.ours = ours

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.taken:
                return original(*args, **kwargs)
            self._count("calls")
            fault, passed = None, None
            try:
                args = self._listed(args, kwargs)
                answer = self.ours(*args, **kwargs)
            except Passed as error:
                passed = error.__cause__
            except Exception as error:
                fault = error
            if passed is not None:
                raise passed
            if fault is not None:
                return self._left(fault, args, kwargs)
            return answer if compare is None else compare(self, answer, args, kwargs)

        self.wrapped = call
        return True

    def _count(self, name: str) -> bool:
        """Count one more, and say whether it is the first."""
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)
            return bool(getattr(self, name) == 1)

    def _left(self, fault: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the original's answer; count why, and log the first disagreement and fault.

        Ours is at fault only where the original has an answer: else the input is.
        """
        try:
            answer = self.original(*args, **kwargs)
        except BaseException:
            self._count("declined")
            raise
        if not isinstance(fault, Declined | WaveplanError):
            if self._count("failed"):
                LOG.warning("%s: ours failed, the original answers", self.name, exc_info=fault)
            return answer
        self._count("declined")
        if isinstance(fault, Disagreed) and self._count("disagreed"):
            LOG.warning("%s: %s; the original decides", self.name, one_line(str(fault)))
        return answer

    def _listed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return positional arguments, iterators read into tuples; read keyword ones in place."""
        for name in self.iterators:
            if kwargs.get(name) is not None:
                kwargs[name] = tuple(kwargs[name])
        if self.iterators and args:
            return (tuple(args[0]), *args[1:])
        return args


def take(seams: Sequence[Seam]) -> None:
    """Put every prepared wrapper wherever its original is."""
    for seam in seams:
        seam.taken = True
    _swap({id(seam.original): seam.wrapped for seam in seams})


def release(seams: Sequence[Seam]) -> None:
    """Put the originals back wherever ours is now, also in modules imported since; a wrapper that
    is held elsewhere calls its original from now on."""
    for seam in seams:
        seam.taken = False
    _swap({id(seam.wrapped): seam.original for seam in seams})


def _swap(swaps: dict[int, Function]) -> None:
    """Replace functions, by identity, in every module of the package and its classes."""

    def put(holder: Any, key: str, value: Any) -> None:
        if id(value) in swaps:
            setattr(holder, key, swaps[id(value)])

    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] != PACKAGE:
            continue
        for key, value in list(vars(module).items()):
            put(module, key, value)
            if isinstance(value, type) and value.__module__.partition(".")[0] == PACKAGE:
                for method, function in list(vars(value).items()):
                    put(value, method, function)
