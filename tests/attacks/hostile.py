"""Hostile values: what a caller may pass by mistake or malice where a number or an array belongs.

Every value is made anew for each attack. `same` are other forms of an array that must give the
same answer as the plain one; `wrong` are values that are no such array; `things` are values for
any argument at all.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

Make = Callable[[], Any]
LEAST, MOST = -(2**63), 2**63 - 1


class CallersError(Exception):
    """Raised by hostile objects: the caller's own error, which may pass through."""


class Raises:
    """Every way to read it raises."""

    def _boom(self, *_: Any) -> Any:
        raise CallersError("the caller's own error")

    __index__ = __int__ = __float__ = __iter__ = __len__ = __getitem__ = __array__ = _boom
    __bool__ = __hash__ = __str__ = __lt__ = __le__ = __gt__ = __ge__ = _boom
    __eq__ = __ne__ = _boom  # type: ignore[assignment]


class Index:
    """An integer only by `__index__`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Drifting:
    """`__index__` answers something else each time."""

    def __init__(self) -> None:
        self.asked = 0

    def __index__(self) -> int:
        self.asked += 1
        return 10**12 * self.asked * (-1) ** self.asked


class LongLength:
    """Claims 2^40 entries and has none."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> int:
        raise IndexError(index)


NEGATIVE_LENGTH = "__len__() should return >= 0"
"""Python's own word on such an object, wherever it is asked for its length."""


class NegativeLength:
    def __len__(self) -> int:
        return -1

    def __getitem__(self, index: int) -> int:
        raise IndexError(index)


class LyingInterface:
    """Points numpy at an address that is not there, with no length to read."""

    __array_interface__ = {  # noqa: RUF012
        "shape": (-5,),
        "typestr": "<i8",
        "version": 3,
        "data": (0, True),
    }


class LyingArray:
    """`__array__` gives something that is no array."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return "not an array"


class EqualToAll(int):
    """Equal to everything; hashes like nothing."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


