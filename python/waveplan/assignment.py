"""Which context-parallel rank owns which chunk of a packed row, and when others fetch it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waveplan import _core
from waveplan._values import (
    LARGEST,
    MOST_RANKS,
    attributes,
    choice,
    entries,
    instance,
    integer,
    shown,
)
from waveplan.errors import InputError
from waveplan.rows import integers

__all__ = [
    "AssignSettings",
    "Assignment",
    "PackedRow",
    "ProfiledWork",
    "StageWork",
    "WorkloadProfile",
    "assign",
    "attention_slices",
    "owned_token_ms",
    "stage_times",
]

_COSTS = "ms"


class PackedRow(Protocol):
    """What a packing offers: segment lengths [S] and parents [S] (-1 for a root)."""

    @property
    def lengths(self) -> NDArray[np.int64]: ...

    @property
    def parents(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class StageWork:
    """Work of one pipeline stage of a sparse-indexer model, per unit."""

    query_flops: int = 0
    """Flops per query token."""
    tile_pair_flops: int = 0
    """Indexer flops per query-key pair of a tile."""
    key_hbm_bytes: int = 0
    """Key bytes read from device memory per key token."""
    fetch_bytes: int = 0
    """Bytes fetched per key token."""
    reduce_bytes: int = 0
    """Gradient bytes reduced per key token."""
    query_memory_bytes: int = 0
    """Bytes held per query token."""
    key_memory_bytes: int = 0
    """Bytes held per key token."""

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, integer(field.name, getattr(self, field.name)))


@dataclass(frozen=True, slots=True)
class WorkloadProfile:
    """Facts of a sparse-indexer model that choose between assignments with few ranges.

    The generic answer stands unless a contiguous or folded one by chunk length holds no more
    memory and is better in query flops, then network, key reads, indexer flops, peers, ranges.
    """

    stages: tuple[StageWork, ...]
    """One entry per pipeline stage, at least one."""
    query_tile: int
    """Query tokens of an indexer tile."""
    key_tile: int
    """Key tokens of an indexer tile."""
    workspace_elements: int
    """Elements of the indexer's score workspace."""
    max_key_tokens: int
    """Key tokens that the indexer takes at once."""
    max_ranges: int = 2
    """Contiguous ranges that a rank may own in a challenger."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", entries("stages", self.stages))
        if not self.stages:
            raise InputError("stages is empty: give the work of at least one pipeline stage")
        for i, stage in enumerate(self.stages):
            if not isinstance(stage, StageWork):
                raise InputError(f"stages[{i}] must be a StageWork, not {shown(stage)}")
        for name in (
            "query_tile",
            "key_tile",
            "workspace_elements",
            "max_key_tokens",
            "max_ranges",
        ):
            object.__setattr__(self, name, integer(name, getattr(self, name), 1))


@dataclass(frozen=True, slots=True)
class AssignSettings:
    """Chunk sizes, search limits and costs. Fields named ``*_ms`` are milliseconds.

    The defaults are the published planner's, measured on H200; `owned_token_ms` gives the
    model's own value for the field of that name.
    """

    block: int = 128
    """Chunks are multiples of this many tokens."""
    chunk: int = 512
    """Tokens of a chunk asked for."""
    chunk_budget_base: int = 128
    """Chunks that a row may have whatever the ranks; longer rows get larger chunks."""
    chunk_budget_per_rank: int = 16
    """Chunks that a row may have per rank; with both budgets 0 or less there is no limit."""
    max_stages: int = 4
    """Fetch stages tried: 1 up to this number."""
    candidates: int = 8
    """Chunks that the slowest rank offers in a step; 0 or less offers all."""
    steps: int = 8
    """Steps of the local search; 0 or less keeps the contiguous start."""
    stage_overhead_ms: float = 0.287151
    """Fixed time of an attention stage."""
    remote_host_ms: float = 1.2
    """Host time of a remote stage."""
    owned_token_ms: float = 0.0
    """Time of the rest of a layer per token owned, forward and backward."""
    comm_overhead_ms: float = 0.143576
    """Fixed time of a fetch or a reduce."""
    interval_ms: float = 0.11486
    """Time per contiguous run of chunks, computed on or moved."""
    merge_token_ms: float = 0.00011486
    """Time to merge a query token's partial output."""
    fetch_token_ms: float = 0.00003
    """Time to fetch one token."""
    reduce_token_ms: float = 0.00003
    """Time to reduce one token's gradients."""
    local_pair_ms: float = 4.5944e-8
    """Forward time of a query-key pair on the rank."""
    remote_pair_ms: float = 4.8816e-8
    """Forward time of a pair whose key was fetched."""
    local_backward_pair_ms: float = 1.37832e-7
    """Backward time of a pair on the rank."""
    remote_backward_pair_ms: float = 1.49318e-7
    """Backward time of a pair whose key was fetched."""
    underfill_ms: float = 0.287151
    """Most extra time of a remote stage too small to fill the device."""
    underfill_tokens: int = 4096
    """Tokens that fill the device; 0 or less: any."""
    underfill_pairs: int = 4_000_000
    """Pairs that fill the device; 0 or less: any."""
    profile: WorkloadProfile | None = None
    """Work of a sparse-indexer model, if it is one."""

    def __post_init__(self) -> None:
        integer("block", self.block, 1)
        integer("max_stages", self.max_stages, 1)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith(_COSTS):
                object.__setattr__(self, field.name, _finite(field.name, value))
            elif field.name != "profile":
                object.__setattr__(self, field.name, integer(field.name, value, -LARGEST))
        if self.profile is not None:
            instance("profile", self.profile, WorkloadProfile)


