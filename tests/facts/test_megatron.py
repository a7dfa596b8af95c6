"""Megatron arguments: the same model as the Hugging Face config, ranks, training mode."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from counts import count
from slow.tensors import total

from waveplan import (
    InputError,
    Model,
    Planner,
    Requests,
    Topology,
    Training,
    models,
    read_megatron,
)

DATA = Path(__file__).parents[1] / "data"

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


TABLES = json.loads(gzip.decompress((DATA / "megatron_arguments.json.gz").read_bytes()))
TESTS = TABLES["tests"]
"""Argument sets of Megatron-LM's functional tests, with ranks and padded vocabulary."""
SCRIPTS = TABLES["scripts"]
"""Arguments of public launch scripts."""


def same(one: Model, two: Model) -> None:
    """Equal but for the names, and the context that arguments are run with."""
    ours, theirs = one.to_dict(), two.to_dict()
    differ = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
    assert not differ.keys() - {"name", "family", "context"}, differ


@pytest.mark.parametrize("case", TESTS, ids=lambda case: case["test"])
def test_arguments_of_tests_are_read(case: dict[str, Any]) -> None:
    args, vocab = case["args"], case["padded_vocab"]
    job = read_megatron(args, case["world"], vocab)
    assert count(job.model).total == total(args, vocab)
    assert job.topology.world == case["world"]
    job.topology.check(job.model)
    assert (job.micro_batch, job.sequence) == (args["micro-batch-size"], args["seq-length"])
    as_words = [str(part) for pair in args.items() for part in words(*pair)]
    assert read_megatron(as_words, case["world"], vocab) == job


def words(name: str, value: Any) -> list[Any]:
    listed = str(value)[1:-1].split() if name in ("recompute-modules", "offload-modules") else None
    return [f"--{name}", *(listed or ([] if value is True else [value]))]


# What the arguments alone do not say.
REFUSED = {
    "slime/glm5.2-744B-A40B": "which layers have an indexer from a checkpoint",
    "slime/qwen3.5-0.8B": "gated delta nets from a checkpoint's config",
    "mlm-rl/nemotron6_3b_moe": "--use-checkpoint-args takes them from a checkpoint",
    "mlm-rl/qwen3_30b_a3b_moe": "say how many by --gpus \\(world= in Python\\)",
    "mlm/mamba_train": "a variable that is not set here",
    "mlm/megatron_fsdp_sbatch_mfsdp_deepseek_v3": "--gpus",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_arguments_of_scripts(name: str) -> None:
    script = SCRIPTS[name]
    stated = any(word.startswith(("--vocab-size", "--padded-vocab-size")) for word in script)
    vocab = None if stated else 131072
    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]):
            read_megatron(script, padded_vocab=vocab)
        return
    model = read_megatron(script, padded_vocab=vocab).model
    if "--spec" not in script or "--hybrid-layer-pattern" in script or "/glm4-" in name:
        by_name = dict(pairs(script))
        assert count(model).total == total(by_name, model.vocab)


def pairs(script: list[str]) -> Iterator[tuple[str, Any]]:
    split = [part for word in script for part in word.split()]
    for place, word in enumerate(split):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            following = split[place + 1] if place + 1 < len(split) else "--"
            yield name, value if equals else True if following.startswith("--") else following


def test_a_model_alone_is_bf16() -> None:
    job = read_megatron(SCRIPTS["slime/qwen3-4B"])
    assert job.model.dtype == "bfloat16"
    assert "no precision is stated" in job.notes[0]
    assert read_megatron([*SCRIPTS["slime/qwen3-4B"], "--micro-batch-size", "1"]).model.dtype == (
        "float32"
    )


