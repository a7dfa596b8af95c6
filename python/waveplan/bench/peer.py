"""Our search and the reference planner's on the same sequences, in turn, in one process.

A *cold* search starts from nothing: no planning cache is filled and no profile but the given one
is known. Ours goes from arrays of tokens and offsets to the planned wave (sequences, requests,
tree, every price, the plan); the reference's from its finished requests to its decision. Neither
counts the making of the planner, which a job does once. *Emptied* is a cold search of ours after
the CPU's own caches were emptied of tokens, data and code, as after a training step. A *warm*
search plans the same wave again with the same planner.

Times are CPU seconds of the one thread that plans, so that other load on the machine does not
count against either side.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waveplan.bench.reference import Reference
from waveplan.bench.workloads import WAVES
from waveplan.errors import WaveplanError
from waveplan.refusal import WaveRefused
from waveplan.report.table import Table, integer, seconds

__all__ = ["CPS", "Comparison", "Ours", "compare", "evict", "read_once", "search_table", "timed"]

CPS = (1, 2, 4, 8)
RUNS = ("reference_cold", "reference_warm", "reference_make", "cold", "emptied", "warm", "make")
"""Kinds of runs; "make" is the making of a planner."""
Tokens = NDArray[np.int64]
_SWEEP = np.zeros(24 << 20)  # larger than any last-level cache of one socket's slice


def evict() -> None:
    """Streams through memory, so that no token stays in the CPU's caches."""
    np.add(_SWEEP, 1.0, out=_SWEEP)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this thread, and the result."""
    start = time.thread_time()
    value = call()
    return time.thread_time() - start, value


def read_once(tokens: Tokens, runs: int = 7) -> float:
    """Median seconds to read every token once from memory."""
    times = []
    for _ in range(runs):
        evict()
        times.append(timed(tokens.sum)[0])
    return statistics.median(times)


class Ours:
    """Our planner in the reference's place: reference mode, the same model, score and trust.

    Args:
        cp: context-parallel ranks. available: bytes that a wave may use.
        trusted: tokens of a wave in the given profile; 0 leaves the planner without one.
    """

    def __init__(self, cp: int, available: int, trusted: int = 0) -> None:
        from waveplan import Budget, Planner, Requests, Sequences, Topology, Training, models
        from waveplan.profiles import Rates
        from waveplan.scoring import Scoring, from_table

        if cp in (1, 2, 4):
            score = from_table("gdn-moe-h2048", layers=40, gdn_layers=30, cp=cp)
        else:  # the reference tables stop at four ranks
            score = Scoring(version=1, layers=40, gdn_layers=30, cp=cp)
        self.planner = Planner(
            models.get("Qwen3.6-35B-A3B"),
            Topology(cp=cp),
            Training(lora_rank=8, expert_slots=True),
            Budget(available=available),
            scoring=score,
            mode="reference",
        )
        if trusted:
            like = Requests(Sequences(np.zeros(1, np.int64), np.array([0, 1])))
            self.planner.profiles[self.planner.signature_of(like)] = Rates(
                bytes_per_token=0.0, packed_tokens=trusted, logical_per_packed=1.0
            )
        self.waves: Any = None

    def cold(self, tokens: Tokens, offsets: Tokens) -> tuple[int, int]:
        """From arrays to the first wave: width and bytes; (0, bytes) of a refusal."""
        from waveplan import Requests, Sequences

        self.planner.width_hint = None
        self.waves = self.planner.waves(Requests(Sequences(tokens, offsets)))
        return self._first()

    def warm(self) -> tuple[int, int]:
        """The first wave of the same pool again."""
        self.waves.start, self.waves.width_hint = 0, None
        return self._first()

    def _first(self) -> tuple[int, int]:
        try:
            wave = self.waves.plan_next()
        except WaveRefused as refusal:
            return 0, refusal.required
        return wave.width, wave.required


@dataclass
class Comparison:
    """One workload at one CP; times in seconds."""

    workload: str
    cp: int
    sequences: int
    tokens: int
    read: float
    """To read the tokens once."""
    width: int = 0
    required: int = 0
    runs: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in RUNS})

    def over(self, one: str, other: str) -> float:
        """Return the ratio of the medians of two kinds of runs."""
        return statistics.median(self.runs[one]) / statistics.median(self.runs[other])

    @property
    def ratio(self) -> float:
        """Times faster than the reference, cold."""
        return self.over("reference_cold", "cold")

    def to_dict(self) -> dict[str, Any]:
        """For JSON: medians, ratios and all runs."""
        medians = {name: statistics.median(times) for name, times in self.runs.items()}
        return (
            asdict(self)
            | medians
            | {
                "ratio": self.ratio,
                "emptied_ratio": self.over("reference_cold", "emptied"),
                "warm_ratio": self.over("reference_warm", "warm"),
                # Readings of the tokens from memory.
                "passes": medians["emptied"] / self.read,
            }
        )


def columns(sequences: Sequence[Tokens]) -> tuple[Tokens, Tokens]:
    """Tokens and offsets of sequences."""
    offsets = np.zeros(len(sequences) + 1, np.int64)
    np.cumsum([len(sequence) for sequence in sequences], out=offsets[1:])
    return np.concatenate(sequences), offsets


def compare(
    workloads: Sequence[str], cps: Sequence[int], repeat: int = 5, patience: float = 30.0
) -> Iterator[Comparison]:
    """Compare whole searches, one workload and CP at a time.

    Args:
        repeat: runs of the reference; ours runs three times of each kind after each.
        patience: seconds of cold runs of the reference, after which it runs no more.

    Raises:
        WaveplanError: the two planners disagree.
    """
    for name in workloads:
        make, available = WAVES[name]
        sequences = make()
        arrays = columns(sequences)
        read = read_once(arrays[0])
        for cp in cps:
            made = Comparison(name, cp, len(sequences), len(arrays[0]), read)
            answers: set[tuple[int, int]] = set()
            while len(made.runs["reference_cold"]) < repeat:
                answers |= _round(made.runs, cp, available, sequences, arrays)
                if sum(made.runs["reference_cold"]) > patience:
                    break
            if len(answers) != 1:
                raise WaveplanError(f"{name} at CP {cp}: (width, bytes) differ: {sorted(answers)}")
            made.width, made.required = answers.pop()
            yield made


def _round(
    runs: dict[str, list[float]],
    cp: int,
    available: int,
    sequences: Sequence[Tokens],
    arrays: tuple[Tokens, Tokens],
) -> set[tuple[int, int]]:
    """Append one round of times to each kind of runs; return the answers of both planners."""

    def run(kind: str, call: Callable[[], Any]) -> Any:
        cost, value = timed(call)
        runs[kind].append(cost)
        return value

    def ours_made() -> Ours:
        return Ours(cp, available, len(arrays[0]))

    reference = run("reference_make", lambda: Reference(cp, available))
    requests = reference.requests(sequences)
    reference.trust(requests, len(arrays[0]))
    reference.forget()
    gc.collect()
    answers = {run("reference_cold", lambda: reference.search(requests))}
    for _ in range(3):
        answers.add(run("cold", partial(run("make", ours_made).cold, *arrays)))
    for _ in range(3):
        ours = ours_made()
        evict()
        answers.add(run("emptied", partial(ours.cold, *arrays)))
    answers.add(run("reference_warm", lambda: reference.search(requests)))
    answers |= {run("warm", ours.warm) for _ in range(3)}
    return answers


def _whole(value: float) -> str:
    return integer(round(value))


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "workload": ("workload", str),
    "CP": ("cp", str),
    "width": ("width", integer),
    "reference": ("reference_cold", seconds),
    "ours": ("cold", seconds),
    "ratio": ("ratio", _whole),
    "ours, emptied": ("emptied", seconds),
    "ratio, emptied": ("emptied_ratio", _whole),
    "x reading": ("passes", "{:.1f}".format),
    "reference, warm": ("reference_warm", seconds),
    "ours, warm": ("warm", seconds),
    "ratio, warm": ("warm_ratio", _whole),
}


def search_table(title: str, made: Iterable[dict[str, Any]]) -> Table:
    """One line a workload and CP: see `Comparison.to_dict`."""
    cells = [[text(row[key]) for key, text in _COLUMNS.values()] for row in made]
    return Table(title, list(_COLUMNS), cells, right=list(_COLUMNS)[1:])
