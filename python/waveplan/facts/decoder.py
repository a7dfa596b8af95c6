"""The decoder that Megatron arguments describe, as fields of `Model`."""

from __future__ import annotations

from typing import Any

from waveplan.checks import integer
from waveplan.errors import InputError
from waveplan.facts.arguments import Arguments, Source, option, table
from waveplan.facts.kinds import ATTENTION, FUNCTIONS, GDN, NONE, SLIDING, mtp_text
from waveplan.facts.mixers import indexer_parameters, mamba2_parameters

__all__ = ["read", "sizes"]

_PATTERN = {"M": "mamba2", "*": ATTENTION, "-": NONE, "E": NONE, "G": GDN}
_SPECS = {
    "get_glm_spec": "",
    "get_gpt_layer_with_transformer_engine_spec": "",
    "get_gpt_layer_local_spec": "",
    "get_gpt_decoder_block_spec": "",
    "hybrid_stack_spec": "pattern",
    "mamba_stack_spec": "pattern",
    "get_qwen3_next_spec": "qwen3_next",
    "get_qwen3_5_spec": "qwen3_5",
    "get_glm5_spec": "indexer",
}
"""Layer specs whose layers are known: what the arguments leave to them."""
_TRAINING = (
    *("micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "fp16"),
    *("recompute_granularity", "use_distributed_optimizer"),
)
"""Arguments of a job, not of a model alone."""


def read(source: Source, padded_vocab: int | None = None) -> dict[str, Any]:
    """The fields of `Model` that Megatron arguments state."""
    return sizes(table(source)[0], padded_vocab)[0]


def sizes(
    values: dict[str, Any], padded_vocab: int | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of `Model`, and what was filled in; all missing arguments are listed."""
    arguments, notes = Arguments(values), list[str]()
    spec = _spec(arguments)
    kinds, bare, moe, layers = _layers(arguments, spec)
    hidden = arguments.need("hidden_size")
    heads = arguments.need("num_attention_heads")
    bias = arguments.on("add_bias_linear", True)
    layer_norm = arguments.word("normalization", "LayerNorm") == "LayerNorm"
    latent = _latent(arguments)
    fields: dict[str, Any] = {
        "family": "megatron",
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_groups": _groups(arguments, heads, notes),
        "head_dim": arguments.number("kv_channels") or max(1, hidden // heads),
        "attention_gate": arguments.on("attention_output_gate"),
        "tied_embeddings": not arguments.on("untie_embeddings_and_output_weights"),
        "qk_norm": arguments.on("qk_layernorm") and not latent,
        "latent_norm": arguments.on("qk_layernorm") or not latent,
        "qkv_bias": (bias or arguments.on("add_qkv_bias")) and not latent,
        "output_bias": bias,
        "norm": "layer" if layer_norm else "rms",
        "norm_bias": layer_norm,
        "norms_per_layer": _norms(arguments),
        "attention_sinks": arguments.word("softmax_type", "vanilla") == "learnable",
        "positions": _positions(arguments, notes),
        "mtp_layers": arguments.number("mtp_num_layers"),
        "dtype": _dtype(arguments, notes),
        **_unit(arguments),
        **latent,
    }
    if latent:
        fields |= {"head_dim": latent["v_head_dim"], "kv_groups": heads}
    if fields["mtp_layers"]:
        fields["not_counted"] = (mtp_text(fields["mtp_layers"]),)
    fields |= _experts(arguments, bias, moe, layers)
    if "indexed" in kinds or GDN in kinds:
        fields |= _variant(arguments, spec, fields, kinds, notes)
        kinds = fields.pop("layer_kinds", kinds)
    fields |= {"layer_kinds": kinds, "bare_layers": bare}
    if "mamba2" in kinds:
        fields["mixer_parameters"] = (_mamba(arguments, hidden),)
    if False in _feed_forward(kinds, bare, fields.get("moe_layers"), layers):
        fields |= {"ffn": _ffn(arguments, hidden, fields["gated_mlp"]), "mlp_bias": bias}
    fields["vocab"] = _vocab(arguments, padded_vocab, notes)
    if arguments.missing:
        hint = ""
        if arguments.on("use_checkpoint_args"):
            hint = ": --use-checkpoint-args takes them from a checkpoint, so give its arguments"
        raise InputError(f"Megatron arguments lack {', '.join(arguments.missing)}{hint}")
    return fields, tuple(notes)


def _feed_forward(
    kinds: tuple[str, ...], bare: tuple[bool, ...], moe: tuple[bool, ...] | None, layers: int
) -> set[bool | None]:
    experts = moe or (False,) * layers
    return {
        None if bare and bare[index] else experts[index] for index in range(min(layers, len(kinds)))
    }


def _spec(arguments: Arguments) -> str:
    words = arguments.words("spec")
    if not words:
        return ""
    if words[-1] not in _SPECS:
        raise InputError(
            f"--spec {' '.join(words)} is not known, so its layers are not: known are "
            f"{', '.join(_SPECS)}; or give the model by --model"
        )
    return words[-1]


# -- layers -------------------------------------------------------------------------------------


def _layers(
    arguments: Arguments, spec: str
) -> tuple[tuple[str, ...], tuple[bool, ...], tuple[bool, ...] | None, int]:
    """Mixers, layers without a unit, layers with experts (None: by their frequency), and count."""
    pattern = arguments.word("hybrid_layer_pattern", "")
    if pattern:
        main = pattern.split("/")[0].replace("|", "")
        if wrong := sorted(set(main) - _PATTERN.keys()):
            raise InputError(
                f"--hybrid-layer-pattern has {wrong[0]!r}: known are {', '.join(_PATTERN)}"
            )
        stated = arguments.number("num_layers", len(main), 1)
        if stated != len(main):
            raise InputError(
                f"--hybrid-layer-pattern has {len(main)} layers, --num-layers says {stated}"
            )
        kinds = tuple(_PATTERN[letter] for letter in main)
        return kinds, tuple(x not in "-E" for x in main), tuple(x == "E" for x in main), len(main)
    if _SPECS.get(spec) == "pattern" or arguments.on("is_hybrid_model"):
        arguments.missing.append("--hybrid-layer-pattern")
    layers = arguments.need("num_layers")
    return _mixers(arguments, spec, layers), (), None, layers


def _mixers(arguments: Arguments, spec: str, layers: int) -> tuple[str, ...]:
    variant = arguments.word("experimental_attention_variant", "")
    if variant == "dsa" or _SPECS.get(spec) == "indexer":
        return ("indexed",) * layers
    if variant not in ("", "gated_delta_net"):
        raise InputError(
            f"--experimental-attention-variant is {variant!r}: known are gated_delta_net and dsa"
        )
    every = 4 if _SPECS.get(spec, "").startswith("qwen3") else 0
    if "linear_attention_freq" in arguments.values or every:
        linear = arguments.pattern("linear_attention_freq", layers, every or 1)
        # A number n puts attention at every n-th layer; a pattern marks the linear layers.
        if isinstance(linear, int):
            return tuple(ATTENTION if (i + 1) % linear == 0 else GDN for i in range(layers))
        return tuple(GDN if mark else ATTENTION for mark in linear)
    if variant:
        arguments.missing.append("--linear-attention-freq")
    if "window_size" not in arguments.values:
        return (ATTENTION,) * layers
    if "window_attn_skip_freq" not in arguments.values:
        return (SLIDING,) * layers
    skip = arguments.pattern("window_attn_skip_freq", layers)
    if isinstance(skip, int):
        return tuple(ATTENTION if (i + 1) % skip == 0 else SLIDING for i in range(layers))
    return tuple(SLIDING if mark else ATTENTION for mark in skip)


_GDN_SIZES = {
    "gdn_key_heads": ("linear_num_key_heads", 16),
    "gdn_value_heads": ("linear_num_value_heads", 32),
    "gdn_key_dim": ("linear_key_head_dim", 128),
    "gdn_value_dim": ("linear_value_head_dim", 128),
    "gdn_conv": ("linear_conv_kernel_dim", 4),
}
"""With Megatron's defaults, which hold for its own variant."""


def _variant(
    arguments: Arguments,
    spec: str,
    fields: dict[str, Any],
    kinds: tuple[str, ...],
    notes: list[str],
) -> dict[str, Any]:
    """Sizes of gated delta nets or of an indexer; specs read them from a checkpoint's config."""
    if GDN in kinds:
        stated = [key for key, _ in _GDN_SIZES.values() if key in arguments.values]
        if spec not in ("", *[k for k, v in _SPECS.items() if v == "pattern"]) and not stated:
            return _bundled(_SPECS[spec], fields, notes)
        values: dict[str, Any] = {
            name: arguments.number(key, absent, 1) for name, (key, absent) in _GDN_SIZES.items()
        }
        return {**values, "unit": "native", "shared_gate": arguments.on("moe_shared_expert_gate")}
    heads = arguments.number("dsa_indexer_n_heads", 32 if spec else 64, 1)
    width = arguments.number("dsa_indexer_head_dim", 128, 1)
    if spec:
        # Its sizes are those of later models too, which share an indexer among layers.
        if float(arguments.word("rotary_base", "0")) != 1e6:
            raise InputError(
                "--spec takes which layers have an indexer from a checkpoint's config, and "
                "--rotary-base is not GLM-5's: give the model by --model"
            )
        notes.append(f"an indexer of {heads} heads of {width}, as in GLM-5")
    return {"mixer_parameters": (("indexed", *indexer_parameters(fields, heads, width)),)}


def _bundled(family: str, fields: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Gated delta nets as in the bundled model that has all other sizes."""
    from waveplan.facts import models

    same = ("hidden", "layers", "heads", "kv_groups", "head_dim", "experts")
    for name in models.names():
        one = models.get(name)
        if one.family.startswith(family) and all(
            getattr(one, key) == fields.get(key, 0) for key in same
        ):
            notes.append(f"gated delta nets as in {name}, which has the same sizes")
            found = {key: getattr(one, key) for key in (*_GDN_SIZES, "shared_gate", "unit")}
            return {**found, "layer_kinds": one.layer_kinds}
    raise InputError(
        "--spec takes the gated delta nets from a checkpoint's config: give "
        f"{', '.join(option(key) for key, _ in _GDN_SIZES.values())}, or the model by --model"
    )


def _mamba(arguments: Arguments, hidden: int) -> tuple[str, int, int]:
    dim = arguments.number("mamba_head_dim", 64, 1)
    heads = arguments.number("mamba_num_heads") or 2 * hidden // dim
    groups = arguments.number("mamba_num_groups", 8, 1)
    state = arguments.number("mamba_state_dim", 128, 1)
    return ("mamba2", *mamba2_parameters(hidden, heads, dim, groups, state))


# -- parts --------------------------------------------------------------------------------------


def _groups(arguments: Arguments, heads: int, notes: list[str]) -> int:
    """Grouped queries need their switch, but in a `TransformerConfig`."""
    stated = arguments.number("num_query_groups")
    switch = arguments.values.get("group_query_attention")
    if switch is False or (switch is None and not arguments.on("transformer_config")):
        if stated and stated != heads and switch is None:
            notes.append("--num-query-groups does nothing without --group-query-attention")
        return heads
    return stated or (1 if switch else heads)


def _norms(arguments: Arguments) -> int:
    if "hybrid_layer_pattern" in arguments.values:
        return 1
    posts = ("post_self_attn_layernorm", "post_mlp_layernorm")
    return 2 + sum(arguments.on(name) for name in posts)


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


def _positions(arguments: Arguments, notes: list[str]) -> int:
    kind = arguments.word("position_embedding_type", "learned_absolute")
    others = ("use_rotary_position_embeddings", "no_position_embedding", "enable_gpt_oss")
    if any(arguments.on(name) for name in others):
        return 0
    if kind != "learned_absolute":
        return 0
    if "max_position_embeddings" not in arguments.values:
        notes.append("neither kind nor number of positions is stated: none are learned")
    return arguments.number("max_position_embeddings")


def _unit(arguments: Arguments) -> dict[str, Any]:
    """The feed-forward unit."""
    if function := arguments.word("activation_func", ""):
        names = {"squared_relu": "relu2", "fast_gelu": "gelu", "quick_gelu": "quick_gelu"}
        function = names.get(function, function)
        if function not in FUNCTIONS:
            raise InputError(f"--activation-func is {function!r}: known are {', '.join(FUNCTIONS)}")
        unit = {"activation": function, "gated_mlp": arguments.on("gated_linear_unit")}
    elif arguments.on("swiglu"):
        unit = {"activation": "silu", "gated_mlp": True}
    elif arguments.on("quick_geglu"):
        unit = {"activation": "quick_gelu", "gated_mlp": True}
    elif arguments.on("squared_relu"):
        unit = {"activation": "relu2", "gated_mlp": False}
    else:
        unit = {"activation": "gelu", "gated_mlp": arguments.on("gated_linear_unit")}
    if "activation_func_clamp_value" in arguments.values:
        unit["unit"] = "clamped"
    return unit


def _ffn(arguments: Arguments, hidden: int, gated: bool) -> int:
    if stated := arguments.number("ffn_hidden_size"):
        return stated
    # Megatron keeps the size of a unit without a gate, in multiples of 64.
    if gated and arguments.on("swiglu"):
        return hidden * 8 // 3 // 64 * 64
    return 4 * hidden


def _experts(
    arguments: Arguments, bias: bool, moe: tuple[bool, ...] | None, layers: int
) -> dict[str, Any]:
    experts = arguments.number("num_experts")
    if not experts:
        if moe and any(moe):
            arguments.missing.append("--num-experts")
        return {}
    if moe is None:
        pattern = arguments.pattern("moe_layer_freq", layers)
        moe = (
            pattern
            if isinstance(pattern, tuple)
            else tuple(index % pattern == 0 for index in range(layers))
        )
    # The experts' width defaults to the dense one.
    width = arguments.number("moe_ffn_hidden_size") or _ffn(
        arguments, arguments.number("hidden_size", 1), arguments.on("swiglu")
    )
    return {
        "experts": experts,
        "topk": arguments.number("moe_router_topk", 2, 1),
        "expert_ffn": width,
        "shared_ffn": arguments.number("moe_shared_expert_intermediate_size"),
        "shared_gate": arguments.on("moe_shared_expert_gate"),
        "moe_latent": arguments.number("moe_latent_size"),
        "router_bias": bias,
        "expert_bias": bias,
        "moe_layers": moe,
    }


def _dtype(arguments: Arguments, notes: list[str]) -> str:
    stated = arguments.word("params_dtype", "")
    if stated:
        return stated
    if arguments.on("bf16"):
        return "bfloat16"
    if arguments.on("fp16"):
        return "float16"
    if not any(name in arguments.values for name in _TRAINING):
        notes.append("no precision is stated in these arguments of a model alone: bfloat16")
        return "bfloat16"
    if arguments.on("transformer_config"):
        return "float32"
    if arguments.word("fp8_format", ""):
        return "bfloat16"
    return "float32"


def _vocab(arguments: Arguments, padded_vocab: int | None, notes: list[str]) -> int:
    """Rows of the embedding: stated, or the vocabulary padded as Megatron does."""
    if padded_vocab is not None:
        return integer("padded_vocab", padded_vocab, 1)
    if stated := arguments.number("padded_vocab_size"):
        return stated
    if arguments.values.get("vocab_size") is None:
        arguments.missing.append(
            f"{option('vocab_size')} or {option('padded_vocab_size')} (or give --padded-vocab, the "
            "rows of the embedding)"
        )
        return 1
    vocab = arguments.need("vocab_size")
    tp = arguments.number("tensor_model_parallel_size", 1, 1)
    multiple = arguments.number("make_vocab_size_divisible_by", 128, 1) * tp
    padded = -(-vocab // multiple) * multiple
    if padded != vocab:
        notes.append(f"vocabulary {vocab:,} padded to {padded:,}")
    return padded