class Subclass(np.ndarray):
    """An array whose slices and shape lie."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: Any) -> Any:
        raise CallersError("subclass was indexed")

    @property
    def size(self) -> int:  # type: ignore[override]
        return 0


class PlainSubclass(np.ndarray):
    """A subclass that changes nothing."""


def numbers() -> dict[str, Make]:
    """Whole numbers at the edges of what machines hold."""
    table: dict[str, int] = {
        "minus one": -1,
        "zero": 0,
        "one": 1,
        "two": 2,
        "seven": 7,
        "2^31 - 1": 2**31 - 1,
        "2^31": 2**31,
        "2^32": 2**32,
        "2^53 + 1": 2**53 + 1,
        "2^62": 2**62,
        "2^63 - 1": MOST,
        "2^63": 2**63,
        "2^64": 2**64,
        "10^30": 10**30,
        "10^400": 10**400,
        "-2^31": -(2**31),
        "-2^63": LEAST,
        "-2^63 - 1": LEAST - 1,
        "-10^30": -(10**30),
    }
    return {name: (lambda value=value: value) for name, value in table.items()}


def odd() -> dict[str, Make]:
    """Values that are no whole number, no array and no object of ours."""
    return {
        "None": lambda: None,
        "True": lambda: True,
        "False": lambda: False,
        "1.5": lambda: 1.5,
        "1e300": lambda: 1e300,
        "nan": lambda: float("nan"),
        "inf": lambda: float("inf"),
        "-inf": lambda: float("-inf"),
        "-0.0": lambda: -0.0,
        "complex": lambda: 1j,
        "Decimal": lambda: Decimal(3),
        "Decimal nan": lambda: Decimal("nan"),
        "Fraction": lambda: Fraction(1, 3),
        "text 1": lambda: "1",
        "text": lambda: "x",
        "empty text": lambda: "",
        "surrogate": lambda: "\ud800",
        "lines": lambda: "a\nb\0c",
        "long text": lambda: "9" * 100_000,
        "bytes": lambda: b"1",
        "numpy int": lambda: np.int64(3),
        "numpy uint8": lambda: np.uint8(3),
        "numpy uint64": lambda: np.uint64(2**64 - 1),
        "numpy float": lambda: np.float64(2.0),
        "numpy nan": lambda: np.float32("nan"),
        "numpy bool": lambda: np.bool_(True),
        "numpy datetime": lambda: np.datetime64("NaT", "s"),
        "list": lambda: [1],
        "nested list": lambda: [[1], [2, 3]],
        "deep list": _deep,
        "list of itself": _cycle,
        "empty list": list,
        "tuple": lambda: (),
        "list of None": lambda: [None],
        "list of huge": lambda: [10**30, -(10**30)],
        "list of text": lambda: ["a", ""],
        "list of nan": lambda: [float("nan")],
        "dict": dict,
        "dict of itself": lambda: {"a": 1, 2: None},
        "set": lambda: {1},
        "range": lambda: range(2**62),
        "generator": lambda: (i for i in range(3)),
        "object": object,
        "class": lambda: int,
        "function": lambda: len,
        "module": lambda: np,
        "raises": Raises,
        "index": lambda: Index(2),
        "index raises": lambda: Index(None),
        "index huge": lambda: Index(10**30),
        "index drifts": Drifting,
        "equal to all": lambda: EqualToAll(3),
        "length lies": LongLength,
        "length below 0": NegativeLength,
        "interface lies": LyingInterface,
        "array lies": LyingArray,
    }


def _deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(500):
        made = [made]
    return made


def _cycle() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


def wrong(clean: np.ndarray) -> dict[str, Make]:
    """Arrays that do not hold one dimension of 64-bit integers."""
    size = len(clean)
    masked = np.ma.array(clean, mask=np.arange(size) == 0)
    return {
        "float64": lambda: clean.astype(np.float64),
        "float16": lambda: np.zeros(size, np.float16),
        "longdouble": lambda: clean.astype(np.longdouble),
        "nan": lambda: np.full(size, np.nan),
        "bool array": lambda: np.ones(size, np.bool_),
        "uint64 above": lambda: np.full(size, 2**64 - 1, np.uint64),
        "object": lambda: clean.astype(object),
        "object of None": lambda: np.full(size, None),
        "object of huge": lambda: np.array([10**30] * max(size, 1), object),
        "object of rows": lambda: np.array([[1], [2, 3]], object),
        "text array": lambda: clean.astype(str),
        "bytes array": lambda: clean.astype("S"),
        "void": lambda: np.zeros(size, "V8"),
        "datetime": lambda: clean.astype("datetime64[s]"),
        "timedelta": lambda: clean.astype("timedelta64[s]"),
        "complex array": lambda: clean.astype(np.complex128),
        "structured": lambda: np.zeros(size, [("a", np.int64), ("b", np.int8)]),
        "0-d": lambda: np.array(3),
        "2-d": lambda: np.zeros((size, 2), np.int64),
        "2-d column": lambda: clean.reshape(-1, 1),
        "2-d fortran": lambda: np.asfortranarray(np.zeros((3, 2), np.int64)),
        "40-d": lambda: np.zeros((1,) * 40, np.int64),
        "masked": lambda: masked.copy(),
        "empty": lambda: np.empty(0, np.int64),
        "empty float": lambda: np.empty(0),
        "2-d empty": lambda: np.empty((0, 5), np.int64),
        "lying subclass": lambda: clean.view(Subclass),
        "matrix of itself": lambda: np.broadcast_to(clean, (3, *clean.shape)),
    }


def filled(clean: np.ndarray) -> dict[str, Make]:
    """The array with one entry, or all, at the edges of what machines hold."""
    found: dict[str, Make] = {}
    for name, make in numbers().items():
        if len(clean) and LEAST <= make() <= MOST:
            found[f"first entry {name}"] = lambda make=make: _first(clean, make())
            found[f"every entry {name}"] = lambda make=make: np.full(clean.shape, make())
    return found


def _first(clean: np.ndarray, value: int) -> np.ndarray:
    made = clean.astype(np.int64)
    made.reshape(-1)[0] = value
    return made


def same(clean: np.ndarray) -> dict[str, Make]:
    """Other forms of the same whole numbers."""
    made: dict[str, Make] = {
        "read-only": lambda: _locked(clean.copy()),
        "big-endian": lambda: clean.astype(">i8"),
        "stride 2": lambda: np.repeat(clean, 2)[::2],
        "stride -1": lambda: clean[::-1].copy()[::-1],
        "fortran column": lambda: np.asfortranarray(np.stack([clean, clean], 1))[:, 0],
        "row of fortran": lambda: np.asfortranarray(np.stack([clean, clean]))[1],
        "misaligned": lambda: _misaligned(clean),
        "field of records": lambda: _field(clean),
        "memory-mapped": lambda: _mapped(clean),
        "mmap buffer": lambda: _buffer(clean),
        "subclass": lambda: clean.copy().view(PlainSubclass),
        "memmap subclass": lambda: clean.copy().view(np.recarray),
        "a view of a view": lambda: np.concatenate([clean, clean])[len(clean) :],
    }
    if len(clean) and (clean == clean[0]).all():
        made["stride 0"] = lambda: np.broadcast_to(clean[:1], clean.shape)
    for kind in (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64):
        limits = np.iinfo(kind)
        if not len(clean) or (clean.min() >= limits.min and int(clean.max()) <= limits.max):
            made[np.dtype(kind).name] = lambda kind=kind: clean.astype(kind)
            swapped = np.dtype(kind).newbyteorder(">")
            made[f"big-endian {np.dtype(kind).name}"] = lambda to=swapped: clean.astype(to)
    return made


def _locked(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _misaligned(clean: np.ndarray) -> np.ndarray:
    raw = b"\1" + clean.astype("<i8").tobytes()
    return np.frombuffer(raw, "<i8", offset=1)


def _field(clean: np.ndarray) -> np.ndarray:
    records = np.zeros(len(clean), [("a", "<i1"), ("b", "<i8")])
    records["b"] = clean
    return records["b"]


def _mapped(clean: np.ndarray) -> np.ndarray:
    if not len(clean):
        return clean.copy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        clean.astype("<i8").tofile(path)
        return np.memmap(path, "<i8", "r")


def _buffer(clean: np.ndarray) -> np.ndarray:
    region = mmap.mmap(-1, max(1, clean.nbytes))
    region[: clean.nbytes] = clean.astype("<i8").tobytes()
    return np.frombuffer(region, "<i8", count=len(clean))


def things() -> Iterator[tuple[str, Make]]:
    """Values for any argument."""
    yield from numbers().items()
    yield from odd().items()
    for name, make in wrong(np.arange(3)).items():
        yield f"array: {name}", make
