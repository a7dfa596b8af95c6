"""Predicted work of a layout: fitted coefficient tables as data, and which of them applies.

The tables in ``data/layout_scores.json`` are facts published with ``openpipe-art`` 0.5.23, fitted
there on H200 bf16 timings of forward and backward through an active adapter. A table applies only
to runs it was measured on; elsewhere the older hand-set score (version 1) stands in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from waveplan._core import Scoring
from waveplan.checks import entries, flag, integer, shown
from waveplan.errors import InputError
from waveplan.facts.model import Model
from waveplan.facts.topology import Topology

__all__ = [
    "DEFAULT_TABLE",
    "TABLES",
    "TERMS",
    "Device",
    "Geometry",
    "Scoring",
    "Shape",
    "Table",
    "from_table",
    "select",
]

TERMS = (
    "token_per_rank",
    "token_cp_exchange",
    "token_tp_collective",
    "gdn_token_per_rank",
    "attention_token_cp_exchange",
    "tiny_segment_per_layer",
    "level_cp_per_layer",
    "level_tp_per_layer",
    "gdn_level",
    "gdn_level_tp",
)
"""Terms of the version-2 score, in the order of every table's coefficients."""

_GIB = 1024**3


class Geometry(NamedTuple):
    """Sizes of one layer that decide how fast its kernels run; parts a model lacks are 0."""

    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    kv_channels: int
    gdn_value_heads: int = 0
    gdn_key_heads: int = 0
    gdn_key_head_dim: int = 0
    gdn_value_head_dim: int = 0
    gdn_conv_kernel: int = 0
    moe_experts: int = 0
    moe_topk: int = 0
    moe_ffn_hidden_size: int = 0
    moe_shared_expert_ffn: int = 0

    @classmethod
    def of(cls, model: Model) -> Geometry:
        """Return the geometry of a model; without a dense width, Megatron's 4 x hidden."""
        gdn, moe = model.gdn_layers > 0, model.experts > 0
        return cls(
            hidden_size=model.hidden,
            ffn_hidden_size=model.ffn or 4 * model.hidden,
            num_attention_heads=model.heads,
            num_query_groups=model.kv_groups,
            kv_channels=model.head_dim,
            gdn_value_heads=model.gdn_value_heads * gdn,
            gdn_key_heads=model.gdn_key_heads * gdn,
            gdn_key_head_dim=model.gdn_key_dim * gdn,
            gdn_value_head_dim=model.gdn_value_dim * gdn,
            gdn_conv_kernel=model.gdn_conv * gdn,
            moe_experts=model.experts * moe,
            moe_topk=model.topk * moe,
            moe_ffn_hidden_size=model.expert_ffn * moe,
            moe_shared_expert_ffn=model.shared_ffn * moe,
        )


class Shape(NamedTuple):
    """Parallel sizes of a run."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device: compute capability and memory in bytes (None: unknown)."""

    capability: tuple[int, int]
    memory: int | None = None

    def __post_init__(self) -> None:
        pair = entries("capability", self.capability)
        if len(pair) != 2:
            raise InputError(f"capability is {shown(pair)}: give two numbers, such as (9, 0)")
        major, minor = (integer("capability", part) for part in pair)
        object.__setattr__(self, "capability", (major, minor))
        if self.memory is not None:
            object.__setattr__(self, "memory", integer("memory", self.memory))

    @property
    def is_h200(self) -> bool:
        """Whether it is of the class that the tables were measured on, as far as is known."""
        return self.capability == (9, 0) and (self.memory is None or self.memory >= 120 * _GIB)


@dataclass(frozen=True, slots=True)
class Table:
    """One fitted table and the runs it was measured on."""

    name: str
    coefficients: tuple[int, ...]
    """Milli-microseconds a unit, in the order of `TERMS`."""
    runs: frozenset[tuple[Geometry, Shape]]
    """Runs that it ranks rightly."""


def _table(data: dict[str, Any]) -> Table:
    runs = frozenset(
        (Geometry(**run["geometry"]), Shape(**shape))
        for run in data["runs"]
        for shape in run["shapes"]
    )
    return Table(data["name"], tuple(data["coefficients"].get(t, 0) for t in TERMS), runs)


_DATA = json.loads((Path(__file__).parent / "data/layout_scores.json").read_text("utf-8"))
TABLES = tuple(_table(data) for data in _DATA["tables"])
"""All tables, in the order in which they are tried."""

DEFAULT_TABLE = TABLES[0]
"""Used without a CUDA device, for any geometry and shape."""


def from_table(
    table: str, *, layers: int, gdn_layers: int = 0, tp: int = 1, cp: int = 1
) -> Scoring:
    """Return the version-2 score of a table by name, whether or not it was measured on such a run.

    Raises:
        InputError: no table has this name.
    """
    found = next((known for known in TABLES if known.name == table), None)
    if found is None:
        names = ", ".join(known.name for known in TABLES)
        raise InputError(f"table is {shown(table)}: it must be one of {names}")
    return Scoring(
        version=2,
        tp=tp,
        cp=cp,
        layers=layers,
        gdn_layers=gdn_layers,
        coefficients=found.coefficients,
    )


def name_of(scoring: Scoring) -> str:
    """Return the table of a score's coefficients; "version 1" or "version 2" without one."""
    if scoring.version == 2:
        for table in TABLES:
            if table.coefficients == scoring.coefficients:
                return table.name
    return f"version {scoring.version}"


def select(
    model: Model, topology: Topology, *, device: Device | None = None, gradient: bool = True
) -> Scoring:
    """Return the score that applies to a run.

    Packs without gradients: version 1. No device (at a desk): version 2 with `DEFAULT_TABLE`.
    Else the first table measured on this device class, dtype, geometry and shape; version 1 when
    there is none.
    """
    shape = Shape(topology.tp, topology.cp, topology.ep, topology.etp)
    table = None
    if flag("gradient", gradient):
        table = select_table(device, model.dtype, Geometry.of(model), shape)
    return Scoring(
        version=1 if table is None else 2,
        tp=topology.tp,
        cp=topology.cp,
        layers=model.layers,
        gdn_layers=model.gdn_layers,
        coefficients=(0,) * len(TERMS) if table is None else table.coefficients,
    )


def select_table(
    device: Device | None, dtype: str, geometry: Geometry, shape: Shape
) -> Table | None:
    """Return the table for packs with gradients; None: version 1 applies."""
    if device is None:
        return DEFAULT_TABLE
    if not device.is_h200 or dtype != "bfloat16":
        return None
    return next((table for table in TABLES if (geometry, shape) in table.runs), None)
