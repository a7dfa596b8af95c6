"""Whole width searches on random pools and on real rollouts: the same with ours and without.

Pools mix outputs, gradients, labels, group sizes, profiles, data-parallel shares, hints and
available memory; each is searched on a fresh rank by the package alone, then with ours.
"""

from __future__ import annotations

import dataclasses
import os
import wave
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rank as stub
import torch
from art.megatron.lora import LoRA
from art.trainer_rank import _impl as impl
from conftest import corpus

from waveplan.integrations import art

POOLS = int(os.environ.get("WAVEPLAN_ART_POOLS", "320"))
ROLLOUTS = (
    ("tau_retail_open.npz", 20),
    ("tau_turns_open.npz", 24),
    ("coding_open.npz", 12),
    ("math_grpo_open.npz", 32),
)
HYBRIDEP = {
    "no buffer": {},
    "a small buffer": {"held": 512},
    "a large buffer": {"held": 1 << 20},
    "live graphs": {"held": 1024, "combined": 200_000},
}


def one_of(rng, *values):
    return values[int(rng.integers(len(values)))]


def draw_sequences(rng):
    """Sequences of a random forest: prompts shared by some, split again, with tails."""
    vocabulary = int(one_of(rng, 3, 50, 50_000))
    longest = int(one_of(rng, 12, 120, 900))

    def run(most):
        return rng.integers(0, vocabulary, int(rng.integers(1, most + 1)))

    sequences = []
    for _ in range(int(rng.integers(1, 5))):
        branches = [run(longest)]
        for _ in range(int(rng.integers(1, 8))):
            base = branches[int(rng.integers(len(branches)))]
            cut = int(rng.integers(1, len(base) + 1))
            sequence = np.concatenate([base[:cut], run(longest)])
            branches.append(sequence)
            sequences.append(sequence)
    order = rng.permutation(len(sequences)) if rng.random() < 0.3 else np.arange(len(sequences))
    return [sequences[i].astype(np.int64) for i in order]


