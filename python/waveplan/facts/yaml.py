"""YAML as people write lists of arguments: nested keys, lists and plain values, nothing else.

A strict subset, so that no library is needed at run time; what is outside it is refused by line.
"""

from __future__ import annotations

import json
import re
from typing import Any

from waveplan.checks import shown
from waveplan.errors import InputError
from waveplan.files import Name, read_text

__all__ = ["read_yaml"]

_KEY = re.compile(r"(\"[^\"]*\"|'[^']*'|[^\s:#\[\]{}&*!|>%@`,\"'][^:#]*?)\s*:(?:\s+(.*))?")
_WORDS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("null", "~", ""), None),
}
_DEEPEST = 32


def read_yaml(path: Name) -> Any:
    """Return the value of a YAML file.

    Raises:
        InputError: it cannot be read, or uses more of YAML than keys, lists and plain values.
    """
    lines = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        bare = _uncommented(line).rstrip()
        if bare.strip() in ("", "---", "..."):
            continue
        if "\t" in bare[: len(bare) - len(bare.lstrip())]:
            raise InputError(f"{path}, line {number}: indent with spaces, not tabs")
        lines.append((number, len(bare) - len(bare.lstrip()), bare.lstrip()))
    reader = _Reader(str(path), lines)
    value = reader.block(-1, 0) if lines else None
    if reader.at < len(lines):
        raise reader.wrong("it is indented otherwise than the lines above")
    return value


def _uncommented(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (place == 0 or line[place - 1] in " :[,{-"):
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


class _Reader:
    """Lines of (number, indent, text), read from the one at ``at`` on."""

    def __init__(self, path: str, lines: list[tuple[int, int, str]]) -> None:
        self.path = path
        self.lines = lines
        self.at = 0

    def wrong(self, why: str) -> InputError:
        number, _, line = self.lines[min(self.at, len(self.lines) - 1)]
        return InputError(f"{self.path}, line {number}: {why}: {shown(line)}")

    def block(self, above: int, depth: int) -> Any:
        """The value of the lines indented by more than ``above``."""
        if depth > _DEEPEST:
            raise self.wrong("it is nested too deeply")
        indent = self.lines[self.at][1]
        listed = self.lines[self.at][2].startswith("- ") or self.lines[self.at][2] == "-"
        made: Any = [] if listed else {}
        while self.at < len(self.lines) and self.lines[self.at][1] == indent > above:
            line = self.lines[self.at][2]
            if listed:
                if not (line.startswith("- ") or line == "-"):
                    break
                made.append(self.scalar(line[1:].strip()))
                self.at += 1
                continue
            match = _KEY.fullmatch(line)
            if match is None:
                raise self.wrong("give a key and its value, or a list of plain values")
            key, rest = match[1].strip("\"'"), (match[2] or "").strip()
            if key in made:
                raise self.wrong(f"{key} is given twice")
            value = self.scalar(rest)
            self.at += 1
            made[key] = value if rest else self.inner(indent, depth)
        return made

    def inner(self, indent: int, depth: int) -> Any:
        """What a key without a value on its line has below it."""
        if self.at == len(self.lines):
            return None
        _, deeper, line = self.lines[self.at]
        if deeper > indent:
            return self.block(indent, depth + 1)
        if deeper == indent and line.startswith("- "):
            return self.block(indent - 1, depth + 1)
        return None

    def scalar(self, word: str) -> Any:
        """A plain value, or a list of them in brackets."""
        if word.startswith("[") and word.endswith("]") and "+" not in word and "*" not in word:
            inner = word[1:-1].strip()
            parts = re.split(r"\s*,\s*", inner) if inner else []
            return [self.scalar(part) for part in parts]
        if word[:1] in ('"', "'"):
            if len(word) < 2 or word[-1] != word[0]:
                raise self.wrong("a quote is not closed")
            return word[1:-1]
        if word[:1] in ("|", ">", "&", "{", "!") or (word[:1] == "*" and word[1:2].isalpha()):
            raise self.wrong("only keys, lists and plain values are read")
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        if re.fullmatch(r"-?0\d+|-?0[xob]\w+|-?\d[\d_]*_\d+", word):
            raise self.wrong("write numbers in decimals, without a leading zero")
        if re.fullmatch(r"-?\d{1,40}", word):
            return int(word)
        if re.fullmatch(r"-?\d+(\.\d*)?([eE][-+]?\d+)?", word):
            return float(json.loads(word.rstrip(".")))
        return word
