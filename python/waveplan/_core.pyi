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
