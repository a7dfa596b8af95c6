"""Packed lines cut into their sequences, and pads dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan.sequences.columns import Lists
from waveplan.sequences.names import CUMULATIVE, NUMBERED, PACKED, POSITIONS
from waveplan.sequences.reader import Found, Reader, changes, sums, within
from waveplan.sequences.tables import entry, ints, refuse

__all__ = ["compose", "marks_of", "numbered"]

Int64 = NDArray[np.int64]
Flags = NDArray[np.bool_]


def marks_of(reader: Reader, keep: Flags | None) -> Flags | None:
    """Return the tokens where a packed sequence begins, None if no line is packed."""
    marks = np.zeros(len(reader.ids), np.bool_)
    if name := reader.find(PACKED):
        values, offsets = reader.take(name, "packed sequences")
        ends = _ends(reader, name, values, offsets, keep)
    elif name := reader.find(CUMULATIVE):
        values, offsets = reader.take(name, "packed sequences")
        ends = _cumulative(reader, name, values, offsets)
    elif reader.segments is not None:
        return changes(reader.segments, reader.offsets)
    elif name := reader.find(NUMBERED):
        values, offsets = reader.take(name, "packed sequences")
        reader.same(name, offsets)
        return changes(values, reader.offsets)
    elif name := reader.find(POSITIONS) or reader.find(POSITIONS, "nested"):
        return _restarts(reader, name, keep)
    else:
        return None
    marks[ends[ends < len(marks)]] = True
    return marks


def _ends(reader: Reader, name: str, values: Int64, offsets: Int64, keep: Flags | None) -> Int64:
    if values.size and values.min() < 0:
        entry(
            reader.table,
            name,
            (values, offsets),
            int(np.argmin(values)),
            "a length is no less than 0",
        )
    totals = np.diff(sums(values)[offsets])
    need = np.diff(reader.offsets)
    wrong = totals > need if keep is not None else totals != need
    if wrong.any():
        row = int(np.argmax(wrong))
        refuse(reader.table, row, f"{name} sum to {totals[row]} for {need[row]} tokens")
    ends = sums(values)[1:] - np.repeat(sums(values)[offsets[:-1]], np.diff(offsets))
    starts = np.repeat(reader.offsets[:-1], np.diff(offsets))
    lead = np.zeros(len(need), np.int64)
    if keep is not None:  # behind the pads on the left
        filled = (
            np.minimum.reduceat(
                np.where(keep, within(reader.offsets), need.max(initial=0)),
                np.minimum(reader.offsets[:-1], max(len(keep) - 1, 0)),
            )
            if len(keep)
            else lead
        )
        lead = np.where(totals + filled <= need, filled, 0)
    at = ends + starts + np.repeat(lead, np.diff(offsets))
    inner: Int64 = at[at < np.repeat(reader.offsets[1:], np.diff(offsets))]
    return inner


def _cumulative(reader: Reader, name: str, values: Int64, offsets: Int64) -> Int64:
    need = np.diff(reader.offsets)
    rows = np.repeat(np.arange(len(need)), np.diff(offsets))
    falls = np.zeros(len(values), np.bool_)
    falls[1:] = (values[1:] < values[:-1]) & (rows[1:] == rows[:-1])
    wrong = falls | (values < 0) | (values > need[rows])
    if wrong.any():
        repair = f"they rise from 0 to {need[rows[int(np.argmax(wrong))]]}, the tokens"
        entry(reader.table, name, (values, offsets), int(np.argmax(wrong)), repair)
    inner = values < need[rows]
    return (values + reader.offsets[:-1][rows])[inner]


def _restarts(reader: Reader, name: str, keep: Flags | None) -> Flags | None:
    axes = reader.has(name, "nested")
    reader.used[name] = "packed sequences"
    values, offsets = _first_axis(reader, name) if axes else ints(reader.table, name)
    reader.same(name, offsets)
    kept = np.arange(len(values)) if keep is None else np.flatnonzero(keep)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[kept]
    positions = values[kept]
    same = rows[1:] == rows[:-1]
    again = same & (positions[1:] == 0)
    wrong = same & ~again & (positions[1:] != positions[:-1] + 1)
    if axes:  # the tokens of an image stand at one position
        again &= positions[:-1] > 0
        wrong[:] = False
    if wrong.any():
        at = int(kept[int(np.argmax(wrong)) + 1])
        entry(
            reader.table,
            name,
            (values, offsets),
            at,
            f"positions count on or start again at 0; --column {name}= leaves them out",
        )
    if not again.any():
        reader.used[name] = "positions, of which none starts again"
        return None
    marks = np.zeros(len(values), np.bool_)
    marks[kept[1:][again]] = True
    return marks


def _first_axis(reader: Reader, name: str) -> Lists:
    """Return the first axis of each row's positions: that of the text, or the time of images."""
    (values, inner), outer = reader.table.nested(name)
    bare = np.flatnonzero(np.diff(outer) == 0)
    if bare.size:
        refuse(reader.table, int(bare[0]), f"{name} is empty: give one position a token")
    first = outer[:-1]
    lengths = inner[first + 1] - inner[first]
    offsets = sums(lengths)
    return values[np.arange(offsets[-1]) + np.repeat(inner[first] - offsets[:-1], lengths)], offsets


