"""Options shared by the commands, and the job they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from waveplan.budget import format_bytes
from waveplan.cli.parser import Help, share, whole
from waveplan.cli.progress import Progress
from waveplan.errors import InputError
from waveplan.jobs import TARGETS, Job, Source

if TYPE_CHECKING:
    from waveplan.requests import Requests

__all__ = [
    "Help",
    "add_budget",
    "add_facts",
    "add_json",
    "add_prices",
    "add_rows",
    "add_rules",
    "job_of",
    "read",
    "source_of",
]

RANKS = {
    "dp": "data-parallel",
    "tp": "tensor-parallel",
    "cp": "context-parallel",
    "pp": "pipeline-parallel",
    "ep": "expert-parallel",
    "etp": "expert-tensor-parallel",
}


FACTS = (
    *RANKS,
    "sequence_parallel",
    "recompute",
    "recompute_modules",
    "lora_rank",
    "full_finetuning",
    "compiled",
    "gradients_pending",
    "dispatcher",
    "routing",
)
"""Options of `add_facts` that need a model."""
ROWS = ("targets", "top_k", "logits", "hidden", "no_grad", "limit")
"""Options of `add_rows` beside the file."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout and nothing else there"
    )


def add_facts(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Model, ranks and training mode."""
    facts = parser.add_argument_group("model, ranks, training mode")
    facts.add_argument(
        "--model",
        required=required,
        metavar="NAME|FILE",
        help="a bundled model by name, or a Hugging Face config.json",
    )
    for rank, name in RANKS.items():
        facts.add_argument(f"--{rank}", type=whole, default=1, metavar="N", help=f"{name} size")
    facts.add_argument(
        "--sequence-parallel", action="store_true", help="divide the rows of norms over TP"
    )
    facts.add_argument(
        "--recompute",
        choices=("full", "selective", "none"),
        default="full",
        help="activation recomputation (default: full)",
    )
    facts.add_argument(
        "--recompute-modules",
        default="",
        metavar="A,B",
        help="with selective recomputation: what is recomputed",
    )
    facts.add_argument(
        "--lora-rank", type=whole, default=8, metavar="R", help="rank of the adapters (default: 8)"
    )
    facts.add_argument(
        "--full-finetuning", action="store_true", help="train every parameter, no adapters"
    )
    facts.add_argument(
        "--compiled", action="store_true", help="layers run compiled: fused units keep less"
    )
    facts.add_argument(
        "--gradients-pending",
        action="store_true",
        help="adapter gradients are yet to be allocated, by the first backward",
    )
    facts.add_argument(
        "--dispatcher",
        choices=("auto", "alltoall", "hybridep"),
        default="auto",
        help="token dispatcher of the experts (default: alltoall at EP 1, else hybridep)",
    )
    facts.add_argument(
        "--routing",
        choices=("safe", "balanced"),
        default="safe",
        help="rows assumed on the busiest expert rank (default: safe)",
    )


def add_budget(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The device's total, or what is free."""
    memory = parser.add_argument_group("memory of one rank")
    which = memory.add_mutually_exclusive_group(required=required)
    which.add_argument(
        "--budget",
        metavar="BYTES",
        help='the device\'s total, such as "141GB" or "80GiB": weights and what else stays '
        "resident come off, and a reserve",
    )
    which.add_argument("--available", metavar="BYTES", help='free for waves, such as "70GiB"')
    memory.add_argument(
        "--reserve",
        type=share,
        default=0.03,
        metavar="SHARE",
        help="share of the device kept back with --budget (default: 0.03)",
    )


def add_rules(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Which rules price."""
    prices = parser.add_argument_group("prices")
    prices.add_argument(
        "--rule-set",
        choices=("default", "published"),
        default="default",
        help="ours, or what the reference planner charges",
    )
    prices.add_argument("--rules", metavar="FILE", help="a TOML file of rules to add or override")
    return prices


def add_prices(parser: argparse.ArgumentParser) -> None:
    """Which rules price a plan, and what happens where they do not cover it."""
    prices = add_rules(parser)
    prices.add_argument(
        "--margin",
        type=share,
        default=0.1,
        metavar="SHARE",
        help="kept back where a rule is off or unmeasured for the job (default: 0.1)",
    )
    prices.add_argument(
        "--strict", action="store_true", help="refuse where a rule does not cover the job"
    )


def add_rows(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The rows, and what is asked of them."""
    data = parser.add_argument_group("rows")
    data.add_argument(
        "rows",
        metavar="ROWS",
        nargs="?" if optional else None,
        help="token rows: .npz, .jsonl, .parquet or .arrow; - reads JSON lines from stdin",
    )
    data.add_argument(
        "--targets",
        choices=TARGETS,
        default="all",
        help="labelled tokens: all, from each row's first_target on, or none",
    )
    data.add_argument("--top-k", type=whole, metavar="K", help="return the K best tokens too")
    data.add_argument("--logits", action="store_true", help="return full logits too")
    data.add_argument("--hidden", action="store_true", help="return hidden states too")
    data.add_argument("--no-grad", action="store_true", help="forward only, no gradients")
    data.add_argument("--limit", type=whole, metavar="N", help="take the first N rows only")


def job_of(args: argparse.Namespace, **changed: Any) -> Job:
    """The job that the options spell."""
    known = {item.name for item in fields(Job)}
    values = {name: value for name, value in vars(args).items() if name in known}
    return Job(**{**values, **changed})


def refuse_unused(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Complain about an option that would change nothing.

    Raises:
        InputError: one of them has another value than its default.
    """
    for name in names:
        if getattr(args, name) != args.parser.get_default(name):
            raise InputError(f"--{name.replace('_', '-')} {why}")


def source_of(args: argparse.Namespace) -> Source:
    """The rows that the options name."""
    return Source(
        path=args.rows,
        targets=args.targets,
        top_k=args.top_k,
        logits=args.logits,
        hidden=args.hidden,
        gradient=not args.no_grad,
        limit=args.limit,
    )


def read(source: Source) -> Requests:
    """The rows, with a progress line while a long file is read."""
    with Progress(f"reading {source.path}", None, text=format_bytes) as progress:
        return source.requests(progress.advance)
