"""Checks of single values that come from a caller."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sized
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from waveplan.errors import InputError

# Sizes live in signed 64-bit integers on the other side of the border.
LARGEST = 2**63 - 1
MOST_ENTRIES = 1 << 32
"""Entries of a list: rows and segments are numbered with 32 bits."""
MOST_ABSENT = 1 << 24
"""Entries of an array that an array claims without holding them."""
MOST_RANKS = 1 << 12
"""Ranks of a tensor- or context-parallel group."""
_LONGEST = 80

T = TypeVar("T")


def shown(value: object) -> str:
    """``value`` in a message: one short line, whatever it is."""
    try:
        plain = str(value) if isinstance(value, np.integer) else repr(value)
        text = " ".join(plain.split("\n"))
    except Exception:  # its own repr fails, or is an integer of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def integer(name: str, value: object, least: int = 0, most: int = LARGEST) -> int:
    """``value`` as an int within [least, most]; booleans and floats are refused."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be an integer, not {shown(value)}") from None
    if not least <= number <= most:
        bound = f"at least {least}" if number < least else f"at most {most}"
        raise InputError(f"{name} is {shown(number)}: it must be {bound}")
    return number


def real(name: str, value: object, least: float = 0.0, most: float = math.inf) -> float:
    """``value`` as a finite float within [least, most]; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f"{name} must be a number, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and least <= number <= most):
        bound = "" if most == math.inf else f" and at most {most:g}"
        raise InputError(
            f"{name} is {shown(value)}: it must be finite and at least {least:g}{bound}"
        )
    return number


def flag(name: str, value: object) -> bool:
    """``value`` if it is a bool."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {shown(value)}")
    return value


def text(name: str, value: object) -> str:
    """``value`` if it is text."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {shown(value)}")
    return value


def choice(name: str, value: object, among: Iterable[str]) -> str:
    """``value`` if it is one of ``among``."""
    names = tuple(among)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name} is {shown(value)}: it must be one of {', '.join(names)}")
    return value


def instance(name: str, value: object, kind: type[T]) -> T:
    """``value`` if it is of a class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise InputError(f"{name} must be {article} {kind.__name__}, not {shown(value)}")
    return value


def mapping(name: str, value: object) -> Mapping[Any, Any]:
    """``value`` if it is a mapping."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be a dict, not {shown(value)}")
    return value


def entries(name: str, value: object) -> tuple[Any, ...]:
    """The entries of a list or of another collection, text apart."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a list, not {shown(value)}")
    if isinstance(value, np.ndarray) and value.ndim == 0:
        raise InputError(f"{name} must be a list, not {shown(value)}")
    countable(name, value)
    try:
        return tuple(value)
    except MemoryError:
        raise InputError(f"{name} has more entries than fit in memory") from None


def countable(name: str, value: object) -> None:
    """Refuses a collection that says it has more entries than any call takes.

    Some interpreters take memory for them one by one, or for all at once, until none is left.
    """
    if isinstance(value, Sized) and not isinstance(value, np.ndarray):
        size(name, value)


def size(name: str, value: Sized) -> int:
    """How many entries a collection says it has, at most `MOST_ENTRIES`."""
    try:
        many = len(value)
    except OverflowError:
        many = MOST_ENTRIES + 1
    except Exception as error:  # such as a tensor without dimensions
        reason = str(error).partition("\n")[0]
        raise InputError(f"{name} cannot say how many entries it has: {reason}") from None
    if many > MOST_ENTRIES:
        raise InputError(f"{name} has more entries than fit in memory")
    return many


def present(name: str, array: NDArray[Any]) -> None:
    """Refuses an array that names far more entries than lie in memory, by strides that repeat."""
    if array.size <= MOST_ABSENT:
        return
    spans = (abs(by) * (n - 1) for by, n in zip(array.strides, array.shape, strict=True))
    if sum(spans) + array.itemsize < array.nbytes:
        raise InputError(
            f"{name} has shape {array.shape} by repeating what it holds: an array that repeats "
            f"itself may have {MOST_ABSENT} entries"
        )


def columns(value: Any) -> dict[str, Any]:
    """The fields of one of the core's values, by name."""
    return {name: getattr(value, name) for name in value.__match_args__}


def attributes(name: str, value: object, *parts: str) -> tuple[Any, ...]:
    """Attributes of a value that may be of any class that has them."""
    if isinstance(value, type) or not all(hasattr(value, part) for part in parts):
        raise InputError(f"{name} must have {' and '.join(parts)}, not {shown(value)}")
    return tuple(getattr(value, part) for part in parts)
