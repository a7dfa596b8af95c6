"""Which sequences share a micro-batch: drop-ins for other trainers' own balancing.

`verl`, `slime` (miles too), `nemo_rl` and `trl` have functions of the trainer's own names,
arguments, results and errors, over `waveplan.balance`. All take ``planner=`` besides: no
micro-batch then requires more bytes than the planner has available. Lengths alone share no
prefixes; `Planner.waves` takes the tokens themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from waveplan._core import Balance, balance
from waveplan.refusal import WaveRefused
from waveplan.sequences.requests import Requests
from waveplan.sequences.sequences import Sequences

if TYPE_CHECKING:
    from waveplan.planner import Planner

__all__ = ["deal", "lists", "whole"]

MOST = 1 << 62
"""Most work of all items: what lies above is scaled down."""


def lists(parts: Iterable[Any]) -> list[list[int]]:
    """The items of each part as lists of integers."""
    return [part.tolist() for part in parts]


def whole(values: Iterable[Any]) -> list[int]:
    """Work as integers that add up in 63 bits, halved until it does; fractions, such as seconds,
    in units of 2**-40 of the largest."""
    given: list[Any] = [
        value if isinstance(value, int | np.integer) else float(value) for value in values
    ]
    if all(value == round(value) for value in given):
        made = [int(value) for value in given]
    else:
        unit = max(map(abs, given)) / (1 << 40)
        made = [round(float(value) / unit) for value in given]
    shift = max(0, sum(made).bit_length() - MOST.bit_length())
    return [value >> shift for value in made] if shift else made


def deal(
    lengths: Any,
    work: Any = None,
    cap: int | None = None,
    parts: int | None = None,
    multiple_of: int = 1,
    planner: Planner | None = None,
    members: Any = None,
) -> Balance:
    """Deal sequences into micro-batches as `waveplan.balance` does, within bytes too.

    Args:
        lengths: tokens of each sequence.
        work: what is balanced, by default the lengths.
        cap: most tokens of a micro-batch.
        parts: least number of micro-batches.
        multiple_of: the number of micro-batches is a multiple of it.
        planner: prices each micro-batch as one forward of sequences that share nothing, every token
            labelled; none requires more than the planner's `available`.
        members: the sequences' lengths of each item, where items are groups of sequences.

    Raises:
        WaveRefused: a sequence alone requires more than is available.
    """
    lengths = np.asarray(lengths, np.int64)
    if planner is None or not len(lengths):
        return balance(lengths, work, cap, parts, multiple_of)
    given = lengths[:, None] if members is None else members
    longest = int(lengths.argmax())
    planner.plan(_requests(given[longest]))
    most = _widest(planner, int(lengths[longest]), int(lengths.sum()))
    most = most if cap is None else min(most, cap)
    while True:
        made = balance(lengths, work, most, parts, multiple_of)
        sequences = [np.concatenate([given[item] for item in part]) for part in made.parts]
        above = [part for part in sequences if not _fits(planner, part)]
        if not above:
            return made
        for part in above:
            if len(part) == 1:
                planner.plan(_requests(part))  # a sequence that fits in no part
        most = max(1, min(most, max(int(part.sum()) for part in above)) * 127 // 128)


def _requests(lengths: Any) -> Requests:
    ends = np.cumsum(lengths, dtype=np.int64)
    tokens = np.zeros(ends[-1], np.int64)
    return Requests(Sequences(tokens, np.concatenate(([0], ends))), sharing=False)


def _fits(planner: Planner, lengths: Any) -> bool:
    try:
        return not planner.plan(_requests(lengths)).split
    except WaveRefused:
        return False


def _widest(planner: Planner, longest: int, total: int) -> int:
    """Most tokens of one sequence that fits, from the longest on."""
    low, high = longest, total + 1
    while high - low > max(1, low // 256):
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(planner, [middle]) else (low, middle)
    return low
