"""The compiled core. Arrays are one-dimensional, contiguous and int64 unless said otherwise.

Sequences are lists or tuples. `InputError`: a value that cannot be; an object of another class is a
`TypeError` with the argument's name as a note.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeAlias, dataclass_transform, final

from numpy import bool_, float64, int64
from numpy.typing import ArrayLike, NDArray
from typing_extensions import disjoint_base

from waveplan.sequences.sequences import Ragged

_Ints: TypeAlias = NDArray[int64]
_Tokens: TypeAlias = _Ints | Sequence[_Ints]
_Floats: TypeAlias = NDArray[float64]

@dataclass_transform(frozen_default=True)
class _Settings:
    def replace(self, **changes: Any) -> Self: ...

__version__: str

# --- settings: fields by keyword or in order, with the core's defaults ---

@final
class OwnershipSettings(_Settings):
    """Chunk sizes, search limits and costs. Fields named ``*_ms`` are milliseconds; the defaults
    are the reference planner's, measured on H200. InputError: a field out of range."""

    block: int = ...
    chunk: int = ...
    chunk_budget_base: int = ...
    chunk_budget_per_rank: int = ...
    max_stages: int = ...
    candidates: int = ...
    steps: int = ...
    stage_overhead_ms: float = ...
    remote_host_ms: float = ...
    owned_token_ms: float = ...
    comm_overhead_ms: float = ...
    interval_ms: float = ...
    merge_token_ms: float = ...
    fetch_token_ms: float = ...
    reduce_token_ms: float = ...
    local_pair_ms: float = ...
    remote_pair_ms: float = ...
    local_backward_pair_ms: float = ...
    remote_backward_pair_ms: float = ...
    underfill_ms: float = ...
    underfill_tokens: int = ...
    underfill_pairs: int = ...
    max_ranges: int = ...
    profile: WorkloadProfile | None = ...

@final
class WorkloadProfile(_Settings):
    """Facts of a sparse-indexer model that choose between ownerships with few ranges."""

    stages: Sequence[StageWork]
    query_tile: int
    key_tile: int
    workspace_elements: int
    max_key_tokens: int
    max_ranges: int = ...

@final
class StageWork(_Settings):
    """Work of one pipeline stage of a sparse-indexer model, per unit."""

    query_flops: int = ...
    tile_pair_flops: int = ...
    key_hbm_bytes: int = ...
    fetch_bytes: int = ...
    reduce_bytes: int = ...
    query_memory_bytes: int = ...
    key_memory_bytes: int = ...

@final
class GdnShape(_Settings):
    """Sizes of a gated-delta-net layer."""

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int
    tp: int = ...

@final
class GdnSettings(_Settings):
    """Time model of one gated-delta-net layer, forward and backward, and limits of the search."""

    hidden_bytes: int = ...
    exchanges: int = ...
    exchange_bandwidth: float = ...
    local_rate: float = ...
    chain_rate: float = ...
    dense_rate: float = ...
    local_bucket_ms: float = ...
    chain_bucket_ms: float = ...
    local_segment_ms: float = ...
    summary_bytes: int = ...
    summary_exchanges: int = ...
    summary_bandwidth: float = ...
    summary_rate: float = ...
    scan_bucket_ms: float = ...
    scan_rate: float = ...
    parent_bytes: int = ...
    parent_bandwidth: float = ...
    min_gain_ms: float = ...
    beam_width: int = ...
    branch: int = ...
    candidates: int = ...
    max_steps: int = ...
    @staticmethod
    def from_shape(*sizes: int, **named: int) -> GdnSettings:
        """Those of a layer of this `GdnShape`; heads are counted before `tp` divides them."""

@final
class Scoring(_Settings):
    """A score for layouts with the facts it scales by; scores compare only within one.

    Version 2 sums ten fitted terms in thousandths of 1/1024 us; version 1 is the older hand-set
    score in 1/1024 us. Version 1 reads `uses_gdn` (None: whether there are `gdn_layers`)."""

    version: int
    layers: int
    tp: int = ...
    cp: int = ...
    gdn_layers: int = ...
    uses_gdn: bool | None = ...
    coefficients: Sequence[int] = ...

