"""Other packers' rules in their plainest form, to compare `waveplan.balance` with."""

from __future__ import annotations

from collections.abc import Sequence


def differencing(values: Sequence[int], parts: int) -> list[list[int]]:
    """The largest differencing method: the two dealings of largest spread become one."""
    dealings = [[(v, (i,)), *[(0, ())] * (parts - 1)] for i, v in enumerate(values)]

    def key(dealing: list[tuple[int, tuple[int, ...]]]) -> tuple[int, int, int, int]:
        (most, items), (least, _) = dealing[0], dealing[-1]
        return most - least, most, len(items), items[0]

    while len(dealings) > 1:
        dealings.sort(key=key)
        first, second = dealings.pop(), dealings.pop()
        joined = [(a + b, x + y) for (a, x), (b, y) in zip(first, second[::-1], strict=True)]
        joined.sort(key=lambda part: (part[0], len(part[1]), part[1][:1]), reverse=True)
        dealings.append(joined)
    return [list(items) for _, items in dealings[0]]


def first_fit(lengths: Sequence[int], cap: int, order: Sequence[int]) -> list[list[int]]:
    """Every item into the first part that has room; one above the cap is alone."""
    parts: list[list[int]] = []
    for i in order:
        room = (p for p in parts if sum(lengths[j] for j in p) + lengths[i] <= cap)
        part = next(room, None)
        if part is None:
            parts.append(part := [])
        part.append(i)
    return parts


def falling(lengths: Sequence[int]) -> list[int]:
    """Items by decreasing length."""
    return sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
