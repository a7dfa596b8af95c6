"""Planners in threads, forks and sub-interpreters: one thread's answers, or a clear error."""

from __future__ import annotations

import copy
import json
import multiprocessing
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
from waveplan import InputError, Planner, Requests, Sequences, WaveRefused
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


@pytest.mark.parametrize("reference", [False, True])
def test_one_planner_in_eight_threads(reference: bool) -> None:
    """Each thread plans its own pool; reference planners get the same pool, as they remember."""
    names = list(POOLS)
    shared = planner(2, mode="reference" if reference else "best")
    if reference:
        shared.width_hint = 1 << 20  # what they remember no longer depends on who is first
    chosen = [POOLS[names[i % len(names)]] for i in range(THREADS)]
    wanted = []
    for sequences in chosen:
        alone = planner(2, mode="reference" if reference else "best")
        alone.width_hint = shared.width_hint
        wanted.append(text(alone.waves(sequences, on_refusal="skip")))
    for _ in range(3):
        found = together(lambda i: text(shared.waves(chosen[i], on_refusal="skip")))
        assert found == wanted


def test_threads_share_out_the_waves_of_one_pool() -> None:
    sequences = POOLS["short"]
    wanted = [wave.to_dict() for wave in planner(1, "1200MiB").waves(sequences)]
    assert len(wanted) > 8
    waves = planner(1, "1200MiB").waves(sequences)
    taken = together(lambda _: [wave.to_dict() for wave in waves])
    found = sorted((wave for part in taken for wave in part), key=lambda wave: wave["start"])
    assert found == wanted


@pytest.mark.parametrize("reference", [False, True])
def test_no_reading_of_any_thread_is_lost(reference: bool) -> None:
    readings, kinds = 200, 5
    shared, alone = Profiles(reference=reference), Profiles(reference=reference)

    def observe(profiles: Profiles, i: int) -> None:
        for j in range(readings):
            signature = Signature(f"job {j % kinds}", ("text",), (True,))
            profiles.observe(signature, Observation(100 + i, 100, 0, 1000 * i + j))
            assert profiles.known(f"job {j % kinds}", ("text",))
            assert len(profiles.to_dict()["profiles"]) <= kinds

    for i in range(THREADS):
        observe(alone, i)
    together(lambda i: observe(shared, i))
    if reference:
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


@pytest.mark.parametrize("stage", ["pack", "layout", "requests"])
def test_arrays_that_change_during_a_call(stage: str) -> None:
    """Either answer or an error of ours, and the next call on quiet arrays is right again."""
    sequences = workloads.blocks(3, count=60)
    tokens, offsets = np.concatenate(sequences), np.cumsum([0, *map(len, sequences)])
    kept = tokens.copy()
    stop = threading.Event()
    plans = planner(2)
    calls: dict[str, Callable[[Sequences], Any]] = {
        "pack": waveplan.pack,
        "layout": lambda sequences: waveplan.choose_layout(waveplan.tree(sequences), plans.scoring),
        "requests": lambda sequences: list(plans.waves(Requests(sequences), on_refusal="skip")),
    }
    call = calls[stage]
    quiet = Sequences(kept, offsets)
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
                answers += call(Sequences(tokens, offsets)) is not None
            except waveplan.WaveplanError as error:
                said.append(str(error))
    finally:
        stop.set()
        other.join()
    assert answers
    assert not any("\n" in line for line in said)
    assert text(planner(2).waves(quiet, on_refusal="skip")) == wanted


def _digest_in_child(name: str) -> str:
    return text(planner(2).waves(POOLS[name], on_refusal="skip"))


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_process_pools_of_every_kind(how: str) -> None:
    """Fork after import, and after planning, is safe."""
    here = planner(2)
    waves = here.waves(POOLS["grpo"])
    next(waves)
    names = ["grpo", "ties"]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how)) as crew:
        found = list(crew.map(_digest_in_child, names))
    assert found == [_digest_in_child(name) for name in names]


def _plan_in_child(plans: Planner, requests: Requests) -> str:
    return text(plans.waves(requests))


