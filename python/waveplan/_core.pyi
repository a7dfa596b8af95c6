"""The compiled core. Arrays are one-dimensional, contiguous and int64 unless said otherwise.

Sequences are lists or tuples. Besides `InputError`, a value of another type is a `TypeError` and a
number past 64 bits an `OverflowError`, with the argument's name as a note.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar, final

from numpy import bool_, float64, int64
from numpy.typing import NDArray

_T = TypeVar("_T")

__version__: str

# --- tree ---

@final
class Tree:
    """The canonical radix tree of n rows: S segments, depth first, siblings first-seen."""

    def __len__(self) -> int: ...
    @property
    def rows(self) -> int:
        """Number of rows, n."""
    @property
    def parent(self) -> NDArray[int64]:
        """Parent segment, -1 for a root, [S]."""
    @property
    def start(self) -> NDArray[int64]:
        """First position in the segment's rows, [S]."""
    @property
    def end(self) -> NDArray[int64]:
        """One past the last position in the segment's rows, [S]."""
    @property
    def depth(self) -> NDArray[int64]:
        """1 at a root, [S]."""
    @property
    def subtree(self) -> NDArray[int64]:
        """One past the last segment of the subtree, [S]."""
    @property
    def count(self) -> NDArray[int64]:
        """Rows through the segment, [S]."""
    @property
    def first_row(self) -> NDArray[int64]:
        """First row through the segment, [S]."""
    @property
    def terminal(self) -> NDArray[int64]:
        """Segment in which each row ends, [n]."""
    def members(self) -> tuple[NDArray[int64], NDArray[int64]]:
        """Rows through each segment, ascending: offsets [S + 1] and row numbers."""
    def prefixes(self) -> tuple[NDArray[int64], NDArray[int64]]:
        """Full-sharing tokens of the first k rows [n + 1]; tokens of each row held before [n]."""
    def restrict(self, rows: NDArray[int64]) -> Tree:
        """The tree of some rows, in the order given; reads no token. InputError: no such row."""

def build_tree(tokens: NDArray[int64], offsets: NDArray[int64]) -> Tree:
    """Tree of the rows `tokens[offsets[i]:offsets[i + 1]]`. InputError: an empty row, or none."""

# --- pack ---

@final
class Packing:
    """One packed row of S segments, and the n rows they belong to."""

    @staticmethod
    def from_segments(lengths: NDArray[int64], parents: NDArray[int64]) -> Packing:
        """From lengths [S] and parents [S] (-1: a root); it has no rows. InputError: they lie."""
    def __len__(self) -> int: ...
    @property
    def rows(self) -> int:
        """Number of rows, n."""
    @property
    def packed_tokens(self) -> int:
        """Tokens of the packed row."""
    @property
    def lengths(self) -> NDArray[int64]:
        """Tokens of each segment, [S]."""
    @property
    def parents(self) -> NDArray[int64]:
        """Parent segment, -1 for a root, [S]."""
    @property
    def packed_starts(self) -> NDArray[int64]:
        """Where each segment begins in the packed row, [S]."""
    @property
    def row_starts(self) -> NDArray[int64]:
        """Where each segment begins inside its rows, [S]."""
    @property
    def members(self) -> tuple[NDArray[int64], NDArray[int64]]:
        """Rows of each segment, ascending: offsets [S + 1] and row numbers."""
    @property
    def last(self) -> NDArray[int64]:
        """Segment that holds the end of each row, -1 for an empty row, [n]."""
    def path(self, row: int) -> NDArray[int64]:
        """Segments of a row, first to last. InputError: no such row."""
    def positions(self, row: int) -> NDArray[int64]:
        """Packed position of each token of a row. InputError: no such row."""

def pack_rows(
    tokens: NDArray[int64],
    offsets: NDArray[int64],
    max_depth: int | None = None,
    min_shared: int = 1,
    shareable: NDArray[int64] | None = None,
) -> Packing:
    """Packs the rows `tokens[offsets[i]:offsets[i + 1]]`; see `waveplan.pack`."""

# --- rows in arrays of their own ---

def tree_of(rows: Sequence[NDArray[int64]]) -> Tree:
    """Tree of rows in arrays of their own. InputError: an empty row, or none."""

def pack_of(
    rows: Sequence[NDArray[int64]],
    max_depth: int | None = None,
    min_shared: int = 1,
    shareable: NDArray[int64] | None = None,
) -> Packing:
    """Packs rows in arrays of their own."""

def hash_rows(rows: Sequence[NDArray[int64]], key: Sequence[int]) -> bytes:
    """Keyed hashes for look-ups within a process, 16 bytes a row; ``key`` is two u64."""

def gather_tokens(packing: Packing, rows: Sequence[NDArray[int64]]) -> NDArray[int64]:
    """Tokens of a packed row of these rows. InputError: they are not its rows."""

