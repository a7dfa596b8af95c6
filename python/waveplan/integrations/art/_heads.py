"""Head rows: distinct packed positions that a group's requests project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waveplan import _core

from ._seams import Declined, Function, Seam
from ._values import Int64, array

IMPL = "art.trainer_rank._impl"
_ALL = 1 << 62


def seams(torch: Any, impl: Any) -> list[Seam]:
    """Counting head rows, and rows of the first chunk that has targets."""

    def labels_of(request: Any) -> Int64 | None:
        targets = request.target_tokens
        return None if targets is None else array(targets, torch)

    def columns(
        requests: Sequence[Any], positions: Sequence[Any]
    ) -> tuple[list[Int64], list[Int64 | None], list[bool]]:
        rows = [array(row, torch) for row in positions]
        if len(rows) != len(requests):
            raise Declined
        every = [bool(r.logits or r.top_k is not None) for r in requests]
        labels = [labels_of(request) for request in requests]
        for request, row in zip(requests, rows, strict=True):
            if request.input_tokens.numel() != len(row) or not len(row):
                raise Declined
        return rows, labels, every

    def projection(_: Function) -> Function:
        def ours(
            self: Any,
            requests: Sequence[Any],
            *,
            positions: Sequence[Any] | None = None,
            lower_bound: bool = False,
            uncapped: bool = False,
        ) -> int:
            if not self._head_workspace_bytes(1):
                return 0
            chunk = impl._HEAD_CHUNK_TOKENS
            if positions is not None and all(row.device.type == "cpu" for row in positions):
                rows, labels, every = columns(requests, positions)
                return _core.projected_rows(rows, labels, every, _ALL if uncapped else chunk)
            counts = [_own_rows(request, lower_bound) for request in requests]
            found = max(counts, default=0) if lower_bound else sum(counts)
            return found if uncapped else min(chunk, found)

        return ours

    def _own_rows(request: Any, lower_bound: bool) -> int:
        tokens = int(request.input_tokens.numel())
        if request.logits or request.top_k is not None:
            return tokens
        if request.target_tokens is None:
            return 0
        if request.target_tokens.device.type != "cpu":
            return 0 if lower_bound else tokens
        labels = array(request.target_tokens, torch)
        return _core.labelled_tokens(labels, tokens)

    def target_chunk(original: Function) -> Function:
        def ours(
            self: Any,
            requests: Sequence[Any],
            *,
            positions: Sequence[Any] | None = None,
            lower_bound: bool = False,
        ) -> int:
            if positions is None or any(row.device.type != "cpu" for row in positions):
                # its bounds, through the counts above
                found: int = original(self, requests, positions=positions, lower_bound=lower_bound)
                return found
            rows, labels, every = columns(requests, positions)
            return _core.target_chunk_rows(rows, labels, every, impl._HEAD_CHUNK_TOKENS)

        return ours

    return [
        Seam("head rows", IMPL, "TrainerRank._head_projection_rows", projection, "head rows"),
        Seam(
            "head rows with targets",
            IMPL,
            "TrainerRank._head_target_chunk_rows",
            target_chunk,
            "head rows",
        ),
    ]
