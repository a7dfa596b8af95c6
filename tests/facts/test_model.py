"""Models: parameter counts against reference totals, reading configs, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counts import count
from hypothesis import given
from hypothesis import strategies as st

import waveplan
from waveplan import InputError, Model, models

# Exact totals, from the reference checkpoints: the sum of the tensor sizes in their safetensors
# headers, without multi-token-prediction and vision parts, tied heads counted once.
EXACT = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "gemma-3-1b": 999_885_952,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
}

# (model, part, reference billions, digits after the point that the source states). Sources:
# model cards (Qwen3: total, non-embedding and activated), technical reports (Gemma 3 table 1,
# gpt-oss table 1, DeepSeek-V3 section 2, GLM-4.5 table 1).
PUBLISHED = [
    ("qwen3-0.6b", "total", 0.6, 1),
    ("qwen3-0.6b", "non_embedding", 0.44, 2),
    ("qwen3-1.7b", "total", 1.7, 1),
    ("qwen3-1.7b", "non_embedding", 1.4, 1),
    ("qwen3-4b", "total", 4.0, 1),
    ("qwen3-4b", "non_embedding", 3.6, 1),
    ("qwen3-8b", "total", 8.2, 1),
    ("qwen3-8b", "non_embedding", 6.95, 2),
    ("qwen3-14b", "total", 14.8, 1),
    ("qwen3-14b", "non_embedding", 13.2, 1),
    ("qwen3-32b", "total", 32.8, 1),
    ("qwen3-32b", "non_embedding", 31.2, 1),
    ("qwen3-30b-a3b", "total", 30.5, 1),
    ("qwen3-30b-a3b", "non_embedding", 29.9, 1),
    ("qwen3-235b-a22b", "total", 235, 0),
    ("qwen3-235b-a22b", "non_embedding", 234, 0),
    ("qwen3-235b-a22b", "active", 22, 0),
    ("qwen3-next-80b-a3b", "total", 80, 0),
    ("qwen3-next-80b-a3b", "non_embedding", 79, 0),
    ("qwen3.5-27b", "total", 27, 0),
    ("qwen3.6-27b", "total", 27, 0),
    ("qwen3.6-35b-a3b", "total", 35, 0),
    ("qwen3.6-35b-a3b", "active", 3, 0),
    ("gemma-3-1b", "non_embedding", 0.698, 3),
    ("gemma-3-4b", "non_embedding", 3.209, 3),
    ("gemma-3-12b", "non_embedding", 10.759, 3),
    ("gemma-3-27b", "non_embedding", 25.600, 3),
    ("gpt-oss-120b", "total", 116.83, 2),
    ("gpt-oss-20b", "total", 20.91, 2),
    ("gpt-oss-120b", "attention", 0.96, 2),
    ("gpt-oss-20b", "attention", 0.64, 2),
    ("qwen3.5-4b", "total", 4, 0),
    ("qwen3.5-9b", "total", 9, 0),
    ("qwen3.5-35b-a3b", "total", 35, 0),
    ("qwen3.8-27b", "total", 27, 0),
    ("deepseek-v3", "total", 671, 0),
    ("deepseek-v2-lite", "total", 15.7, 1),
]


@pytest.mark.parametrize(("name", "total"), EXACT.items())
def test_exact_totals(name: str, total: int) -> None:
    assert count(models.get(name)).total == total


@pytest.mark.parametrize(("name", "part", "billions", "digits"), PUBLISHED)
def test_published_figures(name: str, part: str, billions: float, digits: int) -> None:
    value = getattr(count(models.get(name)), part) / 1e9
    assert round(value, digits) == pytest.approx(billions, abs=1e-9)


def test_every_bundled_model_is_checked_against_a_published_count() -> None:
    checked = {*EXACT, *(name for name, *_ in PUBLISHED), "glm-4.5"}
    assert set(models.names()) == checked


def test_glm_counts_as_its_report_does() -> None:
    # GLM-4.5: 355 B with one multi-token-prediction layer (a layer with experts), embedding and
    # head left out (report, table 1).
    model = models.get("glm-4.5")
    parts = count(model)
    one_more = (parts.routed + parts.shared + parts.router) // 89 + parts.attention // 92
    assert model.mtp_layers == 1
    assert round((parts.non_embedding + one_more) / 1e9) == 355


@pytest.mark.parametrize(("name", "billions"), [("gpt-oss-120b", 114.71), ("gpt-oss-20b", 19.12)])
def test_gpt_oss_counts_the_router_with_the_mlp(name: str, billions: float) -> None:
    parts = count(models.get(name))
    assert round((parts.routed + parts.router) / 1e9, 2) == billions


def test_model_a() -> None:
    model = models.get("Qwen3.6-35B-A3B")
    assert (model.hidden, model.layers, model.vocab) == (2048, 40, 248_320)
    assert (model.gdn_layers, model.attention_layers) == (30, 10)
    assert (model.experts, model.topk, model.expert_ffn, model.shared_ffn) == (256, 8, 512, 512)
    assert model.shared_gate
    assert model.attention_gate
    assert (model.heads, model.kv_groups, model.head_dim) == (16, 2, 256)
    assert (model.gdn_key_heads, model.gdn_value_heads) == (16, 32)
    assert (model.gdn_key_dim, model.gdn_value_dim, model.gdn_conv) == (128, 128, 4)
    assert (model.gap("attention"), model.gap("gdn")) == (0, 1)
    assert model.name == "qwen3.6-35b-a3b"


def test_dense_27b() -> None:
    model = models.get("qwen3.6-27b")
    assert (model.hidden, model.layers, model.gdn_layers, model.ffn) == (5120, 64, 48, 17408)
    assert (model.heads, model.kv_groups, model.head_dim) == (24, 4, 256)
    assert (model.gdn_key_heads, model.gdn_value_heads) == (16, 48)
    assert not model.is_moe
    assert count(model).total * 2 / 2 == pytest.approx(26.90e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "bundled"),
    [
        ("qwen3_32b", "qwen3-32b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("QWEN3.6_35B_A3B", "qwen3.6-35b-a3b"),
        ("qwen3-5-4b", "qwen3.5-4b"),
        ("Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("llama3.1 8b", "llama-3.1-8b"),
        ("gemma3-4b-it", "gemma-3-4b"),
    ],
)
def test_names_are_spelled_as_people_do(name: str, bundled: str) -> None:
    assert models.get(name).name == bundled


def test_an_unknown_name_is_answered_with_those_close() -> None:
    with pytest.raises(InputError, match=r"no bundled .* 'qwen3-9b'; did you mean qwen3.5-9b or"):
        models.get("qwen3-9b")
    with pytest.raises(InputError, match=r"no bundled .* 'zephyr'; known: .*qwen3-8b"):
        models.get("zephyr")
    assert models.names() == sorted(models.names())


def _config(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "vocab_size": 100,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "tie_word_embeddings": False,
    }
    values.update(changes)
    return {key: value for key, value in values.items() if value is not None}


def test_absent_head_keys_follow_from_others() -> None:
    model = Model.from_hf(_config())
    assert (model.kv_groups, model.head_dim, model.dtype) == (4, 16, "bfloat16")


def test_nested_text_config(tmp_path: Any) -> None:
    inner = _config(
        model_type="qwen3_5_text",
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_conv_kernel_dim=4,
        dtype="bfloat16",
        tie_word_embeddings=None,
    )
    outer = {"model_type": "qwen3_5", "text_config": inner, "tie_word_embeddings": True}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(outer))
    for source in (file, str(file), tmp_path, outer):
        model = Model.from_hf(source)
        assert model.gdn_layers == 3
        assert model.tied_embeddings
        assert model.attention_gate
        assert model.unit == "native"


def test_interval_equals_layer_types() -> None:
    keys = {
        "model_type": "qwen3_next",
        "num_key_value_heads": 4,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "intermediate_size": None,
    }
    listed = ["linear_attention", "full_attention"] * 2
    by_interval = Model.from_hf(_config(full_attention_interval=2, **keys))
    assert by_interval == Model.from_hf(_config(layer_types=listed, **keys))
    assert by_interval.layer_kinds == ("gdn", "attention") * 2


@pytest.mark.parametrize(
    ("family", "keys", "expected"),
    [
        ("deepseek", {"first_k_dense_replace": 2, "moe_layer_freq": 1}, (False, False, True, True)),
        (
            "deepseek",
            {"first_k_dense_replace": 1, "moe_layer_freq": 2},
            (False, False, True, False),
        ),
        (
            "qwen3_moe",
            {"decoder_sparse_step": 2, "mlp_only_layers": [3]},
            (False, True, False, False),
        ),
        ("qwen3_moe", {"mlp_only_layers": [0]}, (False, True, True, True)),
    ],
)
def test_which_layers_have_experts(
    family: str, keys: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    config = _config(model_type=family, head_dim=16, num_key_value_heads=4, **experts, **keys)
    assert Model.from_hf(config).moe_layers == expected


def test_a_family_without_a_row() -> None:
    config = _config(model_type="brand_new")
    with pytest.raises(InputError) as caught:
        Model.from_hf(config)
    for part in ("model_type 'brand_new' is not known", "nearest are", "--like", "give a Model"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    made = Model.from_hf(config, like="llama")
    assert (made.family, made.ffn) == ("brand_new", 128)
    with pytest.raises(InputError, match="like is 'lama': nearest are llama"):
        Model.from_hf(config, like="lama")
    with pytest.raises(InputError, match="the config has no model_type"):
        Model.from_hf(_config(model_type=None))


def test_a_config_is_relative_to_its_class() -> None:
    made = Model.from_hf(
        {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    )
    assert (made.vocab, made.heads, made.kv_groups, made.head_dim) == (262208, 8, 4, 256)
    assert made.layer_kinds.count("sliding") == 29
    assert made.tied_embeddings


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_experts": 8}, "num_experts is 8"),
        ({"mamba_d_state": 64}, "mamba_d_state is 64"),
        ({"hybrid_override_pattern": "M*"}, "hybrid_override_pattern is 'M"),
        ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input is 256"),
        ({"num_kv_shared_layers": 10}, "num_kv_shared_layers is 10"),
        ({"index_n_heads": 32}, "index_n_heads is 32"),
        ({"linear_attn_config": {"num_heads": 4}}, "linear_attn_config is"),
        ({"block_configs": [{}]}, "block_configs is"),
        ({"kv_lora_rank": 512}, "kv_lora_rank is 512"),
        ({"layer_types": ["mamba"] * 4}, "layer_types is"),
    ],
)
def test_geometry_that_a_family_does_not_have(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=key) as caught:
        Model.from_hf(_config(**changes))
    assert "not known to have" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "stored"),
    [
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            "nf4",
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        (None, ""),
    ],
)
def test_quantized_checkpoints(config: Any, stored: str) -> None:
    assert Model.from_hf(_config(quantization_config=config)).quantized == stored


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "64"}, "hidden_size must be an integer"),
        ({"hidden_size": -64}, "hidden_size is -64"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be an integer"),
        ({"model_type": "gemma2", "layer_types": ["mamba"] * 4}, r"layer_types\[0\] is 'mamba'"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "1 entries for 4 layers"),
        ({"hidden_size": [64]}, "hidden_size must be an integer"),
        ({"model_type": "glm4", "text_config": {"model_type": "glm4", "vocab_size": None}}, "null"),
        ({"hidden_size": 0}, "hidden is 0"),
        ({"text_config": [1]}, "text_config must be an object"),
        ({"text_config": {"text_config": {"text_config": {"text_config": {}}}}}, "less deeply"),
        ({"quantization_config": "fp8"}, "quantization_config must be an object"),
        ({"dtype": "int3"}, "dtype is 'int3'"),
        ({"num_key_value_heads": 3}, "kv_groups is 3"),
    ],
)
def test_wrong_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Model.from_hf(_config(**changes))


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    st.sampled_from(models.names()),
    st.lists(st.tuples(st.integers(0, 40), _JUNK), min_size=1, max_size=3),
)
def test_junk_values_are_refused_in_one_line_or_accepted(
    name: str, changes: list[tuple[int, Any]]
) -> None:
    config = dict(models._table()[name])
    keys = sorted(config)
    for place, junk in changes:
        config[keys[place % len(keys)]] = junk
    message, total = "", 1
    try:
        total = count(Model.from_hf(config)).total
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert total > 0


def test_sizes_that_no_model_has() -> None:
    with pytest.raises(InputError, match="num_hidden_layers is 1000000000: it must be at most"):
        Model.from_hf(_config(num_hidden_layers=10**9))
    with pytest.raises(InputError, match="hidden_size is 4294967296: it must be at most"):
        Model.from_hf(_config(hidden_size=2**32))


def test_contradictions() -> None:
    base = {"hidden": 8, "layers": 2, "vocab": 10, "heads": 2, "kv_groups": 1, "head_dim": 4}
    for extra, message in [
        ({}, "ffn is missing"),
        ({"ffn": 8, "layer_kinds": ("attention",)}, "1 entries for 2 layers"),
        ({"ffn": 8, "gdn_layers": 1}, "need gdn_key_heads"),
        ({"ffn": 8, "topk": 1}, "experts is 0"),
        ({"experts": 2}, "need topk, expert_ffn"),
        ({"experts": 2, "topk": 3, "expert_ffn": 4}, "topk is 3"),
        ({"ffn": 8, "kv_lora_rank": 4}, "needs qk_nope_head_dim"),
    ]:
        with pytest.raises(InputError, match=message):
            Model(**base, **extra)  # type: ignore[arg-type]


def test_round_trip_and_public_name() -> None:
    model = models.get("deepseek-v3")
    assert Model(**json.loads(json.dumps(model.to_dict()))) == model
    assert waveplan.Model is Model


def test_what_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    for config, message in [
        ("https://x.org/config.json", "is an address: download its config.json"),
        (tmp_path, "has no config.json: give the folder of a checkpoint"),
        (tmp_path / "list.json", "must hold one JSON object"),
        (3, "a config must be a dict, a config.json or its folder, not 3"),
        (tmp_path / "none.json", "cannot read"),
    ]:
        with pytest.raises(InputError, match=message):
            Model.from_hf(config)  # type: ignore[arg-type]
