"""The prefix tree by its definition: what the fast one is compared with."""

from __future__ import annotations

from collections.abc import Sequence

# (parent or -1, start, end, depth, sequences)
Segment = tuple[int, int, int, int, list[int]]


def tree(sequences: Sequence[Sequence[int]]) -> tuple[list[Segment], list[int]]:
    """Segments depth first, siblings first-seen, and the segment in which each sequence ends."""
    segments: list[Segment] = []
    terminal = [-1] * len(sequences)

    def grow(members: list[int], start: int, depth: int, parent: int) -> None:
        branches: dict[int, list[int]] = {}
        for i in members:
            branches.setdefault(sequences[i][start], []).append(i)
        for branch in branches.values():
            end = start
            shortest = min(len(sequences[i]) for i in branch)
            while end < shortest and len({sequences[i][end] for i in branch}) == 1:
                end += 1
            number = len(segments)
            segments.append((parent, start, end, depth, branch))
            for i in branch:
                if len(sequences[i]) == end:
                    terminal[i] = number
            grow([i for i in branch if len(sequences[i]) > end], end, depth + 1, number)

    grow([i for i, sequence in enumerate(sequences) if len(sequence)], 0, 1, -1)
    return segments, terminal


def packed_tokens(sequences: Sequence[Sequence[int]]) -> int:
    """Distinct non-empty prefixes: each is one token stored once."""
    return len({tuple(sequence[: n + 1]) for sequence in sequences for n in range(len(sequence))})
