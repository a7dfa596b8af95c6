"""The second layout, of gated-delta-net layers: which rank runs which segment.

Recurrent layers run along a segment, so they cannot use the attention layout's chunks. Each
segment has one owner or is *chained*: cut into one shard per context-parallel rank. A rank
then holds the larger of its attention and its recurrent rows.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from waveplan import _core
from waveplan._values import LARGEST, attributes, instance, integer, shown
from waveplan.assignment import Assignment, PackedRow, columns_of
from waveplan.errors import InputError
from waveplan.rows import integers

if TYPE_CHECKING:
    from waveplan.model import Model

__all__ = [
    "GdnSchedule",
    "Recurrent",
    "RecurrentSettings",
    "gdn_schedule",
    "gdn_schedule_per_rank",
    "recurrent",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentSettings:
    """Time model of one gated-delta-net layer, forward and backward, and limits of the search.

    Rates are tokens or segments per millisecond, bandwidths bytes per millisecond, names in
    ``_ms`` milliseconds. The defaults are those of the shape that the rates were measured at;
    :meth:`from_shape` scales them to another. A wrong value raises :class:`InputError`.
    """

    hidden_bytes: int = 4096
    exchanges: int = 4
    exchange_bandwidth: float = 448e6
    local_rate: float = 1500.0
    chain_rate: float = 1400.0
    dense_rate: float = 772.0
    local_bucket_ms: float = 2.2
    chain_bucket_ms: float = 2.2
    local_segment_ms: float = 0.005
    summary_bytes: int = 4_194_304
    summary_exchanges: int = 8
    summary_bandwidth: float = 1e10
    summary_rate: float = 320.0
    scan_bucket_ms: float = 2.8
    scan_rate: float = 3.5
    parent_bytes: int = 262_144
    parent_bandwidth: float = 56e6
    min_gain_ms: float = 2.0
    beam_width: int = 2
    branch: int = 4
    candidates: int = 16
    max_steps: int = 4

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(field.default, int):
                limits = name in ("beam_width", "branch", "candidates", "max_steps")
                checked: float = integer(name, value, least=-LARGEST if limits else 0)
            else:
                checked = _real(name, value, positive=not name.endswith("_ms"))
            object.__setattr__(self, name, checked)

    @classmethod
    def of(cls, model: Model, tp: int) -> RecurrentSettings:
        """Settings of a model's gated-delta-net layers, whose heads ``tp`` divides."""
        from waveplan.model import Model as Class

        instance("model", model, Class)
        return cls.from_shape(
            model.hidden,
            model.gdn_key_heads,
            model.gdn_value_heads,
            model.gdn_key_dim,
            model.gdn_value_dim,
            model.gdn_conv,
            tp,
        )

    @classmethod
    def from_shape(
        cls,
        hidden: int,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        conv: int,
        tp: int = 1,
        **overrides: float,
    ) -> RecurrentSettings:
        """Settings of a layer of this shape; heads are counted before ``tp`` divides them.

        Refuses sizes below 1 and heads that ``tp`` does not divide. ``overrides`` replace
        derived values by name.
        """
        sizes = {
            "hidden": hidden,
            "key_heads": key_heads,
            "value_heads": value_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "conv": conv,
            "tp": tp,
        }
        whole = {name: integer(name, size, least=1) for name, size in sizes.items()}
        unknown = sorted(overrides.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise InputError(f"unknown settings: {', '.join(unknown)}")
        return cls(**{**_core.recurrent_settings(list(whole.values())), **overrides})


def _real(name: str, value: object, *, positive: bool) -> float:
    """``value`` as a finite float, positive or at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{name} must be a number, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise InputError(
            f"{name} is {shown(value)}: it must be finite and "
            f"{'positive' if positive else 'at least 0'}"
        )
    return number


@dataclass(frozen=True, slots=True, eq=False)
class Recurrent:
    """Which rank runs which segment of a packed row.

    ``rank_tokens`` [C] and ``attention_tokens`` [C] are the tokens of each rank in this and in
    the attention layout. ``owner`` [S] is -1 where ``chained`` [S]. ``shards`` [chained
    segments, C] are the tokens of each shard. ``cross_tokens`` change rank between the layouts.
    ``score`` is the predicted time of a layer on the slowest rank in milliseconds, ``bound``
    what no placement can go below, ``evaluations`` how many placements were scored.
    """

    rank_tokens: NDArray[np.int64]
    owner: NDArray[np.int64]
    chained: NDArray[np.bool_]
    shards: NDArray[np.int64]
    cross_tokens: int
    score: float
    bound: float
    evaluations: int
    attention_tokens: NDArray[np.int64]

    @property
    def model_rows(self) -> NDArray[np.int64]:
        """Rows of a model with both kinds of layers on each rank [C]: the larger of both."""
        return np.maximum(self.rank_tokens, self.attention_tokens)


@dataclass(frozen=True, slots=True)
class GdnSchedule:
    """What one pass of a gated-delta-net layer executes and keeps, in rows."""

    executed_rows: int
    state_rows: int
    packed_rows: int


def recurrent(
    packing: PackedRow,
    assignment: Assignment,
    settings: RecurrentSettings | None = None,
) -> Recurrent:
    """Place the segments of a packed row on the ranks of its attention assignment.

    Raises :class:`InputError` for a row without segments (padding alone) and for an assignment
    of another row.
    """
    lengths, parents = columns_of(packing)
    given = attributes("assignment", assignment, "rank_tokens", "chunk", "owners")
    attention_tokens = integers("rank_tokens", given[0])
    if settings is None:
        settings = RecurrentSettings()
    rank_tokens, owner, chained, shards, cross_tokens, score, bound, evaluations = _core.recurrent(
        lengths,
        parents,
        len(attention_tokens),
        integer("chunk", given[1]),
        integers("owners", given[2]),
        instance("settings", settings, RecurrentSettings),
    )
    return Recurrent(
        rank_tokens=rank_tokens,
        owner=owner,
        chained=chained,
        shards=shards.reshape(-1, len(attention_tokens)),
        cross_tokens=cross_tokens,
        score=score,
        bound=bound,
        evaluations=evaluations,
        attention_tokens=attention_tokens,
    )


def gdn_schedule(packing: PackedRow) -> GdnSchedule:
    """The bucket schedule of a whole packed row on one rank."""
    return GdnSchedule(*_core.gdn_schedule(*columns_of(packing)))


def gdn_schedule_per_rank(packing: PackedRow, placement: Recurrent) -> tuple[GdnSchedule, ...]:
    """The bucket schedule of each rank, over the segments and shards that it holds."""
    given = attributes("placement", placement, "rank_tokens", "owner", "shards")
    shards = given[2]
    if isinstance(shards, np.ndarray) and not isinstance(shards, np.ma.MaskedArray):
        shards = shards.reshape(-1)
    schedules = _core.gdn_schedule_per_rank(
        *columns_of(packing),
        len(integers("rank_tokens", given[0])),
        integers("owner", given[1]),
        integers("shards", shards),
    )
    return tuple(GdnSchedule(*schedule) for schedule in schedules)
