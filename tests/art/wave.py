"""One width search of the reference planner, with the keys of the golden vectors."""

from __future__ import annotations

from dataclasses import asdict

import rank as stub
from art.trainer_rank import TrainerRankMemoryError, _gdn_memory, _impl


def watched(rank):
    """Record each plan's mode and each memory check, in order."""
    plan_of, check_of = rank._plan_flat_forward, rank._memory_check
    checks, modes = [], {}

    def plan(made, **options):
        value = plan_of(made, **options)
        modes[id(value)] = value, bool(options.get("memory_minimal"))
        return value

    def check(forward, **options):
        value = check_of(forward, **options)
        full = modes.get(id(forward), (None, False))[1]
        checks.append(
            [
                forward.request_count,
                int(full),
                forward.packed_tokens,
                value.estimated_required_bytes,
                int(value.fits),
            ]
        )
        return value

    rank._plan_flat_forward, rank._memory_check = plan, check
    return checks, modes


def part_of(rank, plan, full):
    """Return every figure that the price of one forward depends on."""
    tokens = rank._plan_group_rows(plan)
    return {
        **({} if full is None else {"memory_minimal": full}),
        "packed_tokens": plan.packed_tokens,
        "group_rows": [list(group) for group in tokens],
        "segments": sum(len(group.packed.segments) for group in plan.groups),
        "gdn_floor": list(_gdn_memory.plan_floor(rank, plan)),
        "checkpoint_floor": list(rank._checkpoint_memory_floor(tokens)),
        "head_bytes": rank._plan_head_workspace_bytes(plan),
        "cost": asdict(rank._plan_cost(plan)),
    }


def search(rank, groups, start=0, watch=True):
    """Return the chosen wave, or the refusal; watched, with every memory check in order.

    A watched rank searches by itself, with the smaller seams: it has methods of its own.
    """
    checks, modes = watched(rank) if watch else ([], {})
    try:
        chosen = rank._select_next_micro_batch(groups, start)
    except TrainerRankMemoryError as refusal:
        return {
            "error": type(refusal).__name__,
            "message": str(refusal),
            "required": refusal.predicted_peak_bytes,
            "available": refusal.usable_limit_bytes,
            "probes": checks,
        }
    finally:
        if watch:
            del rank._plan_flat_forward, rank._memory_check
    plan = rank.chosen_plan = chosen.plan
    whole = isinstance(plan, _impl._FlatForwardPlan)
    parts = (plan,) if whole else plan.subforwards
    return {
        "width": chosen.stats_global_count,
        "indices": list(chosen.indices),
        "required": chosen.check.estimated_required_bytes,
        "fits": chosen.check.fits,
        "available": chosen.check.available_bytes,
        "rejected": chosen.rejected_candidates,
        "cold_start": chosen.cold_start,
        "packed_tokens": plan.packed_tokens,
        "logical_tokens": plan.logical_tokens,
        "output_bytes": plan.output_bytes,
        "selected_max_depth": plan.selected_max_depth,
        "subforward_requests": None if whole else [list(part) for part in plan.request_indices],
        "probes": checks,
        "parts": [part_of(rank, part, modes[id(part)][1] if watch else None) for part in parts],
    }


def run(case, sequences, watch=True):
    """The search of one golden case."""
    stub.forget()
    cp, gdn = case.get("cp", 1), case.get("gdn", True)
    rank = stub.planning_rank(
        cp,
        case.get("available", 1 << 60),
        case.get("scoring", "h200"),
        case.get("head", True),
        gdn,
        case.get("dp", (0, 1)),
        case.get("tp", 1),
        case.get("ep", 1),
    )
    options = ("no_grad", "target", "hidden", "labels", "top_k", "logits")
    made = stub.requests(sequences, **{name: case[name] for name in options if name in case})
    size = case.get("item_size", 1)
    groups = made if size == 1 else [made[i : i + size] for i in range(0, len(made), size)]
    if case.get("slot") is not None:
        stub.load_slot(rank, trained=case["slot"])
    stub.hold(rank, **case.get("hybridep", {}))
    if case.get("profile"):
        stub.learn(rank, made, **case["profile"])
    rank._last_global_micro_batch_size = case.get("last_width")
    return search(rank, groups, case.get("start", 0), watch), rank, made
