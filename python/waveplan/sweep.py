"""Size a job over many configurations: topologies x budgets x recompute modes x models.

Any ``concurrent.futures.Executor`` does the work: a process pool by default,
``mpi4py.futures.MPIPoolExecutor`` or a Dask client's executor alike. A configuration is planned
from the file of rows named in it, which each worker reads once; results come back in the order of
the configurations, whatever finished first.
"""

from __future__ import annotations

import hashlib
import itertools
import json
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
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from waveplan._files import check_name, kind, parse_json
from waveplan._values import attributes, choice, entries, instance, integer, mapping, shown
from waveplan.errors import InputError, WaveplanError
from waveplan.jobs import Job, Source

__all__ = ["Outcome", "jobs", "outcomes", "process_pool", "run_job", "sweep"]

FORMAT = 1
MOST_LINE = 1 << 20
MOST_JOBS = 100_000
STATUSES = ("ok", "partial", "refused", "impossible")


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
    if ("budget" in axes) == ("available" in axes):
        raise InputError("give either budget (the device's total) or available (what is free)")
    if "model" not in axes:
        raise InputError("model is missing: name at least one")
    if (count := math.prod(map(len, axes.values()))) > MOST_JOBS:
        raise InputError(f"the axes make {count:,} configurations: at most {MOST_JOBS:,}")
    return [
        Job(**dict(zip(axes, chosen, strict=True))) for chosen in itertools.product(*axes.values())
    ]


def run_job(job: Job, source: Source) -> Outcome:
    """Plan every wave of the rows under one configuration. Runs in a worker."""
    try:
        planner = instance("job", job, Job).planner()
    except WaveplanError as error:
        return Outcome(status="impossible", reason=str(error))
    requests = instance("source", source, Source).requests()
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
        unpriced=len(planner.bound.off) + len(planner.bound.unmeasured),
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

    Raises:
        InputError: the rows cannot be read, or ``output`` holds something else.
        WaveplanError: a worker process died.
    """
    wanted = entries("configurations", configurations)
    if on_done is not None and not callable(on_done):
        raise InputError(f"on_done must be a function, not {shown(on_done)}")
    found: dict[int, Outcome] = {}
    for i, outcome in outcomes(source, wanted, executor=executor, output=output):
        found[i] = outcome
        if on_done is not None:
            on_done(len(found), len(wanted))
    return [(job, found[i]) for i, job in enumerate(wanted)]


def outcomes(
    source: Source,
    configurations: Sequence[Job],
    *,
    executor: Executor | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Generator[tuple[int, Outcome], None, None]:
    """Position and outcome of each configuration, in the order in which they finish.

    Those already in ``output`` come first. Closing the iterator cancels what has not begun.
    """
    configurations = [
        instance("a configuration", job, Job) for job in entries("configurations", configurations)
    ]
    if executor is not None:
        attributes("executor", executor, "submit")
    if output is not None:
        check_name(output)
    instance("source", source, Source)
    source.requests()  # a bad file is refused here, before any worker starts
    keys = _keys(source, configurations)
    known = _read(Path(output)) if output is not None else {}
    missing = [i for i, key in enumerate(keys) if key not in known]
    yield from ((i, known[key]) for i, key in enumerate(keys) if key in known)
    if not missing:
        return
    own = executor is None
    pool = executor if executor is not None else process_pool(len(missing))
    futures: dict[Future[Outcome], int] = {}
    whole = False
    try:
        futures = {pool.submit(run_job, configurations[i], source): i for i in missing}
        for future in as_completed(futures):
            i, outcome = futures[future], future.result()
            if output is not None:
                _append(Path(output), keys[i], outcome)
            yield i, outcome
        whole = True
    except BrokenExecutor as error:
        raise WaveplanError(
            f"a worker process died ({error}); is there memory for {source.path} in each? fewer "
            "workers need less"
        ) from error
    finally:
        for future in futures:
            future.cancel()
        if own:
            leave(pool, whole=whole)


def leave(pool: Executor, *, whole: bool) -> None:
    """Ends a pool: nobody waits for a configuration that is half done, as leaving would."""
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


def _keys(source: Source, configurations: Sequence[Job]) -> list[str]:
    """What identifies each configuration in an output file: options, and contents of files."""
    digests: dict[str, str] = {}

    def content(name: str | None) -> str | None:
        if name is None or kind(name) != "file":
            return name
        if name not in digests:
            with Path(name).open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests[name]

    rows = {**asdict(source), "path": content(source.path)}
    return [
        json.dumps(
            [{**asdict(job), "model": content(job.model), "rules": content(job.rules)}, rows],
            sort_keys=True,
        )
        for job in configurations
    ]


def _append(path: Path, key: str, outcome: Outcome) -> None:
    """One line in one write; what a full disk leaves of it is taken back."""
    line = json.dumps({"format": FORMAT, "key": key, "outcome": asdict(outcome)}).encode() + b"\n"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            start = os.fstat(file).st_size
            try:
                written = os.write(file, line)
                if written < len(line):
                    written += os.write(file, line[written:])
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, start)
                raise
        finally:
            os.close(file)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def _read(path: Path) -> dict[str, Outcome]:
    """Outcomes of an earlier run; a last line cut off in the middle is dropped."""
    if kind(path) is None:
        return {}
    found: dict[str, Outcome] = {}
    whole = 0
    try:
        with path.open("rb") as lines:
            number = 0
            while line := lines.readline(MOST_LINE):
                number += 1
                if not line.endswith(b"\n") and _begins(line):
                    break  # cut off, even if it reads: the next line would go on behind it
                if line.strip():
                    key, outcome = _entry(line, f"{path} line {number}")
                    found[key] = outcome
                whole += len(line)
            cut = len(line) > 0
        if cut:
            os.truncate(path, whole)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return found


def _begins(line: bytes) -> bool:
    """Whether this is the beginning of a line of ours, not the end of somebody's notes."""
    start = b'{"format": %d, "key": ' % FORMAT
    return len(line) < MOST_LINE and line[: len(start)] == start[: len(line)]


def _entry(line: bytes, where: str) -> tuple[str, Outcome]:
    try:
        entry = parse_json(line)
        if not isinstance(entry, dict):
            raise InputError("not an object")
        if entry.get("format") != FORMAT:
            raise InputError(f"written in format {entry.get('format')!r}, not {FORMAT}")
        key, values = entry.get("key"), entry.get("outcome")
        if not isinstance(key, str) or not isinstance(values, dict):
            raise InputError("it has no key and outcome")
        return key, _outcome(values)
    except InputError as error:
        raise InputError(f"{where}: no line of a sweep's output: {error}") from None


def _outcome(values: dict[str, Any]) -> Outcome:
    for item in fields(Outcome):
        value = values.get(item.name)
        if item.name == "status":
            choice("status", value, STATUSES)
        elif item.name == "reason":
            if not isinstance(value, str):
                raise InputError(f"reason must be text, not {value!r}")
        else:
            integer(item.name, value)
    if odd := values.keys() - {item.name for item in fields(Outcome)}:
        raise InputError(f"an outcome has no {min(odd)}")
    return Outcome(**values)
