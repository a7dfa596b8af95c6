"""Topologies: Megatron's divisions, refusals with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from waveplan import InputError, Sharding, Topology, models


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"cp": 0}, "cp is 0: it must be at least 1"),
        ({"tp": -1}, "tp is -1"),
        ({"dp": 1.5}, "dp must be an integer"),
        ({"pp": True}, "pp must be an integer"),
        ({"sequence_parallel": True}, "sequence_parallel needs tp"),
        ({"tp": 2, "sequence_parallel": 1}, "sequence_parallel must be True or False"),
        ({"ep": 2}, r"ep \* etp is 2: it must divide dp \* tp \* cp, which is 1"),
        ({"cp": 2, "ep": 2, "etp": 2}, r"ep \* etp is 4"),
        ({"virtual": 2}, "virtual is 2: it needs pp of at least 2"),
        ({"pp": 2, "stage_layers": (9,)}, r"stage_layers has 1 entries: pp \* virtual is 2"),
        ({"pp": 4, "virtual": 2, "virtual_group": 3}, "virtual_group is 3: it must be at least pp"),
        ({"pp": 4, "virtual_group": 4}, "virtual_group is 4: it needs virtual of at least 2"),
        ({"sharding": "all"}, "sharding is 'all': it must be one of none, optimizer"),
        ({"dp": 3, "sharding": Sharding("optimizer", 2)}, "instances is 2: it must divide dp"),
    ],
)
def test_impossible_in_itself(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Topology(**sizes)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("qwen3-8b", {"dp": 2, "ep": 2}, "the model has no experts"),
        ("qwen3-8b", {"dp": 2, "etp": 2}, "the model has no experts"),
        ("qwen3-8b", {"tp": 3}, r"tp is 3: it must divide heads, which is 32"),
        ("qwen3-8b", {"pp": 5}, "pp is 5: it must divide layers"),
        ("qwen3-8b", {"pp": 4, "virtual": 5}, r"pp \* virtual is 20: it must divide layers"),
        ("qwen3-8b", {"pp": 2, "stage_layers": (20, 20)}, "stage_layers sums to 40"),
        ("qwen3.6-27b", {"tp": 3}, "kv_groups"),
        ("qwen3.6-35b-a3b", {"dp": 3, "ep": 3}, "ep is 3: it must divide experts, which is 256"),
        ("gpt-oss-20b", {"tp": 7, "etp": 7}, "heads"),
        ("gpt-oss-20b", {"dp": 7, "etp": 7}, "etp is 7: it must divide expert_ffn"),
    ],
)
def test_impossible_for_a_model(name: str, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Topology(**sizes).check(models.get(name))


def test_stages_and_what_they_hold() -> None:
    uneven = Topology(pp=2, virtual=2, stage_layers=(1, 2, 3, 0))
    assert uneven.chunks(6, 0) == [range(1), range(3, 6)]
    assert uneven.chunks(6, 1) == [range(1, 3), range(6, 6)]
    assert [Topology(pp=4).in_flight(stage) for stage in range(4)] == [[4], [3], [2], [1]]
    assert Topology(pp=4).in_flight(0, microbatches=2) == [2]
    # (virtual - 1) * group + 1 forward passes on the last stage, twice the way to it more below.
    many = Topology(pp=4, virtual=3, virtual_group=5)
    assert many.in_flight(3) == [5, 5, 1]
    assert many.in_flight(0) == [7, 5, 5]
    assert many.in_flight(0, microbatches=4) == [4, 4, 4]


def test_expert_groups_use_the_same_ranks() -> None:
    topology = Topology(tp=4, dp=2, ep=8, sequence_parallel=True)
    topology.check(models.get("qwen3.6-35b-a3b"))
    assert (topology.world, topology.expert_dp, topology.sp) == (8, 1, 4)
    assert Topology(tp=4).sp == 1
    assert str(topology) == "DP 2, TP 4, EP 8, SP"
    assert str(Topology()) == "one rank"
    # fewer key/value groups than tp: Megatron copies them
    Topology(tp=4).check(models.get("qwen3.6-35b-a3b"))
