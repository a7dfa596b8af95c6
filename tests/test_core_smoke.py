"""Every callable of the compiled core with hostile values: an answer or an error, never a panic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import waveplan
from waveplan import Planner, Requests, Topology, Training, _core, models

SEQUENCES = [[5, 6, 7, 8], [5, 6, 9], [5, 6, 7, 8], [2, 2, 2]]
UNUSUAL = ("stop_if",)
"""They run what they are given."""
ERRORS = (waveplan.WaveplanError, TypeError, ValueError, OverflowError, AttributeError)
"""Of the house, and those by which Python refuses an argument. A panic is none of them."""


class LongLength:
    """Claims 2^40 entries and has none."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> int:
        raise IndexError(index)


class Raises:
    """Every way to read it raises."""

    def _boom(self, *_: Any) -> Any:
        raise ValueError("the caller's own error")

    __index__ = __float__ = __iter__ = __len__ = __getitem__ = __array__ = __getattr__ = _boom


HOSTILE: list[Any] = [
    None, True, -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 10**30, float("nan"), -1e300, "", "full",
    b"\0", [], [1, -1], (2**62, 2**62), [[1], [2, 3]], {"a": 1}, range(2**62), object(), int,
    LongLength(), Raises(), np.empty(0, np.int64), np.array([0, 2**62, 2**63 - 1]),
    np.array([-1, -(2**63)]), np.array([3, 2, 1, 0])[::2], np.ones((2, 2), np.int64),
    np.array([0.5, np.nan]), np.ones(3, np.bool_), np.array(["a"]),
    np.broadcast_to(np.int64(1), 1 << 40),
]  # fmt: skip


def use() -> list[Any]:
    """One run through the library, which calls most of the core; what it made."""
    made: list[Any] = []
    for cp, reference in ((1, True), (2, False)):
        facts = models.get("qwen3.6-35b-a3b"), Topology(cp=cp), Training()
        planner = Planner(*facts, "24GiB", mode="reference" if reference else "best")
        pool = Requests(
            SEQUENCES, targets=[0, 1, [1, -100, 3, 4], None], adapter=["a", None, "a", None]
        )
        waves = planner.waves(pool)
        for wave in waves:
            planner.observe(wave, wave.required)
            made += [wave, *wave.plan.packs]
        made += [planner, pool, waves, planner.make_engine(pool), *planner.waves(pool).sessions()]
    tree, packing = waveplan.tree(SEQUENCES), waveplan.pack(SEQUENCES)
    layout = waveplan.choose_layout(tree, planner.scoring)
    owned = waveplan.own(packing, 2)
    placed = waveplan.gdn(packing, owned)
    waveplan.gdn_schedule_per_rank(packing, placed)
    waveplan.attention_slices(waveplan.Packing.from_ids(packing.group_ids, packing.parent_ids))
    return [*made, tree, layout, tree.pack(layout.shared), owned, placed]


def is_core(value: Any) -> bool:
    return type(value) in vars(_core).values() and not isinstance(value, type)


@pytest.fixture(scope="module")
def good() -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Arguments of the core's functions and objects of its classes, as the library used them."""
    calls: dict[str, dict[str, Any]] = {}
    objects: dict[str, Any] = {}

    def recorder(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*given: Any, **named: Any) -> Any:
            calls[name] = inspect.signature(function).bind(*given, **named).arguments
            found = function(*given, **named)
            keep([*given, *named.values(), found], 2)
            return found

        return record

    def keep(values: list[Any], depth: int) -> None:
        for value in values:
            if is_core(value):
                objects.setdefault(type(value).__name__, value)
            if depth and (is_core(value) or type(value).__module__.startswith("waveplan")):
                parts = [getattr(value, name, None) for name in dir(value) if name[:2] != "__"]
                flat = [p for part in parts for p in (part if isinstance(part, list) else [part])]
                keep([part for part in flat if not callable(part)], depth - 1)

    with pytest.MonkeyPatch.context() as patch:
        for name, function in list(vars(_core).items()):
            if inspect.isbuiltin(function) and name not in UNUSUAL:
                patch.setattr(_core, name, recorder(name, function))
        keep(use(), 3)
    assert len(calls) + len(objects) > 12
    return calls, objects


def attacks(function: Callable[..., Any], usual: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Good arguments with each in turn replaced; where none are known, all alike."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:  # what cannot be made
        names = []
    for value in HOSTILE:
        if usual:
            yield from ({**usual, name: value} for name in names)
        yield dict.fromkeys(names, value)


def fault(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """Return the fault in how a call ends; a panic passes through."""
    try:
        function(**arguments)
    except waveplan.InternalError as error:
        return f"{function} {arguments}: {error}"
    except ERRORS as error:
        return f"{function} {arguments}: {error}" if "\n" in str(error) else ""
    return ""


CALLABLE = [name for name, value in vars(_core).items() if callable(value) and name[0] != "_"]


@pytest.mark.parametrize("name", [name for name in CALLABLE if name not in UNUSUAL])
def test_no_value_makes_the_core_panic(name: str, good: Any) -> None:
    calls, objects = good
    function = getattr(_core, name)
    functions = [(function, calls.get(name, {}))]
    if isinstance(function, type) and name in objects:
        parts = [getattr(objects[name], part) for part in dir(function) if part[0] != "_"]
        functions += [(part, {}) for part in parts if callable(part)]
    for each, usual in functions:
        for arguments in attacks(each, usual):
            assert not fault(each, arguments)
