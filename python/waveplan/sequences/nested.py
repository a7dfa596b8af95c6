"""Columns of columns: turns, messages, preference pairs, and packed lines that share prefixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan.errors import InputError
from waveplan.sequences.columns import interleave
from waveplan.sequences.names import GROUP, PAIRS, POSITIONS, PROMPT, SAMPLES, WANTED, WHOLE
from waveplan.sequences.reader import Found, Reader, Renamed, changes, seen, sums
from waveplan.sequences.tables import RecordTable, Table, ints, refuse

__all__ = ["messages", "pairs", "tree"]

Flags = NDArray[np.bool_]


def messages(reader: Reader) -> Table:
    """Join the messages of each row: their ``token_ids``, and their masks or roles."""
    table, records = reader.table, []
    for row, log in enumerate(reader.table.messages("message_log")):
        ids: list[Any] = []
        mask: list[int] = []
        for message in log:
            part = message.get("token_ids") if isinstance(message, Mapping) else None
            if part is None:
                refuse(
                    table, row, "message_log holds a message without token_ids: tokenize it first"
                )
            part = part if isinstance(part, list) else np.asarray(part).tolist()
            told = message.get("token_loss_mask")
            if told is None:
                told = [int(message.get("role") == "assistant")] * len(part)
            ids += part
            mask += told if isinstance(told, list) else np.asarray(told).tolist()
        records.append({"input_ids": ids, "token_mask": mask})
    for name in (*GROUP, *SAMPLES):
        if name in table.names and table.kind(name) in ("value", "text"):
            for record, value in zip(records, table.values(name), strict=True):
                record[name] = value
    reader.used["message_log"] = "token ids and labels"
    return RecordTable(records, table.place)


def pairs(reader: Reader, ids: str, read: Callable[[Table], Found]) -> Found:
    """Read the chosen and the rejected sequence of each row, which are one group; ``ids`` says what
    their columns are called."""
    table, parts = reader.table, []
    for pair in PAIRS:
        prompt = reader.find(PROMPT)
        mask = "attention_mask" if prompt is None else "completion_attention_mask"
        names = {
            ids.format(pair): "input_ids" if prompt is None else "completion_ids",
            f"{pair}_labels": "labels",
            f"labels_{pair}": "labels",
            f"{pair}_attention_mask": mask,
            f"attention_mask_{pair}": mask,
            f"{pair}_mask": mask,
        }
        chosen = {ours: theirs for theirs, ours in names.items() if theirs in table.names}
        drop = dict.fromkeys(("labels", "attention_mask"), "") if prompt is None else {}
        part = read(Renamed(table, {**drop, **chosen}))
        parts.append(part)
        reader.used |= {
            theirs: part.used[ours]
            for theirs, ours in names.items()
            if ours in part.used and theirs in table.names
        } | {name: use for name, use in part.used.items() if name in table.names}
    first, second = parts
    lengths = np.stack([np.diff(first.offsets), np.diff(second.offsets)], 1).reshape(-1)
    tokens, _ = interleave((first.tokens, first.offsets), (second.tokens, second.offsets))
    labelled = None
    if first.labelled is not None and second.labelled is not None:
        labelled = (
            interleave(
                (first.labelled.astype(np.int64), first.offsets),
                (second.labelled.astype(np.int64), second.offsets),
            )[0]
            != 0
        )
    rows = np.repeat(np.arange(table.rows), 2)
    columns: dict[str, Any] = {"group": rows}
    for name in ("first_target", "group"):
        if name in first.columns and name in second.columns:
            both = zip(first.columns[name], second.columns[name], strict=True)
            columns[name] = [value for pair in both for value in pair]
    return Found(
        tokens, sums(lengths), rows, labelled, columns, first.pads + second.pads, reader.used
    )


def tree(reader: Reader, labels: Callable[[], tuple[Flags | None, bool]]) -> Found:
    """Read packed lines whose sequences share prefixes: segments with a parent each."""
    table = reader.table
    name = reader.find(WHOLE)
    if name is None:
        raise InputError(f"no token ids: {seen(table)}: {WANTED}")
    ids, offsets = reader.take(name, "token ids")
    reader.ids, reader.offsets = ids, offsets
    groups, parents = (reader.take(n, "shared prefixes")[0] for n in ("group_ids", "parent_ids"))
    for column in ("group_ids", "parent_ids"):
        reader.same(column, ints(table, column)[1])
    labelled, _ = labels()
    begins = changes(groups, offsets)
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    first = np.flatnonzero(begins)
    ends = np.append(first[1:], len(ids))
    rows = np.searchsorted(offsets, first, side="right") - 1
    paths: dict[tuple[int, int], list[NDArray[Any]]] = {}
    places: list[list[NDArray[Any]]] = []
    owner: list[int] = []
    roots: list[tuple[int, int]] = []
    of: dict[tuple[int, int], tuple[int, int]] = {}
    inner = {
        (int(r), int(parents[s]))
        for r, s in zip(rows, first, strict=True)
        if parents[s] != groups[s]
    }
    for row, start, end in zip(rows.tolist(), first.tolist(), ends.tolist(), strict=True):
        group, parent = int(groups[start]), int(parents[start])
        if group < 0:
            continue
        above = [] if parent == group else paths.get((row, parent))
        if above is None:
            refuse(table, row, f"parent_ids names {parent} before its segment comes")
        paths[row, group] = [*above, np.arange(start, end)]
        of[row, group] = (row, group) if parent == group else of[row, parent]
        if (row, group) not in inner:
            places.append(paths[row, group])
            owner.append(row)
            roots.append(of[row, group])
    lengths = [sum(map(len, path)) for path in places]
    at = np.concatenate([np.empty(0, np.int64), *(part for path in places for part in path)])
    numbers: dict[Any, int] = {}
    columns = {"group": [numbers.setdefault(root, len(numbers)) for root in roots]}
    pads = int((groups < 0).sum())
    if reader.find(POSITIONS):
        reader.used[str(reader.find(POSITIONS))] = "left to the segments"
    return Found(
        ids[at],
        sums(np.array(lengths, np.int64)),
        np.array(owner, np.int64),
        None if labelled is None else labelled[at],
        columns,
        pads,
        reader.used,
    )
