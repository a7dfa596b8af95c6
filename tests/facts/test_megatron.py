"""Megatron arguments: the same model as the Hugging Face config, ranks, training mode."""

from __future__ import annotations

from typing import Any

import pytest

from waveplan import InputError, Model, models
from waveplan.facts.megatron import read

QWEN3_30B = [
    "--disable-bias-linear",
    "--qk-layernorm",
    "--group-query-attention",
    "--num-attention-heads",
    "32",
    "--num-query-groups",
    "4",
    "--kv-channels",
    "128",
    "--num-layers",
    "48",
    "--hidden-size",
    "2048",
    "--ffn-hidden-size",
    "6144",
    "--normalization",
    "RMSNorm",
    "--swiglu",
    "--vocab-size",
    "151936",
    "--untie-embeddings-and-output-weights",
    "--moe-ffn-hidden-size",
    "768",
    "--moe-router-topk",
    "8",
    "--moe-layer-freq",
    "([1]*48)",
    "--num-experts",
    "128",
    "--rotary-base",
    "1000000",
    "--bf16",
]


def _same_shape(one: Model, two: Model) -> bool:
    ours, theirs = one.to_dict(), two.to_dict()
    for name in ("name", "family", "unit"):
        ours.pop(name)
        theirs.pop(name)
    return ours == theirs


def test_argv_equals_the_config() -> None:
    assert _same_shape(Model.from_megatron(QWEN3_30B), models.get("qwen3-30b-a3b"))


def test_latent_attention_and_dense_first_layers() -> None:
    arguments = {
        "num-layers": 61,
        "hidden-size": 7168,
        "num-attention-heads": 128,
        "kv-channels": 128,
        "vocab-size": 129280,
        "ffn-hidden-size": 18432,
        "moe-ffn-hidden-size": 2048,
        "moe-shared-expert-intermediate-size": 2048,
        "num-experts": 256,
        "moe-router-topk": 8,
        "moe-layer-freq": "([0]*3+[1]*58)",
        "moe-router-enable-expert-bias": True,
        "multi-latent-attention": True,
        "q-lora-rank": 1536,
        "kv-lora-rank": 512,
        "qk-head-dim": 128,
        "qk-pos-emb-head-dim": 64,
        "v-head-dim": 128,
        "swiglu": True,
        "disable-bias-linear": True,
        "untie-embeddings-and-output-weights": True,
        "normalization": "RMSNorm",
        "mtp-num-layers": 1,
        "bf16": True,
    }
    assert _same_shape(Model.from_megatron(arguments), models.get("deepseek-v3"))


def test_hybrid() -> None:
    words = [
        "--disable-bias-linear",
        "--qk-layernorm",
        "--group-query-attention",
        "--num-attention-heads",
        "24",
        "--num-query-groups",
        "4",
        "--kv-channels",
        "256",
        "--num-layers",
        "64",
        "--hidden-size",
        "5120",
        "--ffn-hidden-size",
        "17408",
        "--attention-output-gate",
        "--normalization",
        "RMSNorm",
        "--swiglu",
        "--untie-embeddings-and-output-weights",
        "--vocab-size",
        "248320",
        "--bf16",
        "--linear-attention-freq",
        "4",
        "--linear-num-key-heads",
        "16",
        "--linear-num-value-heads",
        "48",
        "--linear-key-head-dim",
        "128",
        "--linear-value-head-dim",
        "128",
        "--linear-conv-kernel-dim",
        "4",
    ]
    assert _same_shape(Model.from_megatron(words), models.get("qwen3.5-27b"))


def test_defaults_are_megatrons() -> None:
    model = Model.from_megatron(
        [
            "--num-layers",
            "2",
            "--hidden-size",
            "64",
            "--num-attention-heads",
            "4",
            "--vocab-size",
            "100",
            "--ffn-hidden-size",
            "256",
        ]
    )
    assert model.tied_embeddings
    assert model.qkv_bias
    assert model.norm_bias
    assert not model.gated_mlp
    assert (model.kv_groups, model.head_dim, model.dtype) == (4, 16, "float32")


def test_ranks_and_training() -> None:
    run = read(
        [
            *QWEN3_30B,
            *[
                "--tensor-model-parallel-size",
                "4",
                "--sequence-parallel",
                "--context-parallel-size",
                "2",
            ],
            *["--expert-model-parallel-size", "8", "--expert-tensor-parallel-size", "1"],
            *["--recompute-granularity", "selective", "--recompute-modules", "core_attn", "moe"],
            "--use-distributed-optimizer",
            "--moe-token-dispatcher-type=alltoall",
        ],
        world=16,
    )
    assert str(run.topology) == "DP 2, TP 4, CP 2, EP 8, SP"
    assert run.training.recompute_modules == ("core_attn", "moe")
    assert run.topology.sharding.kind == "optimizer"
    assert run.training.full_finetuning
    assert run.training.dispatcher == "alltoall"
    assert run.ignored == ("--rotary-base",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--hidden-size": None, "--num-layers": None}, "lack --num-layers, --hidden-size"),
        ({"--hidden-size": "wide"}, "--hidden-size must be an integer, not 'wide'"),
        ({"--moe-layer-freq": "[1]*47"}, "47 entries for 48 layers"),
        ({"--moe-layer-freq": "exit()"}, "write a number or"),
        ({"--moe-layer-freq": "([0]+[1])*24"}, "write a number or"),
        ({"--num-query-groups": True}, "--num-query-groups needs a value"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    table: dict[str, Any] = {}
    for word in QWEN3_30B:
        if word.startswith("--"):
            name = word
            table[name] = True
        else:
            table[name] = word
    table.update(changes)
    with pytest.raises(InputError, match=message):
        Model.from_megatron(table)


def test_wrong_world() -> None:
    words = [*QWEN3_30B, "--tensor-model-parallel-size", "4"]
    with pytest.raises(InputError, match="world is 6: it must be a multiple of 4"):
        read(words, world=6)
    with pytest.raises(InputError, match="list of words or a dict"):
        read("--num-layers 2")
