"""Ranks that plan in step: threads joined by a barrier stand in for processes."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import workloads
from conftest import golden_cases
from numpy.typing import NDArray
from test_golden_wave import differences, expected, planner_of, search

from waveplan import (
    AllShares,
    Alone,
    InputError,
    Planner,
    RankError,
    Requests,
    Topology,
    Training,
    format_bytes,
    in_step,
    models,
)
from waveplan.agreement.protocol import Ranks
from waveplan.pricing import RuleSet, default_rules
from waveplan.profiles import Observed

MODEL = models.get("Qwen3.6-35B-A3B")
GIB = 1 << 30


class Thread:
    """The agreement of one thread; all of them share a board."""

    def __init__(self, board: Board, rank: int, dp: int) -> None:
        self.board, self.rank, self.dp_rank = board, rank, rank % dp
        self.calls = 0

    @property
    def size(self) -> int:
        return self.board.size

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._reduce(values, np.min)

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._reduce(values, np.max)

    def _reduce(self, values: NDArray[np.int64], op: Any) -> NDArray[np.int64]:
        self.calls += 1
        board = self.board
        board.slots[self.rank] = values.copy()
        board.barrier.wait()
        made = op(np.stack(board.slots), axis=0)
        board.barrier.wait()
        return made


class Board:
    def __init__(self, size: int) -> None:
        self.size = size
        self.slots: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * size
        self.barrier = threading.Barrier(size, timeout=20)


def together(size: int, dp: int, work: Callable[[Thread], Any]) -> list[Any]:
    """Return the result or error of `work` on every rank."""
    board = Board(size)
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(Thread(board, rank, dp))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def planner(agreement: Any, dp: int, free: int, cp: int = 1, **options: Any) -> Planner:
    return Planner(MODEL, Topology(dp=dp, cp=cp), Training(), free, agreement=agreement, **options)


def pool(seed: int = 3, count: int = 30) -> Requests:
    return Requests(workloads.blocks(seed, count=count, block=(64, 700)))


@pytest.mark.parametrize(("reference", "reductions"), [(False, 6), (True, 4)])
def test_all_ranks_get_the_same_waves_in_few_reductions(reference: bool, reductions: int) -> None:
    def work(agreement: Thread) -> Any:
        plans = planner(agreement, 3, 4 * GIB, cp=2, mode="reference" if reference else "best")
        waves = list(plans.waves(pool()))
        return [(w.start, w.width, w.indices.tolist()) for w in waves], agreement.calls

    results = together(3, 3, work)
    shapes = [[wave[:2] for wave in waves] for waves, _ in results]
    assert shapes[0] == shapes[1] == shapes[2]
    assert {calls for _, calls in results} == {reductions * len(shapes[0])}
    seen = sorted(i for waves, _ in results for wave in waves for i in wave[2])
    assert seen == list(range(30))


def test_an_empty_share_and_unequal_budgets() -> None:
    def work(agreement: Thread) -> Any:
        plans = planner(agreement, 4, (6 + agreement.dp_rank) * GIB)
        wave = plans.wave(pool(count=9), start=6)
        return wave.width, wave.indices.tolist(), wave.available, wave.most_required

    results = together(4, 4, work)
    assert [width for width, *_ in results] == [3, 3, 3, 3]
    assert [indices for _, indices, *_ in results] == [[6], [7], [8], []]
    assert [limit // GIB for *_, limit, _ in results] == [6, 7, 8, 9]
    assert len({most for *_, most in results}) == 1


def test_a_wave_that_another_ranks_share_stopped_says_so() -> None:
    lengths = [200, 9000] * 8
    sequences = [np.arange(length) + 10_000 * i for i, length in enumerate(lengths)]

    def work(agreement: Thread) -> Any:
        return planner(agreement, 2, 8 * GIB).wave(Requests(sequences)).stopped

    short, long = together(2, 2, work)
    assert short.kind == long.kind == "memory"
    assert short.width == long.width
    assert short.required <= short.available
    assert short.binding is None
    assert "does not fit on another DP rank" in str(short)
    assert long.required > long.available
    assert f"width {long.width} requires" in str(long)
    assert "; DP rank 1, CP rank 0, " in str(long)


def test_processes_of_one_share_take_the_least_of_their_memory() -> None:
    """Two data-parallel ranks of two processes each: plans are equal within a share."""

    def work(agreement: Thread) -> Any:
        plans = planner(agreement, 2, (8 - agreement.rank) * GIB, cp=2)
        wave = plans.wave(pool())
        plans.observe(wave, peak_bytes=10**9 + agreement.rank)
        learned = plans.profiles[wave.signature]
        assert isinstance(learned, Observed)
        return wave.available // GIB, wave.width, wave.plan.fingerprint, learned.first

    results = together(4, 2, work)
    assert [limit for limit, *_ in results] == [6, 5, 6, 5]
    assert len({width for _, width, *_ in results}) == 1
    assert results[0][2:] == results[2][2:]
    assert results[1][2:] == results[3][2:]
    assert results[0][2] != results[1][2]


def failing(results: list[Any], culprit: int, kind: type[Exception]) -> None:
    for rank, result in enumerate(results):
        assert isinstance(result, kind if rank == culprit else RankError), result
        assert rank == culprit or f"process {culprit} failed: " in str(result)


def test_bad_rows_on_one_rank_are_an_error_on_all() -> None:
    def work(agreement: Thread) -> Any:
        sequences = [[1, 2, 3]] * 5 + [[-1] if agreement.rank == 1 else [1]]
        return planner(agreement, 3, GIB).wave(sequences)

    failing(together(3, 3, work), 1, InputError)


@pytest.mark.parametrize(
    ("what", "value"),
    [("peak_bytes", -1), ("peak_bytes", float("nan")), ("retained_bytes", 1 << 63), ("whole", 2)],
)
def test_a_bad_reading_on_one_rank_is_an_error_on_all(what: str, value: Any) -> None:
    """Nothing is learned anywhere, and nobody waits for the rank that failed."""

    def work(agreement: Thread) -> Any:
        plans = planner(agreement, 2, 8 * GIB)
        wave = plans.wave(pool())
        reading = {"peak_bytes": 10**9, **({what: value} if agreement.rank == 1 else {})}
        try:
            plans.observe(wave, **reading)
        finally:
            assert not plans.profiles
        return None

    failing(together(2, 2, work), 1, InputError)


def test_a_wave_of_another_kind_on_one_rank_is_an_error_on_all() -> None:
    def work(agreement: Thread) -> Any:
        plans = planner(agreement, 2, 8 * GIB)
        wave = plans.wave(pool())
        plans.observe(wave if agreement.rank == 0 else wave.plan, peak_bytes=10**9)  # type: ignore

    failing(together(2, 2, work), 1, InputError)


@pytest.mark.parametrize("method", ["growth", "bisection", "refinement", "finish"])
def test_a_rank_that_raises_in_the_middle_takes_all_out(method: str) -> None:
    def work(agreement: Thread) -> Any:
        waves = planner(agreement, 3, 3 * GIB).waves(pool())
        if agreement.rank == 2:
            (real,) = waves.sessions()

            class Broken:
                def __init__(self, session: Any) -> None:
                    self.session = session

                def __getattr__(self, name: str) -> Any:
                    if name == method:
                        raise MemoryError("no memory for tables")
                    return getattr(self.session, name)

            waves.sessions = lambda: [Broken(real)]  # type: ignore
        return next(waves)

    failing(together(3, 3, work), 2, MemoryError)


def test_a_slow_rank_is_waited_for() -> None:
    def work(agreement: Thread) -> Any:
        if agreement.rank == 1:
            time.sleep(0.3)
        return planner(agreement, 2, 4 * GIB).wave(pool()).width

    results = together(2, 2, work)
    assert results[0] == results[1] > 1


def test_a_refusal_on_one_rank_is_one_on_all() -> None:
    def work(agreement: Thread) -> Any:
        sequences = [np.arange(50), np.arange(40_000), np.arange(60), np.arange(70)]
        waves = planner(agreement, 2, 4 * GIB).waves(sequences, on_refusal="skip")
        done = [wave.indices.tolist() for wave in waves]
        (refusal,) = waves.refused
        return done, str(refusal), refusal.indices.tolist(), refusal.dp_rank, refusal.change

    results = together(2, 2, work)
    assert [done for done, *_ in results] == [[[0, 2]], [[3]]]
    assert results[0][1:] == results[1][1:]
    _, text, *which, change = results[0]
    assert which == [[1], 1]
    assert text.startswith("the share of DP rank 1 (1 request, 40,000 packed of 40,000 tokens) req")
    assert text.endswith("; a single request cannot be split")
    assert {one.kind for one in change} == {"budget", "tokens", "cp"}


def drawn(seed: int) -> Requests:
    """A random pool: some long requests, some groups, beginnings in common."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 40))
    lengths = rng.integers(20, 3_000, count) * np.where(rng.random(count) < 0.2, 12, 1)
    prefix = rng.integers(0, 99, 4_000)
    sequences = [
        np.concatenate([prefix[: int(rng.integers(0, 2_000))], rng.integers(0, 99, length)])
        for length in lengths
    ]
    sizes = rng.integers(1, 4, count)
    ends = np.cumsum(sizes)
    tied = [*sizes[ends < count], count - int(ends[ends < count].max(initial=0))]
    return Requests(sequences, groups=tied if seed % 2 else None)