@final
class Tree:
    """The canonical radix tree of n sequences: S segments, depth first, siblings first-seen.

    A segment is a run of tokens that the same sequences share; it ends where they part or where one
    of them ends. Every attribute read makes a new array; parents are -1 at a root."""

    parent: Final[_Ints]  # [S], as the next four
    start: Final[_Ints]
    end: Final[_Ints]
    depth: Final[_Ints]
    count: Final[_Ints]
    terminal: Final[_Ints]  # [n]
    sequences: Final[Ragged]
    sequence_count: Final[int]
    decisions: Final[_Ints]
    def __len__(self) -> int: ...
    def packed(self, sequences: int | None = None) -> int:
        """Packed tokens of the first `sequences` (all by default) with everything shared."""
    def restrict(self, sequences: ArrayLike) -> Tree:
        """The tree of some sequences, in the order given; reads no token."""
    def pack(self, shared: NDArray[bool_]) -> Packing:
        """The pack that stores the flagged segments once, [S]."""

def build_tree(tokens: _Tokens, offsets: _Ints | None = None) -> Tree:
    """Tree of `tokens[offsets[i]:offsets[i + 1]]`, or without offsets of the arrays listed.

    InputError: an empty sequence, or none."""

@final
class Packing:
    """One pack of S segments in packed order, and the n sequences they belong to.

    A parent comes before its children; a segment attends itself causally and all its ancestors
    fully. Without sequences, ids per token are made for at most 16,777,216 tokens."""

    last: Final[_Ints]  # [n]
    sequence_count: Final[int]
    packed_tokens: Final[int]
    lengths: Final[_Ints]  # [S], as the next three
    parents: Final[_Ints]
    packed_starts: Final[_Ints]
    sequence_starts: Final[_Ints]
    members: Final[Ragged]
    group_ids: Final[_Ints]  # [packed_tokens], as the next two
    parent_ids: Final[_Ints]
    position_ids: Final[_Ints]
    @staticmethod
    def from_segments(lengths: ArrayLike, parents: ArrayLike) -> Packing:
        """A pack made elsewhere, without sequences: lengths [S] and parents [S] (-1: a root)."""
    @staticmethod
    def from_ids(group_ids: ArrayLike, parent_ids: ArrayLike) -> Packing:
        """The same as ids per token, [T] or [1, T]: a run of one group id is a segment, its
        parent id is its parent's or its own for a root. Id -1 is padding, cut off."""
    def __len__(self) -> int: ...
    def path(self, sequence: int) -> _Ints:
        """Segments of a sequence, first to last."""
    def positions(self, sequence: int) -> _Ints:
        """Packed position of each token of a sequence."""

def pack_sequences(
    tokens: _Tokens,
    offsets: _Ints | None = None,
    max_depth: int | None = None,
    min_shared: int | None = None,
    shareable: _Ints | None = None,
) -> Packing:
    """Packs sequences, given as to `build_tree`; see `waveplan.pack`."""

def hash_sequences(sequences: Sequence[_Ints], key: Sequence[int]) -> bytes:
    """Keyed hashes for look-ups within a process, 16 bytes a sequence; ``key`` is two u64."""

def gather_tokens(packing: Packing, sequences: Sequence[_Ints]) -> _Ints:
    """Tokens of a pack of these sequences. InputError: they are not its sequences."""

def packed_positions(packing: Packing) -> list[_Ints]:
    """Packed positions of all sequences, one after another, and offsets [n + 1]."""

def labelled_tokens(labels: _Ints, tokens: int) -> int:
    """Tokens with a label; each has ``len(labels) / tokens`` of them, -100 for none."""

def projected_tokens(
    packing: Packing, labels: Sequence[_Ints | None], every: Sequence[bool]
) -> int:
    """Distinct packed positions that the requests of a pack's sequences project: `every` one of a
    request, or those with a label."""

def target_chunk_tokens(
    packing: Packing, labels: Sequence[_Ints | None], every: Sequence[bool], chunk: int
) -> int:
    """Tokens of the first head chunk that holds a position of a request with labels."""

