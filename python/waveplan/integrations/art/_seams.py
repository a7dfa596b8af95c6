"""A seam: one function of the other package, replaced by ours under every name that holds it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from waveplan.errors import WaveplanError

PACKAGE = "art"
Function = Callable[..., Any]


class Declined(Exception):  # noqa: N818 - not an error: the other package answers instead
    """Ours leaves this input to the function that it replaced."""


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
    original: Function = field(init=False)
    wrapped: Function = field(init=False)
    calls: int = 0
    declined: int = 0

    @property
    def path(self) -> str:
        """Module and name of the replaced function."""
        return f"{self.module.__name__}.{self.attribute}"

    def prepare(self, compare: Callable[..., Any] | None = None) -> bool:
        """Make the wrapper; return False if the function is absent.

        In a shadow run, ``compare(seam, ours, args, kwargs)`` returns the result to go on with.
        """
        found: Any = self.module
        for part in self.attribute.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            return False
        original = self.original = found
        if self.needs_original:
            self.ours = functools.partial(self.ours, found)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            args = self._listed(args, kwargs)
            self.calls += 1
            try:
                ours = self.ours(*args, **kwargs)
            except (Declined, WaveplanError, TypeError, OverflowError):
                self.declined += 1
            else:
                return ours if compare is None else compare(self, ours, args, kwargs)
            return original(*args, **kwargs)

        self.wrapped = call
        return True

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
    _swap({id(seam.original): seam.wrapped for seam in seams})


def release(seams: Sequence[Seam]) -> None:
    """Put the originals back wherever ours is now, also in modules imported since."""
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
