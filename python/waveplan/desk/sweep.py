"""Size a job over many configurations: topologies x budgets x recompute modes x models.

Any ``concurrent.futures.Executor`` does the work: a process pool by default,
``mpi4py.futures.MPIPoolExecutor`` or a Dask client's executor alike. A configuration is planned
from the file named in it, which each worker reads once; results come back in the order of the
configurations, whatever finished first.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from waveplan.checks import attributes, entries, instance, integer, mapping, shown
from waveplan.desk.jobs import Job, Source
from waveplan.desk.step import wave_ms
from waveplan.errors import InputError, WaveplanError
from waveplan.files import uninterrupted

__all__ = [
    "Outcome",
    "best",
    "jobs",
    "outcomes",
    "process_pool",
    "run_job",
    "sweep",
    "uninterrupted",
]

MOST_JOBS = 100_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one configuration.

    ``status`` is ``"ok"``, ``"partial"`` (some requests can never fit), ``"refused"`` (none fits)
    or ``"impossible"`` (the configuration itself; ``reason`` says why). Bytes are per rank, tokens
    over all waves and DP ranks, ``busiest_rank`` the most local tokens of any rank, ``dp_tokens``
    and ``dp_time`` packed tokens and modelled time of the busiest DP rank of each wave over the
    mean of all, waves summed. ``step_ms`` is the modelled time of all waves, see
    `waveplan.desk.step`, and ``us_per_token`` that of a token: microseconds of one GPU.
    ``requests_per_gpu`` and ``tokens_per_gpu`` are those of the mean wave.
    """

    status: str
    reason: str = ""
    waves: int = 0
    widest: int = 0
    planned: int = 0
    refused: int = 0
    packed_tokens: int = 0
    logical_tokens: int = 0
    busiest_rank: int = 0
    required: int = 0
    available: int = 0
    doubtful: int = 0
    dp_tokens: float = 1.0
    dp_time: float = 1.0
    gpus: int = 1
    step_ms: float = 0.0
    us_per_token: float = 0.0
    requests_per_gpu: float = 0.0
    tokens_per_gpu: float = 0.0


def best(results: Sequence[tuple[Job, Outcome]]) -> list[int]:
    """Positions of the outcomes with the least modelled time a token, of those that plan every
    request; then with less required. One for each model, number of GPUs and memory, model by
    model, the least first."""
    found: dict[tuple[str, int, str], int] = {}
    rank = [(out.us_per_token, out.required) for _, out in results]
    for i, (job, outcome) in enumerate(results):
        if outcome.status == "ok":
            kind = job.model, outcome.gpus, job.memory_text()
            found[kind] = min(found.get(kind, i), i, key=rank.__getitem__)
    models = list(dict.fromkeys(job.model for job, _ in results))
    order = {i: (models.index(kind[0]), *rank[i]) for kind, i in found.items()}
    return sorted(order, key=order.__getitem__)


def jobs(axes: Mapping[str, Sequence[Any]]) -> list[Job]:
    """The product of the given values of each field, the last field varying fastest.

    ``budget`` and ``available`` exclude one another; give one of them, or ``gpu``.
    """
    names = {item.name for item in fields(Job)}
    axes = {
        name: values if isinstance(values, range) else entries(shown(name), values)
        for name, values in mapping("axes", axes).items()
    }
    for name, values in axes.items():
        if name not in names:
            raise InputError(
                f"{name} is no field of a configuration: use {', '.join(sorted(names))}"
            )
        if not values:
            raise InputError(f"{name} has no values")
    if (given := "budget" in axes) == ("available" in axes) and (given or "gpu" not in axes):
        raise InputError("give gpu, or either budget (the device's total) or available (for waves)")
    if "model" not in axes:
        raise InputError("model is missing: name at least one")
    if (count := math.prod(map(len, axes.values()))) > MOST_JOBS:
        raise InputError(f"the axes make {count:,} configurations: at most {MOST_JOBS:,}")
    return [
        Job(**dict(zip(axes, chosen, strict=True))) for chosen in itertools.product(*axes.values())
    ]