def draw_case(rng, sequences):
    """Everything else about a search."""
    n = len(sequences)
    total = sum(map(len, sequences))

    def column(*values, mixed=0.4):
        if rng.random() < mixed:
            return [one_of(rng, *values) for _ in range(n)]
        return one_of(rng, *values)

    dp = int(one_of(rng, 1, 1, 1, 2, 3))
    case = {
        "cp": int(one_of(rng, 1, 2, 4)),
        "dp": [int(rng.integers(dp)), dp],
        "scoring": one_of(rng, "h200", "h200", "cpu", "v1"),
        "gdn": bool(rng.random() < 0.75),
        "head": True,
        "item_size": int(one_of(rng, 1, 1, 2, 3)),
        "no_grad": column(False, False, True),
        "target": column(True, True, True, False, mixed=0.2),
        "labels": column(None, 0, 1, 5, 400),
        "top_k": column(None, None, None, 4, mixed=0.2),
        "logits": column(False, False, False, True, mixed=0.2),
        "hidden": column(False, False, True, mixed=0.2),
        # from far too little for one sequence to enough for all
        "available": int((6e9 + 2.4e5 * total) * float(rng.uniform(0.05, 1.6))),
    }
    if rng.random() < 0.75:
        case["profile"] = {
            "bytes_per_token": float(one_of(rng, 0.0, 1e3, 1e5)),
            "packed_tokens": int(one_of(rng, total, max(1, total // 9), max(1, total // 40))),
            "logical_per_packed": float(one_of(rng, 1.0, 2.5)),
        }
    if rng.random() < 0.3:
        case["last_width"] = int(rng.integers(1, n + 1))
    groups = -(-n // case["item_size"])
    if groups > 1 and rng.random() < 0.2:
        case["start"] = int(rng.integers(groups))
    if rng.random() < 0.3:
        # near the required bytes of the smallest wave: splits and refusals
        case["item_size"] = int(one_of(rng, 4, n))
        case.pop("start", None)
        case["dp"] = [0, 1]
        # little stays between forwards, as a profile may have seen: splitting can help
        case["profile"] = {
            "bytes_per_token": 0.0,
            "packed_tokens": total,
            "logical_per_packed": 2.0,
            "retained": float(one_of(rng, 0.0, 100.0)),
        }
        first = {**case, "available": 1 << 60, "last_width": None}
        least = wave.run(first, sequences)[0]["probes"]
        least = least[0][3] if least else wave.run(first, sequences)[0]["required"]
        case["available"] = int(least * rng.uniform(0.6, 1.02))
    elif case["cp"] > 1:
        case["ep"] = int(one_of(rng, 1, 2, case["cp"]))
        case["hybridep"] = HYBRIDEP[one_of(rng, *HYBRIDEP)]
    return case


def answer(case, sequences, watch):
    """The search's answer and every part of the chosen plan, or the error."""
    try:
        found, rank, made = wave.run(case, sequences, watch)
    except Exception as error:
        return {"raised": type(error).__name__, "message": str(error)}
    if "parts" in found:
        found["plan"] = plan_of(rank, made)
    return found


def plan_of(rank, made):
    """Tensors, segments and fingerprints of the chosen plan, and of all requests as one plan in
    both layouts."""
    plans = [rank.chosen_plan]
    plans += [rank._plan_flat_forward(made, memory_minimal=full) for full in (False, True)]
    return [group_of(group) for plan in plans for group in plan.groups]


def group_of(group):
    pack = group.packed
    tensors = (pack.tokens, pack.group_ids, pack.parent_ids, pack.position_ids)
    return {
        "requests": list(group.request_indices),
        "fingerprints": group.input_row_fingerprints,
        "segments": [vars(segment) for segment in pack.segments],
        "tensors": [tensor.tolist() for tensor in (*tensors, *pack.positions_by_sequence)],
        "plain": (type(group).__name__, dataclasses.replace(group) == group),
    }


def compare(case, sequences, watch=False):
    art.uninstall()
    theirs = answer(case, sequences, watch)
    report = art.install()
    try:
        found = answer(case, sequences, watch)
    finally:
        art.uninstall()
    assert found == theirs
    left = {seam.name: seam.declined for seam in report.seams if seam.declined}
    if case.get("tp", 1) > 1:
        left.pop("busiest rank", None)  # the package pads a pack: a plain one
    searched = outcome(theirs) == "wave" and not watch
    assert left == ({} if searched else {"width search": 1})
    assert not any(seam.disagreed or seam.failed for seam in report.seams)
    return theirs


def outcome(found):
    if "raised" in found:
        return "raised"
    if "error" in found:
        return "refused"
    return "split" if found["subforward_requests"] else "wave"


OUTCOMES = {}


@pytest.mark.parametrize("seed", range(POOLS))
def check_pool(seed, record_property):
    rng = np.random.default_rng([271_828, seed])
    sequences = draw_sequences(rng)
    kind = outcome(compare(draw_case(rng, sequences), sequences, watch=seed % 4 == 0))
    OUTCOMES[kind] = OUTCOMES.get(kind, 0) + 1
    record_property("outcome", kind)


def check_outcomes_are_mixed():
    """The pools reach waves, splits and refusals, and no search ends in a fault."""
    if sum(OUTCOMES.values()) < 300:
        pytest.skip("too few pools ran")
    assert set(OUTCOMES) == {"wave", "split", "refused"}
    assert min(OUTCOMES.values()) >= 10


@pytest.mark.parametrize("gdn", [False, True])
@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("tp", [2, 4])
def check_tensor_parallel(tp, cp, gdn):
    """Packs padded to a multiple of TP, sequences cut over its ranks."""
    for seed in range(3):
        sequences = draw_sequences(np.random.default_rng([141_421, seed]))
        total = sum(map(len, sequences))
        case = {"tp": tp, "cp": cp, "gdn": gdn, "available": int(4e9 + 2e5 * total / cp)}
        case["profile"] = {"bytes_per_token": 1e3, "packed_tokens": total}
        assert outcome(compare(case, sequences)) == "wave"


@pytest.mark.parametrize("kind", HYBRIDEP)
@pytest.mark.parametrize("ranks", [(1, 2), (2, 2), (2, 4), (4, 2), (4, 4)])
def check_expert_parallel(ranks, kind):
    """Buffers of HybridEP: none yet, some, enough; and graphs that are alive."""
    cp, ep = ranks
    for seed in range(6):
        sequences = draw_sequences(np.random.default_rng([223_606, seed]))
        total = sum(map(len, sequences))
        case = {"cp": cp, "ep": ep, "dp": (0, max(1, ep // cp)), "gdn": seed % 2 == 0}
        case |= {"hybridep": HYBRIDEP[kind], "available": int(4.4e9 + 1.2e5 * total / cp)}
        case["profile"] = {"bytes_per_token": 1e3, "packed_tokens": total}
        assert outcome(compare(case, sequences)) == "wave"


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("cp", [1, 2, 4])
def check_slots(cp, trained):
    """Requests of a named adapter slot, whose gradients backward has yet to allocate or not."""
    for seed in range(4):
        sequences = draw_sequences(np.random.default_rng([161_803, seed]))
        total = sum(map(len, sequences))
        case = {"cp": cp, "slot": trained, "available": int(4e9 + 2e5 * total / cp)}
        case["profile"] = {"bytes_per_token": 1e3, "packed_tokens": total}
        assert outcome(compare(case, sequences)) == "wave"


def hook(decoder):
    decoder.layers[0].self_attention.out_norm.register_forward_hook(lambda *_: None)


def norm(decoder):
    decoder.layers[0].self_attention.use_qk_l2norm = False


def weight(decoder):
    held = decoder.layers[0].self_attention.conv1d
    held.weight = torch.nn.Parameter(held.weight.float(), requires_grad=False)


def retyped(decoder):
    held = decoder.layers[0].self_attention.conv1d.weight
    held.data = held.data.float()


def evaluation(decoder):
    decoder.training = False


def warm(seed, **more):
    """A case with memory for about all of some sequences, and these."""
    sequences = draw_sequences(np.random.default_rng([173_205, seed]))
    total = sum(map(len, sequences))
    case = {"available": int(4e9 + 2e5 * total), **more}
    return {**case, "profile": {"bytes_per_token": 1e3, "packed_tokens": total}}, sequences


def shared(cp):
    """A case of twelve sequences with one prompt, of which some fit."""
    rng = np.random.default_rng([173_205, cp])
    prompt = rng.integers(0, 90, 300)
    sequences = [np.concatenate([prompt, rng.integers(0, 90, 100 + 9 * i)]) for i in range(12)]
    case = {"cp": cp, "available": 2_100_000_000, "labels": 50, "scoring": "h200"}
    return {**case, "profile": {"bytes_per_token": 1e3, "packed_tokens": 9000}}, sequences


def same(searches, declined=0):
    """Answers of the package alone, once ours are found to be the same."""
    art.uninstall()
    theirs = searches()
    report = art.install()
    try:
        assert searches() == theirs
    finally:
        art.uninstall()
    left = {seam.name: seam.declined for seam in report.seams if seam.declined}
    assert left == ({"width search": declined} if declined else {})
    assert not any(seam.disagreed or seam.failed for seam in report.seams)
    return theirs


@pytest.mark.parametrize("change", [hook, norm, weight, retyped, evaluation])
def check_changed_models_are_read_anew(change):
    def searches():
        before, rank, made = wave.run(*warm(0), watch=False)
        change(rank.runtime.model[0].decoder)
        return before, wave.search(rank, made, watch=False)

    before, after = same(searches)
    assert before["parts"] != after["parts"]


def score(rank, _):
    rank._coefficient_version, rank._coefficient_table = 1, None
    rank._planner_coefficients = None


def memory(rank, _):
    rank._available_memory_bytes = lambda *_: 10**9


def profile(rank, made):
    stub.learn(rank, made, bytes_per_token=2e6, packed_tokens=9000)


def adapter(rank, _):
    stub.load_slot(rank, trained=True)


def adapter_type(rank, _):
    stub.load_slot(rank, trained=False)
    for module in rank.runtime.model[0].modules():
        if isinstance(module, LoRA):
            slot = module._slot_modules["slot_0"]
            slot.A_T, slot.B_T = slot.A_T.float(), slot.B_T.float()


def labels(_, made):
    for request in made:
        request.target_tokens.zero_()


def tokens(_, made):
    """Sequences that shared a prefix share none."""
    for number, request in enumerate(made):
        request.input_tokens.copy_(request.input_tokens + 100_000 * number)


def replaced(_, made):
    made[:] = [dataclasses.replace(one, no_grad=True, logits=True) for one in made]


CHANGES = (score, memory, profile, adapter, adapter_type, labels, tokens, replaced)


@pytest.mark.parametrize("cp", [1, 2])
@pytest.mark.parametrize("change", CHANGES)
def check_changes_between_searches_are_seen(change, cp):
    """Also what a plan computes late is of the tensors as they were when it was made."""

    def searches():
        before, rank, made = wave.run(*shared(cp), watch=False)
        first = rank.chosen_plan
        if change is adapter_type:
            adapter(rank, made)
            wave.search(rank, made, watch=False)
        change(rank, made)
        after = wave.search(rank, made, watch=False)
        return before, after, *([group_of(g) for g in p.groups] for p in (first, rank.chosen_plan))

    before, after, *_ = same(searches)
    assert before != after


def check_trees_in_caches_keep_their_tokens():
    """Tokens come again in other tensors after those that a tree was built of have changed."""

    def searches():
        _, rank, made = wave.run(*warm(2), watch=True)
        again = [dataclasses.replace(one, input_tokens=one.input_tokens.clone()) for one in made]
        tokens(rank, made)
        plans = [rank._plan_flat_forward(again, memory_minimal=full) for full in (False, True)]
        return [group_of(group) for plan in plans for group in plan.groups]

    same(searches, declined=1)


def check_ranks_of_one_process():
    """Ranks of unlike models take turns, in one thread and in several."""
    kinds = ({}, {"cp": 2}, {"gdn": False}, {"cp": 4, "scoring": "v1"}, {"slot": True})

    def searches():
        ranks = [wave.run(*warm(seed, **kind), watch=False) for seed, kind in enumerate(kinds)]

        def again(_):
            return [wave.search(rank, made, watch=False) for _, rank, made in ranks]

        turns = [again(0), again(1)]
        with ThreadPoolExecutor(len(ranks)) as threads:
            each = [threads.submit(wave.search, rank, made, 0, False) for _, rank, made in ranks]
            return *turns, [one.result() for one in each]

    first, second, threaded = same(searches)
    assert first == second == threaded


def check_classes_with_methods_of_their_own_are_left_alone():
    def searches():
        _, rank, made = wave.run(*shared(1), watch=False)
        check = impl.TrainerRank._memory_check_required

        def doubled(rank, required, **options):
            return check(rank, 2 * required, **options)

        rank.__class__ = type("Doubled", (type(rank),), {"_memory_check_required": doubled})
        return wave.search(rank, made, watch=False)

    same(searches, declined=2)  # and once more, after memory was made free


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize(("name", "count"), ROLLOUTS)
def check_rollouts(name, count, cp):
    """Real multi-turn and group rollouts, warm, with memory for about half of them."""
    picked = corpus(name, range(count))
    total = sum(map(len, picked))
    case = {
        "cp": cp,
        "available": int(6e9 + 1.2e5 * total),
        "profile": {"bytes_per_token": 0.0, "packed_tokens": total},
    }
    assert outcome(compare(case, picked)) == "wave"
