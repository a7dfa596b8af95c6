"""``waveplan sweep``: one pool of rows over many configurations."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from waveplan import _values
from waveplan.cli import options
from waveplan.cli.output import VERSION, write_json
from waveplan.cli.parser import apart, output_file, picture_file, share, whole
from waveplan.cli.progress import Progress
from waveplan.cli.render import Table, gigabytes, integer, show
from waveplan.cli.summary import count
from waveplan.errors import InputError
from waveplan.files import write_text
from waveplan.jobs import Job, Source, model_named
from waveplan.sweep import Outcome, jobs, leave, outcomes, process_pool

EXAMPLE = """example:
  waveplan sweep rollouts.npz --model qwen3.6-35b-a3b --cp 1,2,4,8 --available 24GiB,70GiB
  waveplan sweep rollouts.npz --model qwen3.6-35b-a3b --cp 2,4 --ep 1,2 --budget 80GiB,141GB \\
      --csv sweep.csv --plot sweep.png"""


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
    parser.add_argument(
        "--reserve", type=share, default=0.03, metavar="SHARE", help="kept back with --budget"
    )
    parser.add_argument(
        "--margin",
        type=share,
        default=0.1,
        metavar="SHARE",
        help="kept back where a rule is off or unmeasured (default: 0.1)",
    )
    parser.add_argument("--sequence-parallel", action="store_true", help="wherever TP is above 1")
    parser.add_argument("--jobs", type=whole, metavar="N", help="worker processes (default: cores)")
    parser.add_argument("--csv", metavar="FILE", help="the table as CSV; - prints it")
    parser.add_argument("--plot", metavar="FILE", help="a heat map of the widest wave: .png, .svg")
    options.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan every configuration and print; exit status 1 when one leaves rows unplanned."""
    from waveplan.cli import DONE, INTERRUPTED, REFUSED

    wanted = _configurations(args)
    plot = picture_file(args.plot)
    table = None if args.csv == "-" else output_file(args.csv)
    apart((plot, table), (args.rows, *args.model))
    found: dict[int, Outcome] = {}
    interrupted = False
    with _source(args) as source:
        try:
            _plan(source, wanted, args.jobs, found)
        except KeyboardInterrupt:
            interrupted = True
            print(
                f"interrupted: {len(found):,} of {len(wanted):,} configurations are done",
                file=sys.stderr,
            )
    results = [(job, found[i]) for i, job in enumerate(wanted) if i in found]
    if table is not None:
        write_text(table, _csv(results))
    if plot is not None and results:
        from waveplan.report.plots import heat_map

        heat_map(results, plot)
        print(f"wrote {plot}", file=sys.stderr)
    if args.json:
        document = [{**asdict(job), **asdict(outcome)} for job, outcome in results]
        write_json(
            {
                "version": VERSION,
                "command": "sweep",
                "complete": not interrupted,
                "source": asdict(source),
                "results": document,
            }
        )
    if args.csv == "-":
        print(_csv(results), end="")
    show(*_tables(results), out=sys.stderr if args.json or args.csv == "-" else sys.stdout)
    if interrupted:
        return INTERRUPTED
    return DONE if all(outcome.status == "ok" for _, outcome in results) else REFUSED


def _configurations(args: argparse.Namespace) -> list[Job]:
    axes = ["model", "recompute", *options.RANKS, "lora_rank", "rule_set"]
    axes.append("budget" if args.budget else "available")
    made = jobs({name: getattr(args, name) for name in axes})
    common = {name: getattr(args, name) for name in ("reserve", "margin")}
    # A typing error is bad input; only what is well said can be impossible.
    for name in args.model:
        model_named(name)
    for name in options.RANKS:
        for size in getattr(args, name):
            _values.integer(f"--{name}", size, 1, 1 << 20)
    for rank in args.lora_rank:
        _values.integer("--lora-rank", rank, 0, 1 << 20)
    for mode in args.recompute:
        _values.choice("--recompute", mode, ("full", "selective", "none"))
    for name in args.rule_set:
        _values.choice("--rule-set", name, ("default", "published"))
    if args.jobs is not None and args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}: it must be at least 1")
    made = [
        replace(job, sequence_parallel=args.sequence_parallel and job.tp > 1, **common)
        for job in made
    ]
    for job in made:
        job.memory()
    return made


@contextmanager
def _source(args: argparse.Namespace) -> Iterator[Source]:
    """The rows as a file that every worker can read; stdin is saved as one."""
    source = options.source_of(args)
    if args.rows != "-":
        options.read(source)
        yield source
        return
    import numpy as np

    rows = options.read(replace(source, targets="all", limit=None)).rows
    with TemporaryDirectory(prefix="waveplan") as folder:
        path = Path(folder) / "stdin.npz"
        arrays: dict[str, Any] = {"tokens": rows.tokens, "offsets": rows.offsets, **rows.columns}
        np.savez(path, **arrays)
        yield replace(source, path=str(path))


def _plan(
    source: Source,
    wanted: list[Job],
    most: int | None,
    found: dict[int, Outcome],
) -> None:
    """Plan what is missing and fill `found`, with a progress line."""
    pool, whole = process_pool(most or len(wanted)), False
    try:
        with (
            Progress("planning", len(wanted)) as progress,
            closing(outcomes(source, wanted, executor=pool)) as coming,
        ):
            for i, outcome in coming:
                found[i] = outcome
                progress.advance(len(found), detail="configurations")
        whole = True
    finally:
        leave(pool, whole=whole)


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r}: an empty value between commas")
    return words


def _integers(text: str) -> list[int]:
    try:
        return [whole(word.strip()) for word in text.split(",")]
    except argparse.ArgumentTypeError:
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


def _tables(results: Sequence[tuple[Job, Outcome]]) -> list[Table | str]:
    axes = [
        (name, value)
        for name, value in AXES
        if name in ("model", "ranks", "memory") or len({value(job) for job, _ in results}) > 1
    ]
    figures = ("waves", "widest", "packed tokens", "busiest rank", "price", "refused", "rules off")
    table = Table("", [name for name, _ in axes] + list(figures), right=frozenset(figures))
    reasons: dict[tuple[str, str], list[Job]] = {}
    for job, outcome in results:
        if outcome.status == "impossible":
            reasons.setdefault((job.ranks_text(), outcome.reason), []).append(job)
            continue
        table.add(
            *[value(job) for _, value in axes],
            integer(outcome.waves),
            integer(outcome.widest),
            integer(outcome.packed_tokens),
            integer(outcome.busiest_rank),
            gigabytes(outcome.required) if outcome.waves else "",
            integer(outcome.refused),
            integer(outcome.unpriced),
        )
    parts: list[Table | str] = [table] if table.rows else []
    if reasons:
        lines = [f"impossible: {count(sum(map(len, reasons.values())), 'configuration')}"]
        for (ranks, reason), those in reasons.items():
            models = ", ".join(dict.fromkeys(job.model for job in those))
            lines.append(f"  {models} on {ranks} ({len(those)}): {reason}")
        parts.append("\n".join(lines))
    return parts


def _csv(results: Sequence[tuple[Job, Outcome]]) -> str:
    text = io.StringIO()
    names = [item.name for item in fields(Job)] + [item.name for item in fields(Outcome)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for job, outcome in results:
        writer.writerow({**asdict(job), **asdict(outcome)})
    return text.getvalue()
