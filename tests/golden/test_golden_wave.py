"""The whole width search against the reference planner's answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from conftest import golden_cases
from golden_waves import requests_of

from waveplan import (
    Alone,
    Budget,
    Planner,
    Requests,
    Topology,
    Training,
    WaveRefused,
    _core,
    models,
)
from waveplan.checks import columns
from waveplan.profiles import Rates
from waveplan.scoring import Scoring, from_table

COST = {
    "input_gradient": "checkpoint_input_gradient",
    "peak_increment": "checkpoint_peak_increment",
    "adapter_gradient": "checkpoint_adapter_gradient",
}


def result(forward: _core.ForwardPlan, name: str) -> int:
    """A named result of a forward's price."""
    return int(forward.roots[_core.PRICE_ROOTS.index(name)])


def scoring_of(name: str, cp: int, gdn: bool) -> Scoring:
    facts = {"layers": 40, "gdn_layers": 30 if gdn else 0, "cp": cp}
    if name == "v1" or (name == "h200" and cp not in (1, 2, 4)):
        return Scoring(version=1, **facts)
    table = "gdn-moe-h2048" if name == "h200" else "dense-h2560"
    return from_table(table, **facts)


def planner_of(case: dict[str, Any], **options: Any) -> Planner:
    """The reference planner's stub of model A: one rank of the job, adapters of rank 8."""
    model = models.get("Qwen3.6-35B-A3B")
    gdn, cp = case.get("gdn", True), case.get("cp", 1)
    if not gdn:
        model = replace(model, gdn_layers=0, layer_kinds=())
    rank, size = case.get("dp", (0, 1))
    options.setdefault("mode", "reference")
    planner = Planner(
        model,
        Topology(dp=size, cp=cp),
        Training(lora_rank=8, expert_slots=True, output_layer=case.get("head", True)),
        Budget(available=1 << 60),
        agreement=Alone(dp_rank=rank),
        scoring=scoring_of(case.get("scoring", "h200"), cp, gdn),
        **options,
    )
    planner.available = case.get("available", 1 << 60)
    return planner


def seed(planner: Planner, pool: Requests, profile: dict[str, Any]) -> None:
    """Pretends that a wave of all rows' signature ran before."""
    everything = planner.signature_of(pool, np.arange(len(pool)))
    planner.profiles[everything] = Rates(
        bytes_per_token=profile["bytes_per_token"],
        packed_tokens=profile["packed_tokens"],
        logical_per_packed=profile.get("logical_per_packed", 1.0),
        retained=profile.get("retained"),
        warm_bytes_per_token=profile.get("warm_bytes_per_token"),
        warm_packed_tokens=profile.get("warm_packed_tokens"),
        warm_logical_per_packed=profile.get("warm_logical_per_packed"),
        whole_waves=profile.get("caller_plans", 0),
    )


def search(
    case: dict[str, Any], make: Callable[[dict[str, Any]], Planner] | None = None
) -> dict[str, Any]:
    """The search's answer in the words of the vectors."""
    planner, pool = (make or planner_of)(case), requests_of({"input": case})
    if case.get("profile"):
        seed(planner, pool, case["profile"])
    planner.width_hint = case.get("last_width")
    try:
        wave = planner.wave(pool, start=case.get("start", 0))
    except WaveRefused as refusal:
        return {
            "error": "TrainerRankMemoryError",
            "required": refusal.required,
            "available": refusal.available,
            "packed_tokens": refusal.plan.packed_tokens,
            "logical_tokens": refusal.plan.logical_tokens,
            "probes": plan_probes(refusal.probes),
        }
    plan = wave.plan
    return {
        "width": wave.width,
        "indices": wave.indices.tolist(),
        "required": wave.required,
        "fits": wave.required <= wave.available,
        "available": wave.available,
        "rejected": wave.rejected,
        "cold_start": wave.cold,
        "packed_tokens": plan.packed_tokens,
        "logical_tokens": plan.logical_tokens,
        "output_bytes": plan.output_bytes,
        "selected_max_depth": max(forward.depth for forward in plan.forwards),
        "subforward_requests": [r.tolist() for r in plan.part_requests] if plan.split else None,
        "probes": plan_probes(wave.probes),
        "parts": [
            {
                "memory_minimal": forward.mode == "full",
                "packed_tokens": forward.packed_tokens,
                "group_rows": [[g.local_tokens, g.gradient] for g in forward.packs],
                "segments": sum(len(g.packing) for g in forward.packs),
                "gdn_floor": [result(forward, "gdn_retained"), result(forward, "gdn_workspace")],
                "checkpoint_floor": [
                    result(forward, "checkpoint_retained"),
                    result(forward, "checkpoint_workspace"),
                ],
                "head_bytes": result(forward, "head"),
                "cost": {COST.get(n, n): at for n, at in columns(forward.cost).items()},
            }
            for forward in plan.forwards
        ],
    }


def plan_probes(probes: Any) -> list[list[int]]:
    """The memory checks of whole plans, in the words of the vectors."""
    return [
        [p.requests, int(p.kind == "full"), p.packed_tokens, p.required, int(p.fits)]
        for p in probes
        if ":" not in p.kind
    ]


def expected(output: dict[str, Any]) -> dict[str, Any]:
    """The vector's answer, with a refusal's token counts read from its message."""
    wanted = dict(output)
    message = wanted.pop("message", None)
    if message is not None:
        for name in ("packed_tokens", "logical_tokens"):
            wanted[name] = int(re.search(rf"{name}=(\d+)", message)[1])
    for part in wanted.get("parts", []):
        part["cost"].pop("checkpoint_adapter_gradient_slots")
    return wanted


def differences(got: Any, wanted: Any, where: str = "") -> list[str]:
    if isinstance(wanted, dict):
        return [
            line
            for key, value in wanted.items()
            for line in differences(got.get(key), value, f"{where}.{key}")
        ]
    return [] if got == wanted else [f"{where}: {got} instead of {wanted}"]


def test_golden_wave() -> None:
    cases = golden_cases("e*_wave.json")
    wrong = {}
    for case in cases:
        lines = differences(search(case["input"]), expected(case["output"]))
        if lines:
            wrong[case["id"]] = lines[:4]
    report = "\n".join(f"{name}: {lines}" for name, lines in wrong.items())
    assert not wrong, f"{len(wrong)} of {len(cases)} cases differ\n{report}"
