"""Training modes and the table of facts that rules are bound to."""

from __future__ import annotations

from typing import Any

import pytest

from waveplan import InputError, Model, Topology, Training, models
from waveplan.facts.table import facts
from waveplan.facts.training import LORA_MODULES

MODEL_A = models.get("qwen3.6-35b-a3b")
DENSE = models.get("qwen3.6-27b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recompute": "some"}, "recompute is 'some': it must be one of full, selective, none"),
        ({"recompute_modules": ("mlp",)}, "needs recompute='selective'"),
        ({"recompute": "selective", "recompute_modules": ("mlps",)}, "recompute_modules is 'mlps'"),
        ({"recompute": "selective", "recompute_modules": 3}, "must be a list, not 3"),
        ({"lora_rank": -1}, "lora_rank is -1"),
        ({"lora_rank": 8.0}, "lora_rank must be an integer"),
        ({"lora_modules": ("nothing",)}, "lora_modules has 'nothing'"),
        ({"dispatcher": "nccl"}, "dispatcher is 'nccl'"),
        ({"head": "half"}, "head is 'half': it must be one of chunked, full"),
        ({"hidden_dropout": 1.5}, "hidden_dropout is 1.5"),
        ({"lora_rank": 0, "modules_to_save": "head"}, "modules_to_save needs adapters"),
        ({"offload": "disk"}, "offload is 'disk'"),
        ({"compiled": "yes"}, "compiled must be True or False"),
        ({"grad_dtype": "int8"}, "dtype is 'int8'"),
        ({"lora_rank": 0, "expert_slots": True}, "expert_slots needs adapters=True"),
        ({"recompute_num_layers": 0}, "recompute_num_layers is 0"),
        ({"lora_rank": 0, "gradients_pending": True}, "gradients_pending needs adapters"),
        ({"recompute": "none", "recompute_num_layers": 2}, "num_layers needs recompute='full'"),
        ({"recompute": "none", "recompute_method": "block"}, "method needs recompute='full'"),
        ({"lora_rank": 0, "lora_modules": "q_proj"}, "lora_modules needs adapters=True"),
        ({"lora_rank": 0, "gdn_output_rank": 4}, "gdn_output_rank needs adapters=True"),
        ({"expert_fc1_fused": True}, "expert_fc1_fused needs expert_slots=True"),
        ({"wgrad_deferral": 2}, "wgrad_deferral needs head='full' or .*, not 'chunked'"),
        ({"softmax_fusion": False}, "softmax_fusion needs attention='auto' or 'unfused'"),
        ({"optimizer": "sgd", "moment_dtype": "bf16"}, "moment_dtype needs optimizer='adam'"),
        ({"phase": "forward", "foreach_step": True}, "foreach_step needs phase="),
        ({"phase": "forward", "optimizer": "sgd"}, "optimizer needs phase="),
        ({"phase": "forward", "offload": "optimizer"}, "offload needs phase="),
        ({"output_layer": False, "head": "full"}, "head needs output_layer=True"),
        ({"phase": "forward", "fused_optimizer": True}, "fused_optimizer needs phase="),
        ({"head": "full", "head_chunk": 64}, "head_chunk needs head='chunked', not 'full'"),
        (
            {"fused_optimizer": True, "microbatches": 4},
            "fused_optimizer steps in every backward, but microbatches is 4",
        ),
    ],
)
def test_refusals(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Training(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recompute": "selective", "recompute_modules": "moe_act"}, "'moe_act'.*experts is 0"),
        ({"recompute": "selective", "recompute_modules": "mla_up_proj"}, "kv_lora_rank is 0"),
        ({"dispatcher": "alltoall"}, "dispatcher is 'alltoall', but the model's experts is 0"),
        ({"hybridep_buffer": 1}, "hybridep_buffer is 1, but the model's experts is 0"),
        ({"grouped_gemm": False}, "grouped_gemm is False, but the model's experts is 0"),
        ({"expert_overlap": True}, "expert_overlap is True, but the model's experts is 0"),
        ({"expert_path": "fc2"}, "expert_path is 'fc2', but the model's experts is 0"),
        ({"routing": "balanced"}, "routing is 'balanced', but the model's experts is 0"),
        ({"expert_slots": True}, "expert_slots is True, but the model's experts is 0"),
        ({"shared_overlap": True}, "shared_overlap is True, but the model's shared_ffn is 0"),
        ({"shared_recompute": True}, "shared_recompute is True, but the model's shared_ffn is 0"),
        ({"gdn_output_rank": 4}, "gdn_output_rank is 4, but the model's gdn_layers is 0"),
        ({"mtp": True}, "mtp is True, but the model's mtp_layers is 0"),
    ],
)
def test_what_the_model_does_not_have(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        facts(models.get("qwen3-8b"), Topology(), Training(**values))


@pytest.mark.parametrize(
    ("ranks", "values", "message"),
    [
        ({}, {"expert_overlap": True}, "expert_overlap needs ep of at least 2, not 1"),
        ({"dp": 2, "ep": 2, "pp": 4}, {"expert_overlap": True}, "virtual stages where pp is 4"),
        ({"cp": 2, "cp_layout": "even"}, {}, "cp_layout is 'even', but kernels are 'eager'"),
    ],
)
def test_what_the_ranks_contradict(
    ranks: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        facts(models.get("qwen3-30b-a3b"), Topology(**ranks), Training(**values))


def test_names_are_put_in_order() -> None:
    training = Training(recompute="selective", recompute_modules=["moe", "core_attn"])
    assert training.recompute_modules == ("core_attn", "moe")
    assert Training(recompute="selective").recompute_modules == ("core_attn",)
    assert Training(lora_modules=("all-linear",)).lora_modules == LORA_MODULES
    assert Training(lora_modules="o_proj, q_proj").lora_modules == ("attention.q", "attention.o")


def test_facts_are_integers_with_one_set_of_names() -> None:
    one = facts(MODEL_A, Topology(), Training())
    two = facts(DENSE, Topology(tp=2, sequence_parallel=True), Training(recompute="none"))
    assert one.keys() == two.keys()
    assert all(type(value) is int for table in (one, two) for value in table.values())


def test_facts_of_model_a() -> None:
    table = facts(MODEL_A, Topology(cp=2, ep=2), Training(lora_rank=4))
    expected = {
        "hidden": 2048,
        "attention_layers": 10,
        "moe_layers": 40,
        "dense_layers": 0,
        "attention_gap": 0,
        "gdn_gap": 1,
        "activation": 3,
        "experts_per_rank": 128,
        "cp": 2,
        "sp": 1,
        "dispatcher_hybridep": 1,
        "dispatcher_alltoall": 0,
        "recompute_full": 1,
        "lora_rank": 4,
        "output_lora_rank": 4,
        "lora_fc1": 0,
        "lora_expert_fc1": 1,
        "expert_fc1_known": 0,
        "fused_fc1": 1,
        "backward": 1,
        "silu": 1,
    }
    assert {name: table[name] for name in expected} == expected
    assert facts(MODEL_A, Topology(), Training())["dispatcher_alltoall"] == 1


def test_activation_width() -> None:
    assert facts(models.get("qwen3-1.7b"), Topology(), Training())["activation"] == 5
    assert facts(models.get("gpt-oss-20b"), Topology(), Training())["activation"] == 7
    assert facts(DENSE, Topology(), Training())["activation"] == 3
    assert facts(DENSE, Topology(), Training(activation_fusion=False))["activation"] == 5
    fused = Training(activation_fusion=True)
    assert facts(models.get("gpt-oss-20b"), Topology(), fused)["activation"] == 3


def test_adapters_only_where_the_model_has_the_module() -> None:
    dense = facts(DENSE, Topology(), Training())
    assert (dense["lora_fc1"], dense["lora_fc1_modules"], dense["lora_expert_fc1"]) == (1, 2, 0)
    full = facts(DENSE, Topology(), Training(lora_rank=0))
    assert (full["lora"], full["lora_fc1"], full["full_finetuning"]) == (0, 0, 1)
    some = facts(DENSE, Topology(), Training(lora_modules=("q_proj",)))
    assert (some["lora_attention_qkv"], some["lora_gdn_in"], some["output_lora_rank"]) == (1, 0, 0)


def adapter_elements(model: Model, topology: Topology, training: Training) -> int:
    """Elements of the adapters on a rank of the first stage."""
    return facts(model, topology, training)["stage_adapter_elements"]


def test_adapter_elements() -> None:
    # Per layer, 256 experts: A [2048, r] and B [r, 1024] of the fused gate/up projection,
    # A [512, r] and B [r, 2048] of the down projection; 23.07 MB at rank 8 in bf16, as traced.
    experts = Training(lora_modules=("experts.gate_up", "experts.down"))
    whole = adapter_elements(MODEL_A, Topology(), experts)
    assert 2 * whole == 40 * 256 * 8 * (2048 + 1024 + 512 + 2048) * 2 == 40 * 23_068_672
    assert adapter_elements(MODEL_A, Topology(dp=2, ep=2), experts) * 2 == whole
    assert adapter_elements(MODEL_A, Topology(pp=4), experts) * 4 == whole


def test_adapters_under_tensor_parallelism() -> None:
    model = models.get("qwen3-1.7b")
    query = Training(lora_rank=4, lora_modules=("attention.q",))
    output = Training(lora_rank=4, lora_modules=("attention.o",))
    # 2048 to 2048: one of the pair is whole, the other is halved
    for training in (query, output):
        size = adapter_elements(model, Topology(tp=2), training)
        assert size == model.layers * 4 * (2048 + 1024)
    # two key/value groups on four ranks: query, key and value adapters stay whole
    whole = adapter_elements(MODEL_A, Topology(tp=4), query)
    assert whole == 10 * 4 * (2048 + 2 * 4096)


def test_facts_of_pipeline_stages() -> None:
    topology = Topology(pp=4)
    stages = [facts(MODEL_A, topology, Training(), stage) for stage in range(4)]
    for name, total in [
        ("stage_attention_layers", 10),
        ("stage_gdn_layers", 30),
        ("stage_moe_layers", 40),
        ("stage_dense_layers", 0),
        ("stage_first", 1),
        ("stage_last", 1),
    ]:
        assert sum(stage[name] for stage in stages) == total
    assert [stage["stage_attention_layers"] for stage in stages] == [2, 3, 2, 3]
    whole = facts(MODEL_A, Topology(), Training())
    assert (
        sum(stage["stage_adapter_elements"] for stage in stages) == whole["stage_adapter_elements"]
    )
    with pytest.raises(InputError, match="stage is 4"):
        facts(MODEL_A, topology, Training(), 4)


def test_optimizer_bytes() -> None:
    assert Training().optimizer_state_bytes(2) == 12
    assert Training(moment_dtype="bf16", master_weights=False).optimizer_state_bytes(2) == 4
    assert Training(optimizer="sgd").optimizer_state_bytes(2) == 4
    assert Training().optimizer_state_bytes(4) == 8
    assert Training(optimizer="none").optimizer_state_bytes(2) == 0


def test_binding_checks_the_topology() -> None:
    with pytest.raises(InputError, match="heads"):
        facts(DENSE, Topology(tp=5), Training())
