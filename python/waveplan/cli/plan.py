"""``waveplan plan``: every wave of a pool of requests, to its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from waveplan.cli import options
from waveplan.cli.output import provenance, refusal, write_json
from waveplan.cli.parser import apart, output_file, picture_file
from waveplan.cli.progress import Progress
from waveplan.cli.status import DONE, INTERRUPTED, REFUSED
from waveplan.composition import ComposedWaves
from waveplan.desk.hints import helps
from waveplan.desk.jobs import Job, Source
from waveplan.files import write_text
from waveplan.refusal import cut
from waveplan.report.summary import (
    answer,
    assumed,
    explanation,
    figures,
    memory,
    memory_table,
    pads,
    setting,
    states,
    summary,
    unit_of,
    wave_figures,
    wave_table,
)
from waveplan.report.table import Table, integer, show

if TYPE_CHECKING:
    from waveplan.planner import Waves
    from waveplan.sequences.requests import Requests
    from waveplan.wave import Wave

EXAMPLE = """\
  waveplan plan rollouts.jsonl --model qwen3.6-35b-a3b --cp 2 --available 70GiB
  waveplan plan rollouts.npz --model config.json --cp 4 --ep 2 --gpu H200 --json"""

SHOWN = 40


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "plan",
        "every wave of a pool of requests, to its end",
        "Plan every wave of a file of sequences and say what stopped each.",
        EXAMPLE,
        run,
    )
    options.add_sequences(parser)
    options.add_facts(parser)
    options.add_budget(parser)
    options.add_rules(parser, margin=True)
    options.add_plan(parser)
    add_outputs(parser)
    options.add_json(parser)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options of further outputs."""
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also show the tightest wave: its price, term by term, and its shared prefixes",
    )
    parser.add_argument("--all", action="store_true", help=f"show more than {SHOWN} waves")
    parser.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    parser.add_argument("--date", metavar="TEXT", help="a date to write on the page")
    parser.add_argument("--plot", metavar="FILE", help="also draw it: .png, .svg or .pdf")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    return plan(options.job_of(args), options.source_of(args), args)


def plan(job: Job, source: Source, args: argparse.Namespace) -> int:
    """Plan the requests, print waves as they come and return the exit status."""
    html, plot = output_file(args.html), picture_file(args.plot)
    paths = source.path if isinstance(source.path, tuple) else (source.path,)
    apart((html, plot), (*paths, job.model, job.rules))
    planner = options.planner_of(job)
    requests = options.read(source, planner.model, strict=job.strict)
    start = time.perf_counter()
    with Progress("planning", len(requests.group_sizes)):  # a composition looks at all of them
        found = job.waves(planner, requests)
    out: TextIO = sys.stderr if args.json else sys.stdout
    waves: list[Wave] = []
    interrupted = _collect(found, waves)
    elapsed = time.perf_counter() - start
    tightest = max(waves, key=lambda wave: wave.required, default=None)
    parts = memory(planner, found.doubtful, None if tightest is None else tightest.required)
    if args.json:
        write_json(
            "plan",
            complete=not interrupted,
            job=job,
            model=job.read(),
            source=source,
            memory=parts,
            doubtful=states(found.doubtful),
            waves=[{**wave.to_dict(), **figures(wave)} for wave in waves],
            bound=None if interrupted else _bound(found),
            refused=[refusal(item) for item in found.refused],
            empty=list(requests.empty),
            pads=padded[0] if (padded := pads(requests, waves)) else 0,
        )
    hardest, short = _forward(found, tightest)
    option = helps(job, hardest, short=short)
    place = "" if tightest is None else f"wave {waves.index(tightest) + 1}, the tightest"
    show(
        f"{answer(waves, found, not interrupted)} {setting(job, planner, parts)}",
        *((_table(waves, None if args.all else SHOWN),) if waves else ()),
        *summary(waves, found, elapsed),
        *((option,) if option else ()),
        memory_table(parts, place, found.doubtful),
        f"{assumed(job, planner, waves)}\n{job.model_text()}",
        out=out,
    )
    options.report_empty(requests, out)
    if args.explain and tightest is not None:
        print(file=out)
        show(*explanation(tightest, waves.index(tightest) + 1), out=out)
    if html is not None or plot is not None:
        from waveplan.report.data import collect

        data = collect(job, planner, waves, found, provenance(args, source))
        if html is not None:
            from waveplan.report.html import page

            write_text(html, page(data))
            print(f"wrote {html}", file=sys.stderr)
        if plot is not None:
            from waveplan.report.plots import overview

            overview(data, plot)
            print(f"wrote {plot}", file=sys.stderr)
    if interrupted:
        return INTERRUPTED
    return REFUSED if found.refused or requests.empty else DONE


def _forward(found: Waves, tightest: Wave | None) -> tuple[Requests | None, bool]:
    """Requests for a hint, and whether they do not fit: the hardest refused, or the tightest."""
    if found.refused:
        hardest = max(found.refused, key=lambda item: item.required).plan
    elif tightest is None:
        return None, False
    else:
        hardest = tightest.plan
    lengths = found.pool.lengths[hardest.requests]
    return cut(found.pool, hardest.requests, int(lengths.max())), bool(found.refused)


def _bound(found: Waves) -> dict[str, Any]:
    """What no order beats, and what a composition came to."""
    least = found.bound()
    made: dict[str, Any] = {"waves": least.waves, "packed_tokens": least.tokens, "ms": least.ms}
    if isinstance(found, ComposedWaves):
        names = ("total_ms", "keep_waves", "keep_ms", "gap", "by", "version", "fingerprint")
        made["composition"] = {name: getattr(found.composition, name) for name in names}
    return made


def _collect(found: Waves, waves: list[Wave]) -> bool:
    """Append the waves as they come; True when Ctrl-C ended them."""
    groups = len(found.pool.group_sizes)
    try:
        with Progress("planning", groups) as progress:
            for wave in found:
                waves.append(wave)
                progress.advance(found.start, detail=f"{integer(len(waves))} waves")
    except KeyboardInterrupt:
        where = f"{unit_of(found.pool)} {integer(found.start)} of {integer(groups)}"
        print(f"interrupted: these waves end at {where}", file=sys.stderr)
        return True
    return False


def _table(waves: Sequence[Wave], most: int | None) -> Table:
    """The first waves."""
    table = wave_table([wave_figures(wave, i) for i, wave in enumerate(waves[:most])])
    if more := len(waves) - len(table.rows):
        rest = f"{integer(more)} more: --all shows them"
        table.add("...", *[""] * (len(table.columns) - 2), rest)
    return table
