"""Checks of single values that come from a caller."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from waveplan.errors import InputError

# Sizes live in signed 64-bit integers on the other side of the border.
LARGEST = 2**63 - 1


def integer(name: str, value: object, least: int = 0, most: int = LARGEST) -> int:
    """``value`` as an int within [least, most]; booleans and floats are refused."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be an integer, not {value!r}") from None
    if not least <= number <= most:
        bound = f"at least {least}" if number < least else f"at most {most}"
        bits = number.bit_length()
        # Python refuses to write out more than some thousand digits.
        shown = str(number) if bits <= 256 else f"a number of {bits} bits"
        raise InputError(f"{name} is {shown}: it must be {bound}")
    return number


def flag(name: str, value: object) -> bool:
    """``value`` if it is a bool."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {value!r}")
    return value


def choice(name: str, value: object, among: Iterable[str]) -> str:
    """``value`` if it is one of ``among``."""
    names = tuple(among)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name} is {value!r}: it must be one of {', '.join(names)}")
    return value
