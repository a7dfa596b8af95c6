"""Models: parameter counts against reference totals, reading configs, refusals."""

from __future__ import annotations

import json
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


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"no bundled model is called 'gpt-9'.*qwen3-8b"):
        models.get("gpt-9")
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
    ("keys", "expected"),
    [
        ({"first_k_dense_replace": 2, "moe_layer_freq": 1}, (False, False, True, True)),
        ({"moe_layer_freq": [0, 1, 0, 1]}, (False, True, False, True)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, (False, True, False, False)),
        ({"mlp_only_layers": [0]}, (False, True, True, True)),
    ],
)
def test_which_layers_have_experts(keys: dict[str, Any], expected: tuple[bool, ...]) -> None:
    config = _config(
        model_type="other", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    )
    assert Model.from_hf({**config, **keys}).moe_layers == expected


def test_unknown_family_with_every_fact_is_accepted() -> None:
    assert Model.from_hf(_config(model_type="brand_new")).family == "brand_new"


def test_missing_keys_are_all_listed_in_one_line() -> None:
    config = _config(
        model_type="brand_new", hidden_size=None, vocab_size=None, tie_word_embeddings=None
    )
    with pytest.raises(InputError) as caught:
        Model.from_hf(config)
    text = str(caught.value)
    assert "\n" not in text
    for key in ("hidden_size", "vocab_size", "tie_word_embeddings"):
        assert key in text
    with pytest.raises(InputError, match="which layers have experts"):
        Model.from_hf(
            _config(
                model_type="brand_new",
                num_experts=4,
                num_experts_per_tok=2,
                moe_intermediate_size=8,
            )
        )
    with pytest.raises(InputError, match="linear_num_key_heads, linear_num_value_heads"):
        Model.from_hf(_config(model_type="qwen3_5_text"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "64"}, "hidden_size must be an integer"),
        ({"hidden_size": -64}, "hidden_size is -64"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be an integer"),
        ({"layer_types": ["mamba"] * 4}, r"layer_types\[0\] is 'mamba'"),
        ({"layer_types": ["full_attention"]}, "1 entries for 4 layers"),
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


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("qwen3_moe", "num_experts"),
        ("qwen3_moe", "num_key_value_heads"),
        ("qwen3", "head_dim"),
        ("qwen3_5_moe_text", "shared_expert_intermediate_size"),
        ("mixtral", "num_local_experts"),
        ("deepseek_v3", "kv_lora_rank"),
        ("deepseek_v3", "first_k_dense_replace"),
        ("gpt_oss", "num_local_experts"),
        ("gemma3_text", "head_dim"),
    ],
)
def test_keys_that_a_class_would_fill_in_are_needed(family: str, key: str) -> None:
    """A class default is one model's own size: without experts a MoE model would pass as dense."""
    with pytest.raises(InputError) as caught:
        Model.from_hf(_config(model_type=family))
    assert key in str(caught.value).split(" lacks ")[1].split(", ")
