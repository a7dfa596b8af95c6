"""Predicted work of a layout: fitted coefficient tables as data, and which of them applies.

The tables are facts reference with ``openpipe-art`` 0.5.23 (Apache-2.0), fitted there on H200
bf16 timings of forward and backward through an active adapter. A table applies only to what it
was measured on; elsewhere the older hand-set score (version 1) stands in.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from waveplan._core import Scoring
from waveplan.checks import entries, flag, instance, integer, shown, text
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
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

    def __post_init__(self) -> None:
        for field in fields(self):
            integer(field.name, getattr(self, field.name))

    @classmethod
    def of(cls, model: Model) -> Geometry:
        """The geometry of a model. Without a dense width, Megatron's default of 4 x hidden."""
        instance("model", model, Model)
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


@dataclass(frozen=True, slots=True)
class Shape:
    """Parallel sizes that a table was measured at."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            integer(field.name, getattr(self, field.name), 1)


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device: compute capability and memory in bytes (None: the driver does not tell)."""

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
    def memory_class(self) -> str | None:
        """ "141g" from 120 GiB, "80g" from 70 GiB, else "small"; None when unknown."""
        if self.memory is None:
            return None
        if self.memory >= 120 * _GIB:
            return "141g"
        return "80g" if self.memory >= 70 * _GIB else "small"


