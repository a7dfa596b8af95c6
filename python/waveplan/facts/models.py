"""Models by name: ``names()`` and ``get(name)``."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from waveplan.checks import shown
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
    return _spelled().get(_plain(name))


@cache
def _spelled() -> dict[str, str]:
    return {_plain(name): name for name in _table()}


def _plain(name: str) -> str:
    """A name as names are compared: without its organisation, case, kinds of separators, and the
    endings that say how a model was trained on."""
    last = name[:200].lower()
    last = last.rpartition("/")[2] if last.count("/") == 1 else last
    last = re.sub(r"^(meta-)?(?=llama)", "", re.sub("[-_. ]+", "-", last))
    last = re.sub(r"(-(base|instruct|it|pt|thinking|2507|v0-1))+$", "", last)
    return re.sub("(?<=[a-z])-(?=[0-9])", "", last)  # Llama3 is Llama-3


def get(name: str) -> Model:
    """A bundled model by name, however it is spelled.

    Raises:
        InputError: no bundled model has this name; the message has those that are close.
    """
    key = find(str(name))
    if key is None:
        last = str(name)[:100].lower().rpartition("/")[2]
        close = difflib.get_close_matches(last, names(), n=3, cutoff=0.5)
        known = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names())}"
        raise InputError(f"no bundled model is called {shown(name)}; {known}")
    return _model(key)


@cache
def _model(key: str) -> Model:
    return replace(Model.from_hf(_table()[key]), name=key)
