"""``waveplan models``: what is bundled, which families are read, and what is read of one."""

from __future__ import annotations

import argparse
from typing import Any

from waveplan.cli import options
from waveplan.cli.output import write_json
from waveplan.report.table import Table, show, width, wrapped

EXAMPLE = """\
  waveplan models
  waveplan models --model checkpoint/config.json
  waveplan models --megatron pretrain.sh --gpus 64 --json"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "models",
        "bundled models, families that are read, and what is read of one",
        "List bundled models and families of config.json; with --model or --megatron say what is "
        "read of that one.",
        EXAMPLE,
        run,
    )
    options.add_model(parser, required=False)
    options.add(parser, *(options.JOB[name] for name in options.OF_MODEL))
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List, or describe one."""
    from waveplan.facts import hf, models
    from waveplan.facts.arguments import flags

    if (job := options.model_of(args)) is not None:
        if args.json:
            write_json("models", model={**job.read(), "facts": job.read_model().to_dict()})
        else:
            print(job.model_text())
        return 0
    families = sorted(hf.families())
    if args.json:
        bundled = {name: models.get(name).describe() for name in models.names()}
        lists = {
            "read": sorted({*flags()["switches"], *flags()["values"], *flags()["aliases"]}),
            "refused": flags()["refused"],
        }
        write_json("models", bundled=bundled, families=families, megatron=lists)
        return 0
    show(
        f"{len(models.names())} bundled models; {len(families)} families of config.json are read",
        end="\n\n",
    )
    table = Table("", ("name", "family", "layers", "parameters"), right={"layers"})
    for name in models.names():
        model = models.get(name)
        table.add(name, model.family, f"{model.layers}", f"{model.parameters / 1e9:.2f} B")
    show(table)
    print("\nfamilies, by model_type:")
    print("\n".join(wrapped(f"  {', '.join(families)}", width())))
    return 0
