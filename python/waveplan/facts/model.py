"""The sizes of a decoder, as far as a price depends on them."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from waveplan.checks import choice, entries, flag, integer, text
from waveplan.errors import InputError
from waveplan.facts.fields import check, count, given, switch, whole, word
from waveplan.facts.kinds import (
    ATTENTION,
    DTYPE_BYTES,
    FUNCTIONS,
    GDN,
    KINDS,
    LARGEST_SIZE,
    MOST_LAYERS,
    NONE,
    NORMS,
    SLIDING,
    UNITS,
    UNPRICED,
    dtype_name,
)

if TYPE_CHECKING:
    from waveplan.facts.arguments import Source

__all__ = ["ATTENTION", "DTYPE_BYTES", "GDN", "UNITS", "Model"]

_SIZE = {"check": whole(1, LARGEST_SIZE)}


def _size(doc: str = "") -> Any:
    return count(0, doc, most=LARGEST_SIZE)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Sizes of one decoder-only model. Absent parts are 0, ``False`` or empty.

    Sizes are counts of features, heads or layers; none is in bytes.

    Raises:
        InputError: a size is missing, negative or contradicts another.
    """

    hidden: int = field(metadata=_SIZE)
    layers: int = field(metadata={"check": whole(1, MOST_LAYERS)})
    vocab: int = field(metadata=_SIZE)
    heads: int = field(metadata=_SIZE)
    kv_groups: int = field(metadata=_SIZE)
    head_dim: int = field(metadata=_SIZE)
    attention_gate: bool = switch(
        doc="attention output gate: the query projection is twice as wide"
    )
    ffn: int = _size("width of a dense feed-forward layer")
    experts: int = _size()
    topk: int = _size()
    expert_ffn: int = _size()
    shared_ffn: int = _size("width of all shared experts together")
    shared_gate: bool = switch()
    gdn_layers: int = 0
    """Gated-delta-net layers; taken from ``layer_kinds`` when that is given."""
    gdn_key_heads: int = _size()
    gdn_value_heads: int = _size()
    gdn_key_dim: int = _size()
    gdn_value_dim: int = _size()
    gdn_conv: int = _size("kernel of the causal convolution in front of the delta rule")
    dtype: str = given("bfloat16", "type of parameters and activations", dtype_name)
    layer_kinds: tuple[str, ...] = ()
    """A mixer (`waveplan.facts.kinds.KINDS`) for each layer, bottom first; empty: order unknown or
    all attention."""
    moe_layers: tuple[bool, ...] = ()
    """Which layers have experts; empty with ``experts``: all of them."""
    bare_layers: tuple[bool, ...] = ()
    """Which layers have no feed-forward part; empty: none."""
    mixer_parameters: tuple[tuple[str, int, int], ...] = ()
    """(kind, divided, whole) parameters of a layer of each kind that no rule prices."""
    extra_parameters: tuple[tuple[str, int], ...] = ()
    """(part, parameters) of what is neither embedding, mixer, feed-forward, norm nor head."""
    not_counted: tuple[str, ...] = ()
    """Parts of the checkpoint that are no part of these facts."""
    quantized: str = given("", "how the checkpoint stores its weights", text)
    tied_embeddings: bool = switch()
    q_lora_rank: int = _size()
    kv_lora_rank: int = _size("above 0: multi-head latent attention, with three head sizes")
    qk_nope_head_dim: int = _size()
    qk_rope_head_dim: int = _size()
    v_head_dim: int = _size()
    activation: str = word("silu", FUNCTIONS, "activation function of the feed-forward unit")
    unit: str = word("eager", UNITS, "how the feed-forward unit runs")
    gated_mlp: bool = switch(True)
    mtp_layers: int = _size("multi-token-prediction modules, beside the decoder's layers")
    qk_norm: bool = switch()
    qk_norm_wide: bool = switch(doc="with qk_norm: over all heads, not within each")
    latent_norm: bool = switch(True, "with latent attention: norms of what is compressed")
    qkv_bias: bool = switch()
    output_bias: bool = switch()
    mlp_bias: bool = switch()
    expert_bias: bool = switch()
    router_bias: bool = switch()
    attention_sinks: bool = switch()
    norms_per_layer: int = count(2, least=1, most=16)
    norm: str = word("rms", NORMS)
    norm_bias: bool = switch()
    positions: int = _size("learned position embeddings")
    context: int = _size("positions that it was made for; 0: not known")
    media_token_ids: tuple[int, ...] = ()
    """Ids that stand for parts of images, video or audio: equal ids, different contents."""
    moe_latent: int = _size("width that experts work in, between two projections; 0: hidden")
    name: str = given("", check=text)
    family: str = given("", check=text)

    def __post_init__(self) -> None:
        check(self)
        self._check_attention()
        self._check_layer_kinds()
        self._check_experts()
        self._check_parts()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_attention(self) -> None:
        if self.heads % self.kv_groups:
            raise InputError(
                f"kv_groups is {self.kv_groups}: it must divide heads, which is {self.heads}"
            )
        if self.kv_lora_rank:
            need = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            if missing := [name for name in need if not getattr(self, name)]:
                raise InputError(f"latent attention (kv_lora_rank) needs {', '.join(missing)}")

    def _check_layer_kinds(self) -> None:
        kinds = entries("layer_kinds", self.layer_kinds)
        self._set("layer_kinds", kinds)
        gdn = integer("gdn_layers", self.gdn_layers, 0, self.layers)
        if kinds:
            if len(kinds) != self.layers:
                raise InputError(f"layer_kinds has {len(kinds)} entries for {self.layers} layers")
            for index, kind in enumerate(kinds):
                choice(f"layer_kinds[{index}]", kind, KINDS)
            if gdn not in (0, kinds.count(GDN)):
                raise InputError(
                    f"gdn_layers is {gdn}, but layer_kinds names {kinds.count(GDN)} of them"
                )
            gdn = kinds.count(GDN)
        elif gdn == self.layers:
            self._set("layer_kinds", (GDN,) * gdn)
        elif gdn == 0:
            self._set("layer_kinds", (ATTENTION,) * self.layers)
        self._set("gdn_layers", gdn)
        sizes = ("gdn_key_heads", "gdn_value_heads", "gdn_key_dim", "gdn_value_dim", "gdn_conv")
        if gdn and (missing := [name for name in sizes if not getattr(self, name)]):
            raise InputError(f"{gdn} gated-delta-net layers need {', '.join(missing)}")

    def _check_experts(self) -> None:
        moe, bare = self._flags("moe_layers"), self._flags("bare_layers")
        if len(bare) not in (0, self.layers):
            raise InputError(f"bare_layers has {len(bare)} entries for {self.layers} layers")
        if not self.experts:
            if any(moe) or self.topk or self.expert_ffn or self.shared_ffn:
                raise InputError(
                    "experts is 0, but topk, expert_ffn, shared_ffn or moe_layers is set"
                )
            moe = (False,) * self.layers
        else:
            if missing := [name for name in ("topk", "expert_ffn") if not getattr(self, name)]:
                raise InputError(f"{self.experts} experts need {', '.join(missing)}")
            integer("topk", self.topk, 1, self.experts)
            moe = moe or (True,) * self.layers
        if len(moe) != self.layers:
            raise InputError(f"moe_layers has {len(moe)} entries for {self.layers} layers")
        self._set("bare_layers", bare)
        self._set("moe_layers", moe)
        if False in self.feed_forward and not self.ffn:
            raise InputError("ffn is missing: some layers have a dense feed-forward part")
        if self.shared_gate and not self.shared_ffn:
            raise InputError("shared_gate is set, but shared_ffn is 0")
        if any(map(operator.and_, moe, bare)):
            raise InputError("a layer of moe_layers is one of bare_layers too")

    def _flags(self, name: str) -> tuple[bool, ...]:
        values = entries(name, getattr(self, name))
        return tuple(flag(f"{name}[{index}]", value) for index, value in enumerate(values))

    def _check_parts(self) -> None:
        for name, sizes in (("mixer_parameters", 2), ("extra_parameters", 1)):
            rows = []
            for index, row in enumerate(entries(name, getattr(self, name))):
                place = f"{name}[{index}]"
                part, *counts = entries(place, row)
                if len(counts) != sizes:
                    raise InputError(f"{place} must have a name and {sizes} counts")
                rows.append((text(place, part), *(integer(place, number) for number in counts)))
            self._set(name, tuple(rows))
        ids = entries("media_token_ids", self.media_token_ids)
        self._set("media_token_ids", tuple(integer("media_token_ids", one) for one in ids))
        parts = entries("not_counted", self.not_counted)
        self._set("not_counted", tuple(text("not_counted", part) for part in parts))
        counted = {row[0] for row in self.mixer_parameters}
        if missing := sorted((set(self.layer_kinds) & UNPRICED.keys()) - counted):
            raise InputError(f"mixer_parameters lacks the layers of kind {', '.join(missing)}")

    @property
    def attention_layers(self) -> int:
        """Layers whose mixer is attention of the model's sizes, within a window or not."""
        if not self.layer_kinds:
            return self.layers - self.gdn_layers
        return self.layer_kinds.count(ATTENTION) + self.layer_kinds.count(SLIDING)

    @property
    def dense_layers(self) -> int:
        """Layers with one dense feed-forward part."""
        return self.layers - sum(self.moe_layers) - sum(self.bare_layers)

    @property
    def parameters(self) -> int:
        """Parameters of the decoder with embedding and head; tied ones count once."""
        from waveplan.facts.parameters import parameter_counts

        return sum(parameter_counts(self).values())

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """What was read, in one line: family, layers by kind, experts, widths, parameters, type of
        numbers, and what is not counted."""
        family = f"{self.family}: " if self.family else ""
        unpacked = (
            "" if self.quantized in ("bf16", "fp8", "int8", "nf4") else " and priced unpacked"
        )
        stored = f", stored as {self.quantized}{unpacked}" if self.quantized else ""
        lines = f"{family}{self._layers_text()}, {self._widths_text()}"
        counted = f"{self.parameters / 1e9:.3f} B parameters in {self.dtype}{stored}"
        left = f"; not counted: {', '.join(self.not_counted)}" if self.not_counted else ""
        return f"{lines}; {counted}{left}"

    def _layers_text(self) -> str:
        kinds = Counter(self.layer_kinds)
        if not kinds:
            kinds = Counter({ATTENTION: self.attention_layers, GDN: self.gdn_layers})
        named = {NONE: "without a mixer", SLIDING: "of sliding attention", GDN: "of gdn"}
        named |= {ATTENTION: "of latent attention" if self.mla else "of attention"}
        parts = [
            f"{number:,} {named.get(kind) or f'of {UNPRICED[kind]}'}"
            for kind, number in kinds.items()
            if number
        ]
        if len(parts) == 1:
            return f"{self.layers:,} layers {parts[0].partition(' ')[2]}"
        return f"{self.layers:,} layers ({', '.join(parts)})"

    def _widths_text(self) -> str:
        parts = [f"hidden {self.hidden:,}"]
        if self.attention_layers:
            shared = f" over {self.kv_groups} of keys and values" if not self.mla else ""
            parts.append(f"{self.heads} heads of {self.head_dim}{shared}")
        if self.experts:
            beside = f" and {self.shared_ffn:,} shared" if self.shared_ffn else ""
            parts.append(
                f"{self.experts} experts of {self.expert_ffn:,}{beside}, {self.topk} a token, in "
                f"{sum(self.moe_layers)} layers"
            )
        if self.dense_layers:
            parts.append(f"{'gated' if self.gated_mlp else 'plain'} {self.activation} {self.ffn:,}")
        tied = ", tied" if self.tied_embeddings else ""
        return ", ".join((*parts, f"vocabulary {self.vocab:,}{tied}"))

    @property
    def feed_forward(self) -> tuple[bool | None, ...]:
        """Of each layer: experts, one dense unit, or None without a feed-forward part."""
        both = zip(self.moe_layers, self.bare_layers or (False,) * self.layers, strict=True)
        return tuple(None if bare else moe for moe, bare in both)

    @property
    def is_moe(self) -> bool:
        """Some layer routes to experts."""
        return self.experts > 0

    @property
    def is_hybrid(self) -> bool:
        """Some layer is a gated-delta-net."""
        return self.gdn_layers > 0

    @property
    def mla(self) -> bool:
        """Attention is multi-head latent attention."""
        return self.kv_lora_rank > 0

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one parameter or activation."""
        return DTYPE_BYTES[self.dtype]

    @property
    def gdn_conv_dim(self) -> int:
        """Channels of the GDN convolution: queries, keys and values."""
        return 2 * self.gdn_key_heads * self.gdn_key_dim + self.gdn_value_heads * self.gdn_value_dim

    def gap(self, kind: str) -> int | None:
        """Decoder layers above the highest layer of ``kind``; None when the order is unknown
        or no layer is of that kind."""
        same = (ATTENTION, SLIDING) if kind == ATTENTION else (kind,)
        above = (i for i, one in enumerate(reversed(self.layer_kinds)) if one in same)
        return next(above, None)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; ``Model(**d)`` restores the model."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: _plain(value) for name, value in values.items()}

    @classmethod
    def from_hf(
        cls, config: str | os.PathLike[str] | Mapping[str, Any], like: str | None = None
    ) -> Model:
        """Read a Hugging Face ``config.json``: its path, its folder, or its content.

        ``like`` names a family whose class the config's own family follows, when that is unknown.

        Raises:
            InputError: the file cannot be read, or keys are missing (all are listed).
        """
        from waveplan.facts import hf

        made: Model = hf.read(config, cls, like)
        return made

    @classmethod
    def from_megatron(cls, arguments: Source, padded_vocab: int | None = None) -> Model:
        """Read Megatron arguments: words, a dict, or a file (see `waveplan.read_megatron`).

        ``padded_vocab``: rows of the embedding, where the arguments leave them to a tokenizer.

        Raises:
            InputError: an argument is unknown, missing (all are listed), or has a wrong value.
        """
        from waveplan.facts import decoder

        return cls(**decoder.read(arguments, padded_vocab))
