"""Kinds of layers, units and parameter types, and the bounds of sizes."""

from __future__ import annotations

from waveplan.checks import choice, shown

__all__ = [
    "ACTIVATIONS",
    "ATTENTION",
    "DTYPE_BYTES",
    "GDN",
    "LARGEST_SIZE",
    "MOST_LAYERS",
    "dtype_name",
]

ATTENTION = "attention"
GDN = "gdn"

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
ACTIVATIONS = {"native": 3, "eager": 5, "clamped": 7}


def dtype_name(name: str, value: object) -> str:
    """The canonical name of a parameter type."""
    # torch.bfloat16 is an object whose text is its name.
    given = value if isinstance(value, str) or type(value).__module__ == "torch" else shown(value)
    known = str(given).removeprefix("torch.").lower()
    return choice(name, _DTYPE_ALIASES.get(known, known), DTYPE_BYTES)
