"""``waveplan completion``: a script that completes commands, options and values in a shell."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from waveplan.cli import options
from waveplan.facts import models
from waveplan.facts.gpus import GPUS

SHELLS = ("bash", "zsh", "fish")
EXAMPLE = """\
  source <(waveplan completion bash)
  waveplan completion fish > ~/.config/fish/completions/waveplan.fish"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "completion",
        "a script for bash, zsh or fish that completes commands and options",
        "Print a script that completes commands, options and their values.",
        EXAMPLE,
        run,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from waveplan.cli import _parser

    commands = _parser().commands
    print(_fish(commands) if args.shell == "fish" else _bash(commands, args.shell == "zsh"))
    return 0


def _values(action: argparse.Action) -> tuple[str, ...]:
    known = {"model": tuple(models.names()), "gpu": tuple(GPUS)}
    return tuple(map(str, action.choices or known.get(action.dest, ())))


def _bash(commands: Any, zsh: bool) -> str:
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += [
        "_waveplan() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  case "$COMP_CWORD:${COMP_WORDS[1]}:$prev" in',
        f'    1:*) words="{" ".join(commands)}" ;;',
    ]
    for name, parser in commands.items():
        flags = []
        for action in parser._actions:
            flags += action.option_strings
            if action.option_strings and (values := _values(action)):
                match = " | ".join(f"*:{name}:{option}" for option in action.option_strings)
                lines.append(f'    {match}) words="{" ".join(values)}" ;;')
        lines.append(f'    *:{name}:*) words="{" ".join(flags)}" ;;')
    lines += [
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -F _waveplan waveplan",
    ]
    return "\n".join(lines)


def _fish(commands: Any) -> str:
    lines = [
        f"complete -c waveplan -f -n __fish_use_subcommand -a {shlex.quote(' '.join(commands))}"
    ]
    for name, parser in commands.items():
        for action in parser._actions:
            for option in (word for word in action.option_strings if word.startswith("--")):
                about = getattr(action, "about", action.help) or ""
                line = (
                    f"complete -c waveplan -n '__fish_seen_subcommand_from {name}' -l {option[2:]}"
                )
                values = (
                    f" -xa {shlex.quote(' '.join(found))}" if (found := _values(action)) else ""
                )
                taken = "" if action.nargs == 0 or values else " -r"
                lines.append(f"{line}{taken}{values} -d {shlex.quote(about.partition(';')[0])}")
    return "\n".join(lines)
