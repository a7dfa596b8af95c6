"""The command ``waveplan``: plan, price and size jobs from a shell.

Exit status: 0 done; 1 done, but some requests can never fit (they are listed); 2 bad input, with
one line on stderr that says what to change; 130 interrupted, after printing what was done so far.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from waveplan.errors import WaveplanError

__all__ = ["main"]

DONE, REFUSED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    from waveplan.cli import bench, check, demo, plan, price, rules, sweep

    commands = (demo, plan, price, sweep, rules, check, bench)
    parser = argparse.ArgumentParser(
        prog="waveplan",
        description="Plan micro-batch waves for LLM post-training: how many requests fit, packed "
        "how, owned by which rank, at what price, and why not one more.",
        epilog="Start with: waveplan demo",
        allow_abbrev=False,
    )
    from waveplan import __version__

    parser.add_argument("--version", action="version", version=f"waveplan {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        command.register(subparsers)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
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
