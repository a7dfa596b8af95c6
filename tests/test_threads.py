"""Planners in threads, forks and sub-interpreters: one thread's answers, or a clear error."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import workloads
from digest import planner, pools, text

import waveplan
from waveplan import InputError, Planner, Requests, Rows, WaveRefused
from waveplan import profiles as profiles_module
from waveplan.pricing import default_rules
from waveplan.profiles import Observation, Observed, Profiles, Rates, Signature

THREADS = 8
POOLS = pools()


@pytest.fixture(autouse=True)
def eager():
    """Threads change over as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """`work(i)` in as many threads, started at one moment; its first error is raised."""
    gate = threading.Barrier(threads)

    def one(i: int) -> Any:
        gate.wait()
        return work(i)

    with ThreadPoolExecutor(threads) as crew:
        return [done.result() for done in [crew.submit(one, i) for i in range(threads)]]


@pytest.mark.parametrize("compatible", [False, True])
def test_one_planner_in_eight_threads(compatible: bool) -> None:
    """Each thread plans its own pool; compatible planners get the same pool, as they remember."""
    names = list(POOLS)
    shared = planner(2, compatible=compatible)
    if compatible:
        shared.widest = 1 << 20  # what they remember no longer depends on who is first
    chosen = [POOLS[names[i % len(names)]] for i in range(THREADS)]
    wanted = []
    for rows in chosen:
        alone = planner(2, compatible=compatible)
        alone.widest = shared.widest
        wanted.append(text(alone.waves(rows, on_refusal="skip")))
    for _ in range(3):
        found = together(lambda i: text(shared.waves(chosen[i], on_refusal="skip")))
        assert found == wanted


def test_threads_share_out_the_waves_of_one_pool() -> None:
    rows = POOLS["short"]
    wanted = [wave.to_dict() for wave in planner(1, "1200MiB").waves(rows)]
    assert len(wanted) > 8
    waves = planner(1, "1200MiB").waves(rows)
    taken = together(lambda _: [wave.to_dict() for wave in waves])
    found = sorted((wave for part in taken for wave in part), key=lambda wave: wave["start"])
    assert found == wanted


@pytest.mark.parametrize("published", [False, True])
def test_no_reading_of_any_thread_is_lost(published: bool) -> None:
    readings, kinds = 200, 5
    shared, alone = Profiles(published=published), Profiles(published=published)

    def observe(profiles: Profiles, i: int) -> None:
        for j in range(readings):
            signature = Signature(f"job {j % kinds}", ("text",), (True,))
            profiles.observe(signature, Observation(100 + i, 100, 0, 1000 * i + j))
            assert profiles.columns(f"job {j % kinds}", ("text",))
            assert len(profiles.to_dict()["profiles"]) <= kinds

    for i in range(THREADS):
        observe(alone, i)
    together(lambda i: observe(shared, i))
    if published:
        for signature in shared:
            rates = shared[signature]
            assert isinstance(rates, Rates)
            assert rates.whole_waves == THREADS * readings // kinds
    # Each thread's last reading of a kind is its largest, whichever came first.
    for signature, known in alone.items():
        other = shared[signature]
        assert isinstance(other, type(known))
        if isinstance(other, Observed) and isinstance(known, Observed):
            assert max(p for _, p in other.later) == max(p for _, p in known.later)
            assert other.sharing == known.sharing


def test_threads_share_the_bundled_rules() -> None:
    assert len({id(rules) for rules in together(lambda _: default_rules())}) == 1


def test_prefetch_from_threads_changes_nothing() -> None:
    wanted = {name: text(planner(2).waves(rows, on_refusal="skip")) for name, rows in POOLS.items()}
    shared = planner(2)

    def work(i: int) -> None:
        name = list(POOLS)[i % len(POOLS)]
        waves = shared.waves(POOLS[name], on_refusal="skip")
        made = []
        for wave in waves:
            waves.prefetch()
            made.append(wave)
        assert text(made) == wanted[name]

    together(work)


