"""Devices by name: the memory that CUDA reports of them, and their architecture.

The bytes are the smallest total that PyTorch's messages of 2024 to 2026 give for the device ("has a
total capacity of 79.11 GiB"); drivers and ECC move it by up to 0.2 GiB. The marketing size is no
number of bytes: an "80GB" card reports 79.1 GiB, which are 84.9 GB.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from waveplan.checks import shown, text
from waveplan.errors import InputError

__all__ = ["ARCHITECTURES", "GPUS", "Gpu", "gpu_named"]

ARCHITECTURES = ("ampere", "hopper", "blackwell")


class Gpu(NamedTuple):
    """A device as it is sold."""

    name: str
    sold_as: str
    """Its memory as advertised."""
    gib: float
    """GiB that CUDA reports."""
    architecture: str

    @property
    def bytes(self) -> int:
        """Bytes that CUDA reports."""
        return int(self.gib * 2**30)

    def __str__(self) -> str:
        return f"{self.name} {self.sold_as}"


GPUS = {
    gpu[0]: Gpu(*gpu)
    for gpu in (
        ("A100-40", "40GB", 39.38, "ampere"),
        ("A100-80", "80GB", 79.14, "ampere"),
        ("H100", "80GB", 79.11, "hopper"),
        ("H200", "141GB", 139.72, "hopper"),
        ("B200", "180GB", 178.35, "blackwell"),
        ("GB200", "186GB", 184.31, "blackwell"),
        ("B300", "288GB", 267.69, "blackwell"),
    )
}


def gpu_named(name: str, value: object) -> Gpu:
    """Return a device by its name, in letters of either case, with or without its size.

    Raises:
        InputError: it is not known; the message names those that are.
    """
    asked = text(name, value).upper().removeprefix("NVIDIA").strip(" -")
    plain = asked.replace(" ", "-").removesuffix("GB")
    for gpu in GPUS.values():
        if plain in (gpu.name, f"{gpu.name}-{gpu.sold_as.removesuffix('GB')}"):
            return gpu
    close = [gpu for gpu in GPUS if gpu.startswith(plain[:4])] if len(plain) > 3 else []
    close = close or difflib.get_close_matches(plain[:40], GPUS, n=2)
    known = f"did you mean {' or '.join(close)}" if close else f"known are {', '.join(GPUS)}"
    raise InputError(f"{name} is {shown(value)}: {known}; or give the device's bytes as the budget")
