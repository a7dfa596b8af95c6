"""Measures of every plan in the golden wave cases, against the planner they were recorded from."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import golden_cases
from golden_waves import requests_of
from test_golden_layout import model_a

import waveplan
from waveplan import Requests, Topology, Training, _core, models, tree
from waveplan.pricing import BoundRules, Measures, bind, reference_rules
from waveplan.scoring import Device, Shape, select_table

VOCAB, HIDDEN, LAYERS, GDN_LAYERS = 248_320, 2048, 40, 30
ASSIGN = waveplan.OwnershipSettings(owned_token_ms=0.0006763315199999999)
RECURRENT = waveplan.GdnSettings.from_shape(2048, 16, 32, 128, 128, 4)
FORWARD = [(192_512, 0), (159_872, 10_485_760)]
GRADIENT = [(196_608, 0), (163_968, 10_485_760), (196_736, 0)]
VALUE_HEADS, DIM, CONV, OUTPUT_RANK = 32, 128, 8192, 8


def scoring_of(given: dict[str, Any], gradient: bool) -> waveplan.Scoring:
    """The score of a group's layouts; packs without gradients take version 1."""
    wanted, cp = given.get("scoring", "h200"), given["cp"]
    table = None
    if gradient and wanted != "v1":
        device = Device((9, 0), 140 << 30) if wanted == "h200" else None
        dtype = "bfloat16" if wanted == "h200" else ""
        table = select_table(device, dtype, model_a(), Shape(cp=cp))
    gdn = given.get("gdn", True)
    return waveplan.Scoring(
        version=1 if table is None else 2,
        cp=cp,
        layers=LAYERS,
        gdn_layers=GDN_LAYERS if gdn else 0,
        uses_gdn=gdn,
        coefficients=(0,) * 10 if table is None else table.coefficients,
    )


def measure(
    case: dict[str, Any], requests: Requests, picked: list[int], minimal: bool
) -> tuple[dict[str, int], list[dict[str, int]]]:
    """The measures of one plan of a case."""
    given = case["input"]
    gdn, cp = given.get("gdn", True), given["cp"]
    whole = tree(requests.sequences)
    made = _core.PlanMeasures(
        requests, np.array(picked, np.int64), _core.MeasureSettings(cp=cp, gdn=gdn)
    )
    for g, pack in enumerate(requests.packs(picked)):
        part = whole.restrict(pack.indices)
        method = "full" if minimal else "reference"
        layout = waveplan.choose_layout(part, scoring_of(given, pack.gradient), method)
        placement = {}
        if cp > 1:
            packing = part.pack(layout.shared)
            ownership = waveplan.own(packing, cp, ASSIGN)
            placement["ownership"] = ownership
            if gdn:
                placement["gdn"] = waveplan.gdn(packing, ownership, RECURRENT)
        made.exact(g, part, layout.shared, **placement)
    plan, packs = made.finish().to_dict().values()
    return plan, packs


def head_bytes(pack: dict[str, int]) -> int:
    """Workspace of the output head on one rank of model A."""
    rows = pack["head_tokens"]
    chunk = min(rows, 512)
    dense = chunk * VOCAB * 2
    if not pack["head_statistics"]:
        return 3 * dense if pack["head_logits"] else dense
    entries = pack["head_labels"] + pack["head_topk"]
    total = 7 * dense + 128 * chunk + 36 * min(chunk * pack["head_width"], entries)
    total += 32 * pack["head_labels"]
    return total + pack["gradient"] * (4 * pack["head_topk"] + 8 * rows) if dense else 0


def stage(rows: int, stages: list[tuple[int, int]]) -> int:
    return max(rows * per_row + fixed for per_row, fixed in stages) if rows else 0


def gdn_floor(packs: list[dict[str, int]]) -> list[int]:
    """Retained boundaries and the largest workspace with pending gdn saves, at CP 1."""
    if not any(pack["gradient"] for pack in packs):
        return [0, 0]
    executed_bytes = (3 * VALUE_HEADS * DIM + VALUE_HEADS + 64 * VALUE_HEADS + CONV) * 2
    executed_bytes += 12 * VALUE_HEADS
    packed_bytes = 4 * VALUE_HEADS * DIM + 4 * VALUE_HEADS + 2 * OUTPUT_RANK
    state_bytes = 4 * VALUE_HEADS * DIM * DIM + 2 * CONV * 3
    retained, workspace = 0, [0]
    for pack in packs:
        rows = pack["local_tokens"]
        if not pack["gradient"]:
            workspace.append(stage(rows, FORWARD))
            continue
        retained += rows * LAYERS * HIDDEN * 2
        pending = pack["gdn_executed_tokens"] * executed_bytes
        pending += pack["gdn_packed_tokens"] * packed_bytes
        pending += pack["gdn_states"] * state_bytes
        workspace.append(stage(rows, GRADIENT) + pending)
    return [retained, max(workspace)]


def differences(case: dict[str, Any], part: dict[str, Any], measured: Any) -> list[str]:
    given = case["input"]
    plan, packs = measured
    head = max(map(head_bytes, packs), default=0) if given.get("head", True) else 0
    floor = gdn_floor(packs) if given["cp"] == 1 and given.get("gdn", True) else [0, 0]
    found = {
        "packed_tokens": plan["packed_tokens"],
        "group_rows": [[pack["local_tokens"], bool(pack["gradient"])] for pack in packs],
        "segments": sum(pack["segments"] for pack in packs),
        "head_bytes": head,
        "gdn_floor": floor,
    }
    return [
        f"{name} {value} for {part[name]}" for name, value in found.items() if value != part[name]
    ]


