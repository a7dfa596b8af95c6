"""Which shared prefixes are stored once, and which are replayed by each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waveplan import _core as core
from waveplan._values import choice, instance, integer
from waveplan.errors import InputError
from waveplan.packing import Packing
from waveplan.scoring import Scoring
from waveplan.tree import Tree

__all__ = ["METHODS", "Layout", "Score", "choose_layout"]

METHODS = ("exact", "compatible", "full", "none")


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Predicted work and its tie-breaks, in the order in which they decide; less is better."""

    work: int
    tokens: int
    segments: int
    depth: int


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """A choice of shared segments of a tree with S segments."""

    shared: NDArray[np.bool_]
    """Stored once for all its rows, [S]; false for segments of one row."""
    score: Score
    bound: int
    """No layout of the tree has less work than this."""
    optimal: bool
    """Proven: no layout of the tree has a better score."""
    packed_tokens: int
    depth: int
    """Segments on the longest path: 1 without sharing."""
    segments: int
    labels: tuple[str, ...]
    """Policies that give this layout (compatible): "none", "depth 2", "span 18-40", "full", ..."""
    mandatory_candidates: int
    """Distinct layouts of the policies (compatible)."""
    refinement_work: int
    """Proposals spent by the refinement (compatible)."""
    evaluated_refinements: int
    """Proposals that were new layouts (compatible)."""
    stop_reason: str | None
    """Why the refinement ended (compatible)."""
    _tree: core.Tree

    @property
    def decisions(self) -> NDArray[np.int64]:
        """The shared segments, ascending."""
        return np.flatnonzero(self.shared).astype(np.int64, copy=False)

    @property
    def gap(self) -> int:
        """Work that a better layout could save at most; 0 when proven optimal."""
        return 0 if self.optimal else max(0, self.score.work - self.bound)

    def pack(self) -> Packing:
        """The packed row: at each tree segment itself if shared, then the tails that end there."""
        return Packing(core.pack_layout(self._tree, self.shared))

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal else f"gap {self.gap}"
        return (
            f"Layout({len(self.decisions):,} shared, {self.segments:,} segments, depth "
            f"{self.depth}, {self.packed_tokens:,} tokens, {proof})"
        )


def choose_layout(
    tree: Tree,
    scoring: Scoring,
    method: str = "exact",
    *,
    most_tokens: int | None = None,
    budget: int = 2000,
) -> Layout:
    """Choose which shared segments of `tree` are stored once.

    Args:
        tree: The tree of the rows.
        scoring: What a layout costs.
        method: "exact" is the best of all layouts, proven or with a bound; "compatible" is what
            the published planner's bounded search finds; "full" shares everything; "none"
            nothing.
        most_tokens: Exact only: the packed row may hold at most so many tokens.
        budget: Compatible only: proposals of the refinement.

    Raises:
        InputError: an unknown method, or even full sharing exceeds `most_tokens`.
    """
    instance("tree", tree, Tree)
    instance("scoring", scoring, Scoring)
    choice("method", method, METHODS)
    if most_tokens is not None and method != "exact":
        raise InputError('most_tokens needs method "exact"')
    budget = integer("budget", budget, 0, 1 << 31)
    if most_tokens is not None:
        most_tokens = integer("most_tokens", most_tokens)
    found = core.choose_layout(
        tree._core,
        scoring.version,
        list(scoring.coefficients),
        scoring.tp,
        scoring.cp,
        scoring.layers,
        scoring.gdn_layers,
        bool(scoring.uses_gdn),
        method,
        budget,
        most_tokens,
    )
    if found is None:
        raise InputError(
            f"most_tokens is {most_tokens}: with everything shared the row has {tree.packed()}"
        )
    return Layout(
        shared=found.shared,
        score=Score(*found.score),
        bound=found.bound,
        optimal=found.optimal,
        packed_tokens=found.packed_tokens,
        depth=found.depth,
        segments=found.segments,
        labels=tuple(found.labels),
        mandatory_candidates=found.mandatory_candidates,
        refinement_work=found.refinement_work,
        evaluated_refinements=found.evaluated_refinements,
        stop_reason=found.stop_reason,
        _tree=tree._core,
    )