@dataclass(frozen=True, slots=True, eq=False)
class ProfiledWork:
    """The work of an assignment for a sparse-indexer model: maxima over ranks and stages."""

    query_flops: int
    """Flops that follow query tokens; the score."""
    network_bytes: int
    """The larger of sent and received, at the fetch and at the reduce rate."""
    hbm_bytes: int
    """Key bytes read from device memory."""
    indexer_flops: int
    """Flops of the indexer's tiles."""
    memory_bytes: int
    """Bytes held."""
    peers: int
    """Most peers of a rank."""
    ranges: int
    """Most contiguous ranges on a rank."""
    tile_pairs: tuple[int, ...]
    """[C] query-key pairs of the indexer's tiles."""
    key_tokens: NDArray[np.int64]
    """[C] key tokens, fetched ones included."""
    sent_tokens: NDArray[np.int64]
    """[C] key tokens sent to peers."""
    received_tokens: NDArray[np.int64]
    """[C] key tokens received."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The owners of a packed row's chunks. K chunks, C ranks; arrays are read-only.

    ``score`` is the slowest rank's forward + backward time of one layer in milliseconds (query
    flops with a workload profile); no assignment of these chunks goes below ``bound``.
    """

    ranks: int
    """C."""
    tokens: int
    """Tokens of the packed row."""
    chunk: int
    """Tokens of a chunk; the last may be shorter. 0 for a row without tokens."""
    owners: NDArray[np.int64]
    """[K] rank that owns each chunk."""
    stages: NDArray[np.int64]
    """[K] stage in which other ranks fetch each chunk."""
    contiguous: NDArray[np.int64]
    """[K] owners where the search started."""
    rank_tokens: NDArray[np.int64]
    """[C] tokens owned."""
    score: float
    """Milliseconds, or query flops with a profile."""
    bound: float | None
    """Lower bound of the score; None where a cost is negative."""
    forward_ms: NDArray[np.float64]
    """[C] milliseconds; empty with a profile."""
    backward_ms: NDArray[np.float64]
    """[C] milliseconds; empty with a profile."""
    work: ProfiledWork | None
    """With a workload profile: the work that decided."""

    @property
    def chunk_starts(self) -> NDArray[np.int64]:
        """[K + 1] first packed token of each chunk, and the row's length."""
        starts = np.arange(len(self.owners) + 1, dtype=np.int64) * self.chunk
        return np.minimum(starts, self.tokens)

    def ranges(self, rank: int) -> NDArray[np.int64]:
        """[n, 2] packed token ranges (start, end) that a rank owns, in order, neighbours joined."""
        rank = integer("rank", rank, 0, self.ranks - 1)
        own = np.concatenate(([False], self.owners == rank, [False]))
        edges = np.flatnonzero(own[1:] != own[:-1])
        found: NDArray[np.int64] = self.chunk_starts[edges].reshape(-1, 2)
        return found


