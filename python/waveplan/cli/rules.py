"""``waveplan rules``: every rule, where it holds, its state and why."""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from typing import Any

from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.desk.jobs import Job
from waveplan.pricing.bind import Status
from waveplan.report.summary import doubts, short
from waveplan.report.table import Table, show

EXAMPLE = """\
  waveplan rules
  waveplan rules --model qwen3.6-35b-a3b --cp 2 --ep 2 --verbose"""

PREDICATES = {"where": "holds", "checked": "checked", "applies": "applies"}


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "rules",
        "every rule, where it holds, its state for a job and why",
        "List the pricing rules; with --model also the state of each for that job.",
        EXAMPLE,
        run,
    )
    options.add_facts(parser, required=False)
    options.add(parser, options.JOB["gpu"])
    options.add_rules(parser)
    parser.add_argument("--verbose", action="store_true", help="formulas, where they hold, sources")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List the rules."""
    from waveplan.pricing import rules_table

    named = args.model is not None or args.megatron is not None
    if not named:
        options.refuse_unused(
            args, options.FACTS, "is a fact of a job: it needs --model or --megatron"
        )
    job = options.job_of(args) if named else options.job_of(args, model="")
    facts: tuple[Any, Any, Any] = job.facts() if named else (None, None, None)
    chosen = job.rule_set_of()
    tables = {
        f"rule set {chosen.name}: what a wave costs": rules_table(*facts, chosen),
        "what stays allocated between waves": rules_table(*facts, chosen.resident),
    }
    if args.json:
        rows = [row for table in tables.values() for row in table]
        write_json(
            "rules", job=job if named else None, model=job.read() if named else None, rules=rows
        )
        return 0
    show(_answer(job, named, chosen.name, tables), end="\n\n")
    draw = _verbose if args.verbose else _table
    show(*(draw(title, table) for title, table in tables.items()), end="\n\n")
    rows = [row for table in tables.values() for row in table if row.get("reason")]
    found = [Status(row["name"], row["state"], partial(str, row["reason"])) for row in rows]
    if found and not args.verbose:
        show(*doubts(found, "for this job"), end="\n\n")
    if named:
        print(job.model_text())
    if not args.verbose:
        print("--verbose adds formulas, where they hold, and sources")
    return 0


def _answer(job: Job, named: bool, name: str, tables: dict[str, list[dict[str, Any]]]) -> str:
    wave, resident = map(len, tables.values())
    text = f"{wave} rules price a wave, {resident} what stays resident, by the rule set {name}"
    if not named:
        return text
    states = Counter(row["state"] for rows in tables.values() for row in rows)
    some = f"{states['unmeasured']} are unmeasured, {states['uncharged']} uncharged"
    return f"{text}; {some} for {job.model} on {job.ranks_text()}, {job.training_text()}"


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    several = "state" in rows[0]
    table = Table(title, ("rule", "lives", *(("state",) if several else ()), "what it charges"))
    table.optional = ("lives",)
    for row in rows:
        state = (row["state"],) if several else ()
        table.add(row["name"], row["lives"], *state, short(row["why"]))
    return table


def _verbose(title: str, rows: list[dict[str, Any]]) -> str:
    parts = [title]
    for row in rows:
        differs = ", reference differs" if row["reference"] is not None else ""
        lines = [f"  {row['name']}  ({row['lives']}{differs})"]
        if "state" in row:
            reason = f": {row['reason']}" if row["reason"] else ""
            lines.append(f"    {row['state']}{reason}")
        lines += [
            f"    {row['why']}",
            f"    = {row['bytes']}",
            *(
                f"    {says} where {row[key]}"
                for key, says in PREDICATES.items()
                if row[key] != "1"
            ),
            f"    source: {row['source']}",
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
