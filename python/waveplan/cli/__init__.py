"""The command ``waveplan``: plan, price and size jobs from a shell.

Exit status: 0 done; 1 done, but some requests were refused (they are listed); 2 bad input, with one
line on stderr that says what to change; 130 interrupted, after printing what was done so far.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Sequence

from waveplan.cli.output import WRITTEN, write_json
from waveplan.cli.parser import Help, Parser
from waveplan.cli.status import BAD_INPUT, BUG, DONE, INTERRUPTED
from waveplan.cli.streams import discard_stdout, streams
from waveplan.errors import InternalError, WaveplanError, one_line

__all__ = ["main"]

EPILOG = """start with:
  waveplan demo
  waveplan COMMAND --help
words that it prints: docs/words.md

exit status: 0 done; 1 some requests or configurations were refused, they are listed and the rest
is planned; 2 bad input, one line says what to change; 130 interrupted, with what was done so far"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    with streams():
        name, args = "waveplan", None
        WRITTEN.clear()
        try:
            words = sys.argv[1:] if argv is None else argv
            args = _parser(words[0] if words else "").parse_args(words)
            args.line = shlex.join(["waveplan", *words])
            name = f"waveplan {args.command}"
            status = int(args.run(args))
            sys.stdout.flush()
            return status
        except SystemExit as leaving:
            return _leave(leaving)
        except BrokenPipeError:
            # The reader (head, less) has seen enough.
            discard_stdout()
            return DONE
        except KeyboardInterrupt:
            _say(f"{name}: interrupted")
            if args is not None and getattr(args, "json", False) and not WRITTEN:
                write_json(args.command, complete=False)
            return INTERRUPTED
        except InternalError as error:
            _say(f"{name}: a bug in waveplan: {error}")
            return BUG
        except WaveplanError as error:
            _say(f"{name}: {error}")
        except MemoryError:
            _say(f"{name}: there is not enough memory for this input")
        except OSError as error:
            discard_stdout()  # it may be the one that is full
            where = f"{error.filename}: " if error.filename else ""
            _say(f"{name}: {where}{error.strerror or error}")
        return BAD_INPUT


def _say(text: str) -> None:
    print(one_line(text), file=sys.stderr)


def _leave(leaving: SystemExit) -> int:
    """Return the exit status after help, the version or an error of the parser."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_stdout()
    return leaving.code if isinstance(leaving.code, int) else DONE


COMMANDS = (
    *("demo", "plan", "price", "sweep", "inspect", "rules", "models", "record", "check", "bench"),
    "completion",
)


def _parser(command: str = "") -> Parser:
    """The parser of one command, or of all where there is no such command."""
    from waveplan import __version__
    from waveplan.cli.jobfile import expand

    parser = Parser(
        prog="waveplan",
        description="Plan micro-batch waves for LLM post-training: how many requests fit, packed\n"
        "how, owned by which rank, at what price, and why not one more.",
        epilog=EPILOG,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"waveplan {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog=parser.prog
    )
    for name in (command,) if command in COMMANDS else COMMANDS:
        importlib.import_module(f"waveplan.cli.{name}").register(subparsers)
    parser.commands, parser.widen = subparsers.choices, expand
    return parser
