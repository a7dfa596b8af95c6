"""Options of the commands, made from the fields of `Job` and `Source`, and their values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, TextIO

from waveplan.budget import format_bytes, parse_bytes
from waveplan.cli.parser import Help, HelpAll, Store, Switch, share, tokens, whole
from waveplan.cli.progress import Progress
from waveplan.desk.hints import helps
from waveplan.desk.jobs import Job, Source, megatron_values
from waveplan.errors import InputError, NothingLeftError
from waveplan.facts.fields import checked
from waveplan.facts.gpus import GPUS
from waveplan.report.table import width, wrapped
from waveplan.sequences.fit import read_as, unfit
from waveplan.sequences.odd import padded

if TYPE_CHECKING:
    from waveplan.facts.model import Model
    from waveplan.planner import Planner
    from waveplan.sequences.requests import Requests

JOB: dict[str, Field[Any]] = {item.name: item for item in fields(Job)}
SOURCE: dict[str, Field[Any]] = {item.name: item for item in fields(Source) if item.name != "path"}
MORE = [name for name in JOB if "option" not in JOB[name].metadata]
"""Facts that few jobs state: options that ``--help-all`` alone shows."""
FACTS = [name for name in JOB if JOB[name].metadata.get("option") == "facts"] + MORE
"""Options of a job that need a model."""
READING = ("columns", "pad", "skip_empty", "limit")
"""Options of a source that say how its files are read."""
SHOWN = 10
OF_MODEL = ("like", "dtype", "gpus", "padded_vocab")
"""Options of a model alone."""
TYPES = {"tokens": tokens, "whole": whole, "share": share, "text": str, "word": str}


def command(
    subparsers: Any, name: str, summary: str, description: str, example: str, run: Any
) -> argparse.ArgumentParser:
    """Add a command and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description="\n".join(wrapped(description, width(), "")),
        epilog=f"example:\n{example}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--help-all", action=HelpAll, nargs=0, help="show every option, those of few jobs too"
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def _flag(item: Field[Any]) -> str:
    plain = item.name.replace("_", "-")
    flag: str = item.metadata.get("flag", f"--no-{plain}" if item.default is True else f"--{plain}")
    return flag


def add(parser: Any, *items: Field[Any], axes: Iterable[str] = (), **changed: Any) -> None:
    """Add the options of fields to a parser or a group of one; those of `axes` take several values
    with commas between."""
    for item in items:
        about, default = item.metadata, None if item.default is MISSING else item.default
        given: dict[str, Any] = {"dest": item.name, "help": about["doc"], "default": default}
        if about["kind"] == "switch":
            given |= {"action": Switch, "on": not default}
            if default and "flag" not in about:
                given["help"] = f"unless given: {about['doc']}"
        elif item.name in axes:
            given |= {
                "type": _integers if about["kind"] == "whole" else _words,
                "action": Store,
                "default": None if default is None else [default],
                "metavar": f"{_among(about) or about['metavar']},...",
            }
        else:
            given |= {"type": TYPES[about["kind"]], "action": Store}
            given |= (
                {"choices": about["among"]} if "among" in about else {"metavar": about["metavar"]}
            )
        parser.add_argument(_flag(item), **{**given, **changed})


def check(args: argparse.Namespace) -> None:
    """Check each value of a sweep: a typing error is bad input, no impossible configuration."""
    for name in JOB:
        values = getattr(args, name)
        for value in values if isinstance(values, list) else [values]:
            checked(JOB[name], _flag(JOB[name]), value)


def _among(about: Mapping[str, Any]) -> str:
    return f"{{{','.join(about['among'])}}}" if "among" in about else ""


def _group(name: str) -> list[Field[Any]]:
    return [item for item in JOB.values() if item.metadata.get("option") == name]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout and nothing else there"
    )


def add_facts(
    parser: argparse.ArgumentParser, *, required: bool = True, axes: Iterable[str] = ()
) -> None:
    """Add model, ranks and training mode."""
    facts = parser.add_argument_group("model, ranks, training mode")
    add_model(facts, required=required, axes=axes)
    add(facts, *_group("facts"), axes=axes)
    for name in MORE:
        add(facts, JOB[name])
        hidden: Any = facts._group_actions[-1]
        hidden.about, hidden.help = hidden.help, argparse.SUPPRESS
    facts.add_argument(
        "--job",
        metavar="FILE",
        help="options from a file: TOML, or what --json printed; those given here win",
    )


def add_model(parser: Any, *, required: bool = True, axes: Iterable[str] = ()) -> None:
    """Add the model: by name or file, or as Megatron arguments, which say the other facts too."""
    either = parser.add_mutually_exclusive_group(required=required)
    add(either, JOB["model"], axes=axes)
    add(either, JOB["megatron"])


def model_of(args: argparse.Namespace) -> Job | None:
    """A job of the model alone, for commands that read nothing else of one; None without one."""
    if args.model is None and args.megatron is None:
        refuse_unused(args, OF_MODEL, "is of a model: it needs --model or --megatron")
        return None
    given = {name: getattr(args, name) for name in (*OF_MODEL, "megatron")}
    return Job(model=args.model or args.megatron, available="1", **given)


def add_budget(parser: argparse.ArgumentParser, *, axes: Iterable[str] = ()) -> None:
    """Add the device, its total, or what is available for waves."""
    memory = parser.add_argument_group("memory of one rank")
    add(memory, JOB["gpu"], axes=axes)
    add(memory.add_mutually_exclusive_group(), JOB["budget"], JOB["available"], axes=axes)
    add(memory, *(JOB[name] for name in ("reserve", "resident", "colocated")))


