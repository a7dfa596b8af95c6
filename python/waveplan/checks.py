"""Checks of what a caller gives: each returns the value, or raises one line that names it."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waveplan.errors import InputError

__all__ = [
    "LARGEST",
    "MOST_RANKS",
    "attributes",
    "choice",
    "entries",
    "first_line",
    "flag",
    "instance",
    "integer",
    "integers",
    "mapping",
    "real",
    "shown",
    "text",
]

LARGEST = 2**63 - 1
"""Largest size: the core counts in signed 64-bit integers."""
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
    """``value`` as a bool, if it is one or numpy's."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


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
    return tuple(value)


def attributes(name: str, value: object, *parts: str) -> tuple[Any, ...]:
    """Attributes of a value that may be of any class that has them."""
    if isinstance(value, type) or not all(hasattr(value, part) for part in parts):
        raise InputError(f"{name} must have {' and '.join(parts)}, not {shown(value)}")
    return tuple(getattr(value, part) for part in parts)


def integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """``values`` as a one-dimensional, contiguous, aligned, native int64 array.

    Such an array is returned as it is, without a copy; other integers are converted once.

    Raises:
        InputError: not integers (floats, bools, objects), another rank, or a value past 2^63 - 1.
    """
    if type(values) is np.ndarray and values.ndim == 1 and values.dtype == np.int64:
        flags = values.flags
        if flags.c_contiguous and flags.aligned:
            return values
    # Slow to import, and none exists before that.
    if "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: give a plain array of integers")
    if isinstance(values, list | tuple) and bool in set(map(type, values)):
        raise InputError(_first_wrong(name, values))
    try:
        array = np.asarray(values)
        whole = array.dtype.kind in "iu"
        made = np.require(array, np.int64 if whole else None, ["C", "A", "ENSUREARRAY"])
    except (ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        raise InputError(f"{name} is not an array of integers: {first_line(error)}") from None
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: give one dimension")
    if not whole and isinstance(values, np.ndarray):
        raise InputError(f"{name} has dtype {array.dtype}: give integers")
    if not whole and array.size:
        raise InputError(_first_wrong(name, values))
    if array.dtype == np.uint64 and array.size and made.min() < 0:
        at = int(made.argmin())
        raise InputError(f"{name}[{at}] is {array[at]}: it must be below 2**63")
    return made if whole else np.empty(0, np.int64)  # an empty list has no type


def _first_wrong(name: str, values: ArrayLike) -> str:
    """Describe the first entry that is no 64-bit integer."""
    for index, value in enumerate(np.array(values, object).tolist()):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not -LARGEST - 1 <= value <= LARGEST:
            return f"{name}[{index}] is {shown(value)}: give integers below 2**63"
    return f"{name} has mixed types: give integers below 2**63"


def first_line(error: BaseException) -> str:
    """The first line of a library's message, or the error's name if it has none."""
    return str(error).partition("\n")[0] or type(error).__name__


def columns(value: Any) -> dict[str, Any]:
    """Return the fields of one of the core's values, by name."""
    return {name: getattr(value, name) for name in value.__match_args__}
