"""The prefix tree: against its definition, on hostile shapes, on real rollouts."""

from __future__ import annotations

import signal
import sys
import threading
import time

import numpy as np
import pytest
import workloads
from hypothesis import given
from hypothesis import strategies as st
from slow import tree as slow_tree

import waveplan
from waveplan import _core

tokens = st.integers(-1, 2)
some_rows = st.lists(st.lists(tokens, min_size=1, max_size=9), min_size=1, max_size=12)


def columns_of(tree):
    columns = (tree.parent, tree.start, tree.end, tree.depth)
    return [
        (*values, tree.sequences[s].tolist())
        for s, values in enumerate(zip(*(c.tolist() for c in columns), strict=True))
    ]


def assert_same(found, wanted):
    names = ("parent", "start", "end", "depth", "count", "terminal")
    for name in names:
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)
    for count in {0, 1, wanted.sequence_count // 2, wanted.sequence_count}:
        assert found.packed(count) == wanted.packed(count)


@given(some_rows)
def test_tree_follows_the_definition(sequences):
    tree = waveplan.tree(sequences)
    segments, terminal = slow_tree.tree(sequences)
    assert columns_of(tree) == segments
    assert tree.terminal.tolist() == terminal
    assert tree.count.tolist() == [len(segment[4]) for segment in segments]
    assert tree.decisions.tolist() == [s for s, made in enumerate(segments) if len(made[4]) > 1]
    for n in range(len(sequences) + 1):
        assert tree.packed(n) == slow_tree.packed_tokens(sequences[:n])


@given(some_rows, st.data())
def test_restricting_equals_building(sequences, data):
    tree = waveplan.tree(sequences)
    picked = data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=14))
    assert_same(tree.restrict(picked), waveplan.tree([sequences[i] for i in picked]))


@given(st.integers(0, 2**32), st.sampled_from(["grpo", "blocks", "near_identical", "prefixes"]))
def test_restricting_longer_rows(seed, name):
    small = {
        "grpo": {"groups": 2, "k": 3, "prompt": (60, 200), "completion": (1, 200)},
        "blocks": {"count": 8, "block": (1, 150)},
        "near_identical": {"count": 6, "length": 300},
        "prefixes": {"count": 6, "length": 300},
    }
    sequences = workloads.GENERATORS[name](seed, **small[name])
    order = np.random.default_rng(seed).permutation(len(sequences))[: len(sequences) // 2 + 1]
    tree = waveplan.tree(sequences)
    assert tree.packed() == slow_tree.packed_tokens([sequence.tolist() for sequence in sequences])
    assert_same(tree.restrict(order), waveplan.tree([sequences[i] for i in order]))


def test_sharing_of_real_rollouts(corpora):
    # Reference with the data: tokens after full prefix sharing.
    known = {
        "tau_retail": 899_904,
        "tau_turns": 214_639,
        "coding": 1_420_631,
        "math_grpo": 93_711,
    }
    for name, sequences in corpora.items():
        tree = waveplan.tree(sequences)
        assert tree.packed() == known[name], name
        half = np.arange(0, len(sequences), 2)
        assert_same(tree.restrict(half), waveplan.tree([sequences[i] for i in half]))


def comb(sequences):
    """Row i leaves a common run after i tokens, as one flat array: every level is a segment."""
    lengths = np.arange(1, sequences + 1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat, common = np.empty(offsets[-1], np.int64), np.arange(sequences)
    for length, start in zip(lengths.tolist(), offsets.tolist(), strict=False):
        flat[start : start + length] = common[:length]
    flat[offsets[1:] - 1] += 1_000_000
    return waveplan.Sequences(flat, offsets)


def test_a_deep_comb():
    sequences = comb(10_000)
    tree = waveplan.tree(sequences)
    assert len(tree) == 2 * len(sequences) - 2
    assert tree.depth.max() == len(sequences) - 1
    assert tree.packed() == 2 * len(sequences) - 1
    packing = waveplan.pack(sequences)
    assert packing.packed_tokens == tree.packed()
    assert len(packing.path(len(sequences) - 1)) == len(sequences) - 1


def test_ten_thousand_rows():
    equal = waveplan.Sequences(np.tile(np.arange(50), 10_000), np.arange(10_001) * 50)
    tree = waveplan.tree(equal)
    assert (len(tree), tree.count.tolist(), tree.packed()) == (1, [10_000], 50)
    # As many siblings as sequences.
    wide = waveplan.Sequences(np.arange(20_000) % 10_000, np.arange(10_001) * 2)
    tree = waveplan.tree(wide)
    assert len(tree) == 5_000
    assert tree.restrict(np.arange(10_000)[::-1]).packed() == tree.packed()


def test_extreme_ids():
    big, small = 2**63 - 1, -(2**63)
    tree = waveplan.tree([[big, small, big], [big, small, 0], [small]])
    assert [tree.packed(n) for n in range(4)] == [0, 3, 4, 5]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([], "sequences is empty"),
        ([[1], [], [2]], "sequence 1 is empty"),
        ([[1], [True]], r"sequence 1\[0\] is True"),
        ([[1], [1.5]], r"sequence 1\[0\] is 1.5"),
        ("12", "sequences is a str"),
    ],
)
def test_refused(sequences, message):
    with pytest.raises(waveplan.InputError, match=message):
        waveplan.tree(sequences)