def packed_ids(packing: Packing) -> tuple[NDArray[int64], NDArray[int64], NDArray[int64]]:
    """Per packed token: segment from 1, its parent's (its own at a root), position in the row."""

def packed_positions(packing: Packing) -> tuple[NDArray[int64], NDArray[int64]]:
    """Packed positions of all rows, one after another, and offsets [n + 1]."""

def labelled_tokens(labels: NDArray[int64], tokens: int) -> int:
    """Tokens with a label; each has ``len(labels) / tokens``, -100 where it asks for nothing."""

def projected_rows(
    positions: Sequence[NDArray[int64]],
    labels: Sequence[NDArray[int64] | None],
    every: Sequence[bool],
    most: int,
) -> int:
    """Distinct packed positions that requests project, counted up to `most`."""

def target_chunk_rows(
    positions: Sequence[NDArray[int64]],
    labels: Sequence[NDArray[int64] | None],
    every: Sequence[bool],
    chunk: int,
) -> int:
    """Rows of the first head chunk that holds a position of a request with labels."""

# --- layout ---

@final
class Layout:
    """A chosen layout of a tree of S segments."""

    @property
    def shared(self) -> NDArray[bool_]:
        """Stored once for all its rows, [S]."""
    @property
    def score(self) -> tuple[int, int, int, int]:
        """Work, tokens, segments, depth."""
    @property
    def bound(self) -> int:
        """No layout has less work."""
    @property
    def optimal(self) -> bool:
        """Proven to have the best score."""
    @property
    def packed_tokens(self) -> int:
        """Tokens of the packed row."""
    @property
    def depth(self) -> int:
        """Segments on the longest path."""
    @property
    def segments(self) -> int:
        """Segments of the packed row."""
    @property
    def labels(self) -> list[str]:
        """Policies that give this layout (compatible)."""
    @property
    def mandatory_candidates(self) -> int:
        """Distinct layouts of the policies (compatible)."""
    @property
    def refinement_work(self) -> int:
        """Proposals spent (compatible)."""
    @property
    def evaluated_refinements(self) -> int:
        """Proposals that were new (compatible)."""
    @property
    def stop_reason(self) -> str | None:
        """Why the refinement ended (compatible)."""

def choose_layout(
    tree: Tree,
    version: int,
    coefficients: Sequence[int],
    tp: int,
    cp: int,
    layers: int,
    gdn_layers: int,
    uses_gdn: bool,
    method: str,
    budget: int,
    most_tokens: int | None = None,
    counts: bool = True,
) -> Layout | None:
    """See `waveplan.choose_layout`; None: no layout holds at most `most_tokens`. Without
    `counts` the compatible refinement stops as soon as its answer is known."""

def pack_layout(tree: Tree, shared: NDArray[bool_]) -> Packing:
    """The packed row of a layout, one flag a tree segment. InputError: another length."""

# --- assign ---

