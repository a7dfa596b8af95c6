"""What would make requests fit: one change of the job at a time, each really planned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan.budget import RESERVE, format_bytes
from waveplan.desk.jobs import Job
from waveplan.errors import WaveplanError
from waveplan.planner import Planner
from waveplan.refusal import cheapest, enough
from waveplan.sequences.requests import Requests

__all__ = ["UNBOUNDED", "Hint", "helps", "hints"]

UNBOUNDED = 1 << 62
"""Bytes within which everything fits: prices a plan as it is."""
LEAST = 0.95
"""An option helps that leaves at most this share of the bytes."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A change, and what the requests then require of what is then available, in bytes."""

    change: str
    """Options of the command line, or how much more memory."""
    required: int
    available: int
    gpus: int
    """GPUs of the job with the change."""

    @property
    def fits(self) -> bool:
        """Whether they fit with it."""
        return self.required <= self.available


def hints(job: Job, planner: Planner, pool: Requests, requests: NDArray[np.int64]) -> list[Hint]:
    """Return what would let one data-parallel rank run these requests of a pool as one wave.

    Memory first: the least that would do. Then every change that applies, those that fit first,
    then fewer GPUs, then less memory.
    """
    own = _planned(planner, pool, requests, "")
    lacks = enough(planner, pool, own.required) - planner.available
    lacks = math.ceil(lacks / (1 - planner.budget.reserve if planner.budget.device else 1))
    more = f"{format_bytes(lacks)} more memory on each GPU"
    found = [replace(own, change=more, available=own.required)] if lacks > 0 else []
    tried = []
    for change, values in _changes(job, planner):
        try:
            other = replace(job, gpus=None, **values).planner()
            tried.append(_planned(other, pool, requests, change))
        except WaveplanError:  # such a job cannot be, or there is no place for its weights
            continue
    tried.sort(key=lambda hint: (not hint.fits, hint.gpus, hint.required - hint.available))
    return found + tried


def helps(job: Job, requests: Requests | None = None, *, short: bool = True) -> str:
    """Return in a line which option makes a rank hold least on as many GPUs; "" where none helps.

    Args:
        requests: one forward; None: what stays between waves alone.
        short: it does not fit. Else only what is nearly always forgotten is said.
    """
    planner, before = _held(job, requests)
    found = []
    for change, values in _changes(job, planner):
        if not short and change != "--sequence-parallel":
            continue
        try:
            other, held = _held(replace(job, gpus=None, **values), requests)
        except WaveplanError:  # the model cannot be divided that way
            continue
        if held <= before * LEAST and other.topology.world <= planner.topology.world:
            found.append((held, change))
    if not found:
        return ""
    held, change = min(found)
    when = " between waves" if requests is None else ""
    return f"with {change} a rank holds {format_bytes(held)}{when}, without {format_bytes(before)}"


def _held(job: Job, requests: Requests | None) -> tuple[Planner, int]:
    """Bytes of a rank: what is resident, and the forward of the rank that requires most."""
    free = {"available": str(UNBOUNDED), "budget": None, "resident": None, "colocated": "0"}
    planner = replace(job, **free, reserve=RESERVE).planner()
    held = planner.resident().total
    if requests is not None:
        plans = planner.plan_shares(requests, available=UNBOUNDED)
        held += max(plan.required for plan in plans)
    return planner, held


def _planned(planner: Planner, pool: Requests, requests: NDArray[np.int64], change: str) -> Hint:
    available = planner.available - planner.kept(planner.available, planner.doubtful(pool))
    made = planner.make_engine(pool).plan(requests, available, planner.known(pool))
    required = made.required
    if made.kind == "refused":
        required = cheapest(planner, pool, requests).required
    return Hint(change, required, available, planner.topology.world)


def _changes(job: Job, planner: Planner) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options that lower what a rank requires, where they are not set already."""
    topology, training = planner.topology, planner.training
    if training.recompute != "full" and training.backward:
        yield "--recompute full", {"recompute": "full"}
    if topology.tp > 1 and not topology.sequence_parallel:
        yield "--sequence-parallel", {"sequence_parallel": True}
    if job.full_finetuning and topology.dp > 1 and topology.sharding.kind == "none":
        yield "--sharding optimizer", {"sharding": "optimizer"}
    yield f"--cp {2 * topology.cp}", {"cp": 2 * topology.cp}
    if planner.model.experts:
        yield f"--ep {2 * topology.ep}", {"ep": 2 * topology.ep}
    tp = {"tp": 2 * topology.tp, "sequence_parallel": True}
    yield f"--tp {tp['tp']}" + " --sequence-parallel" * (not topology.sequence_parallel), tp
