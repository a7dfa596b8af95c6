"""A parser with errors of one line, and checks of the files that a command writes."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from waveplan.checks import shown
from waveplan.errors import InputError, one_line
from waveplan.files import kind

__all__ = [
    *("Help", "HelpAll", "Parser", "Store", "Switch", "apart", "output_file", "picture_file"),
    *("share", "tokens", "whole"),
]

MOST_NAME = 255
SIZES = ("--available", "--budget", "--resident", "--colocated")
PICTURES = (".png", ".svg", ".pdf")


class Help(argparse.RawDescriptionHelpFormatter):
    """Keep the line breaks of the examples; of a switch show the way that changes something."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, **options)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return (
            action.option_strings[0]
            if isinstance(action, Switch)
            else (super()._format_action_invocation(action))
        )

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        del usage, groups, prefix  # a hundred options are no usage
        words = [f"{one.metavar}" for one in actions if not one.option_strings]
        return f"usage: {' '.join((self._prog, '[OPTIONS]', *words))}\n\n"


class Store(argparse.Action):
    """Stores a value, and its name in ``given``: a value as its default is given too."""

    def __call__(self, _: Any, namespace: Any, values: Any, __: Any = None) -> None:
        """Store."""
        setattr(namespace, self.dest, values)
        _note(namespace, self.dest)


class Switch(argparse.Action):
    """``--name`` and ``--no-name``: the first stores `on`, the second its opposite."""

    def __init__(self, option_strings: Any, dest: str, *, on: bool, **options: Any) -> None:
        (first,) = option_strings
        plain = first.removeprefix("--no-")
        other = f"--{plain}" if plain != first else f"--no-{first[2:]}"
        super().__init__([first, other], dest, nargs=0, **options)
        self.on = on

    def __call__(self, _: Any, namespace: Any, __: Any, option: str | None = None) -> None:
        """Store."""
        setattr(namespace, self.dest, self.on == (option == self.option_strings[0]))
        _note(namespace, self.dest)


class HelpAll(argparse.Action):
    """``--help-all``: help with the options that ``--help`` leaves out."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print and exit."""
        for action in parser._actions:
            action.help = getattr(action, "about", action.help)
        parser.print_help()
        raise SystemExit(0)


def _note(namespace: Any, name: str) -> None:
    namespace.given = {*getattr(namespace, "given", ()), name}


class Parser(argparse.ArgumentParser):
    """One line on stderr and exit status 2 for an option that is wrong, with what was meant."""

    commands: Mapping[str, argparse.ArgumentParser] = {}
    widen: Callable[[list[str], argparse.ArgumentParser], tuple[list[str], list[str]]] | None = None

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like the base class; `widen` adds words to those given, such as a job file's."""
        argv = list(sys.argv[1:] if args is None else args)
        if not argv:
            self.print_help()
            raise SystemExit(0)
        first = argv[0]
        if not first.startswith("-") and first not in self.commands:
            self.error(f"{shown(first)} is no command{_meant(first, self.commands)}")
        command, paths = self.commands.get(first, self), list[str]()
        try:
            _ask_back(argv)
            if self.widen is not None:
                argv, paths = self.widen(argv, command)
            _known(argv, [name for action in command._actions for name in action.option_strings])
        except InputError as error:
            command.error(str(error))
        made, rest = self.parse_known_args(argv, namespace)
        if rest:
            command.error(f"{shown(rest[0])} is no option")
        if paths and made.file == []:
            made.file = paths
        for name, value in vars(made).items():
            # The base class takes ``--option=--`` for an option without its value.
            if (value == [] and name not in ("file", "columns")) or (
                isinstance(value, list) and [] in value
            ):
                command.error(f"argument --{name.replace('_', '-')}: expected one argument")
        return made

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        print(one_line(f"{self.prog}: {message}; see {self.prog} --help"), file=sys.stderr)
        raise SystemExit(2)


def _meant(word: str, among: Iterable[str]) -> str:
    close = difflib.get_close_matches(word[:100], tuple(among), n=2, cutoff=0.6)
    return f": did you mean {' or '.join(close)}?" if close else ""


def _known(argv: Sequence[str], options: Sequence[str]) -> None:
    """Refuse a word that is no option, before one that is missing is asked for."""
    for word in argv[: argv.index("--") if "--" in argv else None]:
        name = word.partition("=")[0]
        if len(name) > 2 and name.startswith("--") and name not in options:
            raise InputError(f"{shown(word)} is no option{_meant(name, options)}")


def _ask_back(argv: Sequence[str]) -> None:
    """Refuse a size that the shell cut in two, as in ``--available 70 GiB``."""
    for option, number, unit in zip(argv, argv[1:], argv[2:], strict=False):
        cut = option in SIZES and re.fullmatch(r"[0-9.]+", number)
        if cut and re.fullmatch(r"[kmgtp]i?b", unit, re.IGNORECASE):
            raise InputError(f"{option} {number} {unit} is two words: write {number}{unit}")


def tokens(text: str) -> int:
    """Return a number of tokens from plain digits or such as ``128k``, which is 131,072."""
    match = re.fullmatch(r"([0-9]{1,12})([kKmM]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 4096 or 128k")
    return int(match[1]) << {"": 0, "k": 10, "m": 20}[match[2].lower()]


def whole(text: str) -> int:
    """Return a whole number from plain digits."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def share(text: str) -> float:
    """Return a finite number; 10% is 0.1."""
    number = text.removesuffix("%")
    try:
        value = float(number) if text.isascii() and len(text) < 100 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 0.1 or 10%")
    return value / 100 if number != text else value


def output_file(text: str | None) -> Path | None:
    """Return the path of a file to write; refuse it before the work is done, not after.

    Raises:
        InputError: its folder does not exist or is read-only, or it is a folder.
    """
    if text is None:
        return None
    path = Path(text)
    try:
        size = len(os.fsencode(path.name))
    except UnicodeEncodeError:
        size = 0
    if "\0" in text or (path.name and not size):
        raise InputError(f"{text} is no file name: it holds what no name can")
    if kind(path) == "folder":
        raise InputError(f"{text} is a folder: name a file")
    if kind(path.parent) != "folder":
        raise InputError(f"{text}: there is no folder {path.parent}")
    # A new file takes the old one's place, so the folder must be writable, unless it is a device.
    where = path if kind(path) == "other" else Path(os.path.realpath(path)).parent
    if not os.access(where, os.W_OK):
        raise InputError(f"{text} cannot be written: {where} is read-only")
    if size > MOST_NAME:
        raise InputError(f"{text}: the name is too long")
    return path


def apart(outputs: Iterable[Path | None], inputs: Iterable[object] = ()) -> None:
    """Refuse an output that is also read, or written twice.

    Raises:
        InputError: names the file.
    """
    # Names under which nothing is are refused where they are read.
    read = {os.path.realpath(str(name)) for name in inputs if name and kind(str(name)) == "file"}
    seen: set[str] = set()
    for path in outputs:
        if path is None or kind(path) == "other":
            continue
        real = os.path.realpath(path)
        if real in read:
            raise InputError(f"{path} is read by this command: name another file to write")
        if real in seen:
            raise InputError(f"{path} would be written twice: name two files")
        seen.add(real)


def picture_file(text: str | None) -> Path | None:
    """Return the path of a picture; refuse one that matplotlib cannot draw."""
    path = output_file(text)
    if path is not None:
        if path.suffix.lower() not in PICTURES:
            raise InputError(f"{text}: the name of a picture must end in {', '.join(PICTURES)}")
        from waveplan.report.plots import require_matplotlib

        require_matplotlib()
    return path
