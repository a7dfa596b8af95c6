"""`waveplan.balance` beside other trainers' packers, on the corpora.

    pip install --no-deps verl trl   # theirs are read where they are installed, else left out
    python benches/balance.py

verl's and TRL's functions are executed out of their installed files, without their other imports.
NeMo-RL and slime are not on the index: their rules, first fit and first fit by decreasing length,
are written out here.
"""

from __future__ import annotations

import ast
import heapq
import importlib.util
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from waveplan import balance
from waveplan.integrations.balance import verl
from waveplan.report.table import Table, show

DATA = Path(__file__).parents[1] / "tests" / "data"
SETTINGS = [
    *(("tau_retail", cap) for cap in (20480, 32768, 65536, 131072)),
    *(("tau_turns", cap) for cap in (16384, 32768, 65536)),
    *(("coding", cap) for cap in (98304, 131072, 196608)),
    *(("math_grpo", cap) for cap in (2048, 8192, 16384)),
]


def theirs(package: str, file: str, names: set[str], given: dict[str, Any]) -> dict[str, Any]:
    """Functions and classes of an installed file, by name; nothing without the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return {}
    text = (Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8")
    kept = [node for node in ast.parse(text).body if getattr(node, "name", "") in names]
    space = {"__name__": package, **given}
    exec(compile(ast.Module(kept, []), file, "exec"), space)
    return space


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the milliseconds that it took."""
    start = time.perf_counter()
    made = work()
    return made, 1e3 * (time.perf_counter() - start)


def sums(parts: Any, of: Any) -> list[int]:
    return [int(sum(of[i] for i in part)) for part in parts]


def of_verl(lengths: list[int], cap: int) -> Any:
    """verl's dealing: more parts until each keeps the cap."""
    names = {"karmarkar_karp", "get_seqlen_balanced_partitions"}
    space = theirs("verl", "utils/seqlen_balancing.py", names, {"heapq": heapq})
    work = [24576 * n + n * n for n in lengths]
    parts = min(len(lengths), -(-sum(lengths) // cap))
    while space:
        made = space["get_seqlen_balanced_partitions"](work, parts, False)
        if max(sums(made, lengths)) <= cap:
            return made
        parts += 1
    return None


def of_trl(lengths: list[int], cap: int) -> Any:
    """TRL's packs of sequences that hold their own number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = {"np": np, "pa": pa, "pc": pc, "pyarrow": pa, "deque": deque, "Literal": Literal}
    given["defaultdict"] = defaultdict
    names = {"_check_if_columns_can_be_packed", "_SegmentTree", "_pack_bfd"}
    space = theirs("trl", "data_utils.py", names, given)
    if not space:
        return None
    table = pa.table({"ids": pa.array([[i] * n for i, n in enumerate(lengths)])})
    packed = space["_pack_bfd"](table, cap)
    return [sorted(set(ids)) for ids in packed["ids"].to_pylist()]


def first_fit(lengths: list[int], cap: int, order: Any) -> Any:
    """NeMo-RL's and slime's rule."""
    parts: list[list[int]] = []
    room: list[int] = []
    for i in order:
        at = next((at for at, left in enumerate(room) if left >= lengths[i]), len(room))
        if at == len(room):
            parts.append([])
            room.append(cap)
        parts[at].append(i)
        room[at] -= lengths[i]
    return parts


def main() -> None:
    """Print a row a setting and packer."""
    right = ("cap", "parts", "work", "ms", "our parts", "work in as many", "bound", "our ms")
    table = Table("", ("corpus", "packer", *right), right=frozenset(right))
    for corpus, cap in SETTINGS:
        lengths = np.diff(np.load(DATA / f"{corpus}_open.npz")["offsets"]).tolist()
        work = [24576 * n + n * n for n in lengths]
        falling = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        _, took = timed(lambda lengths=lengths, cap=cap: verl.micro_batches(lengths, cap))
        packers: dict[str, Callable[[list[int], int], Any]] = {
            "verl": of_verl,
            "TRL": of_trl,
            "first fit": lambda lengths, cap: first_fit(lengths, cap, range(len(lengths))),
            "decreasing": lambda lengths, cap, order=falling: first_fit(lengths, cap, order),
        }
        for name, packer in packers.items():
            made, ms = timed(lambda: packer(lengths, cap))  # noqa: B023
            if made is None:
                continue
            own = balance(lengths, work, cap)
            same = balance(lengths, work, cap, len(made))
            assert len(own.parts) <= len(made)
            assert max(sums(own.parts, lengths)) <= cap
            assert same.largest <= max(sums(made, work))
            table.add(
                corpus, name, cap, len(made), f"{max(sums(made, work)) / 1e9:.3f}", f"{ms:.0f}",
                len(own.parts), f"{same.largest / 1e9:.3f}", f"{same.bound / 1e9:.3f}",
                f"{took:.1f}",
            )  # fmt: skip
    show(table)


if __name__ == "__main__":
    main()
