"""A seam: one function of the other package, ours in its place, and every name that holds it."""

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
    """Ours does not answer for this input; the function that was replaced does."""


@dataclass(eq=False)
class Seam:
    """One replaced function. ``attribute`` is a function of the module, or ``Class.method``."""

    name: str
    stage: str
    """Stage of planning, for the report."""
    module: ModuleType
    attribute: str
    ours: Function
    iterators: tuple[str, ...] = ()
    """Parameters, the first of them positional, that may be used up by reading them."""
    needs_original: bool = False
    """Ours takes the replaced function as its first argument."""
    differ: Callable[[Any, Any], str | None] | None = None
    """Returns the difference between ours and the reference's result; None: compare by value."""
    original: Function | None = None
    wrapped: Function | None = None
    places: list[str] = field(default_factory=list)
    calls: int = 0
    declined: int = 0

    @property
    def path(self) -> str:
        """Module and name of the replaced function."""
        return f"{self.module.__name__}.{self.attribute}"

    def prepare(self, around: Callable[[Seam], Function] | None = None) -> bool:
        """Make the wrapper (``around`` does in a shadow run). False if the function is absent."""
        found: Any = self.module
        for part in self.attribute.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            return False
        self.original = found
        if self.needs_original:
            self.ours = functools.partial(self.ours, found)
        self.wrapped = functools.wraps(found)((around or _plain)(self))
        return True

    def spread(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Positional arguments again, with iterators read; keyword ones are read in place."""
        for name in self.iterators:
            if kwargs.get(name) is not None:
                kwargs[name] = tuple(kwargs[name])
        if self.iterators and args:
            return (tuple(args[0]), *args[1:])
        return args

    def attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether ours answered, and its answer."""
        self.calls += 1
        try:
            return True, self.ours(*args, **kwargs)
        except (Declined, WaveplanError, TypeError, OverflowError):
            self.declined += 1
            return False, None


def take(seams: Sequence[Seam]) -> None:
    """Put every prepared wrapper wherever its original is."""
    _swap({id(seam.original): (seam.wrapped, seam.places) for seam in seams})


def release(seams: Sequence[Seam]) -> None:
    """Put the originals back wherever ours is now, also in modules imported since."""
    for seam in seams:
        seam.places.clear()
    _swap({id(seam.wrapped): (seam.original, []) for seam in seams})


def _plain(seam: Seam) -> Function:
    """Ours, or the original where ours declines."""
    original = seam.original
    assert original is not None

    def call(*args: Any, **kwargs: Any) -> Any:
        args = seam.spread(args, kwargs)
        answered, value = seam.attempt(args, kwargs)
        return value if answered else original(*args, **kwargs)

    return call


def _swap(swaps: dict[int, tuple[Function | None, list[str]]]) -> None:
    """Replace functions, by identity, in every module of the package and its classes.

    Each comes with its replacement and a list that gets the names of its places.
    """

    def put(holder: Any, key: str, value: Any, where: str) -> None:
        if id(value) in swaps:
            new, places = swaps[id(value)]
            setattr(holder, key, new)
            places.append(where)

    for name, module in sorted(sys.modules.items()):
        if module is None or name.partition(".")[0] != PACKAGE:
            continue
        for key, value in list(vars(module).items()):
            put(module, key, value, f"{name}.{key}")
            if isinstance(value, type) and value.__module__.partition(".")[0] == PACKAGE:
                for method, function in list(vars(value).items()):
                    put(value, method, function, f"{name}.{key}.{method}")
