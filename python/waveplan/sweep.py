"""Size a job over many configurations: topologies x budgets x recompute modes x models.

Any ``concurrent.futures.Executor`` does the work: a process pool by default,
``mpi4py.futures.MPIPoolExecutor`` or a Dask client's executor alike. A configuration is planned
from the file of rows named in it, which each worker reads once; results come back in the order of
the configurations, whatever finished first.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from waveplan.errors import InputError, WaveplanError
from waveplan.jobs import Job, Source

__all__ = ["Outcome", "jobs", "run_job", "sweep"]

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one configuration comes to.

    ``status`` is ``"ok"``, ``"partial"`` (some rows can never fit), ``"refused"`` (none fits) or
    ``"impossible"`` (the configuration itself; ``reason`` says why). Bytes are per rank, tokens
    per packed row, rows those of the busiest context-parallel rank.
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
    limit: int = 0
    unpriced: int = 0


def jobs(axes: Mapping[str, Sequence[Any]]) -> list[Job]:
    """The product of the given values of each field, the last field varying fastest.

    ``budget`` and ``available`` exclude one another; give one of them.
    """
    names = {item.name for item in fields(Job)}
    for name, values in axes.items():
        if name not in names:
            raise InputError(
                f"{name} is no field of a configuration: use {', '.join(sorted(names))}"
            )
        if not values:
            raise InputError(f"{name} has no values")
    if ("budget" in axes) == ("available" in axes):
        raise InputError("give either budget (the device's total) or available (what is free)")
    if "model" not in axes:
        raise InputError("model is missing: name at least one")
    return [
        Job(**dict(zip(axes, chosen, strict=True))) for chosen in itertools.product(*axes.values())
    ]


def run_job(job: Job, source: Source) -> Outcome:
    """Plan every wave of the rows under one configuration. Runs in a worker."""
    try:
        planner = job.planner()
    except WaveplanError as error:
        return Outcome(status="impossible", reason=str(error))
    requests = source.requests()
    waves = widest = planned = packed = logical = busiest = required = 0
    try:
        run = planner.waves(requests, on_refusal="skip")
        for wave in run:
            waves += 1
            planned += len(wave.rows)
            widest = max(widest, wave.width)
            packed += wave.plan.packed_tokens
            logical += wave.plan.logical_tokens
            busiest = max(busiest, int(wave.plan.rank_rows.max(initial=0)))
            required = max(required, wave.required)
    except WaveplanError as error:
        return Outcome(status="impossible", reason=str(error))
    refused = len(run.refused)
    status = "ok" if not refused else "partial" if planned else "refused"
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
        limit=planner.limit,
        unpriced=len(planner.bound.off),
    )


def sweep(
    source: Source,
    configurations: Iterable[Job],
    *,
    executor: Executor | None = None,
    output: str | os.PathLike[str] | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> list[tuple[Job, Outcome]]:
    """Plan each configuration and return the outcomes in the order given.

    With ``output``, a JSON-lines file, every finished configuration is appended to it at once, and
    those already in it are not planned again: an interrupted sweep goes on where it stopped.
    ``on_done(done, total)`` is called after each. On Ctrl-C what was done so far is in ``output``.
    """
    wanted = list(configurations)
    keys = [job.key(source) for job in wanted]
    done = _read(Path(output)) if output is not None else {}
    missing = [i for i, key in enumerate(keys) if key not in done]
    finished = len(wanted) - len(missing)
    if on_done is not None and finished:
        on_done(finished, len(wanted))
    source.requests()  # a bad file is refused here, before any worker starts
    own = executor is None
    pool = executor if executor is not None else ProcessPoolExecutor(_workers(len(missing)))
    futures: dict[Future[Outcome], int] = {}
    try:
        futures = {pool.submit(run_job, wanted[i], source): i for i in missing}
        for future in as_completed(futures):
            i = futures[future]
            done[keys[i]] = future.result()
            if output is not None:
                _append(Path(output), keys[i], done[keys[i]])
            finished += 1
            if on_done is not None:
                on_done(finished, len(wanted))
    except (KeyboardInterrupt, CancelledError):
        for future in futures:
            future.cancel()
        raise
    finally:
        if own:
            pool.shutdown(wait=False, cancel_futures=True)
    return [(job, done[key]) for job, key in zip(wanted, keys, strict=True)]


def _workers(missing: int) -> int:
    return max(1, min(missing, os.cpu_count() or 1))


def _append(path: Path, key: str, outcome: Outcome) -> None:
    line = json.dumps({"format": FORMAT, "key": key, "outcome": asdict(outcome)})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _read(path: Path) -> dict[str, Outcome]:
    """Outcomes of an earlier run; a last line cut off in the middle is dropped."""
    if not path.exists():
        return {}
    found: dict[str, Outcome] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if entry["format"] != FORMAT:
                raise InputError(
                    f"{path} line {number}: written in format {entry['format']}, not {FORMAT}"
                )
            found[str(entry["key"])] = Outcome(**entry["outcome"])
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            if number == len(lines):
                path.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
                break
            raise InputError(f"{path} line {number}: no line of a sweep's output") from error
    return found
