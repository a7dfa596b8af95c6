"""``waveplan record``: a measured peak as a line that ``waveplan check`` reads."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from waveplan.accuracy.waves import facts_of
from waveplan.budget import format_bytes, parse_bytes
from waveplan.cli import options
from waveplan.desk.hints import UNBOUNDED
from waveplan.errors import InputError
from waveplan.pricing import price

EXAMPLE = """\
  waveplan record batch.jsonl --model qwen3-8b --tp 2 --peak 21.4GiB >> peaks.jsonl
  waveplan check peaks.jsonl"""

TOTAL = 0.7
"""A peak that the estimate is less of may be a total."""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "record",
        "a measured peak as a line of a file that check reads",
        "Print one JSON line: the facts of a job, the measures of one forward over all the given "
        "sequences, and the peak that it had. See docs/own-peaks.md.",
        EXAMPLE,
        run,
    )
    options.add_sequences(parser)
    measured = parser.add_argument_group("measured, the most of all ranks")
    either = measured.add_mutually_exclusive_group(required=True)
    either.add_argument(
        "--peak",
        metavar="BYTES",
        help="most bytes allocated above the level before the forward",
    )
    either.add_argument(
        "--total",
        metavar="BYTES",
        help="most bytes allocated in all, as max_memory_allocated says; needs --resident",
    )
    measured.add_argument(
        "--resident", metavar="BYTES", help="that level: memory_allocated before the forward"
    )
    measured.add_argument(
        "--warm", action="store_true", help="an equal forward and backward ran before it"
    )
    measured.add_argument("--id", help="its name in the report of check")
    options.add_facts(parser)
    options.add(parser, options.JOB["gpu"])
    options.add_rules(parser)


def run(args: argparse.Namespace) -> int:
    """Print the record on stdout, and estimate and peak on stderr."""
    resident = None if args.resident is None else parse_bytes(args.resident, "resident")
    if args.total is None:
        peak = parse_bytes(args.peak, "peak")
    elif resident is None:
        raise InputError("--total needs --resident, the level before the forward; --peak is above")
    elif (peak := parse_bytes(args.total, "total") - resident) <= 0:
        raise InputError(f"--total is {args.total}: it must be above --resident, {args.resident}")
    planner = replace(options.job_of(args, resident=None), available=str(UNBOUNDED)).planner()
    requests = options.read(options.source_of(args), planner.model)
    plans = planner.plan_shares(requests)
    plan = max(plans, key=lambda plan: plan.required)
    record = planner.record(plan, peak, resident, cold=not args.warm, id=args.id)
    print(json.dumps(record), flush=True)
    priced = price(facts_of(record)[1], plan.bound)
    ratio = priced.estimate / peak
    level = "" if resident is None else f" ({format_bytes(resident)})"
    print(
        f"{record['id']}: estimate {format_bytes(priced.estimate)}, {ratio:.3f} of the peak of "
        f"{format_bytes(peak)} above the level before it{level}; required "
        f"{format_bytes(priced.required)}",
        file=sys.stderr,
    )
    if args.total is None and resident is None and ratio < TOTAL:
        print(
            "note: is that peak all that was allocated? then give it as --total, with --resident",
            file=sys.stderr,
        )
    return 0
