"""Drop-ins for ``nemo_rl.data.packing``: one packer under all of its algorithms' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from waveplan.errors import InputError
from waveplan.integrations.balance import deal, lists

if TYPE_CHECKING:
    from waveplan.planner import Planner

__all__ = ["ALGORITHMS", "SequencePacker", "get_packer"]

ALGORITHMS = (
    "CONCATENATIVE",
    "FIRST_FIT_DECREASING",
    "FIRST_FIT_SHUFFLE",
    "MODIFIED_FIRST_FIT_DECREASING",
)
"""Names that `get_packer` takes, in any case, or as members of NeMo-RL's enumeration."""


class SequencePacker:
    """Packs sequences into the fewest bins that were found, as even as they can be.

    Args:
        bin_capacity: most tokens of a bin; a longer sequence is a bin of its own.
        min_bin_count: least number of bins.
        bin_count_multiple: the number of bins is a multiple of it.
        planner: prices bins; none requires more bytes than it has available.

    Raises:
        ValueError: a negative ``min_bin_count``, or a ``bin_count_multiple`` below 1.
    """

    def __init__(
        self,
        bin_capacity: int,
        collect_metrics: bool = False,
        min_bin_count: int | None = None,
        bin_count_multiple: int | None = None,
        *,
        planner: Planner | None = None,
    ) -> None:
        if collect_metrics:
            raise ValueError("collect_metrics is True: the metrics are NeMo-RL's, give it the bins")
        if min_bin_count is not None and min_bin_count < 0:
            raise ValueError(f"min_bin_count is {min_bin_count}: it must be at least 0")
        if bin_count_multiple is not None and bin_count_multiple < 1:
            raise ValueError(f"bin_count_multiple is {bin_count_multiple}: it must be at least 1")
        self.bin_capacity = bin_capacity
        self.min_bin_count, self.bin_count_multiple = min_bin_count, bin_count_multiple
        self.planner = planner
        self.oversized: list[int] = []
        """Sequences of the last `pack` above the capacity, each a bin of its own."""

    def pack(self, sequence_lengths: Sequence[int]) -> list[list[int]]:
        """Return the sequences of each bin.

        Raises:
            ValueError: fewer sequences than bins.
        """
        multiple = self.bin_count_multiple or 1
        least = -(-(self.min_bin_count or 0) // multiple) * multiple
        count = len(sequence_lengths)
        if least > count:
            raise ValueError(f"Cannot create {least} bins with only {count} sequences")
        try:
            made = deal(
                sequence_lengths, None, self.bin_capacity, least or None, multiple, self.planner
            )
        except InputError:
            bins = -(-(count + 1) // multiple) * multiple
            message = f"Cannot create {bins} bins with only {count} sequences"
            raise ValueError(message) from None
        self.oversized = made.oversized.tolist()
        return lists(made.parts)


def get_packer(
    algorithm: Any,
    bin_capacity: int,
    collect_metrics: bool = False,
    min_bin_count: int | None = None,
    bin_count_multiple: int | None = None,
    *,
    planner: Planner | None = None,
) -> SequencePacker:
    """Return the packer, whichever of `ALGORITHMS` is named.

    Raises:
        ValueError: no such algorithm, or as `SequencePacker`.
    """
    name = algorithm if isinstance(algorithm, str) else getattr(algorithm, "name", None)
    if str(name).upper() not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise ValueError(f"algorithm is {algorithm!r}: it must be one of {known}")
    return SequencePacker(
        bin_capacity, collect_metrics, min_bin_count, bin_count_multiple, planner=planner
    )
