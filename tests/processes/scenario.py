"""One rank of some scenarios: plan waves, write them (or the error) as JSON.

usage: scenario.py ENGINE NAMES FOLDER [RANK SIZE], names with commas between them
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import waveplan
from waveplan import Planner, Requests, Topology, Training, models

GIB = 1 << 30
DATA = Path(__file__).parents[1] / "data"


def join(folder: Path, rank: int, size: int) -> None:
    """Join the Gloo group of all ranks."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=60),
    )


def connect(engine: str, dp_rank: int | None) -> Any:
    """Return this rank's agreement."""
    if engine == "gloo":
        return waveplan.TorchDistributed(dp_rank=dp_rank)
    return waveplan.Mpi4py(dp_rank=dp_rank)


def sequences(count: int, seed: int = 5) -> list[np.ndarray]:
    """Sequences that share beginnings, of very unequal lengths."""
    random = np.random.default_rng(seed)
    beginnings = [random.integers(0, 1000, length) for length in (300, 900, 40)]
    return [
        np.concatenate([beginnings[i % 3], random.integers(0, 1000, int(random.integers(8, 4000)))])
        for i in range(count)
    ]


OTHER: dict[str, dict[str, Any]] = {
    "other targets": {"targets": [True] * 23 + [9]},
    "other adapter": {"adapter": ["b", "a"] * 12},
    "other gradient": {"gradient": [True] * 23 + [False]},
    "other top_k": {"top_k": [None] * 23 + [4]},
    "other groups": {"groups": [2] * 10 + [1, 3]},
}
"""What the last process asks otherwise of the same tokens."""


def desk_pool(kind: str, what: str) -> Requests:
    """A pool of the comparison with one process: a corpus, or a random one."""
    if kind == "corpus":
        with np.load(DATA / f"{what}_open.npz", allow_pickle=False) as file:
            return Requests(waveplan.Sequences(file["tokens"], file["offsets"]))
    rng = np.random.default_rng(int(what))
    pool = sequences(int(rng.integers(5, 60)), int(what))
    for at in rng.integers(0, len(pool), 3):
        pool[at] = np.arange(int(rng.integers(20_000, 60_000)))
    return Requests(pool, groups=None if int(what) % 2 else 3)


def desk_waves(name: str, agreement: Any, dp: int) -> waveplan.planner.Waves:
    """The waves of a comparison "desk KIND POOL MODE-OR-ORDER"."""
    kind, pool, how = name.split()[1:]
    cp = 1 if pool in ("1", "3", "tau_turns") else 2
    given = models.get("Qwen3.6-35B-A3B"), Topology(dp=dp, cp=cp), Training()
    free = 12 * GIB if kind == "random" else 24 * GIB if pool == "coding" else 10 * GIB
    mode, order = ("reference", None) if how == "reference" else ("best", how)
    planner = Planner(*given, free, agreement=agreement, mode=mode)  # type: ignore[arg-type]
    return planner.waves(
        desk_pool(kind, pool),
        on_refusal="skip",
        order=order,  # type: ignore[arg-type]
    )


def told(wave: Any) -> dict[str, Any]:
    """What is compared of a wave."""
    return {
        "start": wave.start,
        "width": wave.width,
        "indices": wave.indices.tolist(),
        "required": wave.required,
        "available": wave.available,
        "fingerprint": wave.plan.fingerprint,
        "dp_rank": wave.dp_rank,
        "split": wave.plan.split,
    }