@cache
def bound_for(cp: int, gdn: bool, head: bool) -> BoundRules:
    model = models.get("qwen3.6-35b-a3b")
    if not gdn:
        model = replace(model, layer_kinds=("attention",) * model.layers, gdn_layers=0)
    training = Training(expert_slots=True, output_layer=head)
    return bind(model, Topology(cp=cp), training, reference_rules())


def signature(requests: Requests, picked: list[int]) -> tuple[Any, ...]:
    """The key of a profile, as far as the cases differ in it."""
    mixes = {requests.mixes[requests.mix[r]] for r in picked}
    return mixes, sorted(pack.gradient for pack in requests.packs(picked))


def learned(profile: dict[str, Any], plan: dict[str, int], segments: int, layer: int) -> int:
    """Compute bytes that a profile predicts for a plan."""
    priced, packed, logical = (
        plan[name] for name in ("packed_priceable", "packed_tokens", "logical_tokens")
    )

    def tokens(ratio: float) -> float:
        return max(packed, logical / ratio / (8 if priced else 1))

    found = profile["bytes_per_token"] * tokens(profile.get("logical_per_packed", 1.0))
    if profile.get("warm_bytes_per_token") is not None:
        warm = max(profile["warm_packed_tokens"], tokens(profile["warm_logical_per_packed"]))
        found = min(found, profile["warm_bytes_per_token"] * warm)
    return int(found + (6144 * logical + segments * layer if priced else 0))


def retained(profile: dict[str, Any] | None, plan: dict[str, int], results: dict[str, int]) -> int:
    """Bytes that outlive the forward pass: all it needs unless a rate is known and trusted."""
    required = results["forward_required"]
    packed, logical = plan["packed_tokens"], plan["logical_tokens"]
    if profile is None or profile.get("retained") is None:
        return required
    ratio = profile.get("logical_per_packed", 1.0)
    if packed > 8 * profile["packed_tokens"] or logical / max(1, packed) > 8 * ratio:
        return required
    if plan["packed_priceable"]:
        rate = profile["retained"] * packed + 6144 * logical
    else:
        rate = profile["retained"] * max(packed, logical / ratio)
    return min(required, int((results["output"] + max(results["retained"], rate)) * 1.10))


def cost_differences(
    case: dict[str, Any], part: dict[str, Any], measured: Any, profile: dict[str, Any] | None
) -> list[str]:
    """The reference rules over a plan's measures, against the recorded cost of the part."""
    given = case["input"]
    plan, packs = measured
    bound = bound_for(given["cp"], given.get("gdn", True), given.get("head", True))
    plan = dict(plan)
    if profile is not None:
        segments = sum(pack["gradient"] * pack["segments"] for pack in packs)
        layer = 4_292_608 if given.get("gdn", True) else 0
        plan |= {"cold": 0, "learned_bytes": learned(profile, plan, segments, layer)}
    found = bound.results(Measures.of(plan, packs))
    want = {
        "required": part["cost"]["required"],
        "retained": part["cost"]["retained"],
        "checkpoint_retained": part["cost"]["checkpoint_retained"],
        "checkpoint_workspace": part["cost"]["checkpoint_workspace"],
        "input_gradient": part["cost"]["checkpoint_input_gradient"],
        "peak_increment": part["cost"]["checkpoint_peak_increment"],
        "hybridep_growth": part["cost"]["hybridep_growth"],
        "adapter_gradient": part["cost"]["checkpoint_adapter_gradient"],
        "head": part["head_bytes"],
        "gdn": part["gdn_floor"],
        "checkpoint": part["checkpoint_floor"],
    }
    got = {
        "required": found["cost_required"],
        "retained": retained(profile, plan, found),
        "checkpoint_retained": found["output"] + found["retained"],
        "checkpoint_workspace": found["split_workspace"],
        "gdn": [found["gdn_retained"], found["gdn_workspace"]],
        "checkpoint": [found["checkpoint_retained"], found["checkpoint_workspace"]],
        "hybridep_growth": found["buffers"],
    }
    got = {name: found[name] for name in want if name not in got} | got
    return [f"{name} {got[name]} for {want[name]}" for name in want if got[name] != want[name]]


def parts_of(case: dict[str, Any], requests: Requests) -> list[list[int]]:
    """The requests of each part of the answer."""
    offsets = np.append(0, np.cumsum(requests.group_sizes))
    items = case["output"]["indices"]
    local = [r for i in items for r in range(offsets[i], offsets[i + 1])]
    split = case["output"]["subforward_requests"]
    return [local] if split is None else [[local[i] for i in part] for part in split]


def compare(case: dict[str, Any]) -> list[str]:
    requests = requests_of(case)
    output = case["output"]
    wrong, outputs, logical, given = [], 0, 0, case["input"]
    everything = signature(requests, list(range(len(requests))))
    for part, picked in zip(output["parts"], parts_of(case, requests), strict=True):
        measured = measure(case, requests, picked, part["memory_minimal"])
        wrong += differences(case, part, measured)
        known = case["input"]["profile"] if signature(requests, picked) == everything else None
        wrong += cost_differences(case, part, measured, known)
        outputs += bound_for(given["cp"], True, True).results(Measures.of(*measured))["output"]
        logical += int(requests.lengths[picked].sum())
    for name, value in (
        ("output_bytes", outputs),
        ("logical_tokens", logical),
    ):
        if value != output[name]:
            wrong.append(f"{name} {value} for {output[name]}")
    return wrong


@pytest.mark.timeout(600)
def test_golden_parts() -> None:
    cases = [case for case in golden_cases("e*_wave.json") if "parts" in case["output"]]
    wrong = {case["id"]: found for case in cases if (found := compare(case))}
    parts = sum(len(case["output"]["parts"]) for case in cases)
    assert parts > len(cases) > 0
    assert not wrong, f"{len(wrong)} of {len(cases)} cases differ: {wrong}"
