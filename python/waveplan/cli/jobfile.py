"""``--job FILE``: the options of a command, from a TOML file or from what ``--json`` printed."""

from __future__ import annotations

import argparse
import difflib
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waveplan.checks import shown
from waveplan.cli.parser import Switch
from waveplan.desk.jobs import Job
from waveplan.desk.source import Source
from waveplan.errors import InputError
from waveplan.files import read_json

__all__ = ["expand"]

EITHER = (("model", "megatron"), ("budget", "available"))
"""Fields of which a job has one."""
UNPRICED = ("inspect", "models", "rules", "check")
"""Commands that plan and price nothing: they take of a job what they know."""


def expand(argv: list[str], command: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Return the words with the options of ``--job FILE`` in front, and the files that it names.

    Raises:
        InputError: the file cannot be read, or holds what is no field of a job.
    """
    at = next((i for i, word in enumerate(argv) if word.partition("=")[0] == "--job"), None)
    if at is None:
        return argv, []
    _, equals, file = argv[at].partition("=")
    rest = [*argv[1:at], *argv[at + (1 if equals else 2) :]]
    if not equals:
        file = argv[at + 1] if at + 1 < len(argv) else ""
    if not file:
        raise InputError("--job names no file: give a TOML file, or what --json printed")
    values = _read(file)
    given = {word.partition("=")[0] for word in rest}
    for names in EITHER:
        if given & {f"--{name}" for name in names}:
            values = {name: value for name, value in values.items() if name not in names}
    if "megatron" in values:
        values.pop("model", None)
    if values.get("gpus", "--gpus" in given) and given & {"--gpus", "--tp", "--cp", "--pp"}:
        values.pop("dp", None)  # filled anew
    path = values.pop("path", ()) if "--tokens" not in given else ()
    words, unused = [], []
    actions = {action.dest: action for action in command._actions if action.option_strings}
    defaults = {**Job.__dataclass_fields__, **Source.__dataclass_fields__}
    for name, value in values.items():
        if (action := actions.get(name)) is not None:
            words += _words(action, value)
        elif value != defaults[name].default:
            unused.append(name)
    if unused and argv[0] not in UNPRICED:
        print(f"note: {command.prog} does not read {', '.join(unused)} of {file}", file=sys.stderr)
    return [argv[0], *words, *rest], [path] if path and isinstance(path, str) else list(path)


def _read(file: str) -> dict[str, Any]:
    """The fields of a job and of a source that a file states."""
    if Path(file).suffix == ".json":
        made: Any = read_json(file)
    else:
        try:
            made = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            why = getattr(error, "strerror", None) or f'{error}; text is quoted: budget = "80GB"'
            raise InputError(f"{file}: {why}") from None
    if not isinstance(made, Mapping):
        raise InputError(f"{file} holds no job: it must be a table of options")
    known = {**Job.__dataclass_fields__, **Source.__dataclass_fields__}
    if isinstance(made.get("job"), Mapping):
        made = {**made["job"], **(made.get("source") or {})}
        if made.get("megatron") is None:  # whose file's facts a default would change
            made = {
                name: value
                for name, value in made.items()
                if name not in known or value != known[name].default
            }
    values = {str(name).replace("-", "_"): value for name, value in made.items()}
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name[:60], known, n=2)
            meant = f": did you mean {' or '.join(close)}?" if close else ""
            raise InputError(f"{file}: {shown(name)} is no field of a job{meant}")
    return {name: value for name, value in values.items() if value is not None}


def _words(action: argparse.Action, value: Any) -> list[str]:
    flag = action.option_strings[0]
    if isinstance(action, Switch):
        return [flag if value is action.on else action.option_strings[1]]
    if action.dest == "columns":
        return [f"{flag}={pair}" for pair in str(value).split(",") if pair]
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return [f"{flag}={value}"]