def test_slime_packs_without_a_mask() -> None:
    examples = ROOT / "examples"
    jobs = [read_megatron(examples / name) for name in ("megatron.sh", "slime.sh")]
    assert [job.training.attention_mask for job in jobs] == [True, False]
    assert [job.topology.world for job in jobs] == [8, 8]
    assert [job.topology.sharding.kind for job in jobs] == ["optimizer", "optimizer"]


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("slime/llama3.1-8B-Instruct", "llama-3.1-8b"),
        ("slime/qwen2.5-7B", "qwen2.5-7b"),
        ("slime/qwen3-14B", "qwen3-14b"),
        ("slime/qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("slime/qwen3-next-80B-A3B", "qwen3-next-80b-a3b"),
        ("slime/qwen3.5-9B", "qwen3.5-9b"),
        ("slime/qwen3.5-35B-A3B", "qwen3.5-35b-a3b"),
        ("mlm/openai_gpt-oss-20b", "gpt-oss-20b"),
        ("mlm/openai_gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_both_readers_give_the_same_facts(script: str, name: str) -> None:
    ours, theirs = read_megatron(SCRIPTS[script]).model, models.get(name)
    same(ours, replace(theirs, vocab=ours.vocab))
    assert 0 <= ours.vocab - theirs.vocab < 1024
    requests = Requests([np.arange(40), np.arange(30)])
    prices = [
        Planner(one, Topology(), Training(), 1 << 50).plan(requests).price.to_dict()
        for one in (ours, replace(theirs, vocab=ours.vocab))
    ]
    assert prices[0] == prices[1]


def test_names_of_a_transformer_config() -> None:
    config = {
        "transformer_config": True,
        "num_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "gated_linear_unit": True,
        "activation_func": "silu",
        "add_bias_linear": False,
        "normalization": "RMSNorm",
        "num_moe_experts": 8,
        "moe_router_topk": 2,
        "moe_ffn_hidden_size": 32,
        "bf16": True,
        "vocab_size": 1000,
        "kv_channels": 16,
        "share_embeddings_and_output_weights": False,
        "position_embedding_type": "rope",
    }
    script = (
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --group-query-attention "
        "--num-query-groups 2 --swiglu --disable-bias-linear --normalization RMSNorm "
        "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 32 --bf16 --vocab-size 1000 "
        "--untie-embeddings-and-output-weights --position-embedding-type rope"
    )
    assert read_megatron(config).model == read_megatron(script.split()).model


def test_files(tmp_path: Path) -> None:
    words = SCRIPTS["slime/qwen3-4B"]
    expected = read_megatron([*words, "--tensor-model-parallel-size", "2"], 8)
    shell = tmp_path / "run.sh"
    shell.write_text(
        "#!/bin/bash\n# --num-layers 3\nTP=${TP:-2}\nGPUS=8\nMODEL_ARGS=(\n  "
        + " \\\n  ".join(words)
        + "\n)\ntorchrun --nproc-per-node $GPUS train.py ${MODEL_ARGS[@]} "
        "--tensor-model-parallel-size ${TP} --save /data/x\n"
    )
    values = {name.lstrip("-"): value for name, value in pairs(words)}
    values["tensor-model-parallel-size"] = "2"
    listed = tmp_path / "args.json"
    listed.write_text(json.dumps(values))
    nested = tmp_path / "args.yaml"
    lines = [
        f"    --{key}: {str(value).lower() if value is True else value}"
        for key, value in values.items()
    ]
    nested.write_text(
        "# a test's config\nENV_VARS:\n    X: 1\nMODEL_ARGS:\n" + "\n".join(lines) + "\n"
    )
    for file in (shell, str(listed), nested):
        job = read_megatron(file, 8)
        assert (job.model, job.topology) == (expected.model, expected.topology)
    assert read_megatron(shell).topology.dp == 4
    assert Model.from_megatron(nested) == expected.model
    assert read_megatron(
        argparse.Namespace(**{k.replace("-", "_"): v for k, v in values.items()}), 8
    )


def test_what_a_script_does_beside(tmp_path: Path) -> None:
    """Branches, redirections, products; two values of one argument leave open which one runs."""
    script = tmp_path / "run.sh"
    text = """
    GPUS_PER_NODE=8; NODES=${NODES:-2}; LAYERS=$(($NODES * 18)) # 36
    SIZES=(--num-layers $LAYERS --hidden-size 2560 --num-attention-heads 32
      --position-embedding-type rope --vocab-size $((150 * 1024))
    )
    if [ -n "$SP" ]; then
      SIZES+=(--sequence-parallel)
    fi
    torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES run.py ${SIZES[@]} \\
      --bf16 --tensor-model-parallel-size 2 2>&1 | tee log
    echo done
    """
    script.write_text(text)
    job = read_megatron(script)
    assert (job.model.layers, job.model.vocab, str(job.topology)) == (36, 153600, "DP 8, TP 2, SP")
    script.write_text(text + "OTHER=(--num-layers 40)\n")
    with pytest.raises(InputError, match="--num-layers is '36' and '40': leave the one that runs"):
        read_megatron(script)
    script.write_text("LAYERS=12\n" + text)
    with pytest.raises(InputError, match="or to two values"):
        read_megatron(script)


def test_what_of_a_script_is_left_out_is_said(tmp_path: Path) -> None:
    """Options of other programs, and variables that stand alone and are not set."""
    script = tmp_path / "run.sh"
    sizes = "--num-layers 12 --hidden-size 1024 --num-attention-heads 16 --vocab-size 32000"
    text = f"""
    docker run --gpus all --shm-size 16g image
    SIZES="{sizes} --position-embedding-type rope"
    torchrun run.py $SIZES --bf16 $EXTRA "$@" --seq-length 64
    """
    script.write_text(text)
    job = read_megatron(script)
    assert (job.model.layers, job.sequence) == (12, 64)
    assert job.notes[:3] == (
        "not read, another program's: 'docker run --gpus all --shm-size 16g image'",
        "$EXTRA is not set in the script: taken as empty",
        "$@ is not set in the script: taken as empty",
    )
    script.write_text(text.replace("$EXTRA", "--my-own-flag 3"))
    with pytest.raises(InputError, match=r"--my-own-flag: not known .*; give a copy"):
        read_megatron(script)


def test_a_launcher_of_slime() -> None:
    """It sets the type, the distributed optimizer and the dispatcher itself."""
    ranks = "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate --micro-batch-size 1"
    job = read_megatron([*SCRIPTS["slime/qwen3-30B-A3B"], *ranks.split()])
    assert (job.model.dtype, job.topology.world) == ("bfloat16", 16)
    assert job.topology.sharding.kind == "optimizer"
    assert job.training.dispatcher == "alltoall"


@pytest.mark.parametrize(
    ("arguments", "layers", "virtual"),
    [
        (
            "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6",
            (6, 12, 12, 6),
            1,
        ),
        (
            "--pipeline-model-parallel-layout Et*7|t*9|(tt|)*9t*2L"
            " --pipeline-model-parallel-size 12",
            (7, 9, *[2] * 10),
            1,
        ),
        ("--pipeline-model-parallel-layout Et*4|(t*5|)*6t*2L", (4, *[5] * 6, 2), 2),
        ("--num-layers-per-virtual-pipeline-stage 3", (), 3),
        ("--account-for-loss-in-pipeline-split --num-layers 35", (9, 9, 9, 8), 1),
    ],
)
def test_uneven_pipelines(arguments: str, layers: tuple[int, ...], virtual: int) -> None:
    base = [*SCRIPTS["slime/qwen3-4B"], "--pipeline-model-parallel-size", "4"]
    topology = read_megatron([*base, *arguments.split()]).topology
    assert (topology.stage_layers, topology.virtual) == (layers, virtual)


def test_argv_equals_the_config() -> None:
    same(Model.from_megatron(QWEN3_30B), models.get("qwen3-30b-a3b"))


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
        "qk-layernorm": True,
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
    same(Model.from_megatron(arguments), models.get("deepseek-v3"))


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
    same(Model.from_megatron(words), models.get("qwen3.5-27b"))


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
            "--max-position-embeddings",
            "512",
        ]
    )
    assert (model.ffn, model.positions, model.vocab) == (256, 512, 128)
    assert model.tied_embeddings
    assert model.qkv_bias
    assert model.norm_bias
    assert not model.gated_mlp
    assert (model.kv_groups, model.head_dim) == (4, 16)


