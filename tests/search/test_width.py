"""The width search: geometry, the order of probes, and the slow version on random tables."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow.width import KINDS, Quote, Search

from waveplan import _core
from waveplan.errors import InputError

# The published planner's granularity and widths for 1, 3, 7, 9, 20, 33, 64, n - 1, n.
WIDTHS = {
    1: [1, [1, 1, 1, 1, 1, 1, 1, 1, 1]],
    63: [1, [1, 3, 7, 9, 20, 33, 63, 62, 63]],
    64: [8, [1, 3, 7, 8, 16, 32, 64, 56, 64]],
    100: [8, [1, 3, 7, 8, 16, 32, 64, 96, 100]],
    255: [8, [1, 3, 7, 8, 16, 32, 64, 248, 255]],
    256: [32, [1, 3, 7, 9, 20, 32, 64, 224, 256]],
    1024: [32, [1, 3, 7, 9, 20, 32, 64, 992, 1024]],
}


@pytest.mark.parametrize("items", WIDTHS)
def test_widths_and_granularity(items: int) -> None:
    granule, widths = WIDTHS[items]
    assert _core.width_geometry(items, 0, 1)[2] == granule
    asked = [1, 3, 7, 9, 20, 33, 64, items - 1, items]
    assert [_core.width_normalize(items, 0, 1, width) for width in asked] == widths


def test_geometry_counts_what_is_left_and_rounds_to_ranks() -> None:
    assert _core.width_geometry(300, 200, 6) == (100, 6, 12)
    assert _core.width_geometry(5, 3, 8) == (2, 2, 8)
    assert _core.width_normalize(300, 200, 6, 25) == 24


@pytest.mark.parametrize(
    ("items", "start", "dp", "text"),
    [(0, 0, 1, "nothing is left"), (3, 3, 1, "nothing is left"), (3, 0, 0, "dp is 0")],
)
def test_an_impossible_window_is_refused(items: int, start: int, dp: int, text: str) -> None:
    with pytest.raises(InputError, match=text):
        _core.width_geometry(items, start, dp)


def random_table(seed: int, items: int) -> list[list[Quote]]:
    """Quotes that mostly fall with the width, with exceptions, as real layouts do."""
    draw = random.Random(seed)
    memory, trust = draw.uniform(0, 1.3) * items, draw.uniform(0, 1.5) * items
    profiled, valid, noise = draw.random() < 0.8, draw.random(), draw.choice([0, 0.1, 0.4])
    slack = [0.7, 1.4, 1.0, 1.2, 1.0, draw.choice([0.9, 1.2]), 1.3]
    table = []
    for width in range(items + 1):
        bounds = draw.random() < valid
        known = profiled if draw.random() > noise / 4 else not profiled
        table.append(
            [
                Quote(
                    bounds,
                    (width <= memory * s) != (draw.random() < noise / 4),
                    known and (width <= trust * s) != (draw.random() < noise / 4),
                    known,
                )
                for s in slack
            ]
        )
    return table


@given(
    seed=st.integers(0, 2**32),
    items=st.one_of(st.integers(1, 40), st.integers(60, 70), st.integers(200, 400)),
    start=st.integers(0, 20),
    dp=st.integers(1, 9),
    hint=st.one_of(st.none(), st.integers(1, 400)),
    composite=st.booleans(),
)
def test_equals_the_slow_search(
    seed: int, items: int, start: int, dp: int, hint: int | None, composite: bool
) -> None:
    start = min(start, items - 1)
    table = random_table(seed, items)
    slow = Search(
        items, start, dp, hint, composite, lambda width, kind: table[width][KINDS.index(kind)]
    )
    expected = slow.run()
    bits = np.array([[quote.bits for quote in row] for row in table], dtype=np.int64).ravel()
    *found, rejected, asked = _core.width_search(items, start, dp, hint, composite, bits)
    assert tuple(found) == expected
    assert rejected == len(slow.rejected)
    if found[0]:
        assert [(width, KINDS[kind]) for width, kind in asked] == slow.asked


@given(seed=st.integers(0, 2**32), items=st.integers(1, 300), hint=st.integers(1, 300))
def test_more_usable_widths_never_give_a_narrower_wave(seed: int, items: int, hint: int) -> None:
    """With the same hint, if it is usable in both searches or in neither: one that only the
    richer search can use may lead it past an island of usable widths that growth would meet."""
    draw = random.Random(seed)
    memory = draw.uniform(0, 1.2) * items
    tight = [w == 1 or (w <= memory) != (draw.random() < 0.1) for w in range(items + 1)]
    loose = [fits or draw.random() < 0.2 for fits in tight]
    used = _core.width_normalize(items, 0, 1, hint)
    loose[used] = tight[used]

    def width(fits: list[bool]) -> int:
        bits = np.array(
            [[Quote(False, f, True, True).bits] * len(KINDS) for f in fits], dtype=np.int64
        ).ravel()
        return int(_core.width_search(items, 0, 1, hint, True, bits)[0])

    assert width(loose) >= width(tight)
