"""Bytes as text, and the bytes of a device that waves may use."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from waveplan.checks import LARGEST, flag, integer, real, shown
from waveplan.errors import InputError, NothingLeftError
from waveplan.facts.fields import check, given
from waveplan.facts.gpus import gpu_named

__all__ = ["Budget", "format_bytes", "parse_bytes"]

MARGIN = 0.1
"""Share of the available bytes that is kept back while a rule that matters is doubtful."""
RESERVE = 0.03
"""Share of a device that is kept back."""

_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS = {
    unit.lower(): base**step
    for base, units in ((1000, _DECIMAL), (1024, _BINARY))
    for step, unit in enumerate(units)
}
_TEXT = re.compile(r"([0-9][0-9_]{0,40}(?:\.[0-9]{1,40})?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)


def parse_bytes(value: object, name: str = "bytes") -> int:
    """Return a positive number of bytes from an integer or from text such as "139 GiB" or "80GB".

    Decimal (kB, MB, GB, TB) and binary (KiB, MiB, GiB, TiB) units are told apart; fractions
    of a byte are dropped. ``name`` is what an error message calls the value.

    Raises:
        InputError: not a number of bytes, not positive, or above 2**63 - 1.
    """
    if isinstance(value, str):
        number = _parse_text(value, name)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{name} is {value}: it must be a finite number of bytes")
        if not value.is_integer():
            raise InputError(f"{name} is {value}: write a whole number of bytes, or '1.5 GiB'")
        number = int(value)
    else:
        try:
            number = integer(name, value, -LARGEST)
        except InputError:
            raise InputError(
                f"{name} must be a number of bytes such as 149250113536 or '139 GiB', "
                f"not {shown(value)}"
            ) from None
    if not 0 < number <= LARGEST:
        raise InputError(f"{name} is {shown(value)}: it must be positive and below 2**63 bytes")
    return number


def _parse_text(text: str, name: str) -> int:
    match = _TEXT.fullmatch(text.strip()) if len(text) < 100 else None
    unit = (match[2].lower() or "b") if match else ""
    if match is not None and not match[2] and 0 < float(match[1].replace("_", "")) < 1 << 20:
        raise InputError(
            f"{name} is {shown(text)}, which is in bytes: write {match[1]}GiB, or the unit you mean"
        )
    if match is None or unit not in _UNITS:
        raise InputError(
            f"{name} is {shown(text)}: write bytes, or a number with a unit such as '139 GiB' or "
            "'80GB'"
        )
    return int(Fraction(match[1].replace("_", "")) * _UNITS[unit])


def format_bytes(value: int, *, decimal: bool = False) -> str:
    """Return bytes as text: "139.00 GiB", or "149.25 GB" with ``decimal``."""
    flag("decimal", decimal)
    if isinstance(value, float):
        real("value", value, -1e30, 1e30)
    else:
        value = integer("value", value, -(10**30), 10**30)
    base, units = (1000, _DECIMAL) if decimal else (1024, _BINARY)
    size, step = Fraction(value), 0
    # Promote what would print as a full thousand of the smaller unit.
    while step + 1 < len(units) and abs(size) >= base - Fraction(1, 200):
        size, step = size / base, step + 1
    return f"{value} B" if step == 0 else f"{float(size):,.2f} {units[step]}"


def _size(name: str, value: object) -> int:
    return parse_bytes(value, name)


def _resident(name: str, value: object) -> int:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    nothing = (number and value == 0) or value == "0"
    return 0 if nothing else parse_bytes(value, name)


def _reserve(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a fraction of the device, not {shown(value)}")
    if not 0 <= value < 1:
        raise InputError(f"{name} is {value}: it must be at least 0 and below 1")
    return value


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that a rank may use, as numbers or text such as "139 GiB".

    Either ``device``, the device's total, of which ``reserve`` (a fraction), ``resident``
    (bytes allocated between waves; computed from the rules when None) and ``colocated`` (bytes of
    other processes, such as a rollout engine) are taken; or ``available``, the bytes that a wave
    may use, all of them. `Budget.gpu` knows some devices by name.

    Raises:
        InputError: neither or both are given, a size is no positive number of bytes, or
            nothing is left.
    """

    device: int | str | None = given(None, "the device's total", _size)
    resident: int | str | None = given(
        None,
        "allocated between waves, where it was measured (default: by the rules)",
        _resident,
        option="memory",
        metavar="BYTES",
    )
    reserve: float = given(
        RESERVE,
        "share of the device never used (default: 0.03)",
        _reserve,
        option="memory",
        kind="share",
        metavar="SHARE",
    )
    colocated: int | str = given(
        "0",
        "bytes of the device that other processes hold, such as a rollout engine",
        _resident,
        option="memory",
        metavar="BYTES",
    )
    available: int | str | None = given(
        None, 'available for waves, such as "70GiB"', _size, option="memory", metavar="BYTES"
    )

    def __post_init__(self) -> None:
        if (self.device is None) == (self.available is None):
            raise InputError(
                "a budget is either device= (its total) or available= (bytes for waves)"
            )
        check(self)
        for name, absent in (("reserve", RESERVE), ("resident", None), ("colocated", 0)):
            if self.available is not None and getattr(self, name) != absent:
                raise InputError(f"{name} is only taken from device=, not from available=")
        if self.resident is not None:
            self.resolve()

    @classmethod
    def gpu(
        cls,
        name: str,
        *,
        resident: int | str | None = None,
        reserve: float = RESERVE,
        colocated: int | str = 0,
    ) -> Budget:
        """The budget of a device by name, such as "H100": the total that CUDA reports of it.

        Raises:
            InputError: the name is not in `waveplan.facts.gpus`.
        """
        device = gpu_named("gpu", name).bytes
        return cls(device=device, resident=resident, reserve=reserve, colocated=colocated)

    def __str__(self) -> str:
        if isinstance(self.available, int):
            return f"{format_bytes(self.available)} available"
        assert isinstance(self.device, int)
        assert isinstance(self.colocated, int)
        parts = [f"a device of {format_bytes(self.device)}", f"{self.reserve:.0%} never used"]
        if isinstance(self.resident, int):
            parts.append(f"{format_bytes(self.resident)} resident")
        if self.colocated:
            parts.append(f"{format_bytes(self.colocated)} colocated")
        return ", ".join(parts)

    @property
    def reserved(self) -> int:
        """Bytes of the device kept back."""
        return int(self.device * self.reserve) if isinstance(self.device, int) else 0

    @property
    def needs_resident(self) -> bool:
        """Whether the resident bytes are still to be computed."""
        return self.available is None and self.resident is None

    def resolve(self, resident: int | None = None, step: int = 0) -> int:
        """Return the available bytes; ``resident`` is used when the budget states none.

        Args:
            step: what an optimizer's step needs of the device by itself, no wave beside it.

        Raises:
            InputError: resident is stated nowhere, nothing is left, or the step does not fit.
        """
        if isinstance(self.available, int):
            return self.available
        assert isinstance(self.device, int)
        used = self.resident if self.resident is not None else resident
        if used is None:
            raise InputError("the budget states the device's total: resident bytes are needed too")
        used = integer("resident", used)
        assert isinstance(self.colocated, int)
        left = self.device - self.reserved - used - self.colocated
        others = f", colocated {format_bytes(self.colocated)}" if self.colocated else ""
        if left <= 0:
            raise NothingLeftError(
                f"nothing is left for waves: device {format_bytes(self.device)}, resident "
                f"{format_bytes(used)}, reserve {format_bytes(self.reserved)}{others}"
            )
        if step > used + left:
            raise NothingLeftError(
                f"the optimizer's step does not fit: device {format_bytes(self.device)}, at the "
                f"step {format_bytes(step)}, reserve {format_bytes(self.reserved)}{others}"
            )
        return left
