"""Fields of facts: each is declared once, with its check, its words and its option.

A frozen dataclass declares its fields by `count`, `switch`, `word` and `given` and calls `check`
when it is made; `waveplan.cli.options` makes the options of the commands from the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import Field, field, fields
from typing import Any

from waveplan.checks import LARGEST, choice, flag, integer

__all__ = ["check", "checked", "count", "given", "switch", "whole", "word"]

Check = Callable[[str, Any], Any]
"""Takes the name and the value of a field; returns the value to keep or raises InputError."""


def given(default: Any, doc: str = "", check: Check | None = None, **option: Any) -> Any:
    """Return a field that holds what `check` makes of a value; None stays where it is the default.

    Args:
        doc: the field in a few words: the help of its option.
        option: ``option``, the group of options that it is in (not given: it has none);
            ``metavar`` and ``flag``, how that is written; ``kind``, which values it takes.
    """
    return field(default=default, metadata={"doc": doc, "check": check, "kind": "text", **option})


def whole(least: int = 0, most: int = LARGEST) -> Check:
    """Return the check of an integer within [least, most]."""
    return lambda name, value: integer(name, value, least, most)


def count(
    default: int | None, doc: str = "", least: int = 0, most: int = LARGEST, **option: Any
) -> Any:
    """Return a field that holds an integer within [least, most]."""
    return given(default, doc, whole(least, most), **{"kind": "whole", "metavar": "N", **option})


def switch(default: bool | None = False, doc: str = "", **option: Any) -> Any:
    """Return a field that holds True or False."""
    return given(default, doc, flag, kind="switch", **option)


def word(default: str, among: Iterable[str], doc: str = "", **option: Any) -> Any:
    """Return a field that holds one of the words `among`."""
    words = tuple(among)
    check: Check = lambda name, value: choice(name, value, words)  # noqa: E731
    return given(default, doc, check, kind="word", among=words, **option)


def check(facts: Any) -> None:
    """Check every field of a frozen dataclass and keep what the checks return."""
    for item in fields(facts):
        object.__setattr__(facts, item.name, checked(item, item.name, getattr(facts, item.name)))


def checked(item: Field[Any], name: str, value: Any) -> Any:
    """Return what the check of a field makes of a value that a message calls `name`."""
    known = item.metadata.get("check")
    absent = value is None and item.default is None
    return value if known is None or absent else known(name, value)
