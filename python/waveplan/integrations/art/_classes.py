"""The classes whose values a saved call may hold; no other name is looked up or imported."""

from __future__ import annotations

import dataclasses
from importlib import import_module

from waveplan._values import shown
from waveplan.errors import InputError

_NAMES = {
    "art.megatron.context_parallel.layout_index": ("TokenLayoutIndex",),
    "art.megatron.context_parallel.types": (
        "AttnMaskKind",
        "AttnSlice",
        "ContextParallelConfig",
        "ContextParallelStageWorkProfile",
        "ContextParallelWorkloadProfile",
        "PackedBatchAttentionSpec",
        "PackedRowAttentionSpec",
        "ParallelTopology",
        "TokenRange",
    ),
    "art.megatron.gdn.gdn_prefix_tree": (
        "GdnPackedExecutionSpec",
        "GdnPlannerConfig",
        "GdnSegmentSpec",
    ),
    "art.megatron.prefix_tree_packing": ("PrefixTreePack", "PrefixTreePackSegment"),
    "art.trainer_rank": ("ForwardInput",),
}
CLASSES = frozenset(f"{module}:{name}" for module, names in _NAMES.items() for name in names)
"""``module:name`` of each: what the arguments of the seams are made of."""


def name_of(cls: type) -> str | None:
    """The name of a class in a saved call; None if none holds its values."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    return name if name in CLASSES else None


def class_of(name: object) -> type:
    """The class of this name.

    Raises:
        InputError: no saved call holds values of it, or the installed package has none.
    """
    if not isinstance(name, str) or name not in CLASSES:
        raise InputError(f"{shown(name)} is no class that a saved call holds: nothing is imported")
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError:
        found = None
    if not isinstance(found, type) or name_of(found) != name:
        raise InputError(f"the installed openpipe-art has no class {name}")
    return found


def field_names(cls: type) -> list[str] | None:
    """Fields of a dataclass or a pydantic model; None for any other class."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    fields = getattr(cls, "model_fields", None)
    return None if fields is None else list(fields)
