"""JSON documents of the commands: stable, with a version."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from waveplan.checks import columns
from waveplan.files import uninterrupted

if TYPE_CHECKING:
    from waveplan.desk.jobs import Source
    from waveplan.refusal import WaveRefused

__all__ = ["provenance", "refusal", "write_json"]

VERSION = 1
WRITTEN: list[str] = []
"""Commands whose document is out."""


def write_json(command: str, **parts: Any) -> None:
    """Print the document of a command on stdout; job and source become objects."""
    parts = {
        name: asdict(part) if name in ("job", "source") and part else part
        for name, part in parts.items()
    }
    parts = {"complete": True, **parts}
    document = {"version": VERSION, "command": command, **parts}
    text = json.dumps(document, indent=1, allow_nan=False)
    with uninterrupted():  # a document is whole, or none
        print(text, flush=True)
        WRITTEN.append(command)


def provenance(args: argparse.Namespace, source: Source) -> dict[str, str]:
    """Return what a page says about where it comes from; the clock is not read."""
    from waveplan import __version__

    made = {"sequences": source.path_text(), "command": args.line, "waveplan": __version__}
    return {**made, "date": args.date} if args.date else made


def refusal(item: WaveRefused) -> dict[str, Any]:
    """Return a refusal as JSON values."""
    return {
        "indices": item.indices.tolist(),
        "dp_rank": item.dp_rank,
        "required": item.required,
        "available": item.available,
        "packed_tokens": item.plan.packed_tokens,
        "logical_tokens": item.plan.logical_tokens,
        "message": str(item),
        "attempts": [columns(tried) for tried in item.attempts],
        "change": [{"kind": one.kind, "value": one.value} for one in item.change],
    }