@pytest.mark.parametrize("stage", ["tree", "pack", "layout", "waves", "requests"])
def test_arrays_that_change_during_a_call(stage: str) -> None:
    """Either answer or an error of ours, and the next call on quiet arrays is right again."""
    rows = workloads.blocks(3, count=60)
    tokens, offsets = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
    kept = tokens.copy()
    stop = threading.Event()
    plans = planner(2)
    calls: dict[str, Callable[[Rows], Any]] = {
        "tree": waveplan.tree,
        "pack": waveplan.pack,
        "layout": lambda rows: waveplan.choose_layout(waveplan.tree(rows), plans.scoring),
        "waves": lambda rows: list(plans.waves(rows, on_refusal="skip")),
        "requests": lambda rows: list(plans.waves(Requests(rows), on_refusal="skip")),
    }
    call = calls[stage]
    quiet = Rows(kept, offsets)
    wanted = text(planner(2).waves(quiet, on_refusal="skip"))

    def scribble() -> None:
        rng = np.random.default_rng(1)
        while not stop.is_set():
            at = rng.integers(0, len(tokens), 500)
            tokens[at] = rng.integers(0, 1 << 62, 500)
            tokens[:] = kept

    other = threading.Thread(target=scribble)
    other.start()
    answers = 0
    said: list[str] = []
    try:
        for _ in range(30):
            try:
                answers += call(Rows(tokens, offsets)) is not None
            except waveplan.WaveplanError as error:
                said.append(str(error))
    finally:
        stop.set()
        other.join()
    assert answers
    assert not any("\n" in line for line in said)
    assert text(planner(2).waves(quiet, on_refusal="skip")) == wanted


def test_offsets_that_change_during_a_call() -> None:
    """What was checked is what is used: the planner keeps its own copy."""
    tokens = np.arange(40_000, dtype=np.int64) % 7
    offsets = np.arange(0, 40_001, 100)
    rows, good = Rows(tokens, offsets), offsets.copy()
    stop = threading.Event()
    said: list[str] = []

    def scribble() -> None:
        while not stop.is_set():
            offsets[1:-1] = 1 << 60
            offsets[:] = good

    other = threading.Thread(target=scribble)
    other.start()
    try:
        for _ in range(50):
            for call in (waveplan.tree, waveplan.pack, lambda rows: list(planner(1).waves(rows))):
                try:
                    assert call(rows) is not None
                except InputError as error:
                    said.append(str(error))
    finally:
        stop.set()
        other.join()
    assert not any("\n" in line for line in said)


def _digest_in_child(name: str) -> str:
    return text(planner(2).waves(POOLS[name], on_refusal="skip"))


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_process_pools_of_every_kind(how: str) -> None:
    """Fork after import, and after planning and prefetching, is safe."""
    here = planner(2)
    waves = here.waves(POOLS["grpo"])
    next(waves)
    waves.prefetch()
    names = ["grpo", "ties"]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how)) as crew:
        found = list(crew.map(_digest_in_child, names))
    assert found == [_digest_in_child(name) for name in names]


def _plan_in_child(plans: Planner, requests: Requests) -> str:
    return text(plans.waves(requests))


@pytest.mark.parametrize("compatible", [False, True])
def test_planners_and_requests_cross_to_other_processes(compatible: bool) -> None:
    """With limit, profiles and rules; a refusal comes back with its figures."""
    plans = planner(2, "8GiB", compatible=compatible, margin=0.2)
    requests = Requests(POOLS["grpo"], top_k=4, items=2, adapter=["a", None] * 12)
    first = next(plans.waves(requests))
    plans.observe(first, 3 * first.required)
    plans.limit -= 1 << 20
    small = planner(1, "1MiB")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as crew:
        assert crew.submit(_plan_in_child, plans, requests).result() == text(plans.waves(requests))
        with pytest.raises(WaveRefused) as there:
            crew.submit(_plan_in_child, small, requests).result()
    with pytest.raises(WaveRefused) as here:
        next(small.waves(requests))
    assert there.value.to_dict() == here.value.to_dict()
    assert there.value.probes == here.value.probes
    with pytest.raises(InputError, match="stayed in the process"):
        _ = there.value.plan
    again = pickle.loads(pickle.dumps(plans))
    assert again.digests == plans.digests
    assert copy.deepcopy(plans).profiles.to_dict() == plans.profiles.to_dict()


def _go_on_after_fork(waves: Any, pipe: Any) -> None:
    made = []
    for wave in waves:
        made.append(wave.to_dict())
        waves.prefetch()
    pipe.send(json.dumps(made))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_goes_on_with_its_parents_waves() -> None:
    """The thread that planned ahead stayed in the parent: the child does without."""
    rows = POOLS["short"]
    wanted = [wave.to_dict() for wave in planner(1, "1200MiB").waves(rows)]
    waves = planner(1, "1200MiB").waves(rows)
    next(waves)
    waves.prefetch()
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_go_on_after_fork, args=(waves, send))
    child.start()
    send.close()
    assert json.loads(receive.recv()) == wanted[1:]
    child.join()
    assert child.exitcode == 0


