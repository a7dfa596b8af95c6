"""Topologies: Megatron's divisions, refusals with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from waveplan import InputError, Topology, models


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
        ("qwen3.6-27b", {"tp": 3}, "kv_groups"),
        ("qwen3.6-35b-a3b", {"dp": 3, "ep": 3}, "ep is 3: it must divide experts, which is 256"),
        ("gpt-oss-20b", {"tp": 7, "etp": 7}, "heads"),
        ("gpt-oss-20b", {"dp": 7, "etp": 7}, "etp is 7: it must divide expert_ffn"),
    ],
)
def test_impossible_for_a_model(name: str, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Topology(**sizes).check(models.get(name))


def test_expert_groups_use_the_same_ranks() -> None:
    topology = Topology(tp=4, dp=2, ep=8, sequence_parallel=True)
    topology.check(models.get("qwen3.6-35b-a3b"))
    assert (topology.world, topology.expert_dp, topology.sp) == (8, 1, 4)
    assert Topology(tp=4).sp == 1
    assert str(topology) == "DP 2, TP 4, EP 8, SP"
    assert str(Topology()) == "one rank"
    # fewer key/value groups than tp: Megatron copies them
    Topology(tp=4).check(models.get("qwen3.6-35b-a3b"))