H200 = Device((9, 0), 141 * 10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One fitted table and the runs it was measured on."""

    name: str
    coefficients: tuple[int, ...]
    """Milli-microseconds a unit, in the order of `TERMS`."""
    geometries: tuple[Geometry, ...]
    shapes: tuple[Shape, ...]
    withheld: tuple[tuple[Geometry, Shape], ...] = ()
    """Measured, but known to rank wrongly there."""
    provenance: str

    def admits(self, device: Device, dtype: str, geometry: Geometry, shape: Shape) -> bool:
        """Whether the table was measured on exactly this."""
        instance("device", device, Device)
        instance("geometry", geometry, Geometry)
        instance("shape", shape, Shape)
        text("dtype", dtype)
        return (
            device.capability == H200.capability
            and device.memory_class in (None, H200.memory_class)
            and dtype == "bfloat16"
            and geometry in self.geometries
            and shape in self.shapes
            and (geometry, shape) not in self.withheld
        )


def _dense(hidden: int, ffn: int, heads: int, groups: int, channels: int = 128) -> Geometry:
    return Geometry(
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        num_attention_heads=heads,
        num_query_groups=groups,
        kv_channels=channels,
    )


def _hybrid(hidden: int, ffn: int, heads: int, groups: int, values: int, **moe: int) -> Geometry:
    return Geometry(
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        num_attention_heads=heads,
        num_query_groups=groups,
        kv_channels=256,
        gdn_value_heads=values,
        gdn_key_heads=16,
        gdn_key_head_dim=128,
        gdn_value_head_dim=128,
        gdn_conv_kernel=4,
        **moe,
    )


_QWEN3_4B = _dense(2560, 9728, 32, 8)
_ATTENTION_MOE = Geometry(
    hidden_size=2048,
    ffn_hidden_size=6144,
    num_attention_heads=32,
    num_query_groups=4,
    kv_channels=128,
    moe_experts=128,
    moe_topk=8,
    moe_ffn_hidden_size=768,
)
_HYBRID_MOE = _hybrid(
    2048,
    8192,
    16,
    2,
    32,
    moe_experts=256,
    moe_topk=8,
    moe_ffn_hidden_size=512,
    moe_shared_expert_ffn=512,
)
_BASE = (Shape(), Shape(cp=2), Shape(tp=2))
_SOURCE = "openpipe-art 0.5.23, coefficients version 2, H200 bf16, "

TABLES = (
    Table(
        name="dense-h2560",
        coefficients=(1986, 45, 229, 305, 7, 222742, 152596, 635438, 2920256, 428567),
        geometries=(_hybrid(2560, 9216, 16, 4, 32), _QWEN3_4B),
        shapes=(*_BASE, Shape(cp=4)),
        withheld=((_QWEN3_4B, Shape(cp=4)),),
        provenance=_SOURCE + "Qwen3.5-4B and Qwen3-4B, 2026-09-02",
    ),
    Table(
        name="gdn-moe-h2048",
        coefficients=(3152, 36, 727, 364, 0, 360723, 255082, 6023815, 8553228, 0),
        geometries=(_HYBRID_MOE,),
        shapes=(
            *_BASE,
            Shape(cp=2, ep=2),
            Shape(cp=4),
            Shape(cp=4, ep=2),
            Shape(cp=4, ep=4),
            Shape(tp=2, ep=2),
        ),
        provenance=_SOURCE + "Qwen3.5-35B-A3B, 2026-09-04 and 09-08",
    ),
    Table(
        name="dense-attn-h2048",
        coefficients=(1024, 0, 287, 0, 0, 0, 0, 0, 0, 0),
        geometries=(_dense(2048, 6144, 16, 8),),
        shapes=_BASE,
        provenance=_SOURCE + "Qwen3-1.7B, 2026-09-04 and 09-08",
    ),
    Table(
        name="dense-attn-h4096",
        coefficients=(23664, 21, 540, 0, 0, 0, 57575, 0, 0, 0),
        geometries=(_dense(4096, 12288, 32, 8),),
        shapes=(*_BASE, Shape(cp=4)),
        provenance=_SOURCE + "Qwen3-8B, 2026-09-04 and 09-08",
    ),
    Table(
        name="dense-attn-h5120",
        coefficients=(9263, 106, 918, 0, 27, 10843, 100249, 0, 0, 0),
        geometries=(_dense(5120, 17408, 40, 8),),
        shapes=(*_BASE, Shape(cp=4), Shape(tp=2, cp=2)),
        provenance=_SOURCE + "Qwen3-14B, 2026-09-04 and 09-08",
    ),
    Table(
        name="attn-moe-h2048",
        coefficients=(6648, 163, 105, 0, 0, 0, 0, 0, 0, 0),
        geometries=(_ATTENTION_MOE,),
        shapes=(*_BASE, Shape(cp=2, ep=2), Shape(tp=2, ep=2)),
        provenance=_SOURCE + "Qwen3-30B-A3B, 2026-09-04 to 09-08",
    ),
    Table(
        name="dense-gdn-h5120",
        coefficients=(5755, 191, 817, 0, 0, 197090, 0, 212167, 2987709, 0),
        geometries=(_hybrid(5120, 17408, 24, 4, 48),),
        shapes=(*_BASE, Shape(cp=4)),
        provenance=_SOURCE + "Qwen3.5-27B, 2026-09-04 and 09-08",
    ),
)
"""All tables, in the order in which they are tried."""

DEFAULT_TABLE = TABLES[0]
"""Used without a CUDA device, for any geometry and shape."""


def from_table(
    table: str, *, layers: int, gdn_layers: int = 0, tp: int = 1, cp: int = 1
) -> Scoring:
    """Version 2 with a table by name, whether or not it was measured on such a run.

    Raises:
        InputError: no table has this name.
    """
    text("table", table)
    found = next((known for known in TABLES if known.name == table), None)
    if found is None:
        names = ", ".join(known.name for known in TABLES)
        raise InputError(f"no coefficient table is called {shown(table)}: known are {names}")
    return Scoring(
        version=2,
        tp=tp,
        cp=cp,
        layers=layers,
        gdn_layers=gdn_layers,
        coefficients=found.coefficients,
    )


def name_of(scoring: Scoring) -> str:
    """The table that a score's coefficients come from; "version 1" or "version 2" without one."""
    if scoring.version == 2:
        for table in TABLES:
            if table.coefficients == scoring.coefficients:
                return table.name
    return f"version {scoring.version}"


def select(
    model: Model, topology: Topology, *, device: Device | None = None, gradient: bool = True
) -> Scoring:
    """The score that applies to a run.

    Groups without gradients: version 1. No device (at a desk): version 2 with `DEFAULT_TABLE`.
    Else the first table measured on this device class, dtype, geometry and shape; version 1 when
    there is none.
    """
    instance("model", model, Model)
    instance("topology", topology, Topology)
    if device is not None:
        instance("device", device, Device)
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
    """The table for groups with gradients; None: version 1 applies."""
    if device is None:
        return DEFAULT_TABLE
    admitting = (t for t in TABLES if t.admits(device, dtype, geometry, shape))
    return next(admitting, None)