@pytest.mark.parametrize("picked", [[3], [-1], [2**62]])
def test_restricting_to_sequences_that_do_not_exist(picked):
    with pytest.raises(waveplan.InputError, match=r"sequences\[0\] is"):
        waveplan.tree([[1], [2], [3]]).restrict(picked)


def test_restricting_to_nothing():
    with pytest.raises(waveplan.InputError, match="sequences is empty"):
        waveplan.tree([[1]]).restrict([])
    with pytest.raises(waveplan.InputError, match="sequences is 4"):
        waveplan.tree([[1]]).packed(4)


def test_the_core_checks_what_it_is_given():
    flat = np.arange(10)
    for offsets in ([1, 10], [0, 11], [0, 5, 3, 10], [0, -1, 10], [0, 2**63 - 1], []):
        with pytest.raises(waveplan.InputError, match="offsets"):
            _core.build_tree(flat, np.array(offsets, np.int64))
    with pytest.raises(waveplan.InputError, match="contiguous"):
        _core.build_tree(flat[::2], np.array([0, 5]))
    misaligned = np.frombuffer(bytes(81), np.uint8)[1:].view(np.int64)
    assert not misaligned.flags.aligned
    with pytest.raises(waveplan.InputError, match="aligned"):
        _core.build_tree(misaligned, np.array([0, 10]))
    with pytest.raises(TypeError):
        _core.build_tree(flat.astype(np.int32), np.array([0, 10]))


def test_the_interpreter_runs_while_the_core_works():
    sequences = waveplan.Sequences(np.zeros(4_000_000, np.int64), np.arange(0, 4_000_001, 1000))
    count, stop = 0, threading.Event()

    def counting():
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=counting)
    thread.start()
    try:
        # With so long an interval another thread runs only where this one lets go.
        sys.setswitchinterval(1_000)
        moved = False
        while not moved:
            before = count
            _core.build_tree(sequences.tokens, sequences.offsets)
            moved = count != before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert moved


def test_threads_share_one_tree():
    sequences = workloads.blocks(5, count=60)
    tree = waveplan.tree(sequences)
    orders = [np.random.default_rng(i).permutation(60) for i in range(8)]
    wanted = [tree.restrict(order).parent for order in orders]
    found = [None] * 8

    def work(i):
        for _ in range(20):
            found[i] = tree.restrict(orders[i]).parent

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_tokens_changed_by_another_thread_do_no_harm():
    flat = np.zeros(400_000, np.int64)
    sequences = waveplan.Sequences(flat, np.arange(0, 400_001, 100))
    stop = threading.Event()

    def scribble():
        rng = np.random.default_rng(0)
        while not stop.is_set():
            flat[rng.integers(0, len(flat), 1000)] = rng.integers(0, 3, 1000)

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _ in range(20):
            tree = waveplan.tree(sequences)
            assert tree.sequence_count == len(sequences)
            assert len(waveplan.pack(sequences).positions(7)) == 100
    finally:
        stop.set()
        thread.join()


def test_a_signal_is_raised_and_nothing_is_lost():
    sequences = workloads.short(3, count=4_000)
    wanted = waveplan.tree(sequences).packed()
    given_sequences = waveplan.Sequences.from_any(sequences)

    class StopError(Exception):
        pass

    def handler(*_):
        raise StopError

    def build_forever():
        while True:
            _core.build_tree(given_sequences.tokens, given_sequences.offsets)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(StopError):
            build_forever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert waveplan.tree(given_sequences).packed() == wanted
