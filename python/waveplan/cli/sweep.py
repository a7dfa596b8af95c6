"""``waveplan sweep``: one pool of rows over many configurations."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from waveplan.cli import options
from waveplan.cli.output import VERSION, write_json
from waveplan.cli.progress import Progress
from waveplan.cli.render import Table, gigabytes, integer, show
from waveplan.errors import InputError
from waveplan.jobs import Job
from waveplan.sweep import Outcome, jobs, sweep

EXAMPLE = """example:
  waveplan sweep rollouts.npz --model qwen3.6-35b-a3b --cp 1,2,4,8 --available 24GiB,70GiB
  waveplan sweep rollouts.npz --model qwen3.6-35b-a3b --cp 2,4 --ep 1,2 --budget 80GiB,141GB \\
      --output sweep.jsonl --csv sweep.csv --plot sweep.png"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "sweep",
        help="one pool of rows over many topologies, budgets, modes and models",
        description="Plan a pool of rows under every combination of the comma-separated values.",
        epilog=EXAMPLE,
        formatter_class=options.Help,
        allow_abbrev=False,
    )
    options.add_rows(parser)
    axes = parser.add_argument_group("axes: one value, or several with commas between")
    axes.add_argument("--model", required=True, type=_words, metavar="NAME|FILE,...")
    for rank in options.RANKS:
        axes.add_argument(f"--{rank}", type=_integers, default=[1], metavar="N,...")
    axes.add_argument("--recompute", type=_words, default=["full"], metavar="MODE,...")
    axes.add_argument("--lora-rank", type=_integers, default=[8], metavar="R,...")
    axes.add_argument("--rule-set", type=_words, default=["default"], metavar="SET,...")
    memory = axes.add_mutually_exclusive_group(required=True)
    memory.add_argument("--budget", type=_words, metavar="BYTES,...", help="device totals")
    memory.add_argument("--available", type=_words, metavar="BYTES,...", help="free for waves")
    parser.add_argument("--sequence-parallel", action="store_true", help="wherever TP is above 1")
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: cores)")
    parser.add_argument(
        "--output", metavar="FILE", help="JSON lines of what is done; an interrupted sweep resumes"
    )
    parser.add_argument("--csv", metavar="FILE", help="the table as CSV; - prints it")
    parser.add_argument("--plot", metavar="FILE", help="a heat map of the widest wave: .png, .svg")
    options.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan every configuration and print; exit status 1 when one leaves rows unplanned."""
    axes = ["model", "recompute", *options.RANKS, "lora_rank", "rule_set"]
    axes.append("budget" if args.budget else "available")
    configurations = jobs({name: getattr(args, name) for name in axes})
    if args.sequence_parallel:
        from dataclasses import replace

        configurations = [replace(job, sequence_parallel=job.tp > 1) for job in configurations]
    if args.jobs is not None and args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}: it must be at least 1")
    source = options.source_of(args)
    executor = ProcessPoolExecutor(args.jobs) if args.jobs else None
    try:
        with Progress("sweep", len(configurations)) as progress:
            results = sweep(
                source,
                configurations,
                executor=executor,
                output=args.output,
                on_done=lambda done, _total: progress.advance(done),
            )
    finally:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
    if args.csv is not None:
        text = _csv(results)
        if args.csv == "-":
            print(text, end="")
        else:
            Path(args.csv).write_text(text, encoding="utf-8")
    if args.plot is not None:
        from waveplan.report.plots import heat_map

        heat_map(results, Path(args.plot))
    if args.json:
        document = [{**asdict(job), **asdict(outcome)} for job, outcome in results]
        write_json({"version": VERSION, "command": "sweep", "results": document})
    if args.csv != "-":
        show(*_tables(results), out=sys.stderr if args.json else sys.stdout)
    return 0 if all(outcome.status == "ok" for _, outcome in results) else 1


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r}: an empty value between commas")
    return words


def _integers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers with commas between") from None


# Every axis that takes more than one value becomes a column.
AXES: Sequence[tuple[str, Callable[[Job], str]]] = (
    ("model", lambda job: job.model),
    ("ranks", lambda job: job.ranks_text()),
    ("recompute", lambda job: job.recompute),
    ("LoRA", lambda job: str(job.lora_rank)),
    ("rules", lambda job: job.rule_set),
    ("memory", lambda job: job.budget or f"{job.available} free"),
)


def _tables(results: Sequence[tuple[Job, Outcome]]) -> list[Table]:
    axes = [
        (name, value)
        for name, value in AXES
        if name in ("ranks", "memory") or len({value(job) for job, _ in results}) > 1
    ]
    figures = ("waves", "widest", "packed tokens", "rows, busiest rank", "price", "refused")
    table = Table("", [name for name, _ in axes] + list(figures), right=frozenset(figures))
    impossible = Table("impossible", [*(name for name, _ in axes), "reason"])
    for job, outcome in results:
        where = [value(job) for _, value in axes]
        if outcome.status == "impossible":
            impossible.add(*where, outcome.reason)
            continue
        table.add(
            *where,
            integer(outcome.waves),
            integer(outcome.widest),
            integer(outcome.packed_tokens),
            integer(outcome.busiest_rank),
            gigabytes(outcome.required),
            integer(outcome.refused),
        )
    return [table, impossible] if impossible.rows else [table]


def _csv(results: Sequence[tuple[Job, Outcome]]) -> str:
    text = io.StringIO()
    names = [item.name for item in fields(Job)] + [item.name for item in fields(Outcome)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for job, outcome in results:
        writer.writerow({**asdict(job), **asdict(outcome)})
    return text.getvalue()
