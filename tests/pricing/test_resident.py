"""Bytes that stay allocated between waves: measured frozen bases, divisions, optimizer state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from counts import count

from waveplan import Budget, InputError, Planner, Sharding, Topology, Training, models
from waveplan.pricing.resident import Resident, resident

MODEL_A = models.get("qwen3.6-35b-a3b")
DENSE = models.get("qwen3.6-27b")
# A frozen base with a small adapter, before any backward.
FROZEN = Training(lora_rank=1, phase="forward")


def _terms(one: Resident) -> dict[str, int]:
    return {term.name.removeprefix("resident."): term.bytes for term in one.terms}


def _weights(one: Resident) -> int:
    parts = ("embeddings", "mixers", "mlp", "experts", "shared_experts", "norms")
    return sum(_terms(one).get(part, 0) for part in parts)


@pytest.mark.parametrize(
    ("tp", "measured", "bare", "tolerance"),
    [
        (2, 27_428_295_680, 26.90e9, 0.01),
        (4, 13_966_070_784, 13.45e9, 0.01),
        (8, 7_119_606_784, 6.73e9, 0.02),
    ],
)
def test_frozen_dense_base(tp: int, measured: int, bare: float, tolerance: float) -> None:
    one = resident(DENSE, Topology(tp=tp, sequence_parallel=True), FROZEN)
    assert _weights(one) == pytest.approx(bare, rel=1e-3)
    assert 1 <= one.allocated / measured <= 1 + tolerance


def test_frozen_expert_base() -> None:
    one = resident(MODEL_A, Topology(), FROZEN)
    assert 1 <= one.allocated / 69.67e9 <= 1.01
    assert _weights(one) == 2 * count(MODEL_A).total


def test_routed_experts_are_divided_by_ep_alone() -> None:
    whole = _terms(resident(MODEL_A, Topology(), FROZEN))["experts"]
    eighth = resident(MODEL_A, Topology(dp=2, tp=4, ep=8, sequence_parallel=True), FROZEN)
    assert _terms(eighth)["experts"] * 8 == whole
    both = resident(MODEL_A, Topology(dp=4, tp=4, ep=8, etp=2, sequence_parallel=True), FROZEN)
    assert _terms(both)["experts"] * 16 == whole
    # Shared experts follow TP, routers and gates stay whole.
    assert _terms(eighth)["shared_experts"] == 2 * 40 * (3 * 2048 * 512 // 4 + 2048 + 256 * 2048)


@pytest.mark.parametrize("name", models.names())
def test_weights_of_one_rank_are_all_parameters(name: str) -> None:
    model = models.get(name)
    assert _weights(resident(model, Topology(), FROZEN)) == 2 * count(model).total


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-1.7b", "qwen3.6-35b-a3b"])
def test_stages_together_hold_the_model(name: str) -> None:
    model = models.get(name)
    topology = Topology(pp=4)
    stages = [resident(model, topology, FROZEN, stage=stage) for stage in range(4)]
    copies = model.vocab * model.hidden if model.tied_embeddings else 0
    assert sum(map(_weights, stages)) == 2 * (count(model).total + copies)
    assert resident(model, topology, FROZEN).total == max(stage.total for stage in stages)


def test_full_finetuning() -> None:
    total = count(models.get("qwen3-8b")).total
    model = models.get("qwen3-8b")
    plain = _terms(resident(model, Topology(dp=8), Training(lora_rank=0)))
    assert plain["gradients"] == 4 * total
    assert plain["optimizer"] == 12 * total
    assert "adapters" not in plain
    halves = Training(lora_rank=0, grad_dtype="bf16", moment_dtype="bf16", master_weights=False)
    small = _terms(resident(model, Topology(dp=8), halves))
    assert (small["gradients"], small["optimizer"]) == (2 * total, 4 * total)
    divided = Topology(dp=4, cp=2, sharding=Sharding("optimizer"))
    many = _terms(resident(model, divided, Training(lora_rank=0)))
    assert many["optimizer"] == 12 * -(-total // 8)
    assert many["gradients"] == 4 * total


def test_distributed_optimizer_of_experts() -> None:
    # 16 ranks: dense state over DP x CP = 4, that of experts over the 2 ranks that share them.
    topology = Topology(
        dp=2, tp=4, cp=2, ep=8, sequence_parallel=True, sharding=Sharding("optimizer")
    )
    assert topology.expert_dp == 2
    training = Training(lora_rank=0)
    terms = _terms(resident(MODEL_A, topology, training))
    experts = terms["experts"] // 2
    rest = _weights(resident(MODEL_A, topology, training)) // 2 - experts
    assert terms["optimizer"] == 12 * (-(-rest // 4) + -(-experts // 2))


def test_adapters_alone_are_trained() -> None:
    terms = _terms(resident(DENSE, Topology(), Training(lora_rank=8)))
    assert terms["gradients"] == 2 * terms["adapters"]
    assert terms["optimizer"] == 6 * terms["adapters"]
    forward = _terms(resident(DENSE, Topology(), Training(lora_rank=8, phase="forward")))
    assert not {"gradients", "optimizer"} & forward.keys()


def test_allowances_are_stated_and_say_what_they_hold() -> None:
    one = resident(MODEL_A, Topology(cp=2, ep=2), Training())
    stated = {term.name: term for term in one.terms if "allowance" in term.why}
    assert set(stated) == {
        "resident.first_use",
        "resident.context",
        "resident.collectives",
    }
    assert {term.state for term in stated.values()} == {"unmeasured"}
    assert one.total - one.allocated == 2304 * 2**20 + 2 * 512 * 2**20
    assert one.stage == 0
    table: dict[str, Any] = one.to_dict()
    assert sum(term["bytes"] for term in table["terms"]) == table["total"] == one.total


def test_what_is_left_of_a_device() -> None:
    budget = Budget("141 GiB")
    one = resident(MODEL_A, Topology(), Training(lora_rank=8, optimizer="sgd"))
    left = budget.resolve(one.total)
    assert left == 141 * 2**30 - budget.reserved - one.total
    planner = Planner(MODEL_A, Topology(), Training(lora_rank=8, optimizer="sgd"), budget)
    assert planner.available == left
    assert 55e9 < left < 75e9


@pytest.mark.parametrize(("base", "bits"), [("nf4", 4.5), ("int8", 8.125), ("fp8", 8.125)])
def test_a_quantised_base(base: str, bits: float) -> None:
    """Layers shrink; embedding, norms and adapters keep their type; the file's word holds."""
    model = models.get("qwen3-8b")

    def terms(**values: Any) -> dict[str, int]:
        made = replace(model, quantized=values.pop("quantized", ""))
        return _terms(resident(made, Topology(), Training(**values)))

    plain, stored = terms(), terms(base=base)
    for name in ("mixers", "mlp"):
        assert stored[name] == pytest.approx(plain[name] * bits / 16, abs=64)
    assert {name: stored[name] for name in ("embeddings", "norms", "adapters")} == {
        name: plain[name] for name in ("embeddings", "norms", "adapters")
    }
    assert terms(quantized=base) == stored
    assert terms(quantized=base, base="bf16") == terms(quantized="nvfp4") == plain
    assert terms(quantized=base, lora_rank=0)["mlp"] == plain["mlp"]
    with pytest.raises(InputError, match="every parameter is trained"):
        Training(base=base, lora_rank=0)
