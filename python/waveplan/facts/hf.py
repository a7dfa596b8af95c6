"""Read Hugging Face ``config.json`` files.

``families.json`` has a row a ``model_type``: the class's defaults (a config is written relative to
its class) and formulas over its keys for fields of `Model`. A type without a row is refused, and
so is a key that changes geometry and that the row does not read.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from waveplan.checks import integer, shown, text
from waveplan.errors import InputError
from waveplan.facts.formula import evaluate, names
from waveplan.facts.kinds import GDN, KINDS, LARGEST_SIZE, MOST_LAYERS, mtp_text
from waveplan.facts.towers import tower_parameters
from waveplan.files import kind, read_json

__all__ = ["families", "read"]

_WRAPPED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where a model of several parts keeps its decoder."""
_TOWERS = {
    "vision_config": "vision tower",
    "vision_tower": "vision tower",
    "visual": "vision tower",
    "audio_config": "audio encoder",
    "speech_config": "audio encoder",
    "qformer_config": "query transformer",
    "vq_config": "image tokenizer",
}
_GEOMETRY = re.compile(
    r"mamba_.*|ssm_.*|.*block_types?|hybrid_.*|attn_layer_.*|.*num_experts.*|n_experts.*|"
    r"(num|n)_.*experts|moe_.*|.*per_layer_input.*|.*kv_shared.*|global_(head|kv|attn|layer).*|"
    r"swa_.*|index_.*|dense_intermediate_size|.*latent.*|linear_(attn|num|key|value|conv).*|"
    r"block_configs|.*_lora_rank|.*lora_dim|layers_block_type|layer_types|conv_.*|attention_k_.*|"
    r"first_k_dense_.*|.*_layer_(freq|interval|step|period|offset)|mlp_only_layers|"
    r"decoder_sparse_.*|.*shared_expert.*|attention_chunk_size|cross_attention_layers|"
    r"altup_.*|laurel_.*|num_kv_heads|num_global_.*|.*intermediate_size.*|expert_.*size|"
    r"kda_.*|lightning_.*|engram_.*|hc_.*|compress.*|zero_expert.*|qk_.*head_dim|v_head_dim"
)
"""Keys that change geometry, whatever the family."""
_GEOMETRY_NOT = re.compile(
    r"moe_(router|aux|token|z|jitter|loss|capacity|drop|topk_method|score|group).*|"
    r".*_(coef|coeff|dropout|eps|std|loss|factor|bias|act|norm|range|limit|threshold|scale)|"
    r"num_experts_per_tok.*|moe_layer_freq|mamba_(dt|chunk|proj|rms|norm).*|.*_act_fn|ssm_.*mult.*"
)
_TYPES = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
}


_PLACEHOLDER = re.compile(
    r"(image|video|audio|vision|speech|img_context|media_placeholder)_token_(id|index)"
)
"""Keys of tokens that stand for something else."""


@cache
def families() -> dict[str, dict[str, Any]]:
    """Rows by ``model_type``, each with what it takes over from another or from ``base``."""
    rows: dict[str, dict[str, Any]] = read_json(Path(__file__).parent / "families.json")

    def whole(name: str) -> dict[str, Any]:
        row = rows[name]
        if name == "base":
            return row
        above = whole(row.get("like", "base"))
        parts = {
            key: {**above.get(key, {}), **row.get(key, {})} for key in ("defaults", "types", "keys")
        }
        return {**above, **row, **parts, "ignores": [*above["ignores"], *row.get("ignores", [])]}

    return {name: whole(name) for name in rows if name != "base"}


