"""Make tests/golden/d3_layout.json: layouts that the reference planner chooses.

In an environment of tests/art/setup that has waveplan:

    python tests/peer/layout_vectors.py tests/golden/d3_layout.json 1050

Cases, and so the file, depend on the seeds alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "art"))

import conftest  # noqa: F401 - loads the reference
import rank as stub
import workloads
from art.trainer_rank import _prefix_tree_performance_search as search
from art.trainer_rank import _prefix_tree_planner as planner

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


def answer(given):
    """Return the reference's layout, the score of its anchors, and the work of its search."""
    results = []
    original = search.search_nonuniform_prefix_tree_layouts

    def recorded(*args, **kwargs):
        results.append(original(*args, **kwargs))
        return results[-1]

    tree = planner.build_canonical_prefix_tree(stub.tensors(workloads.make(given["spec"])))
    score = stub.scoring(given["scoring"], given["cp"])
    with mock.patch.object(search, original.__name__, recorded):
        best = stub.select(tree, given, score)
    (result,) = results
    scores = {
        label: c.score for c in result.candidates if c.mandatory for label in c.candidate.labels
    }
    return {
        "coefficient_version": score.version,
        "table": score.table_id,
        "mandatory_candidates": result.mandatory_candidate_count,
        "refinement_work": result.refinement_work_used,
        "evaluated_refinements": result.evaluated_refinements,
        "stop_reason": result.stop_reason,
        "cost_optimal": {
            "decisions": sorted(best.layout.selected_decisions),
            "score": list(best.score),
        },
        "full_sharing": {"score": list(scores["full_sharing"])},
        "no_sharing": {"score": list(scores["no_sharing"])},
    }


def main() -> None:
    out = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else CASES
    cases = []
    for index in range(count):
        given = case_input(index)
        output = answer(given)
        cases.append({"id": f"d3-{index:04d}", "input": given, "output": output})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    head = f'{{"art":"openpipe-art==0.5.23","function":"layout","seed":{SEED},"cases":[\n'
    out.write_text(head + lines + "\n]}\n")


if __name__ == "__main__":
    main()