def compose(
    reader: Reader, keep: Flags | None, labelled: Flags | None, marks: Flags | None
) -> Found:
    """Drop pads and cut packed lines."""
    ids, offsets = reader.ids, reader.offsets
    rows = np.arange(len(offsets) - 1)
    if marks is not None:
        keep = drop_packed_pads(reader, keep, labelled, marks)
    if keep is None and marks is None:
        return Found(ids, offsets, rows, labelled)
    if keep is not None:
        kept = np.flatnonzero(keep)
        row = np.repeat(rows, np.diff(offsets))[kept]
        part = row if marks is None else np.cumsum(marks)[kept]
        counts = np.diff(sums(keep)[offsets])
    else:
        assert marks is not None
        kept, row = np.arange(len(ids)), np.repeat(rows, np.diff(offsets))
        part, counts = np.cumsum(marks), np.diff(offsets)
    first, lengths = _runs(part, row)
    empty = np.flatnonzero(counts == 0)
    owner = np.concatenate([row[first], empty])
    order = np.argsort(owner, kind="stable")
    lengths = np.concatenate([lengths, np.zeros(len(empty), np.int64)])[order]
    tokens = ids if keep is None else ids[kept]
    if labelled is not None and keep is not None:
        labelled = labelled[kept]
    return Found(tokens, sums(lengths), owner[order], labelled, pads=len(ids) - len(tokens))


def drop_packed_pads(
    reader: Reader, keep: Flags | None, labelled: Flags | None, marks: Flags
) -> Flags | None:
    """Drop what fills up a packed line: one-token sequences of one id side by side, and a last
    sequence of one id without a label."""
    ids, offsets = reader.ids, reader.offsets
    kept = np.arange(len(ids)) if keep is None else np.flatnonzero(keep)
    if not kept.size:
        return keep
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[kept]
    part = np.cumsum(marks)[kept]
    first, lengths = _runs(part, row)
    owner, token = row[first], ids[kept][first]
    single = lengths == 1
    beside = np.zeros(len(first), np.bool_)
    alike = single[1:] & single[:-1] & (owner[1:] == owner[:-1]) & (token[1:] == token[:-1])
    beside[1:] |= alike
    beside[:-1] |= alike
    drop = beside
    if labelled is not None:
        last = np.zeros(len(first), np.bool_)
        left = np.flatnonzero(~drop)
        if left.size:
            last[left] = np.append(owner[left][1:] != owner[left][:-1], True)
        several = np.bincount(owner, minlength=len(offsets) - 1)[owner] > 1
        flags = labelled[kept]
        unlabelled = np.add.reduceat(flags.astype(np.int64), first) == 0
        values = ids[kept]
        same = np.maximum.reduceat(values, first) == np.minimum.reduceat(values, first)
        drop |= last & several & unlabelled & same
    if not drop.any():
        return keep
    made = np.zeros(len(ids), np.bool_)
    made[kept[~np.repeat(drop, lengths)]] = True
    return made


def _runs(values: NDArray[Any], rows: Int64) -> tuple[Int64, Int64]:
    """Return where runs of equal values in one row begin, and their lengths."""
    starts = np.ones(len(values), np.bool_)
    starts[1:] = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
    first = np.flatnonzero(starts)
    return first, np.diff(np.append(first, len(values)))


def numbered(values: NDArray[Any], offsets: Int64) -> bool:
    """Whether a mask counts the sequences of each packed line, 1, 2, ..., with 0 for pads at its
    end: each of two tokens or more, so that a wrong entry is no sequence."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    first, lengths = _runs(values, rows)
    number, row = values[first], rows[first]
    fresh = np.ones(len(first), np.bool_)
    fresh[1:] = row[1:] != row[:-1]
    before = np.append(0, number[:-1])
    last = np.append(row[1:] != row[:-1], True)
    counts_on = np.where(fresh, number == 1, number == before + 1) & (lengths > 1)
    return bool((counts_on | ((number == 0) & last & ~fresh)).all())
