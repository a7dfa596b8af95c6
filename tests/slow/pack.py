"""Packing by its definition: recursive, readable, slow. What the fast one is compared with."""

from __future__ import annotations

from collections.abc import Sequence

# (sequences, start, end, packed start, id, parent id); ids count from 1, a root is its own parent
Segment = tuple[list[int], int, int, int, int, int]


def pack(
    sequences: Sequence[Sequence[int]],
    max_depth: int | None = None,
    min_shared: int = 1,
    shareable: Sequence[int] | None = None,
) -> list[Segment]:
    """Segments in packed order."""
    limits = [len(sequence) for sequence in sequences]
    if shareable is not None:
        limits = [
            max(0, min(len(sequence), s)) for sequence, s in zip(sequences, shareable, strict=True)
        ]
    depth_limit = len(sequences) if max_depth is None else max_depth
    segments: list[Segment] = []

    def emit(members: list[int], start: int, end: int, parent: int | None) -> int:
        packed = sum(s[2] - s[1] for s in segments)
        number = len(segments) + 1
        segments.append((members, start, end, packed, number, parent or number))
        return number

    def alone(members: list[int], start: int, parent: int | None) -> None:
        for i in members:
            emit([i], start, len(sequences[i]), parent)

    def branches(members: list[int], at: int) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for i in members:
            found.setdefault(sequences[i][at], []).append(i)
        return list(found.values())

    def walk(members: list[int], start: int, depth: int, parent: int | None) -> None:
        members = [i for i in members if len(sequences[i]) > start]
        alone([i for i in members if limits[i] <= start], start, parent)
        members = [i for i in members if limits[i] > start]
        capped = max_depth == 0 or (parent is not None and depth >= depth_limit)
        if len(members) <= 1 or capped:
            alone(members, start, parent)
            return
        end = start
        shortest = min(limits[i] for i in members)
        while end < shortest and len({sequences[i][end] for i in members}) == 1:
            end += 1
        if end > start and end - start >= min_shared:
            walk(members, end, depth + 1, emit(members, start, end, parent))
            return
        if end > start:
            alone([i for i in members if limits[i] <= end], start, parent)
            members = [i for i in members if limits[i] > end]
        for branch in branches(members, end):
            walk(branch, start, depth, parent)

    walk(list(range(len(sequences))), 0, 0, None)
    return segments