def taught(planner: Planner, requests: Requests) -> Planner:
    """With a profile of little that is retained, so that splits fit."""
    tokens = int(requests.lengths.sum())
    seen = Observed(later=((tokens, 0),), retained=((tokens, GIB // 20),), here=True)
    planner.profiles[planner.signature_of(requests)] = seen
    return planner


@pytest.mark.parametrize("mode", ["best", "reference"])
@pytest.mark.parametrize("seed", range(6))
def test_all_shares_in_one_process_are_those_of_as_many(mode: str, seed: int) -> None:
    requests, dp, cp = drawn(seed), 2 + seed % 3, 1 + seed % 2

    def work(agreement: Any) -> Any:
        plans = planner(agreement, dp, 5 * GIB, cp=cp, mode=mode)
        waves = plans.waves(requests, on_refusal="skip")
        made = [[share.to_dict() for share in wave.shares or (wave,)] for wave in waves]
        return made, [refusal.to_dict() for refusal in waves.refused]

    waves, refused = work(AllShares())
    for rank, (mine, listed) in enumerate(together(dp, dp, work)):
        assert [one for (one,) in mine] == [shares[rank] for shares in waves]
        alike = ("message", "required", "available", "width", "indices", "dp_rank")
        for one, other in zip(listed, refused, strict=True):
            assert [one[name] for name in alike] == [other[name] for name in alike]


@pytest.mark.parametrize("dp", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("mode", ["best", "reference"])
def test_every_request_is_in_one_wave_or_refused_with_its_reason(mode: str, dp: int) -> None:
    splits = refusals = 0
    for seed in range(8):
        requests = drawn(seed)
        plans = planner(AllShares(), dp, [6 * GIB, 36 * GIB // 10][seed % 2], mode=mode)
        if mode == "best" and seed % 2:
            taught(plans, requests)
        waves = plans.waves(requests, on_refusal="skip")
        shares = [share for wave in waves for share in wave.shares or (wave,)]
        ran = [int(i) for share in shares for i in share.requests]
        assert all(share.required <= share.available for share in shares)
        splits += sum(share.plan.split for share in shares)
        ends = np.cumsum(requests.group_sizes)
        lost = []
        for refusal in waves.refused:
            (group,) = refusal.indices.tolist()
            lost += range(ends[group] - requests.group_sizes[group], ends[group])
            refusals += 1
            if mode == "reference" and "dropped with its wave" in str(refusal):
                continue
            assert refusal.required > refusal.available
            assert f"requires {format_bytes(refusal.required)} of " in str(refusal)
            if mode == "best":  # it would not run alone either, and a true plan says so
                assert refusal.required == refusal.oversized.required
                assert refusal.change[0] == ("budget", refusal.required)
        assert sorted(ran + lost) == list(range(len(requests)))
    assert refusals
    assert splits or mode == "reference"


USUAL: dict[str, Any] = {"targets": True, "top_k": None, "adapter": [None, "a", "b", None]}
OTHER: dict[str, tuple[Any, str]] = {
    "sequences": ([[5, 6, 7, 8], [5, 6, 9], [1, 2], [3, 4, 6]], "tokens"),
    "targets": ([True, True, [False, True], True], "labels"),
    "top_k": (4, "top_k"),
    "logits": (True, "logits"),
    "hidden": ([False, True, False, False], "hidden"),
    "gradient": ([True, False, True, True], "gradient"),
    "adapter": ([None, "b", "a", None], "adapter"),
    "groups": (2, "groups"),
    "routed": ([0, 0, 0, 9], "routed"),
    "sharing": (False, "sharing"),
    "unshareable": ([6], "sharing"),
    "padding": (8, "padding"),
}
"""For every column another value, and the part of the content that it changes."""
SEQUENCES = [[5, 6, 7, 8], [5, 6, 9], [1, 2], [3, 4, 5]]


@pytest.mark.parametrize("column", inspect.signature(Requests.__new__).parameters.keys() - {"cls"})
def test_every_column_is_in_the_content(column: str) -> None:
    usual = Requests(**{"sequences": SEQUENCES, **USUAL})
    if column == "hashed":
        assert Requests(SEQUENCES, **USUAL, hashed=True).content == usual.content
        return
    value, part = OTHER[column]
    other = Requests(**{"sequences": SEQUENCES, **USUAL, column: value})
    assert [name for name in usual.content if usual.content[name] != other.content[name]] == [part]
    plans = [planner(None, 1, 1 << 40).plan(requests) for requests in (usual, other, usual)]
    assert plans[0].fingerprint == plans[2].fingerprint != plans[1].fingerprint


def another(what: str) -> Any:
    """What one process does differently, as the process would: a planner and requests."""
    facts: list[Any] = [MODEL, Topology(), Training(), 4 * GIB]
    options: dict[str, Any] = {}
    if what == "model facts":
        facts[0] = replace(MODEL, vocab=MODEL.vocab + 1)
    elif what == "training":
        facts[2] = Training(lora_rank=16)
    elif what == "settings":
        options["margin"] = 0.2
    elif what == "pricing rules":
        options["rules"] = default_rules().override("resident.context", bytes="7 * MiB")
    elif what == "order":
        return facts, options, SEQUENCES[::-1]
    return facts, options, SEQUENCES


@pytest.mark.parametrize(
    ("what", "says"),
    [
        *((name, part) for name, (_, part) in OTHER.items()),
        *((name, name) for name in ("model facts", "settings", "pricing rules")),
        ("training", "training, settings"),
        *((name, name) for name in ("width_hint", "on_refusal", "start")),
        ("order", "tokens, lengths, labels"),
        ("fewer", "tokens, lengths, targets, target_width, labels, top_k, logits, hidden"),
    ],
)
@pytest.mark.parametrize("dp", [1, 3])
def test_a_process_with_other_content_is_named_with_what_differs(
    what: str, says: str, dp: int
) -> None:
    def work(agreement: Thread) -> Any:
        odd = what if agreement.rank == 1 else ""
        (model, _, *given), options, sequences = another(odd)
        made = {"sequences": sequences, **USUAL}
        if odd in OTHER:
            made[odd] = OTHER[odd][0]
        if odd == "fewer":
            made = {"sequences": sequences[:3], "adapter": None}
        plans = Planner(model, Topology(dp=dp), *given, agreement=agreement, **options)
        if odd == "width_hint":
            plans.width_hint = 3
        refusal = "skip" if odd == "on_refusal" else "raise"
        return plans.waves(Requests(**made), refusal, start=int(odd == "start")).plan_next()

    for result in together(3, dp, work):
        assert isinstance(result, RankError), result
        assert result.rank == 1
        assert f": process 1 differs from the others in {says}" in str(result)


def test_rules_are_equal_however_many_of_their_formulas_were_read() -> None:
    def unread() -> RuleSet:
        parts = ("bytes", "where", "checked", "applies")
        known = default_rules().rules.items()
        rules = {
            name: replace(rule, **{part: str(rule.formula(part)) for part in parts})
            for name, rule in known
        }
        return replace(default_rules(), rules=rules)

    one, other = unread(), unread()
    other.check()
    assert repr(one) != repr(other)
    facts = MODEL, Topology(), Training(), 4 * GIB
    digests = [Planner(*facts, rules=rules).digests for rules in (one, other)]
    assert digests[0] == digests[1]


def test_the_tokens_are_hashed_once_a_pool_and_only_for_other_processes() -> None:
    read: list[int] = []

    class Counted(Requests):
        def hashes(self, tokens: Any) -> Any:
            read.append(len(tokens))
            return super().hashes(tokens)

    def work(agreement: Any) -> Any:
        waves = planner(agreement, 2, 3 * GIB).waves(Counted(pool().sequences))
        return len(list(waves)), agreement.calls

    for count, calls in together(2, 2, work):
        assert calls == 5 * count > 5
    assert len(read) == 2
    list(planner(AllShares(), 2, 3 * GIB).waves(Counted(pool().sequences)))
    assert len(read) == 2


class Echo:
    """Ranks that agree with whatever this one says: its card, its tables, its outcome."""

    def __init__(self, dp_rank: int, dp: int) -> None:
        self.rank, self.dp_rank, self.size = dp_rank, dp_rank, max(2, dp)
        self.dp = dp
        self.calls = 0

    def all_min(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        self.calls += 1
        return values

    def all_max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        self.calls += 1
        cards = np.tile(values.reshape(self.size, -1)[self.rank], (self.size, 1))
        cards[:, 1] = np.arange(self.size) % self.dp
        return cards.reshape(-1)


def test_golden_waves_by_tables() -> None:
    """The reference waves of all data-parallel cases, and of others, found by the tables."""
    cases = golden_cases("e*_wave.json")
    many = 0
    wrong = []
    for i, case in enumerate(cases):
        given = case["input"]
        parallel = given.get("dp", (0, 1))[1] > 1
        many += parallel
        if not parallel and i % 7:
            continue
        agreement = Echo(*given.get("dp", (0, 1)))

        def connected(given: dict[str, Any], agreement: Echo = agreement) -> Planner:
            made = planner_of(given)
            made.agreement, made.ranks = agreement, Ranks(agreement)
            return made

        found = search(given, connected)
        wanted = {k: v for k, v in expected(case["output"]).items() if k != "probes"}
        assert agreement.calls == 4
        if lines := differences(found, wanted):
            wrong.append((case["id"], lines[:3]))
    assert not wrong, wrong
    assert many > 100


def test_an_error_between_waves_reaches_the_other_ranks() -> None:
    def work(agreement: Thread) -> Any:
        with in_step(agreement):
            for _ in planner(agreement, 3, 3 * GIB).waves(pool()):
                if agreement.rank == 1:
                    raise OSError("the disk is full")

    results = together(3, 3, work)
    failing(results, 1, OSError)
    assert str(results[0]) == "process 1 failed: OSError: the disk is full"


def test_an_error_after_the_last_wave_reaches_the_other_ranks() -> None:
    def work(agreement: Thread) -> Any:
        with in_step(agreement):
            waves = list(planner(agreement, 2, 60 * GIB).waves(pool()))
            if agreement.rank == 0:
                raise ValueError("late")
        return waves

    failing(together(2, 2, work), 0, ValueError)


def test_ranks_out_of_step_fail_loudly() -> None:
    def work(agreement: Thread) -> Any:
        with in_step(agreement):
            if agreement.rank:
                planner(agreement, 2, 4 * GIB).wave(pool())

    results = together(2, 2, work)
    for result in results:
        assert isinstance(result, RankError)
        assert "process 0 has finished while process 1 plans a wave" in str(result)


def test_an_error_that_all_ranks_raise_is_each_ranks_own() -> None:
    def work(agreement: Thread) -> Any:
        with in_step(agreement):
            return planner(agreement, 2, GIB).waves([])

    results = together(2, 2, work)
    assert [type(result) for result in results] == [InputError, InputError]


@pytest.mark.parametrize("text", ["x" * 1000, "é" * 300, ""])
def test_long_texts_of_errors_are_cut(text: str) -> None:
    def work(agreement: Thread) -> Any:
        with in_step(agreement):
            if agreement.rank:
                raise OSError(text)

    results = together(2, 2, work)
    failing(results, 1, OSError)
    assert len(str(results[0]).encode()) < 300


def test_agreements_are_checked() -> None:
    def refusal(agreement: Any, dp: int) -> str:
        with pytest.raises(InputError) as caught:
            planner(agreement, dp, GIB)
        return str(caught.value)

    assert "must offer rank, size" in refusal(object(), 1)
    assert "must be below dp, 2" in refusal(Alone(2), 2)
    assert "2 processes for dp = 4" in refusal(Thread(Board(2), 0, 4), 4)

    def work(agreement: Thread) -> Any:
        agreement.dp_rank = 0
        return planner(agreement, 2, GIB).wave(pool())

    for result in together(2, 2, work):
        assert "no process plans for DP rank 1" in str(result)
