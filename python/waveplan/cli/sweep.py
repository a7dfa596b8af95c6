"""``waveplan sweep``: one pool of requests over many configurations."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from waveplan.cli import options
from waveplan.cli.output import provenance, write_json
from waveplan.cli.parser import apart, output_file, whole
from waveplan.cli.progress import Progress
from waveplan.cli.status import DONE, INTERRUPTED, REFUSED
from waveplan.desk.jobs import Job, Source
from waveplan.desk.step import ASSUMED
from waveplan.desk.sweep import Outcome, best, jobs, outcomes
from waveplan.errors import InputError
from waveplan.facts.topology import RANKS
from waveplan.files import write_text
from waveplan.report.summary import count
from waveplan.report.sweep import LISTED, SHOWN, collect, page, table
from waveplan.report.table import Table, integer, show
from waveplan.sequences.fit import check_vocabulary

AXES = ("model", "recompute", "gpus", *RANKS, "lora_rank", "rule_set", "gpu", "budget", "available")
"""Options that take several values; the first varies slowest."""
SWEPT = {"tp": 8, "cp": 1 << 10, "pp": 8, "ep": 1 << 10}
"""Ranks that are swept where --gpus is given and no ranks, by powers of two: the most of each."""
EXAMPLE = """\
  waveplan sweep rollouts.npz --model qwen3-8b --gpus 8 --gpu H100
  waveplan sweep --tokens 128k --requests 8 --model qwen3-32b --gpus 8,16 --gpu H100,H200
  waveplan sweep rollouts.npz --model qwen3.6-35b-a3b --cp 2,4 --ep 1,2 --budget 80GiB,141GB \\
      --html sweep.html --csv sweep.csv"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "sweep",
        "one pool of requests over many topologies, budgets, modes and models",
        "Plan a pool of requests under every combination of values, and mark the one with the "
        "least modelled time a token. Options written N,... take several values with commas "
        "between. With --gpus every combination fills that many GPUs by data parallelism; without "
        "any ranks besides, TP, CP, PP and EP take powers of two. Sequence parallelism is on where "
        "TP is above 1, unless --no-sequence-parallel.",
        EXAMPLE,
        run,
    )
    options.add_sequences(parser)
    options.add_facts(parser, axes=AXES)
    options.add_budget(parser, axes=AXES)
    options.add_rules(parser, margin=True, axes=AXES)
    options.add_plan(parser)
    parser.add_argument("--jobs", type=whole, metavar="N", help="worker processes (default: cores)")
    parser.add_argument("--all", action="store_true", help=f"show more than {SHOWN} configurations")
    parser.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    parser.add_argument("--date", metavar="TEXT", help="a date to write on the page")
    parser.add_argument("--csv", metavar="FILE", help="the table as CSV; - prints it")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Plan every configuration and print; exit status 1 when one leaves requests unplanned."""
    wanted = _configurations(args)
    html = output_file(args.html)
    sheet = None if args.csv == "-" else output_file(args.csv)
    apart((html, sheet), (*args.file, *args.model))
    found: dict[int, Outcome] = {}
    interrupted = False
    with _source(args, wanted) as source:
        try:
            with (
                Progress("planning", len(wanted)) as progress,
                closing(outcomes(source, wanted, workers=args.jobs)) as coming,
            ):
                for i, outcome in coming:
                    found[i] = outcome
                    progress.advance(len(found), detail="configurations")
        except KeyboardInterrupt:
            interrupted = True
            print(
                f"interrupted: {len(found):,} of {len(wanted):,} configurations are done",
                file=sys.stderr,
            )
        origin = provenance(args, options.source_of(args))
    results = [(job, found[i]) for i, job in enumerate(wanted) if i in found]
    if sheet is not None:
        write_text(sheet, _csv(results))
    read = {job.model: job for job in wanted}
    swept = _swept(args)
    data = collect(results, [job.model_text() for job in read.values()], origin, swept)
    if html is not None:
        write_text(html, page(data))
        print(f"wrote {html}", file=sys.stderr)
    if args.json:
        models = [{"model": name, **job.read()} for name, job in read.items()]
        write_json(
            "sweep",
            complete=not interrupted,
            source=source,
            models=models,
            assumed=ASSUMED,
            best=best(results),
            results=[{**asdict(job), **asdict(outcome)} for job, outcome in results],
        )
    if args.csv == "-":
        print(_csv(results), end="")
    out = sys.stderr if args.json or args.csv == "-" else sys.stdout
    show(*_text(data, None if args.all else SHOWN), out=out)
    if interrupted:
        return INTERRUPTED
    return REFUSED if any(out.status in ("partial", "refused") for _, out in results) else DONE


def _configurations(args: argparse.Namespace) -> list[Job]:
    """Every combination, of what is well said: only that can be impossible."""
    args.model = args.model or [args.megatron]
    options.check(args)
    if args.jobs is not None and args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}: it must be at least 1")
    axes = {name: getattr(args, name) for name in AXES if getattr(args, name)}
    swept = _swept(args)
    most = max(args.gpus or (1,))
    for name in swept:
        axes[name] = [1 << i for i in range(min(SWEPT[name], most).bit_length())]
    common = {name: value for name, value in vars(args).items() if name in options.JOB}
    made = []
    for job in jobs(axes):
        values = options.complete(args, common | {name: getattr(job, name) for name in axes})
        if args.megatron is None and "sequence_parallel" not in args.given:
            values["sequence_parallel"] = True
        values["sequence_parallel"] &= values["tp"] > 1
        made.append(Job(**values))
    for job in {job.model: job for job in made}.values():
        job.read_model()
    for job in made:
        job.memory()
    return [job for job in made if _divides(job)] or made if swept else made


def _swept(args: argparse.Namespace) -> list[str]:
    """The ranks that are swept without being named."""
    stated = not args.gpus or args.megatron is not None or not args.given.isdisjoint(RANKS)
    return [] if stated else list(SWEPT)


def _divides(job: Job) -> bool:
    """Whether the model and the GPUs can be divided so."""
    try:
        job.facts()
    except InputError:
        return False
    return True


@contextmanager
def _source(args: argparse.Namespace, jobs: Sequence[Job]) -> Iterator[Source]:
    """Return the source as a file that every worker can read; stdin is saved as one."""
    source = options.source_of(args)
    if "-" not in args.file:
        first, *others = {job.model: job for job in jobs}.values()
        requests = options.read(source, first.read_model())
        for job in others:
            check_vocabulary(requests.sequences, job.read_model().vocab)
        yield source
        return
    import numpy as np

    read = replace(source, limit=None).sequences()
    with TemporaryDirectory(prefix="waveplan") as folder:
        path = Path(folder) / "stdin.npz"
        arrays: dict[str, Any] = {"tokens": read.tokens, "offsets": read.offsets, **read.columns}
        if read.labelled is not None:
            arrays["loss_mask"] = read.labelled
        np.savez(path, **arrays)
        yield replace(source, path=str(path), columns="", pad=None)


def _text(data: dict[str, Any], most: int | None) -> list[Table | str]:
    """The answer, the table, what cannot be, and what is assumed."""
    made = table(data, most)
    if more := len(data["rows"]) - len(made.rows):
        made.add("...", f"{integer(more)} more: --all", *[""] * (len(made.columns) - 2))
    said = "\n".join((data["answer"], *data["setting"]))
    parts: list[Table | str] = [said, *([made] if made.rows else [])]
    if data["notes"]:
        parts.append("\n".join(data["notes"]))
    if left := [row for row in data["rows"] if row["status"] != "ok"]:
        lines = ["partial: some requests can never fit; refused: none fits"]
        lines += [f"  {row['name']}: {row['reason']}" for row in left[:LISTED]]
        lines += [f"  and {len(left) - LISTED} more"] * (len(left) > LISTED)
        parts.append("\n".join(lines))
    if data["impossible"]:
        number = sum(item["number"] for item in data["impossible"])
        lines = [f"impossible: {count(number, 'configuration')}"]
        lines += [
            f"  {'; '.join(item['configurations'])}: {item['reason']}"
            for item in data["impossible"]
        ]
        parts.append("\n".join(lines))
    return [*parts, f"assumed: {data['assumed']}", "\n".join(data["models"])]


def _csv(results: Sequence[tuple[Job, Outcome]]) -> str:
    text = io.StringIO()
    names = [item.name for item in fields(Job)] + [item.name for item in fields(Outcome)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for job, outcome in results:
        writer.writerow({**asdict(job), **asdict(outcome)})
    return text.getvalue()