class Scenario:
    """One rank's run; the name selects what the last rank does differently."""

    def __init__(self, name: str, agreement: Any, shares: int) -> None:
        self.name, self.agreement, self.dp = name, agreement, shares
        self.rank, self.odd = agreement.rank, agreement.rank == agreement.size - 1
        self.waves: list[Any] = []
        self.refused: list[Any] = []

    def run(self) -> None:
        with waveplan.in_step(self.agreement):
            if self.name.startswith("desk "):
                waves = desk_waves(self.name, self.agreement, self.dp)
                self.waves = [told(wave) for wave in waves]
                self.refused = [[str(one), one.indices.tolist()] for one in waves.refused]
                return
            if self.name == "planner" and self.odd:
                raise OSError("config.json is missing")
            self.plan(self.planner())

    def planner(self) -> Planner:
        return Planner(
            models.get("Qwen3.6-35B-A3B"),
            Topology(dp=self.dp, cp=2),
            Training(),
            self.available(),
            agreement=self.agreement,
            mode="reference" if self.name == "reference" else "best",
        )

    def available(self) -> int:
        if self.name in ("memory", "peers"):
            return (5 + 2 * self.rank) * GIB
        return (14 if self.name == "unequal" else 6) * GIB

    def pool(self) -> Any:
        count = {"empty": 5, "recomposed": 12 * self.dp}.get(self.name, 24)
        pool: list[Any] = sequences(count)
        if self.name == "bad tokens" and self.odd:
            pool[-1] = [3, -1]
        if self.name == "other pool" and self.odd:
            pool = pool[:-1]
        if self.name == "other order" and self.odd:
            pool = pool[::-1]
        if self.name == "other tokens" and self.odd:
            pool[3][7] += 1
        usual = {"adapter": ["a", "b"] * 12, "groups": 2}
        if self.name in OTHER:
            return Requests(pool, **usual | (OTHER[self.name] if self.odd else {}))
        if self.name == "refused":
            pool[self.agreement.size - 1] = np.arange(80_000)
        if self.name == "unequal":
            return Requests(pool, groups=[1, 3, 2, 1, 4, 1, 1, 3, 2, 1, 3, 2])
        return pool

    def plan(self, planner: Planner) -> None:
        if self.name == "planning raises" and self.odd:
            spoil(planner)
        free = self.name == "recomposed"
        waves = planner.waves(self.pool(), order="free" if free else None)
        for wave in waves:
            self.waves.append(told(wave) | ({"version": waves.composition.version} if free else {}))
            self.step(planner, wave)

    def step(self, planner: Planner, wave: Any) -> None:
        """Stand in for the caller's own work on a wave."""
        if self.name == "slow" and self.odd:
            time.sleep(0.5)
        if self.name == "step raises" and self.odd:
            raise ValueError("the loss is not finite")
        if self.name == "killed" and self.odd:
            os._exit(9)
        if self.name == "recomposed" and len(self.waves) == 1:
            planner.observe(wave, peak_bytes=wave.available * 3 // 2 + self.rank)
        if self.name in ("peers", "observed"):
            planner.observe(wave, peak_bytes=GIB + self.rank)


def spoil(planner: Planner) -> None:
    """Make this rank's pricing fail in the middle of the search."""
    real = planner.make_engine

    class Session:
        def __init__(self, session: Any) -> None:
            self.session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self.session, name)

        def bisection(self) -> Any:
            raise MemoryError("no memory for the tables")

    class Engine:
        def __init__(self, engine: Any) -> None:
            self.engine = engine

        def session(self, *inputs: Any) -> Any:
            return Session(self.engine.session(*inputs))

    planner.make_engine = lambda *given: Engine(real(*given))  # type: ignore


def play(engine: str, name: str, rank: int, size: int) -> dict[str, Any]:
    """Run one scenario on this rank; return its waves, or its error."""
    # Two processes per share in "peers", else one.
    shares = size // 2 if name == "peers" else size
    agreement = connect(engine, rank % shares if name == "peers" else None)
    scenario = Scenario(name, agreement, shares)
    result: dict[str, Any] = {"error": None, "text": ""}
    try:
        scenario.run()
    except Exception as error:
        result = {"error": type(error).__name__, "text": str(error)}
    ended = {"at": time.time(), "waves": scenario.waves, "refused": scenario.refused}
    return result | ended


def main() -> None:
    engine, names, folder, *place = sys.argv[1:]
    out = Path(folder)
    if engine == "gloo":
        rank, size = map(int, place)
        join(out, rank, size)
    else:
        from mpi4py import MPI

        rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    for name in names.split(","):
        result = play(engine, name, rank, size)
        (out / f"{name}.{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
