"""Plans without sharing, with tokens that are never shared, and of padded rows."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import data_folder

from waveplan import Budget, InputError, Planner, Requests, Sequences, Topology, Training, models
from waveplan.cli import main

MODEL = models.get("qwen3-0.6b")


def planner(cp: int = 1, available: str = "3GiB") -> Planner:
    return Planner(MODEL, Topology(cp=cp), Training(), Budget(available=available))


def figures(waves: Any) -> list[tuple[Any, ...]]:
    return [
        (wave.width, wave.required, wave.plan.packed_tokens, wave.plan.rank_tokens.tolist())
        for wave in waves
    ]


@pytest.mark.parametrize("cp", [1, 2])
def test_without_sharing_a_pool_is_planned_like_one_that_shares_nothing(cp: int) -> None:
    sequences = Sequences.load(data_folder() / "math_grpo_open.npz").take(range(40))
    # The same lengths, and in every sequence other ids.
    apart = np.repeat(np.arange(len(sequences)), sequences.lengths) + 1
    other = Sequences(apart, sequences.offsets)
    targets = sequences.columns["first_target"]
    plain = Requests(sequences, targets=targets, sharing=False)
    assert figures(planner(cp).waves(plain)) == figures(
        planner(cp).waves(Requests(other, targets=targets))
    )
    shared = Requests(sequences, targets=targets)
    whole = planner(cp, "200GiB")
    assert whole.plan(shared).packed_tokens < whole.plan(plain).packed_tokens
    assert whole.plan(plain).packed_tokens == sequences.lengths.sum()
    again = pickle.loads(pickle.dumps(plain))
    assert figures(planner(cp).waves(again)) == figures(planner(cp).waves(plain))


def test_reference_mode_plans_without_sharing_too() -> None:
    sequences = [[1, 2, 3, 4]] * 4
    made = Planner(MODEL, Topology(), Training(), Budget(available="3GiB"), mode="reference")
    assert made.plan(Requests(sequences)).packed_tokens == 4
    assert made.plan(Requests(sequences, sharing=False)).packed_tokens == 16


def test_placeholders_are_never_shared() -> None:
    """What comes before the first of them is."""
    image, sequences = 99, [[1, 2, 99, 99, 5], [1, 2, 99, 99, 6], [1, 2, 3]]
    requests = Requests(sequences, unshareable=[image])
    assert requests.shareable.tolist() == [2, 2, 3]

    def least(requests: Requests) -> int:
        return int(planner().plan(requests).packs[0].tree.packed())

    assert least(requests) == 2 + 3 + 3 + 1
    assert least(Requests(sequences)) == 2 + 2 + 1 + 1 + 1
    assert least(Requests([[7, 99], [7, 99]], unshareable=[98, 99])) == 3


@pytest.mark.parametrize(("padding", "row"), [("longest", 700), (64, 704), (1, 700), (1024, 1024)])
@pytest.mark.parametrize("cp", [1, 2])
def test_padded_rows_cost_what_full_ones_do(padding: Any, row: int, cp: int) -> None:
    real = [700, 300, 20]

    def made(lengths: list[int], **asked: Any) -> Requests:
        tokens = Sequences(np.arange(sum(lengths)), np.append(0, np.cumsum(lengths)))
        # Pads have no label.
        masks = [np.arange(length) < true for length, true in zip(lengths, real, strict=True)]
        return Requests(tokens, targets=masks, hidden=True, **asked)

    padded = planner(cp).plan(made(real, padding=padding))
    full = planner(cp).plan(made([row] * 3))
    assert padded.required == full.required
    assert padded.packed_tokens == full.packed_tokens == 3 * row
    assert padded.rank_tokens.tolist() == full.rank_tokens.tolist()
    # The head projects whole rows for top-k.
    some = planner(cp).plan(made(real, padding=padding, top_k=4))
    assert some.required == planner(cp).plan(made([row] * 3, top_k=4)).required


def test_each_wave_pads_to_its_own_longest() -> None:
    lengths = [900, 100, 100, 100]
    offsets = np.append(0, np.cumsum(lengths))
    requests = Requests(Sequences(np.arange(offsets[-1]), offsets), padding="longest")
    plan = planner().plan
    whole = plan(requests)
    assert whole.packed_tokens == 3_600
    waves = list(planner(available=str(whole.required - 1)).waves(requests))
    assert len(waves) > 1
    for wave in waves:
        ran = [lengths[i] for i in wave.indices]
        assert wave.plan.packed_tokens <= len(ran) * max(ran)
    assert sum(wave.width for wave in waves) == 4


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"padding": 0}, "padding is 0: it must be at least 1"),
        ({"padding": "most"}, "padding is 'most': it must be one of longest"),
        ({"padding": 1.5}, "padding must be an integer"),
        ({"sharing": 1}, "sharing must be True or False"),
        ({"unshareable": ["a"]}, "unshareable[0] is 'a'"),
        ({"unshareable": 5}, "unshareable must be a list"),
        ({"targets": "all"}, "targets is 'all': it must be one of given"),
        ({"targets": [[0, 1, 1], [0, 0]]}, "targets[0] holds only 0 and 1"),
        ({"groups": ["a", ["b"]]}, "groups[1] is ['b']: give a value that is hashable"),
    ],
)
def test_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        Requests([[1, 2, 3], [4, 5]], **asked)
    assert says in str(caught.value)


def test_groups_by_name() -> None:
    sequences = [[1], [2], [3]]
    assert Requests(sequences, groups=["a", "a", 2.5]).group_sizes.tolist() == [2, 1]
    assert Requests(sequences, groups=[7, 7, 9]).group_sizes.tolist() == [2, 1]
    assert Requests(sequences, groups=[1, 2]).group_sizes.tolist() == [1, 2]
    with pytest.raises(InputError, match=r"groups\[2\] is 'a', like request 0 but not the one"):
        Requests(sequences, groups=["a", "b", "a"])


def test_the_command_line_says_what_padding_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rollouts.jsonl"
    rows = [{"input_ids": [1] * n, "uid": f"u{n % 2}"} for n in (400, 200, 100, 100)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["plan", str(path), "--model", "qwen3-0.6b", "--available", "20GiB"]

    def packed(*more: str) -> int:
        assert main([*command, *more, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        return sum(wave["plan"]["packed_tokens"] for wave in plan["waves"])

    assert (packed(), packed("--no-sharing"), packed("--padding", "longest")) == (400, 800, 1_600)
    assert packed("--padding", "256") == 2_048
    assert main([*command, "--keep-groups", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waves"][0]["width"] == 1  # one uid
    assert main([*command, "--padding", "longest"]) == 0
    assert "padding: 800 of 1,600 tokens are pads (50%)" in capsys.readouterr().out
    assert main([*command, "--padding", "wide"]) == 2
    assert "padding is 'wide': give longest or a multiple" in capsys.readouterr().err
