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
            other = replace(job, **{"gpus": None, **values}).planner()
            tried.append(_planned(other, pool, requests, change))
        except WaveplanError:  # such a job cannot be, or there is no place for its weights
            continue
    tried.sort(key=lambda hint: (not hint.fits, hint.gpus, hint.required - hint.available))
    return found + tried


def helps(job: Job, requests: Requests | None = None, *, short: bool = True) -> str:
    """Return in a line which change lets a rank do with its memory, on as few GPUs as do; where
    none does, the one that needs least; "" where none helps.

    Args:
        requests: one forward; None: what stays between waves alone.
        short: it does not fit. Else only what is nearly always forgotten is said.
    """
    planner = replace(job, available=str(UNBOUNDED), **_FREE).planner()
    before, room = _needs(job, requests)
    found = []
    for times in _TIMES if short else _TIMES[:1]:
        for change, values in _changes(job, planner, times):
            if not short and change != "--sequence-parallel":
                continue
            try:
                other = replace(job, **{"gpus": None, **values})
                found.append((*_needs(other, requests), other.facts()[1].world, change))
            except WaveplanError:  # the model cannot be divided that way
                continue
        if any(needed <= room for needed, room, _, _ in found):
            break
    found = [one for one in found if one[0] <= before * LEAST]
    if not found:
        return ""
    needed, room, gpus, change = min(found, key=lambda one: (one[0] > one[1], one[2], one[0]))
    fits = f"{change} fits" if needed <= room else f"the least is with {change}"
    where = f" on {gpus:,} GPUs" if gpus > planner.topology.world else ""
    when = " between waves" if requests is None else ""
    of = f" of {format_bytes(room)}" if room < UNBOUNDED else ""
    return (
        f"{fits if short else f'with {change}'}{where}: a rank needs {format_bytes(needed)}{of}"
        f"{when}, without it {format_bytes(before)}"
    )


_FREE = {"budget": None, "resident": None, "colocated": "0", "reserve": RESERVE}
_TIMES = (2, 4, 8, 16, 32)


def _needs(job: Job, requests: Requests | None) -> tuple[int, int]:
    """Bytes that a rank needs, with the forward of the rank that requires most, and may use: of a
    device all of it; of what is stated as available the forward alone."""
    planner = replace(job, available=str(UNBOUNDED), **_FREE).planner()
    wave, held, room = 0, planner.resident().total, UNBOUNDED
    if requests is not None:
        plans = planner.plan_shares(requests, available=UNBOUNDED)
        wave = max(plan.required for plan in plans)
    if not job.budget is job.available is job.device is None:
        budget = job.memory()
        held = budget.resident if isinstance(budget.resident, int) else held
        held = 0 if budget.device is None else held
        room = replace(budget, resident=0).resolve() if budget.device else budget.resolve()
        if requests is not None:
            room -= planner.kept(max(0, room - held), planner.doubtful(requests))
    return held + wave, room


def _planned(planner: Planner, pool: Requests, requests: NDArray[np.int64], change: str) -> Hint:
    available = planner.available - planner.kept(planner.available, planner.doubtful(pool))
    made = planner.make_engine(pool).plan(requests, available, planner.known(pool))
    required = made.required
    if made.kind == "refused":
        required = cheapest(planner, pool, requests).required
    return Hint(change, required, available, planner.topology.world)


def _changes(job: Job, planner: Planner, times: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options that lower what a rank requires, where they are not set already: twice the ranks on
    more GPUs; with `times` so many, on the same GPUs where data parallelism has them."""
    topology, training = planner.topology, planner.training
    if times <= 2:
        if training.recompute != "full" and training.backward:
            yield "--recompute full", {"recompute": "full"}
        if topology.tp > 1 and not topology.sequence_parallel:
            yield "--sequence-parallel", {"sequence_parallel": True}
        if job.full_finetuning and topology.dp > 1 and topology.sharding.kind == "none":
            yield "--sharding optimizer", {"sharding": "optimizer"}
    dp, flag = {}, ""
    if times and topology.dp % times == 0:
        dp = {"dp": topology.dp // times}
        flag = "" if job.gpus is not None else f" --dp {dp['dp']}"
    cp, tp, ep = (max(2, times) * size for size in (topology.cp, topology.tp, topology.ep))
    yield f"--cp {cp}{flag}", {"cp": cp, **dp}
    if planner.model.experts:
        yield f"--ep {ep}", {"ep": ep}
    both = " --sequence-parallel" * (not topology.sequence_parallel)
    yield f"--tp {tp}{both}{flag}", {"tp": tp, "sequence_parallel": True, **dp}
