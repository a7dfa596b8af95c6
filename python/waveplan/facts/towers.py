"""Parameters of vision towers, where ``towers.json`` has the family: the class's defaults and a
formula over the keys of ``vision_config``. They are said, never priced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from waveplan.facts.formula import evaluate
from waveplan.files import read_json

__all__ = ["tower_parameters"]


@cache
def _rows() -> dict[str, Any]:
    rows: dict[str, Any] = read_json(Path(__file__).parent / "towers.json")
    return rows


def tower_parameters(config: Any, model_type: Any) -> int:
    """Parameters of the tower of a ``vision_config``, 0 where its family is not known."""
    if not isinstance(config, Mapping):
        return 0
    name = str(config.get("model_type") or model_type)
    row = _rows().get(re.sub(r"_moe(?=$|_)|_vision$", "", name)) or _rows().get(name)
    if row is None:
        return 0
    try:
        return max(0, int(evaluate(row["parameters"], {**row["defaults"], **config})))
    except (ArithmeticError, TypeError, ValueError):
        return 0
