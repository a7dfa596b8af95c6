"""Canonical trees and layouts, as the other package's own values over our core's."""

from __future__ import annotations

import hashlib
import secrets
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from waveplan import _core
from waveplan.scoring import TERMS, Scoring

from ._seams import Declined, Function, Seam
from ._values import Int64, filled, late, members, token_rows

PLANNER = "art.trainer_rank._prefix_tree_planner"
SEARCH = "art.trainer_rank._prefix_tree_performance_search"
STEPS = "art.trainer_rank._micro_batch_planner"
IMPL = "art.trainer_rank._impl"

_KEY = (secrets.randbits(64), secrets.randbits(64))
_MOST_DIGESTS = 1 << 16
_ANCHORS: dict[str, Literal["full", "none"]] = {"full_sharing": "full", "no_sharing": "none"}


class Trees:
    """What is built once per installation: late classes and digests of rows already seen."""

    def __init__(self, torch: Any, planner: Any, search: Any, *, keep_rows: bool) -> None:
        self.torch, self.planner, self.keep_rows = torch, planner, keep_rows
        self.tree_class: Any = late(
            planner.CanonicalPrefixTree, self._tree_part, ("_core", "_rows", "_segment_rows")
        )
        self.layout_class: Any = late(
            planner.PrefixTreeLayout, _layout_part, ("_tree", "_flags", "_count", "_packing")
        )
        self.choice_class: Any = late(
            search.NonuniformSearchCandidate, _choice_part, ("_layout", "_again")
        )
        # the base reads its layout through fields that are computed late
        self.choice_class.layout = property(lambda choice: choice._layout)
        self._digests: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def content_key(self, rows: list[Int64]) -> str:
        """A name for these rows in this process."""
        return hashlib.sha256(_core.hash_rows(rows, _KEY)).hexdigest()

    def fingerprints(self, rows: list[Int64]) -> tuple[str, ...]:
        """SHA-256 of each row as the other package defines it; a row seen before is looked up."""
        hashes = _core.hash_rows(rows, _KEY)
        found = []
        with self._lock:
            for i, row in enumerate(rows):
                key = hashes[16 * i : 16 * i + 16]
                digest = self._digests.get(key)
                if digest is None:
                    digest = self._sha(row)
                    if len(self._digests) >= _MOST_DIGESTS:
                        self._digests.pop(next(iter(self._digests)))
                    self._digests[key] = digest
                found.append(digest)
        return tuple(found)

    def _sha(self, row: Int64) -> str:
        digest = hashlib.sha256(self.planner._TOKEN_ROW_FINGERPRINT_DOMAIN)
        digest.update(row.astype("<i8", copy=False).data)
        digest.update(struct.pack("<Q", len(row)))
        return digest.hexdigest()

    def tree(self, sequences: Iterable[Any]) -> Any:
        """The canonical tree of some rows."""
        rows = token_rows(
            [s.cpu() if isinstance(s, self.torch.Tensor) else s for s in sequences], self.torch
        )
        if not rows or not all(map(len, rows)):
            raise Declined
        return filled(
            self.tree_class,
            sequence_lengths=tuple(map(len, rows)),
            row_fingerprints=self.fingerprints(rows),
            _core=_core.tree_of(rows),
            _rows=[row.copy() for row in rows] if self.keep_rows else None,
        )

    def layout(self, tree: Any, found: _core.Layout) -> Any:
        """A layout of one of our trees."""
        return filled(
            self.layout_class,
            packed_tokens=found.packed_tokens,
            maximum_depth=found.depth,
            _tree=tree,
            _flags=found.shared,
            _count=found.segments,
        )

    def _tree_part(self, tree: Any, name: str) -> Any:
        core = tree._core
        if name == "segments":
            return self._segments(core)
        if name == "terminal_segment_indices":
            return tuple(core.terminal.tolist())
        if name == "sequence_indices_by_terminal":
            ends: list[list[int]] = [[] for _ in range(len(core))]
            for row, segment in enumerate(core.terminal.tolist()):
                ends[segment].append(row)
            return tuple(map(tuple, ends))
        if name == "decision_indices":
            return tuple(np.flatnonzero(core.count > 1).tolist())
        whole = self.planner._finalize_canonical_prefix_tree(
            sequence_lengths=tree.sequence_lengths,
            segments=tree.segments,
            row_fingerprints=tree.row_fingerprints,
        )
        return getattr(whole, name)

    def _segments(self, core: _core.Tree) -> tuple[Any, ...]:
        cls = self.planner.CanonicalSegment
        columns = (core.parent, core.start, core.end, core.depth)
        through = core.rows
        return tuple(
            cls(i, None if parent < 0 else parent, rows, start, end, depth)
            for i, (parent, start, end, depth, rows) in enumerate(
                zip(
                    *(c.tolist() for c in columns),
                    members(through.offsets, through.values),
                    strict=True,
                )
            )
        )


