"""Inputs of the golden cases as rows and requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import workloads
from conftest import corpus_sequences

from waveplan.sequences.requests import Requests


def rows_of(given: dict[str, Any]) -> list[Any]:
    """The rows of a case's input: explicit ones as they stand, a generator spec, or of a corpus."""
    if given.get("rows") is not None:
        return given["rows"]
    spec = given["spec"]
    if "corpus" in spec:
        return corpus_sequences(spec["corpus"], spec["rows"])
    return workloads.make(spec)


def requests_of(case: dict[str, Any]) -> Requests:
    """The requests of a case; options not given take the vectors' defaults."""
    given = case["input"]
    rows = [np.asarray(row, np.int64) for row in rows_of(given)]

    def column(name: str, default: Any) -> list[Any]:
        value = given.get(name, default)
        return value if isinstance(value, list) else [value] * len(rows)

    targets = [
        None if not wanted else 0 if keep is None else max(0, len(row) - keep)
        for row, wanted, keep in zip(
            rows, column("target", True), column("labels", None), strict=True
        )
    ]
    return Requests(
        rows,
        targets=targets,
        top_k=column("top_k", None),
        logits=[bool(value) for value in column("logits", False)],
        hidden=[bool(value) for value in column("hidden", False)],
        gradient=[not value for value in column("no_grad", False)],
        groups=given.get("item_size", 1),
    )
