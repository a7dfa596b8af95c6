"""Whether sequences fit a model: its vocabulary and its context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from waveplan.errors import InputError

if TYPE_CHECKING:
    from waveplan.sequences.requests import Requests
    from waveplan.sequences.sequences import Sequences

__all__ = ["check_requests", "check_vocabulary", "read_as", "unfit"]


def check_vocabulary(sequences: Sequences, vocab: int) -> None:
    """Refuse token ids that a model does not have.

    Raises:
        InputError: names the sequence's place, the position and the id.
    """
    tokens = sequences.tokens
    if tokens.max(initial=0) < vocab:
        return
    at = int(np.argmax(tokens >= vocab))
    sequence = int(np.searchsorted(sequences.offsets, at, side="right")) - 1
    raise InputError(
        f"{sequences.place(sequence)}: token {at - int(sequences.offsets[sequence])} is "
        f"{tokens[at]}: the model's vocabulary has {vocab} ids; is it another model's file?"
    )


def check_requests(pool: Requests, vocab: int) -> None:
    """Refuse an empty sequence of a file, and ids that a model does not have, by their places.

    Raises:
        InputError: names the place and what leaves it out.
    """
    sequences = pool.sequences
    lengths = pool.lengths
    if sequences.origin is not None and len(lengths) and not lengths.min():
        place = sequences.place(int(lengths.argmin()))
        raise InputError(f"{place}: is empty: load(..., skip_empty=True) leaves such out")
    if pool.largest >= vocab:
        check_vocabulary(sequences, vocab)


def read_as(sequences: Sequences, targets: str) -> Iterator[str]:
    """Yield a line about what a reader dropped or cut, and about labels that are not asked for."""
    origin = sequences.origin
    if origin is None:
        return

    def by(use: str) -> str:
        return ", ".join(name for name, told in origin.used.items() if use in told)

    if origin.pads:
        yield f"{origin.pads:,} pads dropped ({by('pads') or '--pad'})"
    if cut := by("packed sequences"):
        yield f"packed lines are cut into their sequences ({cut})"
    if targets == "all" and sequences.labelled is not None:
        labelled, all_of = int(sequences.labelled.sum()), len(sequences.tokens)
        yield (
            f"every token is labelled (--targets all); the file labels {labelled:,} of {all_of:,}"
        )


def unfit(sequences: Sequences, vocab: int, context: int) -> Iterator[str]:
    """Yield a line about sequences that are longer than a model's context.

    Raises:
        InputError: see `check_vocabulary`.
    """
    check_vocabulary(sequences, vocab)
    if not context:
        return
    long = np.flatnonzero(sequences.lengths > context)
    if long.size:
        first = int(long[0])
        more = f" and {long.size - 1} more" if long.size > 1 else ""
        yield (
            f"{sequences.place(first)}{more}: {sequences.lengths[first]} tokens, longer than the "
            f"model's context of {context}: cut or drop what is longer"
        )
