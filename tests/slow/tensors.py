"""The tensors of a Megatron model as a list of shapes, read from its arguments alone.

Written from Megatron-LM's modules, without the package's facts: the reference for parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

Shape = tuple[int, ...]


def total(arguments: Mapping[str, Any], padded_vocab: int) -> int:
    """Parameters of a GPT or hybrid model; modules of multi-token prediction left out."""
    return sum(prod(shape) for shape in tensors(arguments, padded_vocab))


def tensors(arguments: Mapping[str, Any], padded_vocab: int) -> Iterator[Shape]:
    """Shapes of all tensors."""
    a = {key.lstrip("-").replace("-", "_"): value for key, value in arguments.items()}
    hidden = int(a["hidden_size"])
    yield padded_vocab, hidden
    learned = a.get("position_embedding_type", "learned_absolute") == "learned_absolute"
    others = ("use_rotary_position_embeddings", "no_position_embedding", "enable_gpt_oss")
    if learned and not any(a.get(name) for name in others):
        yield int(a["max_position_embeddings"]), hidden
    pattern = a.get("hybrid_layer_pattern") or a.get("hybrid_override_pattern")
    if pattern:
        for letter in pattern.split("/")[0]:
            yield from norm(a, hidden)
            yield from {"M": mamba, "*": attention, "-": mlp, "E": experts}[letter](a, hidden)
    else:
        moe = experts_at(a)
        for layer in range(int(a["num_layers"])):
            yield from norm(a, hidden)
            yield from attention(a, hidden)
            for post in ("post_self_attn_layernorm", "post_mlp_layernorm"):
                if a.get(post):
                    yield from norm(a, hidden)
            yield from norm(a, hidden)
            yield from (experts if moe[layer] else mlp)(a, hidden)
    yield from norm(a, hidden)
    if a.get("untie_embeddings_and_output_weights"):
        yield padded_vocab, hidden


def experts_at(a: Mapping[str, Any]) -> list[bool]:
    """Which layers have experts."""
    layers = int(a["num_layers"])
    if not a.get("num_experts"):
        return [False] * layers
    frequency = a.get("moe_layer_freq", 1)
    if isinstance(frequency, str) and not frequency.isdecimal():
        frequency = eval(frequency, {"__builtins__": {}})
    if isinstance(frequency, list):
        return [bool(one) for one in frequency]
    return [layer % int(frequency) == 0 for layer in range(layers)]


def biased(a: Mapping[str, Any]) -> bool:
    return not a.get("disable_bias_linear")


def norm(a: Mapping[str, Any], width: int) -> Iterator[Shape]:
    yield (width,)
    if a.get("normalization", "LayerNorm") == "LayerNorm":
        yield (width,)


def attention(a: Mapping[str, Any], hidden: int) -> Iterator[Shape]:
    heads = int(a["num_attention_heads"])
    if a.get("multi_latent_attention"):
        yield from latent(a, hidden, heads)
        return
    dim = int(a.get("kv_channels") or hidden // heads)
    groups = int(a.get("num_query_groups", 1)) if a.get("group_query_attention") else heads
    outputs = (heads * (2 if a.get("attention_output_gate") else 1) + 2 * groups) * dim
    yield outputs, hidden
    if biased(a) or a.get("add_qkv_bias"):
        yield (outputs,)
    if a.get("qk_layernorm"):
        yield from norm(a, dim)
        yield from norm(a, dim)
    if a.get("softmax_type") == "learnable":
        yield (heads,)
    yield hidden, heads * dim
    if biased(a):
        yield (hidden,)


def latent(a: Mapping[str, Any], hidden: int, heads: int) -> Iterator[Shape]:
    nope, rope = int(a.get("qk_head_dim", 128)), int(a.get("qk_pos_emb_head_dim", 64))
    value, rank = int(a.get("v_head_dim", 128)), int(a.get("kv_lora_rank", 32))
    if a.get("q_lora_rank"):
        query = int(a["q_lora_rank"])
        yield query, hidden
        yield heads * (nope + rope), query
        if a.get("qk_layernorm"):
            yield from norm(a, query)
    else:
        yield heads * (nope + rope), hidden
    yield rank + rope, hidden
    yield heads * (nope + value), rank
    if a.get("qk_layernorm"):
        yield from norm(a, rank)
    yield hidden, heads * value
    if biased(a):
        yield (hidden,)


def gated(a: Mapping[str, Any]) -> bool:
    return bool(a.get("swiglu") or a.get("quick_geglu"))


def unit(a: Mapping[str, Any], inputs: int, width: int, bias_in: int) -> Iterator[Shape]:
    columns = width * (2 if gated(a) else 1)
    yield columns, inputs
    yield inputs, width
    if biased(a):
        yield (columns,)
        yield (bias_in,)


def width_of(a: Mapping[str, Any], hidden: int) -> int:
    if a.get("ffn_hidden_size"):
        return int(a["ffn_hidden_size"])
    return int((4 * hidden * 2 / 3) / 64) * 64 if a.get("swiglu") else 4 * hidden


def mlp(a: Mapping[str, Any], hidden: int) -> Iterator[Shape]:
    yield from unit(a, hidden, width_of(a, hidden), hidden)


def experts(a: Mapping[str, Any], hidden: int) -> Iterator[Shape]:
    count = int(a["num_experts"])
    inner = int(a.get("moe_latent_size") or hidden)
    width = int(a.get("moe_ffn_hidden_size") or width_of(a, hidden))
    yield count, hidden
    if biased(a):
        yield (count,)
    if inner != hidden:
        yield inner, hidden
        yield hidden, inner
    for _ in range(count):
        yield from unit(a, inner, width, hidden)
    if shared := int(a.get("moe_shared_expert_intermediate_size") or 0):
        yield shared * (2 if gated(a) else 1), hidden
        yield hidden, shared
        if a.get("moe_shared_expert_gate"):
            yield 1, hidden


def mamba(a: Mapping[str, Any], hidden: int) -> Iterator[Shape]:
    dim, groups = int(a.get("mamba_head_dim", 64)), int(a.get("mamba_num_groups", 8))
    state = int(a.get("mamba_state_dim", 128))
    heads = int(a.get("mamba_num_heads") or 2 * hidden // dim)
    inner, mixed = heads * dim, heads * dim + 2 * groups * state
    yield inner + mixed + heads, hidden
    yield mixed, 1, 4
    yield (mixed,)
    yield from [(heads,)] * 3
    yield (inner,)
    yield hidden, inner
