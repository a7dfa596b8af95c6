"""``waveplan demo``: bundled rollouts on a bundled model."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import Any

from waveplan.cli import options, plan
from waveplan.cli.parser import whole
from waveplan.desk.jobs import Job, Source

EXAMPLE = """\
  waveplan demo
  waveplan demo --cp 4 --available 24GiB --explain"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "demo",
        "bundled rollouts on a bundled model: the waves, and why each stopped",
        "Plan bundled agent rollouts (98 sequences, 694,654 tokens) on Qwen3.6-35B-A3B.",
        EXAMPLE,
        run,
    )
    parser.add_argument("--cp", type=whole, default=2, metavar="N", help="context-parallel size")
    parser.add_argument(
        "--available",
        default="40GiB",
        metavar="BYTES",
        help="bytes that waves may use (default: 40GiB)",
    )
    plan.add_outputs(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Plan the bundled rollouts and print."""
    job = Job(model="qwen3.6-35b-a3b", cp=args.cp, available=args.available)
    with as_file(files("waveplan") / "data" / "demo.npz") as path:
        return plan.plan(job, Source(path=str(path)), args)