def read(
    config: str | os.PathLike[str] | Mapping[str, Any],
    make: Callable[..., Any] = dict,
    like: str | None = None,
) -> Any:
    """Return ``make(**sizes)`` with the sizes of a model, the fields of `Model`, that a config has.

    Args:
        config: a mapping, a ``config.json``, or a folder that holds one.
        like: the family whose class the decoder follows, where its own type has no row.
    """
    if isinstance(config, Mapping):
        return make(**_sizes(config, like))
    if not isinstance(config, str | os.PathLike):
        raise InputError(
            f"a config must be a dict, a config.json or its folder, not {shown(config)}"
        )
    file = Path(config)
    if re.match(r"https?:", str(config)):
        raise InputError(f"{config} is an address: download its config.json and give that file")
    if kind(file) == "folder":
        if kind(file / "config.json") is None:
            raise InputError(f"{file} has no config.json: give the folder of a checkpoint")
        file = file / "config.json"
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file} must hold one JSON object, not {shown(value)}")
    try:
        return make(**_sizes(value, like))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _sizes(outer: Mapping[str, Any], like: str | None) -> dict[str, Any]:
    inner, towers, path = outer, dict[str, None](), ""
    for depth in range(4):
        for key in (key for key in _TOWERS if inner.get(key)):
            number = tower_parameters(inner[key], inner.get("model_type"))
            towers[_TOWERS[key] + (f" of {number / 1e9:.3f} B parameters" if number else "")] = None
        nested = next((key for key in _WRAPPED if inner.get(key) is not None), None)
        if nested is None:
            break
        if depth == 3 or not isinstance(inner[nested], Mapping):
            why = (
                "an object" if depth < 3 else "nested less deeply: at most three wrappers are known"
            )
            raise InputError(f"{path}{nested} must be {why}, not {shown(inner[nested])}")
        path, inner = f"{path}{nested}.", inner[nested]
    name, row = _row(outer, inner, like)
    values = _Values(inner, row, name)
    if inner is not outer and isinstance(outer.get("tie_word_embeddings"), bool):
        # Tying is stated by the outermost config that has it.
        values.given["tie_word_embeddings"] = outer["tie_word_embeddings"]
    sizes = _fields(values, row)
    values.refuse_unread()
    quantized = _quantized(outer.get("quantization_config") or inner.get("quantization_config"))
    left = [*towers, *([mtp_text(sizes["mtp_layers"])] if sizes.get("mtp_layers") else [])]
    if outer_dtype := next((outer[k] for k in ("dtype", "torch_dtype") if outer.get(k)), None):
        sizes["dtype"] = sizes.get("dtype") or outer_dtype
    dtype = sizes.get("dtype") or "bfloat16"
    return {
        **sizes,
        "dtype": "bfloat16" if dtype in ("auto", "") else dtype,
        "quantized": quantized,
        "not_counted": tuple(left),
        "context": _context(inner),
        "media_token_ids": _media({**inner, **outer}),
        "family": str(inner.get("model_type") or name),
        "name": str(outer.get("_name_or_path") or ""),
    }


def _context(config: Mapping[str, Any]) -> int:
    """Positions that a model was made for, 0 if the config does not say."""
    for key in ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"):
        if (value := config.get(key)) is not None:
            return integer(key, value)
    return 0


def _media(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids of placeholders, which a config has outside its decoder's part."""
    ids = {
        value
        for key, value in config.items()
        if _PLACEHOLDER.fullmatch(key) and type(value) is int and value >= 0
    }
    return tuple(sorted(ids))


def _row(
    outer: Mapping[str, Any], inner: Mapping[str, Any], like: str | None
) -> tuple[str, dict[str, Any]]:
    """The row of the decoder's family and its name."""
    rows = families()
    types = [config.get("model_type") for config in (inner, outer)]
    for found in types:
        if found is not None:
            text("model_type", found)
    wanted = [_family(one) for one in types if one]
    for name in wanted:
        if name in rows:
            return name, rows[name]
    if like is not None:
        if like not in rows:
            raise InputError(f"like is {shown(like)}: {_nearest(like)}")
        return like, rows[like]
    ways = "say which family it is built like (--like, like=), or give a Model of its sizes"
    if not wanted:
        raise InputError(f"the config has no model_type: {ways}")
    raise InputError(f"model_type {shown(wanted[0])} is not known; {_nearest(wanted[0])}; {ways}")


def _family(model_type: str) -> str:
    name = re.sub(r"^qwen3_[6-9](?=$|_)", "qwen3_5", model_type)
    if name not in families():
        name = re.sub(r"_text(_model)?$", "", name)
    return name


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, families(), n=3, cutoff=0.5)
    return f"nearest are {', '.join(close or ['llama'])} (waveplan models lists all)"


