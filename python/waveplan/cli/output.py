"""JSON documents of the commands: stable, with a version."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waveplan.jobs import Job, Source
    from waveplan.planner import Planner, Waves
    from waveplan.wave import Wave

__all__ = ["VERSION", "plan_document", "write_json"]

VERSION = 1


def write_json(document: dict[str, Any]) -> None:
    """One document on stdout."""
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    print(flush=True)


def plan_document(
    job: Job, source: Source, planner: Planner, waves: Sequence[Wave], run: Waves
) -> dict[str, Any]:
    """What ``waveplan plan --json`` prints."""
    return {
        "version": VERSION,
        "command": "plan",
        "job": asdict(job),
        "source": asdict(source),
        "limit_bytes": planner.limit,
        "waves": [wave.to_dict() for wave in waves],
        "refused": [item.to_dict() for item in run.refused],
    }