@pytest.mark.parametrize("reference", [False, True])
def test_planners_and_requests_cross_to_other_processes(reference: bool) -> None:
    """With limit, profiles and rules; a refusal comes back with its figures."""
    plans = planner(2, "8GiB", mode="reference" if reference else "best", margin=0.2)
    requests = Requests(POOLS["grpo"], top_k=4, groups=2, adapter=["a", None] * 12)
    first = next(plans.waves(requests))
    plans.observe(first, 3 * first.required)
    plans.available -= 1 << 20
    small = planner(1, "1MiB")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as crew:
        assert crew.submit(_plan_in_child, plans, requests).result() == text(plans.waves(requests))
        with pytest.raises(WaveRefused) as there:
            crew.submit(_plan_in_child, small, requests).result()
    with pytest.raises(WaveRefused) as here:
        next(small.waves(requests))
    assert there.value.to_dict() == here.value.to_dict()
    assert there.value.probes == here.value.probes
    with pytest.raises(InputError, match="only the process that refused"):
        _ = there.value.plan
    again = pickle.loads(pickle.dumps(plans))
    assert again.digests == plans.digests
    assert copy.deepcopy(plans).profiles.to_dict() == plans.profiles.to_dict()


def _go_on_after_fork(waves: Any, pipe: Any) -> None:
    pipe.send(json.dumps([wave.to_dict() for wave in waves]))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_goes_on_with_its_parents_waves() -> None:
    sequences = POOLS["short"]
    wanted = [wave.to_dict() for wave in planner(1, "1200MiB").waves(sequences)]
    waves = planner(1, "1200MiB").waves(sequences)
    next(waves)
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_go_on_after_fork, args=(waves, send))
    child.start()
    send.close()
    assert json.loads(receive.recv()) == wanted[1:]
    child.join()
    assert child.exitcode == 0


def test_waves_asked_for_in_the_middle_of_a_search_refuse() -> None:
    """As a signal handler might: nothing is planned twice, nothing is left out."""
    waves = planner(1, "1200MiB").waves(POOLS["short"])
    wanted = [wave.to_dict() for wave in planner(1, "1200MiB").waves(POOLS["short"])]
    said: list[str] = []
    sessions = waves.sessions

    def asked_again() -> Any:
        try:
            next(waves)
        except InputError as error:
            said.append(str(error))
        return sessions()

    waves.sessions = asked_again  # type: ignore[method-assign]
    assert [wave.to_dict() for wave in waves] == wanted
    assert said == ["these waves are being planned already, further up this call"] * len(wanted)


def test_observing_within_observing() -> None:
    """Locks are re-entrant: a signal handler cannot wait for the code that it interrupted."""
    plans = planner(1)
    waves = plans.waves(POOLS["grpo"])
    wave = next(waves)
    with profiles_module._LEARNING, waves._turn:
        plans.observe(wave, 1)
    assert len(plans.profiles) == 1


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
        copies = [pickle.loads(pickle.dumps(plans)) for _ in range(4)]
        copies += [copy.deepcopy(plans) for _ in range(4)]
    finally:
        stop.set()
        other.join()
    assert all(len(made.profiles) <= 50 for made in copies)


def test_a_limit_set_during_a_search_counts_from_the_next() -> None:
    plans = planner(1, "1200MiB")
    waves = plans.waves(POOLS["short"])
    sessions = waves.sessions

    def meanwhile() -> Any:
        made = sessions()
        plans.available = 1000
        return made

    waves.sessions = meanwhile  # type: ignore[method-assign]
    wave = next(waves)
    assert wave.required <= wave.available == 1200 << 20
    with pytest.raises(WaveRefused):
        next(waves)


def test_sub_interpreters_are_refused() -> None:
    """By CPython from 3.12 on, before by numpy: an error there, and the main one goes on."""
    code = """
import sys
import waveplan
print(len(waveplan.tree([[1, 2], [1, 3]])), flush=True)
try:
    from _interpreters import create, exec as run
except ImportError:
    from _xxsubinterpreters import create, run_string as run
inside = '''
import sys
sys.path[:0] = PATH
try:
    import waveplan
    print(len(waveplan.tree([[1, 2], [1, 3]])))
except ImportError:
    print("refused", flush=True)
'''.replace("PATH", repr(sys.path))
run(create(), inside)
sys.stdout.flush()
print(len(waveplan.tree([[1, 2], [1, 3]])))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "3\nrefused\n3\n", done
