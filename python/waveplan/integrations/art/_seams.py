"""A seam: one function of the other package, ours in its place, and every name that holds it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
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
    module: str
    attribute: str
    make: Callable[[Function], Function]
    """Ours, given the function that it replaces."""
    stage: str = ""
    """Stage of planning, for the report."""
    iterators: tuple[str, ...] = ()
    """Parameters, the first of them positional, that may be used up by reading them."""
    differ: Callable[[Any, Any], str | None] | None = None
    """What differs between ours and the reference's result; None: compare by value."""
    original: Function | None = None
    ours: Function | None = None
    wrapped: Function | None = None
    places: list[str] = field(default_factory=list)
    calls: int = 0
    declined: int = 0

    @property
    def path(self) -> str:
        """Where the replaced function lives."""
        return f"{self.module}.{self.attribute}"

    def find(self) -> Function | None:
        """The function as it is now; None if the package has none."""
        try:
            found: Any = importlib.import_module(self.module)
        except ImportError:
            return None
        for part in self.attribute.split("."):
            found = getattr(found, part, None)
        return found if callable(found) else None

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
        assert self.ours is not None
        self.calls += 1
        try:
            return True, self.ours(*args, **kwargs)
        except (Declined, WaveplanError, TypeError, OverflowError):
            self.declined += 1
            return False, None

    def prepare(self, around: Callable[[Seam], Function] | None = None) -> bool:
        """Makes the wrapper (``around`` does in a shadow run). False if the function is absent."""
        original = self.find()
        if original is None:
            return False
        self.original, self.ours = original, self.make(original)
        wrapper = _plain(self) if around is None else around(self)
        self.wrapped = functools.wraps(original)(wrapper)
        return True


def take(seams: list[Seam]) -> None:
    """Puts every prepared wrapper wherever its original is."""
    places = _swap([(seam.original, seam.wrapped) for seam in seams])
    for seam, found in zip(seams, places, strict=True):
        seam.places = found


def release(seams: Sequence[Seam]) -> None:
    """Puts the originals back wherever ours is now, also in modules imported since."""
    _swap([(seam.wrapped, seam.original) for seam in seams])
    for seam in seams:
        seam.wrapped = seam.original = seam.ours = None
        seam.places = []


def _plain(seam: Seam) -> Function:
    """Ours, or the original where ours declines."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args = seam.spread(args, kwargs)
        answered, value = seam.attempt(args, kwargs)
        if answered:
            return value
        assert seam.original is not None
        return seam.original(*args, **kwargs)

    return call


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Modules of the package that are imported, by name."""
    for name, module in sorted(sys.modules.items()):
        if module is not None and (name == PACKAGE or name.startswith(f"{PACKAGE}.")):
            yield name, module


def _swap(pairs: list[tuple[Any, Any]]) -> list[list[str]]:
    """Replaces each first by its second in every module of the package and its classes."""
    index = {id(old): i for i, (old, _) in enumerate(pairs)}
    places: list[list[str]] = [[] for _ in pairs]

    def put(holder: Any, key: str, value: Any, where: str) -> None:
        i = index.get(id(value))
        if i is not None:
            setattr(holder, key, pairs[i][1])
            places[i].append(where)

    for name, module in list(modules()):
        for key, value in list(vars(module).items()):
            put(module, key, value, f"{name}.{key}")
            if isinstance(value, type) and value.__module__.startswith(PACKAGE):
                for method, function in list(vars(value).items()):
                    put(value, method, function, f"{name}.{key}.{method}")
    return places
