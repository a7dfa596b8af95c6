"""``waveplan bench``: the time that planning takes here."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from waveplan import checks
from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.cli.parser import whole
from waveplan.cli.status import DONE, INTERRUPTED
from waveplan.desk.jobs import Job, Source
from waveplan.report.table import Table, integer, seconds, show

MOST_RUNS = 1000
EXAMPLE = """\
  waveplan bench
  waveplan bench rollouts.npz --cp 4 --available 64GiB"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "bench",
        "planning cost on this machine",
        "Time the search of one wave, cold, over the bundled or the given sequences.",
        EXAMPLE,
        run,
    )
    options.add_sequences(parser)
    options.add_facts(parser, required=False)
    options.add_budget(parser)
    options.add_rules(parser, margin=True)
    parser.add_argument("--repeat", type=whole, default=7, metavar="N", help="runs (default: 7)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Time and print medians."""
    checks.integer("--repeat", args.repeat, 1, MOST_RUNS)
    named = args.model is not None or args.megatron is not None
    job = options.job_of(args, **({} if named else {"model": "qwen3.6-35b-a3b"}))
    if job.budget is None and job.available is None:
        job = replace(job, available="64GiB")
    if args.tokens is None:
        args.file = args.file or [str(files("waveplan") / "data" / "demo.npz")]
    source = options.source_of(args)
    results, complete = measure(job, source, args.repeat)
    if args.json:
        write_json(
            "bench", complete=complete, job=job, model=job.read(), source=source, seconds=results
        )
        return DONE if complete else INTERRUPTED
    requests = source.requests()
    base = results.get("read the tokens once")
    tokens = integer(int(requests.sequences.lengths.sum()))
    took = ", ".join(f"{name} {seconds(value)}" for name, value in [*results.items()][2:])
    rows = [
        (name, seconds(value), f"{value / base:.1f}" if base else "")
        for name, value in results.items()
    ]
    show(
        f"{took}: {len(requests):,} sequences, {tokens} tokens on {job.ranks_text()}; {job.model}",
        Table("", ("work", "median", "x reading"), rows, right=("median", "x reading")),
        job.model_text(),
    )
    return DONE if complete else INTERRUPTED


def measure(job: Job, source: Source, repeat: int) -> tuple[dict[str, float], bool]:
    """Median seconds of each piece of work, and whether Ctrl-C left all of it done.

    Each run starts from the sequences alone.
    """
    from waveplan.refusal import WaveRefused

    requests = source.requests()
    tokens = requests.sequences.tokens

    def search() -> None:
        try:
            job.planner().wave(requests)
        except WaveRefused:
            # A refusal is searched too, down to the last attempt.
            return

    work: dict[str, Callable[[], object]] = {
        "read the tokens once": lambda: int(np.bitwise_xor.reduce(tokens)),
        "bind the rules": job.planner,
        "first wave, cold": search,
        "all waves": lambda: sum(1 for _ in job.planner().waves(requests, on_refusal="skip")),
    }
    made: dict[str, float] = {}
    with suppress(KeyboardInterrupt):
        for name, call in work.items():
            made[name] = _median(call, repeat)
    return made, len(made) == len(work)


def _median(call: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
