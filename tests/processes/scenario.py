"""One rank of one scenario: plans waves, writes what it got (or its error) as JSON.

usage: scenario.py ENGINE NAME FOLDER [RANK SIZE]
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


def gloo(folder: Path, rank: int, size: int, dp_rank: int | None) -> Any:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=60),
    )
    return waveplan.TorchDistributed(dp_rank=dp_rank)


def mpi(dp_rank: int | None) -> Any:
    from mpi4py import MPI

    return waveplan.Mpi4py(MPI.COMM_WORLD, dp_rank=dp_rank)


def rows(items: int, seed: int = 5) -> list[np.ndarray]:
    """Rows that share beginnings, of very unequal lengths."""
    random = np.random.default_rng(seed)
    beginnings = [random.integers(0, 1000, length) for length in (300, 900, 40)]
    return [
        np.concatenate([beginnings[i % 3], random.integers(0, 1000, int(random.integers(8, 4000)))])
        for i in range(items)
    ]


class Scenario:
    """What every rank does; the name picks what one of them does otherwise."""

    def __init__(self, name: str, agreement: Any, shares: int) -> None:
        self.name, self.agreement, self.dp = name, agreement, shares
        self.rank, self.odd = agreement.rank, agreement.rank == agreement.size - 1
        self.waves: list[Any] = []

    def run(self) -> None:
        with waveplan.in_step(self.agreement):
            if self.name == "planner" and self.odd:
                raise OSError("config.json is missing")
            planner = Planner(
                models.get("Qwen3.6-35B-A3B"),
                Topology(dp=self.dp, cp=2),
                Training(),
                self.free(),
                agreement=self.agreement,
                compatible=self.name == "compatible",
            )
            self.plan(planner)

    def free(self) -> int:
        if self.name in ("memory", "peers"):
            return (5 + 2 * self.rank) * GIB
        return 6 * GIB

    def pool(self) -> Any:
        made: list[Any] = rows(5 if self.name == "empty" else 24)
        if self.name == "bad rows" and self.odd:
            made[-1] = [3, -1]
        if self.name == "other pool" and self.odd:
            made = made[:-1]
        if self.name == "refused":
            made[self.agreement.size - 1] = np.arange(80_000)
        if self.name == "unequal":
            return Requests(made, items=[1, 5, 1, 1, 9, 1, 1, 5])
        return made

    def plan(self, planner: Planner) -> None:
        if self.name == "planning raises" and self.odd:
            spoil(planner)
        waves = planner.waves(self.pool())
        for wave in waves:
            self.waves.append(
                {
                    "start": wave.start,
                    "width": wave.width,
                    "indices": wave.indices.tolist(),
                    "required": wave.required,
                    "limit": wave.limit,
                    "fingerprint": wave.plan.fingerprint,
                    "dp_rank": self.agreement.dp_rank,
                }
            )
            if self.name == "prefetch":
                planner.prefetch(waves.pool, waves.start)
            self.step(planner, wave)

    def step(self, planner: Planner, wave: Any) -> None:
        """The caller's own work on a wave."""
        if self.name == "slow" and self.odd:
            time.sleep(0.5)
        if self.name == "step raises" and self.odd:
            raise ValueError("the loss is not finite")
        if self.name == "killed" and self.odd:
            os._exit(9)
        if self.name in ("peers", "prefetch"):
            planner.observe(wave, peak_bytes=wave.required - 1000 * (self.rank // self.dp))


def spoil(planner: Planner) -> None:
    """Lets this rank's pricing fail in the middle of the search."""
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

    planner.make_engine = lambda pool: Engine(real(pool))  # type: ignore


def main() -> None:
    engine, name, folder, *place = sys.argv[1:]
    if engine == "gloo":
        rank, size = map(int, place)
    else:
        rank, size = (
            int(os.environ["OMPI_COMM_WORLD_RANK"]),
            int(os.environ["OMPI_COMM_WORLD_SIZE"]),
        )
    # Two processes per share in "peers", else one.
    shares = size // 2 if name == "peers" else size
    dp_rank = rank % shares if name == "peers" else None
    out = Path(folder)
    agreement = gloo(out, rank, size, dp_rank) if engine == "gloo" else mpi(dp_rank)
    scenario = Scenario(name, agreement, shares)
    result: dict[str, Any] = {"error": None, "text": ""}
    try:
        scenario.run()
    except Exception as error:
        result = {"error": type(error).__name__, "text": str(error)}
    result |= {"at": time.time(), "waves": scenario.waves}
    (out / f"{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