@final
class Score:
    """Predicted work and its tie-breaks, in the order in which they decide; less is better."""

    work: Final[int]
    tokens: Final[int]
    segments: Final[int]
    depth: Final[int]
    def __lt__(self, other: Score, /) -> bool: ...
    def __le__(self, other: Score, /) -> bool: ...
    def __gt__(self, other: Score, /) -> bool: ...
    def __ge__(self, other: Score, /) -> bool: ...

@final
class Layout:
    """A choice of shared segments of a tree of S segments.

    No layout has less work than `bound`; `gap` is what a better one could save. `labels` names the
    policies that give it, and the counters and `stop_reason` describe the search (reference)."""

    shared: Final[NDArray[bool_]]  # [S]
    score: Final[Score]
    bound: Final[int]
    optimal: Final[bool]
    packed_tokens: Final[int]
    depth: Final[int]
    segments: Final[int]
    labels: Final[tuple[str, ...]]
    mandatory_candidates: Final[int]
    refinement_work: Final[int]
    evaluated_refinements: Final[int]
    stop_reason: Final[str | None]
    decisions: Final[_Ints]
    gap: Final[int]

def choose_layout(
    tree: Tree,
    scoring: Scoring,
    method: Literal["exact", "reference", "full", "none"] | None = None,
    *,
    most_tokens: int | None = None,
    budget: int | None = None,
    counts: bool = True,
) -> Layout:
    """Chooses which shared segments of `tree` are stored once.

    "exact" (default) finds the best of all layouts, proven or with a bound, "reference" the
    reference planner's; "full" shares everything, "none" nothing. ``most_tokens`` limits the pack
    (exact only); ``budget`` counts proposals of the refinement (reference only), which without
    ``counts`` stops as soon as its result is known. InputError: even full sharing exceeds
    ``most_tokens``."""

@final
class Ownership:
    """The owners of a pack's chunks. K chunks, C ranks.

    ``score`` is the slowest rank's forward + backward time of one layer in milliseconds (query
    flops with a workload profile). No ownership of these chunks, with `method` "fastest" no
    contiguous one with as many tokens a rank, goes below ``bound`` (None where a cost is negative);
    ``optimal``: nor below ``score``. ``fetched_tokens`` are the most that a rank fetches in one
    stage. A tight share that was priced and not timed ("even") has no times."""

    method: Final[str]
    ranks: Final[int]
    tokens: Final[int]
    chunk: Final[int]
    owners: Final[_Ints]  # [K], as the next two
    stages: Final[_Ints]
    contiguous: Final[_Ints]
    rank_tokens: Final[_Ints]  # [C]
    score: Final[float]
    bound: Final[float | None]
    optimal: Final[bool]
    most_ranges: Final[int]
    most_tokens: Final[int]
    fetched_tokens: Final[int]
    forward_ms: Final[_Floats]  # [C], empty with a profile, as the next
    backward_ms: Final[_Floats]
    work: Final[ProfiledWork | None]
    @staticmethod
    def from_owners(
        packing: Packing,
        cp: int,
        chunk: int,
        owners: ArrayLike,
        settings: OwnershipSettings | None = None,
    ) -> Ownership:
        """The ownership of chunks of `chunk` tokens decided elsewhere, [K]; with settings timed,
        with the number of fetch stages that is fastest."""
    def ranges(self, rank: int) -> _Ints:
        """[n, 2] packed token ranges (start, end) that a rank owns, in order, neighbours joined."""

@final
class ProfiledWork:
    """The work of an ownership for a sparse-indexer model: maxima over ranks and stages."""

    query_flops: Final[int]
    network_bytes: Final[int]
    hbm_bytes: Final[int]
    indexer_flops: Final[int]
    memory_bytes: Final[int]
    peers: Final[int]
    ranges: Final[int]
    tile_pairs: Final[tuple[int, ...]]  # [C], as the next three
    key_tokens: Final[_Ints]
    sent_tokens: Final[_Ints]
    received_tokens: Final[_Ints]

@final
class Balance:
    """Items dealt into parts by `balance`. P parts."""

    __match_args__: Final[tuple[str, ...]]
    parts: Final[tuple[_Ints, ...]]
    largest: Final[int]
    bound: Final[int]
    fewest: Final[int]
    oversized: Final[_Ints]

