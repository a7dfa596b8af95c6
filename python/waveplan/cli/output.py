"""JSON documents of the commands: stable, with a version."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from waveplan.report.summary import memory

if TYPE_CHECKING:
    from waveplan.jobs import Job, Source
    from waveplan.planner import Planner, Waves
    from waveplan.refusal import WaveRefused
    from waveplan.wave import Wave

__all__ = ["VERSION", "plan_document", "states", "write_json"]

VERSION = 1


def write_json(document: dict[str, Any]) -> None:
    """One document on stdout."""
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    print(flush=True)


def plan_document(
    job: Job, source: Source, planner: Planner, waves: Sequence[Wave], run: Waves, *, complete: bool
) -> dict[str, Any]:
    """What ``waveplan plan --json`` prints."""
    return {
        "version": VERSION,
        "command": "plan",
        "complete": complete,
        "job": asdict(job),
        "source": asdict(source),
        "memory": memory(planner),
        "off": states(planner),
        "waves": [wave.to_dict() for wave in waves],
        "refused": [_refusal(item) for item in run.refused],
    }


def states(planner: Planner) -> list[dict[str, str]]:
    """Rules that charge nothing, or are not measured, for this job."""
    return [
        {"rule": state.name, "state": state.state, "reason": state.reason}
        for state in (*planner.bound.off, *planner.bound.unmeasured)
    ]


def _refusal(item: WaveRefused) -> dict[str, Any]:
    return {
        "indices": item.indices.tolist(),
        "required": item.required,
        "limit": item.limit,
        "packed_tokens": item.plan.packed_tokens,
        "logical_tokens": item.plan.logical_tokens,
        "message": str(item),
        "tried": [tried._asdict() for tried in item.tried],
    }