def assign(
    packing: PackedRow,
    cp: int,
    settings: AssignSettings | None = None,
    method: str = "compatible",
) -> Assignment:
    """Assign the chunks of a packed row to ``cp`` context-parallel ranks.

    ``packing`` is anything with segment ``lengths`` and ``parents`` (-1 for a root). The only
    method is ``"compatible"``: the published planner's owners, stages and times, exactly. Each
    rank owns a contiguous range unless a workload profile prefers another.

    Raises `InputError` for impossible ranks or settings and for segments that are no forest.
    """
    choice("method", method, ("compatible",))
    if settings is None:
        settings = AssignSettings()
    instance("settings", settings, AssignSettings)
    ranks = integer("cp", cp, 1, MOST_RANKS)
    lengths, parents = columns_of(packing)
    made = _core.assign(lengths, parents, ranks, settings)
    return _wrap(made)


def stage_times(
    packing: PackedRow, cp: int, settings: AssignSettings | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Modelled forward milliseconds of what `assign` answers, taken apart.

    Returns ``local`` [C], and ``compute`` and ``exchange`` [C, fetch stages]. They overlap in
    time, so they do not add up to ``Assignment.forward_ms``, which also has the owned tokens'
    share. With a workload profile: of the answer that the profile challenges.
    """
    ranks = integer("cp", cp, 1, MOST_RANKS)
    lengths, parents = columns_of(packing)
    if settings is None:
        settings = AssignSettings()
    instance("settings", settings, AssignSettings)
    stages, times = _core.stage_times(lengths, parents, ranks, settings)
    table = times.reshape(ranks, 1 + 2 * stages)
    return table[:, 0], table[:, 1::2], table[:, 2::2]


def attention_slices(packing: PackedRow) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Attention slices of a packed row: query segment [n] and key segment [n].

    A segment attends all its ancestors fully and itself causally; a slice is causal where both
    indices are equal. Sorted by query, then key.
    """
    lengths, parents = columns_of(packing)
    return _core.attention_slices(lengths, parents)


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
    """Milliseconds of a layer's non-attention work per token owned, forward and backward.

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
    return 3.0 * (local + routed) / tp / 400e12 * 1e3


def columns_of(packing: PackedRow) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Segment lengths and parents of a packed row."""
    lengths, parents = attributes("packing", packing, "lengths", "parents")
    return integers("lengths", lengths), integers("parents", parents)


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise InputError(f"{name} must be a number of milliseconds, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{name} is {shown(value)}: it must be a finite number of milliseconds")
    return number


def _wrap(made: _core.Assignment) -> Assignment:
    arrays = (
        made.owners,
        made.stages,
        made.contiguous,
        made.rank_tokens,
        made.forward_ms,
        made.backward_ms,
    )
    for array in arrays:
        array.flags.writeable = False
    owners, stages, contiguous, rank_tokens, forward_ms, backward_ms = arrays
    return Assignment(
        ranks=made.ranks,
        tokens=made.tokens,
        chunk=made.chunk,
        owners=owners,
        stages=stages,
        contiguous=contiguous,
        rank_tokens=rank_tokens,
        score=made.score,
        bound=made.bound,
        forward_ms=forward_ms,
        backward_ms=backward_ms,
        work=None if made.work is None else _wrap_work(made.work),
    )


def _wrap_work(made: _core.ProfiledWork) -> ProfiledWork:
    arrays = made.key_tokens, made.sent_tokens, made.received_tokens
    for array in arrays:
        array.flags.writeable = False
    return ProfiledWork(
        query_flops=made.query_flops,
        network_bytes=made.network_bytes,
        hbm_bytes=made.hbm_bytes,
        indexer_flops=made.indexer_flops,
        memory_bytes=made.memory_bytes,
        peers=made.peers,
        ranges=made.ranges,
        tile_pairs=tuple(made.tile_pairs),
        key_tokens=arrays[0],
        sent_tokens=arrays[1],
        received_tokens=arrays[2],
    )
