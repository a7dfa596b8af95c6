"""Read Hugging Face ``config.json`` files.

A family's table states what its model class fixes in code and the config does not say (biases,
norms, default keys). Nothing else is filled in: a key that is needed and absent is listed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waveplan.checks import integer, shown, text
from waveplan.errors import InputError
from waveplan.facts.kinds import ATTENTION, GDN, LARGEST_SIZE, MOST_LAYERS, SLIDING, mtp_text
from waveplan.files import kind, read_json

__all__ = ["FAMILIES", "read"]

_LAYER_TYPES = {
    "full_attention": ATTENTION,
    "sliding_attention": SLIDING,
    "chunked_attention": SLIDING,
    "attention": ATTENTION,
    "linear_attention": GDN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Properties that a model class fixes in code."""

    qk_norm: bool = False
    qkv_bias: bool | None = None
    """None: as the key ``attention_bias`` says."""
    output_bias: bool | None = None
    expert_bias: bool = False
    router_bias: bool = False
    sinks: bool = False
    norms: int = 2
    tied: bool | None = None
    """Value of an absent ``tie_word_embeddings``; None: the key is needed."""
    attention_gate: bool | None = None
    shared_gate: bool = False
    activation: str = "eager"
    function: str = ""
    expert_ffn: str = "moe_intermediate_size"
    interval: int | None = None
    """Value of an absent ``full_attention_interval``."""
    needs: tuple[str, ...] = ()
    """Further keys that must be there: the class would fill in one particular model's size."""


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_NULL_IS_NONE = frozenset({"n_shared_experts"})
"""Keys whose null is a value: there are none."""

FAMILIES = {
    name: _Family(**{**stated, "needs": tuple(stated.get("needs", ()))})
    for name, stated in read_json(Path(__file__).parent / "families.json").items()
}
"""By ``model_type``; "#" is the minor version of the hybrids from Qwen3.5 on."""