def balance(
    lengths: ArrayLike,
    work: ArrayLike | None = None,
    cap: int | None = None,
    parts: int | None = None,
    multiple_of: int | None = None,
    equal_size: bool | None = None,
) -> Balance:
    """Deals items into the fewest parts, so that the largest work of a part is small.

    Args:
        lengths: tokens of each item.
        work: what is balanced, by default the lengths.
        cap: most length of a part. A longer item is a part of its own, listed in `oversized`.
        parts: least number of parts; without a cap exactly this many.
        multiple_of: the number of parts is a multiple of it, by default of 1.
        equal_size: every part has as many items.

    Returns the items of each part, ascending; parts by their first item. `largest` is the most
    work of a part, `bound` what it is at least in as many parts, `fewest` the number of parts that
    the cap needs at least. Integers alone decide: equal input gives equal parts on every machine.

    InputError: neither cap nor parts; more parts than items; no such number of parts holds them.
    """

def own(
    packing: Packing,
    cp: int,
    settings: OwnershipSettings | None = None,
    method: Literal["reference", "fastest", "even_fold"] | None = None,
    *,
    most_tokens: int | None = None,
) -> Ownership:
    """Assigns the chunks of a pack to `cp` context-parallel ranks.

    "reference" (default) is the reference planner's: a contiguous range each unless a workload
    profile prefers another. "fastest" is the fastest found of one range a rank with at most
    ``most_tokens`` tokens, with a bound; "even_fold" an even share in at most two ranges a rank.
    Both answer as "reference" where some rank has no chunk, "fastest" also where a cost is
    negative and with a profile. InputError: ``most_tokens`` below the even share."""

@final
class StageTimes:
    """Forward milliseconds of an ownership taken apart: of the keys that a rank owns, of those that
    it fetches, and of fetching them. They overlap, so they do not add up to ``forward_ms``, which
    also has the owned tokens' share."""

    local: Final[_Floats]  # [C]
    compute: Final[_Floats]  # [C, fetch stages], as the next
    exchange: Final[_Floats]

def stage_times(
    packing: Packing, ownership: Ownership, settings: OwnershipSettings | None = None
) -> StageTimes:
    """The parts of an ownership's forward, by its stages."""

def attention_slices(packing: Packing) -> tuple[_Ints, _Ints]:
    """Attention slices of a pack: query segment [n] and key segment [n], sorted; causal where both
    are equal, else full."""

@final
class Gdn:
    """The ranks of a pack's segments. S segments, C ranks.

    ``owner`` is -1 where ``chained``; ``cross_tokens`` change rank between the layouts; ``score``
    is the predicted time of a layer on the slowest rank in milliseconds, ``bound`` a lower bound
    of any placement; ``model_tokens`` is the larger of both layouts on each rank."""

    rank_tokens: Final[_Ints]  # [C]
    owner: Final[_Ints]  # [S], as the next
    chained: Final[NDArray[bool_]]
    cross_tokens: Final[int]
    score: Final[float]
    bound: Final[float]
    evaluations: Final[int]
    shards: Final[_Ints]  # [chained segments, C]
    model_tokens: Final[_Ints]  # [C]

@final
class GdnSchedule:
    """Tokens that one pass of a gated-delta-net layer executes and keeps."""

    executed_tokens: Final[int]
    states: Final[int]
    packed_tokens: Final[int]

def gdn(
    packing: Packing,
    ownership: Ownership,
    settings: GdnSettings | None = None,
    *,
    most_tokens: int | None = None,
) -> Gdn:
    """Places the segments of a pack on the ranks of its ownership, each where it can on a rank that
    then has at most ``most_tokens``."""

def gdn_schedule(packing: Packing) -> GdnSchedule:
    """The bucket schedule of a whole pack on one rank."""

def gdn_schedule_per_rank(packing: Packing, placement: Gdn) -> list[GdnSchedule]:
    """The bucket schedule of each rank, over the segments and shards that it holds."""

PLAN_MEASURES: list[tuple[str, str]]
PACK_MEASURES: list[tuple[str, str]]

