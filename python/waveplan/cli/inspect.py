"""``waveplan inspect``: what a file of sequences was understood to hold."""

from __future__ import annotations

import argparse
import sys
from typing import Any, TextIO

from waveplan.budget import format_bytes
from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.cli.progress import Progress
from waveplan.cli.status import DONE, REFUSED
from waveplan.desk.jobs import Source
from waveplan.report.summary import count
from waveplan.report.table import integer, show, width, wrapped
from waveplan.sequences.fit import unfit
from waveplan.sequences.odd import report

EXAMPLE = """\
  waveplan inspect rollouts.jsonl
  waveplan inspect shards/ --column input_ids=ids --model qwen3-8b --json"""

BAR = 40


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "inspect",
        "what files of sequences hold, as they are understood",
        "Read files of sequences and say what was understood: sequences, tokens, labels, groups, "
        "pads dropped, columns, shared prefixes, lengths, and what is odd.",
        EXAMPLE,
        run,
    )
    options.add_files(parser.add_argument_group("sequences"))
    options.add_model(
        parser.add_argument_group("also look at a model's vocabulary and context"), required=False
    )
    options.add(parser, *(options.JOB[name] for name in options.OF_MODEL))
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Read and print; exit status 1 when a sequence is empty."""
    source: Source = options.source_of(args)
    job = options.model_of(args)
    model = None if job is None else job.read_model()
    with Progress(f"reading {source.path_text()}", None, text=format_bytes) as progress:
        sequences = source.sequences(progress.advance)
    found = report(sequences)
    if model is not None:
        found["odd"] += unfit(sequences, model.vocab, model.context)
    refused = found["empty"]["sequences"] and not source.skip_empty
    _show(found, out := sys.stderr if args.json else sys.stdout)
    if job is not None:
        print(job.model_text(), file=out)
    if args.json:
        write_json("inspect", source=source, model=job and job.read(), **found)
    return REFUSED if refused else DONE


def _show(found: dict[str, Any], out: TextIO) -> None:
    def line(name: str, text: str) -> None:
        print("\n".join(wrapped(f"{name:10}  {text}", width(), " " * 12)), file=out)

    pads = f" and {integer(found['pads'])} pads, dropped" if found["pads"] else ""
    show(
        f"{count(found['sequences'], 'sequence')} of {count(found['tokens'], 'token')}{pads}",
        out=out,
    )
    by = " and ".join(found["labels"]) or "no column says which, so all"
    line("labelled", f"{count(found['labelled'], 'token')} ({by})")
    if found["groups"] is not None:
        line("groups", integer(found["groups"]))
    for name, use in found["columns"].items():
        line("column" if name == next(iter(found["columns"])) else "", f"{name}: {use}")
    sharing = found["sharing"]
    line(
        "sharing",
        f"{integer(sharing['packed_tokens'])} tokens once shared prefixes are stored once, "
        f"{sharing['saved']:.0%} saved",
    )
    lengths = found["lengths"]
    line(
        "lengths",
        f"{integer(lengths['min'])} to {integer(lengths['max'])}, median "
        f"{integer(lengths['median'])}; the longest is {lengths['longest']}",
    )
    most = max((part["sequences"] for part in lengths["histogram"]), default=1)
    for part in lengths["histogram"]:
        bar = "#" * max(1, round(BAR * part["sequences"] / most)) if part["sequences"] else ""
        span = f"{integer(part['from'])}-{integer(part['to'])}"
        print(f"{span:>20}  {integer(part['sequences']):>9}  {bar}", file=out)
    empty = found["empty"]
    if empty["sequences"]:
        more = " ..." if empty["sequences"] > len(empty["places"]) else ""
        line("empty", f"{integer(empty['sequences'])}: {'; '.join(empty['places'])}{more}")
    for remark in found["odd"]:
        line("odd", remark)
