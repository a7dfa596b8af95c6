"""Models by name: ``names()`` and ``get(name)``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from waveplan.errors import InputError
from waveplan.facts.model import Model

__all__ = ["find", "get", "names"]


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "models.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table


def names() -> list[str]:
    """Names of the bundled models, sorted."""
    return sorted(_table())


def find(name: str) -> str | None:
    """The bundled name of a model that is called so, alone or as the last part of ``org/Name``."""
    return next(
        (key for key in (name.lower(), _plain(name)) if len(key) < 200 and key in _table()), None
    )


def _plain(name: str) -> str:
    """The last part of an address, without endings that say how a model was trained on."""
    last = name.lower().rpartition("/")[2] if name.count("/") == 1 else ""
    last = re.sub(r"^(meta-)?(?=llama)", "", last)
    return re.sub(r"(-(base|instruct|it|pt|thinking|2507|v0\.1))+$", "", last)


def get(name: str) -> Model:
    """A bundled model by name; case does not matter.

    Raises:
        InputError: no bundled model has this name.
    """
    key = str(name).lower()
    if key not in _table():
        raise InputError(f"no bundled model is called {name!r}: known are {', '.join(names())}")
    return _model(key)


@cache
def _model(key: str) -> Model:
    return replace(Model.from_hf(_table()[key]), name=key)