@disjoint_base
class Requests:
    """The requests of a pool as columns of n entries, which are the constructor's keywords, and the
    tree of their sequences. Base of `waveplan.Requests`."""

    targets: Final[NDArray[bool_]]  # has targets
    target_width: Final[_Ints]  # labels per token
    top_k: Final[_Ints]  # k, 0 for none
    logits: Final[NDArray[bool_]]
    hidden: Final[NDArray[bool_]]
    gradient: Final[NDArray[bool_]]
    adapters: Final[tuple[str, ...]]  # names of the adapter slots 1, 2, ...
    slot: Final[_Ints]  # adapter slot, 0 for the model's own weights
    routed: Final[_Ints]
    group_sizes: Final[_Ints]  # requests of each group
    shareable: Final[_Ints]  # leading tokens that others may share; empty: all of all
    padding: Final[int]  # multiple of padded rows, 0 without padding
    lengths: Final[_Ints]  # tokens
    labelled: Final[_Ints]  # labelled tokens
    mix: Final[_Ints]  # index into `mixes`
    mixes: Final[tuple[str, ...]]  # distinct outputs, for example "target:single+hidden"
    first_target: Final[_Ints | None]  # first labelled position; None where masks were given
    label_mask: Final[NDArray[bool_] | None]  # [T], None where first targets were given
    def __new__(
        cls,
        tokens: _Ints | Sequence[_Ints],
        offsets: _Ints | None = None,  # None: an array a sequence
        *,
        first_target: _Ints | None = None,
        label_mask: NDArray[bool_] | None = None,
        labels: Sequence[_Ints | None] | None = None,  # all labels of each request
        hashed: bool = False,
        **columns: Any,
    ) -> Self: ...
    def hashes(self, tokens: _Ints) -> list[tuple[str, int]]:
        """Hashes of 128 bits of the tokens, read here if not `hashed`, and of every column."""
    def __len__(self) -> int: ...
    def packs(self, indices: ArrayLike | None = None) -> list[PackRequests]:
        """The packs of some requests (all by default), in the order they execute."""

@final
class PackRequests:
    """Requests that run together: one adapter slot, one gradient mode, one replay mode."""

    adapter: Final[str | None]
    gradient: Final[bool]
    routed: Final[bool]
    indices: Final[_Ints]

@final
class MeasureSettings(_Settings):
    """Facts that measures depend on besides requests and layouts. ``gdn_weights`` are bytes per
    executed token, state and packed token, by which the busiest rank is chosen."""

    tp: int = ...
    cp: int = ...
    gdn: bool = ...
    gdn_weights: Sequence[int] = ...
    head_chunk: int = ...
    adapter_ranks: Sequence[int] = ...

@final
class Measures:
    """The integers of a plan and of each of its packs that its price is computed from."""

    plan: Final[_Ints]  # in the order of `PLAN_MEASURES`
    packs: Final[_Ints]  # [packs, measures], in the order of `PACK_MEASURES`
    def __new__(cls, plan: ArrayLike, packs: ArrayLike) -> Self: ...
    @staticmethod
    def of(
        plan: Mapping[str, int] | None = None, packs: Sequence[Mapping[str, int]] | None = None
    ) -> Measures:
        """Measures by name; what is not named is 0, except ``cold``, which is 1."""
    def to_dict(self) -> dict[str, Any]:
        """Measures by name, as plain integers."""

@final
class PlanMeasures:
    """Measures of one plan, filled pack by pack."""

    def __new__(
        cls, requests: Requests, indices: _Ints, settings: MeasureSettings | None = None
    ) -> Self: ...
    def exact(
        self,
        g: int,
        tree: Tree,
        shared: NDArray[bool_],
        *,
        ownership: Ownership | None = None,
        gdn: Gdn | None = None,
    ) -> None:
        """Fills pack `g` from its layout and, under context parallelism, its ownership and gdn
        placement, padded to a multiple of TP."""
    def finish(self) -> Measures:
        """Sums the packs into the plan's measures."""

PRICE_ROOTS: list[str]
"""Names of the results that every bound price program has, in their order."""

