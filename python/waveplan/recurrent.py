"""The second layout, of gated-delta-net layers: which rank runs which segment.

Recurrent layers run along a segment, so they cannot use the attention layout's chunks. Each
segment has one owner or is *chained*: cut into one shard per context-parallel rank. A rank
then holds the larger of its attention and its recurrent tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waveplan._core import (
    Gdn,
    GdnSchedule,
    GdnSettings,
    gdn,
    gdn_schedule,
    gdn_schedule_per_rank,
)

if TYPE_CHECKING:
    from waveplan.facts.model import Model

__all__ = [
    "Gdn",
    "GdnSchedule",
    "GdnSettings",
    "gdn",
    "gdn_schedule",
    "gdn_schedule_per_rank",
    "gdn_settings",
]


def gdn_settings(model: Model, tp: int) -> GdnSettings:
    """Settings of a model's gated-delta-net layers, whose heads ``tp`` divides."""
    return GdnSettings.from_shape(
        model.hidden,
        model.gdn_key_heads,
        model.gdn_value_heads,
        model.gdn_key_dim,
        model.gdn_value_dim,
        model.gdn_conv,
        tp,
    )
