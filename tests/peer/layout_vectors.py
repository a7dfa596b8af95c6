"""Make tests/golden/d3_layout.json: layouts that the reference planner chooses.

Run with the reference planner's environment, and on PYTHONPATH a module ``oracle`` that calls it
(``layout``) and ``workloads`` (as tests/workloads.py):

    PYTHONPATH=HARNESS PEER_HOME=PEER python tests/peer/layout_vectors.py \\
        tests/golden/d3_layout.json 1050

Cases, and so the file, depend on the seeds alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

SEED = 71_000
CASES = 1_050
# (generator, least and most sequences, other parameters by range)
SHAPES = (
    ("tiny", (2, 60), {"length": ((1, 4), (6, 40)), "vocab": (2, 5)}),
    ("blocks", (3, 40), {"depth": (1, 6), "branch": (1, 4)}),
    ("blocks", (3, 30), {"depth": (2, 8), "branch": (1, 3), "block": ((1, 40), (60, 300))}),
    ("prefixes", (2, 30), {"length": (20, 4000)}),
    ("one_token", (2, 30), {"length": (64, 600), "step": (1, 17)}),
    ("near_identical", (2, 20), {"length": (64, 3000), "divergences": (1, 4)}),
    ("short", (4, 70), {}),
    ("grpo", None, {"groups": (1, 4), "k": (1, 6)}),
    ("agentic", None, {"trees": (1, 2), "requests": (2, 6), "tokens": ((600, 900), (2000, 9000))}),
)
SCORES = ("h200", "h200", "cpu", "v1")


def draw(rng, low_high):
    """A number, or a pair of numbers, within a range."""
    low, high = low_high
    if isinstance(low, tuple):
        return [draw(rng, low), draw(rng, high)]
    return int(rng.integers(low, high + 1))


def case_input(index):
    """The input of one case."""
    rng = np.random.Generator(np.random.PCG64(SEED + index))
    name, counts, ranges = SHAPES[index % len(SHAPES)]
    params = {} if counts is None else {"count": draw(rng, counts)}
    params |= {key: draw(rng, value) for key, value in ranges.items()}
    layers = int(rng.choice([1, 12, 28, 32, 40]))
    gdn = int(rng.choice([0, layers * 3 // 4, layers]))
    return {
        "spec": {"gen": name, "params": params, "seed": SEED + index},
        "cp": int(rng.choice([1, 1, 2, 2, 4, 8, 3, 6])),
        "layers": layers,
        "gdn_layers": gdn,
        "uses_gdn": bool(gdn > 0),
        "scoring": str(rng.choice(SCORES)),
        "budget": int(rng.choice([2000, 2000, 2000, 2000, 500, 64, 1, 0])),
    }


def answer(oracle, workloads, given):
    """The reference's answer, without values that follow from others."""
    sequences = workloads.make(given["spec"])
    keys = ("cp", "layers", "uses_gdn", "gdn_layers", "scoring", "budget")
    full = oracle.layout(sequences, **{key: given[key] for key in keys}, detail=False)
    kept = ("coefficient_version", "table", "mandatory_candidates", "refinement_work")
    out = {key: full[key] for key in (*kept, "evaluated_refinements", "stop_reason")}
    best = full["cost_optimal"]
    out["cost_optimal"] = {"decisions": best["decisions"], "score": best["score"]}
    for name in ("full_sharing", "no_sharing"):
        out[name] = {"score": full[name]["score"]}
    return out


def main() -> None:
    import oracle
    import workloads

    out = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else CASES
    cases = []
    for index in range(count):
        given = case_input(index)
        output = answer(oracle, workloads, given)
        cases.append({"id": f"d3-{index:04d}", "input": given, "output": output})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    head = f'{{"art":"openpipe-art==0.5.23","function":"layout","seed":{SEED},"cases":[\n'
    out.write_text(head + lines + "\n]}\n")


if __name__ == "__main__":
    main()
