"""``waveplan price``: one forward, no search; the tree of terms."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from waveplan.budget import format_bytes
from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.cli.parser import whole
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

EXAMPLE = """\
  waveplan price --tokens 194753 --requests 10 --model qwen3.6-35b-a3b --cp 2
  waveplan price rollouts.npz --model qwen3.6-35b-a3b --cp 2 --gpu H200"""


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
    options.add_sequences(parser)
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


def run(args: argparse.Namespace) -> int:
    """Price and print; exit status 1 when it does not fit."""
    job = options.job_of(args)
    bounded = not (job.budget is job.available is job.device is None)
    if args.stage is not None and bounded:
        raise InputError(
            "--stage prices a stage by itself: leave out --gpu, --budget and --available"
        )
    source = options.source_of(args)
    requests = options.read(source, job.read_model(), strict=job.strict)
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
    if len(plans) > 1:
        whole = sum(one.logical_tokens for one in plans)
        asked += f" of one rank ({integer(whole)} in {count(len(requests), 'request')})"
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
            source=source,
            memory=parts,
            doubtful=states(doubtful),
            fits=fits,
            dp_rank=dp_rank,
            empty=list(requests.empty),
            plan=plan.to_dict(),
            price=priced.to_dict(),
        )
    return 1 if fits is False or requests.empty else 0
