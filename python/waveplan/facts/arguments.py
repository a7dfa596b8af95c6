"""Megatron-LM arguments by name, and the sizes of the model that they describe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from waveplan.checks import entries, integer, shown, text
from waveplan.errors import InputError
from waveplan.facts.kinds import ATTENTION, GDN, LARGEST_SIZE, MOST_LAYERS

__all__ = ["Arguments", "sizes", "table"]

# fmt: off
_SWITCHES = {
    "attention_output_gate", "add_bias_linear", "add_qkv_bias", "bf16", "disable_bias_linear",
    "fp16", "group_query_attention", "moe_router_enable_expert_bias", "moe_shared_expert_gate",
    "moe_shared_expert_overlap", "multi_latent_attention", "qk_layernorm", "sequence_parallel",
    "swiglu", "untie_embeddings_and_output_weights", "use_distributed_optimizer",
    "use_gated_attention",
}
_VALUES = {
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size",
    "experimental_attention_variant", "ffn_hidden_size", "hidden_size", "kv_channels",
    "kv_lora_rank", "linear_attention_freq", "linear_conv_kernel_dim", "linear_key_head_dim",
    "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim",
    "moe_ffn_hidden_size", "moe_layer_freq", "moe_router_topk",
    "moe_shared_expert_intermediate_size", "moe_token_dispatcher_type", "mtp_num_layers",
    "normalization", "num_attention_heads", "num_experts", "num_layers", "num_query_groups",
    "padded_vocab_size", "pipeline_model_parallel_size", "q_lora_rank", "qk_head_dim",
    "qk_pos_emb_head_dim", "recompute_granularity", "recompute_method", "recompute_modules",
    "recompute_num_layers", "tensor_model_parallel_size", "v_head_dim", "vocab_size",
    "world_size",
}
# fmt: on
_LIST = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,40}))?")
_NUMBER = r"-?\d{1,40}"


def table(arguments: Sequence[str] | Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Known arguments by name with underscores, and the names of the others."""
    if isinstance(arguments, str):
        raise InputError("Megatron arguments must be a list of words or a dict, not one text")
    if isinstance(arguments, Mapping):
        pairs = [(_name(key), value) for key, value in arguments.items()]
    elif not isinstance(arguments, Iterable):
        raise InputError(
            f"Megatron arguments must be a list of words or a dict, not {shown(arguments)}"
        )
    else:
        words = entries("Megatron arguments", arguments)
        # Numbers may stand for themselves.
        pairs = _pairs([str(word) if type(word) is int else text("a word", word) for word in words])
    known = _SWITCHES | _VALUES
    found = {name: value for name, value in pairs if name in known and value is not None}
    for name in found.keys() & _VALUES:
        if found[name] is True:
            raise InputError(f"--{name.replace('_', '-')} needs a value")
    ignored = dict.fromkeys(f"--{name.replace('_', '-')}" for name, _ in pairs if name not in known)
    return found, tuple(ignored)


def _name(word: object) -> str:
    return str(word).lstrip("-").replace("-", "_")


