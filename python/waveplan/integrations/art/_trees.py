"""Canonical trees and layouts: values of the other package's classes that hold our core's."""

from __future__ import annotations

import functools
import hashlib
import secrets
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from art.trainer_rank import _impl as impl
from art.trainer_rank import _micro_batch_planner as steps
from art.trainer_rank import _planner_cost as cost
from art.trainer_rank import _prefix_tree_performance_search as search
from art.trainer_rank import _prefix_tree_planner as planner

from waveplan import _core
from waveplan.scoring import TERMS, Scoring

from ._seams import Declined, Function, Seam
from ._shadow import SameNames, twin
from ._values import SEARCH, Int64, arrays, filled, holds, late, members

_KEY = (secrets.randbits(64), secrets.randbits(64))
_MOST_DIGESTS = 1 << 16
_ANCHORS: dict[str, Literal["full", "none"]] = {"full_sharing": "full", "no_sharing": "none"}
_FACTS = frozenset(
    (
        *("cp_size", "tp_size", "layers", "uses_gdn", "gdn_layers", "coefficient_version"),
        *("coefficients", "refinement_work_budget", "reranker", "plan_structure"),
    )
)
_digests: dict[bytes, str] = {}
_lock = threading.Lock()
_score = functools.lru_cache(maxsize=64)(Scoring)


def seams() -> list[Seam]:
    """Return the seams of trees, layouts, and the key of a pack's layout."""
    chosen, of_pack = "select_prefix_tree_layout", "TrainerRank._compute_group_layout"
    key = "TrainerRank._layout_cache_key"
    return [
        Seam("canonical tree", planner, "build_canonical_prefix_tree", build, ("sequences",)),
        Seam("layout selection", planner, chosen, select, needs_original=True),
        Seam("layout of a pack", impl, of_pack, pack_layout, needs_original=True, shadow=anchored),
        Seam("layout key", impl, key, layout_key, differ=SameNames()),
    ]


def build(sequences: Iterable[Any]) -> Any:
    """Build the canonical tree of sequences."""
    tokens = arrays(s.cpu() if isinstance(s, torch.Tensor) else s for s in sequences)
    return filled(
        tree_class,
        _core=_core.build_tree(tokens),
        _tokens=own(tokens),
        sequence_lengths=tuple(map(len, tokens)),
    )


def select(original: Function, tree: Any, **facts: Any) -> Any:
    """Choose the layout of one of our trees that scores best under the other package's facts."""
    tree = twin(tree)
    known = facts.keys() <= _FACTS and facts.get("reranker") is None
    if not known or not holds(tree, tree_class, "_core"):
        raise Declined
    found = _core.choose_layout(
        tree._core,
        scoring(facts),
        "reference",
        budget=facts["refinement_work_budget"],
        counts=False,
    )
    score = found.score
    return filled(
        choice_class,
        score=(score.work, score.tokens, score.segments, score.depth),
        _layout=_layout(tree, found),
        _again=lambda: original(tree, **facts),
    )


def pack_layout(original: Function, rank: Any, input_ids: Sequence[Any], key: Any) -> Any:
    """Return the layout of a pack; keep a memory-minimal or unshared one in the rank's caches."""
    content, _, anchor = key
    if anchor is None:
        return original(rank, input_ids, key)
    tree, layout = anchored(rank, input_ids, key)
    with rank._layout_cache_lock:
        _remember(rank._tree_cache, content, tree)
        _remember(rank._layout_selection_cache, key, (tree, layout))
    return tree, layout


def anchored(rank: Any, input_ids: Sequence[Any], key: Any) -> tuple[Any, Any]:
    """Return a pack's tree and its memory-minimal or unshared layout."""
    content, _, anchor = key
    if anchor not in _ANCHORS:
        raise Declined
    with rank._layout_cache_lock:
        tree = rank._tree_cache.get(content)
    tree = steps.build_canonical_prefix_tree(input_ids) if tree is None else twin(tree)
    if not holds(tree, tree_class, "_core"):
        raise Declined
    found = _core.choose_layout(tree._core, Scoring(version=1, layers=1), _ANCHORS[anchor])
    return tree, _layout(tree, found)


def layout_key(
    rank: Any,
    input_ids: Sequence[Any],
    *,
    memory_minimal: bool = False,
    grad_enabled: bool = True,
) -> Any:
    """Return the key of a pack's layout: a hash of its sequences that this process alone uses."""
    tokens = arrays(sequence.cpu() for sequence in input_ids)
    return (
        hashlib.sha256(_core.hash_sequences(tokens, _KEY)).hexdigest(),
        rank._planner_topology_facts(grad_enabled=grad_enabled),
        rank._layout_anchor(memory_minimal=memory_minimal),
    )


def _remember(cache: Any, key: Any, value: Any) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > impl._LAYOUT_SELECTION_CACHE_LIMIT:
        cache.popitem(last=False)