def run_job(job: Job, source: Source) -> Outcome:
    """Plan every wave of a source under one configuration. Runs in a worker."""
    if isinstance(job.gpus, int) and job.gpus % max(1, job.tp * job.cp * job.pp):
        reason = f"tp x cp x pp must divide gpus, which is {job.gpus}"
        return Outcome(status="impossible", reason=reason)
    try:
        planner = job.planner()
    except WaveplanError as error:
        return Outcome(status="impossible", reason=str(error))
    media = planner.model.media_token_ids
    requests = source.requests(None, media)
    waves = widest = planned = packed = logical = busiest = required = 0
    slowest, mean, step = np.zeros(2), np.zeros(2), 0.0
    try:
        run = job.waves(planner, requests)
        for wave in run:
            waves += 1
            widest = max(widest, wave.width)
            required = max(required, wave.required)
            plans = [share.plan for share in wave.shares or (wave,)]
            for plan in plans:
                planned += len(plan.requests)
                packed += plan.packed_tokens
                logical += plan.logical_tokens
                busiest = max(busiest, int(plan.rank_tokens.max(initial=0)))
            amounts = [(plan.packed_tokens, plan.time_ms) for plan in plans]
            slowest += np.max(amounts, axis=0)
            mean += np.mean(amounts, axis=0)
            step += max(wave_ms(planner, plan) for plan in plans)
    except WaveplanError as error:
        return Outcome(status="impossible", reason=str(error))
    refused = sum(len(refusal.plan.requests) for refusal in run.refused)
    balance = np.divide(slowest, mean, out=np.ones(2), where=mean > 0).tolist()
    status = "ok" if not refused else "partial" if planned else "refused"
    gpus, pp = planner.topology.world, planner.topology.pp
    step *= 1 + (pp - 1) / max(1, waves)  # the pipeline fills and empties
    return Outcome(
        status=status,
        reason=str(run.refused[0]) if refused else "",
        waves=waves,
        widest=widest,
        planned=planned,
        refused=refused,
        packed_tokens=packed,
        logical_tokens=logical,
        busiest_rank=busiest,
        required=required,
        available=run.available,
        doubtful=len(run.doubtful),
        dp_tokens=balance[0],
        dp_time=balance[1],
        gpus=gpus,
        step_ms=step,
        us_per_token=1e3 * step * gpus / max(1, logical),
        requests_per_gpu=planned / max(1, waves) / gpus,
        tokens_per_gpu=logical / max(1, waves) / gpus,
    )


def sweep(
    source: Source,
    configurations: Iterable[Job],
    *,
    executor: Executor | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> list[tuple[Job, Outcome]]:
    """Plan each configuration and return the outcomes in the order given.

    ``on_done(done, total)`` is called after each; `outcomes` gives them as they finish.

    Raises:
        InputError: the file cannot be read.
        WaveplanError: a worker process died.
    """
    wanted = entries("configurations", configurations)
    found: dict[int, Outcome] = {}
    for i, outcome in outcomes(source, wanted, executor=executor):
        found[i] = outcome
        if on_done is not None:
            on_done(len(found), len(wanted))
    return [(job, found[i]) for i, job in enumerate(wanted)]


def outcomes(
    source: Source,
    configurations: Iterable[Job],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
) -> Generator[tuple[int, Outcome], None, None]:
    """Position and outcome of each configuration, in the order in which they finish.

    Closing the iterator cancels what has not begun. Without an executor, a process pool of at most
    so many workers does the work, and is gone with the iterator.
    """
    configurations = [
        instance("a configuration", job, Job) for job in entries("configurations", configurations)
    ]
    if executor is not None:
        attributes("executor", executor, "submit")
    instance("source", source, Source)
    source.requests()  # a bad file is refused here, before any worker starts
    if not configurations:
        return
    own = executor is None
    pool = executor if executor is not None else process_pool(workers or len(configurations))
    futures: dict[Future[Outcome], int] = {}
    whole = False
    try:
        with uninterrupted():  # workers that start inherit it: Ctrl-C would break them loudly
            futures = {pool.submit(run_job, job, source): i for i, job in enumerate(configurations)}
        for future in as_completed(futures):
            yield futures[future], future.result()
        whole = True
    except BrokenExecutor as error:
        raise WaveplanError(
            f"a worker process died ({error}); is there memory for {source.path_text()} in each? "
            "fewer "
            "workers need less"
        ) from error
    finally:
        for future in futures:
            future.cancel()
        if own:
            _leave(pool, whole=whole)


def _leave(pool: Executor, *, whole: bool) -> None:
    """Shut a pool down; terminate its workers unless the work is `whole`."""
    workers = [] if whole else list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def process_pool(most: int | None = None) -> ProcessPoolExecutor:
    """At most so many processes, and no more than cores.

    They are spawned: a fork would copy the locks of threads that it does not copy. Scripts that
    call this need ``if __name__ == "__main__":`` around it.
    """
    if most is not None:
        most = integer("most", most)
    cores = os.cpu_count() or 1
    return ProcessPoolExecutor(
        max(1, min(most or cores, cores)),
        mp_context=multiprocessing.get_context("spawn"),
        # Ctrl-C reaches workers too; they leave without a word.
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    )
