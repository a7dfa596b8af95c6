"""The odd golden cases through the reference package with ours installed.

`tests/golden/edge_cases.json` holds each case's name, and its answer or its error with the
message; `RUNS` holds the call. `GUARDED` lists cases that reach no function of ours: they test
that the package's own guards remain.
"""

from __future__ import annotations

import json
import wave

import numpy as np
import pytest
import rank as stub
import torch
from art.megatron import prefix_tree_packing as packing
from art.trainer_rank import ForwardInput, _impl
from art.trainer_rank import _prefix_tree_planner as planner
from check_golden import group_layout
from conftest import TESTS

CASES = {case["name"]: case for case in json.loads((TESTS / "golden/edge_cases.json").read_text())}
CHAIN = ([1] * 1200, list(range(-1, 1199)))
SEVEN = stub.packed_ids([700], [-1])
"""A sequence of 700 tokens without a branch."""


def comb(count, length=1400):
    """Sequence i: i + 1 zeros, then its own number."""
    sequences = np.zeros((count, length), np.int64)
    for i, sequence in enumerate(sequences):
        sequence[i + 1 :] = i + 1
    return stub.tensors(sequences)


def comb_tokens(count, length=1400):
    """Tokens of a comb's tree: the trunk, and each sequence after it branches off."""
    return count + sum(length - i for i in range(1, count + 1))


def estimate(sequences, depth):
    return packing.estimate_prefix_tree_packed_tokens(sequences, max_depth=depth)


def search(sequences, names=None, **case):
    """A width search; those of its facts that are named."""
    found, *_ = wave.run(case, sequences, watch=False)
    del found["probes"]
    return found if names is None else {name: found[name] for name in names}


def planned(sequences, **options):
    """One forward of requests without outputs: packed tokens, output bytes, head tokens."""
    rank, made = stub.planning_rank(), stub.requests(sequences, target=False, **options)
    plan = rank._plan_flat_forward(made)
    return [plan.packed_tokens, plan.output_bytes, rank._head_projection_rows(made)]


def mismatched():
    request = ForwardInput(input_tokens=torch.arange(4), target_tokens=torch.arange(3))
    return wave.search(stub.planning_rank(), [request])


def corrupt():
    rank, made = stub.planning_rank(), stub.requests([[1, 2, 3]])
    rank._moe_checkpoint_grad_bytes_per_token = -1
    return wave.search(rank, made)


def widths(count):
    """The step of a wave's width over so many groups, and widths rounded to it."""
    remaining, least, step = _impl._wave_geometry(count, 0, 1)
    hints = (1, 3, 7, 9, 20, 33, 64, count - 1, count)
    return [step, [_impl._normalize_wave_width(w, least, remaining, step) for w in hints]]


RUNS = {
    "assign cp=8 on 5 tokens": lambda: stub.assigned(*stub.packed_ids([5], [-1]), 8),
    "assign cp=4 on 4 tokens": lambda: stub.assigned(*stub.packed_ids([4], [-1]), 4),
    "assign cp=4 on 7 tokens (chunk = 7//4)": lambda: stub.assigned(*stub.packed_ids([7], [-1]), 4),
    "assign cp=3 on 1000 tokens": lambda: stub.assigned(*stub.packed_ids([1000], [-1]), 3),
    "assign cp=0 (treated as 1)": lambda: stub.assigned(*SEVEN, 0),
    "assign zero remote waves": lambda: stub.assigned(*SEVEN, 2, planner_max_remote_waves=0),
    "assign two rows": lambda: stub.assigned(*(ids.reshape(2, 350) for ids in SEVEN), 2),
    "assign shape mismatch": lambda: stub.assigned(SEVEN[0][:, :4], SEVEN[1][:, :5], 2),
    "assign rank-1 ids": lambda: stub.assigned(SEVEN[0][0], SEVEN[1][0], 2),
    "assign block_size=0": lambda: stub.assigned(*SEVEN, 2, block_size=0),
    "gdn cp=8 on 5 tokens": lambda: stub.placed(*stub.packed_ids([5], [-1]), 8),
    "gdn int32 ids": lambda: stub.placed(
        *(i.int() for i in stub.packed_ids([3000, 200], [-1, 0])), 2
    ),
    "gdn deep chain of 1200 one-token segments cp2": lambda: stub.placed(
        *stub.packed_ids(*CHAIN), 2
    )["gdn_counts"],
    "assign deep chain of 1200 one-token segments cp2": lambda: stub.rank_tokens(
        *stub.packed_ids(*CHAIN), 2
    ),
    "estimate full sharing, 1200-row comb": lambda: estimate(comb(1200), 1200),
    "estimate full sharing, 450-row comb": lambda: estimate(comb(450), 450),
    "estimate full sharing, 600-row comb": lambda: estimate(comb(600), 600),
    "canonical tree, 1200-row comb": lambda: len(
        planner.build_canonical_prefix_tree(comb(1200)).segments
    ),
    "layout candidates, 300-row comb": lambda: len(
        planner.prefix_tree_layout_candidates(planner.build_canonical_prefix_tree(comb(300)))
    ),
    "wave comb 120 rows cp2": lambda: search(
        comb(120),
        ("width", "packed_tokens", "selected_max_depth"),
        cp=2,
        profile={"bytes_per_token": 0.0, "packed_tokens": 120 * 1400},
    ),
    "estimate 2-D tensor": lambda: estimate([torch.ones(2, 3, dtype=torch.long)], 1),
    "estimate no sequences": lambda: estimate([], 1),
    "layout empty row": lambda: planner.build_canonical_prefix_tree([[1], []]),
    "layout no rows": lambda: planner.build_canonical_prefix_tree([]),
    "layout anchor unknown": lambda: group_layout(
        planner.build_canonical_prefix_tree([[1, 2], [1, 3]]), "nope"
    ),
    "wave no rows": lambda: search([]),
    "wave start past end": lambda: search([[1, 2, 3]], start=1),
    "wave empty row": lambda: search([[]]),
    "wave zero budget": lambda: search([[1, 2, 3]], available=0, cp=2),
    "wave one-token row cp8": lambda: search([[1]], ("width", "required", "packed_tokens"), cp=8),
    "target length mismatch": mismatched,
    "request with no outputs": lambda: planned([[1, 2, 3]]),
    "only inactive requests: no trust needed, all admitted": lambda: [
        search([[1, 2], [1, 3], [4]], target=False)[name] for name in ("width", "packed_tokens")
    ],
    "top_k=0": lambda: search([[1, 2, 3]], top_k=0),
    "corrupt MoE checkpoint coefficient": corrupt,
    "width granularity": lambda: {str(n): widths(n) for n in (1, 63, 64, 100, 255, 256, 1024)},
}