@final
class Assignment:
    """Columns of one assignment; every attribute read makes a new array."""

    @property
    def ranks(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def chunk(self) -> int: ...
    @property
    def owners(self) -> NDArray[int64]: ...
    @property
    def stages(self) -> NDArray[int64]: ...
    @property
    def contiguous(self) -> NDArray[int64]: ...
    @property
    def rank_tokens(self) -> NDArray[int64]: ...
    @property
    def score(self) -> float: ...
    @property
    def bound(self) -> float | None: ...
    @property
    def forward_ms(self) -> NDArray[float64]: ...
    @property
    def backward_ms(self) -> NDArray[float64]: ...
    @property
    def work(self) -> ProfiledWork | None: ...

@final
class ProfiledWork:
    """The work that chose between assignments of a sparse-indexer model."""

    @property
    def query_flops(self) -> int: ...
    @property
    def network_bytes(self) -> int: ...
    @property
    def hbm_bytes(self) -> int: ...
    @property
    def indexer_flops(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def peers(self) -> int: ...
    @property
    def ranges(self) -> int: ...
    @property
    def tile_pairs(self) -> list[int]: ...
    @property
    def key_tokens(self) -> NDArray[int64]: ...
    @property
    def sent_tokens(self) -> NDArray[int64]: ...
    @property
    def received_tokens(self) -> NDArray[int64]: ...

def assign(
    lengths: NDArray[int64],
    parents: NDArray[int64],
    ranks: int,
    settings: object,
) -> Assignment:
    """Assigns a packed row's chunks; `settings` has the attributes of AssignSettings."""

def stage_times(
    lengths: NDArray[int64],
    parents: NDArray[int64],
    ranks: int,
    settings: object,
) -> tuple[int, NDArray[float64]]:
    """Number of fetch stages, and per rank: local ms, then compute and exchange ms a stage."""

def parse_ids(
    group_ids: NDArray[int64],
    parent_ids: NDArray[int64],
) -> tuple[NDArray[int64], NDArray[int64]]:
    """Segment lengths and parents (-1 for a root) of a row of ids; padding is cut off."""

def attention_slices(
    lengths: NDArray[int64],
    parents: NDArray[int64],
) -> tuple[NDArray[int64], NDArray[int64]]:
    """Query and key segment of each slice, sorted."""

# --- recurrent ---

def recurrent_settings(shape: Sequence[int]) -> dict[str, Any]:
    """Constants of the time model of a gated-delta-net layer, by name. ``shape``: hidden, key
    heads, value heads, key size, value size, taps, tensor-parallel ranks."""

def recurrent_defaults() -> dict[str, Any]:
    """The same without a model."""

def recurrent(
    lengths: NDArray[int64],
    parents: NDArray[int64],
    ranks: int,
    chunk: int,
    owners: NDArray[int64],
    settings: object,
) -> tuple[
    NDArray[int64],
    NDArray[int64],
    NDArray[bool_],
    NDArray[int64],
    int,
    float,
    float,
    int,
]:
    """(rank tokens [C], owner [S], chained [S], shards [chained * C], cross tokens, score,
    bound, evaluations); ``settings`` has the attributes that ``recurrent_defaults`` names."""

def gdn_schedule(lengths: NDArray[int64], parents: NDArray[int64]) -> tuple[int, int, int]:
    """(executed, state, packed) rows of a packed row on one rank."""

def gdn_schedule_per_rank(
    lengths: NDArray[int64],
    parents: NDArray[int64],
    ranks: int,
    owner: NDArray[int64],
    shards: NDArray[int64],
) -> list[tuple[int, int, int]]:
    """The same for each rank; ``owner`` is -1 where a segment is chained."""

# --- interrupts ---

def locked(lock: AbstractContextManager[object], work: Callable[[], _T]) -> _T:
    """What ``work()`` gives, called with the lock held; Ctrl-C cannot leave it taken."""

def stop_if(asked: Callable[[], object] | None) -> None:
    """From now on long calls of this thread end once ``asked()`` is true; None: as before."""

# --- measures ---

PLAN_MEASURES: list[tuple[str, str]]
GROUP_MEASURES: list[tuple[str, str]]

@final
class Pool:
    """The requests of a pool, checked, and the tree of its rows."""

    def __new__(
        cls,
        tokens: NDArray[int64],
        offsets: NDArray[int64],
        targets: NDArray[bool_],
        first_target: NDArray[int64] | None,
        label_mask: NDArray[bool_] | None,
        target_width: NDArray[int64],
        top_k: NDArray[int64],
        logits: NDArray[bool_],
        hidden: NDArray[bool_],
        gradient: NDArray[bool_],
        slot: NDArray[int64],
        routed: NDArray[int64],
        item_sizes: NDArray[int64],
    ) -> Self: ...
    def __len__(self) -> int: ...
    def mixes(self) -> list[NDArray[int64]]:
        """Number of each request's mix of outputs, ascending, and each mix's first request."""
    def labelled(self) -> NDArray[int64]:
        """Labelled tokens of each request."""
    def groups(self, requests: NDArray[int64]) -> list[tuple[int, bool, bool, NDArray[int64]]]:
        """The groups of some requests: slot, gradient, routed and indices of each."""

@final
class PlanMeasures:
    """Measures of one plan, filled group by group."""

    def __new__(
        cls,
        pool: Pool,
        requests: NDArray[int64],
        *,
        tp: int = 1,
        cp: int = 1,
        recurrent: bool = False,
        gdn_weights: Sequence[int] = ...,
        adapter_ranks: Sequence[int] = ...,
    ) -> Self: ...
    def exact(
        self,
        g: int,
        tree: Tree,
        shared: NDArray[bool_],
        *,
        attention_tokens: NDArray[int64] | None = None,
        owner: NDArray[int64] | None = None,
        shards: NDArray[int64] | None = None,
        head_sum: bool = False,
    ) -> None:
        """Fills group `g` from its layout."""
    def bound(self, g: int, kind: str, tokens: int = 0) -> None:
        """Fills group `g` from a bound: "none", "full" or "ladder"."""
    def finish(self, *, even: bool = False) -> tuple[list[int], list[list[int]]]:
        """The plan's measures, and each group's."""

# --- price ---

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
    def evaluate(self, plan: NDArray[int64], packs: NDArray[int64], width: int) -> list[int]:
        """Results over one plan; `packs` holds `width` measures per pack, flattened."""
    def every(
        self, plan: NDArray[int64], packs: NDArray[int64], width: int
    ) -> list[list[int | None]]:
        """The value of every node: one entry, or one per pack; None where it has no value."""
    def gdn_weights(self) -> list[int]:
        """Bytes per executed token, state and packed token of a gdn layer, which weigh ranks."""
    def __len__(self) -> int: ...

# --- width ---

def width_search(
    items: int,
    start: int,
    dp: int,
    hint: int | None,
    composite: bool,
    bits: NDArray[int64],
) -> tuple[int, str, int, int, list[tuple[int, int]]]:
    """Chosen width (0: ladder), why it stopped, at which width, rejected widths, quotes asked."""

def width_geometry(items: int, start: int, dp: int) -> tuple[int, int, int]:
    """Remaining items, minimum width, granularity."""

def width_normalize(items: int, start: int, dp: int, width: int) -> int:
    """`width` clamped to what is left and floored to the granularity."""

def split_cut(tokens: NDArray[int64], count: int) -> list[int]:
    """Ends of `count` runs of about equal tokens."""

@final
class Engine:
    """A pool with everything needed to plan waves of it."""

    def __new__(
        cls,
        pool: Pool,
        adapter_ranks: Sequence[int],
        program: Program,
        facts: object,
    ) -> Self: ...
    def session(
        self, start: int, available: int, hint: int | None, profiles: Sequence[object]
    ) -> Session:
        """A search for the wave that starts at item `start`."""
    def plan(
        self, requests: NDArray[int64], available: int, profiles: Sequence[object]
    ) -> tuple[Found, list[tuple[int, int, str, int, int, bool, bool]]]:
        """Plans these requests as one forward, split if it must be; with everything priced."""

    def part_costs(self, requests: NDArray[int64], profiles: Sequence[object]) -> list[list[int]]:
        """The ladder's lower bound of a part's price, and its cost-optimal and shared price."""

@final
class Session:
    """One search, alone or in step with other ranks."""

    def alone(self) -> Found:
        """The whole search, for one data-parallel rank."""
    def set_available(self, available: int) -> None:
        """Sets the bytes free for this rank's share, before anything is priced."""
    def growth_len(self) -> int:
        """Entries of the first table, known before anything is priced."""
    def growth(self) -> NDArray[int64]:
        """First table of quotes of this rank."""
    def agree_growth(self, agreed: NDArray[int64]) -> int:
        """Takes the first agreed table; entries of the second."""
    def bisection(self) -> NDArray[int64]:
        """Second table of quotes of this rank."""
    def quote(self, width: int, kind: int) -> int:
        """One quote of this rank, as bits."""
    def agree_bisection(self, agreed: NDArray[int64]) -> int:
        """Takes the second agreed table; entries of the third, 0 in compatible mode."""
    def refinement(self) -> NDArray[int64]:
        """Third table of quotes of this rank."""
    def finish(self, agreed: NDArray[int64]) -> Found:
        """Takes the third agreed table; ends the search on this rank."""
    @property
    def rejected(self) -> int: ...
    @property
    def probes(self) -> list[tuple[int, int, str, int, int, bool, bool]]: ...

@final
class Found:
    """What a search ended with."""

    @property
    def kind(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def items(self) -> NDArray[int64]: ...
    @property
    def required(self) -> int: ...
    @property
    def cold(self) -> bool: ...
    @property
    def stop(self) -> tuple[str, int]: ...
    @property
    def stopped(self) -> Plan | None: ...
    @property
    def plans(self) -> list[Plan]: ...
    @property
    def part_requests(self) -> list[NDArray[int64]]: ...
    @property
    def tried(self) -> list[tuple[int, str, int]]: ...
    @property
    def unsplittable(self) -> bool: ...

@final
class Plan:
    """One forward's plan."""

    def __len__(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def requests(self) -> NDArray[int64]: ...
    @property
    def required(self) -> int: ...
    @property
    def covered(self) -> bool: ...
    @property
    def trusted(self) -> bool: ...
    @property
    def profiled(self) -> bool: ...
    @property
    def measures(self) -> NDArray[int64]: ...
    @property
    def group_measures(self) -> list[NDArray[int64]]: ...
    @property
    def roots(self) -> NDArray[int64]: ...
    @property
    def cost(self) -> list[int]: ...
    def key(self, g: int) -> tuple[int, bool, bool]: ...
    def group_requests(self, g: int) -> NDArray[int64]: ...
    def shared(self, g: int) -> NDArray[bool_]: ...
    def layout(self, g: int) -> tuple[int, int, int, bool]: ...
    def tree(self, g: int) -> Tree: ...
    def packing(self, g: int) -> Packing: ...
    def assignment(self, g: int) -> Assignment | None: ...
    def recurrent(
        self, g: int
    ) -> (
        tuple[
            NDArray[int64],
            NDArray[int64],
            NDArray[bool_],
            NDArray[int64],
            int,
            float,
            float,
            int,
        ]
        | None
    ): ...
