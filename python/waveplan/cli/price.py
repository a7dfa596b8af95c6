"""``waveplan price``: one forward, no search; the tree of terms."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from waveplan.budget import format_bytes
from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.cli.parser import tokens, whole
from waveplan.desk.hints import UNBOUNDED, helps
from waveplan.errors import InputError
from waveplan.pricing import bind, price
from waveplan.report.summary import (
    assumed,
    charges,
    count,
    doubts,
    memory,
    memory_table,
    setting,
    states,
)
from waveplan.report.table import integer, show

if TYPE_CHECKING:
    from waveplan.sequences.requests import Requests

EXAMPLE = """\
  waveplan price --tokens 194753 --requests 10 --model qwen3.6-35b-a3b --cp 2
  waveplan price rollouts.npz --model qwen3.6-35b-a3b --cp 2 --gpu H200"""

MOST_TOKENS, MOST_REQUESTS = 1 << 26, 1 << 20


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "price",
        "one forward, no search: what it requires, by rule",
        "Price one forward over all the given sequences, or over so many unshared tokens; with "
        "data parallelism that of the rank that requires most.",
        EXAMPLE,
        run,
    )
    add_requests(parser)
    options.add_facts(parser)
    parser.add_argument(
        "--stage",
        type=whole,
        metavar="N",
        help="a pipeline stage, from 0 (default: the one that needs the most)",
    )
    parser.add_argument("--explain", action="store_true", help="also show the price, term by term")
    options.add_budget(parser)
    options.add_rules(parser, margin=True)
    options.add_json(parser)


def add_requests(parser: argparse.ArgumentParser) -> None:
    """Add the file of sequences, or a number of tokens instead."""
    options.add_sequences(parser)
    group = parser.add_argument_group("instead of a file")
    group.add_argument(
        "--tokens", type=tokens, metavar="N", help="so many unshared tokens; 128k is 131,072"
    )
    group.add_argument(
        "--requests", type=whole, default=1, metavar="K", help="in K sequences of equal length"
    )


def run(args: argparse.Namespace) -> int:
    """Price and print; exit status 1 when it does not fit."""
    job = options.job_of(args)
    bounded = not (job.budget is job.available is job.device is None)
    if args.stage is not None and bounded:
        raise InputError(
            "--stage prices a stage by itself: leave out --gpu, --budget and --available"
        )
    requests = requests_of(args)
    # Planned without a bound, so that the one forward is priced as it is, not split until it fits.
    planner = options.planner_of(
        job if bounded else replace(job, available=str(UNBOUNDED)), requests
    )
    doubtful = planner.doubtful(requests)
    available = planner.available - planner.kept(planner.available, doubtful)
    plans = planner.plan_shares(requests, available=UNBOUNDED)
    dp_rank = max(range(len(plans)), key=lambda rank: plans[rank].required)
    plan = plans[dp_rank]
    priced = plan.price
    if args.stage is not None:
        stage = bind(*job.facts(), planner.bound.rules, args.stage)
        priced = price(priced.measures, stage)
    fits = plan.required <= available if bounded else None
    out = sys.stderr if args.json else sys.stdout
    parts = memory(planner, doubtful, priced.required)
    if not bounded:
        unknown = ("device", "reserve", "before_margin", "margin", "available", "free")
        parts |= dict.fromkeys(unknown)
    asked = f"{integer(plan.logical_tokens)} tokens"
    if plan.packed_tokens != plan.logical_tokens:
        asked += f", {integer(plan.packed_tokens)} packed,"
    fit = f" of {format_bytes(available)} available and {'' if fits else 'do not '}fit"
    several = []
    if len(plans) > 1:
        several.append(
            f"DP rank {dp_rank} requires most: it runs {integer(len(plan.requests))} of "
            f"{count(len(requests), 'request')}"
        )
    if job.cp > 1:
        busiest = integer(int(plan.rank_tokens.max(initial=0)))
        several.append(f"the busiest CP rank has {busiest} local tokens")
    if requests.padding:
        pads = sum(p.logical_tokens for p in plans) - int(requests.lengths.sum())
        several.append(f"padding: {integer(pads)} of these tokens are pads")
    if option := helps(job, requests, short=fits is False):
        several.append(option)
    show(
        f"{asked} require {format_bytes(priced.required)}{fit if bounded else ''} "
        f"{setting(job, planner, parts)}",
        memory_table(parts, "this forward", doubtful),
        *(("\n".join(several),) if several else ()),
        charges(priced),
        *doubts(doubtful),
        *((priced.explain(),) if args.explain else ()),
        f"{assumed(job, planner)}\n{job.model_text()}",
        out=out,
    )
    options.report_empty(requests, out)
    if args.json:
        write_json(
            "price",
            job=job,
            model=job.read(),
            memory=parts,
            doubtful=states(doubtful),
            fits=fits,
            dp_rank=dp_rank,
            empty=list(requests.empty),
            plan=plan.to_dict(),
            price=priced.to_dict(),
        )
    return 1 if fits is False or requests.empty else 0


def requests_of(args: argparse.Namespace) -> Requests:
    """Return the requests of a file, or generated ones that share nothing."""
    if bool(args.file) == (args.tokens is not None):
        raise InputError("give either a file or --tokens N")
    if not args.file:
        options.refuse_unused(
            args, options.READING, "says how a file is read: give --tokens less, or a file"
        )
    else:
        options.refuse_unused(args, ["requests"], "goes with --tokens, not with a file")
        job = options.job_of(args)
        return options.read(options.source_of(args), job.facts()[0], strict=job.strict)
    import numpy as np

    from waveplan.sequences.requests import Requests
    from waveplan.sequences.sequences import Sequences

    if not 1 <= args.tokens <= MOST_TOKENS:
        raise InputError(f"--tokens is {args.tokens}: give 1 to {MOST_TOKENS:,}")
    most = min(args.tokens, MOST_REQUESTS)
    if not 1 <= args.requests <= most:
        raise InputError(f"--requests is {args.requests}: give 1 to {most:,}, at most --tokens")
    share = np.arange(args.requests + 1, dtype=np.int64) * args.tokens // args.requests
    sequences = Sequences(np.zeros(args.tokens, np.int64), share)
    names = ("top_k", "logits", "hidden", "gradient")
    asked = {name: getattr(args, name) for name in names}
    return Requests(sequences, targets=args.targets != "none", sharing=False, **asked)
