"""What sequences hold, as columns of numbers and remarks on what is odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from waveplan.stages import tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waveplan.sequences.sequences import Sequences

__all__ = ["padded", "report"]

SHOWN = 20
BINS = 8


def report(sequences: Sequences) -> dict[str, Any]:
    """Return what sequences hold as JSON values: counts, columns, lengths, sharing, oddities."""
    lengths, origin = sequences.lengths, sequences.origin
    empty = np.flatnonzero(lengths == 0)
    filled = sequences if not empty.size else sequences.take(np.flatnonzero(lengths))
    used = {} if origin is None else origin.used
    unused = () if origin is None else origin.unused
    packed = int(tree(filled).packed()) if len(filled) else 0
    total = len(sequences.tokens)
    return {
        "files": [] if origin is None else list(origin.files),
        "sequences": len(sequences),
        "tokens": total,
        "labelled": _labelled(sequences),
        "labels": [
            name for name, use in used.items() if "label" in use or "of the response" in use
        ],
        "pads": 0 if origin is None else origin.pads,
        "groups": len(np.unique(sequences.columns["group"]))
        if "group" in sequences.columns
        else None,
        "columns": {**used, **dict.fromkeys(unused, "not read")},
        "unused": list(unused),
        "sharing": {"packed_tokens": packed, "saved": 1 - packed / total if total else 0.0},
        "lengths": _lengths(sequences),
        "empty": {
            "sequences": len(empty),
            "places": [sequences.place(int(i)) for i in empty[:SHOWN]],
        },
        "odd": [*(() if origin is None else origin.odd), *_odd(filled)],
    }


def _labelled(sequences: Sequences) -> int:
    if sequences.labelled is not None:
        return int(sequences.labelled.sum())
    first = sequences.columns.get("first_target")
    total = len(sequences.tokens)
    return total if first is None else total - int(first.sum())


def _lengths(sequences: Sequences) -> dict[str, Any]:
    lengths = sequences.lengths
    if not len(lengths):
        return {"min": 0, "median": 0, "mean": 0.0, "max": 0, "longest": None, "histogram": []}
    low, high = int(lengths.min()), int(lengths.max())
    step = max(1, -(-(high - low + 1) // BINS))
    counts = np.bincount((lengths - low) // step)
    return {
        "min": low,
        "median": int(np.median(lengths)),
        "mean": float(lengths.mean()),
        "max": high,
        "longest": sequences.place(int(lengths.argmax())),
        "histogram": [
            {"from": low + i * step, "to": min(high, low + (i + 1) * step - 1), "sequences": int(n)}
            for i, n in enumerate(counts)
        ],
    }


def padded(sequences: Sequences) -> list[str]:
    """Return remarks on runs of one id at the ends of sequences, none of which is empty."""
    remarks: list[str] = []
    tokens, offsets, lengths = sequences.tokens, sequences.offsets, sequences.lengths
    for side, at in (("end in", offsets[1:] - 1), ("begin with", offsets[:-1])):
        text = _padded(tokens, lengths, at, -1 if side == "end in" else 1)
        if text:
            remarks.append(
                f"{text[0]} sequences {side} a run of id {text[1]}, as pads do: if they "
                f"are pads, --pad {text[1]} drops them"
            )
    return remarks


def _odd(sequences: Sequences) -> list[str]:
    """Return remarks; every sequence has a token."""
    remarks = padded(sequences)
    if not len(sequences):
        return remarks
    offsets, lengths = sequences.offsets, sequences.lengths
    ones = int((lengths == 1).sum())
    if ones:
        first = sequences.place(int(np.argmax(lengths == 1)))
        remarks.append(f"{ones} sequences have one token; the first is {first}")
    if sequences.labelled is not None:
        counts = np.add.reduceat(sequences.labelled.astype(np.int64), offsets[:-1])
        bare = np.flatnonzero(counts == 0)
        if bare.size:
            remarks.append(
                f"{bare.size} sequences have no label; the first is {sequences.place(int(bare[0]))}"
            )
    return remarks


def _padded(
    tokens: NDArray[np.int64], lengths: NDArray[np.int64], at: NDArray[np.int64], step: int
) -> tuple[int, int] | None:
    """Return how many sequences of equal length have a run of four of one id at an end, and it."""
    if len(lengths) < 2 or lengths.min() != lengths.max() or lengths[0] < 8:
        return None
    runs = np.ones(len(at), np.bool_)
    for i in range(1, 4):
        runs &= tokens[at + i * step] == tokens[at]
    ids, counts = np.unique(tokens[at[runs]], return_counts=True)
    if not counts.size or counts.max() * 4 < len(lengths):
        return None
    best = int(counts.argmax())
    return int(counts[best]), int(ids[best])