class _Values(Mapping[str, Any]):
    """A config's keys as formulas see them: given, or as the class fills them in; each checked
    against the type of its default when it is read."""

    def __init__(self, given: Mapping[str, Any], row: Mapping[str, Any], family: str) -> None:
        self.given = dict(given)
        self.row = row
        self.family = family
        self.read: set[str] = set()
        self.index = 0

    def __getitem__(self, name: str) -> Any:
        if name == "i":
            return self.index
        defaults = self.row["defaults"]
        spellings = self.row["keys"].get(name, name)
        listed = spellings if isinstance(spellings, list) else [spellings, name]
        self.read.update(listed)
        key = next((one for one in listed if one in self.given), None)
        if key is None:
            if name not in defaults:
                raise InputError(f"model_type {self.family!r} lacks {listed[0]}")
            return defaults[name]
        return _checked(key, self.given[key], defaults.get(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def each(self, formula: Any, layers: int) -> tuple[Any, ...]:
        """A formula's value for every layer."""
        found = []
        for self.index in range(layers):
            found.append(evaluate(formula, self))
        return tuple(found)

    def refuse_unread(self) -> None:
        """Refuse a key that changes geometry and was not read."""
        ignored = {*self.read, *self.row["ignores"]}
        for key, value in self.given.items():
            if value in (None, False, 0, [], {}, "") or key in ignored:
                continue
            if key == "layer_types" and set(map(str, value)) == {"full_attention"}:
                continue
            if _GEOMETRY.fullmatch(key) and not _GEOMETRY_NOT.fullmatch(key):
                raise InputError(
                    f"{key} is {shown(value)}, which the family {self.family} is not known to "
                    "have: say which family the model is built like (--like, like=), or give a "
                    "Model of its sizes"
                )


def _checked(name: str, value: Any, default: Any) -> Any:
    if value is None:
        return None
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, not {shown(value)}")
    elif isinstance(default, int) or (default is None and isinstance(value, int | float)):
        most = MOST_LAYERS if name in ("num_hidden_layers", "n_layer", "n_layers") else LARGEST_SIZE
        if isinstance(value, bool) and default is None:
            return value
        return integer(name, value, 0, most)
    elif isinstance(default, str):
        return text(name, value)
    elif isinstance(default, list) and not isinstance(value, list | tuple):
        raise InputError(f"{name} must be a list, not {shown(value)}")
    return value


# -- fields -------------------------------------------------------------------------------------

_NOT_FIELDS = {
    *("defaults", "types", "keys", "ignores", "like", "kind", "moe", "bare", "mixers", "extra"),
    *("source", "needs"),
}

_WORDS = ("norm", "unit")


def _fields(values: _Values, row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Model` by the formulas of a row."""
    try:
        layers = integer("num_hidden_layers", evaluate(row["layers"], values), 1, MOST_LAYERS)
        for formula, why in row.get("needs", {}).items():
            if not evaluate(formula, values):
                raise InputError(f"the family {values.family} is not read where {why}")
        sizes = {
            name: formula if name in _WORDS else evaluate(formula, values)
            for name, formula in row.items()
            if name not in _NOT_FIELDS
        }
        sizes |= _experts(values, row, sizes, layers)
        kinds = _kinds(values, row, layers)
        sizes["layer_kinds"] = kinds
        if GDN not in kinds:
            sizes = {name: value for name, value in sizes.items() if not name.startswith("gdn_")}
        sizes["bare_layers"] = values.each(row["bare"], layers) if "bare" in row else ()
        if "bare" in row:
            sizes["bare_layers"] = tuple(map(bool, sizes["bare_layers"]))
        mixers = {kind: parts for kind, parts in row.get("mixers", {}).items() if kind in kinds}
        sizes["mixer_parameters"] = tuple(
            (kind, *(int(evaluate(part, values)) for part in parts))
            for kind, parts in mixers.items()
        )
        extra = ((name, evaluate(part, values)) for name, part in row.get("extra", {}).items())
        sizes["extra_parameters"] = tuple((name, int(number)) for name, number in extra if number)
        sizes["activation"] = _function(sizes["activation"])
    except InputError:
        raise
    except (TypeError, ZeroDivisionError, IndexError, KeyError, ValueError) as error:
        raise InputError(
            f"the keys of the config do not fit the family {values.family}: {error}"
        ) from None
    for name in ("hidden", "vocab", "heads", "kv_groups", "head_dim"):
        if sizes[name] is None:
            keys = " or ".join(sorted(names(row[name])))
            raise InputError(f"{keys} is null: give an integer")
    return {name: value for name, value in sizes.items() if value is not None}


def _experts(
    values: _Values, row: Mapping[str, Any], sizes: dict[str, Any], layers: int
) -> dict[str, Any]:
    names_of = ("experts", "topk", "expert_ffn", "shared_ffn", "moe_latent")
    if not sizes.get("experts"):
        flags_of = ("shared_gate", "expert_bias", "router_bias")
        return {**dict.fromkeys(names_of, 0), **dict.fromkeys(flags_of, False)}
    moe = tuple(map(bool, values.each(row.get("moe", True), layers)))
    if not any(moe):
        return {**dict.fromkeys(names_of, 0), "shared_gate": False}
    found: dict[str, Any] = {"moe_layers": moe}
    if all(moe):
        found |= {"ffn": 0, "mlp_bias": False}
    if not sizes.get("shared_ffn"):
        found["shared_gate"] = False
    return found


def _kinds(values: _Values, row: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    """Each layer's mixer: as the class computes it, or from ``layer_types`` where it reads them."""
    types = {**_TYPES, **row["types"]}
    listed = values.given.get("layer_types") if "layer_types" in names(row["kind"]) else None
    if listed is not None and not isinstance(listed, list | tuple):
        raise InputError(f"layer_types must be a list, not {shown(listed)}")
    if listed is not None and len(listed) != layers:
        raise InputError(f"layer_types has {len(listed)} entries for {layers} layers")
    kinds = []
    for index, found in enumerate(values.each(row["kind"], layers)):
        if found not in types and (listed is not None or found not in KINDS):
            raise InputError(
                f"layer_types[{index}] is {shown(found)}: the family {values.family} has "
                f"{', '.join(types)}"
            )
        kinds.append(types.get(found, found))
    return tuple(kinds)


def _function(value: Any) -> str:
    """An activation function by our names."""
    known = {
        "": "silu",
        "swish": "silu",
        "silu": "silu",
        "swiglu": "silu",
        "swigluoai": "quick_gelu",
        "quick_gelu": "quick_gelu",
        "relu": "relu",
        "relu2": "relu2",
        "xielu": "xielu",
    }
    name = text("hidden_act", value or "")
    if name in known:
        return known[name]
    if "gelu" in name:
        return "gelu"
    raise InputError(f"hidden_act is {shown(name)}: known are {', '.join(known)[2:]}, gelu")


def _quantized(config: Any) -> str:
    """How the checkpoint stores its weights, from ``quantization_config``."""
    if config is None or config == {}:
        return ""
    if not isinstance(config, Mapping):
        raise InputError(f"quantization_config must be an object, not {shown(config)}")
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    words = (
        f"{method} {config.get('quant_algo')} {config.get('fmt')} {config.get('format')}".lower()
    )
    if method == "bitsandbytes" or config.get("load_in_4bit") or config.get("load_in_8bit"):
        if config.get("load_in_8bit"):
            return "int8"
        return str(config.get("bnb_4bit_quant_type") or "fp4")
    for name in ("nvfp4", "mxfp4", "fp8", "float-quantized", "naive-quantized"):
        if name in words:
            return {"float-quantized": "fp8", "naive-quantized": "fp8"}.get(name, name)
    bits = config.get("bits") or config.get("w_bit") or config.get("weight_bits")
    if "int-quantized" in words:
        return "int8"
    if "pack-quantized" in words or method in ("gptq", "awq", "auto-round"):
        return f"int{bits or 4}"
    return method or "unknown"