def _pairs(words: list[str]) -> list[tuple[str, Any]]:
    """(name, value) of an argv; True for an argument without a value, a list for several."""
    pairs: list[tuple[str, Any]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            pairs.append((_name(name), value if equals else True))
        elif pairs:
            name, value = pairs[-1]
            text = word if value is True else f"{value},{word}"
            pairs[-1] = (name, True if name in _SWITCHES else text)
    return pairs


class Arguments:
    """Typed access; absent needed names are collected."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table
        self.missing: list[str] = []

    def number(self, name: str, absent: int = 0, least: int = 0) -> int:
        value = self.table.get(name)
        if value is None:
            return absent
        if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
            value = int(value)
        most = MOST_LAYERS if name == "num_layers" else LARGEST_SIZE
        return integer(f"--{name.replace('_', '-')}", value, least, most)

    def need(self, name: str, least: int = 0) -> int:
        if self.table.get(name) is None:
            self.missing.append(f"--{name.replace('_', '-')}")
            return 1
        return self.number(name, least=least)

    def on(self, name: str) -> bool:
        value = self.table.get(name, False)
        if not isinstance(value, bool | int | str):
            raise InputError(f"--{name.replace('_', '-')} is a switch, not {shown(value)}")
        return bool(value)

    def word(self, name: str, absent: str) -> str:
        """Text."""
        return text(f"--{name.replace('_', '-')}", self.table.get(name, absent))


def sizes(table: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Model` that the arguments state; all missing ones are listed."""
    arguments = Arguments(table)
    layers, hidden = arguments.need("num_layers"), arguments.need("hidden_size")
    heads = arguments.need("num_attention_heads", least=1)
    vocab = arguments.number("padded_vocab_size") or arguments.need("vocab_size")
    grouped = arguments.on("group_query_attention") or "num_query_groups" in table
    bias = arguments.on("add_bias_linear") or not arguments.on("disable_bias_linear")
    if table.get("add_bias_linear") is False:
        bias = False
    values: dict[str, Any] = {
        "hidden": hidden,
        "layers": layers,
        "vocab": vocab,
        "heads": heads,
        "kv_groups": arguments.need("num_query_groups") if grouped else heads,
        "head_dim": arguments.number("kv_channels") or max(1, hidden // heads),
        "attention_gate": arguments.on("attention_output_gate")
        or arguments.on("use_gated_attention"),
        "tied_embeddings": not arguments.on("untie_embeddings_and_output_weights"),
        "gated_mlp": arguments.on("swiglu"),
        "activation": "silu" if arguments.on("swiglu") else "gelu",
        "qk_norm": arguments.on("qk_layernorm"),
        "qkv_bias": bias or arguments.on("add_qkv_bias"),
        "output_bias": bias,
        "mlp_bias": bias,
        "norm_bias": arguments.word("normalization", "LayerNorm") == "LayerNorm",
        "mtp_layers": arguments.number("mtp_num_layers"),
        "dtype": "bfloat16" if arguments.on("bf16") else _half(arguments),
        "layer_kinds": _kinds(arguments, layers),
    }
    values.update(_latent(arguments), **_gdn(arguments, values["layer_kinds"]))
    values.update(_feed_forward(arguments, layers, bias))
    if arguments.missing:
        raise InputError(f"Megatron arguments lack {', '.join(arguments.missing)}")
    return values


def _half(arguments: Arguments) -> str:
    return "float16" if arguments.on("fp16") else "float32"


def _kinds(arguments: Arguments, layers: int) -> tuple[str, ...]:
    if arguments.table.get("linear_attention_freq") is None:
        return (ATTENTION,) * layers
    linear = _pattern(arguments, "linear_attention_freq", layers)
    # A number n puts attention at every n-th layer; a pattern marks the linear layers.
    if isinstance(linear, int):
        return tuple(ATTENTION if (i + 1) % linear == 0 else GDN for i in range(layers))
    return tuple(GDN if flag else ATTENTION for flag in linear)


def _latent(arguments: Arguments) -> dict[str, int]:
    if not arguments.on("multi_latent_attention"):
        return {}
    return {
        "q_lora_rank": arguments.number("q_lora_rank"),
        "kv_lora_rank": arguments.number("kv_lora_rank", 32),
        "qk_nope_head_dim": arguments.number("qk_head_dim", 128),
        "qk_rope_head_dim": arguments.number("qk_pos_emb_head_dim", 64),
        "v_head_dim": arguments.number("v_head_dim", 128),
    }


def _gdn(arguments: Arguments, kinds: tuple[str, ...]) -> dict[str, int]:
    if GDN not in kinds:
        return {}
    return {
        "gdn_key_heads": arguments.need("linear_num_key_heads"),
        "gdn_value_heads": arguments.need("linear_num_value_heads"),
        "gdn_key_dim": arguments.need("linear_key_head_dim"),
        "gdn_value_dim": arguments.need("linear_value_head_dim"),
        "gdn_conv": arguments.need("linear_conv_kernel_dim"),
    }


def _feed_forward(arguments: Arguments, layers: int, bias: bool) -> dict[str, Any]:
    experts = arguments.number("num_experts")
    if not experts:
        return {"ffn": arguments.need("ffn_hidden_size")}
    pattern = _pattern(arguments, "moe_layer_freq", layers)
    moe = pattern if isinstance(pattern, tuple) else tuple(i % pattern == 0 for i in range(layers))
    # The experts' width defaults to the dense one.
    own = "moe_ffn_hidden_size" if "moe_ffn_hidden_size" in arguments.table else "ffn_hidden_size"
    return {
        "experts": experts,
        "topk": arguments.number("moe_router_topk", 2),
        "expert_ffn": arguments.need(own),
        "shared_ffn": arguments.number("moe_shared_expert_intermediate_size"),
        "shared_gate": arguments.on("moe_shared_expert_gate"),
        "router_bias": arguments.on("moe_router_enable_expert_bias"),
        "expert_bias": bias,
        "moe_layers": moe,
        "ffn": 0 if all(moe) else arguments.need("ffn_hidden_size"),
    }


def _pattern(arguments: Arguments, name: str, layers: int) -> int | tuple[bool, ...]:
    """A period, or a flag per layer from text such as ``([0]*3+[1]*58)``."""
    value = arguments.table.get(name, 1)
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, list | tuple):
        flags = [bool(integer(option, item, 0, 1)) for item in value]
    elif not isinstance(value, str):
        return integer(option, value, 1)
    elif re.fullmatch(_NUMBER, value.strip()):
        return integer(option, int(value), 1)
    else:
        plain = re.sub(r"[\s'\"]", "", value)
        # One pair of parentheses around the whole sum is Megatron's own way to write it.
        inner = plain[1:-1] if plain.startswith("(") and plain.endswith(")") else plain
        flags = []
        for term in inner.split("+"):
            match = _LIST.fullmatch(term)
            if match is None:
                raise InputError(f"{option} is {shown(value)}: write a number or [0]*3+[1]*58")
            once = [digit == "1" for digit in match[1].split(",")]
            flags += once * min(int(match[2] or 1), layers + 1)
    if "--num-layers" in arguments.missing:
        return 1
    if len(flags) != layers:
        raise InputError(f"{option} has {len(flags)} entries for {layers} layers")
    return tuple(flags)
