"""A parser with errors of one line, and checks of the files that a command writes."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from waveplan.errors import InputError, one_line
from waveplan.files import kind

__all__ = ["Help", "Parser", "apart", "output_file", "picture_file", "share", "whole"]

MOST_NAME = 255
PICTURES = (".png", ".svg", ".pdf")


class Help(argparse.RawDescriptionHelpFormatter):
    """Keep the line breaks of the examples."""


class Parser(argparse.ArgumentParser):
    """One line on stderr and exit status 2 for an option that is wrong."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like the base class, which takes ``--option=--`` for an option without its value."""
        made = super().parse_args(args, namespace)
        for name, value in vars(made).items():
            if (value == [] and name not in ("peer", "file", "columns")) or (
                isinstance(value, list) and [] in value
            ):
                option = name.replace("_", "-")
                print(
                    f"{self.prog} {made.command}: argument --{option}: expected one argument; "
                    f"see {self.prog} {made.command} --help",
                    file=sys.stderr,
                )
                raise SystemExit(2)
        return made

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        print(one_line(f"{self.prog}: {message}; see {self.prog} --help"), file=sys.stderr)
        raise SystemExit(2)


def whole(text: str) -> int:
    """Return a whole number from plain digits."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def share(text: str) -> float:
    """Return a finite number."""
    try:
        value = float(text) if text.isascii() and len(text) < 100 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 0.1")
    return value


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
