"""Make tests/ownership/owners.json: times that the reference planner gives to any owners.

In an environment of tests/art/setup that has waveplan:

    python tests/peer/owner_vectors.py tests/ownership/owners.json

Cases, and so the file, depend on the seed alone. A third folds the chunks (two ranges a rank), a
third has two ranges drawn for each rank, in a third every chunk has any owner.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "art"))

import conftest  # noqa: F401 - loads the reference
import rank as stub
from art.megatron.context_parallel import runtime

SEED = 72_000
CASES = 150
COSTS = {
    "planner_stage_overhead_ms": (0.0, 0.02, 0.6),
    "planner_remote_stage_host_ms": (0.0, 0.01, 1.5),
    "planner_interval_overhead_ms": (0.0, 0.004, 0.1),
    "planner_merge_q_token_ms": (0.0, 1e-5, 1e-3),
    "planner_fetch_token_ms": (1e-5, 0.01),
    "planner_local_backward_pair_ms": (3e-7, 1e-4),
    "planner_remote_stage_underfill_ms": (0.0, 0.8),
}


def owners_of(rng, index, chunks, cp):
    """Owners of the chunks; every rank has one where there are enough."""
    if index % 3 == 2:
        owners = rng.integers(0, cp, chunks)
        owners[rng.permutation(chunks)[:cp]] = np.arange(cp)[:chunks]
        return owners.tolist()
    slabs = min(2 * cp, chunks)
    cuts = np.sort(1 + rng.permutation(chunks - 1)[: slabs - 1])
    slab_of = np.searchsorted(cuts, np.arange(chunks), side="right")
    order = np.minimum(np.arange(2 * cp), 2 * cp - 1 - np.arange(2 * cp))
    if index % 3 == 1:
        order = rng.permutation(order)
    return [int(order[slab]) for slab in slab_of]


def case_input(index):
    """The input of one case."""
    rng = np.random.Generator(np.random.PCG64(SEED + index))
    count = int(rng.integers(1, 25))
    cp = int(rng.choice([2, 3, 4, 8, 16]))
    chunks = int(rng.integers(cp, 40))
    chunk = int(rng.choice([4, 16, 128]))
    parts = rng.dirichlet(np.ones(count)) * chunks * chunk
    lengths = [max(1, int(part)) for part in parts]
    config = {
        name: float(rng.choice(values)) for name, values in COSTS.items() if rng.random() < 0.4
    }
    tokens = sum(lengths)
    return {
        "lengths": lengths,
        "parents": [int(rng.integers(-1, i)) if i else -1 for i in range(count)],
        "cp": cp,
        "chunk": chunk,
        "owners": owners_of(rng, index, -(-tokens // chunk), cp),
        "config": {**config, "planner_max_remote_waves": int(rng.integers(1, 5))},
    }


def answer(given):
    """Return the reference's times, in the number of stages that it would choose."""
    config = stub.config(**given["config"])
    groups, parents = stub.packed_ids(given["lengths"], given["parents"])
    spec = stub.build_prefix_tree_attention_spec(group_ids=groups, parent_ids=parents)
    (line,) = spec.rows
    chunks = runtime._build_chunk_ranges(valid_tokens=line.valid_tokens, chunk_size=given["chunk"])
    matrix, _ = runtime._build_chunk_pair_program(line, chunk_ranges=chunks)
    program = runtime._pair_program(matrix, chunk_ranges=chunks)
    config = runtime._search_config_for_chunk_count(config=config, chunk_count=len(chunks))
    best = None
    for count in range(1, min(config.planner_max_remote_waves, len(chunks)) + 1):
        stages = runtime._wave_assignment(chunk_count=len(chunks), wave_count=count)
        made = runtime._evaluate_plan(
            program=program,
            owners=tuple(given["owners"]),
            wave_assignment=stages,
            cp_size=given["cp"],
            config=config,
        )
        if best is None or made["score"] + 1e-9 < best["score"]:
            best = {**made, "wave_assignment": stages}
    del best["rank_scores"]  # their sums
    return best


def main() -> None:
    out = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else CASES
    cases = []
    for index in range(count):
        given = case_input(index)
        cases.append({"id": f"owners-{index:03d}", "input": given, "output": answer(given)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    head = f'{{"art":"openpipe-art==0.5.23","function":"owners","seed":{SEED},"cases":[\n'
    out.write_text(head + lines + "\n]}\n")


if __name__ == "__main__":
    main()
