"""The command ``waveplan``: plan, price and size jobs from a shell.

Exit status: 0 done; 1 done, but some items were refused (they are listed); 2 bad input, with one
line on stderr that says what to change; 130 interrupted, after printing what was done so far.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from waveplan.cli.parser import Help, Parser
from waveplan.errors import InternalError, WaveplanError

__all__ = ["main"]

DONE, REFUSED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
BUG = 70

EPILOG = """start with:
  waveplan demo
  waveplan COMMAND --help

exit status: 0 done; 1 some requests or configurations were refused, they are listed and the rest
is planned; 2 bad input, one line says what to change; 130 interrupted, with what was done so far"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        args = _parser().parse_args(argv)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else DONE
    try:
        status = int(args.run(args))
        sys.stdout.flush()
    except InternalError as error:
        print(f"waveplan {args.command}: a bug in waveplan: {error}", file=sys.stderr)
        return BUG
    except WaveplanError as error:
        print(f"waveplan {args.command}: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"waveplan {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; a second error while closing is no news either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        print(f"waveplan {args.command}: {where}{reason}", file=sys.stderr)
        return BAD_INPUT
    return status


def _parser() -> Parser:
    from waveplan import __version__
    from waveplan.cli import bench, check, demo, plan, price, rules, sweep

    parser = Parser(
        prog="waveplan",
        description="Plan micro-batch waves for LLM post-training: how many requests fit, packed "
        "how, owned by which rank, at what price, and why not one more.",
        epilog=EPILOG,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"waveplan {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (demo, plan, price, sweep, rules, check, bench):
        command.register(subparsers)
    return parser