class _Keys:
    """A config's keys, with a list of those that were needed and absent."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.missing: list[str] = []

    def get(self, *names: str) -> Any:
        """The value of the first name present, None when all are absent or null."""
        return next((v for name in names if (v := self.values.get(name)) is not None), None)

    def word(self, *names: str) -> str:
        """Text under the first name present, empty when all are absent."""
        value = self.get(*names)
        return "" if value is None else text(names[0], value)

    def count(self, *names: str, least: int = 0) -> int | None:
        """An integer under the first name present."""
        for name in names:
            if (value := self.values.get(name)) is not None:
                most = MOST_LAYERS if name == "num_hidden_layers" else LARGEST_SIZE
                return integer(name, value, least, most)
        return None

    def need(self, *names: str, least: int = 1) -> int:
        """Like count; an absent key is noted and read as 1 until all are known."""
        value = self.count(*names, least=least)
        if value is None:
            self.missing.append(" or ".join(names))
            return 1
        return value

    def require(self, names: tuple[str, ...]) -> None:
        """Note those of the keys that are absent, under any name."""
        for name in names:
            spellings = _EXPERTS if name in _EXPERTS else (name,)
            there = self.get(*spellings) is not None
            if not there and not (name in _NULL_IS_NONE and name in self.values):
                self.missing.append(name)

    def yes(self, name: str, absent: bool = False) -> bool:
        """A boolean; ``absent`` when the key is not there."""
        value = self.values.get(name)
        if value is None:
            return absent
        if not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, not {shown(value)}")
        return value


def read(
    config: str | os.PathLike[str] | Mapping[str, Any],
    make: Callable[..., Any] = dict,
    like: str | None = None,
) -> Any:
    """Return ``make(**sizes)`` with the sizes of a model, the fields of `Model`, that a config has.

    Args:
        config: a mapping, a ``config.json``, or a folder that holds one.
    """
    if isinstance(config, Mapping) and like is not None:
        config = {**config, "model_type": like}
    if isinstance(config, Mapping):
        return make(**_sizes(config))
    file = Path(config)
    if kind(file) == "folder":
        file = file / "config.json"
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file} must hold one JSON object")
    try:
        return make(**_sizes(value))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _sizes(outer: Mapping[str, Any]) -> dict[str, Any]:
    nested = outer.get("text_config", outer.get("llm_config"))
    inner = dict(outer)
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise InputError(f"text_config must be an object, not {shown(nested)}")
        # The decoder's own keys win; tying is stated by the outermost config that has it.
        inner.update(nested)
        if isinstance(outer.get("tie_word_embeddings"), bool):
            inner["tie_word_embeddings"] = outer["tie_word_embeddings"]
    keys = _Keys(inner)
    return _decoder(keys, _family_name(keys.word("model_type")), _Keys(outer).word("_name_or_path"))


def _family_name(model_type: str) -> str:
    name = re.sub(r"_text$", "", model_type)
    return re.sub(r"^qwen3_[5-9](?=$|_moe$)", "qwen3_#", name)


def _decoder(keys: _Keys, family_name: str, name: str) -> dict[str, Any]:
    family = FAMILIES.get(family_name)
    fixed = family or _Family()
    keys.require(fixed.needs)
    layers = keys.need("num_hidden_layers")
    hidden, heads = keys.need("hidden_size"), keys.need("num_attention_heads")
    sizes: dict[str, Any] = {
        "hidden": hidden,
        "layers": layers,
        "vocab": keys.need("vocab_size"),
        "heads": heads,
        "kv_groups": keys.count("num_key_value_heads", least=1) or heads,
        "head_dim": keys.count("head_dim", least=1) or _head_dim(keys, hidden, heads),
        "tied_embeddings": _tied(keys, fixed),
        "attention_gate": keys.yes("attn_output_gate", bool(fixed.attention_gate)),
        "activation": fixed.function or "silu"
        if keys.word("hidden_act", "hidden_activation") in ("", "silu", "swish")
        else "gelu",
        "mtp_layers": keys.count("num_nextn_predict_layers", "mtp_num_hidden_layers") or 0,
        "norms_per_layer": fixed.norms,
        "attention_sinks": fixed.sinks,
        "dtype": _dtype(keys.get("dtype", "torch_dtype")),
        "name": name,
        "family": keys.word("model_type"),
    }
    sizes.update(_attention(keys, fixed))
    sizes.update(_mixers(keys, fixed, layers))
    sizes.update(_feed_forward(keys, fixed, layers, known=family is not None))
    if sizes["mtp_layers"]:
        sizes["not_counted"] = (mtp_text(sizes["mtp_layers"]),)
    if keys.missing:
        kind = f"model_type {family_name!r}" if family_name else "the config"
        raise InputError(f"{kind} lacks {', '.join(keys.missing)}")
    return sizes


def _dtype(value: object) -> object:
    """The stated type of parameters; absent or empty: bfloat16."""
    return "bfloat16" if value is None or (isinstance(value, str) and not value) else value


def _head_dim(keys: _Keys, hidden: int, heads: int) -> int:
    if keys.get("kv_lora_rank") is not None:
        return keys.need("v_head_dim")
    if hidden % heads and not keys.missing:
        raise InputError(f"head_dim is absent and hidden_size {hidden} is no multiple of {heads}")
    return max(1, hidden // heads)


def _tied(keys: _Keys, fixed: _Family) -> bool:
    if keys.get("tie_word_embeddings") is None and fixed.tied is None:
        keys.missing.append("tie_word_embeddings")
    return keys.yes("tie_word_embeddings", bool(fixed.tied))


def _attention(keys: _Keys, fixed: _Family) -> dict[str, Any]:
    stated = keys.yes("attention_bias")
    values: dict[str, Any] = {
        "qkv_bias": stated if fixed.qkv_bias is None else fixed.qkv_bias,
        "output_bias": stated if fixed.output_bias is None else fixed.output_bias,
        "qk_norm": keys.yes("use_qk_norm", fixed.qk_norm),
    }
    if keys.get("kv_lora_rank") is not None:
        values["kv_lora_rank"] = keys.need("kv_lora_rank")
        values["q_lora_rank"] = keys.count("q_lora_rank") or 0
        for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            values[name] = keys.need(name)
    return values


def _mixers(keys: _Keys, fixed: _Family, layers: int) -> dict[str, Any]:
    kinds = _layer_kinds(keys, fixed, layers)
    values: dict[str, Any] = {"layer_kinds": kinds}
    if GDN in kinds:
        values["gdn_key_heads"] = keys.need("linear_num_key_heads")
        values["gdn_value_heads"] = keys.need("linear_num_value_heads")
        values["gdn_key_dim"] = keys.need("linear_key_head_dim")
        values["gdn_value_dim"] = keys.need("linear_value_head_dim")
        values["gdn_conv"] = keys.need("linear_conv_kernel_dim")
    return values


def _layer_kinds(keys: _Keys, fixed: _Family, layers: int) -> tuple[str, ...]:
    listed = keys.get("layer_types")
    if listed is not None:
        if not isinstance(listed, list | tuple):
            raise InputError(f"layer_types must be a list, not {shown(listed)}")
        for index, kind in enumerate(listed):
            if not isinstance(kind, str) or kind not in _LAYER_TYPES:
                raise InputError(
                    f"layer_types[{index}] is {shown(kind)}: known are {', '.join(_LAYER_TYPES)}"
                )
        if len(listed) != layers and "num_hidden_layers" not in keys.missing:
            raise InputError(f"layer_types has {len(listed)} entries for {layers} layers")
        return tuple(_LAYER_TYPES[kind] for kind in listed)
    interval = keys.count("full_attention_interval", "linear_attention_interval", least=1)
    if interval is None:
        interval = fixed.interval
    if interval is None:
        if keys.get("linear_num_value_heads") is not None:
            keys.missing.append("layer_types or full_attention_interval")
        return (ATTENTION,) * layers
    return tuple(ATTENTION if (i + 1) % interval == 0 else GDN for i in range(layers))


def _feed_forward(keys: _Keys, fixed: _Family, layers: int, *, known: bool) -> dict[str, Any]:
    experts = keys.count(*_EXPERTS) or 0
    activation = fixed.activation
    if not known and keys.get("swiglu_limit") is not None:
        activation = "clamped"
    values: dict[str, Any] = {"unit": activation, "mlp_bias": keys.yes("mlp_bias")}
    if any(name in _EXPERTS for name in keys.missing):
        return values
    if not experts:
        return {**values, "ffn": keys.need("intermediate_size")}
    moe = _moe_layers(keys, layers, known=known)
    width = keys.need(fixed.expert_ffn)
    values.update(
        experts=experts,
        topk=keys.need("num_experts_per_tok", "experts_per_token", "moe_topk"),
        expert_ffn=width,
        moe_layers=moe,
        shared_ffn=_shared(keys, width),
        expert_bias=fixed.expert_bias,
        router_bias=fixed.router_bias,
        ffn=0 if all(moe) else keys.need("intermediate_size"),
    )
    values["shared_gate"] = bool(values["shared_ffn"]) and fixed.shared_gate
    return values


def _shared(keys: _Keys, width: int) -> int:
    """Width of the shared experts together; no key means that there are none."""
    stated = keys.count("shared_expert_intermediate_size")
    if stated is None:
        stated = (keys.count("n_shared_experts", "num_shared_experts") or 0) * width
    return stated


def _moe_layers(keys: _Keys, layers: int, *, known: bool) -> tuple[bool, ...]:
    dense_first = keys.count("first_k_dense_replace")
    frequency = keys.get("moe_layer_freq")
    if isinstance(frequency, list | tuple):
        if len(frequency) != layers:
            raise InputError(f"moe_layer_freq has {len(frequency)} entries for {layers} layers")
        return tuple(bool(integer("moe_layer_freq", value, 0, 1)) for value in frequency)
    if dense_first is not None or frequency is not None:
        every = keys.count("moe_layer_freq", least=1) or 1
        return tuple(i >= (dense_first or 0) and i % every == 0 for i in range(layers))
    step, dense = keys.count("decoder_sparse_step", least=1), keys.get("mlp_only_layers")
    if dense is not None and not isinstance(dense, list | tuple):
        raise InputError(f"mlp_only_layers must be a list, not {shown(dense)}")
    if step is None and dense is None and not known:
        keys.missing.append(
            "which layers have experts (mlp_only_layers, first_k_dense_replace or moe_layer_freq)"
        )
    skipped = {integer("mlp_only_layers", value) for value in dense or ()}
    return tuple(i not in skipped and (i + 1) % (step or 1) == 0 for i in range(layers))