COLD = """
import os, signal, sys, time
import numpy as np
from waveplan import Planner, Requests, Rows, Topology, Training, models
sys.setswitchinterval(1e-6)
planner = Planner(models.get("qwen3.6-35b-a3b"), Topology(cp=2), Training(), "70GiB")
pool = Requests(Rows(np.arange(50), np.arange(0, 51, 5)))
for i in range(200):
    if (child := os.fork()) == 0:  # as if newly started: nothing was planned yet
        planner.prefetch(pool)
        until = time.perf_counter() + i % 50 * 1e-5
        while time.perf_counter() < until:
            pass
        if (grandchild := os.fork()) == 0:
            signal.alarm(20)
            os._exit(planner.wave(pool).width - 10)
        os._exit(os.waitpid(grandchild, 0)[1])
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"trial {i}: status {status}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_during_the_first_search_ahead_of_a_process() -> None:
    code = [sys.executable, "-W", "ignore", "-c", COLD]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_waves_asked_for_in_the_middle_of_a_search_refuse() -> None:
    """As a signal handler might: nothing is planned twice, nothing is left out."""
    waves = planner(1, "1200MiB").waves(POOLS["short"])
    wanted = [wave.to_dict() for wave in planner(1, "1200MiB").waves(POOLS["short"])]
    said: list[str] = []
    session = waves.session

    def asked_again() -> Any:
        try:
            next(waves)
        except InputError as error:
            said.append(str(error))
        return session()

    waves.session = asked_again  # type: ignore[method-assign]
    assert [wave.to_dict() for wave in waves] == wanted
    assert said == ["these waves are being planned already, further up this call"] * len(wanted)


def test_observing_within_observing_and_prefetching_within_prefetching() -> None:
    """Locks are re-entrant: a signal handler cannot wait for the code that it interrupted."""
    plans = planner(1)
    waves = plans.waves(POOLS["grpo"])
    wave = next(waves)
    with profiles_module._LEARNING.held:
        plans.observe(wave, 1)
    with plans._guard.held:
        waves.prefetch()
    assert len(plans.profiles) == 1


def _use_all(plans: Planner, waves: Any, wave: Any, pipe: Any) -> None:
    plans.observe(wave, wave.required)
    waves.prefetch()
    pipe.send(json.dumps([wave.to_dict() for wave in waves]))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_finds_every_lock_free() -> None:
    """Another thread holds them all while the process forks."""
    plans = planner(1, "1200MiB")
    waves = plans.waves(POOLS["short"])
    wave = next(waves)
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with profiles_module._LEARNING.held, plans._guard.held, waves._turn.held:
            held.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_use_all, args=(plans, waves, wave, send))
    child.start()
    send.close()
    assert receive.poll(60), "the child waits for a lock that nobody holds there"
    there = json.loads(receive.recv())
    child.join()
    go_on.set()
    holder.join()
    plans.observe(wave, wave.required)
    assert there == [wave.to_dict() for wave in waves]


def test_planners_are_copied_whole_while_others_observe() -> None:
    plans = planner(1)
    stop = threading.Event()

    def learn() -> None:
        i = 0
        while not stop.is_set():
            i += 1
            signature = Signature(f"job {i % 50}", ("text",), (True,))
            plans.profiles.observe(signature, Observation(100, 100, 0, i))

    other = threading.Thread(target=learn)
    other.start()
    try:
        copies = [pickle.loads(pickle.dumps(plans)) for _ in range(30)]
        copies += [copy.deepcopy(plans) for _ in range(30)]
    finally:
        stop.set()
        other.join()
    assert all(len(made.profiles) <= 50 for made in copies)


def test_a_limit_set_during_a_search_counts_from_the_next() -> None:
    plans = planner(1, "1200MiB")
    waves = plans.waves(POOLS["short"])
    session = waves.session

    def meanwhile() -> Any:
        made = session()
        plans.limit = 1000
        return made

    waves.session = meanwhile  # type: ignore[method-assign]
    wave = next(waves)
    assert wave.required <= wave.limit == 1200 << 20
    with pytest.raises(WaveRefused):
        next(waves)


def test_sub_interpreters_are_refused() -> None:
    code = """
import sys
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
first = sys.argv[1] == "first"
if not first:
    import waveplan
inside = '''
import sys
sys.path[:0] = PATH
try:
    import waveplan
except ImportError as error:
    print("refused:", error)
'''.replace("PATH", repr(sys.path))
run(interpreters.create(), inside)
sys.stdout.flush()
import waveplan
print(len(waveplan.tree([[1, 2], [1, 3]])))
"""
    for when in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", code, when], capture_output=True, text=True, timeout=60
        )
        lines = done.stdout.splitlines()
        assert lines[0].startswith("refused: waveplan runs in the main interpreter only"), done
        assert lines[1:] == ["3"], done
