"""``waveplan check``: the prices against measured peaks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.cli.parser import picture_file
from waveplan.report.table import show

EXAMPLE = """\
  waveplan check peaks.json
  waveplan check peaks.json --rule-set reference --plot check.png"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "check",
        "price every measured peak of a file: ratios, and what falls below parity",
        "Price each record of a file of measured peaks from its facts alone.",
        EXAMPLE,
        run,
    )
    parser.add_argument(
        "peaks", metavar="PEAKS", help="records of measured peaks: JSON, or one a line"
    )
    options.add_rules(parser)
    parser.add_argument("--plot", metavar="FILE", help="predicted against observed: .png, .svg")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Price the records and print the table."""
    from waveplan.accuracy.check import check

    rules = options.job_of(args, model="").rule_set_of()
    plot = picture_file(args.plot)
    report = check(Path(args.peaks), rules=rules)
    show(*report.parts(), out=sys.stderr if args.json else sys.stdout)
    if plot is not None:
        from waveplan.report.plots import predicted_observed

        predicted_observed(report, plot)
        print(f"wrote {plot}", file=sys.stderr)
    if args.json:
        write_json("check", **report.to_dict())
    return 0
