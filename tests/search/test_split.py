"""The split ladder's cut against the slow version."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from slow.width import cut

from waveplan import _core


@given(tokens=st.lists(st.integers(1, 1000), min_size=1, max_size=40), count=st.integers(1, 50))
def test_cut_equals_the_slow_version(tokens: list[int], count: int) -> None:
    ends = _core.split_cut(np.array(tokens, dtype=np.int64), count)
    runs = [list(range(a, b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert runs == cut(tokens, count)
    assert all(runs)
    assert [i for run in runs for i in run] == list(range(len(tokens)))
    assert len(runs) == min(count, len(tokens))
