"""Configs of 207 models: each is read with the parameter count of its class, or refused by name."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counts import count

from waveplan import InputError, Model, Topology, Training
from waveplan.facts.formula import evaluate, names
from waveplan.facts.hf import families
from waveplan.facts.kinds import UNPRICED
from waveplan.pricing import bind

DATA = Path(__file__).parents[1] / "data"
CONFIGS: dict[str, Any] = json.loads(gzip.decompress((DATA / "hf_configs.json.gz").read_bytes()))

# Reason by model_type: each is said in one line that names the type and the nearest known.
REFUSED = {
    "bailing_hybrid": "two kinds of mixers whose widths follow no published key",
    "deepseek_ref": "a type that no class has",
    "deepseek_v4": "compressed attention and hyper-connections",
    "gemma3n": "per-layer embeddings, alternating updates, keys shared between layers",
    "jetmoe": "experts of attention",
    "longcat_flash": "two attention blocks a layer, experts of zero size",
    "mimo_v2_flash": "window layers of another geometry",
    "minimax_m3": "sparse attention; no class defines its defaults",
    "mllama": "layers that attend to an encoder",
    "nemotron-nas": "blocks of different sizes",
    "rwkv5": "no attention",
}
SHARING = "maxtext--gemma4_e2b"
"""Of a family that is read, but where layers share keys and values."""


def test_most_are_read() -> None:
    assert sum(1 for name in CONFIGS if family(name) not in REFUSED) >= 175


def family(name: str) -> str:
    return str(CONFIGS[name]["config"]["model_type"])


@pytest.mark.parametrize("name", CONFIGS)
def test_read_right_or_refused(name: str) -> None:
    config, parameters = CONFIGS[name]["config"], CONFIGS[name]["parameters"]
    if name == SHARING:
        with pytest.raises(InputError, match="gemma4 is not read where layers share keys"):
            Model.from_hf(config)
        return
    if family(name) in REFUSED:
        with pytest.raises(InputError) as caught:
            Model.from_hf(config)
        message = str(caught.value)
        assert message.startswith(f"model_type '{family(name)}' is not known; nearest are ")
        assert "--like" in message
        assert "\n" not in message
        return
    model = Model.from_hf(config)
    if parameters is not None:
        assert count(model).total == pytest.approx(parameters, rel=5e-4)
    assert Model(**json.loads(json.dumps(model.to_dict()))) == model


def test_mixers_without_a_rule_are_counted_and_listed_as_uncharged() -> None:
    seen = set()
    for name, entry in CONFIGS.items():
        if family(name) in REFUSED or name == SHARING:
            continue
        model = Model.from_hf(entry["config"])
        found = set(model.layer_kinds) & UNPRICED.keys()
        if not found - seen or model.layers > 200:
            continue
        seen |= found
        bound = bind(model, Topology(), Training())
        (state,) = (one for one in bound.uncharged if one.name == "mixer.other")
        for kind in found:
            assert f"{kind}_layers == 0" in state.reason
        assert bound.facts["gdn_layers"] == 0
        assert (
            bound.facts["attention_layers"]
            + sum(map(model.layer_kinds.count, found))
            + (model.layer_kinds.count("none"))
            == model.layers
        )
    assert seen >= {"mamba", "mamba2", "lightning", "kda", "indexed", "conv", "parallel"}


def test_both_writers_of_one_architecture() -> None:
    """Some put the rotary part into head_dim: with latent attention it has no meaning."""
    made = [
        replace(Model.from_hf(CONFIGS[name]["config"]), quantized="")  # one is stored in fp8
        for name in ("aic--deepseek-ai--DeepSeek-V3", "tf--deepseek-v3", "maxtext--deepseek3_671b")
    ]
    facts = [bind(model, Topology(), Training()).facts for model in made]
    assert facts[0] == facts[1] == facts[2]


SMALL = {
    "hidden_size": 320,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "tie_word_embeddings": True,
}
BESIDE = {
    # The classes' counts, without weights, of families and keys that no file above has.
    "step3p7": (195843833088, {"tie_word_embeddings": False}),
    "zamba2": (
        2381472,
        {
            "hidden_size": 128,
            "intermediate_size": 300,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 700,
            "num_hidden_layers": 12,
            "num_mem_blocks": 2,
            "mamba_ngroups": 2,
            "adapter_rank": 16,
            "layers_block_type": ["mamba", "hybrid"] * 4 + ["mamba"] * 4,
        },
    ),
    "hy_v3": (
        7006400,
        {
            **SMALL,
            "num_hidden_layers": 5,
            "intermediate_size": 128,
            "moe_intermediate_size": 128,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "num_shared_experts": 0,
            "num_key_value_heads": 2,
        },
    ),
    "kimi_linear": (
        38666848,  # never tied
        {
            **SMALL,
            "num_hidden_layers": 6,
            "intermediate_size": 96,
            "moe_intermediate_size": 128,
            "num_experts": 4,
            "num_experts_per_token": 2,
            "num_shared_experts": 2,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"] + ["linear_attention"] * 2,
        },
    ),
}


@pytest.mark.parametrize("family", BESIDE)
def test_counts_of_classes(family: str) -> None:
    parameters, config = BESIDE[family]
    assert Model.from_hf({"model_type": family, **config}).parameters == parameters


def test_which_layers_have_an_indexer() -> None:
    """As the class of GLM-5 fills it in, whichever of three keys says it."""
    listed = CONFIGS["aic--zai-org--GLM-5.2-FP8"]["config"]
    bare = {key: value for key, value in listed.items() if key != "indexer_types"}
    pattern = "".join("F" if one == "full" else "S" for one in listed["indexer_types"])
    for config in (bare, {**bare, "index_topk_freq": 1, "index_topk_pattern": pattern}):
        assert Model.from_hf(config) == Model.from_hf(listed)


@pytest.mark.parametrize(
    ("tower", "parameters"),  # of the classes, without weights
    [
        ({"model_type": "clip_vision_model"}, 87456000),
        ({"model_type": "siglip_vision_model"}, 92884224),
        ({"model_type": "siglip_vision_model", "vision_use_head": False}, 85797120),
        ({"model_type": "pixtral"}, 403489792),
        ({"model_type": "qwen2_vl"}, 675759104),
        ({"model_type": "qwen2_5_vl", "depth": 32}, 3083025152),
        ({"model_type": "qwen3_vl_moe_vision"}, 566949104),
        ({"model_type": "qwen3_5_moe"}, 453650672),
        ({"model_type": "of_another"}, 0),
        ({"model_type": "pixtral", "hidden_size": "wide"}, 0),
    ],
)
def test_towers_are_counted_beside_the_decoder(tower: dict[str, Any], parameters: int) -> None:
    decoder = CONFIGS["tf--smolvlm"]["config"]["text_config"]
    counted = f" of {parameters / 1e9:.3f} B parameters" if parameters else ""
    model = Model.from_hf({"vision_config": tower, "text_config": decoder})
    assert model.not_counted == (f"vision tower{counted}",)
    assert model.parameters == Model.from_hf(decoder).parameters


def test_every_formula_has_its_keys() -> None:
    for name, row in families().items():
        for key, formula in row.items():
            if isinstance(formula, str) and key not in ("like", "norm", "unit"):
                unknown = names(formula) - row["defaults"].keys() - {"i"}
                assert not unknown, (name, key)


def test_formulas_are_closed() -> None:
    with pytest.raises(TypeError, match="outside what formulas may use"):
        evaluate("(lambda: 1)", {})
    with pytest.raises(KeyError):
        evaluate("open('x')", {})
