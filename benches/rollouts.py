"""Plan real rollouts on Qwen3.6-35B-A3B for several CP sizes and available bytes; print a table.

    python benches/rollouts.py [FOLDER]        # FOLDER of *_open.npz, by default tests/data

LoRA rank 8, every token labelled, full recompute. "seconds" is the whole pool, cold: from the
sequences in memory to the last wave. Expert parallelism is off: all experts are on every rank.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from waveplan.desk.jobs import Job, Source
from waveplan.report.table import Table, integer

FILES = ("tau_retail_open", "tau_turns_open", "coding_open", "math_grpo_open")


def main(folder: Path) -> None:
    """Plan every file in every configuration."""
    right = (
        *("CP", "available", "waves", "widest", "packed tokens", "busiest rank"),
        *("refused", "seconds"),
    )
    table = Table("", ("rollouts", *right), right=frozenset(right))
    for name in FILES:
        requests = Source(path=str(folder / f"{name}.npz")).requests()
        for available in ("70GiB", "24GiB"):
            for cp in (1, 2, 4, 8):
                planner = Job(model="qwen3.6-35b-a3b", cp=cp, available=available).planner()
                start = time.perf_counter()
                run = planner.waves(requests, on_refusal="skip")
                waves = list(run)
                seconds = time.perf_counter() - start
                table.add(
                    name.removesuffix("_open"),
                    cp,
                    available,
                    integer(len(waves)),
                    integer(max((wave.width for wave in waves), default=0)),
                    integer(sum(wave.plan.packed_tokens for wave in waves)),
                    integer(max((int(wave.plan.rank_tokens.max()) for wave in waves), default=0)),
                    integer(len(run.refused)),
                    f"{seconds:.3f}",
                )
                print(table.rows[-1], file=sys.stderr, flush=True)
    print(table.markdown())


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests" / "data")
