"""``waveplan rules``: every rule, its coverage, on or off and why."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from waveplan.cli import options
from waveplan.cli.output import VERSION, write_json

EXAMPLE = """example:
  waveplan rules
  waveplan rules --model qwen3.6-35b-a3b --cp 2 --ep 2"""

STATES = {
    "on": "on",
    "off": "OFF",
    "unmeasured": "on, unmeasured here",
    "not needed": "nothing to charge",
}


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "rules",
        help="every rule, its coverage, on or off for a job and why",
        description="List the pricing rules; with --model also whether each covers that job.",
        epilog=EXAMPLE,
        formatter_class=options.Help,
        allow_abbrev=False,
    )
    options.add_facts(parser, required=False)
    options.add_prices(parser)
    options.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the rules."""
    from waveplan.pricing import rules_table
    from waveplan.rules.resident import resident_rules

    job = options.job_of(args, model=args.model or "")
    model, topology, training = job.facts() if args.model else (None, None, None)
    chosen = job.rule_set_of()
    tables = {
        f"rule set {chosen.name}: what a wave costs": rules_table(
            model, topology, training, chosen
        ),
        "what stays allocated between waves": rules_table(
            model, topology, training, resident_rules()
        ),
    }
    if args.json:
        write_json(
            {
                "version": VERSION,
                "command": "rules",
                "job": asdict(job) if args.model else None,
                "rules": [row for table in tables.values() for row in table],
            }
        )
        return 0
    for title, table in tables.items():
        print(title, file=sys.stdout)
        for row in table:
            ours = ", ours" if row["ours"] else ""
            print(f"\n  {row['name']}  ({row['lives']}{ours})")
            if "state" in row:
                state = STATES[row["state"]]
                print(f"    {state}{': ' + row['reason'] if row['reason'] else ''}")
            print(f"    {row['why']}\n    = {row['bytes']}\n    measured for {row['covers']}")
            print(f"    source: {row['source']}")
        print()
    return 0
