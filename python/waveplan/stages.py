"""The stages that read tokens, `tree` and `pack`, and the settings of later stages from a model.

`own` gives the chunks of a pack to context-parallel ranks. Gdn layers run along a segment, so they
cannot use its chunks: `gdn` places segments, each on one rank or *chained*, cut into one shard a
rank. A rank then holds the larger of its attention and its gdn tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from waveplan import _core as core
from waveplan._core import GdnSettings, OwnershipSettings, Packing, Tree
from waveplan.checks import integer, integers
from waveplan.sequences.sequences import Sequences

if TYPE_CHECKING:
    from waveplan.facts.model import Model
    from waveplan.facts.topology import Topology

__all__ = ["gdn_settings", "mlp_token_ms", "owned_token_ms", "ownership_settings", "pack", "tree"]

FLOPS = 400e12
"""Floating-point operations a second of matrix products, as the reference planner takes it."""


def tree(sequences: object) -> Tree:
    """Build the canonical radix tree of sequences (anything `Sequences.from_any` takes).

    One pass over the tokens; the unshared tail of a sequence is not read. The tree itself reads no
    token.

    Raises:
        InputError: no sequences, or an empty one.
    """
    given = Sequences.from_any(sequences)
    return core.build_tree(given.tokens, given.offsets)


def pack(
    sequences: object,
    max_depth: int | None = None,
    min_shared: int = 1,
    shareable: ArrayLike | None = None,
) -> Packing:
    """Pack sequences (anything `Sequences.from_any` takes) by walking their prefix tree.

    Args:
        sequences: empty ones produce nothing.
        max_depth: shared segments above one another, at most. None: no limit (full sharing);
            0: nothing is shared.
        min_shared: the shortest run of tokens that is shared; a shorter one is replayed.
        shareable: how many leading tokens of each sequence may be shared, clamped to its length.

    Raises:
        InputError: a negative `max_depth` or `min_shared`, or not one limit a sequence.
    """
    given = Sequences.from_any(sequences)
    return core.pack_sequences(
        given.tokens,
        given.offsets,
        max_depth,
        min_shared,
        None if shareable is None else integers("shareable", shareable),
    )


def ownership_settings(model: Model, topology: Topology) -> OwnershipSettings:
    """Return the default settings with the `owned_token_ms` of a model."""
    cost = owned_token_ms(
        hidden=model.hidden,
        ffn=model.ffn or 4 * model.hidden,  # Megatron's width where none is given
        topk=model.topk,
        expert_ffn=model.expert_ffn,
        shared_ffn=model.shared_ffn,
        tp=topology.tp,
        ep=topology.ep,
        etp=topology.etp,
    )
    return OwnershipSettings(owned_token_ms=cost)


def mlp_token_ms(model: Model, topology: Topology) -> float:
    """Return the part of `owned_token_ms` that is a layer's MLP, without attention's ``8 h²``."""
    owned = ownership_settings(model, topology).owned_token_ms
    attention = 3.0 * 8.0 * float(model.hidden) ** 2 / topology.tp / FLOPS * 1e3
    return max(0.0, owned - attention)


def owned_token_ms(
    *,
    hidden: int,
    ffn: int,
    topk: int = 0,
    expert_ffn: int = 0,
    shared_ffn: int = 0,
    tp: int = 1,
    ep: int = 1,
    etp: int | None = None,
) -> float:
    """Return milliseconds of a layer's non-attention work per token owned, forward and backward.

    ``3 (8 h² + MLP) / tp`` flops at 400 Tflop/s, the MLP being ``6 h ffn`` or, in a mixture of
    experts, ``6 h shared_ffn``; routed experts (``6 h expert_ffn topk``) follow ownership only
    without expert parallelism and where ``etp`` (default: ``tp``) divides ``tp``. 0 when
    ``hidden`` or ``ffn`` is 0, that is, unknown.
    """
    hidden, ffn = integer("hidden", hidden), integer("ffn", ffn)
    topk, expert_ffn = integer("topk", topk), integer("expert_ffn", expert_ffn)
    shared_ffn = integer("shared_ffn", shared_ffn)
    tp, ep = integer("tp", tp, 1), integer("ep", ep, 1)
    etp = tp if etp is None else integer("etp", etp, 1)
    if hidden == 0 or ffn == 0:
        return 0.0
    h = float(hidden)
    experts = topk > 0 and expert_ffn > 0
    local = 8.0 * h * h + 6.0 * h * float(shared_ffn if experts else ffn)
    follows = experts and ep == 1 and tp % etp == 0
    routed = 6.0 * h * float(expert_ffn) * topk if follows else 0.0
    return 3.0 * (local + routed) / tp / FLOPS * 1e3


def gdn_settings(model: Model, tp: int) -> GdnSettings:
    """Return the settings of a model's gdn layers, whose heads ``tp`` divides."""
    return GdnSettings.from_shape(
        model.hidden,
        model.gdn_key_heads,
        model.gdn_value_heads,
        model.gdn_key_dim,
        model.gdn_value_dim,
        model.gdn_conv,
        tp,
    )
