"""``waveplan plan``: every wave of a pool of rows, to its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from waveplan.cli import options
from waveplan.cli.render import Tree, gigabytes, integer, seconds, show
from waveplan.jobs import Job, Source

if TYPE_CHECKING:
    from waveplan.plan import ForwardGroup
    from waveplan.planner import Planner, Waves
    from waveplan.wave import Wave

EXAMPLE = """example:
  waveplan plan rollouts.jsonl --model qwen3.6-35b-a3b --cp 2 --available 70GiB
  waveplan plan rollouts.npz --model config.json --cp 4 --ep 2 --budget 141GB --json"""

# Heading and width of each column of the running table.
COLUMNS = (
    ("wave", 5),
    ("requests", 9),
    ("tokens", 11),
    ("packed", 11),
    ("shared", 7),
    ("rows, busiest rank", 19),
    ("balance", 8),
    ("price", 11),
)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plan",
        help="every wave of a pool of rows, to its end",
        description="Plan every wave of a pool of token rows and say what stopped each.",
        epilog=EXAMPLE,
        formatter_class=options.Help,
        allow_abbrev=False,
    )
    options.add_rows(parser)
    options.add_facts(parser)
    options.add_budget(parser)
    options.add_prices(parser)
    parser.add_argument(
        "--compatible",
        action="store_true",
        help="the reference planner's decisions, bit for bit, with its prices",
    )
    parser.add_argument(
        "--trust",
        choices=("rules", "profile"),
        default="rules",
        help="what a first wave may grow on: measured rules (default), or observed waves only",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also show the tightest wave: its price, term by term, and its shared segments",
    )
    parser.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    options.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    return plan(
        options.job_of(args),
        options.source_of(args),
        as_json=args.json,
        explain=args.explain,
        html=args.html,
    )


def plan(
    job: Job,
    source: Source,
    *,
    as_json: bool = False,
    explain: bool = False,
    html: str | None = None,
) -> int:
    """Plan the rows and print waves as they come; the exit status of the command."""
    from waveplan.cli import INTERRUPTED

    planner = job.planner()
    requests = source.requests()
    run = planner.waves(requests, on_refusal="skip")
    out: TextIO = sys.stderr if as_json else sys.stdout
    print(_heading(job, planner, requests), file=out)
    print(_line([name for name, _ in COLUMNS], "stopped by"), file=out, flush=True)
    waves: list[Wave] = []
    start = time.perf_counter()
    interrupted = False
    try:
        for wave in run:
            waves.append(wave)
            print(_wave_line(len(waves), wave), file=out, flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: these are the waves planned so far", file=sys.stderr)
    elapsed = time.perf_counter() - start
    print(file=out)
    show(*_summary(job, planner, waves, run, elapsed), out=out)
    if explain and waves:
        tightest = max(waves, key=lambda wave: wave.required)
        print(file=out)
        show(*explanation(tightest, waves.index(tightest) + 1), out=out)
    if html is not None:
        from waveplan.report import write_html

        write_html(Path(html), job=job, planner=planner, waves=waves, run=run)
        print(f"wrote {html}", file=sys.stderr)
    if as_json:
        from waveplan.cli.output import plan_document, write_json

        write_json(plan_document(job, source, planner, waves, run))
    if interrupted:
        return INTERRUPTED
    return 1 if run.refused else 0


def _heading(job: Job, planner: Planner, requests: Any) -> str:
    return (
        f"{len(requests):,} requests, {int(requests.rows.lengths.sum()):,} tokens; "
        f"{job.model} on {job.ranks_text()}, {job.recompute} recompute, "
        f"{'full fine-tuning' if job.full_finetuning else f'LoRA rank {job.lora_rank}'}; "
        f"{gigabytes(planner.limit)} a rank for waves\n"
    )


def _line(cells: Sequence[str], last: str) -> str:
    padded = [cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)]
    return " ".join(padded) + "  " + last


def _wave_line(number: int, wave: Wave) -> str:
    plan = wave.plan
    shared = 1 - plan.packed_tokens / plan.logical_tokens if plan.logical_tokens else 0.0
    rows = plan.rank_rows
    balance = float(rows.max() / rows.mean()) if rows.sum() else 1.0
    cells = [
        str(number),
        integer(len(wave.rows)),
        integer(plan.logical_tokens),
        integer(plan.packed_tokens),
        f"{shared:.0%}",
        integer(int(rows.max(initial=0))),
        f"{balance:.2f}",
        gigabytes(wave.required),
    ]
    return _line(cells, str(wave.stopped))


def _summary(
    job: Job, planner: Planner, waves: list[Wave], run: Waves, elapsed: float
) -> list[str]:
    parts = []
    if waves:
        widest = max(wave.width for wave in waves)
        tightest = max(waves, key=lambda wave: wave.required)
        parts.append(
            f"{len(waves):,} waves, the widest {widest:,} requests, planned in {seconds(elapsed)}; "
            f"the tightest (wave {waves.index(tightest) + 1}) needs "
            f"{gigabytes(tightest.price.required)} of {gigabytes(planner.limit)}"
        )
        off = (*planner.bound.off, *planner.bound.unmeasured)
        if off:
            lines = [
                f"{len(off)} rules do not cover this job as measured; "
                f"a margin of {job.margin:.0%} is kept back for them:"
            ]
            lines += [f"  {item}" for item in off]
            parts.append("\n".join(lines))
    if run.refused:
        lines = [f"{len(run.refused):,} refused: they can never fit on their own"]
        lines += [f"  {item}" for item in run.refused[:20]]
        if len(run.refused) > 20:
            lines.append(f"  ... and {len(run.refused) - 20:,} more (all are in --json)")
        parts.append("\n".join(lines))
    return parts


def explanation(wave: Wave, number: int, screen: int = 16) -> list[Tree | str]:
    """Price tree of a wave and the segments that its groups share, largest savings first."""
    forward = wave.plan.largest
    parts: list[Tree | str] = [f"wave {number}: {wave!r}", forward.price.explain()]
    parts += [_shared(group, index + 1, screen) for index, group in enumerate(forward.groups)]
    return parts


def _shared(group: ForwardGroup, number: int, screen: int) -> Tree:
    """The shared prefixes of a group that save most, and the largest that are not shared."""
    tree, stored = group.tree, group.shared
    decisions = tree.count > 1
    length = tree.end - tree.start
    saved = length * (tree.count - 1)
    proof = "proven best" if group.optimal else f"work within {_gap(group):.2%} of best"
    made = Tree(
        f"group {number}: {int(stored.sum()):,} of {int(decisions.sum()):,} shared prefixes stored "
        f"once; {group.packed_tokens:,} tokens packed; layout {proof}"
    )
    order = [int(i) for i in (-saved).argsort(kind="stable") if decisions[i]]
    for i in order[:screen]:
        run = f"tokens {int(tree.start[i]):,} to {int(tree.end[i]):,}"
        what = f"{run} of {int(tree.count[i]):,} rows: "
        if stored[i]:
            made.add(f"{what}{int(saved[i]):,} tokens saved")
        else:
            made.add(
                f"{what}not stored once: {int(saved[i]):,} tokens replayed cost less than one more "
                "level of segments"
            )
    if len(order) > screen:
        made.add(f"... and {len(order) - screen:,} smaller ones")
    return made


def _gap(group: ForwardGroup) -> float:
    return group.work / group.work_bound - 1 if group.work_bound else 0.0
