"""The compiled core. Arrays are one-dimensional, contiguous and int64 unless said otherwise."""

from collections.abc import Sequence
from typing import Self, final

from numpy import int64
from numpy.typing import NDArray

__version__: str

# --- tree ---

# --- pack ---

# --- layout ---

# --- assign ---

# --- recurrent ---

# --- measures ---

PLAN_MEASURES: list[tuple[str, str]]
GROUP_MEASURES: list[tuple[str, str]]

# --- price ---

PRICE_ROOTS: list[str]
"""Names of the results that every bound price program has, in their order."""

@final
class Program:
    """A bound price: a graph of integer operations over a plan's measures."""

    def __new__(
        cls,
        nodes: Sequence[tuple[str, Sequence[int]]],
        factors: Sequence[float],
        roots: Sequence[int],
    ) -> Self: ...
    def evaluate(self, plan: NDArray[int64], groups: NDArray[int64], width: int) -> list[int]:
        """Results over one plan; `groups` holds `width` measures per group, flattened."""
    def __len__(self) -> int: ...

# --- width ---

def width_search(
    items: int,
    start: int,
    dp: int,
    hint: int | None,
    composite: bool,
    bits: NDArray[int64],
) -> tuple[int, str, int, int, list[tuple[int, int]]]:
    """Chosen width (0: ladder), why it stopped, at which width, rejected widths, quotes asked."""

def width_geometry(items: int, start: int, dp: int) -> tuple[int, int, int]:
    """Remaining items, minimum width, granularity."""

def width_normalize(items: int, start: int, dp: int, width: int) -> int:
    """`width` clamped to what is left and floored to the granularity."""

def split_cut(tokens: NDArray[int64], count: int) -> list[int]:
    """Ends of `count` runs of about equal tokens."""
