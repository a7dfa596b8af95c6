"""Kinds of layers, units and parameter types, and the bounds of sizes."""

from __future__ import annotations

from waveplan.checks import choice, shown

__all__ = [
    *("ATTENTION", "DTYPE_BYTES", "FUNCTIONS", "GDN", "KINDS", "LARGEST_SIZE", "MOST_LAYERS"),
    *("NONE", "NORMS", "SLIDING", "UNITS", "UNPRICED", "dtype_name", "mtp_text"),
]

ATTENTION = "attention"
SLIDING = "sliding"
"""Attention within a window or a chunk, with the sizes of the other attention layers: it keeps for
backward what those keep, so their rules price it."""
GDN = "gdn"
NONE = "none"
"""A layer without a mixer: a feed-forward part alone."""
UNPRICED = {
    "indexed": "attention over tokens that an indexer selects",
    "other_attention": "attention of other sizes than the model's",
    "parallel": "attention and Mamba2 side by side",
    "mamba": "Mamba",
    "mamba2": "Mamba2",
    "lightning": "lightning attention",
    "kda": "Kimi delta attention",
    "conv": "short convolution",
    "recurrent": "recurrent (RG-LRU)",
}
"""Mixers that no rule prices: counted, listed as uncharged."""
KINDS = (ATTENTION, SLIDING, GDN, NONE, *UNPRICED)

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
_DTYPE_ALIASES = {
    "fp64": "float64",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}

# Bounds that keep tables small and products of four sizes within reach of a checked error.
MOST_LAYERS = 1 << 16
LARGEST_SIZE = 1 << 31

# Widths of dense FFN activations kept for backward, in units of ffn per token: a natively fused
# gated unit, the eager one, and the eager one with clamped inputs.
UNITS = {"native": 3, "eager": 5, "clamped": 7}

FUNCTIONS = ("silu", "gelu", "quick_gelu", "relu", "relu2", "xielu")
"""Activation functions; "gelu" stands for its approximations too."""
NORMS = ("rms", "layer", "plain")
"""Root mean square, LayerNorm, LayerNorm without parameters."""


def dtype_name(name: str, value: object) -> str:
    """The canonical name of a parameter type."""
    # torch.bfloat16 is an object whose text is its name.
    given = value if isinstance(value, str) or type(value).__module__ == "torch" else shown(value)
    known = str(given).removeprefix("torch.").lower()
    return choice(name, _DTYPE_ALIASES.get(known, known), DTYPE_BYTES)


def mtp_text(modules: int) -> str:
    """How modules that predict further tokens are named where they are not counted."""
    return (
        "1 module that predicts a further token"
        if modules == 1
        else (f"{modules} modules that predict further tokens")
    )
