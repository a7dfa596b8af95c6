"""Drop-in for ``trl.pack_dataset``: fewer bins, and a warning where tokens are cut off."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from waveplan.integrations.balance import deal

if TYPE_CHECKING:
    import pyarrow

    from waveplan.planner import Planner

__all__ = ["pack_dataset", "pack_table"]

STRATEGIES = ("bfd", "bfd_split", "wrapped")


def pack_dataset(
    dataset: Any,
    seq_length: int,
    strategy: str = "bfd",
    map_kwargs: Mapping[str, Any] | None = None,
    *,
    planner: Planner | None = None,
) -> Any:
    """Return a dataset whose rows are packs of at most ``seq_length`` tokens.

    Args:
        dataset: a ``datasets`` dataset or dictionary of them; every column a list a row.
        strategy: "bfd" cuts off what is beyond ``seq_length`` and warns, "bfd_split" packs it
            apart, "wrapped" cuts all tokens evenly. The first two add ``seq_lengths``.
        map_kwargs: arguments of ``dataset.map``.
        planner: prices each row as one forward; none requires more bytes than it has available.

    Raises:
        ValueError: another strategy, "wrapped" with a planner, or columns of unequal lengths.
        TypeError: a column without lists.
        WaveRefused: a sequence alone requires more than is available.
    """
    _check(seq_length, strategy, planner)
    first = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    given = _format(first)
    packed = dataset.with_format("arrow").map(
        partial(pack_table, seq_length=seq_length, strategy=strategy, planner=planner),
        batched=True,
        **(map_kwargs or {}),
    )
    if strategy != "wrapped" and given.get("columns") is not None:
        given["columns"] = [*given["columns"], "seq_lengths"]
    return packed.with_format(**given)


def _check(seq_length: int, strategy: str, planner: Planner | None) -> None:
    if seq_length < 1:
        raise ValueError(f"seq_length is {seq_length}: it must be at least 1")
    if strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise ValueError(f"strategy is {strategy!r}: it must be one of {known}")
    if planner is not None and strategy == "wrapped":
        raise ValueError('planner is given: strategy "wrapped" cuts rows by tokens alone')


def _format(dataset: Any) -> dict[str, Any]:
    """The arguments of ``with_format`` that give a dataset's format again."""
    found = getattr(dataset, "format", None)
    if found is None:
        formatting = getattr(dataset, "_formatting", None)
        return {"type": formatting.format_type if formatting is not None else None}
    return {key: found[key] for key in ("type", "columns")} | dict(found["format_kwargs"])


def pack_table(
    table: pyarrow.Table,
    seq_length: int,
    strategy: str = "bfd",
    *,
    planner: Planner | None = None,
) -> pyarrow.Table:
    """Return an Arrow table of packs, as `pack_dataset`."""
    import pyarrow as pa

    _check(seq_length, strategy, planner)
    columns, ends = _columns(table)
    if strategy == "wrapped":
        tokens = int(ends[-1])
        cuts = np.append(np.arange(0, tokens, seq_length), tokens)
        rows = [_lists(column, column.flatten(), cuts) for column in columns]
        return pa.Table.from_arrays(rows, names=table.column_names)
    starts, lengths = ends[:-1], np.diff(ends)
    if strategy == "bfd_split":
        pieces = -(-lengths // seq_length)
        piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = np.repeat(starts, pieces) + piece * seq_length
        lengths = np.minimum(np.repeat(lengths, pieces) - piece * seq_length, seq_length)
    else:
        long = lengths > seq_length
        if long.any():
            lost = int((lengths[long] - seq_length).sum())
            warnings.warn(
                f"{long.sum()} of {len(lengths)} sequences are longer than seq_length "
                f"{seq_length}: {lost} tokens are cut off (strategy 'bfd_split' keeps them)",
                stacklevel=2,
            )
        lengths = np.minimum(lengths, seq_length)
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    parts = deal(lengths, cap=seq_length, planner=planner).parts
    order = np.concatenate(parts) if parts else np.empty(0, np.int64)
    kept = lengths[order]
    before = np.repeat(np.cumsum(kept) - kept, kept)
    tokens = np.arange(kept.sum()) - before + np.repeat(starts[order], kept)
    counts = np.cumsum([0, *map(len, parts)])
    cuts = np.append(0, np.cumsum(kept))[counts]
    rows = [_lists(column, column.flatten().take(pa.array(tokens)), cuts) for column in columns]
    sizes = pa.ListArray.from_arrays(pa.array(counts, pa.int32()), pa.array(kept, pa.int32()))
    return pa.Table.from_arrays([*rows, sizes], names=[*table.column_names, "seq_lengths"])


def _columns(table: pyarrow.Table) -> tuple[list[Any], Any]:
    """Each column in one piece, and where their rows end, 0 first."""
    import pyarrow as pa

    columns, ends = [], None
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        column = chunked.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else column.chunk(0)
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise TypeError(f"column {name} is {column.type}: packing needs a list a row")
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        now = np.append(0, np.cumsum(lengths, dtype=np.int64))
        if ends is not None and not np.array_equal(now, ends):
            raise ValueError(
                f"column {name} has rows of other lengths than {table.column_names[0]}"
            )
        columns.append(column)
        ends = now
    if ends is None:
        raise ValueError("the dataset has no columns: packing needs a list a row")
    return columns, ends


def _lists(like: Any, values: Any, cuts: Any) -> Any:
    """Values cut into lists, of the type of a column."""
    import pyarrow as pa

    return type(like).from_arrays(pa.array(cuts, like.offsets.type), values)
