"""``waveplan plan``: every wave of a pool of requests, to its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO, get_args

from waveplan.budget import format_bytes
from waveplan.cli import options
from waveplan.cli.output import refusal, write_json
from waveplan.cli.parser import apart, output_file, picture_file
from waveplan.cli.progress import Progress
from waveplan.cli.status import DONE, INTERRUPTED, REFUSED
from waveplan.composition import ComposedWaves
from waveplan.desk.jobs import Job, Source
from waveplan.files import write_text
from waveplan.report.summary import (
    explanation,
    figures,
    heading,
    memory,
    pads,
    reason,
    states,
    summary,
    unit_of,
)
from waveplan.report.table import Table, integer, show
from waveplan.waves import Order

if TYPE_CHECKING:
    from waveplan.planner import Waves
    from waveplan.wave import Wave

EXAMPLE = """\
  waveplan plan rollouts.jsonl --model qwen3.6-35b-a3b --cp 2 --available 70GiB
  waveplan plan rollouts.npz --model config.json --cp 4 --ep 2 --budget 141GB --json"""

WIDTHS = {"wave": 5, "requests": 8, "tokens": 9, "packed": 8, "saved": 5, "required": 11}
# Columns that only say something of several ranks.
OF_RANKS = {"busiest": 7, "balance": 7}
OF_SHARES = {"DP rank": 7, "DP tokens": 9, "DP time": 7}
LAST = {"not wider because": 0}
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
    parser.add_argument(
        "--order",
        choices=get_args(Order),
        help="which requests go together: those next to one another, dealt to ranks in turn (keep) "
        "or in blocks where these are faster (blocks, the default), or any (free)",
    )
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
    parser.add_argument("--plot", metavar="FILE", help="also draw it: .png, .svg or .pdf")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    return plan(options.job_of(args), options.source_of(args), args)


def plan(job: Job, source: Source, args: argparse.Namespace) -> int:
    """Plan the requests, print waves as they come and return the exit status."""
    html, plot = output_file(args.html), picture_file(args.plot)
    paths = source.path if isinstance(source.path, tuple) else (source.path,)
    apart((html, plot), (*paths, job.model, job.rules))
    planner = job.planner()
    requests = options.read(source, planner.model, strict=job.strict)
    start = time.perf_counter()
    found = planner.waves(requests, on_refusal="skip", order=args.order)
    out: TextIO = sys.stderr if args.json else sys.stdout
    ranks = {**(OF_RANKS if job.cp > 1 else {}), **(OF_SHARES if job.dp > 1 else {})}
    widths = {**WIDTHS, **ranks, **LAST}
    print(heading(job, planner, found), file=out, end="\n\n")
    print(_line(widths, {name: name for name in widths}), file=out, flush=True)
    waves: list[Wave] = []
    interrupted = _stream(found, waves, out, widths, SHOWN if not args.all else None)
    elapsed = time.perf_counter() - start
    print(file=out)
    show(*summary(waves, found, elapsed), out=out)
    options.report_empty(requests, out)
    if args.explain and waves:
        tightest = max(waves, key=lambda wave: wave.required)
        print(file=out)
        show(*explanation(tightest, waves.index(tightest) + 1), out=out)
    if html is not None or plot is not None:
        from waveplan.report.data import collect

        data = collect(job, planner, waves, found)
        if html is not None:
            from waveplan.report.html import page

            write_text(html, page(data))
            print(f"wrote {html}", file=sys.stderr)
        if plot is not None:
            from waveplan.report.plots import overview

            overview(data, plot)
            print(f"wrote {plot}", file=sys.stderr)
    if args.json:
        write_json(
            "plan",
            complete=not interrupted,
            job=job,
            model=job.read(),
            source=source,
            memory=memory(planner, found.doubtful),
            doubtful=states(found.doubtful),
            waves=[{**wave.to_dict(), **figures(wave)} for wave in waves],
            bound=None if interrupted else _bound(found),
            refused=[refusal(item) for item in found.refused],
            empty=list(requests.empty),
            pads=padded[0] if (padded := pads(requests, waves)) else 0,
        )
    if interrupted:
        return INTERRUPTED
    return REFUSED if found.refused or requests.empty else DONE


def _bound(found: Waves) -> dict[str, Any]:
    """What no order beats, and what a composition came to."""
    least = found.bound()
    made: dict[str, Any] = {"waves": least.waves, "packed_tokens": least.tokens, "ms": least.ms}
    if isinstance(found, ComposedWaves):
        names = ("total_ms", "keep_waves", "keep_ms", "gap", "by", "version", "fingerprint")
        made["composition"] = {name: getattr(found.composition, name) for name in names}
    return made


def _stream(
    found: Waves,
    waves: list[Wave],
    out: TextIO,
    widths: dict[str, int],
    most: int | None,
) -> bool:
    """Append waves and print each as it comes; True when Ctrl-C ended it."""
    groups = len(found.pool.group_sizes)
    try:
        with Progress("planning", groups) as progress:
            for wave in found:
                waves.append(wave)
                if most is None or len(waves) <= most:
                    progress.clear()
                    cells = _cells(len(waves), figures(wave), reason(wave))
                    print(_line(widths, cells), file=out, flush=True)
                progress.advance(found.start, detail=f"{integer(len(waves))} waves")
    except KeyboardInterrupt:
        where = f"{unit_of(found.pool)} {integer(found.start)} of {integer(groups)}"
        print(f"interrupted: these waves end at {where}", file=sys.stderr)
        return True
    finally:
        if most is not None and len(waves) > most:
            print(f"{'...':>5}  {integer(len(waves) - most)} more (--all shows them)", file=out)
    return False


def _line(widths: Mapping[str, int], cells: Mapping[str, str]) -> str:
    table = Table("", list(widths), right=widths.keys() - LAST.keys())
    return table.line([cells[name] for name in widths], list(widths.values()))


def _cells(number: int, wave: Mapping[str, Any], stopped: str) -> dict[str, str]:
    packed, logical = wave["packed_tokens"], wave["logical_tokens"]
    return {
        "wave": integer(number),
        "requests": integer(wave["requests"]),
        "tokens": integer(logical),
        "packed": integer(packed),
        "saved": f"{1 - packed / logical if logical else 0.0:.0%}",
        "required": format_bytes(wave["required"]),
        "busiest": integer(wave["busiest"]),
        "balance": f"{wave['balance']:.2f}",
        "DP rank": integer(wave["dp_rank"]),
        "DP tokens": f"{wave['dp_tokens']:.2f}",
        "DP time": f"{wave['dp_time']:.2f}",
        "not wider because": stopped,
    }