def add_rules(
    parser: argparse.ArgumentParser, *, margin: bool = False, axes: Iterable[str] = ()
) -> None:
    """Add the choice of rules; with ``margin`` also how doubtful rules are treated."""
    prices = parser.add_argument_group("prices")
    add(prices, *_group("rules"), *(_group("prices") if margin else ()), axes=axes)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add how waves are searched."""
    add(parser.add_argument_group("search"), *_group("plan"))


def add_sequences(parser: argparse.ArgumentParser) -> None:
    """Add the file of sequences, and the outputs of its requests."""
    data = parser.add_argument_group("sequences")
    add_files(data)
    add(data, *(item for name, item in SOURCE.items() if name not in READING))


def add_files(data: Any) -> None:
    """Add the files, and how they are read."""
    data.add_argument(
        "file",
        metavar="FILE",
        nargs="*",
        default=[],
        help="sequences of tokens: .jsonl, .json, .parquet, .arrow, .npz, .npy, a folder of such "
        "or a saved dataset, or several; - reads JSON lines from stdin",
    )
    add(data, SOURCE["columns"], action="append", default=[])
    add(data, *(SOURCE[name] for name in READING if name != "columns"))


def job_of(args: argparse.Namespace, **changed: Any) -> Job:
    """Return the job that the options describe."""
    values = {name: value for name, value in vars(args).items() if name in JOB}
    return Job(**{**complete(args, values), **changed})


def planner_of(job: Job, requests: Requests | None = None) -> Planner:
    """Return the planner of a job; where nothing is left for waves, say what would help.

    A budget that is the marketing size of a device is said to be less than that device reports.
    """
    sold = str(job.budget or "").replace(" ", "").upper()
    if close := [gpu for gpu in GPUS.values() if gpu.sold_as == sold]:
        size = format_bytes(parse_bytes(sold))
        named = " or ".join(f"--gpu {gpu.name}" for gpu in close)
        print(f"note: {sold} is {size}; of the device CUDA reports more: {named}", file=sys.stderr)
    try:
        return job.planner()
    except NothingLeftError as error:
        option = helps(job, requests)
        raise InputError(f"{error}; {option}" if option else str(error)) from None


def complete(args: argparse.Namespace, values: dict[str, Any]) -> dict[str, Any]:
    """Fields of a job with those that a file of Megatron arguments states, where no option does,
    and dp by the number of ranks."""
    gpus = values.get("gpus")
    both = {"lora_rank", "full_finetuning"} <= getattr(args, "given", frozenset())
    if both and values["full_finetuning"] and values["lora_rank"]:
        raise InputError("--full-finetuning trains no adapters: leave out it or --lora-rank")
    if getattr(args, "megatron", None) is not None:
        found = megatron_values(args.megatron, gpus, values.get("padded_vocab"))
        given = {name: value for name, value in values.items() if name in args.given}
        if given.get("lora_rank"):
            found["full_finetuning"] = False
        values = {**values, **found, **given, "model": args.megatron}
    if gpus and "dp" not in args.given:
        group = values["tp"] * values["cp"] * values["pp"]
        values = {**values, "dp": max(1, gpus // max(1, group))}
    return values


def default(args: argparse.Namespace, name: str) -> Any:
    """The value of an option that is not given."""
    return args.parser.get_default(name)


def source_of(args: argparse.Namespace) -> Source:
    """Return the source that the options name."""
    given = {name: getattr(args, name) for name in SOURCE if hasattr(args, name)}
    given["columns"] = ",".join(args.columns)
    if args.file:
        refuse_unused(args, {"number"} & given.keys(), "goes with --tokens, not with a file")
    elif given.get("tokens") is not None:
        refuse_unused(args, READING, "says how a file is read: give --tokens less, or a file")
    else:
        other = ", or --tokens N" if "tokens" in given else ""
        raise InputError(f"give FILE, the sequences: JSON lines, Parquet, Arrow, .npz{other}")
    return Source(path=args.file[0] if len(args.file) == 1 else tuple(args.file), **given)


def refuse_unused(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Refuse an option that would change nothing.

    Raises:
        InputError: one of them has another value than its default.
    """
    for name in names:
        if getattr(args, name) != args.parser.get_default(name):
            flag = _flag(SOURCE[name]) if name in SOURCE else f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} {why}")


def read(source: Source, model: Model | None = None, *, strict: bool = False) -> Requests:
    """Return the requests of a source; draw progress while long files are read.

    With a model, ids outside its vocabulary are refused, sequences longer than its context are
    named, with ``strict`` refused, and what stands for images is not shared.
    """
    media = () if model is None else model.media_token_ids
    with Progress(f"reading {source.path_text()}", None, text=format_bytes) as progress:
        requests = source.requests(progress.advance, media)
    sequences = requests.sequences
    if source.tokens is None:
        for remark in (*read_as(sequences, source.targets), *padded(sequences)):
            print(f"note: {remark}", file=sys.stderr)
    if model is not None:
        for remark in unfit(sequences, model.vocab, model.context):
            if strict:
                raise InputError(remark)
            print(f"note: {remark}", file=sys.stderr)
    return requests


def report_empty(requests: Requests, out: TextIO) -> None:
    """Name the sequences that were left out because they are empty."""
    places = requests.empty
    if places:
        more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        print(
            f"refused, empty (--skip-empty leaves them out): {'; '.join(places[:SHOWN])}{more}",
            file=out,
        )


def _words(text: str) -> Sequence[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r}: an empty value between commas")
    return words


def _integers(text: str) -> Sequence[int]:
    try:
        return [whole(word.strip()) for word in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers with commas between") from None