GUARDED = {
    "assign shape mismatch": "the builder of attention specs refuses it, which is not replaced",
    "assign rank-1 ids": "the builder of attention specs refuses it, which is not replaced",
    "wave no rows": "the package's own width search refuses an empty window",
    "wave start past end": "the package's own width search refuses an empty window",
    "wave empty row": "a request is refused when the rank takes it in, before planning",
    "target length mismatch": "a request is refused when the rank takes it in, before planning",
    "top_k=0": "a request is refused when the rank takes it in, before planning",
    "only inactive requests: no trust needed, all admitted": "nothing to plan or to project",
    "corrupt MoE checkpoint coefficient": "prices are not replaced",
    "width granularity": "the steps of the width search are not replaced",
}
"""Cases that reach no function of ours below the width search, and why."""

LEFT = {"estimate no sequences": "no sequences: the package answers"}
"""Cases without an error that ours leaves to the package, as it leaves every error."""

PLANNED = {
    "estimate full sharing, 1200-row comb": comb_tokens(1200),
    "estimate full sharing, 600-row comb": comb_tokens(600),
}
"""Sequences that exhaust the stack in the package's own walk: ours returns these tokens."""


def check_every_case_is_run():
    assert len(CASES) == 36
    assert set(RUNS) == set(CASES)
    assert set(GUARDED) | set(LEFT) | set(PLANNED) <= set(CASES)
    # The sum behind PLANNED, where the package itself can tell.
    assert comb_tokens(450) == json.loads(CASES["estimate full sharing, 450-row comb"]["ok"])


@pytest.mark.parametrize("name", CASES)
def check_case(ours, name):
    case, stopped = CASES[name], None
    stub.forget()
    try:
        found = RUNS[name]()
    except Exception as error:
        stopped = type(error).__name__, str(error)
    if "error" in case and name not in PLANNED:
        assert stopped == (case["error"], case["message"])
    else:
        assert stopped is None
        wanted = PLANNED[name] if name in PLANNED else json.loads(case["ok"])
        if isinstance(wanted, dict):  # as much of it as the functions return
            assert found.keys() <= wanted.keys()
            wanted = {key: wanted[key] for key in found}
        assert found == wanted
    assert not any(seam.disagreed or seam.failed for seam in ours.seams)
    above = ("width search", "gdn shapes", "head bytes")
    inner = [seam for seam in ours.seams if seam.name not in above]
    used = {seam.name: (seam.calls, seam.declined) for seam in inner if seam.calls}
    left = sum(declined for _, declined in used.values())
    assert bool(used) is (name not in GUARDED)
    assert bool(left) is (name in LEFT or ("error" in case and not {name} & {*GUARDED, *PLANNED}))


def check_the_package_alone_exhausts_the_stack():
    """The one difference, from the other side."""
    from waveplan.integrations import art

    art.uninstall()
    with pytest.raises(RecursionError):
        RUNS["estimate full sharing, 600-row comb"]()
