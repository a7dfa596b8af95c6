"""The reference rules against every part of every golden wave.

Measures come from the case as far as it states them. Head bytes and pending saves stand in
through overrides of their rules, except where every token is labelled: there the head is priced.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import golden_cases
from workloads import make

from waveplan import Topology, Training, models
from waveplan.pricing import BoundRules, Measures, RuleSet, bind, reference_rules

MODEL = models.get("qwen3.6-35b-a3b")
SEGMENT_LAYER = 4_292_608


def stand_ins() -> RuleSet:
    rules = reference_rules()
    rules = rules.override("head.workspace", bytes="head_tokens * B")
    return rules.override("gdn.pending", bytes="gdn_executed_tokens * B")


def bound_for(case: dict, rules: RuleSet, cache: dict) -> BoundRules:
    given = case["input"]
    key = (given["cp"], given.get("gdn", True), given.get("head", True), rules.name)
    if key not in cache:
        model = MODEL
        if not given.get("gdn", True):
            kinds = ("attention",) * MODEL.layers
            model = replace(MODEL, layer_kinds=kinds, gdn_layers=0)
        training = Training(expert_slots=True, output_layer=given.get("head", True))
        cache[key] = bind(model, Topology(cp=given["cp"]), training, rules)
    return cache[key]


def packed_priced(case: dict, part: dict) -> bool:
    given = case["input"]
    plain = not any(given.get(key) for key in ("hidden", "top_k", "logits"))
    rows, size = make(given["spec"]), given.get("item_size", 1)
    wave = [rows[i * size : (i + 1) * size] for i in case["output"]["indices"]]
    if any(len(row) < 64 for item in wave for row in item):
        return False
    return plain and given.get("target", True) is True and all(g for _, g in part["group_rows"])


def learned(case: dict, part: dict, logical: int, priced: bool) -> int:
    profile, packed = case["input"]["profile"], part["packed_tokens"]

    def tokens(ratio: float) -> float:
        return max(packed, logical / ratio / (8 if priced else 1))

    got = profile["bytes_per_token"] * tokens(profile.get("logical_per_packed", 1.0))
    if profile.get("warm_bytes_per_token") is not None and profile.get("warm_packed_tokens"):
        warm = max(profile["warm_packed_tokens"], tokens(profile["warm_logical_per_packed"]))
        got = min(got, profile["warm_bytes_per_token"] * warm)
    gradient_segments = part["segments"] if any(g for _, g in part["group_rows"]) else 0
    layer = SEGMENT_LAYER if case["input"].get("gdn", True) else 0
    return int(got + (6144 * logical + gradient_segments * layer if priced else 0))


def measures_of(part: dict, head: int) -> Measures:
    cost = part["cost"]
    floor = max(part["gdn_floor"][0], part["checkpoint_floor"][0])
    packs = []
    for rows, gradient in part["group_rows"]:
        pending = 0
        if gradient and part["gdn_floor"][1]:
            # the stub's converted slots: FC2 returned, or FC2 running with its transposes
            stage = max(196_736 * rows, 163_968 * rows + 10_485_760)
            pending = max(0, part["gdn_floor"][1] - stage)
        packs.append(
            {
                "local_tokens": rows,
                "gradient": int(gradient),
                "padded_tokens": rows,
                "segments": part["segments"],
                "gdn_executed_tokens": pending,
                "head_tokens": 0 if packs else head,
            }
        )
    plan = {
        "packed_tokens": part["packed_tokens"],
        "retained_tokens": sum(rows for rows, _ in part["group_rows"]),
        "target_entries": (cost["checkpoint_retained"] - floor) // 4,
    }
    return Measures.of(plan, packs)


def parts() -> list[tuple[dict, dict]]:
    cases = golden_cases("e*_wave.json")
    return [(case, part) for case in cases for part in case["output"].get("parts", [])]


def test_golden_parts() -> None:
    rules, cache, wrong, compared = stand_ins(), {}, [], 0
    for case, part in parts():
        if not part["group_rows"]:
            continue
        bound = bound_for(case, rules, cache)
        measures = measures_of(part, part["head_bytes"])
        got = bound.results(measures)
        compared += 1
        floors = [
            got["checkpoint_retained"],
            got["checkpoint_workspace"],
            got["gdn_retained"],
            got["gdn_workspace"],
            got["head"],
        ]
        want = [*part["checkpoint_floor"], *part["gdn_floor"], part["head_bytes"]]
        cost = part["cost"]
        # A profile may belong to another mix of requests: warm and cold are both possible.
        options = []
        single = len(case["output"]["parts"]) == 1
        for cold in (0, 1) if case["input"]["profile"] else (1,):
            plan, packs = measures.to_dict().values()
            plan["cold"] = cold
            if not cold:
                # A part of a split: 4 output bytes per labelled token, ignored ones included.
                entries = plan["target_entries"]
                logical = case["output"]["logical_tokens"] if single else entries
                plan["learned_bytes"] = learned(case, part, logical, packed_priced(case, part))
            got = bound.results(Measures.of(plan, packs))
            options.append(
                {
                    "required": got["cost_required"],
                    "checkpoint_retained": got["output"] + got["retained"],
                    "checkpoint_workspace": got["split_workspace"],
                    "checkpoint_input_gradient": got["input_gradient"],
                    "checkpoint_peak_increment": got["peak_increment"],
                    "hybridep_growth": got["buffers"],
                    "checkpoint_adapter_gradient": got["adapter_gradient"],
                }
            )
        wanted = {key: cost[key] for key in options[0]}
        if floors != want or wanted not in options:
            wrong.append((case["id"], floors, want, options, wanted))
    assert not wrong, f"{len(wrong)} of {compared} parts differ: {wrong[:3]}"
    assert compared, "no part to compare"


def test_golden_heads() -> None:
    """Where all tokens carry one label the head's measures are known: price them."""
    compared, cache = 0, {}
    for case, part in parts():
        given = case["input"]
        plain = not any(k in given for k in ("labels", "top_k", "logits", "hidden"))
        single = len(case["output"]["parts"]) == 1 and len(part["group_rows"]) == 1
        size = given.get("item_size", 1)
        if not (plain and single and given.get("target", True) is True and size == 1):
            continue
        rows, gradient = part["group_rows"][0]
        logical = case["output"]["logical_tokens"]
        pack = {
            "local_tokens": rows,
            "gradient": int(gradient),
            "head_tokens": part["packed_tokens"],
            "head_labels": logical,
            "head_width": len(case["output"]["indices"]),
            "head_targets": 1,
            "head_statistics": 1,
        }
        bound = bound_for(case, reference_rules(), cache)
        got = bound.results(Measures.of({"packed_tokens": part["packed_tokens"]}, [pack]))
        assert got["head"] == part["head_bytes"], case["id"]
        compared += 1
    if compared == 0:
        pytest.fail("no case with a label on every token")
