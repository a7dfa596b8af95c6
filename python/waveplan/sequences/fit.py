"""Whether sequences fit a model: its vocabulary and its context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from waveplan.errors import InputError

if TYPE_CHECKING:
    from waveplan.sequences.sequences import Sequences

__all__ = ["check_vocabulary", "unfit"]


def check_vocabulary(sequences: Sequences, vocab: int) -> None:
    """Refuse token ids that a model does not have.

    Raises:
        InputError: names the sequence's place, the position and the id.
    """
    tokens, origin = sequences.tokens, sequences.origin
    known = origin is not None and origin.largest < vocab
    if known or not tokens.size or tokens.max() < vocab:
        return
    at = int(np.argmax(tokens >= vocab))
    sequence = int(np.searchsorted(sequences.offsets, at, side="right")) - 1
    raise InputError(
        f"{sequences.place(sequence)}: token {at - int(sequences.offsets[sequence])} is "
        f"{tokens[at]}: the model's vocabulary has {vocab} ids; is it another model's file?"
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