def _layout_part(layout: Any, name: str) -> Any:
    tree, planner = layout._tree, _planner_of(layout)
    if name == "tree_fingerprint":
        return tree.fingerprint
    if name == "selected_decisions":
        return frozenset(np.flatnonzero(layout._flags).tolist())
    if name == "segments":
        return planner._PlannedSegments(tree, layout.selected_decisions, layout._count)
    payload = {
        "schema": planner._LAYOUT_SCHEMA_VERSION,
        "tree": tree.fingerprint,
        "selected": tuple(np.flatnonzero(layout._flags).tolist()),
    }
    return planner._fingerprint(payload)


def _planner_of(layout: Any) -> Any:
    import importlib

    return importlib.import_module(type(layout).__module__)


def _choice_part(choice: Any, name: str) -> Any:
    # how the published search came upon it: only its own search can tell
    return getattr(choice._again(), name)


def seams(trees: Trees, impl: Any, steps: Any) -> list[Seam]:
    """Trees, selected layouts, and the cache key that names a group's rows."""

    def build(_: Function) -> Function:
        return trees.tree

    def select(original: Function) -> Function:
        def ours(tree: Any, **facts: Any) -> Any:
            if facts.get("reranker") is not None or type(tree) is not trees.tree_class:
                raise Declined
            found = _core.choose_layout(
                tree._core,
                _scoring(facts),
                "compatible",
                budget=facts["refinement_work_budget"],
                counts=False,
            )
            score = found.score
            return filled(
                trees.choice_class,
                score=(score.work, score.tokens, score.segments, score.depth),
                _layout=trees.layout(tree, found),
                _again=lambda: original(tree, **facts),
            )

        return ours

    def group(original: Function) -> Function:
        def ours(self: Any, input_ids: Sequence[Any], key: Any) -> Any:
            content, _, anchor = key
            if anchor is None:
                return original(self, input_ids, key)
            if anchor not in _ANCHORS:
                raise Declined
            with self._layout_cache_lock:
                tree = self._tree_cache.get(content)
            if tree is None:
                tree = steps.build_canonical_prefix_tree(input_ids)
            if type(tree) is not trees.tree_class:
                raise Declined
            scoring = Scoring(version=1, layers=1)
            found = _core.choose_layout(tree._core, scoring, _ANCHORS[anchor])
            answer = (tree, trees.layout(tree, found))
            most = impl._LAYOUT_SELECTION_CACHE_LIMIT
            with self._layout_cache_lock:
                _remember(self._tree_cache, content, tree, most)
                _remember(self._layout_selection_cache, key, answer, most)
            return answer

        return ours

    def cache_key(_: Function) -> Function:
        def ours(
            self: Any,
            input_ids: Sequence[Any],
            *,
            memory_minimal: bool = False,
            grad_enabled: bool = True,
        ) -> Any:
            rows = token_rows([row.cpu() for row in input_ids], trees.torch)
            return (
                trees.content_key(rows),
                self._planner_topology_facts(grad_enabled=grad_enabled),
                self._layout_anchor(memory_minimal=memory_minimal),
            )

        return ours

    return [
        Seam(
            "canonical tree", PLANNER, "build_canonical_prefix_tree", build, "tree", ("sequences",)
        ),
        Seam("layout selection", PLANNER, "select_prefix_tree_layout", select, "layout"),
        Seam("layout of a group", IMPL, "TrainerRank._compute_group_layout", group, "layout"),
        Seam("name of a group's rows", IMPL, "TrainerRank._layout_cache_key", cache_key, "layout"),
    ]


def _remember(cache: Any, key: Any, value: Any, most: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)


def _scoring(facts: dict[str, Any]) -> Scoring:
    """Our score from the other package's facts."""
    from art.trainer_rank import _planner_cost as cost

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
    return Scoring(
        version=version,
        coefficients=coefficients,
        tp=tp,
        cp=cp,
        layers=layers,
        gdn_layers=max(0, gdn_layers),
        uses_gdn=bool(uses_gdn),
    )