@final
class Program:
    """A bound price: a graph of integer operations over a plan's measures."""

    def __new__(
        cls,
        nodes: Sequence[tuple[str, Sequence[int]]],
        factors: Sequence[float],
        roots: Sequence[int],
        safety: float,
    ) -> Self: ...
    def evaluate(self, measures: Measures) -> list[int]:
        """Results over one plan."""
    def every(self, measures: Measures) -> list[list[int | None]]:
        """The value of every node: one entry, or one per pack; None where it has no value."""
    def matter(self, measures: Measures, smaller: bool) -> list[bool]:
        """Which rules in doubt matter to a plan, by their numbers: without its charge the last
        result is another. With ``smaller`` to any smaller plan of its kind, too."""
    def measure_settings(self) -> MeasureSettings:
        """Settings of measures as the rules have them."""

@final
class PlannerSettings(_Settings):
    """Facts that stay the same from wave to wave of a job."""

    scoring: Scoring
    context: str = ...
    reference: bool = ...
    trust_rules: bool = ...
    margin: bool = ...
    dp: int = ...
    dp_rank: int = ...
    blocks: bool = ...
    tp: int = ...
    cp: int = ...
    split: bool = ...
    moe: bool = ...
    gdn_pending: bool = ...
    adapter_pending: bool = ...
    adapter_rank: int = ...
    attention_layers: int = ...
    gdn_layers: int = ...
    mlp_token_ms: float = ...
    widest: bool = ...
    ownership: OwnershipSettings = ...
    gdn: GdnSettings | None = ...

@final
class Observation(_Settings):
    """One reading of a plan that ran, in tokens and bytes: outputs are counted apart; `peak` is the
    most above what was allocated before it, `retained` what was above that after its forward."""

    packed: int
    logical: int
    output: int
    peak: int
    retained: int | None = ...
    whole: bool = ...

@final
class Rates(_Settings):
    """The reference profile: largest rates per packed token; ``warm_*`` are the largest rate,
    smallest tokens and largest sharing of whole waves after the first."""

    bytes_per_token: float
    packed_tokens: int
    logical_per_packed: float = ...
    retained: float | None = ...
    warm_bytes_per_token: float | None = ...
    warm_packed_tokens: int | None = ...
    warm_logical_per_packed: float | None = ...
    whole_waves: int = ...
    def after(self, seen: Observation) -> Rates:
        """With one more reading."""

