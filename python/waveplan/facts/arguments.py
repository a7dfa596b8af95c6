"""Megatron arguments by name: from words, a dict, or a file, with typed access.

Every argument is read, known to be harmless, or refused by name; ``megatron.json`` has the lists.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from waveplan.checks import entries, integer, real, shown, text
from waveplan.errors import InputError
from waveplan.facts.formula import evaluate
from waveplan.facts.kinds import LARGEST_SIZE, MOST_LAYERS
from waveplan.facts.yaml import read_yaml
from waveplan.files import kind, read_json, read_text

__all__ = ["Arguments", "Source", "flags", "table"]

Source: TypeAlias = "Sequence[str] | Mapping[str, Any] | str | os.PathLike[str]"

_LIST = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,40}))?")
_NUMBER = r"-?\d{1,40}"
_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)|\$\{(\w+)\[[@*]\]\}")
_MOST_WORDS = 1 << 16
_END = "\0"
"""Among words: no value of the option before follows."""


@cache
def flags() -> dict[str, Any]:
    """The lists: ``switches`` and ``values`` are read, ``harmless`` ones matched by their names,
    ``refused`` have a reason; ``aliases`` are other names, with "!" for the opposite."""
    lists: dict[str, Any] = read_json(Path(__file__).parent / "megatron.json")
    lists["harmless"] = re.compile("|".join(lists["harmless"]))
    return lists


def option(name: str) -> str:
    """A name as it is written on a command line."""
    return f"--{name.replace('_', '-')}"


def table(source: Source) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Arguments that are read, by name with underscores, the options known to be harmless, and what
    of a launch script was left out.

    Raises:
        InputError: an argument is unknown, or one that changes memory in a way that is not read.
    """
    found: dict[str, Any] = {}
    harmless: dict[str, None] = {}
    unknown: list[str] = []
    known, slime, left_out = flags(), False, list[str]()
    for given, value in _pairs(source, left_out):
        slime |= given.startswith("actor_num_")
        name, opposite = given, False
        if (alias := known["aliases"].get(given)) is not None:
            name, opposite = alias.lstrip("!"), alias.startswith("!")
        off = value is None or value is False or value in ([], "", "None")
        if name in known["switches"]:
            found[name] = not _on(given, value) if opposite else _on(given, value)
        elif name in known["values"]:
            if value is True:
                raise InputError(f"{option(given)} needs a value")
            if not off:
                found[name] = value
        elif name in known["refused"] and not off:
            raise InputError(f"{option(given)} is not read: {known['refused'][name]}")
        elif off or known["harmless"].fullmatch(name):
            harmless[option(given)] = None
        else:
            unknown.append(given)
    if unknown:
        raise InputError(_unknown(unknown))
    if slime:
        # What slime sets whatever it is given; it runs packed sequences without a mask.
        found["bf16"] = not found.get("fp16", False)
        found["use_distributed_optimizer"] = True
        found["create_attention_mask_in_dataloader"] = False
        if found.get("moe_token_dispatcher_type", "allgather") == "allgather":
            found["moe_token_dispatcher_type"] = "alltoall"
    return found, tuple(harmless), tuple(left_out)


def _unknown(names: list[str]) -> str:
    known = {*flags()["switches"], *flags()["values"], *flags()["aliases"]}
    close = difflib.get_close_matches(names[0], known, n=2, cutoff=0.8)
    hint = f" (did you mean {' or '.join(map(option, close))}?)" if close else ""
    listed = ", ".join(option(name) for name in dict.fromkeys(names[:8]))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (
        f"{listed}{more}: not known to be read or harmless{hint}; give a copy of the arguments "
        "without what changes neither the model nor its memory"
    )


def _on(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "1", "0"):
        return value.strip().lower() in ("true", "1")
    if value is None or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InputError(f"{option(name)} is a switch, not {shown(value)}")


# -- sources ------------------------------------------------------------------------------------


def _pairs(source: Source, left_out: list[str]) -> list[tuple[str, Any]]:
    if isinstance(source, str | os.PathLike):
        return _file(source, left_out)
    if isinstance(source, Mapping):
        return _items(source)
    if hasattr(source, "__dict__") and not isinstance(source, Iterable):
        return _items(vars(source))  # an argparse.Namespace, as checkpoints hold it
    if not isinstance(source, Iterable):
        raise InputError(
            f"Megatron arguments must be a list of words, a dict or a file, not {shown(source)}"
        )
    words = entries("Megatron arguments", source)
    # Numbers may stand for themselves.
    return _words([str(one) if type(one) is int else text("a word", one) for one in words])