def scoring(facts: dict[str, Any]) -> Scoring:
    """Convert the other package's facts to our score."""
    version = facts.get("coefficient_version")
    version = cost.COEFFICIENT_VERSION if version is None else version
    coefficients = [0] * len(TERMS)
    layers, uses_gdn, cp = facts["layers"], facts["uses_gdn"], facts["cp_size"]
    gdn_layers, tp = facts.get("gdn_layers"), facts.get("tp_size", 1)
    if version == 2:
        table = facts.get("coefficients")
        table = cost.COEFFICIENTS_MILLI_US if table is None else table
        if set(table) - set(TERMS):
            raise Declined
        coefficients = [table.get(term, 0) for term in TERMS]
        cp, tp, layers = max(1, cp), max(1, tp), max(1, layers)
    elif version != 1:
        raise Declined
    if gdn_layers is None:
        gdn_layers = layers if uses_gdn else 0
    return _score(
        version=version,
        coefficients=tuple(coefficients),
        tp=tp,
        cp=cp,
        layers=layers,
        gdn_layers=max(0, gdn_layers),
        uses_gdn=bool(uses_gdn),
    )


def _fingerprints(tokens: list[Int64]) -> tuple[str, ...]:
    """Return the SHA-256 of each sequence by the other package's definition; look known ones up."""
    hashes = _core.hash_sequences(tokens, _KEY)
    found = []
    with _lock:
        for i, sequence in enumerate(tokens):
            key = hashes[16 * i : 16 * i + 16]
            if key not in _digests:
                if len(_digests) >= _MOST_DIGESTS:
                    del _digests[next(iter(_digests))]
                digest = hashlib.sha256(planner._TOKEN_ROW_FINGERPRINT_DOMAIN)
                digest.update(sequence.astype("<i8", copy=False).data)
                digest.update(struct.pack("<Q", len(sequence)))
                _digests[key] = digest.hexdigest()
            found.append(_digests[key])
    return tuple(found)


def _layout(tree: Any, found: _core.Layout) -> Any:
    """Make the other package's layout of one of our trees."""
    return filled(
        layout_class,
        packed_tokens=found.packed_tokens,
        maximum_depth=found.depth,
        _tree=tree,
        _flags=found.shared,
        _count=found.segments,
    )


def chosen(pack: _core.Pack, tokens: list[Int64]) -> tuple[Any, Any]:
    """Return tree and layout of a pack that our search has chosen; `own` its tokens if it runs."""
    core = pack.tree
    packing = core.pack(pack.shared)
    lengths = tuple(map(len, tokens))
    tree = filled(tree_class, _core=core, _tokens=tokens, sequence_lengths=lengths)
    layout = filled(
        layout_class,
        packed_tokens=packing.packed_tokens,
        maximum_depth=pack.depth,
        _tree=tree,
        _flags=pack.shared,
        _count=len(packing),
        _planned=(pack, packing),
    )
    return tree, layout


def own(tokens: list[Int64]) -> list[Int64]:
    """Copy tokens, in place, that a tree is read from late: their tensors may change."""
    tokens[:] = [sequence.copy() for sequence in tokens]
    return tokens


def _tree_part(tree: Any, name: str) -> Any:
    core = tree._core
    if name == "row_fingerprints":
        return _fingerprints(tree._tokens)
    if name == "segments":
        columns, through = (core.parent, core.start, core.end, core.depth), core.sequences
        return tuple(
            planner.CanonicalSegment(i, None if parent < 0 else parent, among, start, end, depth)
            for i, (parent, start, end, depth, among) in enumerate(
                zip(
                    *(c.tolist() for c in columns),
                    members(through.offsets, through.values),
                    strict=True,
                )
            )
        )
    if name == "sequence_indices_by_terminal":
        ends: list[list[int]] = [[] for _ in range(len(core))]
        for sequence, segment in enumerate(core.terminal.tolist()):
            ends[segment].append(sequence)
        return tuple(map(tuple, ends))
    whole = planner._finalize_canonical_prefix_tree(
        sequence_lengths=tree.sequence_lengths,
        segments=tree.segments,
        row_fingerprints=_fingerprints(tree._tokens),
    )
    return getattr(whole, name)


def _later(tree: Any) -> tuple[Any, ...] | None:
    """Return the tree itself for each fingerprint of a plan in the making, which gets them late."""
    return (tree,) * len(tree.sequence_lengths) if SEARCH.planning else None


def _layout_part(layout: Any, name: str) -> Any:
    tree, picked = layout._tree, np.flatnonzero(layout._flags).tolist()
    if name == "tree_fingerprint":
        return tree.fingerprint
    if name == "selected_decisions":
        return frozenset(picked)
    if name == "segments":
        return planner._PlannedSegments(tree, layout.selected_decisions, layout._count)
    schema = planner._LAYOUT_SCHEMA_VERSION
    return planner._fingerprint(
        {"schema": schema, "tree": tree.fingerprint, "selected": tuple(picked)}
    )


def _choice_part(choice: Any, name: str) -> Any:
    # the path of the reference search to this layout: only that search computes it
    return getattr(choice._again(), name)


tree_class = late(
    planner.CanonicalPrefixTree,
    _tree_part,
    ("_core", "_tokens"),
    {"row_fingerprints": _later},
)
layout_class = late(
    planner.PrefixTreeLayout, _layout_part, ("_tree", "_flags", "_count", "_planned")
)
choice_class = late(search.NonuniformSearchCandidate, _choice_part, ("_layout", "_again"))


def _chosen(choice: Any) -> Any:
    # the base class reads its layout through fields that are computed late
    held = choice._layout if hasattr(choice, "_layout") else None
    return choice.candidate.layout if held is None else held


choice_class.layout = property(_chosen)