def test_ranks_and_training() -> None:
    run = read_megatron(
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
            *["--moe-token-dispatcher-type=alltoall", "--lr", "1e-5"],
        ],
        world=16,
    )
    assert str(run.topology) == "DP 2, TP 4, CP 2, EP 8, SP"
    assert run.training.recompute_modules == ("core_attn", "moe")
    assert run.topology.sharding.kind == "optimizer"
    assert run.training.full_finetuning
    assert run.training.dispatcher == "alltoall"
    assert run.harmless == ("--lr",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--hidden-size": None, "--num-layers": None}, "lack --num-layers, --hidden-size"),
        ({"--hidden-size": "wide"}, "--hidden-size must be an integer, not 'wide'"),
        ({"--moe-layer-freq": "[1]*47"}, "47 entries for 48 layers"),
        ({"--moe-layer-freq": "exit()"}, "write a number or"),
        ({"--moe-layer-freq": "([0]+[1])*24"}, "write a number or"),
        ({"--num-query-groups": True}, "--num-query-groups needs a value"),
        ({"--hidden-sizes": 3}, r"--hidden-sizes: not known .*did you mean --hidden-size or"),
        ({"--spec": "mine get_my_spec"}, "--spec mine get_my_spec is not known"),
        ({"--encoder-num-layers": 4}, "--encoder-num-layers is not read: encoders"),
        ({"--heterogeneous-layers-config-path": "x"}, "layers of different sizes"),
        ({"--hidden-size": -4}, "--hidden-size is -4"),
        ({"--hidden-size": "$WIDTH"}, "a variable that is not set here"),
        ({"--hidden-size": [4, 8]}, "--hidden-size must be an integer"),
        ({"--swiglu": 3}, "--swiglu is a switch"),
        ({"mixture": {"a": 1}}, "'mixture' is a section"),
        ({"--hybrid-layer-pattern": "M*?"}, r"has '\?': known are"),
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
    with pytest.raises(InputError, match="world is 6 ranks: it must be a multiple of tp "):
        read_megatron(words, world=6)
    with pytest.raises(InputError, match="a list of words, a dict or a file"):
        read_megatron("--num-layers 2")
