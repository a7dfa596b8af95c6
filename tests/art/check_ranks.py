"""Two processes over Gloo with the drop-in in each: the waves, bytes and reductions of the package.

Each process searches the same pools by the package alone, then with ours, and records every
reduction: which, in which order, with which values.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KINDS = {
    "one wave": {},
    "less memory on one rank": {"less": 1},
    "two shares": {"dp": 2},
    "two shares, less memory on one rank": {"dp": 2, "less": 0},
    "ours is wrong on one rank": {"wrong": 1},
    "ours fails on one rank": {"fails": 0},
    "without gdn layers, bounds": {"gdn": False, "cp": 1, "dp": 2},
    "refused": {"available": 1 << 20},
}


def searches(rank, kind):
    """Answers of one rank to some pools, with the reductions that each made."""
    import wave

    import numpy as np
    import torch.distributed as dist
    from check_pools import draw_sequences

    from waveplan.integrations import art

    reduce, made = dist.all_reduce, []

    def recorded(tensor, op=dist.ReduceOp.SUM, group=None, **more):
        found = reduce(tensor, op=op, group=group, **more)
        seconds = op == dist.ReduceOp.SUM  # what a recovery took so far
        made.append([str(op), list(tensor.shape), None if seconds else tensor.tolist()])
        return found

    dist.all_reduce = recorded
    dp = kind.get("dp", 1)
    answers = []
    for ours in (False, True):
        report = art.install() if ours else art.uninstall()
        if ours and kind.get("wrong") == rank:
            from waveplan.integrations.art import _search

            _search.Proposal._theirs = lambda *_: (1, 1)
        if ours and kind.get("fails") == rank:
            from waveplan.integrations.art import _search

            _search.read = None
        for seed in range(6):
            sequences = draw_sequences(np.random.default_rng([3, seed]))
            total = sum(map(len, sequences))
            available = int(6e9 + 1.5e5 * total) >> (kind.get("less") == rank)
            case = {
                "cp": kind.get("cp", 2),
                "dp": [rank if dp > 1 else 0, dp],
                "gdn": kind.get("gdn", True),
                "available": kind.get("available", available),
                "profile": {"bytes_per_token": 1e3, "packed_tokens": total},
            }
            made.clear()
            found, *_ = wave.run(case, sequences, watch=False)
            answers.append([ours, found, list(made)])
        if ours:
            seam = next(seam for seam in report.seams if seam.name == "width search")
            used = [seam.calls, seam.declined, seam.disagreed, seam.failed]
    art.uninstall()
    return {"answers": answers, "used": used}


def main(rank, port, kind):
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from waveplan.bench import reference

    reference.importable()
    import torch.distributed as dist

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    print("answers", json.dumps(searches(rank, KINDS[kind])), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("kind", KINDS)
def check_two_processes(kind):
    port = str(free_port())
    command = [sys.executable, __file__]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "WAVEPLAN_ART": "0"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), port, kind], stdout=subprocess.PIPE, text=True, env=env
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    for rank, output in enumerate(outputs):
        line = next(line for line in output.splitlines() if line.startswith("answers "))
        found = json.loads(line.removeprefix("answers "))
        answers = found["answers"]
        half = len(answers) // 2
        for (_, theirs, reductions), (_, ours, made) in zip(
            answers[:half], answers[half:], strict=True
        ):
            assert ours == theirs
            assert made == reductions
            assert made
        calls, declined, disagreed, failed = found["used"]
        options = KINDS[kind]
        assert calls == half
        if kind == "refused":
            assert declined == half
        elif options.get("wrong") == rank:
            assert disagreed == half
        elif options.get("fails") == rank:
            assert failed == half
        else:
            assert (disagreed, failed) == (0, 0)
            assert declined < half


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
