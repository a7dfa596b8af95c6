"""Arrays of tensors, and values of the other package's classes with fields computed when read."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ._seams import Declined

Int64 = NDArray[np.int64]


class Search(threading.local):
    """What one search of this thread has read already, in every part of a plan."""

    facts: dict[Any, Any] | None = None
    """By key: configurations, and what walks of the model found; None outside of a search."""
    planning = False
    """A plan is being made: its fingerprints and tensors are made late."""


SEARCH = Search()


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """Keep what is read until the search ends."""
    SEARCH.facts = {}
    try:
        yield
    finally:
        SEARCH.facts = None


def once(key: Any, read: Callable[[], Any]) -> Any:
    """Return what this search has read by this key; outside of a search, read it."""
    facts = SEARCH.facts
    if facts is None:
        return read()
    if key not in facts:
        facts[key] = read()
    return facts[key]


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """Make nothing of a plan that can be made late."""
    SEARCH.planning = True
    try:
        yield
    finally:
        SEARCH.planning = False


def array(tensor: Any) -> Int64:
    """Return the numbers of a CPU tensor as int64; copy only those of another type."""
    if not tensor.is_cpu:
        raise Declined
    if tensor.dtype is not torch.long or tensor.ndim != 1 or not tensor.is_contiguous():
        tensor = tensor.detach().reshape(-1).to(dtype=torch.long).contiguous()
    numbers: Int64 = tensor.numpy()
    return numbers


def arrays(sequences: Iterable[Any]) -> list[Int64]:
    """Return tokens given as CPU tensors or as sequences of integers."""
    return [array(s) if isinstance(s, torch.Tensor) else integers(s) for s in sequences]


def integers(sequence: Sequence[int]) -> Int64:
    """Return tokens given as integers; decline any that do not fit int64."""
    numbers = np.asarray(sequence)
    if numbers.size == 0:
        return np.empty(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind != "i":
        raise Declined
    return np.ascontiguousarray(numbers, dtype=np.int64)


def members(offsets: Int64, flat: Int64) -> list[tuple[int, ...]]:
    """Return ragged numbers as tuples."""
    numbers = flat.tolist()
    return [tuple(numbers[a:b]) for a, b in pairwise(offsets.tolist())]


def filled(cls: type, **values: Any) -> Any:
    """Make an instance of a frozen dataclass with these fields, unchecked."""
    made: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def holds(value: Any, cls: type, name: str) -> bool:
    """Return whether a value is one of ours with what ours keeps in it; a replaced one is not."""
    return type(value) is cls and hasattr(value, name)


class _Missing:
    """Stands for a field until it is set on the instance."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, value: Any, owner: Any = None) -> Any:
        if value is None:
            raise AttributeError(self.name)
        return value.__getattr__(self.name)


def late(
    base: type,
    part: Callable[[Any, str], Any],
    extra: tuple[str, ...] = (),
    for_now: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
) -> Any:
    """Make a subclass of a frozen dataclass whose missing fields are computed when first read.

    ``part(value, name)`` returns a field; ``extra`` names attributes of our own; a function of
    ``for_now`` returns what a field is read as for the time being, or None. An instance equals the
    plain one with the same fields, hashes alike, and pickles as the plain one.
    """
    names = tuple(field.name for field in dataclasses.fields(base))
    slotted = "__slots__" in vars(base)
    # A field's default is an attribute of the class, which would be found first.
    defaults = {name: _Missing(name) for name in names if name in vars(base) and not slotted}

    def missing(self: Any, name: str) -> Any:
        if name not in names:
            raise AttributeError(name)
        if name in for_now and (value := for_now[name](self)) is not None:
            return value
        value = part(self, name)
        object.__setattr__(self, name, value)
        return value

    def fields(self: Any) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in names)

    def equal(self: Any, other: object) -> Any:
        if self is other:
            return True
        return fields(self) == fields(other) if isinstance(other, base) else NotImplemented

    return type(
        base.__name__,
        (base,),
        {
            **defaults,
            "__slots__": extra if slotted else (),
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__getattr__": missing,
            "__eq__": equal,
            "__hash__": lambda self: hash(fields(self)),
            "__reduce__": lambda self: (base, fields(self)),
        },
    )