@final
class Observed(_Settings):
    """Our profile: curves of (tokens, bytes), with the one-time cost of a first call apart.

    A curve rises through its points, is linear between them and towards the origin, goes on in
    proportion up to eight times its last point and stays level from there. ``first`` is the first
    whole wave, ``later`` those after it, ``partial`` readings of less than a whole wave; ``here``:
    this process has run the first call already, so its one-time cost is paid. ``peak`` is the
    curve of what recurs, ``fixed`` what the first wave cost beyond it."""

    first: tuple[int, int] | None = ...
    later: Sequence[tuple[int, int]] = ...
    partial: Sequence[tuple[int, int]] = ...
    sharing: float = ...
    retained: Sequence[tuple[int, int]] = ...
    retained_sharing: float = ...
    here: bool = ...
    def after(self, seen: Observation) -> Observed:
        """With one more reading."""
    @property
    def peak(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def fixed(self) -> int: ...

@final
class Signature(_Settings):
    """The key of a profile: plans of one signature need memory alike. ``context`` is topology and
    layout score of the job; ``mixes`` the distinct outputs of its requests, ``gradients`` the mode
    of each pack, ``adapters`` mode and rank of each (empty without adapters), all sorted."""

    context: str
    mixes: tuple[str, ...]
    gradients: tuple[bool, ...]
    adapters: tuple[tuple[bool, int], ...] = ...

_Profiles: TypeAlias = Sequence[tuple[Signature, Rates | Observed]]

@final
class OrderBound:
    """What no order of some requests beats: waves, their packed tokens, and milliseconds of full
    sharing spread evenly over the ranks."""

    __match_args__: Final[tuple[str, ...]]
    waves: Final[int]
    tokens: Final[int]
    ms: Final[float]

@final
class Composition:
    """Requests of a pool put into waves in any order: the same on every rank.

    W waves of D data-parallel ranks, n requests. `bound*` is what no order beats, `keep_*` what the
    pool's order takes. `ms` are modelled as the waves run, `linear_ms` (as `bound_ms`) with
    everything shared and spread evenly over context-parallel ranks."""

    __match_args__: Final[tuple[str, ...]]
    pool: Final[Any]
    given: Final[dict[str, Any]]  # the arguments
    waves: Final[int]
    requests: Final[tuple[tuple[_Ints, ...], ...]]  # ascending, of each wave and rank
    permutation: Final[_Ints]
    inverse: Final[_Ints]  # [n], -1 of those refused
    required: Final[_Ints]  # [W, D], as the next three
    packed_tokens: Final[_Ints]
    ms: Final[_Floats]
    linear_ms: Final[_Floats]
    refused: Final[_Ints]
    total_ms: Final[float]
    bound: Final[int]  # waves
    bound_tokens: Final[int]
    bound_ms: Final[float]
    gap: Final[float]
    keep_waves: Final[int]
    keep_ms: Final[float]
    by: Final[str]
    version: Final[int]
    fingerprint: Final[str]
    def share(self, dp_rank: int) -> list[_Ints]:
        """The requests of a data-parallel rank in each wave."""

@final
class Engine:
    """A pool with everything needed to plan waves of it."""

    def __new__(
        cls,
        requests: Requests,
        settings: PlannerSettings,
        program: Program,
        order: _Ints | None = None,
    ) -> Self: ...
    def share(self, start: int, width: int) -> _Ints:
        """This rank's share of the requests of `width` groups from position `start` on."""
    def unshared(self) -> Measures:
        """The measures of the whole pool as one forward that shares nothing."""
    def session(self, start: int, available: int, hint: int | None, profiles: _Profiles) -> Session:
        """Starts the search for the wave from position `start` of the order on."""
    def compose(
        self,
        pool: Requests,
        groups: ArrayLike,
        keep: Sequence[Sequence[tuple[ArrayLike, tuple[int, int, float] | None]]],
        available: int,
        profiles: _Profiles,
        given: dict[str, Any],
        version: int,
    ) -> Composition:
        """Composes groups of the pool, ascending. `keep` are the groups of each rank of each wave
        in the pool's order, and the bytes, packed tokens and milliseconds of those that run as one
        forward."""
    def order_bound(self, groups: ArrayLike, available: int, profiles: _Profiles) -> OrderBound:
        """What no order of groups beats, all of which fit in some wave."""
    def plan(self, requests: _Ints, available: int, profiles: _Profiles) -> SearchResult:
        """Plans these requests as one forward, split where it must be; with everything priced."""
    def signature(self, requests: _Ints) -> Signature:
        """The key of the profile of a plan of these requests."""

@final
class Session:
    """One search: alone on one data-parallel rank, or in step with others.

    In step: set the bytes available, then compute this rank's table of probes, reduce it over the
    ranks and hand it back, four times (the third table is empty in reference mode, the fourth where
    no times are compared). `agree_*` return the entries of the next table."""

    def alone(self) -> SearchResult: ...
    def set_available(self, available: int) -> None: ...
    def growth_len(self) -> int:
        """Entries of the first table."""
    def growth(self) -> _Ints: ...
    def agree_growth(self, agreed: _Ints) -> int: ...
    def bisection(self) -> _Ints: ...
    def agree_bisection(self, agreed: _Ints) -> int: ...
    def refinement(self) -> _Ints: ...
    def agree_refinement(self, agreed: _Ints) -> int: ...
    def times(self) -> _Ints: ...
    def finish(self, agreed: _Ints) -> SearchResult: ...

@final
class Probe(_Settings):
    """One priced width, on this rank.

    ``kind`` is how layouts were chosen ("optimal", "fitting", "full", "reference"), or in
    reference mode a bound or an estimate without a plan ("bound:unshared", ...). ``width`` is
    in groups over all data-parallel ranks, 0 for attempts at a split."""

    width: int
    requests: int
    kind: str
    packed_tokens: int
    required: int
    fits: bool
    trusted: bool

@final
class Attempt(_Settings):
    """One split tried for a wave that does not fit: ``parts`` forwards (1: unsplit) with layouts of
    this ``kind``; "bound": a lower bound already needs too much."""

    parts: int
    kind: str
    required: int

@final
class SearchResult:
    """The result of a search: "wave", "split" or "refused" (then `plans` is the fully shared one).
    `stopped` is the plan at `stop_width`, the reason why the wave is not wider; `part_requests`
    number each part's requests within the wave's share; `least` is what it needs with an even share
    of each pack on every rank; `probes` are everything priced, in order,
    and `rejected` the distinct widths after the smallest that did not fit."""

    kind: Final[Literal["wave", "split", "refused"]]
    width: Final[int]
    groups: Final[_Ints]
    required: Final[int]
    least: Final[int]
    cold: Final[bool]
    plans: Final[tuple[ForwardPlan, ...]]
    part_requests: Final[tuple[_Ints, ...]]
    stopped: Final[ForwardPlan | None]
    attempts: Final[tuple[Attempt, ...]]
    unsplittable: Final[bool]
    probes: Final[tuple[Probe, ...]]
    rejected: Final[int]
    stop: Final[Literal["memory", "time", "trust", "end"]]
    stop_width: Final[int]

@final
class Cost:
    """A forward's price inside a split, in bytes on the busiest rank: `required` and `retained`
    with the safety factor, the rest before it."""

    required: Final[int]
    retained: Final[int]
    checkpoint_retained: Final[int]
    checkpoint_workspace: Final[int]
    input_gradient: Final[int]
    peak_increment: Final[int]
    hybridep_growth: Final[int]
    adapter_gradient: Final[int]

@final
class ForwardPlan:
    """One forward: all packs of some requests, run one after another, and its price.

    ``mode`` is how layouts were chosen: "optimal", "fitting", "full" or "reference"; ``requests``
    are pool indices; ``roots`` are in the order of `PRICE_ROOTS`; ``packed_tokens`` are padded to
    a multiple of TP, ``active_tokens`` those of requests with an output; ``covered``: within what a
    profile has seen; ``time_ms`` is the packs' modelled time, one after another, of a plan that was
    only priced None."""

    mode: Final[str]
    requests: Final[_Ints]
    packs: Final[tuple[Pack, ...]]
    roots: Final[_Ints]
    cost: Final[Cost]
    covered: Final[bool]
    trusted: Final[bool]
    profiled: Final[bool]
    measures: Final[Measures]
    required: Final[int]
    packed_tokens: Final[int]
    logical_tokens: Final[int]
    active_tokens: Final[int]
    output_bytes: Final[int]
    time_ms: Final[float | None]
    depth: Final[int]

@final
class Pack:
    """Requests of one adapter slot and one gradient mode, packed into one line of tokens.

    ``requests`` are pool indices, in packing order; ``local_tokens`` those of the busiest rank,
    ``rank_tokens`` [C] of each, the larger of both layouts; ``balance`` the busiest over the mean;
    ``head_tokens`` those that the head projects.
    ``packed_tokens`` are without padding; ``decisions`` counts prefixes that requests share, of
    which ``shared_decisions`` are stored once. No layout has less ``work`` than ``work_bound``.
    ``ownership`` is of the pack padded to a multiple of TP, None at CP 1; ``gdn`` None
    besides without gdn layers. ``time_ms`` is the modelled time of all layers, forward and
    backward: on the slowest rank of its owners; at CP 1 of its tokens and query-key pairs, without
    gradients forward alone."""

    adapter: Final[str | None]
    gradient: Final[bool]
    routed: Final[bool]
    requests: Final[_Ints]
    shared: Final[NDArray[bool_]]
    depth: Final[int]
    optimal: Final[bool]
    work: Final[int]
    work_bound: Final[int]
    ownership: Final[Ownership | None]
    gdn: Final[Gdn | None]
    time_ms: Final[float | None]
    tree: Final[Tree]
    packing: Final[Packing]
    packed_tokens: Final[int]
    logical_tokens: Final[int]
    saved_tokens: Final[int]
    decisions: Final[int]
    shared_decisions: Final[int]
    local_tokens: Final[int]
    head_tokens: Final[int]
    rank_tokens: Final[_Ints]
    balance: Final[float]