def _items(values: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Names and values; sections of known names are opened."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = _name(key)
        if isinstance(value, Mapping):
            name = name.lower()
            if name not in flags()["sections"]:
                raise InputError(
                    f"{shown(key)} is a section: known are {', '.join(flags()['sections'])}"
                )
            if name not in flags()["sections_left_out"]:
                pairs += _items(value)
        else:
            pairs.append((name, value))
    return pairs


def _file(path: str | os.PathLike[str], left_out: list[str]) -> list[tuple[str, Any]]:
    if kind(path) == "folder":
        raise InputError(f"{path} is a folder: give the file of arguments in it")
    if isinstance(path, str) and path.lstrip().startswith("--"):
        raise InputError("Megatron arguments must be a list of words, a dict or a file: split them")
    suffix = Path(path).suffix.lower()
    try:
        if suffix in (".json", ".yaml", ".yml"):
            value = read_json(path) if suffix == ".json" else read_yaml(path)
            if isinstance(value, list):
                return _words([str(word) for word in value])
            if not isinstance(value, dict):
                raise InputError("it must hold the arguments by name, or a list of words")
            return _items(value)
        pairs = _words(_script(read_text(path), left_out))
        first: dict[str, Any] = {}
        for name, given in pairs:
            if first.setdefault(name, given) != given and name in flags()["values"]:
                raise InputError(
                    f"{option(name)} is {shown(first[name])} and {shown(given)}: leave the one "
                    "that runs"
                )
        return pairs
    except InputError as error:
        message = str(error)
        raise InputError(message if str(path) in message else f"{path}: {message}") from None


def _name(word: object) -> str:
    return str(word).lstrip("-").replace("-", "_")


def _words(words: list[str]) -> list[tuple[str, Any]]:
    """(name, value) of an argv; True for an option without a value, a list for several."""
    if len(words) > _MOST_WORDS:
        raise InputError(f"{len(words)} words: at most {_MOST_WORDS} are read")
    pairs: list[tuple[str, Any]] = []
    switches = flags()["switches"]
    opened = [part for word in words for part in (word.split() if word[:2] == "--" else [word])]
    ended = True
    for word in opened:
        if word == _END:
            ended = True
        elif re.match("--[A-Za-z]", word):
            name, equals, value = word.partition("=")
            pairs.append((_name(name), value if equals else True))
            ended = False
        elif not ended:
            name, value = pairs[-1]
            if flags()["aliases"].get(name, name).lstrip("!") in switches:
                # What follows a switch in a script is the shell's.
                if value is True and word.lower() in ("true", "false"):
                    pairs[-1] = (name, word)
                continue
            several = [*value, word] if isinstance(value, list) else [value, word]
            pairs[-1] = (name, word if value is True else several)
    return pairs


def _script(script: str, left_out: list[str]) -> list[str]:
    """The words of a launch script: arrays and variables that it sets are put in; what it does not
    set, and options of other programs, are left out."""
    plain = re.sub(r"\\\r?\n", " ", script)
    plain = re.sub(r"\s\d?>&\d", " ", plain)
    plain = re.sub(
        r"\$\(\(([^()]*)\)\)", lambda found: "$[" + re.sub(r"[\s$]", "", found[1]) + "]", plain
    )
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as error:
        raise InputError(f"it is not a script that can be split into words: {error}") from None
    variables: dict[str, str] = {}
    left: list[str] = []
    depth = 0
    for word in words:
        name, equals, value = word.partition("=")
        if not set(word) - set("();<>|&\n"):
            # A line or a command ends, but within the parentheses of an array.
            depth = max(0, depth + word.count("(") - word.count(")"))
            left += [_END] * (depth == 0)
        elif equals and re.fullmatch(r"\w+\+?", name) and not word.startswith("--"):
            name, value = name.rstrip("+"), _expanded(value, variables)
            # Branches that set it otherwise leave open which one runs.
            variables[name] = value if variables.get(name, value) == value else ""
        else:
            left.append(word)
    made = list[str]()
    for end, run in itertools.groupby(left, lambda word: word == _END):
        words = [part for word in run for part in _expanded(word, variables).split()]
        made += [_END] if end else _arguments(words, variables.keys(), left_out)
    return made


def _arguments(words: list[str], known: Collection[str], left_out: list[str]) -> list[str]:
    """The words of one command or array without what nothing is known of, which is noted."""
    options = [_name(word.partition("=")[0]) for word in words if word[:2] == "--"]
    lists = flags()
    read = {*lists["switches"], *lists["values"], *lists["aliases"]}
    trains = not read.isdisjoint(options) or any(word.endswith(".py") for word in words)
    if not trains and "".join(words[:1])[:2] != "--":
        if options:
            left_out.append(f"not read, another program's: {shown(' '.join(words))}")
        return []
    made = list[str]()
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        valued = before[:2] == "--" and "=" not in before and _name(before) not in lists["switches"]
        unset = re.fullmatch(r"\$\{?([@*]|\w+)(\[[@*]\])?\}?", word)
        if unset is None or valued or unset[1] in known:
            made.append(word)
        else:  # the shell puts nothing there
            left_out.append(f"{word} is not set in the script: taken as empty")
    return made


def _expanded(word: str, variables: dict[str, str]) -> str:
    """A word with the variables put in that are set, or have a default where they stand."""

    def put(found: re.Match[str]) -> str:
        return variables.get(found[1] or found[3] or "") or found[2] or found[0]

    def reckoned(found: re.Match[str]) -> str:
        try:
            whole = {name: int(value) for name, value in variables.items() if value.isdecimal()}
            return str(int(evaluate(found[1].replace("/", "//"), whole)))
        except (SyntaxError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return found[0]

    return re.sub(r"\$\[([\w+*/%-]{1,80})\]", reckoned, _VARIABLE.sub(put, word))


# -- values -------------------------------------------------------------------------------------


class Arguments:
    """Typed access; absent needed names are collected, and the names that were asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.missing: list[str] = []

    def _value(self, name: str) -> Any:
        value = self.values.get(name)
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, str) and "$" in value:
            raise InputError(
                f"{option(name)} is {shown(value)}: a variable that is not set here"
                ", or to two values"
            )
        return value

    def number(self, name: str, absent: int = 0, least: int = 0) -> int:
        """An integer; ``absent`` without one."""
        value = self._value(name)
        if value is None:
            return absent
        if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        most = MOST_LAYERS if name == "num_layers" else LARGEST_SIZE
        return integer(option(name), value, least, most)

    def share(self, name: str, absent: float) -> float:
        """A number within [0, 1]."""
        value = self._value(name)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise InputError(f"{option(name)} must be a number, not {shown(value)}") from None
        return absent if value is None else real(option(name), value, 0, 1)

    def need(self, name: str, least: int = 1) -> int:
        """Like number; an absent name is noted and read as 1 until all are known."""
        if self.values.get(name) is None:
            self.missing.append(option(name))
            return 1
        return self.number(name, least=least)

    def on(self, name: str, absent: bool = False) -> bool:
        """A switch."""
        value: bool = self.values.get(name, absent)
        return value

    def word(self, name: str, absent: str) -> str:
        """Text; the class of an enumeration is left out."""
        value = self._value(name)
        if value is not None and not isinstance(value, str | list | tuple | bool):
            value = str(value)
        return (
            absent if value is None else text(option(name), value).rpartition(".")[2].strip("'\"")
        )

    def words(self, name: str) -> tuple[str, ...]:
        """Several words, however they are written."""
        value = self.values.get(name)
        if value is None:
            return ()
        listed = value if isinstance(value, list | tuple) else [value]
        return tuple(
            part for one in listed for part in re.split(r"[\s,]+", str(one).strip("[]")) if part
        )

    def pattern(self, name: str, layers: int, absent: int = 1) -> int | tuple[bool, ...]:
        """A period, or a flag a layer from a list or from text such as ``([0]*3+[1]*58)``."""
        value = self.values.get(name, absent)
        if isinstance(value, list | tuple) and not all(isinstance(one, str) for one in value):
            marks = [bool(integer(option(name), one, 0, 1)) for one in value]
        elif isinstance(value, str | list | tuple):
            marks = self._marks(name, value if isinstance(value, str) else "".join(value), layers)
        else:
            return integer(option(name), value, 1)
        if not marks:
            return self.number(name, least=1)
        if "--num-layers" in self.missing:
            return 1
        if len(marks) != layers:
            raise InputError(f"{option(name)} has {len(marks)} entries for {layers} layers")
        return tuple(marks)

    def _marks(self, name: str, value: str, layers: int) -> list[bool]:
        if re.fullmatch(_NUMBER, value.strip()):
            return []
        plain = re.sub(r"[\s'\"]", "", value)
        # One pair of parentheses around the whole sum is Megatron's own way to write it.
        inner = plain[1:-1] if plain.startswith("(") and plain.endswith(")") else plain
        marks: list[bool] = []
        for term in inner.split("+"):
            match = _LIST.fullmatch(term)
            if match is None:
                raise InputError(
                    f"{option(name)} is {shown(value)}: write a number or [0]*3+[1]*58"
                )
            once = [digit == "1" for digit in match[1].split(",")]
            marks += once * min(int(match[2] or 1), layers + 1)
        return marks
