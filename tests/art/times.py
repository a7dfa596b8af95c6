"""Times of the reference package's own width search, alone and with ours in place.

usage: FOLDER/bin/python tests/art/times.py [workload ...]; alternating, in one process and on one
thread, on a fresh rank with empty caches. Prints the medians in milliseconds and their ratio.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from waveplan.bench import reference  # noqa: E402

reference.importable()

import rank as stub  # noqa: E402
import torch  # noqa: E402
import workloads  # noqa: E402

from waveplan.integrations import art  # noqa: E402

POOLS = {
    "unique10_195k": (lambda: workloads.unique(10), 64 << 30),
    "grpo_8x8": (lambda: workloads.grpo(8, groups=8, k=8), 64 << 30),
    "agentic_3x8": (lambda: workloads.agentic(38, trees=3, requests=8), 64 << 30),
    "short_1024": (lambda: workloads.short(1024, count=1024), 64 << 30),
    "wave_779k_48req": (workloads.wave_779k, 128 << 30),
    "pool_4m_1024req": (workloads.pool_4m, 64 << 30),
}


def search(sequences, cp, available):
    """Seconds of one cold search, and the width and tokens it chose."""
    stub.forget()
    rank, made = stub.planning_rank(cp, available), stub.requests(sequences)
    stub.learn(rank, made, bytes_per_token=0.0, packed_tokens=sum(map(len, sequences)))
    began = time.perf_counter()
    chosen = rank._select_next_micro_batch(made, 0)
    return time.perf_counter() - began, (chosen.stats_global_count, chosen.plan.packed_tokens)


def main(names):
    torch.set_num_threads(1)
    print(f"{'workload':>18} CP {'alone':>9} {'with ours':>9} ratio   width tokens")
    for name in names or POOLS:
        make, available = POOLS[name]
        sequences = make()
        for cp in (1, 2, 4):
            alone, ours = [], []
            while len(alone) < 3 and sum(alone) < 20:
                art.uninstall()
                spent, wanted = search(sequences, cp, available)
                alone.append(spent)
                art.install()
                for _ in range(3):
                    spent, found = search(sequences, cp, available)
                    assert found == wanted
                    ours.append(spent)
            a, b = statistics.median(alone) * 1e3, statistics.median(ours) * 1e3
            print(
                f"{name:>18} {cp:>2} {a:9.1f} {b:9.1f} {a / b:5.1f}   {wanted[0]} {wanted[1]}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
