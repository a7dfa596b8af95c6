"""Each fact of a trainer moves the bytes that it stands for, or is listed as uncharged."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from waveplan import Model, Planner, Sharding, Topology, Training, models
from waveplan.pricing import Measures, bind, price
from waveplan.pricing.resident import resident

LATENT = replace(models.get("deepseek-v3"), layers=8, layer_kinds=(), moe_layers=())
MOE = models.get("qwen3-30b-a3b")
DENSE = models.get("qwen3-8b")
SHARED = models.get("qwen3.6-35b-a3b")
FULL: dict[str, Any] = {"lora_rank": 0, "recompute": "none", "head": "vocab_parallel"}
SELECTIVE: dict[str, Any] = {**FULL, "recompute": "selective"}
RECOMPUTED: dict[str, Any] = {**FULL, "recompute": "full"}


def measures(local: int = 8192) -> Measures:
    plan = {"packed_tokens": 8192, "logical_tokens": 8192, "retained_tokens": local}
    pack = {"gradient": 1, "padded_tokens": 8192, "local_tokens": local, "head_tokens": 8192}
    return Measures.of(plan, [{**pack, "segments": 2}])


def charges(model: Model, ranks: dict[str, Any], facts: dict[str, Any]) -> dict[str, int]:
    """Bytes of every rule on the last stage, what is resident too; -1 of an uncharged one."""
    topology, training = Topology(**ranks), Training(**facts)
    stage = topology.pp - 1
    bound = bind(model, topology, training, stage=stage)
    names = [*bound.rules.rules]
    free = [f"max_packs({name})" if bound.rules.kinds[name].free else name for name in names]
    seen = measures(5000 if topology.cp > 1 else 8192)
    found = dict(zip(names, bound.values(seen, *free)[stage], strict=True))
    held = resident(model, topology, training, stage=stage)
    found |= {term.name: term.bytes for term in held.terms}
    uncharged = (*price(seen, bound).uncharged, *held.uncharged)
    return found | {state.name: -1 for state in uncharged}


@pytest.mark.parametrize(
    ("model", "ranks", "facts", "flip", "rules"),
    [
        (DENSE, {}, FULL, {"head": "full"}, {"head.logits"}),
        (DENSE, {}, FULL, {"head": "upcast"}, {"head.logits"}),
        (DENSE, {}, FULL, {"head": "shifted"}, {"head.logits"}),
        (DENSE, {}, FULL, {"head": "fused_loss"}, {"head.logits"}),
        (DENSE, {}, FULL, {"head": "fused"}, {"head.logits", "head.fused"}),
        (DENSE, {}, FULL, {"head": "chunked"}, {"head.logits", "head.workspace"}),
        (DENSE, {}, {**FULL, "head": "chunked"}, {"head_chunk": 64}, {"head.workspace"}),
        (DENSE, {}, FULL, {"wgrad_deferral": 1}, {"head.deferred"}),
        (DENSE, {}, FULL, {"attention": "unfused"}, {"kept.scores"}),
        (DENSE, {}, {**FULL, "attention": "unfused"}, {"softmax_fusion": False}, {"kept.scores"}),
        (
            DENSE,
            {},
            {**FULL, "attention": "unfused"},
            {"sequence_length": 1024},
            {"kept.scores"},
        ),
        (
            DENSE,
            {},
            {**FULL, "attention": "unfused"},
            {"attention_dropout": 0.1},
            {"kept.scores"},
        ),
        (
            DENSE,
            {},
            {**FULL, "gpu": "ampere", "sequence_length": 1024},
            {"attention": "fused"},
            {"kept.flash_copy"},
        ),
        (DENSE, {}, FULL, {"hidden_dropout": 0.1}, {"kept.dropout", "embedding.dropout"}),
        (DENSE, {}, FULL, {"attention_mask": True}, {"attention.mask"}),
        (DENSE, {}, FULL, {"kernels": "local"}, {"resident.engine"}),
        (DENSE, {}, {**FULL, "lora_rank": 8}, {"kernels": "fused"}, {"kept.mlp", "kept.adapters"}),
        (DENSE, {}, {"recompute": "none"}, {"compiled": True}, set()),
        (DENSE, {}, FULL, {"recompute": "full"}, {"kept.inputs", "kept.mlp", "layer.recomputed"}),
        (DENSE, {}, SELECTIVE, {"recompute_modules": "mlp"}, {"kept.mlp"}),
        (DENSE, {}, SELECTIVE, {"recompute_modules": "layernorm"}, {"kept.norms"}),
        (DENSE, {}, FULL, {"recompute": "selective"}, {"kept.scores"}),  # core_attn
        (MOE, {}, SELECTIVE, {"recompute_modules": "moe_act"}, {"kept.experts"}),
        (MOE, {}, SELECTIVE, {"recompute_modules": "moe"}, {"kept.experts"}),
        (LATENT, {}, SELECTIVE, {"recompute_modules": "shared_experts"}, {"kept.shared_experts"}),
        (LATENT, {}, SELECTIVE, {"recompute_modules": "mla_up_proj"}, {"kept.latent"}),
        (LATENT, {}, FULL, {"mtp": True}, {"mtp.kept", "mtp.loss", "resident.mtp"}),
        (MOE, {"dp": 8, "ep": 8}, FULL, {"routing": "worst"}, {"kept.experts"}),
        (MOE, {"dp": 8, "ep": 8}, FULL, {"dispatcher": "allgather"}, {"experts.gather"}),
        (MOE, {"dp": 8, "ep": 8}, FULL, {"dispatcher": "deepep"}, {"trainer.deepep"}),
        (
            MOE,
            {"dp": 8, "ep": 8},
            {**FULL, "dispatcher": "alltoall"},
            {"dispatcher": "hybridep"},
            {"hybridep.buffer"},
        ),
        (MOE, {}, FULL, {"grouped_gemm": False}, {"resident.grouped_products"}),
        (DENSE, {}, FULL, {"optimizer": "sgd"}, {"resident.optimizer"}),
        (DENSE, {}, FULL, {"optimizer": "adam8bit"}, {"resident.quantised_moments"}),
        (DENSE, {}, FULL, {"optimizer": "muon"}, {"resident.optimizer"}),
        (DENSE, {}, FULL, {"moment_dtype": "bf16"}, {"resident.optimizer"}),
        (DENSE, {}, FULL, {"master_weights": False}, {"resident.optimizer"}),
        (DENSE, {}, FULL, {"grad_dtype": "bf16"}, {"resident.gradients"}),
        (DENSE, {}, FULL, {"fused_optimizer": True}, {"resident.gradients"}),
        (DENSE, {}, FULL, {"offload": "optimizer"}, {"resident.optimizer", "trainer.offload"}),
        (DENSE, {}, FULL, {"offload": "activations"}, {"trainer.offloaded_activations"}),
        (DENSE, {}, FULL, {"fp8": True}, {"trainer.fp8"}),
        (DENSE, {}, FULL, {"cuda_graphs": True}, {"trainer.graphs"}),
        (DENSE, {}, FULL, {"user_buffers": True}, {"trainer.user_buffers"}),
        (DENSE, {}, FULL, {"gpu": "ampere"}, {"resident.blas", "resident.engine"}),
        (DENSE, {}, {**FULL, "gpu": "ampere"}, {"cublas_config": True}, {"resident.blas"}),
        (DENSE, {}, {}, {"modules_to_save": "head"}, {"resident.saved_modules"}),
        (DENSE, {}, {}, {"attention": "unfused"}, {"eager.score_layer"}),
        (DENSE, {}, {"recompute": "none"}, {"attention": "unfused"}, {"eager.scores"}),
        (DENSE, {}, {}, {"hidden_dropout": 0.1}, {"eager.dropout"}),
        (DENSE, {}, {"recompute": "none"}, {"activation_fusion": True}, {"selective.activations"}),
        (DENSE, {}, {}, {"lora_rank": 16}, {"resident.adapters", "resident.optimizer"}),
        (DENSE, {}, {}, {"lora_modules": "q_proj"}, {"resident.adapters"}),
        (DENSE, {}, {}, {"base": "nf4"}, {"resident.mixers", "resident.mlp"}),
        (
            DENSE,
            {},
            {**FULL, "head": "chunked"},
            {"output_layer": False},
            {"head.workspace", "resident.embeddings"},
        ),
        (DENSE, {}, FULL, {"phase": "forward"}, {"resident.gradients", "resident.optimizer"}),
        (DENSE, {}, RECOMPUTED, {"recompute_method": "block"}, {"kept.mlp", "kept.inputs"}),
        (
            DENSE,
            {},
            RECOMPUTED,
            {"recompute_num_layers": 2},
            {"kept.inputs", "layer.recomputed"},
        ),
        (MOE, {}, {}, {"expert_path": "unknown"}, {"moe.routed_tokens"}),
        (MOE, {}, {}, {"expert_slots": True}, {"moe.slot_stages"}),
        (MOE, {}, {"expert_slots": True}, {"expert_fc1_fused": True}, {"moe.slot_stages"}),
        (SHARED, {}, {}, {"shared_overlap": True}, {"moe.shared_expert_return"}),
        (SHARED, {}, {}, {"shared_recompute": True}, {"moe.shared_expert_return"}),
        (
            MOE,
            {"dp": 2, "ep": 2},
            {},
            {"hybridep_buffer": 1 << 30},
            {"hybridep.buffer", "resident.hybridep_buffer"},
        ),
        (
            MOE,
            {"pp": 4, "virtual": 3, "dp": 2, "ep": 2},
            {**FULL, "dispatcher": "alltoall"},
            {"expert_overlap": True},
            {"kept.residual"},
        ),
        (
            MOE,
            {"dp": 2, "ep": 2},
            {**FULL, "dispatcher": "alltoall"},
            {"expert_overlap": True},
            {"layer.overlapped"},
        ),
    ],
)
def test_a_fact_moves_what_it_stands_for(
    model: Model,
    ranks: dict[str, Any],
    facts: dict[str, Any],
    flip: dict[str, Any],
    rules: set[str],
) -> None:
    before, after = charges(model, ranks, facts), charges(model, ranks, {**facts, **flip})
    moved = {name for name in before.keys() | after if before.get(name, 0) != after.get(name, 0)}
    assert moved
    assert rules <= moved


@pytest.mark.parametrize(
    ("ranks", "flip", "rules"),
    [
        ({}, {"dp": 2, "sharding": Sharding("optimizer")}, {"resident.optimizer"}),
        ({}, {"tp": 2}, {"kept.mlp", "resident.mlp"}),
        ({}, {"cp": 2}, {"kept.residual"}),
        ({}, {"pp": 2}, {"kept.residual", "resident.mixers"}),
        ({"dp": 2}, {"ep": 2}, {"resident.experts"}),
        ({"dp": 2}, {"etp": 2}, {"resident.experts"}),
        ({"tp": 2}, {"sequence_parallel": True}, {"kept.residual", "sequence_parallel.gather"}),
        ({"cp": 2}, {"cp_layout": "even"}, {"kept.residual"}),
        ({"pp": 4}, {"virtual": 3}, {"kept.residual", "pipeline.tensors"}),
        ({"pp": 4, "virtual": 3}, {"virtual_group": 6}, {"kept.residual"}),
        ({"pp": 2}, {"stage_layers": (20, 16)}, {"kept.residual", "resident.mixers"}),
        ({"dp": 8}, {"sharding": Sharding("optimizer")}, {"resident.optimizer"}),
        ({"dp": 8}, {"sharding": Sharding("gradients")}, {"resident.gradients"}),
        ({"dp": 8}, {"sharding": Sharding("parameters")}, {"resident.mlp", "trainer.units"}),
        (
            {"dp": 8, "sharding": Sharding("optimizer")},
            {"sharding": Sharding("optimizer", 2)},
            {"resident.optimizer"},
        ),
    ],
)
def test_ranks_move_what_they_divide(
    ranks: dict[str, Any], flip: dict[str, Any], rules: set[str]
) -> None:
    model = MOE if flip.keys() & {"ep", "etp"} else replace(DENSE, kv_groups=8)
    before, after = charges(model, ranks, FULL), charges(model, {**ranks, **flip}, FULL)
    moved = {name for name in before.keys() | after if before.get(name, 0) != after.get(name, 0)}
    assert rules <= moved


def test_micro_batches_in_flight() -> None:
    """The first stage of 1F1B holds as many as there are stages, or as many as a step has."""
    topology = Topology(pp=4)

    def kept(stage: int, **facts: Any) -> int:
        bound = bind(DENSE, topology, Training(**FULL, **facts), stage=stage)
        return bound.values(measures(), "kept_retained")[stage][0]

    assert kept(0) == 4 * kept(3)
    assert kept(0, microbatches=2) == 2 * kept(3)
    both = price(measures(), bind(DENSE, topology, Training(**FULL)))
    assert both.stage == 0
    assert both.to_dict()["stage"] == 0


def test_facts_of_the_step_the_first_backward_and_one_adapter() -> None:
    held, listed = (
        resident(DENSE, Topology(), Training(**FULL, foreach_step=flag)) for flag in (False, True)
    )
    gradients = next(one.bytes for one in held.terms if one.name == "resident.gradients")
    assert listed.at_step - held.at_step == gradients  # a list of fp32, as the gradients are
    assert listed.total == held.total

    few, many = (
        bind(SHARED, Topology(), Training(gdn_output_rank=rank)).values(measures(), "output_token")
        for rank in (8, 64)
    )
    assert many[0][0] - few[0][0] == 2 * (64 - 8)

    def made(pending: bool) -> int:
        planner = Planner(MOE, Topology(), Training(gradients_pending=pending), "60GiB")
        return planner.wave([np.arange(512)]).price.results["adapter_gradient"]

    assert made(True) > made(False) == 0


def test_every_fact_is_flipped() -> None:
    (table,) = [one.args[1] for one in test_a_fact_moves_what_it_stands_for.pytestmark]
    (ranks,) = [one.args[1] for one in test_ranks_move_what_they_divide.pytestmark]
    assert {field.name for field in fields(Topology)} == {name for row in ranks for name in row[1]}
    flipped = {name for row in table for name in row[3]}
    elsewhere = {"foreach_step", "gdn_output_rank", "gradients_pending", "microbatches"}
    assert {field.name for field in fields(Training)} == flipped | elsewhere
    assert not flipped & elsewhere


@pytest.mark.parametrize(("routing", "shares"), [("balanced", 1.0), ("safe", 1.5), ("worst", 8.0)])
def test_routing_is_what_is_charged_at_ep_8(routing: str, shares: float) -> None:
    """Tokens of the busiest rank of eight, eager and fused, in shares of the group's."""
    ranks = {"dp": 8, "ep": 8}
    for facts, rule in (({}, "moe.routed_tokens"), (FULL, "kept.experts")):
        given = {**facts, "dispatcher": "hybridep" if not facts else "alltoall"}
        found = {
            name: charges(MOE, ranks, {**given, "routing": name})[rule]
            for name in ("balanced", routing)
        }
        fixed = 0
        if facts:  # what comes back, and the router's own state, do not depend on routing
            fixed = 48 * 8192 * (8 * MOE.hidden * 2 + 9 * MOE.experts)
        assert (found[routing] - fixed) / (found["balanced"] - fixed) == pytest.approx(shares)
