"""Rules from a TOML file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from waveplan._files import read_bytes
from waveplan.errors import InputError
from waveplan.rules import names
from waveplan.rules.language import as_expr
from waveplan.rules.ruleset import Rule, RuleSet
from waveplan.rules.text import parse

__all__ = ["load"]

_MAX_BYTES = 1 << 18
_MAX_ENTRIES = 100
# The parser takes time in the square of the parts of a dotted key.
_MOST_PARTS = 4000**2
_FORMULAS = ("bytes", "coverage", "needed", "measured")
_TEXTS = ("covers", "why", "source", "lives")


def load(path: Path, base: RuleSet | None = None) -> RuleSet:
    """See `RuleSet.from_toml`."""
    if base is None:
        from waveplan.rules import default_rules

        base = default_rules()
    text, table = _parsed(path)
    for key in table:
        if key not in ("rule", "define"):
            raise InputError(
                f'{path}:{_line(text, key)}: unknown table {key!r}: write [rule."part.what"] '
                "or [define]"
            )
    entries = sum(len(_table(path, text, table, key)) for key in ("define", "rule"))
    if entries > _MAX_ENTRIES:
        raise InputError(f"{path}: {entries:,} rules and definitions: at most {_MAX_ENTRIES}")
    made = base
    for name, formula in _table(path, text, table, "define").items():
        line = _line(text, name)
        if not isinstance(formula, str):
            raise InputError(f"{path}:{line}: {name} must be a formula as text")
        try:
            made = made.redefine(name, parse(formula, str(path), line))
        except InputError as error:
            raise _placed(error, path, line) from error
    for name, entry in _table(path, text, table, "rule").items():
        if not isinstance(entry, dict):
            raise InputError(f"{path}:{_line(text, name)}: rule {name} must be a table")
        made = _apply(made, path, text, name, entry)
    return made


def _parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file and what it says."""
    data = read_bytes(path, _MAX_BYTES)
    try:
        text = str(data, "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not TOML: byte {error.start} is not UTF-8") from None
    if sum(line.count(".") ** 2 for line in text.splitlines()) > _MOST_PARTS:
        raise InputError(f"{path}: keys of too many parts")
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: not TOML: values nest too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"{path}: not TOML: {str(error).partition(':')[0]}") from None


def _table(path: Path, text: str, table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{path}:{_line(text, key)}: {key} must be a table")
    return value


def _apply(rules: RuleSet, path: Path, text: str, name: str, entry: dict[str, Any]) -> RuleSet:
    start = _line(text, name)
    values: dict[str, Any] = {}
    total: str | None = None
    for key, value in entry.items():
        line = _line(text, key, start)
        known = (*_FORMULAS, *_TEXTS, "total")
        if key not in known:
            hint = names.suggest(key, known)
            raise InputError(f"{path}:{line}: unknown key {key!r} of rule {name}: {hint}")
        if not isinstance(value, str) and not (key in _FORMULAS and type(value) is int):
            raise InputError(f"{path}:{line}: {name}.{key} must be text")
        if key == "total":
            total = str(value)
        elif key in _FORMULAS:
            try:
                if isinstance(value, str):
                    values[key] = parse(value, str(path), _first_line(text, line))
                else:
                    values[key] = as_expr(value)
            except InputError as error:
                raise _placed(error, path, line) from error
        else:
            values[key] = value
    try:
        if name in rules.rules:
            if total is not None or "lives" in values:
                raise InputError(f"{name} exists: total and lives cannot be overridden")
            return rules.override(name, **values)
        values.setdefault("source", str(path))
        for key in ("bytes", "covers"):
            if key not in values:
                raise InputError(f"rule {name} needs {key}")
        return rules.with_rule(Rule(name, ours=True, **values), total)
    except InputError as error:
        raise _placed(error, path, start) from error


def _placed(error: InputError, path: Path, line: int) -> InputError:
    """The error with the file and line in front, if they are not there yet."""
    message = str(error)
    return InputError(message if message.startswith(f"{path}:") else f"{path}:{line}: {message}")


def _first_line(text: str, line: int) -> int:
    """Where a value begins whose key stands on ``line``: TOML drops a newline after quotes."""
    opening = text.splitlines()[line - 1].rstrip()
    return line + 1 if opening.endswith(("'''", '"""')) else line


def _line(text: str, key: str, after: int = 1) -> int:
    """The line that first names ``key`` as a table or key, from line ``after`` on."""
    name = re.escape(key)
    wanted = re.compile(rf"""^\s*(?:\[[^\]#]*["'.\s\[]?{name}["']?\s*\]|["']?{name}["']?\s*=)""")
    for number, line in enumerate(text.splitlines(), start=1):
        if number >= after and wanted.search(line):
            return number
    return after
