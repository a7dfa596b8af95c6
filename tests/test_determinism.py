"""The same plan, byte for byte, whatever the hash seed, storage, history and repetition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from digest import digest, planner, pools, text

from waveplan import Requests, Sequences, tree

POOLS = pools()


def plans(sequences: object, cp: int = 2) -> str:
    return text(planner(cp).waves(sequences, on_refusal="skip"))


def flat(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(sequences), np.cumsum([0, *map(len, sequences)])


def test_hash_seeds_and_environments_change_nothing() -> None:
    """Nor do locale, time zone or how many threads libraries may take."""
    code = [sys.executable, "-c", "import digest; print(digest.digest())"]
    runs = [
        subprocess.Popen(
            code,
            cwd=Path(__file__).parent,
            env=os.environ | changed,
            stdout=subprocess.PIPE,
            text=True,
        )
        for changed in (
            {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "7", "RAYON_NUM_THREADS": "3"},
            {
                "PYTHONHASHSEED": "4242",
                "LC_ALL": "C",
                "TZ": "Asia/Kathmandu",
                "PYTHONOPTIMIZE": "2",
            },
        )
    ]
    here = digest()
    for run in runs:
        assert run.communicate()[0].strip() == here, run.args


@pytest.mark.parametrize("name", POOLS)
def test_storage_of_sequences_changes_nothing(name: str) -> None:
    sequences = POOLS[name]
    wanted = plans(sequences)
    tokens, offsets = flat(sequences)
    wide = np.zeros(2 * len(tokens), np.int64)
    wide[::2] = tokens
    backwards = np.ascontiguousarray(tokens[::-1])[::-1]
    buffer = np.zeros(8 * len(tokens) + 1, np.uint8)
    misaligned = buffer[1:].view(np.int64)
    misaligned[:] = tokens
    frozen = tokens.copy()
    frozen.flags.writeable = False
    stored = {
        "int32": tokens.astype(np.int32),
        "uint32": tokens.astype(np.uint32),
        "big-endian": tokens.astype(">i8"),
        "strided": wide[::2],
        "reversed": backwards,
        "misaligned": misaligned,
        "read-only": frozen,
    }
    for how, values in stored.items():
        assert plans(Sequences(values, offsets)) == wanted, how
        assert plans(Sequences(values, offsets.astype(np.int32))) == wanted, how
    assert plans([sequence.astype(np.int32) for sequence in sequences]) == wanted
    assert plans([sequence.tolist() for sequence in sequences]) == wanted
    assert plans(Requests(Sequences(tokens, offsets))) == wanted
    padded = np.concatenate([np.full(5, -1), tokens, np.full(3, -1)])
    assert plans(Sequences(padded[5:-3], offsets)) == wanted, "part of a larger array"


@pytest.mark.parametrize("cp", [1, 2])
def test_repetitions_are_one_plan(cp: int) -> None:
    """Half with a fresh planner, half with one that has planned other pools in between."""
    sequences, other = POOLS["ties"], POOLS["prefixes"]
    wanted = plans(sequences, cp)
    used = planner(cp)
    seen = {plans(sequences, cp) for _ in range(50)}
    for i in range(50):
        if i % 10 == 0:
            list(used.waves(other, on_refusal="skip"))
        seen.add(text(used.waves(sequences, on_refusal="skip")))
    assert seen == {wanted}


def test_pools_planned_before_change_nothing() -> None:
    used = planner(2)
    for _ in range(2):
        for name, sequences in POOLS.items():
            assert text(used.waves(sequences, on_refusal="skip")) == plans(sequences), name


def test_reference_mode_keeps_the_widest_wave() -> None:
    used = planner(1, mode="reference")
    widths = [wave.width for wave in used.waves(POOLS["short"], on_refusal="skip")]
    assert used.width_hint == max(widths)
    ours = planner(1)
    list(ours.waves(POOLS["short"]))
    assert ours.width_hint is None


@pytest.mark.parametrize("name", ["grpo", "near", "ties", "prefixes"])
def test_permuting_equal_sequences_changes_only_their_indices(name: str) -> None:
    """Requests of equal sequences that differ in their labels trade places."""
    sequences = POOLS[name][:12]
    rng = np.random.default_rng(9)
    kind = np.repeat(np.arange(len(sequences)), 3)
    rng.shuffle(kind)
    listed = [sequences[i] for i in kind]
    first = np.array([rng.integers(0, len(sequence) + 1) for sequence in listed])
    gradient = rng.random(len(listed)) < 0.7
    pool, mixed = Requests(listed, targets=first), Requests(listed, gradient=gradient)
    whole = plan_of(pool)
    moved = 0
    for _ in range(5):
        # Place p now holds the request that was at place was[p].
        was = np.arange(len(listed))
        for i in range(len(sequences)):
            was[kind == i] = rng.permutation(np.flatnonzero(kind == i))
        moved += int((was != np.arange(len(was))).sum())
        dealt = Requests(listed, targets=first[was])
        # Groups: the same requests in the same order, by their new places.
        picks = rng.permutation(len(listed))[:20]
        both = zip(
            Requests(listed, gradient=gradient[was]).packs(picks),
            mixed.packs(was[picks]),
            strict=True,
        )
        for mine, theirs in both:
            assert was[mine.indices].tolist() == theirs.indices.tolist()
        # Trees: of the requests named by where they were, in the order of the places.
        mine, theirs = (
            tree(pool.sequences).restrict(was[picks]),
            tree(dealt.sequences).restrict(picks),
        )
        for column in ("parent", "start", "end", "count", "terminal"):
            assert getattr(mine, column).tolist() == getattr(theirs, column).tolist()
        # The plan: nothing but who is where.
        assert plan_of(dealt) == whole
    assert moved > 50


def plan_of(pool: Requests) -> str:
    """The whole pool as one plan, without its fingerprint."""
    plan = planner(2).plan(pool, available=1 << 60)
    said = plan.to_dict() | {"price": plan.price.to_dict()}
    assert said.pop("fingerprint")
    return json.dumps(said, sort_keys=True)
